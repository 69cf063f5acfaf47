"""The superblock reader: packets of every length, takes of every size, at every pace."""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any

import cocotb
import numpy as np

from cassandra_spec.rtl.common.superblock_reader import SuperblockReader
from cassandra_spec.verif.formal.harness import Together
from cassandra_spec.verif.library.patterns import ALWAYS, PATTERNS, Pattern
from cassandra_spec.verif.library.streams import Agent, Bench, Port, Source
from cassandra_spec.verif.library.workloads import PACES

Reader = tuple[int, int, int, int, int, bool, bool]

# Lanes, maximum rows in a take, bytes of a superblock, rows in a word, words held, eager, rests.
READERS: tuple[Reader, ...] = (
    *((8, 12, 128, 8, 3, False, True), (16, 12, 128, 8, 3, False, False)),
    *((16, 16, 256, 8, 3, True, False), (32, 16, 128, 8, 3, True, False)),
    *((8, 1, 128, 8, 3, False, False), (8, 30, 128, 16, 4, False, True)),
)


def design() -> Together:
    """Build readers of all sizes."""
    return Together(
        {
            _name(*reader): SuperblockReader(
                lanes=reader[0],
                take_max=reader[1],
                superblock=reader[2],
                word_rows=reader[3],
                depth=reader[4],
                eager=reader[5],
                rests=reader[6],
            )
            for reader in READERS
        }
    )


def _name(*reader: int) -> str:
    return "_".join(["reader", *(str(int(size)) for size in reader)])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packet:
    """A region, and the part of it that the schedule uses."""

    rows: tuple[int, ...]
    use: int | None  # rows taken; None: all of them, and then more are requested
    max_take: int  # maximum rows in a take
    greedy: bool = False  # every take is as large as possible
    pattern: Pattern  # cycles in which rows are taken

    @property
    def spare(self) -> int:
        """Number of rows that are left over."""
        return 0 if self.use is None else len(self.rows) - self.use

    def words(self, lanes: int, word_rows: int) -> Iterator[dict[str, int]]:
        """Yield bus payloads: data and, above it, ``last``."""
        width = word_rows * lanes
        for place in range(0, len(self.rows), word_rows):
            part = self.rows[place : place + word_rows]
            data = sum(row << i * lanes for i, row in enumerate(part))
            last = place + word_rows >= len(self.rows)
            yield {"payload": data | last << width}


