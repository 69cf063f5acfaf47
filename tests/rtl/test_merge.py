"""The values of several decoders as one stream, beside a naive model."""

from __future__ import annotations

import dataclasses
import random
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import DmaConfig
from cassandra_spec.rtl.dma.merge import InOrder
from tests.rtl.simulation import run

LANES = 8
CONFIGS = [
    DmaConfig(decoder=DecoderConfig(lanes=LANES), decoders=decoders, reorder=2 * LANES * decoders)
    for decoders in (1, 2, 4)
]
FULL = (1 << LANES) - 1
MOST = 14  # beats of a segment


@dataclasses.dataclass(frozen=True, kw_only=True)
class Beat:
    values: tuple[int, ...]
    present: int
    last: bool
    error: bool


def segment(rng: random.Random) -> list[Beat]:
    """Return beats of a decoder: the last may be partial; if it is flagged it has no values."""
    count, error = rng.randint(1, MOST), rng.random() < 0.3
    return [
        Beat(
            values=tuple(rng.getrandbits(16) for _ in range(LANES)),
            present=FULL if place < count - 1 else 0 if error else (2 << rng.randrange(LANES)) - 1,
            last=place == count - 1,
            error=error and place == count - 1,
        )
        for place in range(count)
    ]


def words(beats: list[Beat], decoders: int) -> Iterator[Beat]:
    """Join the beats of the decoders into words; a flagged word has no values."""
    for start in range(0, len(beats), decoders):
        part = beats[start : start + decoders]
        present = sum(beat.present << place * LANES for place, beat in enumerate(part))
        yield Beat(
            values=tuple(value for beat in part for value in beat.values),
            present=0 if part[-1].error else present,
            last=part[-1].last,
            error=part[-1].error,
        )


class Decoder:
    """Offers the beats of its segments at its own pace."""

    def __init__(self, port: Any, rng: random.Random, pace: float) -> None:
        self._port, self._rng, self._pace = port, rng, pace
        self.waiting: deque[Beat] = deque()
        self._offered = False

    def drive(self, ctx: Any) -> None:
        """Offer a beat, until it is taken."""
        self._offered = self._offered or (bool(self.waiting) and self._rng.random() < self._pace)
        ctx.set(self._port.valid, int(self._offered))
        if self._offered:
            ctx.set(self._port.payload, dataclasses.asdict(self.waiting[0]))

    def sample(self, ctx: Any) -> None:
        """See whether it was taken."""
        if self._offered and ctx.get(self._port.ready):
            self.waiting.popleft()
            self._offered = False


@pytest.mark.parametrize("pace", [0.2, 0.9])
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.module_name)
def test_segments_leave_in_the_order_of_their_commands(config: DmaConfig, pace: float) -> None:
    dut, rng = InOrder(config), random.Random(4)
    count = config.decoders
    decoders = [Decoder(port, rng, rng.choice([0.2, 0.9])) for port in dut.beats]
    expected: deque[Beat] = deque()
    for number in range(80):
        beats = segment(rng)
        decoders[number % count].waiting.extend(beats)
        expected.extend(words(beats, count))

    async def work(ctx: Any) -> None:
        held = None
        while expected:
            for decoder in decoders:
                decoder.drive(ctx)
            ready = rng.random() < pace
            ctx.set(dut.values.ready, int(ready))
            for decoder in decoders:
                decoder.sample(ctx)
            found = ctx.get(dut.values.payload) if ctx.get(dut.values.valid) else None
            assert held is None or found == held, "it changed while it waited"
            if found is not None and ready:
                check(found, expected.popleft())
            held = None if ready or count == 1 else found
            await ctx.tick()
        assert not any(decoder.waiting for decoder in decoders)

    def check(found: Any, wanted: Beat) -> None:
        assert (found.last, found.error) == (wanted.last, wanted.error)
        assert found.present == wanted.present
        for lane, value in enumerate(wanted.values):
            assert not wanted.present >> lane & 1 or found.values[lane] == value

    run(dut, work)
