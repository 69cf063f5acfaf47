"""The front end of the encoder: turns vectors of values into records, one per beat."""

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
    """Select, rank and align values: takes commands, a codebook and values, gives records.

    A beat of the front end has ``pace`` values: the format's beat or a piece of it. Only the checks
    of commands distinguish the two.

    Latency: a vector and a group, and about ten cycles; with top-k about two more turns per digit
    (see :class:`cassandra_spec.rtl.encode.topk.RadixSelect`). Throughput: one beat per cycle if
    everything is kept; otherwise a vector takes as many turns as there are digits, 16 cycles for 64
    values in 16 lanes. Buffering: four vectors, two groups. Illegal input sets a bit of ``errors``
    in the segment's last record (docs/hardware/encoder.md).

    Members
    -------
    command, codebook, values : In(stream)
        Those of :class:`cassandra_spec.rtl.encoder.Encoder`.
    records : Out(stream of RecordBeat)
    busy : Out(1)
        A segment has begun and its last record has not been taken.
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
        """Count the segments in flight; allow a codebook change between them."""
        flight = Signal(8)  # counts more segments than the buffers have beats
        begun = self.command.valid & self.command.ready
        done = self.records.valid & self.records.ready & self.records.payload.last
        m.d.sync += flight.eq(flight + begun - done)
        m.d.comb += [
            self.busy.eq(flight != 0),
            codebook.enable.eq(~self.busy),
            vectors.enable.eq(codebook.idle),
        ]
