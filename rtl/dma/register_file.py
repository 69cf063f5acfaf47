"""The register map as gateware: an AXI4-Lite port for the table of registers."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, ResetInserter, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.guard import check_of
from cassandra_spec.rtl.dma.registers import ADDRESS_BITS, REGISTERS, Field, Register, check

RESPONSE_OKAY, RESPONSE_SLVERR = 0, 2


class RegisterFile(wiring.Component):
    """Registers behind AXI4-Lite.

    Latency: two cycles from the later of address and data to the response; two from a read's
    address to its data. Throughput: one access in two cycles, reads in parallel with writes.
    Buffering: one address and one data word in each direction. Illegal input: an access to an
    address without a register is answered with SLVERR and has no effect; writes to read-only fields
    have no effect. Byte strobes are obeyed: a write without strobes has no effect, a write to a
    ``whole`` register needs all of them.

    The upper half of a read-only 64-bit number returns its value from the last read of its own
    lower half, whatever was read since; zero before the first.

    If a bit of a write flips between port and register, the write is answered with SLVERR, has no
    effect, and sets ``unsound``. A ``guarded`` register detects a flipped bit.

    Members
    -------
    aw, ar : In(stream of address), w : In(stream of {data, strobe})
    b : Out(stream of response), r : Out(stream of {data, response})
    REGISTER_FIELD
        ro: In. rw: Out. w1c: Out, and In ``REGISTER_FIELD_set``; a bit that is set and cleared in
        the same cycle stays set. wo: Out, the value in the cycle of a write; otherwise zero.
    REGISTER_written : Out(1), registers with w1c or wo fields
        The register is being written, with at least one strobe.
    REGISTER_intact : Out(1), guarded registers
        No bit of the register has flipped since it was written.
    unsound : Out(1)
        A bit of a write has flipped, at some time since reset.
    reset : In(1)
        Set all registers to their values after reset; accesses are still answered.
    """

    def __init__(self, registers: tuple[Register, ...] = REGISTERS) -> None:
        check(registers)
        self.registers = registers
        self.write_layout = data.StructLayout({"data": 32, "strobe": 4})
        self.read_layout = data.StructLayout({"data": 32, "response": 2})
        members: dict[str, object] = {
            "aw": In(stream.Signature(ADDRESS_BITS)),
            "ar": In(stream.Signature(ADDRESS_BITS)),
            "w": In(stream.Signature(self.write_layout)),
            "b": Out(stream.Signature(2)),
            "r": Out(stream.Signature(self.read_layout)),
            "unsound": Out(1),
            "reset": In(1),
        }
        for register in registers:
            members |= _members(register)
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m, state = Module(), Module()  # ``state``: what ``reset`` resets
        m.submodules.state = ResetInserter(self.reset)(state)
        write = self._write_port(m, state)
        self._read_port(m, state)
        for register in self.registers:
            selected = Signal(name=f"write_{register.name}")
            strobed = write.strobe.all() if register.whole else write.strobe.any()
            m.d.comb += selected.eq(write.acts & strobed & (write.place == register.offset // 4))
            for field, low in register.places():
                self._field(state, f"{register.name}_{field.name}", field, low, write, selected)
            if _acts(register):
                m.d.comb += getattr(self, f"{register.name}_written").eq(selected)
            if register.guarded:
                self._guard(state, register, write, selected)
        return m

    def _guard(self, m: Module, register: Register, write: _Write, selected: Signal) -> None:
        """Keep a check for each byte, because bytes are written one by one."""
        fields = Signal(32, name=f"bits_of_{register.name}")
        kept = 0
        for field, low in register.places():
            m.d.comb += fields[low : low + field.width].eq(
                getattr(self, f"{register.name}_{field.name}")
            )
            kept |= ((1 << field.width) - 1) << low
        right = []
        for byte in range(4):
            bits = slice(8 * byte, 8 * byte + 8)
            held = Signal(init=1, name=f"check_{register.name}_{byte}")
            with m.If(selected & write.strobe[byte]):
                m.d.sync += held.eq(check_of((write.bits & kept)[bits]))
            right.append(held == check_of(fields[bits]))
        m.d.comb += getattr(self, f"{register.name}_intact").eq(Cat(right).all())

    def _known(self, place: Value) -> Value:
        return Cat(place == register.offset // 4 for register in self.registers).any()

    def _write_port(self, m: Module, state: Module) -> _Write:
        """Accept address and data in any order, after the previous response has been taken.

        Each has a check, which is made wrong after use, so neither is used twice.
        """
        write, answers = _Write(), Signal(name="write")
        word = Signal(self.write_layout)
        names = ("addressed", "filled", "address_check", "word_check")
        flags = (Signal(name=f"write_{name}") for name in names)
        addressed, filled, address_check, word_check = flags
        sound = (address_check == check_of(write.place)) & (word_check == check_of(word))
        m.d.comb += [
            write.acts.eq(answers & sound),
            self.aw.ready.eq(~addressed),
            self.w.ready.eq(~filled),
            answers.eq(addressed & filled & (~self.b.valid | self.b.ready)),
            write.bits.eq(word.data),
            write.strobe.eq(word.strobe),
            write.mask.eq(Cat(bit.replicate(8) for bit in word.strobe)),
        ]
        with m.If(self.b.ready):
            m.d.sync += self.b.valid.eq(0)
        with state.If(answers & ~sound):
            state.d.sync += self.unsound.eq(1)
        with m.If(answers):
            known = self._known(write.place)
            m.d.sync += [
                *(addressed.eq(0), filled.eq(0), self.b.valid.eq(1)),
                self.b.payload.eq(_response(known & sound)),
                address_check.eq(~check_of(write.place)),
                word_check.eq(~check_of(word)),
            ]
        with m.If(self.aw.valid & self.aw.ready):
            place = self.aw.payload[2:]
            m.d.sync += [write.place.eq(place), address_check.eq(check_of(place)), addressed.eq(1)]
        with m.If(self.w.valid & self.w.ready):
            payload = self.w.payload
            m.d.sync += [word.eq(payload), word_check.eq(check_of(payload)), filled.eq(1)]
        return write

    def _read_port(self, m: Module, state: Module) -> None:
        place = Signal(ADDRESS_BITS - 2, name="read_place")
        addressed, read = Signal(name="read_addressed"), Signal(name="read")
        value = Signal(32, name="read_value")
        m.d.comb += [
            self.ar.ready.eq(~addressed),
            read.eq(addressed & (~self.r.valid | self.r.ready)),
        ]
        for register in self.registers:
            found = self._value(register)
            if register.latched:
                latch = Signal(32, name=f"latch_{register.name}")
                with state.If(read & (place == register.offset // 4 - 1)):
                    state.d.sync += latch.eq(found)
                found = latch
            with m.If(place == register.offset // 4):
                m.d.comb += value.eq(found)
        with m.If(self.r.ready):
            m.d.sync += self.r.valid.eq(0)
        with m.If(read):
            m.d.sync += [
                *(addressed.eq(0), self.r.valid.eq(1)),
                self.r.payload.data.eq(value),
                self.r.payload.response.eq(_response(self._known(place))),
            ]
        with m.If(self.ar.valid & self.ar.ready):
            m.d.sync += [place.eq(self.ar.payload[2:]), addressed.eq(1)]

    def _value(self, register: Register) -> Value:
        """Return the value that a read of the register gives."""
        parts: list[Value] = []
        for field, low in register.places():
            below = sum(len(part) for part in parts)
            if low > below:
                parts.append(Const(0, low - below))
            signal = getattr(self, f"{register.name}_{field.name}")
            parts.append(Const(0, field.width) if field.access == "wo" else signal)
        return Cat(parts)

    def _field(
        self, m: Module, name: str, field: Field, low: int, write: _Write, selected: Signal
    ) -> None:
        signal = getattr(self, name)
        bits, mask = (whole[low : low + field.width] for whole in (write.bits, write.mask))
        if field.access == "rw":
            with m.If(selected):
                m.d.sync += signal.eq((signal & ~mask) | (bits & mask))
        elif field.access == "w1c":
            clear = bits & mask & selected.replicate(field.width)
            m.d.sync += signal.eq((signal & ~clear) | getattr(self, f"{name}_set"))
        elif field.access == "wo":
            m.d.comb += signal.eq(bits & mask & selected.replicate(field.width))


class _Write:
    """A write, in the cycle in which it is answered."""

    def __init__(self) -> None:
        self.acts = Signal()  # no bit of the write has flipped on the way
        self.place = Signal(ADDRESS_BITS - 2, name="write_place")
        self.bits, self.strobe = Signal(32), Signal(4)
        self.mask = Signal(32)  # bits that are written


def _acts(register: Register) -> bool:
    return any(field.access in ("wo", "w1c") for field in register.fields)


def _response(known: Value) -> Value:
    return Cat(Const(0, 1), ~known)  # OKAY or SLVERR


def _members(register: Register) -> dict[str, object]:
    members: dict[str, object] = {}
    for field in register.fields:
        name = f"{register.name}_{field.name}"
        members[name] = (In if field.access == "ro" else Out)(field.width)
        if field.access == "w1c":
            members[f"{name}_set"] = In(field.width)
    if _acts(register):
        members[f"{register.name}_written"] = Out(1)
    if register.guarded:
        members[f"{register.name}_intact"] = Out(1)
    return members
