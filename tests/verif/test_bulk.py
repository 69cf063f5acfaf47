"""The bulk harness as a codec: results, counts, errors, and the library that it builds."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from cassandra_spec.golden import codec
from cassandra_spec.golden.errors import CassandraError, DecodeError
from cassandra_spec.golden.format import SCHEMES, Format, Scheme
from cassandra_spec.golden.packed import Packed
from cassandra_spec.verif.decoder.bulk import (
    GatewareError,
    Request,
    RtlCodec,
    Traffic,
    requests_of,
)
from cassandra_spec.verif.library.patterns import PATTERNS
from cassandra_spec.verif.library.payloads import draw, gaussian
from cassandra_spec.verif.tools.verilated import Library
from tests.verif import stand_in

RESET_CYCLES = 4
"""Cycles of reset before a batch, in which the stand-in's counter runs."""

CodecOf = Callable[[int], RtlCodec]


@pytest.fixture(scope="module")
def misbehaving() -> RtlCodec:
    return RtlCodec(stand_in.CONFIG, verilog=stand_in.VERILOG)


def packed_of(rng: np.random.Generator, scheme: Scheme = "unary", count: int = 3000) -> Packed:
    fmt = Format(scheme=scheme, segment=512)
    return draw(rng, fmt, count, "weights").packed


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_is_a_codec(codec_of: CodecOf, rng: np.random.Generator, scheme: Scheme) -> None:
    packed = packed_of(rng, scheme)
    rtl = codec_of(16)
    assert np.array_equal(rtl.decode_draft(packed), codec.decode_draft(packed))
    assert np.array_equal(rtl.decode_target(packed), codec.decode_target(packed))


def test_a_narrow_significand_has_its_draft_decoded_and_its_target_refused(
    codec_of: CodecOf, rng: np.random.Generator
) -> None:
    for significand in (7, 5, 4):
        fmt = Format(scheme="mx", significand=significand, fill="midpoint", segment=512)
        payload = draw(rng, fmt, 3000, "weights")
        rtl, packed = codec_of(16), payload.packed
        assert np.array_equal(rtl.decode_draft(packed), payload.draft)
        with pytest.raises(CassandraError, match="significand must be 8 for a target in the gate"):
            rtl.decode_target(packed)
        whole = dataclasses.replace(fmt, significand=8)
        again = codec.encode(payload.target, whole, kept=payload.kept)
        assert np.array_equal(rtl.decode_target(again), payload.target)


def test_a_tensor_of_no_values(codec_of: CodecOf, rng: np.random.Generator) -> None:
    values = codec_of(16).decode_target(packed_of(rng, count=0))
    assert values.shape == (0,)
    assert values.dtype == np.uint16


@pytest.mark.parametrize("instances", [1, 2, 3, 9])
def test_instances_share_the_segments(rng: np.random.Generator, instances: int) -> None:
    packed = packed_of(rng)
    rtl = RtlCodec(instances=instances)
    assert np.array_equal(rtl.decode_target(packed), codec.decode_target(packed))
    assert rtl.latest.ports["command"].moved == len(packed.directory)


