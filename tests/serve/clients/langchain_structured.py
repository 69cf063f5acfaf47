"""langchain-openai: a structured reply and a call of a tool, as JSON (ADDRESS PROMPT)."""

from __future__ import annotations

import json
import sys
from typing import Literal

from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict


class Person(BaseModel):
    """A person."""

    model_config = ConfigDict(extra="forbid")  # else a small model adds fields without end
    kind: Literal["man", "dog"]
    tall: bool


address, prompt = sys.argv[1:]
chat = ChatOpenAI(
    model="tiny",
    base_url=f"{address}/v1",
    api_key="none",
    temperature=0,
    max_retries=0,
    max_tokens=200,
)
person = chat.with_structured_output(Person, method="json_schema").invoke(prompt)
called = chat.bind_tools([Person], tool_choice="Person").invoke(prompt)
by_function = chat.with_structured_output(Person, method="function_calling").invoke(prompt)
pieces = list(chat.bind_tools([Person], tool_choice="Person").stream(prompt))
whole = pieces[0]
for piece in pieces[1:]:
    whole = whole + piece
found = {
    "schema": person.model_dump(),
    "calls": [(call["name"], call["args"]) for call in called.tool_calls],
    "function": by_function.model_dump(),
    "streamed": [(call["name"], call["args"]) for call in whole.tool_calls],
}
print(json.dumps(found))
