"""The packers and the region writer against lists of bits: any idle, any back-pressure."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Value
from amaranth.sim import Simulator

from cassandra_spec.rtl.common.superblock_reader import BUS_ROWS
from cassandra_spec.rtl.encode.packers import BlockPacker, ResiduePacker, UnaryPacker
from cassandra_spec.rtl.encode.region_writer import RegionWriter
from cassandra_spec.verif.library.patterns import PATTERNS

PACES = tuple(itertools.product(("always", "half"), repeat=2))
"""Idle patterns of the source by back-pressure patterns of the sink."""

SEGMENTS = 5
Beat = dict[str, Any]
Paces = tuple[Iterator[bool], Iterator[bool]]


def transfers(
    dut: Any, source: Any, sink: Any, beats: Sequence[Beat], count: int, paces: Paces
) -> list[int]:
    """Return the outputs while all beats are offered; the ends may move by ``paces``."""
    found: list[int] = []
    split = windows_of if isinstance(dut, UnaryPacker) else whole
    offers, takes = paces

    async def bench(ctx: Any) -> None:
        place, offered, shown = 0, False, None
        while place < len(beats) or len(found) < count or spare:
            if place == len(beats) and len(found) >= count:
                spare.pop()
            if not offered and place < len(beats) and next(offers):
                offered = True
                ctx.set(source.payload, beats[place])
            taking = next(takes)
            ctx.set(source.valid, offered)
            ctx.set(sink.ready, taking)
            signals = (sink.valid, Value.cast(sink.payload), source.ready)
            _, _, valid, payload, ready = await ctx.tick().sample(*signals)
            payload = split(dut, payload)
            assert shown is None or (valid and shown == payload), "a unit must stay until taken"
            shown = payload if valid and not taking else None
            if valid and taking:
                found.extend(payload)
            if offered and ready:
                offered, place = False, place + 1

    spare = [0] * 4  # cycles in which nothing else may come
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run_until(1e-6 * 400 * (len(beats) + count + 1))
    assert not spare, "every beat must be taken, and every unit leave"
    return found


def whole(dut: Any, payload: int) -> list[int]:
    """Return a unit by itself."""
    return [payload]


def windows_of(dut: UnaryPacker, payload: int) -> list[int]:
    """Return the windows of a pair that count: the bits, and above them ``last``."""
    size = dut.window_bits
    width = len(Value.cast(dut.windows.payload.items[0]))
    parts = [payload >> i * width & ((1 << width) - 1) for i in range(1 + (payload >> 2 * width))]
    bits = [part & ((1 << size) - 1) for part in parts]
    for part, code in zip(parts, bits, strict=True):
        assert (part >> size) % (1 << width - 1 - size) == code.bit_count(), "ones are counted"
    return [code | part >> (width - 1) << size for part, code in zip(parts, bits, strict=True)]


def paces_of(rng: np.random.Generator, names: tuple[str, ...]) -> Paces:
    """Endless patterns of both ends."""
    offers, takes = (PATTERNS[name].cycles(rng) for name in names)
    return offers, takes


def number(bits: Sequence[int]) -> int:
    """Return bits, the least significant one first."""
    return sum(int(bit) << i for i, bit in enumerate(bits))


def units(bits: Sequence[int], size: int) -> list[int]:
    """Return units of a stream, the last one completed with zeros."""
    padded = [*bits, *[0] * (-len(bits) % size)]
    return [number(padded[start : start + size]) for start in range(0, len(padded), size)]


def bits_of(value: int, width: int) -> list[int]:
    return [value >> i & 1 for i in range(width)]


def mask_of(rng: np.random.Generator, lanes: int) -> list[int]:
    """Return lanes of a piece: none, all, or any."""
    return list((rng.random(lanes) < rng.choice([0, 0.3, 0.8, 1])).astype(int))


def blocks_case(
    rng: np.random.Generator, lanes: int, pace: int
) -> tuple[Any, Any, Any, list[Beat], list[int]]:
    width, beats, wanted = 5, [], []
    for _ in range(SEGMENTS):
        length, bits = int(rng.integers(1, 8)), []
        for beat in range(length):
            fields = rng.integers(1 << width, size=pace).tolist()
            chosen = mask_of(rng, pace)
            bits += [
                bit for f, c in zip(fields, chosen, strict=True) if c for bit in bits_of(f, width)
            ]
            last = int(beat == length - 1)
            beats.append({"fields": fields, "chosen": number(chosen), "last": last})
        wanted += units(bits, width * lanes)
    dut = BlockPacker(lanes=lanes, pace=pace, width=width)
    return dut, dut.beats, dut.blocks, beats, wanted


def residue_case(
    rng: np.random.Generator, lanes: int, pace: int
) -> tuple[Any, Any, Any, list[Beat], list[int]]:
    beats, wanted = [], []
    for _ in range(SEGMENTS):
        length, bits = int(rng.integers(1, 12)), []
        for beat in range(length):
            widths = rng.integers(*((0, 8), (7, 8), (0, 1), (0, 3))[rng.integers(4)], size=pace)
            fields = rng.integers(1 << widths)
            for field, width in zip(fields, widths, strict=True):
                bits += bits_of(int(field), int(width))
            last = int(beat == length - 1)
            beats.append({"fields": fields.tolist(), "widths": widths.tolist(), "last": last})
        wanted += units(bits, BUS_ROWS * lanes)
    dut = ResiduePacker(lanes=lanes, pace=pace)
    return dut, dut.beats, dut.words, beats, wanted


def unary_case(
    rng: np.random.Generator, lanes: int, pace: int
) -> tuple[Any, Any, Any, list[Beat], list[int]]:
    window, limit = {1: (1, 16), 4: (2, 16), 8: (3, 32), 16: (2, 16)}[lanes]
    size, beats, wanted = window * lanes, [], []
    for _ in range(SEGMENTS):
        length, bits = int(rng.integers(1, 8)), []
        for beat in range(length):
            ranks = rng.integers(
                *((0, limit), (limit - 1, limit), (0, 2))[rng.integers(3)], size=pace
            )
            kept = mask_of(rng, pace)
            bits += [
                bit for r, k in zip(ranks, kept, strict=True) if k for bit in [*[0] * int(r), 1]
            ]
            last = int(beat == length - 1)
            beats.append({"ranks": ranks.tolist(), "kept": number(kept), "last": last})
        windows = units([*bits, *[1] * (size - len(bits) % size)], size)
        wanted += [*windows[:-1], windows[-1] | 1 << size]  # the last one is marked
    dut = UnaryPacker(lanes=lanes, pace=pace, window=window, limit=limit)
    return dut, dut.beats, dut.windows, beats, wanted


CASES: dict[str, Callable[..., Any]] = {
    "blocks": blocks_case,
    "residue": residue_case,
    "unary": unary_case,
}


@pytest.mark.parametrize(("lanes", "pace"), [(1, 1), (4, 4), (8, 8), (8, 4), (16, 4)])
@pytest.mark.parametrize("name", CASES)
def test_packers(rng: np.random.Generator, name: str, lanes: int, pace: int) -> None:
    for names in PACES:
        dut, source, sink, beats, wanted = CASES[name](rng, lanes, pace)
        found = transfers(dut, source, sink, beats, len(wanted), paces_of(rng, names))
        assert found == wanted, names


@pytest.mark.parametrize("names", PACES, ids=" ".join)
def test_region_writer(rng: np.random.Generator, names: tuple[str, ...]) -> None:
    """Rows of one region; what lies behind ``count`` is noise."""
    lanes, superblock = 2, 32
    for length in (0, 1, 5, 20):
        beats, rows = [], []
        for beat in range(length + 1):
            count = int(rng.integers(BUS_ROWS + 1)) if length else 0
            values = rng.integers(1 << lanes, size=BUS_ROWS).tolist()
            rows += values[:count]
            beats.append({"rows": values, "count": count, "end": int(beat == length)})
        words = units([bit for row in rows for bit in bits_of(row, lanes)], superblock * 8)
        size = BUS_ROWS * lanes
        wanted = [
            word >> low & ((1 << size) - 1)
            for word in words
            for low in range(0, superblock * 8, size)
        ]
        if wanted:
            wanted[-1] |= 1 << size
        dut = RegionWriter(lanes=lanes, superblock=superblock)
        found = transfers(dut, dut.rows, dut.words, beats, len(wanted), paces_of(rng, names))
        assert found == wanted
