"""Parts that a soft reset leaves alone, beside naive models."""

from __future__ import annotations

import random
from typing import Any

import pytest
from amaranth.lib import data

from cassandra_spec.rtl.dma.drain import Drain, Owed, PacketIn, PacketOut
from tests.rtl.simulation import run

LANES = 8
CYCLES = 3000


@pytest.mark.parametrize("seed", range(3))
def test_a_packet_that_has_begun_ends_once(seed: int) -> None:
    """Cuts at random cycles; every packet at the output is whole, or ends flagged and empty."""
    dut, rng = PacketOut(LANES), random.Random(seed)
    ended = {"whole": 0, "cut": 0, "cut with nothing before": 0}

    async def work(ctx: Any) -> None:
        offered: dict[str, Any] | None = None
        number, packet = 0, []  # of the packet at the input; beats at the output
        waiting = None
        for _ in range(CYCLES):
            cut = rng.random() < 0.03
            if cut:
                offered, number = None, number + 1000
            elif offered is None and rng.random() < 0.7:
                last = int(rng.random() < 0.3)
                offered = {"last": last, "error": 0, "present": 255, "values": [number] * LANES}
                number += last
            ctx.set(dut.cut, cut)
            ctx.set(dut.beats.valid, offered is not None and not cut)
            if offered is not None:
                ctx.set(dut.beats.payload, offered)
            ready = rng.random() < 0.5
            ctx.set(dut.values.ready, ready)
            if ctx.get(dut.beats.valid) and ctx.get(dut.beats.ready):
                offered = None
            shown = beat_of(ctx, dut) if ctx.get(dut.values.valid) else None
            assert waiting is None or shown == waiting, "an offer stays"
            waiting = shown if shown and not ready else None
            if shown and ready:
                packet.append(shown)
                assert len({value for value, *_ in packet if value is not None}) <= 1
                _, last, error, present = shown
                assert error <= last
                if last:
                    assert present == (0 if error else 255)
                    empty = "cut with nothing before" if len(packet) == 1 else "cut"
                    ended[empty if error else "whole"] += 1
                    packet = []
            await ctx.tick()

    run(dut, work)
    assert ended["cut with nothing before"] == 0
    assert min(ended["whole"], ended["cut"]) > 10


def beat_of(ctx: Any, dut: PacketOut) -> tuple[int | None, int, int, int]:
    beat = ctx.get(dut.values.payload)
    value = None if beat.error else beat.values[0]
    return value, beat.last, beat.error, beat.present


@pytest.mark.parametrize("seed", range(3))
def test_the_rest_of_a_cut_packet_is_discarded(seed: int) -> None:
    """Only whole packets leave, and beginnings of packets ended by a cut."""
    layout = data.StructLayout({"number": 16, "last": 1})
    dut, rng = PacketIn(layout), random.Random(seed)
    fresh_ones = discarded = 0

    async def work(ctx: Any) -> None:
        nonlocal fresh_ones, discarded
        place, length, packet, taken = 0, 3, 0, 0  # of the source
        model_discards, stops = False, 0
        for _ in range(CYCLES):
            fresh = False
            if not stops and rng.random() < 0.03:
                stops, fresh = rng.randint(1, 5), rng.random() < 0.3
            ctx.set(dut.fresh, fresh)
            ctx.set(dut.stop, stops > 0 and not fresh)
            last = place == length - 1
            valid = rng.random() < 0.7 and not fresh
            ctx.set(dut.values.payload, {"number": packet, "last": last})
            ctx.set(dut.values.valid, valid)
            ctx.set(dut.beats.ready, rng.random() < 0.6)
            passes = bool(ctx.get(dut.beats.valid) and ctx.get(dut.beats.ready))
            takes = bool(valid and ctx.get(dut.values.ready))
            assert ctx.get(dut.discards) == model_discards
            assert not passes or takes
            assert takes == passes or model_discards
            assert not (passes and (model_discards or (stops and not fresh)))
            discarded += takes and not passes
            if takes:
                taken = 0 if last else taken + 1
                place, packet = (0, packet + 1) if last else (place + 1, packet)
                length = rng.randint(1, 6) if last else length
                model_discards &= not last
            if fresh:
                fresh_ones += taken > 0
                place, packet, taken, model_discards = 0, packet + 1, 0, False
            elif stops:
                model_discards |= taken > 0
            stops = max(stops - 1, 0)
            await ctx.tick()

    run(dut, work)
    assert min(fresh_ones, discarded) > 5


def test_nothing_is_owed_below_zero() -> None:
    dut, rng = Owed(12), random.Random(1)

    async def work(ctx: Any) -> None:
        owed, strays = 0, 0
        for _ in range(CYCLES):
            asks = rng.choice([0, 0, 0, rng.randint(1, 4)]) if owed <= 8 else 0
            pays = rng.random() < 0.6
            ctx.set(dut.asks, asks)
            ctx.set(dut.pays, pays)
            assert (ctx.get(dut.owed), ctx.get(dut.some)) == (owed, owed > 0)
            strays += pays and not owed
            owed += asks - (pays and owed > 0)
            await ctx.tick()
        assert strays > 100

    run(dut, work)


def test_a_reset_and_quiet_wait_for_the_bus() -> None:
    dut = Drain()

    async def work(ctx: Any) -> None:
        for cycle in range(40):
            ctx.set(dut.request, cycle in (4, 20, 21, 22))
            asks = 30 <= cycle < 38
            ctx.set(dut.open, cycle < 12 or 26 <= cycle < 35)
            ctx.set(dut.quiesce_request, asks)
            expected = 5 <= cycle <= 12 or 21 <= cycle <= 23
            assert ctx.get(dut.draining) == ctx.get(dut.drain) == expected, cycle
            assert ctx.get(dut.hold) == (expected or asks), cycle
            assert ctx.get(dut.quiet) == (36 <= cycle <= 38), cycle
            await ctx.tick()

    run(dut, work)
