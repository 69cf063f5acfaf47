"""The encoder's top in cocotb: its ports, the order of commands, and a scoreboard."""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cassandra_spec.golden.format import ENCODE_ERROR_CAUSES
from cassandra_spec.rtl.encode.regions import EncodeResult
from cassandra_spec.rtl.encode.types import EncodeCommandLayout, EncoderConfig
from cassandra_spec.verif.encoder.cases import draw_segment, extremes
from cassandra_spec.verif.encoder.model import Segment
from cassandra_spec.verif.library.bank import fields_of
from cassandra_spec.verif.library.packets import codebook_packet, values_packet
from cassandra_spec.verif.library.patterns import Pattern
from cassandra_spec.verif.library.streams import Agent, Bench, Item, Port

REGIONS = ("speculation", "verification")
PACES = ("always", "half", "burst", "stall")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """An encoding request, and its expected result.

    By default both are ``segment``. ``word`` and ``values`` replace its command and values;
    ``expected`` is then the segment to expect, None if there are no regions. ``useless`` regions
    may have any bytes.
    """

    segment: Segment
    word: int | None = None
    values: tuple[int, ...] | None = None
    expected: Segment | None
    causes: frozenset[str] = frozenset()
    useless: bool = False

    @classmethod
    def of(cls, segment: Segment) -> Order:
        """Return the order of a correct segment."""
        return cls(segment=segment, expected=segment)


