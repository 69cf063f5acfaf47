"""Tables in documents: rows are replaced by name, others stay, and what has no row is named."""

from __future__ import annotations

from pathlib import Path

from cassandra_spec.verif.formal.__main__ import TABLE as PROOFS
from cassandra_spec.verif.formal.registry import claims
from cassandra_spec.verif.mutation.__main__ import TABLE as FAULTS
from cassandra_spec.verif.mutation.catalogue import MUTATIONS
from cassandra_spec.verif.tools.recording import RecordedTable

DOCUMENT = Path(__file__).parents[2] / "docs" / "verification.md"
TABLE = RecordedTable(mark="t", columns=("what", "how"), absent="Without ({number}): {names}.")


def inside(*lines: str) -> str:
    return "\n".join(["before", "<!-- t -->", "", *lines, "", "<!-- /t -->", "after"])


def test_rows_are_replaced_by_name_and_others_stay() -> None:
    document = inside("| `a` | old |", "| `b` | old |", "| `gone` | old |", "", "Without: `c`.")
    head = ("| what | how |", "| :-- | :-- |")
    rows = ("| `a` | old |", "| `b` | new |")
    names = ["c", "a", "b"]
    found = TABLE.recorded(document, {"b": ("new",)}, names)
    assert found == inside(*head, *rows, "", "Without (1): `c`.")
    found = TABLE.recorded(found, {"c": ("newer",)}, names)
    assert found == inside(*head, "| `c` | newer |", *rows)


def test_rows_of_the_document_are_of_claims_and_faults_that_exist() -> None:
    """Nothing is dropped when the document is recorded anew."""
    text = DOCUMENT.read_text(encoding="utf-8")
    for table, names in (
        (PROOFS, [claim.name for claim in claims()]),
        (FAULTS, [mutation.name for mutation in MUTATIONS]),
    ):
        again = table.recorded(text, {}, names)
        assert [line for line in text.splitlines() if line.startswith("| `")] == [
            line for line in again.splitlines() if line.startswith("| `")
        ]
