"""The pipeline of the speculation path: moves fields to their lanes, turns ranks into exponents."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import (
    CommandLayout,
    DecoderConfig,
    ErrorLayout,
    SpeculationBeat,
)
from cassandra_spec.rtl.common.wires import drive
from cassandra_spec.rtl.decode.bitmap_expand import BlockBuffer, LanePlaces
from cassandra_spec.rtl.decode.codebook import ENTRY, Codebook
from cassandra_spec.rtl.decode.exponent_path import ExponentPath

_ALWAYS = ("kept", "begins")
_CARRIED = (*_ALWAYS, "shared")


def SlotLayout(config: DecoderConfig) -> data.StructLayout:  # noqa: N802 (a layout)
    """The parts of a slot that the schedule gives the pipeline, each with a valid bit."""
    lanes = config.lanes
    return data.StructLayout(
        {
            "window": config.window * lanes,
            "window_valid": 1,
            "block": data.ArrayLayout(lanes, config.high_planes),
            "block_valid": 1,
            "kept": lanes,
            "begins": 1,
            "shared": 8,
            "last": 1,
            "beat_valid": 1,
        }
    )


def _stage_layout(config: DecoderConfig) -> data.StructLayout:
    beat = SpeculationBeat(config)
    return data.StructLayout({name: beat[name].shape for name in (*_CARRIED, "last", "abort")})


def _beat_layout(config: DecoderConfig) -> data.StructLayout:
    fields = {name: field.shape for name, field in _stage_layout(config)}
    beat = SpeculationBeat(config)
    ranks = data.ArrayLayout(range(config.codebook), config.lanes)
    found = {name: beat[name].shape for name in ("high", "choices")}
    return data.StructLayout({**fields, **found, "ranks": ranks})


class SpeculationPipeline(wiring.Component):
    """Two stages from the parts of a slot to a beat.

    Stage 1 finds fields and ranks of the beat, stage 2 exponents. Invariant: once an abort is in
    stage 2 (``kill``), the pipeline holds only that beat, and it is the last.

    Latency: two cycles. Throughput: one beat per cycle. Buffering: a window, the rank queue, two
    blocks of fields and two beats. Illegal input makes the beat the last of its segment, with
    ``abort``, and pulses a bit of ``errors``.

    Members
    -------
    active : In(CommandLayout), start : In(1)
        The current segment; ``start`` comes in the cycle before its first.
    slot : In(SlotLayout), enable : Out(1)
        The slot's beat is taken if ``enable`` is set, its windows and blocks always.
    abort : In(1)
        A last beat with ``abort`` replaces the others.
    closed : In(1), failed : In(1)
        ``closed``: the region is drained, so a last beat may leave. ``failed``: the segment is
        illegal.
    codebook : In(stream of ENTRY), codebook_idle : Out(1), idle : In(1)
        A codebook is loaded only while the path is ``idle``. Without scheme unary, its words are
        taken at any time and ignored.
    kill : Out(1), empty : Out(1)
        ``kill``: a fault of this beat ends the segment. ``empty``: the pipeline holds no beat.
    """

    causes = ("code", "rank", "group")

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        self.sign_high = BlockBuffer(
            lanes=config.lanes, planes=config.high_planes, narrow=config.narrow_planes
        )
        self.exponents: ExponentPath | None = None
        places = 2 * config.lanes
        if config.has("unary"):
            self.exponents = ExponentPath(
                lanes=config.lanes, window=config.window, limit=config.codebook
            )
            places = self.exponents.entries  # at least as many as the block buffer has
        self.places = LanePlaces(lanes=config.lanes, places=places)
        super().__init__(
            {
                "active": In(CommandLayout),
                **dict.fromkeys(("start", "abort", "closed", "failed", "idle"), In(1)),
                "slot": In(SlotLayout(config)),
                **dict.fromkeys(("enable", "codebook_idle", "kill", "empty"), Out(1)),
                "codebook": In(stream.Signature(ENTRY)),
                "beats": Out(stream.Signature(SpeculationBeat(config))),
                "errors": Out(ErrorLayout(*self.causes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, slot = self.config, self.slot
        m.submodules.places = places = self.places
        m.submodules.sign_high = high = self.sign_high
        first = Signal(_stage_layout(config), name="stage_1", reset_less=True)
        second = Signal(_beat_layout(config), name="stage_2", reset_less=True)
        first_valid, second_valid, room = Signal(), Signal(), Signal()
        abort_held = Signal()  # an abort waits for stage 1
        move = first_valid & room
        wide = config.wide(self.active)
        ranks, overflow = self._ranks(m, places.choices)
        m.d.comb += [
            self.enable.eq(~first_valid | room),
            self.empty.eq(~(first_valid | second_valid | abort_held)),
            self.errors.code.eq(move & overflow & ~first.abort & ~self.kill),
            high.block.eq(slot.block),
            high.load.eq(slot.block_valid),
            *([high.wide.eq(wide)] if high.narrow < high.planes else []),
            high.clear.eq(self.start),
            *(high.choices[name].eq(places.choices[name]) for name in high.choices.shape().members),
            places.lane_mask.eq(first.kept),
            places.advance.eq(move),
            places.clear.eq(self.start),
        ]
        aborts = self.abort | abort_held
        with m.If(self.enable):
            m.d.sync += [
                first_valid.eq(slot.beat_valid | aborts),
                abort_held.eq(0),
                *(first[name].eq(slot[name]) for name in _ALWAYS),
                first.last.eq(slot.last | aborts),
                first.abort.eq(aborts),
            ]
        with m.Elif(self.abort):
            m.d.sync += abort_held.eq(1)
        with m.If(room):
            m.d.sync += [
                second_valid.eq(first_valid),
                *(second[name].eq(first[name]) for name in _ALWAYS),
                second.last.eq(first.last),
                second.abort.eq(first.abort | overflow),
            ]
        unary = config.selects(self.active.scheme, "unary")
        # A lane without a kept value keeps its rank, so the codebook behind it does not switch.
        for lane, kept in enumerate(first.kept):
            with m.If(room & unary & kept):
                m.d.sync += second.ranks[lane].eq(ranks[lane])
        with m.If(self.enable & ~unary):
            m.d.sync += first.shared.eq(slot.shared)
        with m.If(room & ~unary):
            m.d.sync += second.shared.eq(first.shared)
        narrow = config.narrow_planes
        for held, found in zip(second.high, high.fields, strict=True):
            with m.If(room):
                m.d.sync += held[:narrow].eq(found[:narrow])
            with m.If(room & wide):
                m.d.sync += held[narrow:].eq(found[narrow:])
        with m.If(room & self.active.target):
            m.d.sync += second.choices.eq(high.choices)
        # Not ``beats.valid``: a beat is found bad late, and that kills the beats behind it.
        m.d.comb += room.eq(~second_valid | (self.beats.ready & (~second.last | self.closed)))
        self._finish(m, second, second_valid)
        with m.If(self.kill):
            stays = ~(self.beats.valid & self.beats.ready)
            m.d.sync += [first_valid.eq(0), second_valid.eq(stays), abort_held.eq(0)]
            m.d.sync += [second.last.eq(1), second.abort.eq(1)]
        return m

    def _ranks(self, m: Module, choices: data.View) -> tuple[Sequence[Value], Value]:
        """Return the stage-1 beat's ranks, and whether its stream had an illegal code (unary)."""
        path = self.exponents
        if path is None:
            return [Const(0)] * self.config.lanes, Const(0, 1)
        m.submodules.exponents = path
        drive(m, path, self.slot, "window", "window_valid")
        m.d.comb += [
            path.choices.eq(choices),
            path.clear.eq(self.start),
        ]
        unary = self.config.selects(self.active.scheme, "unary")
        return list(path.ranks), path.overflow & unary

    def _finish(self, m: Module, beat: data.View, valid: Value) -> None:
        """Offer the beat: look ranks up, report the beat's errors."""
        unary, leaving = self.config.selects(self.active.scheme, "unary"), self.beats.payload
        mx = self.config.selects(self.active.scheme, "mx")
        wide = self.config.wide(self.active)
        exponents, missing = self._codebook(m, beat.ranks)
        bad_rank, bad_group, failed, last = Signal(), Signal(), Signal(), Signal()
        fresh = valid & ~beat.abort
        m.d.comb += [
            bad_rank.eq(unary & (missing & beat.kept).any()),
            bad_group.eq(~unary & ((beat.shared == 0) | ((beat.shared == 255) & mx))),
            self.errors.rank.eq(fresh & bad_rank),
            self.errors.group.eq(fresh & bad_group),
            failed.eq(beat.abort | bad_rank | bad_group),
            last.eq(beat.last | failed),
            self.kill.eq((fresh & failed) | (valid & beat.abort & ~beat.last)),
            self.beats.valid.eq(valid & (~last | self.closed)),
            *(leaving[name].eq(beat[name]) for name in _CARRIED),
            *(
                leaving.high[lane].eq(Mux(wide, held, held[: self.config.narrow_planes]))
                for lane, held in enumerate(beat.high)
            ),
            leaving.choices.eq(beat.choices),
            leaving.exponent.eq(exponents),
            leaving.last.eq(last),
            leaving.abort.eq(failed | (last & self.failed)),
        ]

    def _codebook(self, m: Module, ranks: Value) -> tuple[Value, Value]:
        """Return the exponents of ranks, and which ranks have none. Without unary, ignore
        codebooks.
        """
        if not self.config.has("unary"):
            m.d.comb += [self.codebook.ready.eq(1), self.codebook_idle.eq(1)]
            return Const(0), Const(0)
        m.submodules.codebook = table = Codebook(lanes=self.config.lanes, size=self.config.codebook)
        wiring.connect(m, wiring.flipped(self.codebook), table.load)
        m.d.comb += [
            table.enable.eq(self.idle),
            table.ranks.eq(ranks),
            self.codebook_idle.eq(table.idle),
        ]
        return Value.cast(table.exponents), table.missing
