"""The encoder's back end in cocotb: takes records, gives golden's regions byte for byte."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Iterator
from typing import Any

import cocotb
import numpy as np

from cassandra_spec.golden.format import SCHEMES, Format
from cassandra_spec.golden.packed import Segment
from cassandra_spec.rtl.encode.regions import EncodeResult, EncoderRegions
from cassandra_spec.rtl.encode.types import EncoderConfig, RecordBeat
from cassandra_spec.verif.encoder import model
from cassandra_spec.verif.encoder.bench import PACES, REGIONS, RegionScoreboard, compare_bytes
from cassandra_spec.verif.library.bank import fields_of, number_of
from cassandra_spec.verif.library.patterns import ALWAYS, PATTERNS, Pattern
from cassandra_spec.verif.library.payloads import Payload, directed, draw, random_format
from cassandra_spec.verif.library.streams import Bench, Port

Record = dict[str, Any]
"""Fields of ``cassandra_spec.rtl.encode.types.RecordBeat``."""

ABORT: Record = {"abort": 1, "last": 1, "errors": 1}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece:
    """A segment of a payload, or one that the front end gave up (no segment)."""

    name: str
    segment: Segment | None
    records: tuple[Record, ...]


def config() -> EncoderConfig:
    """Return the configuration under test, from the environment."""
    lanes = int(os.environ.get("CASSANDRA_LANES", "8"))
    return EncoderConfig(
        lanes=lanes,
        values_per_cycle=int(os.environ.get("CASSANDRA_PACE", lanes)),
        codebook=int(os.environ.get("CASSANDRA_CODEBOOK", "16")),
        window=int(os.environ.get("CASSANDRA_WINDOW", "2")),
        segment=int(os.environ.get("CASSANDRA_SEGMENT", "256")),
        group=256,
    )


def design() -> EncoderRegions:
    """Build the back end in that configuration."""
    return EncoderRegions(config())


def pieces_of(payload: Payload) -> list[Piece]:
    """Return all segments of a payload."""
    return [
        Piece(name=payload.name, segment=segment, records=tuple(_records(payload, segment)))
        for segment in payload.packed.segments()
    ]


def _records(payload: Payload, segment: Segment) -> Iterator[Record]:
    """Yield the records of a segment as the front end makes them, with noise where any value is
    allowed.
    """
    fmt = payload.format
    part = slice(segment.index * fmt.segment, segment.index * fmt.segment + segment.count)
    asked = model.Segment(
        format=fmt,
        values=payload.values[part],
        vector=fmt.beat,
        keep=None,
        mask=segment.has_mask,
        codebook=payload.packed.codebook,
        kept=payload.fate[part],
    )
    groups = [] if fmt.scheme == "unary" else payload.groups[part].tolist()
    for place, record in enumerate(model.records_of(asked, groups, pace=config().pace)):
        for name, noise in (("raw", 0xDEAD), ("field", 0xA5), ("rank", 9)):
            record[name] = [noise if value is None else value for value in record[name]]
        yield record | {"errors": 0, "saturated": (place * 7919 * fmt.beat) % (1 << 17)}


class RegionsBench(Bench):
    """Drives records and compares regions and results with golden's segments."""

    def __init__(self, dut: Any) -> None:
        super().__init__(dut, cocotb.RANDOM_SEED)
        self.config = config()
        self.layout = RecordBeat(self.config)
        self.records = self.source(Port.amaranth(dut, "records"))
        self.outputs = {name: self.sink(Port.amaranth(dut, name)) for name in (*REGIONS, "results")}
        self.scoreboard = _Scoreboard(self)
        self.agents.append(self.scoreboard)

    def use(self, records: str, out: dict[str, Pattern]) -> None:
        """Set the patterns from now on; outputs that are not named are always ready."""
        self.records.use(PATTERNS[records])
        for name, sink in self.outputs.items():
            sink.use(out.get(name, ALWAYS))

    def submit(self, pieces: list[Piece]) -> None:
        """Queue segments at both ends."""
        for piece in pieces:
            self.records.send({"payload": self._number(record)} for record in piece.records)
            self.scoreboard.expected.append(piece)

    def _number(self, record: Record) -> int:
        errors = int(record["errors"]) << self.layout["errors"].offset
        return number_of(self.layout, {**record, "errors": None}) | errors

    async def finish(self, limit: int = 200_000) -> None:
        """Run until all results have arrived; nothing may follow."""
        expected = self.scoreboard.expected
        if expected:
            await self.until(lambda: not expected, limit, "the last result")
        await self.run(20)
        assert not int(self.dut.busy.value), "busy must fall"
        assert self.records.idle
        assert self.scoreboard.empty


