"""Codebooks that descriptors name, and the loader that sends them ahead of a command."""

from __future__ import annotations

from amaranth.hdl import Array, Const, Module, Signal, Value
from amaranth.lib import data, fifo, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.rtl.common.command import CommandLayout
from cassandra_spec.rtl.decode.codebook import ENTRY
from cassandra_spec.rtl.decoder import PrunedEntry
from cassandra_spec.rtl.dma.config import IN_FLIGHT


def order_layout(
    books: int, command: data.StructLayout = CommandLayout, *, coded: bool = False
) -> data.StructLayout:
    """A command for a decoder or encoder, and the number of its codebook in unary.

    With ``coded``, also that of the codebook for pruned values.
    """
    slots = ("slot", "pruned_slot") if coded else ("slot",)
    return data.StructLayout({"command": command, **dict.fromkeys(slots, range(max(books, 2)))})


BookEnd = data.StructLayout({"entry": 5, "empty": 1})
"""The last entry of a codebook; ``empty``: the codebook has no entries."""


class Codebooks(wiring.Component):
    """``books`` codebooks of at most ``entries``, with one read port per reader.

    Latency: reads are combinational, a write shows in the next cycle. Throughput: one write per
    cycle. Illegal input: writes to entries and slots that do not exist are ignored.

    Members
    -------
    write : In(1), slot : In(4), entry : In(5), exponent : In(8), last : In(1), empty : In(1)
        Writes an entry. ``last`` makes the slot defined, with the entries written so far (none if
        ``empty``); other writes make it undefined.
    defined : Out(16)
        Slots that hold a codebook.
    ends : Out(BookEnd) for each slot
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
                **dict.fromkeys(("last", "empty"), In(1)),
                "defined": Out(16),
                "ends": Out(data.ArrayLayout(BookEnd, slots)),
                "read_slot": In(range(slots)).array(count),
                "read_entry": In(5).array(count),
                "read_exponent": Out(8).array(count),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        size, slots = self._entries, self._books
        m.submodules.entries = table = memory.Memory(shape=8, depth=slots * size, init=[])
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
                m.d.sync += [
                    self.defined[slot].eq(self.last),
                    self.ends[slot].entry.eq(self.entry),
                    self.ends[slot].empty.eq(self.empty),
                ]
        for place in range(self._readers):
            read = table.read_port(domain="comb")
            m.d.comb += [
                read.addr.eq(self.read_slot[place] * size + self.read_entry[place]),
                self.read_exponent[place].eq(read.data),
            ]
        return m


class CodebookLoader(wiring.Component):
    """Hand commands to a decoder or encoder, each after the codebooks that it needs.

    A codebook that is loaded already is not sent again. ``command`` is the layout of a command.
    Without ``unary`` no command needs a codebook; with ``coded``, a target with coded pruned
    exponents needs a second one.

    Latency: two cycles. Throughput: one command in two cycles; a codebook takes one cycle per
    entry. Buffering: ``IN_FLIGHT`` commands. A slot that has been written is loaded again when it
    is needed next.

    Members
    -------
    orders : In(stream of order_layout)
    command : Out(stream of commands)
    codebook : Out(stream of {exponent: 8, last: 1}; with ``coded`` of PrunedEntry)
    written : In(1), slot : In(4)
        A slot is being written.
    ends : In(BookEnd) for each slot
    read_slot, read_entry : Out, exponent : In(8)
        A port of :class:`Codebooks`.
    """

    def __init__(
        self,
        *,
        books: int,
        unary: bool,
        coded: bool = False,
        command: data.StructLayout = CommandLayout,
    ) -> None:
        self._unary, self._coded = unary, coded
        self._layout = order_layout(books, command, coded=coded)
        slots = max(books, 2)
        super().__init__(
            {
                "orders": In(stream.Signature(self._layout)),
                "command": Out(stream.Signature(command)),
                "codebook": Out(stream.Signature(PrunedEntry if coded else ENTRY)),
                "written": In(1),
                "slot": In(4),
                "ends": In(data.ArrayLayout(BookEnd, slots)),
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
        m.d.comb += [
            waiting.w_data.eq(self.orders.payload),
            waiting.w_en.eq(self.orders.valid & waiting.w_rdy),
            self.orders.ready.eq(waiting.w_rdy),
            self.command.payload.eq(order.command),
        ]
        needed = self._needed(order)
        missing, loading, asking = Signal(len(needed)), Signal(len(needed)), Signal()
        m.d.comb += [
            self.command.valid.eq(asking),
            waiting.r_en.eq(self.command.valid & self.command.ready),
        ]
        with m.If(asking):
            with m.If(self.command.ready):
                m.d.sync += asking.eq(0)
        with m.Elif(waiting.r_rdy & ~loading.any()):
            m.d.sync += [
                *(self.read_entry.eq(0), loading.eq(missing)),
                asking.eq(~missing.any()),
            ]
        for place, (slot, needs) in enumerate(needed):
            loaded = self._book(m, slot, loading, place)
            m.d.comb += missing[place].eq(needs & ~loaded)
            with m.If(loading[place] & ~loading[:place].any() & self._ends()):
                m.d.sync += asking.eq(~loading[place + 1 :].any())
        return m

    def _needed(self, order: data.View) -> list[tuple[Value, Value]]:
        """Return the slot of each codebook that a command may need, and whether it needs it."""
        if not self._unary:
            return [(order.slot, Const(0, 1))]
        command, unary = order.command, order.command.scheme == SCHEMES.index("unary")
        if not self._coded:
            return [(order.slot, unary)]
        return [(order.slot, unary), (order.pruned_slot, unary & command.coded & command.target)]

    def _ends(self) -> Value:
        """Return 1 when a codebook has been sent."""
        return self.codebook.valid & self.codebook.ready & self.codebook.payload.last

    def _book(self, m: Module, slot: Value, loading: Signal, place: int) -> Value:
        """Load a codebook when it is its turn; return 1 if the slot's codebook is loaded."""
        word, ends = self.codebook.payload, Array(self.ends)[slot]
        loaded, inside = Signal(name=f"loaded_{place}"), Signal.like(slot, name=f"inside_{place}")
        with m.If(loading[place] & ~loading[:place].any()):
            m.d.comb += [
                self.read_slot.eq(slot),
                self.codebook.valid.eq(1),
                word.exponent.eq(self.exponent),
                word.last.eq(self.read_entry == ends.entry),
            ]
            if self._coded:
                m.d.comb += [word.pruned.eq(place), word.empty.eq(ends.empty)]
            with m.If(self.codebook.ready):
                m.d.sync += self.read_entry.eq(self.read_entry + 1)
            with m.If(self._ends()):
                m.d.sync += [
                    *(loaded.eq(1), inside.eq(slot)),
                    *(loading[place].eq(0), self.read_entry.eq(0)),
                ]
        with m.If(self.written & (self.slot == inside)):
            m.d.sync += loaded.eq(0)
        return loaded & (inside == slot)
