"""The exported top: an encoder with registers, a write master and an interrupt."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, fifo, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.golden.format import (
    CACHE_BLOCK,
    ENCODE_COMMAND_FIELDS,
    ENCODE_ERROR_CAUSES,
    SCHEMES,
)
from cassandra_spec.rtl.common.networks import popcount
from cassandra_spec.rtl.decode.verification import VALUE
from cassandra_spec.rtl.dma.axi import connect_lite, connect_writes, lite_ports, write_ports
from cassandra_spec.rtl.dma.codebooks import CodebookLoader, Codebooks
from cassandra_spec.rtl.dma.config import LENGTH_BITS, REGIONS, StoreConfig
from cassandra_spec.rtl.dma.descriptors import EncoderDispatcher, encode_descriptor_layout
from cassandra_spec.rtl.dma.register_file import RegisterFile
from cassandra_spec.rtl.dma.registers import (
    DMA_CAUSES,
    ENCODE_CAUSES,
    ID,
    IRQ_SOURCES,
    VERSION,
    field_of,
    registers_for,
)
from cassandra_spec.rtl.dma.store import Store, entry_layout
from cassandra_spec.rtl.dma.write_master import write_fault_layout
from cassandra_spec.rtl.encode.types import EncodeCommandLayout
from cassandra_spec.rtl.encoder import Encoder

__all__ = ["CassandraEncoderDma"]

_CAUSES = tuple(name for name, _ in (*DMA_CAUSES, *ENCODE_CAUSES))


class CassandraEncoderDma(wiring.Component):
    """An encoder that stores its segments: AXI4-Stream in, AXI4-Lite registers, AXI4 writes.

    Software writes a segment's command word and the address and room of its regions, and starts it
    (docs/registers.md); descriptors queue up. The values of the segments come as packets, in the
    order of the descriptors. When both regions of a segment are in memory, its directory entry
    waits in a queue of results, and an interrupt says so.

    Latency: that of the encoder and the memory. Throughput: that of the encoder, while the memory
    takes what it puts out; a segment follows another without a pause of its own. Buffering: see
    :class:`StoreConfig`. While results are not popped the store comes to rest and values wait.

    Illegal input: a segment that the encoder cannot obey, or whose packet has not its length, is
    told by its result. A write that is answered with an error flags its segment and nothing else;
    so does a region that does not fit its room, of which no byte is written beyond. Descriptors
    that are not legal are not queued. ERROR has the causes.

    Members
    -------
    s_axil_* : AXI4-Lite, 32 bits of data
    s_axis_values_* : AXI4-Stream, as of the encoder
    m_axi_aw*, m_axi_w*, m_axi_b* : AXI4, the write channels
    irq : Out(1)
        High while an interrupt waits that is enabled.
    """

    def __init__(self, config: StoreConfig | None = None) -> None:
        self.config = config = config or StoreConfig()
        width = VALUE * config.encoder.lanes
        super().__init__(
            {
                **lite_ports(),
                **write_ports(config),
                "s_axis_values_tdata": In(width),
                "s_axis_values_tkeep": In(width // 8),
                "s_axis_values_tlast": In(1),
                "s_axis_values_tvalid": In(1),
                "s_axis_values_tready": Out(1),
                "irq": Out(1),
            }
        )

    @property
    def module_name(self) -> str:
        """Name of the Verilog module, one for each configuration."""
        return self.config.module_name

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.registers = self.registers = RegisterFile(registers_for("encode"))
        m.submodules.books = self.books = Codebooks(
            books=config.books, entries=config.encoder.codebook
        )
        m.submodules.loader = self.loader = CodebookLoader(
            books=config.books, unary=config.encoder.has("unary"), command=EncodeCommandLayout
        )
        m.submodules.queue = self.queue = EncoderDispatcher(config)
        m.submodules.encoder = self.encoder = Encoder(config.encoder)
        m.submodules.store = self.store = Store(config)
        self.number = Signal(32)  # number of the next segment to be in memory
        self.busy = Signal()
        connect_lite(m, self, self.registers)
        connect_writes(m, self, self.store)
        self._connect(m)
        self._values(m)
        self._descriptor(m)
        self._codebook(m)
        self._results(m)
        self._status(m)
        self._errors(m)
        self._counters(m)
        return m

    def _connect(self, m: Module) -> None:
        """Queue, loader, encoder and store."""
        encoder, store, loader = self.encoder, self.store, self.loader
        wiring.connect(m, self.queue.orders, loader.orders)
        wiring.connect(m, self.queue.places, store.places)
        wiring.connect(m, loader.command, encoder.command)
        wiring.connect(m, loader.codebook, encoder.codebook)
        wiring.connect(m, encoder.results, store.results)
        for place, name in enumerate(REGIONS):
            wiring.connect(m, getattr(encoder, name), store.words[place])

    def _values(self, m: Module) -> None:
        values, word = self.encoder.values, self.encoder.values.payload
        self.came = Signal()  # a beat of values
        m.d.comb += [
            Value.cast(word.values).eq(self.s_axis_values_tdata),
            word.keep.eq(Cat(self.s_axis_values_tkeep[:: VALUE // 8])),
            word.last.eq(self.s_axis_values_tlast),
            values.valid.eq(self.s_axis_values_tvalid),
            self.s_axis_values_tready.eq(values.ready),
            self.came.eq(values.valid & values.ready),
        ]

    def _descriptor(self, m: Module) -> None:
        """START makes a descriptor of the registers, if it is legal."""
        registers, config, queue = self.registers, self.config, self.queue
        descriptor = Signal(encode_descriptor_layout(config))
        command, follow = descriptor.order.command, registers.start_follow
        legal = [self._book_is_legal(command)]
        for place, name in enumerate(REGIONS):
            base = Cat(getattr(registers, f"{name}_base_{half}_value") for half in ("low", "high"))
            room = getattr(registers, f"{name}_length_value")
            legal.append(follow | _is_legal(base, room, config))
            m.d.comb += [
                descriptor.places[place].address.eq(base[config.word_bits :]),
                descriptor.places[place].room.eq(room[config.word_bits :]),
                descriptor.places[place].follow.eq(follow),
            ]
        pushed, good = Signal(), Signal()
        m.d.comb += [
            *(command[field.name].eq(self._word(field.name)) for field in ENCODE_COMMAND_FIELDS),
            descriptor.order.slot.eq(registers.book_slot),
            pushed.eq(registers.start_push),
            good.eq(Cat(legal).all()),
            queue.descriptors.payload.eq(descriptor),
            queue.descriptors.valid.eq(pushed & good),
            queue.enable.eq(registers.control_enable),
            queue.drop.eq(registers.control_drop),
            registers.error_descriptor_set.eq(pushed & ~good),
            registers.error_overflow_set.eq(pushed & good & ~queue.descriptors.ready),
        ]

    def _word(self, field: str) -> Value:
        """A field of the command word, in the one or the other register."""
        try:
            field_of("encode_command", field)
        except KeyError:
            return Value.cast(getattr(self.registers, f"encode_vector_{field}"))
        return Value.cast(getattr(self.registers, f"encode_command_{field}"))

    def _book_is_legal(self, command: data.View) -> Value:
        if not self.config.encoder.has("unary"):
            return Const(1, 1)
        unary = command.scheme == SCHEMES.index("unary")
        return ~unary | Array(self.books.defined)[self.registers.book_slot]

    def _codebook(self, m: Module) -> None:
        registers, books, loader = self.registers, self.books, self.loader
        m.d.comb += [
            books.write.eq(registers.codebook_written),
            books.slot.eq(registers.codebook_slot),
            books.entry.eq(registers.codebook_entry),
            books.exponent.eq(registers.codebook_exponent),
            books.last.eq(registers.codebook_last),
            loader.written.eq(registers.codebook_written),
            loader.slot.eq(registers.codebook_slot),
            loader.ends.eq(books.ends),
            books.read_slot[0].eq(loader.read_slot),
            books.read_entry[0].eq(loader.read_entry),
            loader.exponent.eq(books.read_exponent[0]),
        ]

    def _results(self, m: Module) -> None:
        """Entries wait for software, which reads the oldest and pops it."""
        layout, registers, entries = entry_layout(), self.registers, self.store.entries
        m.submodules.results = queue = fifo.SyncFIFO(width=layout.size, depth=self.config.results)
        head = data.View(layout, queue.r_data)
        self.stored = Signal()  # a segment is in memory
        m.d.comb += [
            queue.w_data.eq(entries.payload),
            queue.w_en.eq(self.stored),
            entries.ready.eq(queue.w_rdy),
            self.stored.eq(entries.valid & entries.ready),
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

    def _status(self, m: Module) -> None:
        registers, queue = self.registers, self.queue
        was_busy = Signal()
        constants = _constants(self.config).items()
        m.d.comb += [getattr(registers, name).eq(value) for name, value in constants]
        m.d.sync += was_busy.eq(self.busy)
        m.d.comb += [
            self.busy.eq((self.store.flying != 0) | (queue.waiting != 0)),
            registers.status_busy.eq(self.busy),
            registers.status_full.eq(~queue.descriptors.ready),
            registers.status_waiting.eq(queue.waiting),
            registers.status_flying.eq(self.store.flying),
            registers.irq_segment_set.eq(self.stored),
            registers.irq_idle_set.eq(was_busy & ~self.busy),
        ]
        waits = Cat(
            getattr(registers, f"irq_{name}") & getattr(registers, f"irq_enable_{name}")
            for name, _ in IRQ_SOURCES
        )
        m.d.sync += self.irq.eq(waits.any())

    def _errors(self, m: Module) -> None:
        """Sticky causes, the first segment that was flagged, the first burst that failed."""
        registers, store = self.registers, self.store
        entry = store.entries.payload
        valid = Cat(store.fault_valid)
        fault = Signal(write_fault_layout(self.config))
        for place in reversed(range(len(REGIONS))):
            with m.If(store.fault_valid[place]):
                m.d.comb += fault.eq(store.fault[place])
        for cause in ENCODE_ERROR_CAUSES:
            seen = self.stored & entry.errors[cause]
            m.d.comb += getattr(registers, f"error_encode_{cause}_set").eq(seen)
        m.d.comb += [
            registers.error_room_set.eq(self.stored & entry.room),
            registers.error_slave_set.eq(valid.any() & ~fault.decode),
            registers.error_decode_set.eq(valid.any() & fault.decode),
            registers.irq_error_set.eq(
                Cat(getattr(registers, f"error_{cause}_set") for cause in _CAUSES).any()
            ),
        ]
        flagged = self.stored & (entry.room | entry.failed | Value.cast(entry.errors).any())
        self._note(m, flagged, {"error_segment_value": self.number})
        address = fault.address << self.config.word_bits
        halves = {"error_address_low_value": address[:32], "error_address_high_value": address[32:]}
        self._note(m, valid.any(), halves)

    def _note(self, m: Module, event: Value, sources: dict[str, Value]) -> None:
        """Registers take their sources at the first event since ERROR was written."""
        noted = Signal()
        with m.If(self.registers.error_written):
            m.d.sync += noted.eq(0)
        take = event & (~noted | self.registers.error_written)
        with m.If(take):
            m.d.sync += noted.eq(1)
        for name, source in sources.items():
            held = Signal(32, name=f"held_{name}")
            m.d.comb += getattr(self.registers, name).eq(held)
            with m.If(take):
                m.d.sync += held.eq(source)

    def _counters(self, m: Module) -> None:
        registers, store = self.registers, self.store
        steps = {
            "values": Mux(self.came, popcount(self.encoder.values.payload.keep), 0),
            "cycles": self.busy,
            "words": store.writing,
            "stalls": store.w.valid & ~store.w.ready,
            "idle": self.busy & ~self.s_axis_values_tvalid,
        }
        for name, step in steps.items():
            count = Signal(64, name=f"count_{name}")
            m.d.sync += count.eq(Mux(registers.control_clear, 0, count + step))
            m.d.comb += [
                getattr(registers, f"count_{name}_low_value").eq(count[:32]),
                getattr(registers, f"count_{name}_high_value").eq(count[32:]),
            ]
        m.d.sync += self.number.eq(Mux(registers.control_clear, 0, self.number + self.stored))
        m.d.comb += registers.count_segments_value.eq(self.number)


def _constants(config: StoreConfig) -> dict[str, int]:
    """Registers that say what was built."""
    encoder = config.encoder
    return {
        "id_value": ID,
        "version_major": VERSION[0],
        "version_minor": VERSION[1],
        "version_patch": VERSION[2],
        "encoder_lanes": encoder.lanes,
        "encoder_schemes": sum(1 << SCHEMES.index(name) for name in encoder.schemes),
        "encoder_window": encoder.window,
        "encoder_codebook": encoder.codebook,
        "encoder_vector": encoder.vector - 1,
        "store_bus": config.bus,
        "store_queue": config.queue,
        "store_books": config.books,
        "store_superblock": encoder.superblock // CACHE_BLOCK,
    }


def _is_legal(base: Value, room: Value, config: StoreConfig) -> Value:
    """A place that can be written: whole bus words, and an address that exists."""
    low = config.word_bits
    return ~Cat(
        base[:low].any(),
        base[config.address :].any() if config.address < 64 else Const(0, 1),
        room[:low].any(),
        room[LENGTH_BITS:].any(),
    ).any()