def test_statistics_count_transfers(rng: np.random.Generator) -> None:
    packed = packed_of(rng)
    rtl = RtlCodec()
    rtl.decode_draft(packed)
    draft = rtl.latest
    assert draft.values == 3000
    assert draft.beats == -(-3000 // 16)
    assert draft.ports["command"].moved == 6
    assert draft.ports["codebook"].moved == len(packed.codebook)
    assert draft.ports["speculation"].moved == packed.speculation.size // 16
    assert draft.ports["verification"].moved == 0
    assert draft.beats <= draft.cycles
    assert draft.values_per_cycle == draft.values / draft.cycles
    rtl.decode_target(packed)
    assert rtl.latest.ports["verification"].moved == packed.verification.size // 16
    assert rtl.statistics == draft + rtl.latest


def test_the_sink_is_counted_when_it_stalls(rng: np.random.Generator) -> None:
    rtl = RtlCodec(traffic=Traffic(patterns={"values": PATTERNS["alternate"]}))
    packed = packed_of(rng)
    assert np.array_equal(rtl.decode_draft(packed), codec.decode_draft(packed))
    assert rtl.latest.ports["values"].stalled > 0


def test_a_segment_that_breaks_the_format_is_named(
    codec_of: CodecOf, rng: np.random.Generator
) -> None:
    packed = packed_of(rng)
    directory = packed.directory.copy()
    directory[3, 1] -= 1
    broken = dataclasses.replace(packed, directory=directory)
    for decode in (codec_of(16).decode_draft, codec_of(16).decode_target, codec.decode_draft):
        with pytest.raises(DecodeError, match=r"segment 3: .*\(short\)") as caught:
            decode(broken)
        assert (caught.value.cause, caught.value.segment) == ("short", 3)
    assert np.array_equal(codec_of(16).decode_draft(packed), codec.decode_draft(packed))


def test_a_malformed_directory_is_refused_as_golden_does(rng: np.random.Generator) -> None:
    packed = packed_of(rng)
    for column, number in ((1, 1 << 31), (3, 1 << 31), (4, 2)):
        directory = packed.directory.copy()
        directory[-1, column] = number
        broken = dataclasses.replace(packed, directory=directory)
        with pytest.raises((CassandraError, DecodeError)) as ours:
            list(requests_of(broken, target=True))
        with pytest.raises(type(ours.value)) as theirs:
            codec.decode_target(broken)
        assert str(ours.value) == str(theirs.value)


def test_no_codebook_is_left_from_another_tensor(
    codec_of: CodecOf, rng: np.random.Generator
) -> None:
    packed = packed_of(rng)
    without = dataclasses.replace(packed, codebook=())
    codec_of(16).decode_draft(packed)
    for decode in (codec_of(16).decode_draft, codec.decode_draft):
        with pytest.raises(DecodeError, match="rank"):
            decode(without)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"beat": 8}, "lanes must be 16 for this decoder, not 8"),
        ({"codebook": 32}, "codebook must be 16 for this decoder, not 32"),
        ({"window": 1}, "window must be 2 for this decoder, not 1"),
        ({"superblock": 256}, "superblock must be 128 for this decoder, not 256"),
        ({"lead": 2}, "target_rate must be half for this decoder, not full"),
        ({"pruned_exponent": "coded"}, "pruned_exponent must be 'raw' for this decoder"),
    ],
)
def test_formats_of_another_decoder_are_refused(
    codec_of: CodecOf, rng: np.random.Generator, fields: dict[str, object], message: str
) -> None:
    packed = codec.encode(gaussian(rng, 100), Format.from_dict(fields))
    with pytest.raises(CassandraError, match=message):
        codec_of(16).decode_draft(packed)


def test_a_scheme_that_the_decoder_lacks_is_refused(
    misbehaving: RtlCodec, rng: np.random.Generator
) -> None:
    packed = codec.encode(gaussian(rng, 100), Format(scheme="mx", beat=8))
    with pytest.raises(CassandraError, match=r"scheme must be one of unary .*, not 'mx'"):
        misbehaving.decode_draft(packed)


def test_a_port_of_traffic_must_exist(misbehaving: RtlCodec) -> None:
    with pytest.raises(CassandraError, match=r"port must be one of command, .*, not 'vlaues'"):
        misbehaving.run([], Traffic(patterns={"vlaues": PATTERNS["half"]}))


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        (stand_in.SILENT, r"segment 1 \(number 1 .*nothing moves any more; transfers so far: com"),
        (stand_in.DROPS, "tvalid fell before"),
        (stand_in.CHANGES, "changed while it waited"),
        (stand_in.GAP, "tkeep must be contiguous"),
        (stand_in.FEW, "wrong number of values"),
        (stand_in.MANY, "wrong number of values"),
        (stand_in.NO_CAUSE, "flagged without a cause"),
    ],
)
def test_gateware_that_breaks_a_rule_is_named(
    misbehaving: RtlCodec, rng: np.random.Generator, behaviour: int, message: str
) -> None:
    slow = Traffic(patterns={"values": PATTERNS["rare"]}, hang_cycles=500)
    good, bad = behaving(rng, stand_in.GOOD), behaving(rng, behaviour)
    for order in ([good[0], bad[1]], [bad[0]]):
        if order[0] is good[0] or behaviour != stand_in.SILENT:
            with pytest.raises(GatewareError, match=message):
                misbehaving.run(order, slow)
    result = misbehaving.run(good, slow)
    assert not result.values.any()