def broken(rng: np.random.Generator, config: EncoderConfig, segment: Segment) -> Order:
    """Return a packet of another length, a refused command, or refused values."""
    count = segment.values.size
    given = tuple(segment.values.tolist())
    kind = int(rng.integers(5))
    if kind == 0 and count > 1:
        short = dataclasses.replace(segment, values=segment.values[: count // 2])
        return Order(
            segment=segment,
            values=given[: count // 2],
            expected=short,
            causes=frozenset({"short"}),
        )
    if kind == 1:
        longer = given + given[:1] * int(rng.integers(1, 60))
        return Order(segment=segment, values=longer, expected=segment, causes=frozenset({"long"}))
    if kind == 2:
        base = draw_segment(rng, config, "mx", "infinite")
        refused = dataclasses.replace(base, saturate=False)
        return Order(segment=refused, expected=refused, causes=frozenset({"nonfinite"}))
    if kind == 3:
        base = draw_segment(rng, config, "unary", "normal")
        foreign = dataclasses.replace(base, keep=None, mask=False, codebook=(0,))
        causes = frozenset({"miss"})
        return Order(segment=foreign, expected=None, causes=causes, useless=True)
    return _with_unknown_scheme(segment)


def cut_anywhere(rng: np.random.Generator, config: EncoderConfig) -> Iterator[Order]:
    """Yield packets whose last word has any number of values, with any number requested."""
    lanes = config.pace
    base = dataclasses.replace(draw_segment(rng, config, "mx", "normal"), keep=None, mask=True)
    values = rng.integers(1 << 14, size=2 * lanes).astype(np.uint16)
    for asked, given in itertools.permutations(range(1, lanes + 1), 2):
        segment = dataclasses.replace(base, values=values[: lanes + asked])
        there = dataclasses.replace(base, values=values[: lanes + min(asked, given)])
        cause = "short" if given < asked else "long"
        yield Order(
            segment=segment,
            values=tuple(values[: lanes + given].tolist()),
            expected=there,
            causes=frozenset({cause}),
        )


def refused_behind_a_window(rng: np.random.Generator, config: EncoderConfig) -> Iterator[Order]:
    """Yield refused commands after segments whose only window of codes is not used."""
    for _ in range(10):
        drawn = draw_segment(rng, config, "unary", "normal", beats=2)
        nothing = dataclasses.replace(drawn, keep=0, mask=True)
        yield Order.of(nothing)
        yield _with_unknown_scheme(nothing)


def _with_unknown_scheme(segment: Segment) -> Order:
    """Order a segment in a scheme that does not exist, which the encoder refuses."""
    word, causes = segment.word | 3 << 16, frozenset({"command"})
    return Order(segment=segment, word=word, expected=None, causes=causes)


def wide_fields(rng: np.random.Generator, config: EncoderConfig) -> Iterator[Order]:
    """Yield commands with all-zero or all-one fields, and results with numbers near their maximum.

    A field with an unsupported value is refused; ``keep`` may be any number, and bits beyond the
    last field are ignored.
    """
    base = dataclasses.replace(draw_segment(rng, config, "exact", "any"), keep=None, mask=True)
    some = dataclasses.replace(base, vector=config.vector, keep=1)  # needs a mask
    wrong = [("count", -1), ("count", -2), ("scheme", -1), ("vector", 0), ("vector", -1)]
    wrong += [("log2_group", 0), ("log2_group", -1), ("mask", 0)]
    for name, value in wrong:
        word = _with_field((some if name == "mask" else base).word, name, value)
        yield Order(segment=base, word=word, expected=None, causes=frozenset({"command"}))
        yield Order.of(base)
    for word in (_with_field(base.word, "keep", -1), base.word | -1 << _BITS & (1 << 64) - 1):
        yield Order(segment=base, word=word, expected=base)
        yield Order.of(base)
    for scheme in config.schemes:
        whole = next(iter(extremes(rng, config, scheme)))
        most, part = config.segment - 1, config.segment * 3 // 4
        for values in (np.full(most, 0x7F80, np.uint16), whole.values[:part]):
            yield Order.of(dataclasses.replace(whole, values=values))


_BITS = EncodeCommandLayout.size


def _with_field(word: int, name: str, value: int) -> int:
    """Replace a field of a command; -1: all ones."""
    place = EncodeCommandLayout[name]
    ones = (1 << place.width) - 1
    return word & ~(ones << place.offset) | (value & ones) << place.offset


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """A segment that came out as expected."""

    order: Order
    held: frozenset[str]  # outputs that stalled on this segment


class EncoderBench(Bench):
    """Drives segments into the encoder and compares its regions and results with golden's.

    Values are offered as early as the patterns allow. A command follows the codebook that it needs,
    and the previous command.
    """

    def __init__(self, dut: Any, seed: int, config: EncoderConfig) -> None:
        super().__init__(dut, seed)
        self.config = config
        self._control = _Control(self)
        self.agents.append(self._control)
        self.sources = {
            "command": self.source(Port.axis(dut, "s_axis_command")),
            "codebook": self.source(Port.axis(dut, "s_axis_codebook", ("tdata", "tlast"))),
            "values": self.source(Port.axis(dut, "s_axis_values", ("tdata", "tkeep", "tlast"))),
        }
        self.sinks = {
            name: self.sink(Port.axis(dut, f"m_axis_{name}", ("tdata", "tlast")))
            for name in REGIONS
        }
        self.sinks["result"] = self.sink(Port.axis(dut, "m_axis_result"))
        self.scoreboard = _Scoreboard(self)
        self.agents.append(self.scoreboard)

    def use(self, patterns: dict[str, Pattern]) -> None:
        """Drive the named ports by these patterns from now on."""
        ports = {**self.sources, **self.sinks}
        for name, pattern in patterns.items():
            ports[name].use(pattern)

    def submit(self, orders: Sequence[Order]) -> None:
        """Queue segments with their expected results."""
        for order in orders:
            self._control.pending.append(order)
            values = order.values or tuple(order.segment.values.tolist())
            self.sources["values"].send(values_packet(values, self.config.pace))
            self.scoreboard.expected.append(order)

    async def finish(self, limit: int = 200_000) -> None:
        """Run until every result has arrived; nothing may follow, all input must be consumed."""
        board = self.scoreboard
        try:
            await self.until(lambda: not board.expected, limit, "the last result")
        except AssertionError as error:
            raise AssertionError(f"no result for {board.expected[0]}") from error
        await self.until(lambda: not int(self.dut.busy.value), 100, "the end of busy")
        await self.run(20)
        unused = [name for name, source in self.sources.items() if not source.idle]
        assert not unused, f"input that was not taken: {', '.join(unused)}"
        assert self.scoreboard.empty, "words that no result has told of"


class _Control(Agent):
    """Offers codebooks and commands in order."""

    def __init__(self, bench: EncoderBench) -> None:
        self._bench = bench
        self._loaded: tuple[int, ...] = ()
        self.reset()

    def drive(self) -> None:
        """Offer the next item when the previous one has been taken."""
        sources = self._bench.sources
        if not self.pending or not sources["command"].idle or not sources["codebook"].idle:
            return
        book = self.pending[0].segment.codebook
        if book and book != self._loaded:
            self._loaded = book
            sources["codebook"].send(codebook_packet(book))
            return
        order = self.pending.popleft()
        word = order.segment.word if order.word is None else order.word
        sources["command"].send([{"tdata": word}])

    def reset(self) -> None:
        """Drop all queued items; no codebook is loaded."""
        self.pending: deque[Order] = deque()
        self._loaded = ()


class RegionScoreboard(Agent):
    """Collects the words of both regions, packet by packet, for the segments in ``expected``."""

    def __init__(self, bench: Bench) -> None:
        self._bench: Any = bench
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.expected: deque[Any] = deque()
        self.cycles: list[int] = []  # cycles in which a result was taken
        self._words = {name: bytearray() for name in REGIONS}
        self._ended = {name: deque[bytes]() for name in REGIONS}

    @property
    def empty(self) -> bool:
        """True if no word has come since the last result."""
        return not any(self._words.values()) and not any(self._ended.values())

    def add(self, name: str, word: int, last: int) -> None:
        """Add a word of a region."""
        self._words[name] += word.to_bytes(self._bench.config.lanes, "little")
        if last:
            self._ended[name].append(bytes(self._words[name]))
            self._words[name].clear()

    def packet(self, name: str, length: int) -> bytes:
        """Return the region of the segment that has ended; empty if it has none."""
        return self._ended[name].popleft() if length else b""


class _Scoreboard(RegionScoreboard):
    """Compares a segment when its result comes, and records which outputs stalled."""

    def reset(self) -> None:
        super().reset()
        self.ended: list[Ended] = []
        self._stalled = {name: sink.stalled for name, sink in self._bench.sinks.items()}
        self._held = dict.fromkeys(REGIONS, False)  # the current packet
        self._were_held = {name: deque[bool]() for name in REGIONS}  # completed packets

    def sample(self) -> None:
        for name in REGIONS:
            received = self._bench.sinks[name].received
            while received:
                self._take(name, received.popleft())
        results = self._bench.sinks["result"].received
        while results:
            order, held = self._compare(fields_of(EncodeResult(), results.popleft()["tdata"]))
            held |= {"result"} if self._waited("result") else set()
            self.ended.append(Ended(order=order, held=frozenset(held)))
            self.cycles.append(self._bench.cycle)

    def _take(self, name: str, word: Item) -> None:
        self.add(name, word["tdata"], word["tlast"])
        self._held[name] |= self._waited(name)
        if word["tlast"]:
            self._were_held[name].append(self._held[name])
            self._held[name] = False

    def _waited(self, name: str) -> bool:
        """Return True if a port stalled since its previous transfer."""
        before, self._stalled[name] = self._stalled[name], self._bench.sinks[name].stalled
        return self._stalled[name] > before

    def _compare(self, result: dict[str, Any]) -> tuple[Order, set[str]]:
        """Return the order that has ended, and its regions that stalled."""
        assert self.expected, "a result that nothing asked for"
        order = self.expected.popleft()
        names = [n for n in ENCODE_ERROR_CAUSES if result["errors"][n]]
        assert set(names) == order.causes, f"{order}: causes {names}"
        segment = order.expected
        packed = segment.packed if segment else None
        held = set[str]()
        for name in REGIONS:
            length = result[name] * self._bench.config.superblock
            got = self.packet(name, length)
            held |= {name} if length and self._were_held[name].popleft() else set()
            wanted = getattr(packed, name).tobytes() if packed else b""
            wanted = got if order.useless else wanted
            assert length == len(wanted), f"{order}: {name} of {length} bytes, not {len(wanted)}"
            compare_bytes(f"{order}: {name}", got, wanted)
        if segment and packed:
            assert result["mask"] == packed.directory[0, 4], str(order)
            assert result["saturated"] == segment.replaced(), str(order)
        return order, held


def compare_bytes(what: str, got: bytes, wanted: bytes) -> None:
    """Raise AssertionError with the first position at which the bytes differ."""
    assert len(got) == len(wanted), f"{what}: {len(got)} bytes came, not {len(wanted)}"
    wrong = [i for i, (a, b) in enumerate(zip(got, wanted, strict=True)) if a != b]
    assert not wrong, f"{what}: {len(wrong)} wrong bytes of {len(wanted)}, the first is {wrong[0]}"
