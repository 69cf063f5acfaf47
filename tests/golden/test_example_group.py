"""The group of eight weights that begins docs/format.md, and its picture, against golden."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import Format, Packed, decode_draft, decode_target, encode
from cassandra_spec.golden.oracle import numbers

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "format.md").read_text(encoding="utf-8")
SVG = "{http://www.w3.org/2000/svg}"
PICTURE = ET.parse(DOCS / "format.svg").getroot()
GROUP = 127


def rows(mark: str) -> list[list[str]]:
    """Return the cells of the table behind a mark, without its head."""
    lines = PAGE.split(f"<!-- {mark} -->\n")[1].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


WEIGHTS = rows("example group")
PATTERNS: NDArray[np.uint16] = (
    np.array([float(row[1]) for row in WEIGHTS], dtype=np.float32).view(np.uint32) >> 16
).astype(np.uint16)


def packed() -> Packed:
    [quoted] = re.findall(r"`(Format\(.*?\))`", PAGE.split("## 1. Terms")[0])
    tensor = encode(PATTERNS, eval(quoted, {"Format": Format}))
    np.testing.assert_array_equal(decode_target(tensor), PATTERNS)
    return tensor


def texts(element: ET.Element, kind: str) -> list[str]:
    return [text.text or "" for text in element.iter(f"{SVG}text") if text.get("class") == kind]


def test_every_field_of_a_weight_is_what_the_oracle_computes() -> None:
    assert len(WEIGHTS) == 8
    for row, pattern in zip(WEIGHTS, PATTERNS, strict=True):
        _, _, sign, exponent, significand, distance, high, low, residue, _ = row
        number = numbers.Number.of(int(pattern))
        aligned = numbers.windowed(number, GROUP)
        bits = "".join(map(str, numbers.residue_bits(number, aligned)))
        assert (int(sign), int(exponent)) == (number.sign, number.exponent)
        assert int(significand, 2) == number.significand
        assert distance == (str(GROUP - number.effective) if number.significand else "")
        assert f"{high}{low}" == f"{aligned:08b}"
        assert residue.split(":")[0] == bits[::-1]
        assert ("zero" in residue) == (pattern == 0)
        assert ("escape" in residue) == (aligned == 0 and pattern != 0)


def test_drafts_are_those_of_the_codec() -> None:
    drafts = (decode_draft(packed()).astype(np.uint32) << 16).view(np.float32)
    assert [str(draft) for draft in drafts] == [row[-1] for row in WEIGHTS]


def test_bytes_are_those_of_the_codec() -> None:
    [[_, *cells]] = rows("example bytes")
    between = cells.index("")
    speculation, verification = (
        bytes.fromhex("".join(part).replace("`", "")) for part in (cells[:between], cells[between:])
    )
    tensor = packed()
    assert tensor.speculation.tobytes() == speculation.ljust(128, b"\0")
    assert tensor.verification.tobytes() == verification.ljust(128, b"\0")


def test_the_picture_shows_the_same_bits_and_bytes() -> None:
    groups = [
        group for group in PICTURE.iter(f"{SVG}g") if group.get("id", "").startswith("weight")
    ]
    for row, group in zip(WEIGHTS, groups, strict=True):
        assert texts(group, "right") == [row[1]]
        _, _, sign, _, _, _, high, low, residue, _ = row
        assert "".join(texts(group, "bit")) == sign + high + low + residue.split(":")[0]
    [[_, *cells]] = rows("example bytes")
    given = [cell.strip("`") for cell in cells if cell]
    planes = texts(PICTURE, "byte")
    assert [*planes[:6], *planes[9:5:-1], *planes[10:]] == given