@pytest.mark.parametrize("busy", [0, 1])
def test_busy_is_set_while_a_segment_is_in_flight_and_falls_behind_the_last(
    misbehaving: RtlCodec, rng: np.random.Generator, busy: int
) -> None:
    requests = behaving(rng, stand_in.GOOD)
    misbehaving.run(requests)
    counts = misbehaving.latest
    assert counts.busy == counts.ports["values"].moved
    stuck = stand_in.VERILOG.replace("assign busy = running;", f"assign busy = {busy};")
    with pytest.raises(GatewareError, match=f"segment {busy} .*: busy is low while a segment"):
        RtlCodec(stand_in.CONFIG, verilog=stuck).run(requests)


def behaving(rng: np.random.Generator, behaviour: int) -> list[Request]:
    fmt = Format(beat=stand_in.LANES, truncated=behaviour, segment=64)
    return list(requests_of(codec.encode(gaussian(rng, 128), fmt), target=False))


def test_a_library_is_built_once(misbehaving: RtlCodec) -> None:
    made = misbehaving.library.stat().st_mtime_ns
    again = RtlCodec(stand_in.CONFIG, verilog=stand_in.VERILOG)
    assert again.library == misbehaving.library
    assert again.library.stat().st_mtime_ns == made


def test_other_sources_or_flags_make_another_library(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Library(verilog=stand_in.VERILOG, module=stand_in.MODULE, lanes=8)
    changes = ({"verilog": one.verilog + "\n"}, {"module": "other"}, {"lanes": 16})
    paths = [one.path(), *(dataclasses.replace(one, **change).path() for change in changes)]
    monkeypatch.setattr("cassandra_spec.verif.tools.verilated._CXX_FLAGS", ("-O0",))
    paths.append(one.path())
    monkeypatch.setattr("cassandra_spec.verif.tools.verilated._VERILATOR_FLAGS", ("--cc",))
    paths.append(one.path())
    assert len(set(paths)) == len(paths)


def test_a_failed_build_shows_why_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CassandraError, match=r"(?s)verilator.* failed .*%Error"):
        Library(verilog="module broken (input clk; endmodule", module="broken", lanes=8).built(
            tmp_path
        )
    assert [path.name for path in tmp_path.iterdir()] == ["broken.lock"]


@pytest.mark.slow
def test_transitions_are_counted_once_in_a_cycle(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "batch.saif"
    rtl = RtlCodec(
        stand_in.CONFIG,
        verilog=stand_in.VERILOG,
        build=tmp_path,
        transitions=path,
    )
    fmt = Format(scheme="unary", truncated=stand_in.GOOD, beat=stand_in.LANES, segment=512)
    rtl.decode_draft(draw(rng, fmt, 1000, "weights").packed)
    counts = re.findall(r"\(age\\\[(\d+)\\\] .*\(TC (\d+)\)\)", path.read_text())
    # the counter's bits start from zero; what it is in the first cycle comes from the reset
    seen = [RESET_CYCLES + cycle for cycle in range(rtl.latest.cycles)]
    for bit, count in counts:
        assert int(count) == changes(age >> int(bit) & 1 for age in seen)
    assert len(counts) == 16
    odd = re.search(r"\(_odd_ .*\(TC (\d+)\)\)", path.read_text())
    assert odd
    assert int(odd[1]) == changes(~age & 1 for age in seen)


def changes(levels: Iterable[int]) -> int:
    """Count the changes of a net that counts from zero."""
    return sum(a != b for a, b in itertools.pairwise([0, *levels]))


def test_transitions_are_of_one_instance(tmp_path: Path) -> None:
    with pytest.raises(CassandraError, match="instances must be 1 to count transitions, not 2"):
        RtlCodec(instances=2, transitions=tmp_path / "batch.saif")
