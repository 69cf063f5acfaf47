"""The decoder's control: buffers, stream rules, errors, and the end of every segment."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from amaranth.hdl import Assert, Assume, Cat, Module, Mux, ResetSignal, Signal, Value, ValueLike
from amaranth.lib import wiring

from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.common.superblock_reader import SuperblockReader
from cassandra_spec.rtl.decode.bitmap_expand import BlockBuffer
from cassandra_spec.rtl.decode.codebook import Codebook
from cassandra_spec.rtl.decode.exponent_path import ExponentPath
from cassandra_spec.rtl.decode.speculation import SpeculationPath
from cassandra_spec.rtl.decode.verification import VerificationPath
from cassandra_spec.rtl.decoder import Decoder
from cassandra_spec.verif.formal.harness import Around, Handshakes, assume_holds, bits_set, level_of
from cassandra_spec.verif.formal.prover import Claim


def _watch_blocks(m: Module, buffer: BlockBuffer, taken: ValueLike, when: ValueLike = 1) -> Signal:
    return level_of(
        m,
        "blocks",
        room=2 * buffer.lanes,
        put=Mux(buffer.load, buffer.lanes, 0),
        taken=taken,
        clear=buffer.clear,
        when=when,
    )


def _watch_ranks(
    m: Module, path: ExponentPath, taken: ValueLike, when: ValueLike
) -> tuple[Signal, Signal]:
    """Track the rank queue: a window is counted in the cycle after it was taken."""
    counting = Signal(range(len(path.window) + 1), name="counting")
    m.d.sync += counting.eq(Mux(path.window_valid & ~path.clear, bits_set(path.window), 0))
    level = level_of(
        m,
        "ranks",
        room=path.entries,
        put=counting,
        taken=taken,
        clear=path.clear,
        when=when,
    )
    return level, counting


def _watch_codebook(m: Module, codebook: Codebook, say: Callable[[ValueLike], Any]) -> None:
    """Assert that a lane's exponent stays, unless its rank changes or loading is allowed."""
    closed = Signal(name="closed")
    m.d.sync += closed.eq(~codebook.enable)
    for lane in range(codebook.lanes):
        now = Cat(codebook.exponents[lane], codebook.missing[lane])
        rank = Signal.like(codebook.ranks[lane], name=f"rank_{lane}")
        before = Signal(len(now), name=f"before_{lane}")
        m.d.sync += [rank.eq(codebook.ranks[lane]), before.eq(now)]
        m.d.comb += say(~closed | (rank != codebook.ranks[lane]) | (now == before))


def _watch_reader(m: Module, reader: SuperblockReader) -> None:
    with m.If(~ResetSignal()):
        m.d.comb += [
            Assert((reader.take <= reader.level) | reader.ended),
            Assert(~reader.finish | (reader.take == 0)),
        ]
        if reader.eager:
            m.d.comb += Assert(reader.sure <= reader.take)


CONFIG = DecoderConfig(lanes=8)
FULL_RATE = DecoderConfig(lanes=8, target_rate="full")
CODED = DecoderConfig(lanes=8, schemes=("unary",), coded=True)


class Segments(Around):
    """Commands and last beats come in pairs, and errors are remembered."""

    part: Decoder

    def claims(self, m: Module) -> None:
        d = self.part
        inside = Signal(3)  # segments begun and not ended
        begin = d.command.valid & d.command.ready
        end = d.values.valid & d.values.ready & d.values.payload.last
        m.d.sync += inside.eq(inside + begin - end)
        m.d.comb += [
            Assert(inside <= 2),
            Assert(~d.values.valid | (inside != 0)),
            Assert(d.busy | (inside == 0)),
        ]
        self._errors(m, d)

    def _errors(self, m: Module, d: Decoder) -> None:
        error = Value.cast(d.error)
        before, cleared, clear_before = Signal(len(error)), Signal(), Signal()
        m.d.sync += [
            before.eq(error),
            cleared.eq(cleared | d.clear_error),
            clear_before.eq(d.clear_error),
        ]
        m.d.comb += Assert(((before & ~error) == 0) | clear_before)
        bad = d.values.valid & d.values.payload.last & d.values.payload.error
        m.d.comb += [
            Assert(~bad | cleared | (error != 0)),
            Assert(~bad | (d.values.payload.present == 0)),
        ]


