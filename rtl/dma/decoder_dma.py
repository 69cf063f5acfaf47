"""The exported top of decoders with registers, a read master and an interrupt."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out

from cassandra_spec.golden.format import ERROR_CAUSES
from cassandra_spec.rtl.common.command import VALUE
from cassandra_spec.rtl.common.guard import check_of
from cassandra_spec.rtl.common.networks import popcount
from cassandra_spec.rtl.common.wires import axi_channel, values_out
from cassandra_spec.rtl.dma.axi import connect_reads, read_ports
from cassandra_spec.rtl.dma.channel import Channel
from cassandra_spec.rtl.dma.config import REGIONS, DmaConfig
from cassandra_spec.rtl.dma.descriptors import Dispatcher
from cassandra_spec.rtl.dma.drain import PacketOut
from cassandra_spec.rtl.dma.merge import InOrder
from cassandra_spec.rtl.dma.peripheral import Activity, Peripheral, RegionCheck
from cassandra_spec.rtl.dma.read_master import ReadMaster


class CassandraDma(Peripheral):
    """Decoders that fetch their segments: AXI4-Lite registers, AXI4 reads, AXI4-Stream output.

    Software writes a segment's command word and the address and length of its regions, and starts
    it (registers.md); descriptors queue up. The read master reads the regions in bursts ahead of
    the decoder. The values leave as packets in the order of the descriptors, whatever the number of
    decoders.

    Latency: about 25 cycles plus that of the memory, from START to the first beat. Throughput: that
    of the decoders together, while the memory keeps up; the DMA adds no pause between segments.
    Buffering: see :class:`DmaConfig`.

    Illegal input: a segment that breaks the format ends as it does in the decoder. A read that is
    answered with an error flags only its own segment (the last beat has ``tuser`` set and ``tkeep``
    zero). Illegal descriptors are not queued. ERROR has the causes.

    Members
    -------
    m_axi_ar*, m_axi_r* : AXI4, the read channels
    m_axis_values_* : AXI4-Stream, as in the decoder; a packet that a soft reset cuts ends flagged
    all others
        See :class:`Peripheral`.
    """

    top = "decode"
    commands = ("command",)

    def __init__(self, config: DmaConfig | None = None) -> None:
        self.config = config = config or DmaConfig()
        self.readers = config.decoders
        width = VALUE * config.beat_values
        super().__init__(
            config,
            {
                **read_ports(config),
                **axi_channel("m_axis_values_t", Out, data=width, keep=width // 8, last=1, user=1),
            },
        )

    def _queue(self) -> Dispatcher:
        return Dispatcher(self.config)

    def _engine(self, m: Module, engine: Module, queue: Dispatcher) -> Activity:
        config = self.config
        m.submodules.reads = reads = ReadMaster(config)
        m.submodules.out = out = PacketOut(config.beat_values)
        engine.submodules.merge = merge = InOrder(config)
        channels = [Channel(config) for _ in range(config.decoders)]
        connect_reads(m, self, reads)
        for place, channel in enumerate(channels):
            engine.submodules[f"channel_{place}"] = channel
            wiring.connect(m, queue.orders[place], channel.orders)
            wiring.connect(m, channel.values, merge.beats[place])
            m.d.comb += queue.tags[place].eq(channel.tag)
            self._read_codebook(m, channel, place)
            for which, name in enumerate(REGIONS):
                region = len(REGIONS) * place + which
                wiring.connect(m, queue.regions[region], reads.regions[region])
                wiring.connect(m, getattr(reads, name)[place], getattr(channel, name))
                m.d.comb += [
                    channel.fault[which].eq(reads.fault[region].tag),
                    channel.fault_valid[which].eq(reads.fault_valid[region]),
                ]
        wiring.connect(m, merge.values, out.beats)
        m.d.comb += out.cut.eq(reads.clear)
        values_out(m, self, out.values)
        return self._activity(engine, channels, reads, out)

    def _activity(
        self, m: Module, channels: Sequence[Channel], reads: ReadMaster, out: PacketOut
    ) -> Activity:
        values, beat = out.values, out.values.payload
        flying, done, moved = Signal(16), Signal(), Signal()
        begun = Cat(channel.orders.valid & channel.orders.ready for channel in channels).any()
        m.d.comb += [
            moved.eq(values.valid & values.ready & out.counts),
            done.eq(moved & beat.last),
        ]
        m.d.sync += flying.eq(flying + begun - done)
        return Activity(
            flying=flying,
            pending=reads.pending,
            done=done,
            flagged=beat.error,
            causes={
                cause: Cat(channel.errors[cause] for channel in channels).any()
                for cause in ERROR_CAUSES
            },
            faults=[reads.fault[region] for region in range(self.config.regions)],
            fault_valid=Cat(reads.fault_valid[region] for region in range(self.config.regions)),
            wrong=reads.wrong,
            steps={
                "values": Mux(moved, popcount(beat.present), 0),
                "words": reads.reading,
                "stalls": values.valid & ~values.ready,
                "idle": self.busy & ~values.valid,
            },
            master=reads,
            discards=Const(0, 1),
        )

    def _describe(self, m: Module, descriptor: data.View, checks: Sequence[RegionCheck]) -> Value:
        low, command = self.config.word_bits, descriptor.order.command
        second = command.target & command.verification
        m.d.comb += descriptor.second.eq(second)
        for which, check in enumerate(checks):
            address, words = descriptor.addresses[which], descriptor.words[which]
            m.d.comb += [
                address.eq(check.base[low:]),
                words.eq(check.length[low:]),
                descriptor.checks[which].eq(check_of(address, words, second if which else 0)),
            ]
        fits = [check.legal & (check.length != 0) for check in checks]
        return fits[0] & (fits[1] | ~second)

    def _built(self) -> dict[str, int]:
        decoder = self.config.decoder
        return {
            "decoder_decoders": self.config.decoders,
            "formats_lead": decoder.lead,
            "formats_coded": decoder.coded,
        }
