"""The record path: ranks, alignment and escapes turn beats with a group exponent into records."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.networks import popcount
from cassandra_spec.rtl.common.wires import drive
from cassandra_spec.rtl.encode.align import Aligner, Distance
from cassandra_spec.rtl.encode.group_buffer import GroupBeat
from cassandra_spec.rtl.encode.rank_map import AT_ONCE
from cassandra_spec.rtl.encode.types import (
    COUNT_WIDTH,
    EncodeErrorLayout,
    EncoderConfig,
    RecordBeat,
)

_NOT_FINITE = 255
_LARGEST = 0x7F7F
_CONTROL = ("last", "abort", "scheme", "truncated", "mask")


def _middle(config: EncoderConfig) -> data.StructLayout:
    """The fields of a beat that reach the second stage."""
    step = max(4, (config.codebook - 1).bit_length())
    return data.StructLayout(
        {
            "step": data.ArrayLayout(step, config.pace),  # rank, or distance to the group
            "infinite": config.pace,  # not finite
            "kept": config.pace,
            "present": config.pace,
            "shared": 8,
            "begins": 1,
            "errors": EncodeErrorLayout,
            "replaced": range(config.pace + 1),
            "last": 1,
            "abort": 1,
            "scheme": 2,
            "truncated": 3,
            "mask": 1,
        }
    )


class RecordPath(wiring.Component):
    """Compute the exponent fields of all schemes, in two stages.

    Latency: two cycles. Throughput: one beat per cycle; in unary one more cycle for each further
    part of the codebook that is searched, until all selected lanes are found. Buffering: one beat
    per stage; both wait if the second is not taken. Every input is legal; error causes are
    collected until the segment's last record.

    Members
    -------
    again : In(array of lanes, 16)
        The values of the beat that was taken last, until another is taken.
    exponents : Out(array of lanes, 8), part : Out
        To the codebook: the exponents to search for, and the part to search.
    ranks : In(array of lanes), found : In(lanes)
        From the codebook, in the same cycle; ``ranks`` count where ``found`` is set.
    """

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config
        self.parts = -(-config.codebook // AT_ONCE) if config.has("unary") else 1
        super().__init__(
            {
                "beats": In(stream.Signature(GroupBeat(config))),
                "again": In(data.ArrayLayout(16, config.pace)),
                "exponents": Out(data.ArrayLayout(8, config.pace)),
                "part": Out(range(max(self.parts, 2))),
                "ranks": In(data.ArrayLayout(range(config.codebook), config.pace)),
                "found": In(config.pace),
                "records": Out(stream.Signature(RecordBeat(config))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        stage, stage_valid = Signal(_middle(config), reset_less=True), Signal()
        move, advance = Signal(), Signal()
        m.d.comb += advance.eq(~self.records.valid | self.records.ready)
        more = self._look_up(m, stage, move & self.beats.valid)
        m.d.comb += [
            move.eq(~stage_valid | advance),
            self.beats.ready.eq(move & ~more),
        ]
        with m.If(move):
            m.d.sync += stage_valid.eq(self.beats.valid & ~more)
        with m.If(advance):
            m.d.sync += self.records.valid.eq(stage_valid)
        self._finish(m, stage, advance & stage_valid)
        return m

    def _look_up(self, m: Module, stage: data.View, moves: Value) -> Signal:
        """First stage: saturation (mx), rank (unary), distance to the group's exponent.

        Returns 1 if the beat stays because another part of the codebook must be searched.
        """
        config = self.config
        beat, stored = self.beats.payload, self.beats.payload.stored
        mx = config.selects(stored.scheme, "mx")
        unary = config.selects(stored.scheme, "unary")
        infinite, kept = Signal(config.pace), Signal(config.pace)
        known, missing = Signal(config.pace), Signal(config.pace)  # found so far; still missing
        first, more = self.part == 0, Signal()
        following = Signal(stage.shape())
        for lane in range(config.pace):
            value = stored.values[lane]
            m.submodules[f"distance_{lane}"] = distance = Distance()
            saturated = infinite[lane] & mx
            m.d.comb += [
                infinite[lane].eq((value[7:15] == _NOT_FINITE) & stored.present[lane]),
                self.exponents[lane].eq(value[7:15]),
                distance.shared.eq(beat.shared),
                distance.exponent.eq(Cat(value[7] & ~saturated, value[8:15])),
            ]
            with m.If(moves & (first | self.found[lane])):
                step = Mux(unary, self.ranks[lane], distance.distance)
                m.d.sync += stage.step[lane].eq(step)
        drive(m, following, beat, "shared", "begins")
        m.d.comb += [
            known.eq(Mux(first, 0, stage.kept)),
            missing.eq(beat.chosen & ~self.found & ~known),
            more.eq(unary & missing.any() & (self.part != self.parts - 1)),
            kept.eq(Mux(unary, (beat.chosen & self.found) | known, beat.chosen)),
            following.infinite.eq(infinite),
            following.kept.eq(kept),
            following.present.eq(stored.present),
            following.replaced.eq(popcount(infinite & mx.replicate(config.pace))),
            following.errors.command.eq(stored.abort),
            following.errors.short.eq(stored.short),
            following.errors.long.eq(stored.long),
            following.errors.nonfinite.eq(mx & ~stored.saturate & infinite.any()),
            following.errors.miss.eq(unary & ~stored.mask & missing.any()),
        ]
        m.d.comb += [following[name].eq(stored[name]) for name in _CONTROL]
        part = Signal.like(self.part)
        m.d.comb += self.part.eq(part)
        names = [name for name in stage.shape().members if name != "step"]
        with m.If(moves):
            m.d.sync += [stage[name].eq(following[name]) for name in names]
            m.d.sync += part.eq(Mux(more, part + 1, 0))
        return more

    def _finish(self, m: Module, stage: data.View, move: Value) -> None:
        """Second stage: build the record. No scheme uses both rank and width."""
        config = self.config
        exact = config.selects(stage.scheme, "exact")
        unary = config.selects(stage.scheme, "unary")
        mx = config.selects(stage.scheme, "mx")
        lanes = config.pace
        record = Signal(RecordBeat(config), reset_less=True)
        steps = data.ArrayLayout(stage.step[0].shape(), lanes)
        step, lowest = Signal(steps, reset_less=True), Signal(lanes, reset_less=True)
        following = Signal(record.shape())
        for lane in range(lanes):
            m.submodules[f"aligner_{lane}"] = aligner = Aligner()
            kept = stage.kept[lane]
            value = self.again[lane]
            raw = Signal(16, name=f"raw_{lane}")
            largest = Cat(Const(_LARGEST, 15), value[15])
            m.d.comb += [
                raw.eq(Mux(stage.infinite[lane] & mx, largest, value)),
                aligner.magnitude.eq(raw[:15]),
                aligner.distance.eq(stage.step[lane]),
                aligner.saturated.eq(stage.infinite[lane] & exact),
                following.raw[lane].eq(raw),
                aligner.round.eq(mx),
                following.field[lane].eq(Mux(unary, raw[:7], aligner.field)),
                following.stored[lane].eq(stage.present[lane] & (~kept | (exact & aligner.escape))),
            ]
            width = Mux(kept, aligner.width, 0)
            with m.If(move):
                m.d.sync += [
                    step[lane].eq(Mux(unary, stage.step[lane], width)),
                    lowest[lane].eq(aligner.residue[0]),
                ]
        drive(m, following, stage, "kept", "present", "shared", "begins")
        m.d.comb += [
            following.count.eq(popcount(stage.kept)),
        ]
        m.d.comb += [following[name].eq(stage[name]) for name in _CONTROL]
        self._collect(m, stage, following, move)
        names = [
            name for name in record.shape().members if name not in ("rank", "residue", "width")
        ]
        with m.If(move):
            m.d.sync += [record[name].eq(following[name]) for name in names]
        m.d.comb += [self.records.payload[name].eq(record[name]) for name in names]
        self._unfold(m, step, lowest)

    def _unfold(self, m: Module, step: data.View, lowest: Value) -> None:
        """Return rank or width of each lane, and the residue: the value's bits below the width."""
        record = self.records.payload
        for lane in range(self.config.pace):
            width = step[lane]
            bits = [lowest[lane], *(record.raw[lane][bit] for bit in range(1, 7))]
            m.d.comb += [
                record.rank[lane].eq(step[lane]),
                record.width[lane].eq(width),
                record.residue[lane].eq(Cat(bit & (width > i) for i, bit in enumerate(bits))),
            ]

    def _collect(self, m: Module, stage: data.View, record: Value, move: Value) -> None:
        """Collect error causes and the count of replaced values of a segment, up to its last
        record.
        """
        errors, saturated = Signal(EncodeErrorLayout), Signal(COUNT_WIDTH)
        m.d.comb += [
            record.errors.eq(errors.as_value() | stage.errors.as_value()),
            record.saturated.eq(saturated + stage.replaced),
        ]
        with m.If(move):
            m.d.sync += [errors.eq(record.errors), saturated.eq(record.saturated)]
            with m.If(stage.last):
                m.d.sync += [errors.eq(0), saturated.eq(0)]