class _Scoreboard(RegionScoreboard):
    """Compares a segment when its result comes."""

    def sample(self) -> None:
        for name in REGIONS:
            received = self._bench.outputs[name].received
            while received:
                self._take(name, received.popleft()["payload"])
        results = self._bench.outputs["results"].received
        while results:
            self._compare(fields_of(EncodeResult(), results.popleft()["payload"]))
            self.cycles.append(self._bench.cycle)

    def _take(self, name: str, word: int) -> None:
        size = self._bench.config.lanes
        waits = self._bench.outputs["results"].valid
        assert waits or not self._ended[name], f"{name}: a word before the result of its region"
        self.add(name, word & ((1 << 8 * size) - 1), word >> 8 * size)

    def _compare(self, result: dict[str, Any]) -> None:
        assert self.expected, "a result that nothing asked for"
        piece = self.expected.popleft()
        last, segment = piece.records[-1], piece.segment
        for name in REGIONS:
            wanted = getattr(segment, name).tobytes() if segment else b""
            self._compare_region(f"{piece.name}: {name}", name, result[name] * 128, wanted)
        assert result["mask"] == (segment.has_mask if segment else 0), piece.name
        assert result["saturated"] == last.get("saturated", 0), piece.name
        causes = sum(bit << i for i, bit in enumerate(result["errors"].values()))
        assert causes == last["errors"], piece.name

    def _compare_region(self, what: str, name: str, length: int, wanted: bytes) -> None:
        assert length == len(wanted), f"{what}: length {length}, not {len(wanted)}"
        compare_bytes(what, self.packet(name, length), wanted)


async def start(dut: Any) -> RegionsBench:
    """Return a bench, after a reset."""
    return await RegionsBench(dut).started()


def some_format(bench: RegionsBench, scheme: str | None = None) -> Format:
    """Return a random format that the configuration writes."""
    chosen = bench.config
    return random_format(
        bench.rng,
        lanes=chosen.lanes,
        scheme=scheme,  # type: ignore[arg-type]
        segment=chosen.segment,
        codebook=chosen.codebook,
        window=chosen.window,
    )


def some_pieces(bench: RegionsBench, number: int) -> list[Piece]:
    """Return segments of random payloads, now and then an aborted one; shuffled."""
    pieces: list[Piece] = []
    while len(pieces) < number:
        fmt = some_format(bench)
        count = int(bench.rng.integers(1, 2 * fmt.segment + 1))
        pieces += pieces_of(draw(bench.rng, fmt, count))
    pieces.append(Piece(name="abort", segment=None, records=(ABORT,)))
    order = bench.rng.permutation(len(pieces))[:number]
    return [pieces[i] for i in order]


@cocotb.test()
@cocotb.parametrize(scheme=list(SCHEMES))
async def directed_payloads(dut: Any, scheme: str) -> None:
    """Segments of every kind and every size of interest are right at full speed."""
    bench = await start(dut)
    fmt = dataclasses.replace(some_format(bench, scheme), group=32, segment=64)
    for payload in directed(bench.rng, fmt):
        bench.submit(pieces_of(payload))
    await bench.finish()


@cocotb.test()
async def idle_and_back_pressure(dut: Any) -> None:
    """Patterns of records x patterns of each output x payloads."""
    bench = await start(dut)
    for records, pressure in itertools.product(PACES, PACES):
        bench.use(records, dict.fromkeys(bench.outputs, PATTERNS[pressure]))
        bench.submit(some_pieces(bench, 3))
        await bench.finish()


