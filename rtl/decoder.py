"""The decoder (paper, Figure 8a): turns commands, a codebook and two regions into BF16 values."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.golden.format import ERROR_CAUSES, Format, Scheme
from cassandra_spec.rtl.common.command import CommandLayout, DecoderConfig, ErrorLayout, ValueBeat
from cassandra_spec.rtl.decode.codebook import ENTRY
from cassandra_spec.rtl.decode.speculation import SpeculationPath
from cassandra_spec.rtl.decode.verification import VerificationPath

PrunedEntry = data.StructLayout({"exponent": 8, "last": 1, "pruned": 1, "empty": 1})
"""A codebook word for decoders with coded pruned exponents.

``pruned`` selects the codebook that the packet replaces; a word with ``empty`` set has no exponent.
"""


class Decoder(wiring.Component):
    """Decoder for a fixed set of schemes, in draft and target mode.

    The command word of each segment sets mode, scheme, truncation, fill and group.

    Latency: about ten cycles from the first word of a segment to its first beat. Throughput:
    ``lanes`` values per cycle in draft mode; in target mode half of that, or as many with
    ``target_rate`` full. This holds while the bus keeps up (eight rows per cycle and region;
    sixteen of verification data at full rate) and the exponents do not starve; about five cycles
    pass between segments. Buffering: see the two paths.

    Illegal input sets a bit of ``error`` (sticky, until ``clear_error``) and ends the packet of
    values with ``error`` set and no lane present. The decoder drains the rest of the segment's
    packets and decodes the next segment as usual. ``docs/format.md``, section 7, lists the causes.

    Members
    -------
    command : In(stream of CommandLayout)
        One per segment, after the codebook that it needs.
    codebook : In(stream of {exponent: 8, last: 1}; with ``config.coded`` of PrunedEntry)
        A packet replaces the codebook, or that of pruned values; taken between segments, before a
        waiting command. A decoder without unary takes and ignores all words.
    speculation, verification : In(stream of {data: 8 * lanes, last: 1})
        One packet per region; no verification packet in draft mode, or if the command's
        ``verification`` is 0. At full rate ``data`` of verification is twice as wide.
    values : Out(stream of ValueBeat)
    error : Out(ErrorLayout()), clear_error : In(1), busy : Out(1)
    """

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        self.speculation_path = SpeculationPath(config)
        self.verification_path = VerificationPath(config)
        super().__init__(
            {
                "command": In(stream.Signature(CommandLayout)),
                "codebook": In(stream.Signature(PrunedEntry if config.coded else ENTRY)),
                "speculation": In(stream.Signature(self.speculation_path.reader.word_layout)),
                "verification": In(stream.Signature(self.verification_path.reader.word_layout)),
                "values": Out(stream.Signature(ValueBeat(config.lanes))),
                "error": Out(ErrorLayout()),
                "clear_error": In(1),
                "busy": Out(1),
            }
        )

    @classmethod
    def of(cls, fmt: Format, *, schemes: tuple[Scheme, ...] | None = None) -> Decoder:
        """Return the decoder that reads ``fmt``; see :meth:`DecoderConfig.of`."""
        return cls(DecoderConfig.of(fmt, schemes=schemes))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.speculation = front = self.speculation_path
        m.submodules.verification = back = self.verification_path
        pending = Signal()  # a command waits for the verification path
        codebook_idle = self._codebooks(m, pending)
        wiring.connect(m, wiring.flipped(self.speculation), front.words)
        wiring.connect(m, wiring.flipped(self.verification), back.words)
        wiring.connect(m, front.beats, back.beats)
        wiring.connect(m, back.values, wiring.flipped(self.values))
        self._fork(m, pending, codebook_idle)
        m.d.comb += self.busy.eq(front.busy | back.busy | pending)
        for cause in ERROR_CAUSES:
            sticky = self.error[cause]
            sources = [path.errors for path in (front, back) if cause in path.causes]
            seen = Cat(errors[cause] for errors in sources).any()
            with m.If(seen):
                m.d.sync += sticky.eq(1)
            with m.Elif(self.clear_error):
                m.d.sync += sticky.eq(0)
        return m

    def _codebooks(self, m: Module, pending: Signal) -> Value:
        """Route each codebook to its path; return 1 if no pruned codebook is loading or waiting."""
        front, back = self.speculation_path, self.verification_path
        if not self.config.coded:
            wiring.connect(m, wiring.flipped(self.codebook), front.codebook)
            return Const(1, 1)
        word = self.codebook.payload
        turn = word.pruned & ~pending  # an earlier command must be taken first
        m.d.comb += [
            front.codebook.valid.eq(self.codebook.valid & ~word.pruned),
            back.codebook.valid.eq(self.codebook.valid & turn),
            self.codebook.ready.eq(
                Mux(word.pruned, turn & back.codebook.ready, front.codebook.ready)
            ),
            front.codebook.payload.exponent.eq(word.exponent),
            front.codebook.payload.last.eq(word.last),
            back.codebook.payload.exponent.eq(word.exponent),
            back.codebook.payload.last.eq(word.last),
            back.codebook.payload.empty.eq(word.empty),
        ]
        return back.codebook_idle & ~(self.codebook.valid & word.pruned)

    def _fork(self, m: Module, pending: Signal, codebook_idle: Value) -> None:
        """Send a command to both paths; the verification path may take it later."""
        front, back = self.speculation_path, self.verification_path
        turn = ~pending & codebook_idle
        m.d.comb += [
            front.command.payload.eq(self.command.payload),
            front.command.valid.eq(self.command.valid & turn),
            self.command.ready.eq(front.command.ready & turn),
            back.command.payload.eq(front.active),
            back.command.valid.eq(pending),
        ]
        with m.If(back.command.valid & back.command.ready):
            m.d.sync += pending.eq(0)
        with m.If(self.command.valid & self.command.ready):
            m.d.sync += pending.eq(1)