class Ends(Around):
    """A segment that begins is over before ``limit`` cycles have passed.

    Sources always offer, packets have at most two words, segments at most two beats, and
    values are always taken.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(Decoder(CONFIG))

    part: Decoder

    def claims(self, m: Module) -> None:
        d = self.part
        age = Signal(range(self.limit + 2))
        with m.If(~d.busy | (d.values.valid & d.values.ready & d.values.payload.last)):
            m.d.sync += age.eq(0)
        with m.Else():
            m.d.sync += age.eq(age + 1)
        m.d.comb += [
            Assert(age <= self.limit),
            Assume(~ResetSignal()),
            Assume(d.values.ready),
            Assume(~d.codebook.valid),
            Assume(d.command.payload.count < 2 * CONFIG.lanes),
        ]
        for name in ("speculation", "verification"):
            port = getattr(d, name)
            count = Signal(range(3), name=f"{name}_count")
            with m.If(port.valid & port.ready):
                m.d.sync += count.eq(Mux(port.payload.last, 0, count + 1))
            m.d.comb += [
                Assume(port.valid),
                Assume(port.payload.last | (count < 1)),
            ]


def _held(m: Module, path: VerificationPath) -> Value:
    """Return 1 if a beat is in the queue before the pipeline (full rate)."""
    held = Signal(2, name="held")
    put = path.beats.valid & path.beats.ready
    m.d.sync += held.eq(held + put - path.pipeline.taken)
    return held.any()


class Progress(Around):
    """A path moves something within ``limit`` cycles in which its ports allow it.

    It takes a word, rows or a beat, or hands one on. Cycles in which a port stalls do not count.
    Words need not be offered if the segment has no region or the region is drained.
    """

    part: SpeculationPath | VerificationPath

    def __init__(self, part: SpeculationPath | VerificationPath, limit: int) -> None:
        self.limit = limit
        super().__init__(part)

    def claims(self, m: Module) -> None:
        path = self.part
        if isinstance(path, SpeculationPath):
            streams = [path.words, path.beats]
            let, closed = path.beats.ready | ~path.beats.valid, path.pipeline.closed
        else:
            assume_holds(m, path.beats.valid, path.beats.ready, path.beats.payload, "beats")
            streams = [path.words, path.beats, path.values]
            offered = path.beats.valid | _held(m, path)
            let = path.values.ready & (offered | path.control.state.beats_done)
            closed = path.control.closed
        moves = Cat(*(port.valid & port.ready for port in streams), path.reader.take)
        still = Signal(range(self.limit + 1))  # counted cycles since the last move
        with m.If(moves.any() | ~path.busy):
            m.d.sync += still.eq(0)
        with m.Elif((path.words.valid | closed) & let):
            m.d.sync += still.eq(still + 1)
        m.d.comb += Assert(still < self.limit)


class Partners(Around):
    """A path waits for the other one only while that one, or the queue between, has more beats.

    At half rate there is no queue.
    """

    part: Decoder

    def claims(self, m: Module) -> None:
        front, back = self.part.speculation_path, self.part.verification_path
        more = front.busy | _held(m, back)
        with m.If(~ResetSignal()):
            m.d.comb += [
                Assert(~back.busy | back.control.state.beats_done | more),
                Assert(~front.busy | back.busy | back.command.valid),
            ]


class Stock(Around):
    """The content of a buffer of the speculation path, up to the first error of each segment.

    It equals the schedule's count plus the amount that the beat in stage 1 will take.
    """

    part: SpeculationPath

    def __init__(self) -> None:
        super().__init__(SpeculationPath(CONFIG))

    def good(self, m: Module) -> Value:
        """Return 1 while the segment has no error; until then no beat is given up."""
        error = Value.cast(self.part.errors).any()
        failed, good = Signal(name="failed_before"), Signal(name="good")
        with m.If(self.part.schedule.start):
            m.d.sync += failed.eq(0)
        with m.Elif(error):
            m.d.sync += failed.eq(1)
        m.d.comb += [
            good.eq(~failed & ~error & ~ResetSignal()),
            Assert(~good | ~self.part.pipeline.kill),
        ]
        return good

    def waiting(self) -> Value:
        """Return the amount that the beat in stage 1 takes, if there is one."""
        there = self.part.pipeline.places.advance | ~self.part.schedule.enable
        return Mux(there, bits_set(self.part.pipeline.places.lane_mask), 0)

    def leaving(self) -> Value:
        """Return the amount that the beat in stage 1 takes, if it moves on."""
        places = self.part.pipeline.places
        return Mux(places.advance, bits_set(places.lane_mask), 0)


class Blocks(Stock):
    """The block buffer of ``sign_high``."""

    def claims(self, m: Module) -> None:
        schedule, buffer = self.part.schedule, self.part.pipeline.sign_high
        good = self.good(m) & ~buffer.clear
        level = _watch_blocks(m, buffer, self.leaving(), good)
        with m.If(good):
            m.d.comb += [
                Assert(level == schedule.fields + self.waiting()),
                Assert(schedule.count == Mux(schedule.inside, bits_set(schedule.kept), 0)),
            ]


class Ranks(Stock):
    """The rank queue, in segments of scheme unary."""

    def claims(self, m: Module) -> None:
        lanes = CONFIG.lanes
        schedule, path = self.part.schedule, self.part.pipeline.exponents
        assert path is not None  # the configuration has scheme unary
        ranks = schedule.ranks
        good = self.good(m) & schedule.unary & ~path.clear
        level, counting = _watch_ranks(m, path, self.leaving(), good)
        with m.If(good):
            m.d.comb += [
                Assert(level == ranks.left + self.waiting()),
                Assert(counting == sum(ranks.new)),
                Assert((counting == 0) | (ranks.left < lanes)),
                Assert(~path.busy | (level <= path.entries - path.places)),
                Assert(ranks.total < lanes + CONFIG.window * lanes),
                Assert(schedule.count == Mux(schedule.inside, bits_set(schedule.kept), 0)),
            ]


class Verification(Around):
    """The verification path, fed with beats that obey the stream rule and begin blocks correctly.

    With ``good``, only in segments without errors that have low bits.
    """

    part: VerificationPath

    def __init__(self, config: DecoderConfig = CONFIG, *, good: bool = False) -> None:
        self.good = good
        super().__init__(VerificationPath(config))

    def claims(self, m: Module) -> None:
        beats = self.part.beats
        assume_holds(m, beats.valid, beats.ready, beats.payload, "beats")
        abort = beats.payload.abort
        if self.good:
            command = self.part.command.payload
            m.d.comb += [
                Assume(Value.cast(self.part.errors) == 0),
                Assume(~abort),
                Assume(command.target & (command.truncated != 0)),
            ]
            self._watch_low(m)
        m.d.comb += Assume(abort | (beats.payload.begins == self._begins(m)))

    def _watch_low(self, m: Module) -> None:
        """Track the block buffer of ``low``: a beat takes its values as it moves on."""
        beats, low = self.part.beats, self.part.pipeline.low
        taken = Mux(beats.valid & beats.ready, bits_set(beats.payload.kept), 0)
        _watch_blocks(m, low, taken)

    def _begins(self, m: Module) -> Value:
        """Return the beats that begin a block: rule ``blocked`` of docs/format.md, section 6."""
        lanes, beats = CONFIG.lanes, self.part.beats
        available = Signal(range(2 * lanes), name="available")
        kept = bits_set(beats.payload.kept)
        begins = Signal(name="begins")
        m.d.comb += begins.eq(available < kept)
        with m.If(beats.valid & beats.ready):
            held = available + Mux(begins, lanes, 0) - kept
            m.d.sync += available.eq(Mux(beats.payload.last, 0, held))
        return begins


FREE_DATA: dict[type[wiring.Component], tuple[str, ...]] = {
    SuperblockReader: ("rows",),
    Codebook: ("missing", "exponents"),
    BlockBuffer: ("fields",),
    ExponentPath: ("ranks",),
}

_freed = functools.partial(Claim, free=FREE_DATA)
_FREED = " (data of rows, codebook and buffers free)"
_VARIANTS = {"full_rate": FULL_RATE, "coded": CODED}
_LIMITS = {"full_rate": 8, "coded": 8}  # cycles of `verification.progress`
_QUEUES = {
    "full_rate": ", but that the queue between the paths may have the beats for which the "
    "verification path waits",
    "coded": "",
}
_VARIANT_NAMES = {
    "full_rate": "Decoder whose targets come at full rate",
    "coded": "Decoder of coded pruned exponents",
}


def _variant_claims(name: str, config: DecoderConfig) -> tuple[Claim, ...]:
    """Return the strongest claims about the decoder for another configuration."""
    title = _VARIANT_NAMES[name]
    return (
        _freed(
            name=f"{name}.handshake",
            what=f"{title}: values stay, unchanged, until they are taken{_FREED}.",
            design=lambda: Handshakes(Decoder(config), honest=False),
        ),
        _freed(
            name=f"{name}.segments",
            what=f"{title}: as `decoder.segments`{_FREED}.",
            design=lambda: Segments(Decoder(config)),
            seconds=600,
        ),
        _freed(
            name=f"{name}.reader",
            what=f"{title}: as `verification.reader`{_FREED}.",
            design=lambda: Verification(config),
            watches={SuperblockReader: _watch_reader},
        ),
        _freed(
            name=f"{name}.partners",
            what=f"{title}: as `decoder.partners`{_QUEUES[name]}{_FREED}.",
            design=lambda: Partners(Decoder(config)),
            seconds=900,
        ),
        _freed(
            name=f"{name}.speculation_progress",
            what=f"{title}: as `speculation.progress`{_FREED}.",
            design=lambda: Progress(SpeculationPath(config), 3),
        ),
        _freed(
            name=f"{name}.verification_progress",
            what=f"{title}: as `verification.progress`, within {_LIMITS[name]} cycles{_FREED}.",
            design=lambda: Progress(VerificationPath(config), _LIMITS[name]),
        ),
    )


CLAIMS = (
    _freed(
        name="decoder.handshake",
        what=f"Values stay, unchanged, until they are taken{_FREED}.",
        design=lambda: Handshakes(Decoder(CONFIG), honest=False),
    ),
    _freed(
        name="decoder.segments",
        what="A last beat leaves exactly once for each command, at most two segments are "
        "inside, idle means none; a cause stays until it is cleared; a segment that ends in error "
        f"has no values and a cause{_FREED}.",
        design=lambda: Segments(Decoder(CONFIG)),
    ),
    _freed(
        name="decoder.ends",
        what="Every segment ends within 50 cycles, legal or not: up to two beats, regions of up "
        f"to two words, sources that never stall{_FREED}.",
        design=lambda: Ends(50),
        method="bounded",
        depth=80,
    ),
    _freed(
        name="decoder.partners",
        what="While the verification path waits for beats of a segment, the speculation path is "
        "busy; while that is busy, the verification path has the segment or a command that waits"
        f"{_FREED}.",
        design=lambda: Partners(Decoder(CONFIG)),
    ),
    _freed(
        name="speculation.progress",
        what="In a segment, legal or not, the path takes a word or rows or hands a beat on before "
        "a third cycle passes in which words are offered, unless the region is drained, and a "
        "beat, if there is one, would be taken; ports may stall between these cycles for as long "
        f"as they like{_FREED}.",
        design=lambda: Progress(SpeculationPath(CONFIG), 3),
    ),
    _freed(
        name="verification.progress",
        what="In a segment, legal or not, the path takes a word, rows or a beat or hands values on "
        "before a fourth cycle passes in which words are offered, unless there is no region or it "
        "is drained, values would be taken and beats are offered up to the last; ports may stall "
        "between these cycles for as long as they like, if beats stay until they are taken (as "
        f"`speculation.handshake` says){_FREED}.",
        design=lambda: Progress(VerificationPath(CONFIG), 4),
    ),
    Claim(
        name="speculation.codebook",
        what="What the codebook says of a rank stays while it may not be loaded.",
        design=lambda: Around(Codebook(lanes=1, size=CONFIG.codebook)),
        watches={Codebook: lambda m, codebook: _watch_codebook(m, codebook, Assert)},
    ),
    _freed(
        name="speculation.handshake",
        what="Beats stay, unchanged, until they are taken (data of rows, codebook and buffers "
        "free, but the codebook's as still as `speculation.codebook` says).",
        design=lambda: Handshakes(SpeculationPath(CONFIG), honest=False),
        watches={Codebook: lambda m, codebook: _watch_codebook(m, codebook, Assume)},
    ),
    _freed(
        name="speculation.reader",
        what="Rows are taken only where there are any, unless no more will come, and none with the "
        f"end of a region{_FREED}.",
        design=lambda: Around(SpeculationPath(CONFIG)),
        watches={SuperblockReader: _watch_reader},
    ),
    _freed(
        name="verification.reader",
        what="Rows are taken only where there are any, unless no more will come, none with the end "
        f"of a region, and not fewer than the reader was told of early{_FREED}.",
        design=Verification,
        watches={SuperblockReader: _watch_reader},
    ),
    _freed(
        name="speculation.blocks",
        what="The buffer of `sign_high` neither overflows nor runs dry up to the first error of a "
        f"segment, whatever came before; it holds what the schedule has counted{_FREED}.",
        design=Blocks,
    ),
    _freed(
        name="speculation.ranks",
        what="The rank queue neither overflows nor runs dry up to the first error of a unary "
        "segment, whatever came before, and a window is written over none of its ranks; it holds "
        f"what the schedule has counted{_FREED}.",
        design=Ranks,
    ),
    _freed(
        name="verification.blocks",
        what="The buffer of `low` neither overflows nor runs dry in a segment without errors"
        f"{_FREED}.",
        design=lambda: Verification(good=True),
        method="bounded",
        depth=24,
    ),
    *(claim for name, config in _VARIANTS.items() for claim in _variant_claims(name, config)),
)