class Taker(Agent):
    """Plays the demand schedule: takes rows, asks for the drain, checks every output.

    ``level`` is predicted: a word that is accepted counts from the next cycle on.
    """

    def __init__(self, bench: Bench, dut: Any, source: Source, reader: Reader) -> None:
        self.lanes, self.take_max, superblock, self.word_rows, self.depth, *kinds = reader
        self.eager, self.rests = kinds
        self.name = _name(*reader)
        self.superblock_rows = 8 * superblock // self.lanes
        self._dut = dut
        self._rng = bench.rng
        self._source = source
        self._words = source.port
        self.packets: deque[Packet] = deque()
        self.fullest = 0
        self.reset()

    def send(self, packet: Packet) -> None:
        """Queue a packet, at both ends."""
        self._source.send(packet.words(self.lanes, self.word_rows))
        self.packets.append(packet)

    @property
    def capacity(self) -> int:
        """Number of rows that the reader holds."""
        return self.depth * self.word_rows

    @property
    def done(self) -> bool:
        """True if all packets are drained."""
        return not self.packets

    def _signal(self, member: str) -> Any:
        return self._dut[f"{self.name}__{member}"]

    def _read(self, member: str) -> int:
        return int(self._signal(member).value)

    def reset(self) -> None:
        """Leave the inputs idle."""
        self.packets.clear()
        self._begin()
        self._take = self._finish = -1  # unknown, so that both are written
        self._sure = 0
        self._drive(0, 0)

    def _begin(self) -> None:
        """Start the next packet: words inside, rows taken, level, and state."""
        self._inside = self._taken = self._level = 0
        self._draining = False
        self._active: Iterator[bool] | None = None

    def _drive(self, take: int, finish: int, greedy: bool = False) -> None:
        """Drive ``take`` or ``finish``; an eager reader knows some of the rows early, or all."""
        if self.eager:
            self._sure = take if greedy else int(self._rng.integers(take, endpoint=True))
            self._signal("sure").value = self._sure
        if (take, finish) != (self._take, self._finish):
            self._signal("take").value = take
            self._signal("finish").value = finish
        self._take, self._finish = take, finish

    def drive(self) -> None:
        """Take some of the present rows, or finish."""
        if not self.packets or self._draining:
            self._drive(0, 0)
            return
        packet = self.packets[0]
        if self.rests:
            self._signal("wide").value = int(packet.max_take > self.word_rows)
        self._active = self._active or packet.pattern.cycles(self._rng)
        moves = next(self._active)
        if self._complete(packet):
            self._drive(0, int(moves))
            return
        left = len(packet.rows) if packet.use is None else packet.use - self._taken
        most = min(self._level, left, packet.max_take, self.take_max)
        some = most if packet.greedy else int(self._rng.integers(most, endpoint=True))
        self._drive(some if moves else 0, 0, packet.greedy)

    def _complete(self, packet: Packet) -> bool:
        if packet.use is None:
            return self._taken == len(packet.rows) and bool(self._read("ended"))
        return self._taken == packet.use

    def sample(self) -> None:
        """Compare with the prediction, then predict the next cycle."""
        offered = bool(self._words.valid.value)
        ready = bool(self._words.ready.value)
        drained = bool(self._read("drained"))
        if not self.packets:
            assert not drained, f"{self.name}: drained without a packet"
            return
        packet = self.packets[0]
        ended = self._inside * self.word_rows == len(packet.rows)
        assert self._read("ended") == ended, f"{self.name}: ended must be {ended}"
        assert not (ended and ready), f"{self.name}: a word of the next packet is taken early"
        if self._draining or self._finish:
            self._sample_drain(packet, ready, ended, drained)
        else:
            assert not drained, f"{self.name}: drained before finish"
            self._sample_rows(packet, ready, ended)
        self._inside += offered and ready
        self._level += self.word_rows * (offered and ready) - self._take
        self._taken += self._take
        self.fullest = max(self.fullest, self._level)
        self._draining |= bool(self._finish)
        if drained:
            self.packets.popleft()
            self._begin()

    def _sample_rows(self, packet: Packet, ready: bool, ended: bool) -> None:
        level = self._read("level")
        assert level == self._level, f"{self.name}: level {level} must be {self._level}"
        room = self._level <= self.capacity - self.word_rows
        room |= self._taken % self.word_rows + self._sure >= self.word_rows
        assert ready == (room and not ended), f"{self.name}: ready {ready} at level {level}"
        shown = min(self._level, self.take_max)
        rows, mask = self._read("rows"), (1 << self.lanes) - 1
        got = [rows >> i * self.lanes & mask for i in range(shown)]
        expected = list(packet.rows[self._taken : self._taken + shown])
        if self.rests and packet.max_take <= self.word_rows:
            expected[self.word_rows :] = [0] * len(expected[self.word_rows :])
        assert got == expected, f"{self.name}: rows from {self._taken} on: {got}, not {expected}"

    def _sample_drain(self, packet: Packet, ready: bool, ended: bool, drained: bool) -> None:
        assert ready != ended, f"{self.name}: ready {ready}, ended {ended}"
        assert drained == ended, f"{self.name}: drained must be {ended}"
        if drained:
            overlong = packet.spare >= self.superblock_rows
            assert self._read("overlong") == overlong, f"{self.name}: {packet.spare} rows to spare"


async def _start(dut: Any) -> tuple[Bench, list[tuple[Source, Taker]]]:
    """Return a bench with all readers, after a reset."""
    bench = Bench(dut, cocotb.RANDOM_SEED)
    pairs = []
    for reader in READERS:
        source = bench.source(Port.amaranth(dut, f"{_name(*reader)}__words"))
        taker = Taker(bench, dut, source, reader)
        bench.agents.append(taker)
        pairs.append((source, taker))
    await bench.started()
    return bench, pairs


