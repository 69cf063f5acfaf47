"""The front end of the encoder: from vectors of values to records, one for each beat."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.wires import drive
from cassandra_spec.rtl.encode.group_buffer import GroupBuffer
from cassandra_spec.rtl.encode.rank_map import RankMap
from cassandra_spec.rtl.encode.record_path import RecordPath
from cassandra_spec.rtl.encode.types import (
    EncodeCommandLayout,
    EncoderConfig,
    RecordBeat,
    TensorWord,
)
from cassandra_spec.rtl.encode.vector_buffer import VectorBuffer


class EncoderFront(wiring.Component):
    """Chooses, ranks and aligns: commands, a codebook and values in, records out.

    A beat of the front end has ``pace`` values: the format's, or a piece of one. But for what a
    command may ask for, nothing in here knows the difference.

    Latency: a vector and a group, and about ten cycles; with top-k about two turns more for each
    digit (see :class:`cassandra_spec.rtl.encode.topk.RadixSelect`). Throughput: a beat in each
    cycle if all is kept; else a vector in as many turns as there are digits, 16 cycles for 64
    values in 16 lanes. Buffering: four vectors, two groups. Illegal input is named in ``errors`` of
    the segment's last record (docs/hardware/encoder.md).

    Members
    -------
    command, codebook, values : In(stream)
        Those of :class:`cassandra_spec.rtl.encoder.Encoder`.
    records : Out(stream of RecordBeat)
    busy : Out(1)
        A segment has been begun whose last record has not been taken.
    """

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config
        self.codebook_map = RankMap(lanes=config.pace, size=config.codebook)
        super().__init__(
            {
                "command": In(stream.Signature(EncodeCommandLayout)),
                "codebook": In(stream.Signature(self.codebook_map.load_layout)),
                "values": In(stream.Signature(TensorWord(config.pace))),
                "records": Out(stream.Signature(RecordBeat(config))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.vectors = vectors = VectorBuffer(self.config)
        m.submodules.groups = groups = GroupBuffer(self.config)
        m.submodules.codebook_map = codebook = self.codebook_map
        m.submodules.path = path = RecordPath(self.config)
        wiring.connect(m, wiring.flipped(self.command), vectors.command)
        wiring.connect(m, wiring.flipped(self.codebook), codebook.load)
        wiring.connect(m, wiring.flipped(self.values), vectors.values)
        wiring.connect(m, groups.beats, path.beats)
        m.d.comb += path.again.eq(groups.again)
        wiring.connect(m, path.records, wiring.flipped(self.records))
        drive(m, groups, vectors, "issued", "valid", "beat", "chosen")
        drive(m, codebook, path, "exponents", "part")
        drive(m, path, codebook, "ranks", "found")
        m.d.comb += [
            vectors.grant.eq(groups.grant),
        ]
        self._flight(m, vectors, codebook)
        return m

    def _flight(self, m: Module, vectors: VectorBuffer, codebook: RankMap) -> None:
        """Segments in flight; the codebook changes between them."""
        flight = Signal(8)  # more than the buffers have beats
        begun = self.command.valid & self.command.ready
        done = self.records.valid & self.records.ready & self.records.payload.last
        m.d.sync += flight.eq(flight + begun - done)
        m.d.comb += [
            self.busy.eq(flight != 0),
            codebook.enable.eq(~self.busy),
            vectors.enable.eq(codebook.idle),
        ]