@cocotb.test()
async def each_output_alone_is_slow(dut: Any) -> None:
    """One region stalls, the others may wait; nothing is lost, and nothing hangs."""
    bench = await start(dut)
    for name, pressure in itertools.product(bench.outputs, ("rare", "stall")):
        bench.use("always", {name: PATTERNS[pressure]})
        bench.submit(some_pieces(bench, 3))
        await bench.finish()


@cocotb.test()
@cocotb.parametrize(scheme=list(SCHEMES))
async def every_truncation(dut: Any, scheme: str) -> None:
    """All t: with all planes a slot has more rows than a word."""
    bench = await start(dut)
    for truncated in range(8):
        fmt = dataclasses.replace(some_format(bench, scheme), truncated=truncated)
        bench.submit(pieces_of(draw(bench.rng, fmt, int(bench.rng.integers(1, fmt.segment + 1)))))
    await bench.finish()


def _sparse(fmt: Format, keep: list[int], values: Any) -> Payload:
    """Return a payload that keeps only the values at ``keep``."""
    kept = np.zeros(fmt.segment, bool)
    kept[keep] = True
    book = (127, *range(60, 60 + fmt.codebook - 1)) if fmt.scheme == "unary" else None
    return Payload(name="sparse", format=fmt, values=values, kept=kept, codebook=book)


def worst_cases(config: EncoderConfig, scheme: str) -> list[Payload]:
    """Return segments of full length in which a unit is complete only at the very end.

    One kept value and nothing after it: the block and the window of the first beat wait for all the
    others. A residue of one bit, then values without residue: its row waits, and all blocks of
    ``low`` behind it. A lone escape, which is half a row with 32 lanes, then values with residue.
    """
    fmt = Format(
        scheme=scheme,  # type: ignore[arg-type]
        beat=config.lanes,
        group=max(config.lanes, 16),
        segment=config.segment,
        codebook=config.codebook,
        window=config.window,
        truncated=7,
    )
    wide = dataclasses.replace(fmt, group=256)
    count = config.segment
    one = np.full(count, 0x3F80, np.uint16)  # exponent 127
    two = one + np.uint16(0x80)
    late = np.full(count, (60 + config.codebook - 2) << 7, np.uint16)  # the longest code
    late[0] = 0x3F80
    half = np.where(np.arange(count) == 1, one, two)
    cases = [_sparse(form, keep, one) for form in (fmt, wide) for keep in ([], [0], [0, count - 1])]
    cases += [_sparse(wide, list(range(config.lanes - 1)), late)]
    cases += [Payload(name="equal", format=form, values=one) for form in (fmt, wide)]
    cases += [Payload(name="one residue", format=form, values=half) for form in (fmt, wide)]
    small = np.full(count, 121 << 7, np.uint16)
    small[::256] = 128 << 7  # so that the others have seven bits of residue
    for escapes in ([], [1], [1, count - 1]):
        values = small.copy()
        values[escapes] = 100 << 7
        cases += [Payload(name=f"escapes at {escapes}", format=wide, values=values)]
        cases += [_sparse(wide, np.setdiff1d(np.arange(count), escapes).tolist(), values)]
    return cases


@cocotb.test()
@cocotb.parametrize(scheme=list(SCHEMES))
async def what_waits_fits_in_the_memories(dut: Any, scheme: str) -> None:
    """The longest waits are right, back to back and with slow outputs."""
    bench = await start(dut)
    for slow in ("always", "stall"):
        bench.use("always", dict.fromkeys(bench.outputs, PATTERNS[slow]))
        for payload in worst_cases(bench.config, scheme):
            bench.submit(pieces_of(payload))
        await bench.finish()


@cocotb.test()
@cocotb.parametrize(scheme=list(SCHEMES))
async def reset_in_the_middle(dut: Any, scheme: str) -> None:
    """Reset after any number of records; the next segment is right."""
    bench = await start(dut)
    for _ in range(10):
        fmt = some_format(bench, scheme)
        bench.use("half", {"speculation": PATTERNS["half"], "verification": PATTERNS["half"]})
        bench.submit(pieces_of(draw(bench.rng, fmt, fmt.segment)))
        before = bench.records.moved
        goal = before + int(bench.rng.integers(1, 12))
        await bench.until(functools.partial(_past, bench, goal), 20_000, "some records")
        await bench.reset()
        bench.submit(some_pieces(bench, 1))
        await bench.finish()