async def _finish(bench: Bench, pairs: list[tuple[Source, Taker]], limit: int) -> int:
    cycles = await bench.until(
        lambda: all(taker.done for _, taker in pairs), limit, "the end of all packets"
    )
    assert all(source.idle for source, _ in pairs)
    return cycles


def _rows(rng: np.random.Generator, taker: Taker, words: int) -> tuple[int, ...]:
    return tuple(map(int, rng.integers(1 << taker.lanes, size=words * taker.word_rows)))


def _any_packet(rng: np.random.Generator, taker: Taker, pattern: Pattern) -> Packet:
    """Draw a packet of any number of words that uses most or all of them."""
    rows = _rows(rng, taker, int(rng.integers(1, 17)))
    use = len(rows) - int(rng.integers(min(len(rows), 2 * taker.word_rows), endpoint=True))
    most = int(rng.choice([1, 2, 9, taker.take_max]))
    wants_more = bool(rng.integers(2))
    return Packet(rows=rows, use=None if wants_more else use, max_take=most, pattern=pattern)


@cocotb.test()
async def packets_back_to_back(dut: Any) -> None:
    """Idle x takes x packets: every row comes out once, in order; the level is exact."""
    bench, pairs = await _start(dut)
    for offer, take in itertools.product(PACES, PACES):
        dut._log.info("words %s, takes %s", offer, take)
        for source, taker in pairs:
            source.use(PATTERNS[offer])
            for _ in range(2):
                taker.send(_any_packet(bench.rng, taker, PATTERNS[take]))
        await _finish(bench, pairs, 20_000)
    assert all(taker.fullest == taker.capacity for _, taker in pairs), "back-pressure must be seen"


def _spare_packets(rng: np.random.Generator, taker: Taker, pattern: Pattern) -> Iterator[Packet]:
    """Yield packets with no spare row, one, and around one and two superblocks."""
    unit = taker.superblock_rows
    for spare in (0, 1, unit - 1, unit, unit + 1, 2 * unit - 1, 2 * unit, 5 * unit):
        use = int(rng.choice([0, 1, 5, 40]))
        use += -(spare + use) % taker.word_rows
        words = max((spare + use) // taker.word_rows, 1)
        rows = _rows(rng, taker, words)
        yield Packet(rows=rows, use=len(rows) - spare, max_take=taker.take_max, pattern=pattern)


@cocotb.test()
async def what_is_left_is_drained_and_measured(dut: Any) -> None:
    """``overlong`` rises from one spare superblock on, arrived or still to come."""
    bench, pairs = await _start(dut)
    for offer, take in itertools.product(("always", "half", "burst"), PACES):
        for source, taker in pairs:
            source.use(PATTERNS[offer])
            for packet in _spare_packets(bench.rng, taker, PATTERNS[take]):
                taker.send(packet)
        await _finish(bench, pairs, 20_000)


@cocotb.test()
async def a_word_in_and_its_rows_out_in_each_cycle(dut: Any) -> None:
    """With words and takes all the time, a word costs a cycle."""
    bench, pairs = await _start(dut)
    words = 100
    for _, taker in pairs:
        if taker.take_max >= taker.word_rows:
            rows = _rows(bench.rng, taker, words)
            most = taker.take_max
            taker.send(Packet(rows=rows, use=None, max_take=most, pattern=ALWAYS, greedy=True))
    cycles = await _finish(bench, pairs, 2 * words)
    assert cycles <= words + 4


@cocotb.test()
async def reset_in_the_middle_of_a_packet(dut: Any) -> None:
    """After reset, nothing of the packet is left."""
    bench, pairs = await _start(dut)
    for cycles in (1, 2, 3, 5, 8, 13):
        for _, taker in pairs:
            taker.send(_any_packet(bench.rng, taker, PATTERNS["half"]))
        await bench.run(cycles)
        await bench.reset()
        for _, taker in pairs:
            taker.send(_any_packet(bench.rng, taker, PATTERNS["half"]))
        await _finish(bench, pairs, 20_000)
