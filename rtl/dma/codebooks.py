"""Codebooks that descriptors name, and what brings them to a decoder before its command."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import data, fifo, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.rtl.common.command import CommandLayout
from cassandra_spec.rtl.dma.config import IN_FLIGHT


def order_layout(books: int, command: data.StructLayout = CommandLayout) -> data.StructLayout:
    """A command for a decoder or encoder, and which of ``books`` it needs in unary."""
    return data.StructLayout({"command": command, "slot": range(max(books, 2))})


class Codebooks(wiring.Component):
    """``books`` codebooks of at most ``entries``, a read port for each of ``readers``.

    Latency: reads are combinational, a write shows in the next cycle. Throughput: a write in each
    cycle. Illegal input: entries and slots that do not exist are not written.

    Members
    -------
    write : In(1), slot : In(4), entry : In(5), exponent : In(8), last : In(1)
        Writes an entry. ``last`` makes the slot defined, with as many entries; other writes
        undefine it.
    defined : Out(16)
        Slots that hold a codebook.
    ends : Out(5) for each slot
        Its last entry.
    read_slot, read_entry : In for each reader; read_exponent : Out(8) for each reader
    """

    def __init__(self, *, books: int, entries: int, readers: int = 1) -> None:
        self._books, self._entries, self._readers = books, entries, readers
        count, slots = readers, max(books, 2)
        super().__init__(
            {
                "write": In(1),
                "slot": In(4),
                "entry": In(5),
                "exponent": In(8),
                "last": In(1),
                "defined": Out(16),
                "ends": Out(data.ArrayLayout(5, slots)),
                "read_slot": In(range(slots)).array(count),
                "read_entry": In(5).array(count),
                "read_exponent": Out(8).array(count),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        size, slots = self._entries, self._books
        m.submodules.table = table = memory.Memory(shape=8, depth=slots * size, init=[])
        port = table.write_port()
        fits = Signal()
        m.d.comb += [
            fits.eq((self.slot < slots) & (self.entry < size)),
            port.addr.eq(self.slot * size + self.entry),
            port.data.eq(self.exponent),
            port.en.eq(self.write & fits),
        ]
        for slot in range(slots):
            with m.If(port.en & (self.slot == slot)):
                m.d.sync += [self.defined[slot].eq(self.last), self.ends[slot].eq(self.entry)]
        for place in range(self._readers):
            read = table.read_port(domain="comb")
            m.d.comb += [
                read.addr.eq(self.read_slot[place] * size + self.read_entry[place]),
                self.read_exponent[place].eq(read.data),
            ]
        return m


class CodebookLoader(wiring.Component):
    """Hands commands to a decoder or encoder, each after the codebook that it needs, unless that is
    loaded. ``command`` is the layout of a command; without ``unary`` none needs a codebook.

    Latency: two cycles. Throughput: a command in two cycles; a codebook takes a cycle for each
    entry. Buffering: ``IN_FLIGHT`` commands. A slot that is written is loaded again when it is
    next asked for.

    Members
    -------
    orders : In(stream of order_layout)
    command : Out(stream of commands), codebook : Out(stream of {exponent: 8, last: 1})
    written : In(1), slot : In(4)
        A slot is being written.
    ends : In(5) for each slot
    read_slot, read_entry : Out, exponent : In(8)
        A port of :class:`Codebooks`.
    """

    def __init__(
        self, *, books: int, unary: bool, command: data.StructLayout = CommandLayout
    ) -> None:
        self._books, self._unary = books, unary
        self._layout = order_layout(books, command)
        slots = max(books, 2)
        entry = data.StructLayout({"exponent": 8, "last": 1})
        super().__init__(
            {
                "orders": In(stream.Signature(self._layout)),
                "command": Out(stream.Signature(command)),
                "codebook": Out(stream.Signature(entry)),
                "written": In(1),
                "slot": In(4),
                "ends": In(data.ArrayLayout(5, slots)),
                "read_slot": Out(range(slots)),
                "read_entry": Out(5),
                "exponent": In(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        layout = self._layout
        m.submodules.waiting = waiting = fifo.SyncFIFO(width=layout.size, depth=IN_FLIGHT)
        order = data.View(layout, waiting.r_data)
        loaded, inside = Signal(), Signal.like(order.slot)  # whether a book is inside, and which
        m.d.comb += [
            waiting.w_data.eq(self.orders.payload),
            waiting.w_en.eq(self.orders.valid & waiting.w_rdy),
            self.orders.ready.eq(waiting.w_rdy),
            self.command.payload.eq(order.command),
            self.read_slot.eq(order.slot),
        ]
        missing = Signal()
        if self._unary:
            unary = order.command.scheme == SCHEMES.index("unary")
            m.d.comb += missing.eq(unary & ~(loaded & (inside == order.slot)))
        loading, asking = Signal(), Signal()
        m.d.comb += [
            self.command.valid.eq(asking),
            waiting.r_en.eq(self.command.valid & self.command.ready),
        ]
        with m.If(loading):
            self._load(m)
            with m.If(self.codebook.ready & self.codebook.payload.last):
                m.d.sync += [loading.eq(0), asking.eq(1), loaded.eq(1), inside.eq(order.slot)]
        with m.Elif(asking):
            with m.If(self.command.ready):
                m.d.sync += asking.eq(0)
        with m.Elif(waiting.r_rdy):
            m.d.sync += [self.read_entry.eq(0), loading.eq(missing), asking.eq(~missing)]
        with m.If(self.written & (self.slot == inside)):
            m.d.sync += loaded.eq(0)
        return m

    def _load(self, m: Module) -> None:
        ends = Array([self.ends[slot] for slot in range(max(self._books, 2))])
        m.d.comb += [
            self.codebook.valid.eq(1),
            self.codebook.payload.exponent.eq(self.exponent),
            self.codebook.payload.last.eq(self.read_entry == ends[self.read_slot]),
        ]
        with m.If(self.codebook.ready):
            m.d.sync += self.read_entry.eq(self.read_entry + 1)
