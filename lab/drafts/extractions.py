"""Twenty prompts whose answers are facts of a text, with the schema of each answer."""

from __future__ import annotations

import dataclasses
from typing import Any

INSTRUCTION = "Extract the facts of this text as JSON. "

_TEXT = {"type": "string", "maxLength": 60}
_INTEGER = {"type": "integer"}
_NUMBER = {"type": "number"}
_YES_NO = {"type": "boolean"}
_LIST = {"type": "array", "items": _TEXT, "maxItems": 4}


def _one_of(*values: str) -> dict[str, Any]:
    return {"enum": list(values)}


@dataclasses.dataclass(frozen=True)
class Extraction:
    """A text and the fields to find in it."""

    text: str
    fields: dict[str, Any]

    @property
    def prompt(self) -> str:
        """Return the model's prompt."""
        return f"{INSTRUCTION}Fields: {', '.join(self.fields)}.\n\n{self.text}"

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the answer."""
        return {
            "type": "object",
            "properties": self.fields,
            "required": list(self.fields),
            "additionalProperties": False,
        }


EXTRACTIONS = (
    Extraction(
        "Maria Lopez, 34, is a nurse. She lives in Madrid with her two cats.",
        {"name": _TEXT, "age": _INTEGER, "occupation": _TEXT, "city": _TEXT},
    ),
    Extraction(
        "The Brightwell toaster costs 39.90 euros, comes in red or black, and is in stock.",
        {"product": _TEXT, "price": _NUMBER, "colours": _LIST, "in_stock": _YES_NO},
    ),
    Extraction(
        "Flight KL 1027 leaves Amsterdam at 14:35 and arrives in London at 14:55.",
        {"flight_number": _TEXT, "origin": _TEXT, "destination": _TEXT, "departure": _TEXT},
    ),
    Extraction(
        "The meeting on the budget is on Tuesday at 10:00 in room 4B. Ann and Raj will attend.",
        {"subject": _TEXT, "day": _TEXT, "time": _TEXT, "room": _TEXT, "attendees": _LIST},
    ),
    Extraction(
        "I waited an hour for cold soup and the waiter was rude. I will never come back.",
        {"sentiment": _one_of("positive", "neutral", "negative"), "complaints": _LIST},
    ),
    Extraction(
        "Mount Kenya is 5,199 metres high and lies in Kenya. It was first climbed in 1899.",
        {"mountain": _TEXT, "height_metres": _INTEGER, "country": _TEXT, "first_ascent": _INTEGER},
    ),
    Extraction(
        "Please send three boxes of A4 paper and a stapler to 12 Mill Road, Leeds, by Friday.",
        {"items": _LIST, "address": _TEXT, "deadline": _TEXT, "urgent": _YES_NO},
    ),
    Extraction(
        "Pancakes: mix 200 g of flour, two eggs and 300 ml of milk. Fry for 2 minutes. Serves 4.",
        {"dish": _TEXT, "ingredients": _LIST, "cooking_minutes": _INTEGER, "servings": _INTEGER},
    ),
    Extraction(
        "Server db-3 ran out of disk space at 03:12. It was restarted by the operator at 03:40.",
        {"host": _TEXT, "cause": _TEXT, "resolved": _YES_NO, "severity": _one_of("low", "high")},
    ),
    Extraction(
        "The novel The Grey Harbour by Lena Voss was published in 2011 and has 312 pages.",
        {"title": _TEXT, "author": _TEXT, "year": _INTEGER, "pages": _INTEGER},
    ),
    Extraction(
        "Invoice 20417 of 3 March: 1,250.00 dollars for consulting, to be paid in 30 days.",
        {"invoice_number": _INTEGER, "date": _TEXT, "amount": _NUMBER, "service": _TEXT},
    ),
    Extraction(
        "Rex is a brown Labrador of six years. He weighs 31 kilograms and is vaccinated.",
        {"name": _TEXT, "breed": _TEXT, "weight_kilograms": _NUMBER, "vaccinated": _YES_NO},
    ),
    Extraction(
        "Oslo will have snow tomorrow, with minus 4 degrees and a strong wind from the north.",
        {"city": _TEXT, "weather": _TEXT, "temperature": _INTEGER, "wind_direction": _TEXT},
    ),
    Extraction(
        "The Tigers beat the Falcons 3 to 1 on Sunday. Kim scored two of the goals.",
        {"winner": _TEXT, "loser": _TEXT, "winner_goals": _INTEGER, "best_scorer": _TEXT},
    ),
    Extraction(
        "For rent: a flat of 62 square metres with two bedrooms in Porto, 950 euros a month.",
        {"kind": _one_of("flat", "house"), "city": _TEXT, "bedrooms": _INTEGER, "rent": _INTEGER},
    ),
    Extraction(
        "The patient has had a fever of 38.9 degrees and a cough for three days. No allergies.",
        {"symptoms": _LIST, "temperature": _NUMBER, "days": _INTEGER, "allergies": _YES_NO},
    ),
    Extraction(
        "We look for a junior engineer in Berlin. Python is required. The job is full time.",
        {"title": _TEXT, "city": _TEXT, "skills": _LIST, "contract": _one_of("full", "part")},
    ),
    Extraction(
        "The train from Lyon to Paris takes 2 hours and costs 47 euros in second class.",
        {"origin": _TEXT, "destination": _TEXT, "hours": _NUMBER, "price": _NUMBER},
    ),
    Extraction(
        "The bridge over the Tay was opened in 1966. It is 2,250 metres long and carries a road.",
        {"river": _TEXT, "opened": _INTEGER, "length_metres": _INTEGER, "carries": _TEXT},
    ),
    Extraction(
        "Jonas called at 9:15 from 555-0142. He asks for a call back about his broken boiler.",
        {"caller": _TEXT, "phone": _TEXT, "reason": _TEXT, "call_back": _YES_NO},
    ),
)
