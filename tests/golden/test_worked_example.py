"""The worked example of docs/format.md, section 9, against oracle and codec."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cassandra_spec.golden import Format, Packed, decode_draft, decode_target, encode, oracle
from cassandra_spec.golden.oracle import encoding, numbers
from tests.golden.rationals import rational

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
SECTION = DOCUMENT[DOCUMENT.index("## 9. Worked example") : DOCUMENT.index("## 10.")]
PARTS = dict(
    zip(("unary", "exact"), re.split(r"^### 9\.\d .*$", SECTION, flags=re.M)[1:], strict=True)
)
FORMATS = {
    "unary": (Format(beat=8, group=8, segment=16, window=1), {"codebook": (126, 127, 125)}),
    "exact": (Format(scheme="exact", beat=8, group=8, segment=16), {}),
}


def table(text: str, columns: int) -> list[list[str]]:
    """Return rows of the first table of ``columns`` columns, its head left out."""
    found: list[list[str]] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) == columns:
            found.append(cells)
        elif found:
            break
    return found[2:]


VALUES = table(SECTION, 6)
PATTERNS: NDArray[np.uint16] = np.array(
    [int(row[2].strip("`"), 16) for row in VALUES], dtype=np.uint16
)


def packed(scheme: str) -> Packed:
    format, options = FORMATS[scheme]
    return encode(PATTERNS, format, **options)  # type: ignore[arg-type]


def listed(scheme: str, name: str) -> list[str]:
    found = re.search(rf"^    {name} +(.*)$", PARTS[scheme], re.MULTILINE)
    assert found
    return found[1].split()


def test_the_values_are_what_their_bits_say() -> None:
    assert len(VALUES) == 12
    for _, value, pattern, sign, exponent, mantissa in VALUES:
        bits = int(pattern.strip("`"), 16)
        assert bits == int(sign) << 15 | int(exponent) << 7 | int(mantissa, 2)
        assert rational(bits) == float(value.strip("`"))


@pytest.mark.parametrize("scheme", ["unary", "exact"])
def test_formats_are_the_ones_that_are_quoted(scheme: str) -> None:
    quoted = re.search(r"`(Format\(.*?\))`", PARTS[scheme])
    assert quoted
    assert eval(quoted[1], {"Format": Format}) == FORMATS[scheme][0]


@pytest.mark.parametrize("scheme", ["unary", "exact"])
@pytest.mark.parametrize("region", ["speculation", "verification"])
def test_regions_are_the_listed_rows_and_bytes(scheme: str, region: str) -> None:
    stored = getattr(packed(scheme), region)
    octets = [int(octet, 16) for octet in listed(scheme, region)]
    assert stored.tolist() == octets + [0] * (128 - len(octets))
    text = PARTS[scheme].split(f"<!-- rows: {scheme} {region} -->")[1]
    rows = [row[2].strip("`") for row in table(text, 4)]
    assert [int(row[::-1], 2) for row in rows] == octets


def recorded(scheme: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Stream and bits of every row, in the order in which the oracle's machine takes them."""
    rows: list[tuple[str, str]] = []
    take = encoding._Recorder.row

    def note(self: Any, stream: str) -> list[int]:
        bits = take(self, stream)
        rows.append((stream, "".join(map(str, bits))))
        return bits

    monkeypatch.setattr(encoding._Recorder, "row", note)
    format, options = FORMATS[scheme]
    oracle.encode(PATTERNS, format, **options)  # type: ignore[arg-type]
    return rows


@pytest.mark.parametrize("scheme", ["unary", "exact"])
def test_rows_belong_to_the_streams_that_are_named(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, str]] = []
    for region in ("speculation", "verification"):
        stream = ""
        text = PARTS[scheme].split(f"<!-- rows: {scheme} {region} -->")[1]
        for _, rule, row, _ in table(text, 4):
            stream = rule.split("`")[1] if rule else stream
            told.append((stream, row.strip("`")))
    assert told == recorded(scheme, monkeypatch)


@pytest.mark.parametrize("scheme", ["unary", "exact"])
def test_directory_and_values_are_as_listed(scheme: str) -> None:
    tensor = packed(scheme)
    assert tensor.directory.tolist() == [[int(entry) for entry in listed(scheme, "directory")]]
    assert [f"{value:04x}" for value in decode_draft(tensor)] == listed(scheme, "draft")
    np.testing.assert_array_equal(decode_target(tensor), PATTERNS)


def test_fields_of_unary_are_as_listed() -> None:
    for place, rank, code, high, low in table(PARTS["unary"], 5):
        number = numbers.Number.of(int(PATTERNS[int(place)]))
        assert (126, 127, 125)[int(rank)] == number.exponent
        assert code == "0" * int(rank) + "1"
        assert high == f"{number.sign}{number.mantissa >> 4:03b}"
        assert low == f"{number.mantissa & 15:04b}"[::-1]


def test_fields_of_exact_are_as_listed() -> None:
    for place, group, significand, shift, window, residue, _ in table(PARTS["exact"], 7):
        number = numbers.Number.of(int(PATTERNS[int(place)]))
        assert int(group) == (130 if int(place) < 8 else 127)
        assert significand == f"{number.significand:08b}"
        assert int(shift) == int(group) - number.effective
        assert window == f"{numbers.windowed(number, int(group)):08b}"
        assert residue == "".join(map(str, numbers.residue_bits(number, int(window, 2))))


def test_one_less_than_the_largest_exponent_has_the_draft_that_is_told() -> None:
    format, _ = FORMATS["exact"]
    tensor = encode(PATTERNS, format, group_exponents=np.array([129, 127], dtype=np.uint8))
    assert rational(int(decode_draft(tensor)[6])) == 7.5
    np.testing.assert_array_equal(decode_target(tensor), PATTERNS)