def _past(bench: RegionsBench, goal: int) -> bool:
    return bench.records.moved >= goal or bench.records.idle


@cocotb.test()
@cocotb.parametrize(scheme=["mx", "exact"], truncated=[1, 4])
async def a_record_in_each_cycle(dut: Any, scheme: str, truncated: int) -> None:
    """Without pruning a segment takes a cycle per slot, or per word, and a few more.

    At t = 1 a slot has eight rows, or nine where a row of shared exponents comes with it.
    """
    bench = await start(dut)
    size = bench.config.segment // 32 * 32
    chosen = some_format(bench, scheme)
    fmt = dataclasses.replace(chosen, truncated=truncated, group=32, segment=size)
    values = np.full(8 * fmt.segment, 0x3FA0, np.uint16)
    pieces = pieces_of(Payload(name="equal", format=fmt, values=values))
    bench.submit(pieces)
    await bench.finish()
    nines = -(-fmt.segment // fmt.group * 8 // fmt.beat) if truncated == 1 else 0
    slots = fmt.segment // bench.config.pace + nines
    words = max(piece.segment.speculation.size for piece in pieces if piece.segment) // fmt.beat
    steps = np.diff(bench.scoreboard.cycles)
    assert max(steps[2:]) <= max(slots, words) + 16, steps


def _ones_then_many(fmt: Format, ones: int) -> Any:
    """Return a mask: ``ones`` beats with one pruned value, one all pruned, two with none."""
    kept = np.ones((ones + 3, fmt.beat), bool)
    kept[:ones, 0] = False
    kept[ones] = False
    return kept.ravel()


@cocotb.test()
@cocotb.parametrize(scheme=list(SCHEMES))
async def a_block_is_completed_as_its_values_are_wanted(dut: Any, scheme: str) -> None:
    """Its rows are requested while it is not readable yet, and the next block has begun behind it.

    The idle schedule requests them some cycles after the first record. Each record from the second
    on is tried as the one that completes the block and begins the next one.
    """
    bench = await start(dut)
    lanes, chosen = bench.config.lanes, some_format(bench, scheme)
    fmt = dataclasses.replace(chosen, group=max(lanes, 16), segment=bench.config.segment)
    for ones in range(1, lanes):
        kept = _ones_then_many(fmt, ones)
        values = bench.rng.integers(0x3F80, 0x4000, size=len(kept), dtype=np.uint16)
        bench.submit(pieces_of(Payload(name=f"{ones} ones", format=fmt, values=values, kept=kept)))
        await bench.finish()


@cocotb.test()
@cocotb.parametrize(scheme=["unary", "exact"])
async def two_windows_or_an_escape_in_each_cycle(dut: Any, scheme: str) -> None:
    """A beat costs a cycle with one and a half windows of codes, or with one escape.

    Codes of three bits; windows of one row, with codes of one bit and of two. With windows of three
    rows only one fits into a slot.
    """
    bench = await start(dut)
    size = bench.config.segment // 32 * 32
    fmt = dataclasses.replace(some_format(bench, scheme), truncated=4, group=32, segment=size)
    values = np.full(8 * fmt.segment, 0x3FA0, np.uint16)  # exponent 127
    book = None
    if scheme == "unary":
        book = (127, 126) if bench.config.window == 1 else (1, 2, 127)
        values[1::2] = (book[-1] if bench.config.window == 1 else 127) << 7
    else:
        values[1::2] = 124 << 7  # three bits of residue
        values[3 :: fmt.beat] = 100 << 7
    bench.submit(pieces_of(Payload(name=scheme, format=fmt, values=values, codebook=book)))
    await bench.finish()
    steps = np.diff(bench.scoreboard.cycles)
    assert max(steps[2:]) <= fmt.segment // bench.config.pace + 16, steps
