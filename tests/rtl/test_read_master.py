"""Parts of the read master by themselves, beside naive models."""

from __future__ import annotations

import dataclasses
import random
from collections import deque
from typing import Any

import pytest

from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import PAGE, DmaConfig
from cassandra_spec.rtl.dma.read_master import BurstIssuer, Narrow, RegionReceiver
from tests.rtl.simulation import run

CONFIGS = [
    DmaConfig(decoder=DecoderConfig(lanes=8), burst=128, buffer=128),
    DmaConfig(decoder=DecoderConfig(lanes=8), bus=64, burst=256, buffer=1024),
    DmaConfig(burst=4096, buffer=4096, address=40),
]
SLVERR, DECERR = 2, 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Region:
    address: int  # in bus words
    words: int
    tag: int

    @property
    def payload(self) -> dict[str, int]:
        """The payload for the blocks."""
        ones = self.address.bit_count() + self.words.bit_count()
        return {**dataclasses.asdict(self), "check": 1 - ones % 2}


def regions(rng: random.Random, config: DmaConfig, count: int) -> list[Region]:
    """Draw regions of all sizes and distances from a burst's border, one at the end of memory."""
    longest = config.burst // config.bus
    found = [
        Region(
            address=rng.randrange(1 << 30),
            words=rng.choice([1, 2, longest, longest + 1, rng.randint(1, 5 * longest)]),
            tag=number % 4,
        )
        for number in range(count)
    ]
    last = (1 << config.address) // config.bus
    return [*found, Region(address=last - longest - 1, words=longest + 1, tag=count % 4)]


def model(config: DmaConfig, region: Region) -> list[tuple[int, int]]:
    """Return bursts of a region: cut at multiples of the longest."""
    longest = config.burst // config.bus
    found, at, end = [], region.address, region.address + region.words
    while at < end:
        stop = min(end, (at // longest + 1) * longest)
        found.append((at, stop - at))
        at = stop
    return found


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.module_name)
def test_bursts_cover_their_regions_and_fit_the_buffer(config: DmaConfig) -> None:
    dut, rng = BurstIssuer(config), random.Random(1)
    wanted = regions(rng, config, 24)
    expected = deque(burst for region in wanted for burst in model(config, region))
    for address, words in expected:
        first, last = address * config.bus, (address + words) * config.bus - 1
        assert first // PAGE == last // PAGE

    async def work(ctx: Any) -> None:
        waiting, held, full = deque(wanted), 0, False
        while expected:
            ctx.set(dut.regions.valid, int(bool(waiting)))
            if waiting:
                ctx.set(dut.regions.payload, waiting[0].payload)
            ctx.set(dut.bursts.ready, rng.randrange(2))
            release = min(held, rng.choice((0, 0, 1, 1, 2)))
            ctx.set(dut.released, release)
            if waiting and ctx.get(dut.regions.ready):
                waiting.popleft()
            if ctx.get(dut.bursts.valid) and ctx.get(dut.bursts.ready):
                burst = ctx.get(dut.bursts.payload)
                assert (burst.address, burst.words) == expected.popleft()
                held += burst.words
                assert held <= config.buffer // config.bus
                full |= held == config.buffer // config.bus
            assert not ctx.get(dut.wrong)
            held -= release
            await ctx.tick()
        assert full  # the bound is reached

    run(dut, work)


@pytest.mark.parametrize("field", ["address", "words", "check"])
def test_a_region_with_a_wrong_bit_is_not_read(field: str) -> None:
    dut = BurstIssuer(CONFIGS[0])
    right = Region(address=0x1234, words=12, tag=0).payload

    async def work(ctx: Any) -> None:
        ctx.set(dut.regions.payload, {**right, field: right[field] ^ 1})
        ctx.set(dut.regions.valid, 1)
        ctx.set(dut.bursts.ready, 1)
        for _ in range(20):
            await ctx.tick()
            assert not ctx.get(dut.bursts.valid)
        assert ctx.get(dut.wrong)

    run(dut, work)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.module_name)
def test_regions_come_back_as_packets_that_an_error_cuts_short(config: DmaConfig) -> None:
    dut, rng = RegionReceiver(config), random.Random(2)
    wanted = regions(rng, config, 40)

    async def work(ctx: Any) -> None:
        pushed = 0
        for number, region in enumerate(wanted):
            while pushed < min(len(wanted), number + 1 + rng.randrange(3)):
                ctx.set(dut.regions.payload, wanted[pushed].payload)
                ctx.set(dut.regions.valid, 1)
                assert ctx.get(dut.regions.ready)
                await ctx.tick()
                ctx.set(dut.regions.valid, 0)
                pushed += 1
            await ctx.tick()
            await receive(ctx, region)

    async def receive(ctx: Any, region: Region) -> None:
        bad = rng.randrange(region.words) if rng.random() < 0.5 else None
        for word in range(region.words):
            response = rng.choice([SLVERR, DECERR]) if bad is not None and word >= bad else 0
            ctx.set(dut.beat, {"data": word, "id": 0, "resp": response})
            ctx.set(dut.beat_valid, 1)
            check(ctx, region, word, bad, response)
            await ctx.tick()
            ctx.set(dut.beat_valid, 0)
            if rng.random() < 0.2:
                await ctx.tick()

    def check(ctx: Any, region: Region, word: int, bad: int | None, response: int) -> None:
        passed = bad is None or word <= bad
        assert ctx.get(dut.word_valid) == passed
        assert ctx.get(dut.dropped) == (not passed)
        if passed:
            assert ctx.get(dut.word.data) == word
            assert ctx.get(dut.word.last) == (word in (region.words - 1, bad))
        assert ctx.get(dut.fault_valid) == (word == bad)
        if word == bad:
            place = region.address + word
            [burst] = [at for at, size in model(config, region) if at <= place < at + size]
            assert ctx.get(dut.fault.address) == burst
            assert ctx.get(dut.fault.tag) == region.tag
            assert ctx.get(dut.fault.decode) == (response == DECERR)

    run(dut, work)


@pytest.mark.parametrize(("bus", "size"), [(8, 8), (64, 8), (64, 32)])
def test_bus_words_become_words_of_the_decoder(bus: int, size: int) -> None:
    dut, rng, ratio = Narrow(bus=bus, size=size), random.Random(3), bus // size
    wide = [(rng.getrandbits(8 * bus), int(rng.random() < 0.3)) for _ in range(50)]
    expected = deque(
        (data >> 8 * size * part & ((1 << 8 * size) - 1), last and part == ratio - 1)
        for data, last in wide
        for part in range(ratio)
    )

    async def work(ctx: Any) -> None:
        waiting, offered = deque(wide), False
        while expected:
            offered = offered or (bool(waiting) and rng.random() < 0.7)
            ctx.set(dut.wide.valid, int(offered))
            ctx.set(dut.words.ready, rng.randrange(2))
            if offered:
                ctx.set(dut.wide.payload, {"data": waiting[0][0], "last": waiting[0][1]})
            if ctx.get(dut.words.valid) and ctx.get(dut.words.ready):
                word = ctx.get(dut.words.payload)
                assert (word.data, word.last) == expected.popleft()
            if offered and ctx.get(dut.wide.ready):
                waiting.popleft()
                offered = False
            await ctx.tick()
        assert not waiting

    run(dut, work)
