"""Rates of the decoder: few values of real weights, one case, and what the command writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.golden.format import Format
from cassandra_spec.lab.gateware import decoder_rate
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.verif.decoder.bulk import RtlCodec
from cassandra_spec.verif.decoder.rate import WORST, losses, rate, worst_payload

LANES = 8


@pytest.fixture(scope="module")
def codec() -> RtlCodec:
    return RtlCodec(DecoderConfig(lanes=LANES, target_rate="full"))


@pytest.mark.slow
def test_real_weights_come_at_the_rates_that_are_promised() -> None:
    payloads = list(decoder_rate.real_payloads(2, 1 << 14))
    rows, low = decoder_rate.real_rates([LANES], payloads)
    assert [row[1] for row in rows] == ["unary", "mx", "exact"]
    for _, _, _, *cells in rows:
        draft_half, target_half, draft_full, target_full = map(float, cells)
        assert min(draft_half, draft_full, target_full) > 0.98 * LANES
        assert 0.98 * LANES / 2 < target_half <= LANES / 2
    assert low == []  # the promise is of 16 lanes


def test_no_case_is_better_than_its_bound(codec: RtlCodec) -> None:
    for case in WORST:
        for scheme in case.schemes:
            fmt = Format(scheme=scheme, beat=LANES, segment=1024, lead=2)
            found = rate(codec, [worst_payload(case, fmt, 256)], target=True)
            assert 0 < found.measured <= found.bound <= LANES, case.what


def test_escapes_beside_low_bits_are_bound_by_the_bus(codec: RtlCodec) -> None:
    [case] = [case for case in WORST if "too small" in case.what]
    fmt = Format(scheme="exact", beat=LANES, lead=2)
    found = rate(codec, [worst_payload(case, fmt, 1 << 14)], target=True)
    assert found.lanes_cycles < found.bus_cycles < found.cycles < 1.02 * found.bus_cycles


def test_nothing_is_lost_but_at_the_end_of_a_segment(codec: RtlCodec) -> None:
    for target in (False, True):
        found = dict(losses(codec, "exact", target=target))
        assert found.pop("a segment ends") > 0
        assert max(found.values()) <= 0


def test_the_command_fills_a_document_and_says_what_is_too_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = tmp_path / "rate.md"
    marks = ("rates", "worst", "borders")
    document.write_text("".join(f"<!-- {mark} -->\n<!-- /{mark} -->\n" for mark in marks))
    line = ["8", "mx", "1,000", "7.90", "3.90", "7.90", "7.90"]
    monkeypatch.setattr(decoder_rate, "real_payloads", lambda *_: [])
    monkeypatch.setattr(decoder_rate, "real_rates", lambda *_: ([line], ["too slow"]))
    monkeypatch.setattr(decoder_rate, "worst_cases", lambda *_: [["pruned", *line[1:2], *line[3:]]])
    monkeypatch.setattr(
        decoder_rate, "borders", lambda *_: [["a segment ends", "1", "2", "3", "4"]]
    )
    assert decoder_rate.main(["--lanes", "8", "--document", str(document)]) == 1
    assert "| 8 | mx | 1,000 | 7.90 |" in document.read_text()
    assert capsys.readouterr().err == "too slow\n"
    assert decoder_rate.main(["--lanes", "8", "--document", str(tmp_path / "rate.md")]) == 1
    document.write_text("no markers")
    assert decoder_rate.main(["--lanes", "8", "--document", str(document)]) == 2
