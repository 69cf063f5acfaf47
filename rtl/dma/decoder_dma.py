"""The exported tops: decoders with registers, a read master and an interrupt."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.golden.format import CACHE_BLOCK, COMMAND_FIELDS, ERROR_CAUSES, SCHEMES
from cassandra_spec.rtl.common.networks import popcount
from cassandra_spec.rtl.decode.verification import VALUE
from cassandra_spec.rtl.dma.axi import connect_lite, connect_reads, lite_ports, read_ports
from cassandra_spec.rtl.dma.channel import Channel
from cassandra_spec.rtl.dma.codebooks import Codebooks
from cassandra_spec.rtl.dma.config import LENGTH_BITS, REGIONS, DmaConfig
from cassandra_spec.rtl.dma.descriptors import Dispatcher, descriptor_layout
from cassandra_spec.rtl.dma.merge import InOrder
from cassandra_spec.rtl.dma.read_master import ReadMaster, fault_layout
from cassandra_spec.rtl.dma.register_file import RegisterFile
from cassandra_spec.rtl.dma.registers import (
    DMA_CAUSES,
    ID,
    IRQ_SOURCES,
    VERSION,
    registers_for,
)

__all__ = ["CassandraDma"]

_CAUSES = (*ERROR_CAUSES, *(name for name, _ in DMA_CAUSES))
_FIELDS = tuple(field.name for field in COMMAND_FIELDS)


class CassandraDma(wiring.Component):
    """Decoders that fetch their segments: AXI4-Lite registers, AXI4 reads, AXI4-Stream out.

    Software writes a segment's command word and the address and length of its regions, and starts
    it (docs/registers.md); descriptors queue up. The regions are read in bursts ahead of the
    decoder, and the values leave as packets, in the order of the descriptors, whatever the number
    of decoders.

    Latency: about 25 cycles, beside that of the memory, from START to the first beat. Throughput:
    that of the decoders together, while the memory keeps up; a segment follows another without a
    pause of its own. Buffering: see :class:`DmaConfig`.

    Illegal input: a segment that breaks the format ends as it does in the decoder. A read that is
    answered with an error flags its segment (the last beat has ``tuser`` set and ``tkeep`` zero)
    and nothing else. Descriptors that are not legal are not queued. ERROR has the causes.

    Members
    -------
    s_axil_* : AXI4-Lite, 32 bits of data
    m_axi_ar*, m_axi_r* : AXI4, the read channels
    m_axis_values_* : AXI4-Stream, as of the decoder
    irq : Out(1)
        High while an interrupt waits that is enabled.
    """

    def __init__(self, config: DmaConfig | None = None) -> None:
        self.config = config = config or DmaConfig()
        width = VALUE * config.beat_values
        super().__init__(
            {
                **lite_ports(),
                **read_ports(config),
                "m_axis_values_tdata": Out(width),
                "m_axis_values_tkeep": Out(width // 8),
                "m_axis_values_tlast": Out(1),
                "m_axis_values_tuser": Out(1),
                "m_axis_values_tvalid": Out(1),
                "m_axis_values_tready": In(1),
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
        m.submodules.registers = self.registers = RegisterFile(registers_for("decode"))
        m.submodules.books = self.books = Codebooks(
            books=config.books, entries=config.decoder.codebook, readers=config.decoders
        )
        m.submodules.dispatcher = self.dispatcher = Dispatcher(config)
        m.submodules.reads = self.reads = ReadMaster(config)
        m.submodules.merge = self.merge = InOrder(config)
        self.channels = [Channel(config) for _ in range(config.decoders)]
        self.number = Signal(32)  # number of the next segment to leave
        self.busy = Signal()
        self._connect(m)
        connect_lite(m, self, self.registers)
        connect_reads(m, self, self.reads)
        self._values(m)
        self._descriptor(m)
        self._codebook(m)
        self._status(m)
        self._errors(m)
        self._counters(m)
        return m

    def _connect(self, m: Module) -> None:
        """Dispatcher, read master, decoders and output."""
        for place, channel in enumerate(self.channels):
            m.submodules[f"channel_{place}"] = channel
            wiring.connect(m, self.dispatcher.orders[place], channel.orders)
            wiring.connect(m, channel.values, self.merge.beats[place])
            m.d.comb += [
                self.dispatcher.tags[place].eq(channel.tag),
                self.books.read_slot[place].eq(channel.read_slot),
                self.books.read_entry[place].eq(channel.read_entry),
                channel.exponent.eq(self.books.read_exponent[place]),
                channel.ends.eq(self.books.ends),
                channel.written.eq(self.books.write),
                channel.slot.eq(self.books.slot),
            ]
            for which in range(2):
                region = 2 * place + which
                wiring.connect(m, self.dispatcher.regions[region], self.reads.regions[region])
                wiring.connect(m, self.reads.words[region], channel.words[which])
                m.d.comb += [
                    channel.fault[which].eq(self.reads.fault[region].tag),
                    channel.fault_valid[which].eq(self.reads.fault_valid[region]),
                ]

    def _values(self, m: Module) -> None:
        values = self.merge.values
        beat = values.payload
        count = self.config.beat_values
        self.ends = Signal()  # a segment leaves
        m.d.comb += [
            self.m_axis_values_tdata.eq(beat.values),
            self.m_axis_values_tkeep.eq(
                Cat(beat.present[lane].replicate(VALUE // 8) for lane in range(count))
            ),
            self.m_axis_values_tlast.eq(beat.last),
            self.m_axis_values_tuser.eq(beat.error),
            self.m_axis_values_tvalid.eq(values.valid),
            values.ready.eq(self.m_axis_values_tready),
            self.ends.eq(values.valid & values.ready & beat.last),
        ]

    def _descriptor(self, m: Module) -> None:
        """START makes a descriptor of the registers, if it is legal."""
        registers, config = self.registers, self.config
        descriptor = Signal(descriptor_layout(config))
        command = descriptor.order.command
        second = command.target & command.verification
        legal = [self._book_is_legal(command)]
        for which, name in enumerate(REGIONS):
            base, length = self._region(name)
            fits = _is_legal(base, length, config)
            legal.append(fits if which == 0 else fits | ~second)
            m.d.comb += [
                descriptor.addresses[which].eq(base[config.word_bits :]),
                descriptor.words[which].eq(length[config.word_bits :]),
            ]
        pushed, good = Signal(), Signal()
        m.d.comb += [
            pushed.eq(registers.start_push),
            good.eq(Cat(legal).all()),
            *(command[name].eq(getattr(registers, f"command_{name}")) for name in _FIELDS),
            descriptor.order.slot.eq(registers.book_slot),
            descriptor.second.eq(second),
            self.dispatcher.descriptors.payload.eq(descriptor),
            self.dispatcher.descriptors.valid.eq(pushed & good),
            self.dispatcher.enable.eq(registers.control_enable),
            self.dispatcher.drop.eq(registers.control_drop),
            registers.error_descriptor_set.eq(pushed & ~good),
            registers.error_overflow_set.eq(pushed & good & ~self.dispatcher.descriptors.ready),
        ]

    def _region(self, name: str) -> tuple[Value, Value]:
        low, high, length = (
            getattr(self.registers, f"{name}_{part}_value")
            for part in ("base_low", "base_high", "length")
        )
        return Cat(low, high), length

    def _book_is_legal(self, command: data.View) -> Value:
        if not self.config.decoder.has("unary"):
            return Const(1, 1)
        unary = command.scheme == SCHEMES.index("unary")
        return ~unary | Array(self.books.defined)[self.registers.book_slot]

    def _codebook(self, m: Module) -> None:
        registers, books = self.registers, self.books
        m.d.comb += [
            books.write.eq(registers.codebook_written),
            books.slot.eq(registers.codebook_slot),
            books.entry.eq(registers.codebook_entry),
            books.exponent.eq(registers.codebook_exponent),
            books.last.eq(registers.codebook_last),
        ]

    def _status(self, m: Module) -> None:
        registers = self.registers
        flying = Signal(16)  # segments between queue and output
        was_busy = Signal()
        begun = Cat(channel.orders.valid & channel.orders.ready for channel in self.channels).any()
        constants = _constants(self.config).items()
        m.d.comb += [getattr(registers, name).eq(value) for name, value in constants]
        m.d.sync += [was_busy.eq(self.busy), flying.eq(flying + begun - self.ends)]
        m.d.comb += [
            self.busy.eq((flying != 0) | (self.dispatcher.waiting != 0)),
            registers.status_busy.eq(self.busy),
            registers.status_full.eq(~self.dispatcher.descriptors.ready),
            registers.status_waiting.eq(self.dispatcher.waiting),
            registers.status_flying.eq(flying),
            registers.irq_segment_set.eq(self.ends),
            registers.irq_idle_set.eq(was_busy & ~self.busy),
        ]
        waits = Cat(
            getattr(registers, f"irq_{name}") & getattr(registers, f"irq_enable_{name}")
            for name, _ in IRQ_SOURCES
        )
        m.d.sync += self.irq.eq(waits.any())

    def _errors(self, m: Module) -> None:
        """Sticky causes, the first segment that was flagged, the first burst that failed."""
        registers = self.registers
        valid = Cat(self.reads.fault_valid[place] for place in range(self.config.regions))
        fault = Signal(fault_layout(self.config))
        for place in reversed(range(self.config.regions)):
            with m.If(valid[place]):
                m.d.comb += fault.eq(self.reads.fault[place])
        for cause in ERROR_CAUSES:
            seen = Cat(channel.errors[cause] for channel in self.channels).any()
            m.d.comb += getattr(registers, f"error_{cause}_set").eq(seen)
        m.d.comb += [
            registers.error_slave_set.eq(valid.any() & ~fault.decode),
            registers.error_decode_set.eq(valid.any() & fault.decode),
            registers.irq_error_set.eq(
                Cat(getattr(registers, f"error_{cause}_set") for cause in _CAUSES).any()
            ),
        ]
        address = fault.address << self.config.word_bits
        flagged = self.ends & self.merge.values.payload.error
        self._note(m, flagged, {"error_segment_value": self.number})
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
        registers, values = self.registers, self.merge.values
        moved = values.valid & values.ready
        steps = {
            "values": Mux(moved, popcount(values.payload.present), 0),
            "cycles": self.busy,
            "words": self.reads.reading,
            "stalls": values.valid & ~values.ready,
            "idle": self.busy & ~values.valid,
        }
        for name, step in steps.items():
            count = Signal(64, name=f"count_{name}")
            m.d.sync += count.eq(Mux(registers.control_clear, 0, count + step))
            m.d.comb += [
                getattr(registers, f"count_{name}_low_value").eq(count[:32]),
                getattr(registers, f"count_{name}_high_value").eq(count[32:]),
            ]
        m.d.sync += self.number.eq(Mux(registers.control_clear, 0, self.number + self.ends))
        m.d.comb += registers.count_segments_value.eq(self.number)


def _constants(config: DmaConfig) -> dict[str, int]:
    """Registers that say what was built."""
    return {
        "id_value": ID,
        "version_major": VERSION[0],
        "version_minor": VERSION[1],
        "version_patch": VERSION[2],
        "decoder_lanes": config.decoder.lanes,
        "decoder_schemes": sum(1 << SCHEMES.index(name) for name in config.decoder.schemes),
        "decoder_window": config.decoder.window,
        "decoder_codebook": config.decoder.codebook,
        "decoder_decoders": config.decoders,
        "fetch_bus": config.bus,
        "fetch_queue": config.queue,
        "fetch_books": config.books,
        "fetch_superblock": config.decoder.superblock // CACHE_BLOCK,
    }


def _is_legal(base: Value, length: Value, config: DmaConfig) -> Value:
    """A region that can be read: whole bus words, at least one, and an address that exists."""
    low = config.word_bits
    return ~Cat(
        base[:low].any(),
        base[config.address :].any() if config.address < 64 else Const(0, 1),
        length[:low].any(),
        length[LENGTH_BITS:].any(),
        length == 0,
    ).any()
