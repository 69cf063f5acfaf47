"""The exported top of an encoder with registers, a write master and an interrupt."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, fifo, wiring
from amaranth.lib.wiring import In

from cassandra_spec.golden.format import ENCODE_ERROR_CAUSES
from cassandra_spec.rtl.common.command import VALUE
from cassandra_spec.rtl.common.guard import check_of
from cassandra_spec.rtl.common.networks import popcount
from cassandra_spec.rtl.common.wires import axi_channel, values_in
from cassandra_spec.rtl.dma.axi import connect_writes, write_ports
from cassandra_spec.rtl.dma.codebooks import CodebookLoader
from cassandra_spec.rtl.dma.config import REGIONS, StoreConfig
from cassandra_spec.rtl.dma.descriptors import EncoderDispatcher
from cassandra_spec.rtl.dma.drain import PacketIn
from cassandra_spec.rtl.dma.peripheral import Activity, Peripheral, RegionCheck
from cassandra_spec.rtl.dma.store import Store, entry_layout
from cassandra_spec.rtl.encode.types import EncodeCommandLayout
from cassandra_spec.rtl.encoder import Encoder


class CassandraEncoderDma(Peripheral):
    """An encoder that stores its segments: AXI4-Stream input, AXI4-Lite registers, AXI4 writes.

    Software writes a segment's command word and the address and room of its regions, and starts it
    (registers.md); descriptors queue up. The values of the segments come as packets, in the order
    of the descriptors. When both regions of a segment are in memory, its directory entry waits in a
    queue of results, and an interrupt is raised.

    Latency: that of the encoder and the memory. Throughput: that of the encoder, while the memory
    takes its output; the DMA adds no pause between segments. Buffering: see :class:`StoreConfig`.
    While results are not popped, the store stops and values wait.

    Illegal input: the result flags a segment whose command is refused, or whose packet has another
    length. A write that is answered with an error flags only its own segment, as does a region that
    does not fit its room; no byte is written beyond the room. Illegal descriptors are not queued.
    ERROR has the causes.

    Members
    -------
    s_axis_values_* : AXI4-Stream, as in the encoder; a packet that a soft reset cuts is discarded
    m_axi_aw*, m_axi_w*, m_axi_b* : AXI4, the write channels
    all others
        See :class:`Peripheral`.
    """

    top = "encode"
    commands = ("encode_command", "encode_vector")

    def __init__(self, config: StoreConfig | None = None) -> None:
        self.config = config = config or StoreConfig()
        width = VALUE * config.encoder.pace
        super().__init__(
            config,
            {
                **write_ports(config),
                **axi_channel("s_axis_values_t", In, data=width, keep=width // 8, last=1),
            },
        )

    def _queue(self) -> EncoderDispatcher:
        return EncoderDispatcher(self.config)

    def _engine(self, m: Module, engine: Module, queue: EncoderDispatcher) -> Activity:
        config = self.config
        engine.submodules.loader = loader = CodebookLoader(
            books=config.books, unary=config.encoder.has("unary"), command=EncodeCommandLayout
        )
        engine.submodules.encoder = encoder = Encoder(config.encoder)
        source = PacketIn(encoder.values.payload.shape())
        m.submodules.source = source
        m.submodules.store = store = Store(config)
        connect_writes(m, self, store)
        wiring.connect(m, queue.orders, loader.orders)
        wiring.connect(m, queue.places, store.places)
        wiring.connect(m, loader.command, encoder.command)
        wiring.connect(m, loader.codebook, encoder.codebook)
        wiring.connect(m, encoder.results, store.results)
        for place, name in enumerate(REGIONS):
            wiring.connect(m, getattr(encoder, name), store.words[place])
        self._read_codebook(m, loader, 0)
        wiring.connect(m, source.beats, encoder.values)
        fresh = self.registers.control_reset & self.registers.control_fresh
        m.d.comb += [source.stop.eq(~self.live), source.fresh.eq(fresh)]
        values_in(m, self, source.values)
        stored = self._results(engine, store)
        return self._activity(m, encoder, store, stored, source.discards)

    def _activity(
        self, m: Module, encoder: Encoder, store: Store, stored: Signal, discards: Value
    ) -> Activity:
        entry, came = store.entries.payload, Signal()
        m.d.comb += came.eq(encoder.values.valid & encoder.values.ready)
        return Activity(
            flying=store.flying,
            pending=Const(0, 1),  # an entry waits for every response
            done=stored,
            flagged=entry.room | entry.failed | Value.cast(entry.errors).any(),
            causes={
                "room": stored & entry.room,
                **{f"encode_{name}": stored & entry.errors[name] for name in ENCODE_ERROR_CAUSES},
            },
            faults=[store.fault[place] for place in range(len(REGIONS))],
            fault_valid=Cat(store.fault_valid),
            wrong=store.wrong,
            steps={
                "values": Mux(came, popcount(encoder.values.payload.keep), 0),
                "words": store.writing,
                "stalls": store.w.valid & ~store.w.ready,
                "idle": self.busy & ~self.s_axis_values_tvalid,
            },
            master=store,
            discards=discards,
        )

    def _describe(self, m: Module, descriptor: data.View, checks: Sequence[RegionCheck]) -> Value:
        low, follow = self.config.word_bits, self.registers.start_follow
        for place, check in enumerate(checks):
            to = descriptor.places[place]
            m.d.comb += [
                to.address.eq(check.base[low:]),
                to.room.eq(check.length[low:]),
                to.follow.eq(follow),
                to.check.eq(check_of(to.address, to.room, follow)),
            ]
        return follow | Cat(check.legal for check in checks).all()

    def _built(self) -> dict[str, int]:
        return {"encoder_vector": self.config.encoder.vector - 1}

    def _results(self, m: Module, store: Store) -> Signal:
        """Queue entries for software, which reads the oldest and pops it; return 1 when one
        arrives.
        """
        layout, registers, entries = entry_layout(), self.registers, store.entries
        m.submodules.results = queue = fifo.SyncFIFO(width=layout.size, depth=self.config.results)
        head = data.View(layout, queue.r_data)
        stored = Signal()  # a segment is in memory
        m.d.comb += [
            queue.w_data.eq(entries.payload),
            queue.w_en.eq(stored),
            entries.ready.eq(queue.w_rdy),
            stored.eq(entries.valid & entries.ready),
            queue.r_en.eq(registers.result_pop & queue.r_rdy),
            registers.result_valid.eq(queue.r_rdy),
            registers.result_waiting.eq(queue.level),
            registers.result_mask.eq(head.mask),
            registers.result_failed.eq(head.failed),
            registers.result_room.eq(head.room),
            registers.result_errors.eq(head.errors),
            registers.result_saturated_value.eq(head.saturated),
        ]
        for place, name in enumerate(REGIONS):
            m.d.comb += [
                getattr(registers, f"result_{name}_offset_value").eq(head.offsets[place]),
                getattr(registers, f"result_{name}_length_value").eq(head.lengths[place]),
            ]
        return stored
