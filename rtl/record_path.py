"""From beats with their group's exponent to records: ranks, alignment, and what is stored whole."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.align import Aligner, Distance
from rtl.encoder_types import COUNT_WIDTH, EncodeErrorLayout, EncoderConfig, RecordBeat
from rtl.group_buffer import GroupBeat
from rtl.networks import popcount

__all__ = ["RecordPath"]

_NOT_FINITE = 255
_LARGEST = 0x7F7F
_CONTROL = ("last", "abort", "scheme", "truncated", "mask")


class RecordPath(wiring.Component):
    """The exponent paths of all schemes, in two stages.

    Latency: two cycles. Throughput: a beat in each cycle. Buffering: a beat in each stage; both
    wait if the second is not taken. Every input is legal; causes of errors are collected until
    the segment's last record.

    Members
    -------
    beats : In(stream of GroupBeat)
    again : In(array of lanes, 16)
        The values of the beat that was taken last, as long as no other is.
    exponents : Out(array of lanes, 8), ranks : In(array of lanes), found : In(lanes)
        To and from the codebook, in the same cycle.
    records : Out(stream of RecordBeat)
    """

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config
        super().__init__(
            {
                "beats": In(stream.Signature(GroupBeat(config))),
                "again": In(data.ArrayLayout(16, config.lanes)),
                "exponents": Out(data.ArrayLayout(8, config.lanes)),
                "ranks": In(data.ArrayLayout(range(config.codebook), config.lanes)),
                "found": In(config.lanes),
                "records": Out(stream.Signature(RecordBeat(config))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        step = max(4, (config.codebook - 1).bit_length())
        middle = data.StructLayout(
            {
                "step": data.ArrayLayout(step, config.lanes),  # rank, or distance to the group
                "infinite": config.lanes,  # not finite
                "kept": config.lanes,
                "present": config.lanes,
                "shared": 8,
                "begins": 1,
                "errors": EncodeErrorLayout,
                "replaced": range(config.lanes + 1),
                "last": 1,
                "abort": 1,
                "scheme": 2,
                "truncated": 3,
                "mask": 1,
            }
        )
        self.stage = Signal(middle)
        self.stage_valid = Signal()
        self.move, self.advance = Signal(), Signal()
        m.d.comb += [
            self.advance.eq(~self.records.valid | self.records.ready),
            self.move.eq(~self.stage_valid | self.advance),
            self.beats.ready.eq(self.move),
        ]
        with m.If(self.move):
            m.d.sync += self.stage_valid.eq(self.beats.valid)
        with m.If(self.advance):
            m.d.sync += self.records.valid.eq(self.stage_valid)
        self._look_up(m)
        self._finish(m)
        return m

    def _look_up(self, m: Module) -> None:
        """First stage: saturation (mx), rank (unary), distance to the group's exponent."""
        config = self.config
        beat, stored = self.beats.payload, self.beats.payload.stored
        mx = config.selects(stored.scheme, "mx")
        unary = config.selects(stored.scheme, "unary")
        infinite, kept = Signal(config.lanes), Signal(config.lanes)
        following = Signal(self.stage.shape())
        for lane in range(config.lanes):
            value = stored.values[lane]
            m.submodules[f"distance_{lane}"] = distance = Distance()
            saturated = infinite[lane] & mx
            m.d.comb += [
                infinite[lane].eq((value[7:15] == _NOT_FINITE) & stored.present[lane]),
                self.exponents[lane].eq(value[7:15]),
                distance.shared.eq(beat.shared),
                distance.exponent.eq(Cat(value[7] & ~saturated, value[8:15])),
                following.step[lane].eq(Mux(unary, self.ranks[lane], distance.distance)),
            ]
        m.d.comb += [
            kept.eq(beat.chosen & (self.found | (~unary).replicate(config.lanes))),
            following.infinite.eq(infinite),
            following.kept.eq(kept),
            following.present.eq(stored.present),
            following.shared.eq(beat.shared),
            following.begins.eq(beat.begins),
            following.replaced.eq(popcount(infinite & mx.replicate(config.lanes))),
            following.errors.command.eq(stored.abort),
            following.errors.short.eq(stored.short),
            following.errors.long.eq(stored.long),
            following.errors.nonfinite.eq(mx & ~stored.saturate & infinite.any()),
            following.errors.miss.eq(unary & ~stored.mask & (beat.chosen & ~kept).any()),
        ]
        m.d.comb += [following[name].eq(stored[name]) for name in _CONTROL]
        with m.If(self.move & self.beats.valid):
            m.d.sync += self.stage.eq(following)

    def _finish(self, m: Module) -> None:
        """Second stage: the record."""
        config, stage = self.config, self.stage
        exact = config.selects(stage.scheme, "exact")
        unary = config.selects(stage.scheme, "unary")
        mx = config.selects(stage.scheme, "mx")
        record = Signal(RecordBeat(config))
        for lane in range(config.lanes):
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
                record.raw[lane].eq(raw),
                record.rank[lane].eq(stage.step[lane]),
                aligner.round.eq(mx),
                record.field[lane].eq(Mux(unary, raw[:7], aligner.field)),
                record.residue[lane].eq(Mux(kept & exact, aligner.residue, 0)),
                record.width[lane].eq(Mux(kept & exact, aligner.width, 0)),
                record.stored[lane].eq(stage.present[lane] & (~kept | (exact & aligner.escape))),
            ]
        m.d.comb += [
            record.kept.eq(stage.kept),
            record.present.eq(stage.present),
            record.count.eq(popcount(stage.kept)),
            record.shared.eq(stage.shared),
            record.begins.eq(stage.begins),
        ]
        m.d.comb += [record[name].eq(stage[name]) for name in _CONTROL]
        self._collect(m, record)
        with m.If(self.advance & self.stage_valid):
            m.d.sync += self.records.payload.eq(record)

    def _collect(self, m: Module, record: Value) -> None:
        """Causes and replaced values of the whole segment, up to the last record."""
        errors, saturated = Signal(EncodeErrorLayout), Signal(COUNT_WIDTH)
        m.d.comb += [
            record.errors.eq(errors.as_value() | self.stage.errors.as_value()),
            record.saturated.eq(saturated + self.stage.replaced),
        ]
        with m.If(self.advance & self.stage_valid):
            m.d.sync += [errors.eq(record.errors), saturated.eq(record.saturated)]
            with m.If(self.stage.last):
                m.d.sync += [errors.eq(0), saturated.eq(0)]
