"""The speculation path: from the speculation region to the kept fields of each beat."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.rtl.common.command import (
    CommandLayout,
    DecoderConfig,
    ErrorLayout,
    SpeculationBeat,
)
from cassandra_spec.rtl.common.superblock_reader import BUS_ROWS, SuperblockReader
from cassandra_spec.rtl.common.wires import drive
from cassandra_spec.rtl.decode.codebook import ENTRY
from cassandra_spec.rtl.decode.speculation_pipeline import SlotLayout, SpeculationPipeline
from cassandra_spec.rtl.decode.speculation_schedule import SpeculationSchedule


class SpeculationControl(wiring.Component):
    """The state machine of a segment of the speculation region.

    =========== =================================================================================
    state       what happens; what ends it
    =========== =================================================================================
    idle        A command is taken: it starts the schedule, or it is illegal (``abort``).
    scheduling  Slots take rows, up to the last one, too few rows, or a beat that is given up.
    finishing   One cycle: ``finish`` tells the reader that no more rows are taken.
    draining    The reader discards the rest of the region; then idle, when it is ``drained``.
    =========== =================================================================================

    Invariant: a command is taken only when no beat of the segment before it is in the pipeline, and
    no codebook is being loaded or waits. Latency: none. Throughput: four cycles between segments.

    Members
    -------
    command : In(stream of CommandLayout), active : Out(CommandLayout)
        The next segment, and the one in hand.
    start : Out(1), stop : Out(1), scheduling : In(1), short : In(1)
        Ports of the schedule.
    finish : Out(1), drained, overlong : In(1)
        Ports of the superblock reader.
    abort : Out(1), kill : In(1), empty : In(1), codebook_idle : In(1)
        Ports of the pipeline.
    closed : Out(1), failed : Out(1)
        The region of the latest segment is drained; the segment is illegal, for any of four
        causes: a bad command, too few rows, a beat that was given up, too many rows.
    """

    causes = ("short", "long", "command")

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        inputs = ("scheduling", "short", "drained", "overlong", "kill", "empty", "codebook_idle")
        outputs = ("start", "stop", "finish", "abort", "closed", "failed", "idle")
        super().__init__(
            {
                "command": In(stream.Signature(CommandLayout)),
                "active": Out(CommandLayout),
                **dict.fromkeys(inputs, In(1)),
                **dict.fromkeys(outputs, Out(1)),
                "errors": Out(ErrorLayout(*self.causes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        idle, finished = Signal(init=1), Signal()
        bad, short = Signal(), Signal()
        held = Signal(CommandLayout, reset_less=True)
        m.d.comb += [
            self.active.eq(held),
            bad.eq(self._bad_command(self.command.payload)),
            short.eq(self.short & ~self.kill),
            self.command.ready.eq(idle & self.empty & self.codebook_idle),
            self.idle.eq(idle & self.empty),
            self.stop.eq(short | self.kill),
            self.finish.eq(~idle & ~self.scheduling & ~finished),
            self.abort.eq(short),
            self.errors.short.eq(short),
            self.errors.long.eq(self.drained & self.overlong & ~self.failed),
        ]
        with m.If(self.command.valid & self.command.ready):
            m.d.comb += [self.start.eq(~bad), self.errors.command.eq(bad)]
            m.d.sync += [
                held.eq(self.command.payload),
                *(idle.eq(0), self.closed.eq(0), self.failed.eq(bad)),
            ]
            with m.If(bad):
                m.d.comb += self.abort.eq(1)
        with m.If(self.stop):
            m.d.sync += self.failed.eq(1)
        with m.If(self.finish):
            m.d.sync += finished.eq(1)
        with m.If(self.drained):
            m.d.sync += [
                *(idle.eq(1), self.closed.eq(1), finished.eq(0)),
                self.failed.eq(self.failed | self.overlong),
            ]
        return m

    def _bad_command(self, command: data.View) -> Value:
        """Return 1 if a command's settings are not built in, or the format forbids them."""
        config = self.config
        scheme_ok = command.scheme.matches(*(SCHEMES.index(name) for name in config.schemes))
        low = (config.lanes - 1).bit_length()
        group_ok = (command.log2_group >= low) & (command.log2_group <= 8)
        unary = config.selects(command.scheme, "unary")
        least, most = config.truncated
        coded_ok = unary if config.coded else Const(0, 1)
        bad_truncated = ~command.truncated.matches(*range(least, most + 1))
        return ~scheme_ok | (~unary & ~group_ok) | (command.coded & ~coded_ok) | bad_truncated


class SpeculationPath(wiring.Component):
    """Read the draft's data, up to fields in their lanes (paper, Figure 8, decoder).

    Four parts: a superblock reader, a schedule, a pipeline and the control of segments.

    Latency: three cycles from the rows of a beat to the beat. Throughput: one beat per cycle while
    rows are present and the exponents do not starve; four cycles between segments. Buffering: three
    words of the region, and that of the pipeline. A command is taken when the previous segment is
    done.

    Illegal input ends the segment with a beat that has ``abort`` and ``last`` set, pulses a bit of
    ``errors``, and drains the region. ``last`` beats wait until the region is drained. Without
    unary there is no codebook, and its words are taken at any time and ignored. ``active`` is the
    command that was taken last.
    """

    causes = ("short", "long", "code", "rank", "group", "command")

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        self.schedule = SpeculationSchedule(config)
        self.pipeline = SpeculationPipeline(config)
        self.reader = SuperblockReader(
            lanes=config.lanes,
            take_max=self.schedule.take_max,
            superblock=config.superblock,
            rests=self.schedule.take_max > BUS_ROWS >= self.schedule.take_narrow,
        )
        super().__init__(
            {
                "command": In(stream.Signature(CommandLayout)),
                "active": Out(CommandLayout),
                "codebook": In(stream.Signature(ENTRY)),
                "words": In(stream.Signature(self.reader.word_layout)),
                "beats": Out(stream.Signature(SpeculationBeat(config))),
                "errors": Out(ErrorLayout(*self.causes)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.schedule = schedule = self.schedule
        m.submodules.pipeline = pipeline = self.pipeline
        m.submodules.reader = reader = self.reader
        m.submodules.control = control = SpeculationControl(self.config)
        wiring.connect(m, wiring.flipped(self.words), reader.words)
        wiring.connect(m, wiring.flipped(self.command), control.command)
        wiring.connect(m, wiring.flipped(self.codebook), pipeline.codebook)
        wiring.connect(m, pipeline.beats, wiring.flipped(self.beats))
        for part in (control, pipeline):
            m.d.comb += [self.errors[cause].eq(part.errors[cause]) for cause in part.causes]
        if reader.rests:
            m.d.comb += reader.wide.eq(self.config.wide(control.active))
        drive(m, control, reader, "drained", "overlong")
        drive(m, control, pipeline, "kill", "empty", "codebook_idle")
        drive(m, schedule, control, "start", "stop")
        drive(m, schedule, reader, "rows", "level", "ended")
        drive(m, pipeline.slot, schedule, *SlotLayout(self.config).members)
        drive(m, pipeline, control, "active", "start", "abort", "closed", "failed", "idle")
        m.d.comb += [
            self.busy.eq(~control.idle),
            self.active.eq(control.active),
            control.scheduling.eq(schedule.running),
            control.short.eq(schedule.short),
            reader.take.eq(schedule.take),
            reader.finish.eq(control.finish),
            schedule.next.eq(self.command.payload),
            schedule.command.eq(control.active),
            schedule.enable.eq(pipeline.enable),
        ]
        return m
