"""The verification path: joins low bits, residues and pruned values with the fields of a beat."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import (
    CommandLayout,
    DecoderConfig,
    ErrorLayout,
    SpeculationBeat,
    ValueBeat,
)
from cassandra_spec.rtl.common.superblock_reader import SuperblockReader
from cassandra_spec.rtl.common.wires import drive
from cassandra_spec.rtl.decode.full_rate import FullRatePipeline
from cassandra_spec.rtl.decode.half_rate import HalfRatePipeline
from cassandra_spec.rtl.decode.segment import (
    CAUSES,
    OutputRegister,
    SegmentControl,
    codebook_ports,
)


class VerificationPath(wiring.Component):
    """Decode target values from a beat's fields and the verification region; pass drafts through.

    Four parts: a superblock reader, a pipeline at half or full rate
    (:class:`~cassandra_spec.rtl.decode.half_rate.HalfRatePipeline`,
    :class:`~cassandra_spec.rtl.decode.full_rate.FullRatePipeline`), the output register, and the
    control of segments.

    Latency, throughput and buffering: those of the pipeline, plus one cycle and one beat for the
    output register. Illegal input ends the segment with a beat that has ``error`` and ``last`` set,
    pulses a bit of ``errors``, and drains the region and the remaining beats. The last beat waits
    until the region is drained, so a good last beat means a good segment.
    """

    causes = CAUSES

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        self.control = SegmentControl()
        pipeline = FullRatePipeline if config.target_rate == "full" else HalfRatePipeline
        self.pipeline = pipeline(config)
        self.reader = SuperblockReader(
            lanes=config.lanes,
            take_max=self.pipeline.take_max,
            superblock=config.superblock,
            word_rows=config.verification_rows,
            depth=pipeline.depth,
            eager=pipeline.eager,
        )
        super().__init__(
            {
                "command": In(stream.Signature(CommandLayout)),
                "beats": In(stream.Signature(SpeculationBeat(config))),
                "words": In(stream.Signature(self.reader.word_layout)),
                "values": Out(stream.Signature(ValueBeat(config.lanes))),
                "errors": Out(ErrorLayout(*self.causes)),
                "busy": Out(1),
                **codebook_ports(config),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.reader = reader = self.reader
        m.submodules.pipeline = pipeline = self.pipeline
        m.submodules.output = output = OutputRegister(self.config)
        m.submodules.control = control = self.control
        wiring.connect(m, wiring.flipped(self.words), reader.words)
        wiring.connect(m, wiring.flipped(self.beats), pipeline.beats)
        wiring.connect(m, wiring.flipped(self.command), control.command)
        wiring.connect(m, output.values, wiring.flipped(self.values))
        leaves = self.values.valid & self.values.ready & self.values.payload.last
        drive(m, control, pipeline, "taken", "taken_last", "faults")
        drive(m, control, reader, "drained", "overlong")
        drive(m, pipeline, reader, "rows", "level")
        drive(m, pipeline, control, "active", "state", "begin")
        drive(m, output, pipeline, "beat", "move")
        drive(m, output, control, "error_beat", "active", "closed", "too_long")
        m.d.comb += [
            output.begin.eq(control.begin),
            self.errors.eq(control.errors),
            self.busy.eq(control.state.running),
            control.last_moves.eq(pipeline.move & pipeline.beat.last),
            control.last_leaves.eq(leaves),
            control.room.eq(output.room),
            reader.take.eq(pipeline.take),
            reader.finish.eq(control.finish),
            pipeline.ended.eq(reader.ended | ~control.state.region),
            pipeline.room.eq(output.room),
            pipeline.empty.eq(~output.full),
            output.void.eq(pipeline.faults.short),
        ]
        if pipeline.eager:
            m.d.comb += reader.sure.eq(pipeline.sure)
        if self.config.coded:
            wiring.connect(m, wiring.flipped(self.codebook), pipeline.codebook)
            m.d.comb += self.codebook_idle.eq(pipeline.codebook_idle)
        return m
