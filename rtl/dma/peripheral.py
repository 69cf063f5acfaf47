"""The shell that all exported tops with registers share."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from amaranth.hdl import Array, Cat, Const, Module, Mux, ResetInserter, ResetSignal, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.golden.format import CACHE_BLOCK, SCHEMES
from cassandra_spec.rtl.common.wires import drive
from cassandra_spec.rtl.dma.axi import connect_lite, lite_ports
from cassandra_spec.rtl.dma.channel import Channel
from cassandra_spec.rtl.dma.codebooks import CodebookLoader, Codebooks
from cassandra_spec.rtl.dma.config import LENGTH_BITS, REGIONS, BusConfig
from cassandra_spec.rtl.dma.drain import Drain
from cassandra_spec.rtl.dma.register_file import RegisterFile
from cassandra_spec.rtl.dma.registers import (
    ID,
    VERSION,
    Top,
    guarded_of,
    names_of,
    registers_for,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Activity:
    """The signals of an engine that the registers report, cycle by cycle."""

    flying: Value  # segments between queue and output
    pending: Value  # accesses to memory that outlast their segment: reads of a failed region
    done: Value  # a segment leaves (encoder: its entry goes to the results)
    flagged: Value  # the segment is flagged
    causes: dict[str, Value]  # bits of ERROR to set, by name
    faults: Sequence[data.View]  # bursts that were answered with an error: {address, decode, ...}
    fault_valid: Value  # which of ``faults`` are valid
    wrong: Value  # a soft error in a region's state: the region is not accessed any more
    steps: dict[str, Value]  # increment of each 64-bit counter, by name
    master: Any  # the bus master, with the members of rtl.dma.drain.master_members
    discards: Value  # the rest of an input packet is discarded


class RegionCheck(wiring.Component):
    """Check that a region consists of whole bus words at addresses that exist.

    A region may end with the address space, not beyond it: bursts would continue at address 0. The
    end is beyond it if the sum of the low bits of base and length carries into high bits that are
    all ones, so no adder is as wide as an address. Latency: none.

    Members
    -------
    base : In(64), length : In(32)
        In bytes.
    legal : Out(1)
    """

    def __init__(self, config: BusConfig) -> None:
        self.config = config
        super().__init__({"base": In(64), "length": In(32), "legal": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        low, width = self.config.word_bits, self.config.address
        end = Signal(LENGTH_BITS + 1)  # in the address bits that the length reaches
        m.d.comb += end.eq(self.base[:LENGTH_BITS] + self.length[:LENGTH_BITS])
        carried = end[LENGTH_BITS] & self.base[LENGTH_BITS:width].all()
        wrong = Cat(
            carried & end[:LENGTH_BITS].any(),
            self.base[:low].any(),
            self.base[width:].any() if width < 64 else Const(0, 1),
            self.length[:low].any(),
            self.length[LENGTH_BITS:].any(),
        )
        m.d.comb += self.legal.eq(~wrong.any())
        return m


class Peripheral(wiring.Component):
    """Registers, codebooks, a queue of descriptors and an interrupt around an engine.

    A subclass builds the engine and reports its activity. Exported names and registers are the same
    for both engines, except for what only one engine has.

    Three parts are reset apart. ``rst`` resets all of them. A soft reset (``core_rst``, or
    CONTROL.reset) resets the registers and what counts for them in the cycle of the request, and
    queue and engine from the next cycle on, until the bus master is drained. The register port, the
    bus master's address register and counts, and the ends of the value stream are not reset.

    Members
    -------
    s_axil_* : AXI4-Lite, 32 bits of data
        READY is low while ``rst`` or ``core_rst`` is high.
    irq : Out(1)
        High while an enabled interrupt is pending.
    core_rst : In(1)
        Soft reset, for at least one cycle.
    quiesce_request : In(1), quiesce_done : Out(1)
        While the request is high no burst begins; ``quiesce_done`` says that none is open.
    """

    top: ClassVar[Top]
    """The engine's name in the register map."""
    commands: ClassVar[tuple[str, ...]]
    """Registers with the fields of a command word."""
    readers: int = 1
    """Number of read ports of the codebooks."""

    def __init__(self, config: BusConfig, ports: dict[str, object]) -> None:
        self._bus = config
        resets = {"core_rst": In(1), "quiesce_request": In(1), "quiesce_done": Out(1)}
        super().__init__({**lite_ports(), **ports, "irq": Out(1), **resets})
        self.registers = RegisterFile(registers_for(self.top))
        self.codebooks = Codebooks(
            books=config.books, entries=config.engine.codebook, readers=self.readers
        )
        self.drain = Drain()
        self.busy = Signal()  # a segment is in the queue or in flight, or accesses are outstanding
        self.number = Signal(32)  # number of the next segment to complete
        self.intact = Signal()  # no soft error in the registers of a descriptor
        self.live = Signal()  # the engine is not in reset

    @property
    def module_name(self) -> str:
        """Name of the Verilog module, unique per configuration."""
        return self._bus.module_name

    def elaborate(self, platform: object) -> Module:
        m, state, engine = Module(), Module(), Module()
        m.submodules.registers, m.submodules.reset_control = self.registers, self.drain
        state.submodules.codebooks = self.codebooks
        engine.submodules.queue = queue = self._queue()
        closed = self.core_rst | ResetSignal()
        connect_lite(m, self, self.registers, ~closed)
        activity = self._engine(m, engine, queue)
        m.d.comb += [
            getattr(self.registers, name).eq(value) for name, value in self.built().items()
        ]
        self._write_codebooks(m)
        self._descriptor(m, queue)
        self._drain(m, activity)
        self._interrupt(m)
        self._status(state, queue, activity)
        self._errors(state, activity, queue.wrong)
        self._counters(state, activity)
        m.submodules.state = ResetInserter(self.drain.request)(state)
        m.submodules.engine = ResetInserter(activity.master.clear)(engine)
        return m

    def _drain(self, m: Module, activity: Activity) -> None:
        """Connect soft reset and quiesce request to the bus master."""
        drain, master, registers = self.drain, activity.master, self.registers
        m.d.comb += [
            drain.request.eq(self.core_rst | registers.control_reset),
            drain.quiesce_request.eq(self.quiesce_request),
            drain.open.eq(master.open),
            master.hold.eq(drain.hold),
            master.drain.eq(drain.drain),
            self.quiesce_done.eq(drain.quiet),
            self.live.eq(~drain.draining),
            registers.reset.eq(drain.request),
        ]

    @abc.abstractmethod
    def _queue(self) -> Any:
        """Return the queue of descriptors (:mod:`cassandra_spec.rtl.dma.descriptors`)."""

    @abc.abstractmethod
    def _engine(self, m: Module, engine: Module, queue: Any) -> Activity:
        """Build everything behind the queue, up to the flat ports.

        What a soft reset resets goes into ``engine``, the bus master and the ends of streams into
        ``m``.
        """

    @abc.abstractmethod
    def _describe(self, m: Module, descriptor: data.View, checks: Sequence[RegionCheck]) -> Value:
        """Fill the regions to be checked into a descriptor; return 1 if it is legal."""

    @abc.abstractmethod
    def _built(self) -> dict[str, int]:
        """Return the read-only fields that only this engine has, and their values."""

    def built(self) -> dict[str, int]:
        """Return the read-only fields that describe the configuration, by ``REGISTER_FIELD``."""
        config, engine = self._bus, self._bus.engine
        master = {"decode": "fetch", "encode": "store"}[self.top]
        return {
            "id_value": ID,
            "version_major": VERSION[0],
            "version_minor": VERSION[1],
            "version_patch": VERSION[2],
            "version_encodes": self.top == "encode",
            f"{engine.kind}_lanes": engine.lanes,
            f"{engine.kind}_schemes": sum(1 << SCHEMES.index(name) for name in engine.schemes),
            f"{engine.kind}_window": engine.window,
            f"{engine.kind}_codebook": engine.codebook,
            f"{master}_bus": config.bus,
            f"{master}_queue": config.queue,
            f"{master}_books": config.books,
            f"{master}_superblock": engine.superblock // CACHE_BLOCK,
            **self._built(),
        }

    def _write_codebooks(self, m: Module) -> None:
        registers, codebooks = self.registers, self.codebooks
        m.d.comb += [
            codebooks.write.eq(registers.codebook_written),
            codebooks.slot.eq(registers.codebook_slot),
            codebooks.entry.eq(registers.codebook_entry),
            codebooks.exponent.eq(registers.codebook_exponent),
            codebooks.last.eq(registers.codebook_last),
            codebooks.empty.eq(registers.codebook_empty),
        ]

    def _read_codebook(self, m: Module, loader: CodebookLoader | Channel, place: int) -> None:
        """Give a loader read port ``place`` of the codebooks, and tell it which slot is written."""
        codebooks = self.codebooks
        drive(m, loader, codebooks, "ends", "slot")
        m.d.comb += [
            codebooks.read_slot[place].eq(loader.read_slot),
            codebooks.read_entry[place].eq(loader.read_entry),
            loader.exponent.eq(codebooks.read_exponent[place]),
            loader.written.eq(codebooks.write),
        ]

    def _descriptor(self, m: Module, queue: Any) -> None:
        """Make a descriptor of the registers at START, if it is legal."""
        registers = self.registers
        descriptor = Signal.like(queue.descriptors.payload)
        command = descriptor.order.command
        checks = [RegionCheck(self._bus) for _ in REGIONS]
        for name, check in zip(REGIONS, checks, strict=True):
            m.submodules[f"check_{name}"] = check
            low, high = (
                getattr(registers, f"{name}_base_{part}_value") for part in ("low", "high")
            )
            m.d.comb += [
                check.base.eq(Cat(low, high)),
                check.length.eq(getattr(registers, f"{name}_length_value")),
            ]
        for name in self.commands:
            for field in names_of(name):
                m.d.comb += command[field].eq(getattr(registers, f"{name}_{field}"))
        pushed, good = registers.start_push, Signal()
        kept = [getattr(registers, f"{name}_intact") for name in guarded_of(self.top)]
        m.d.comb += [
            *(descriptor.order[name].eq(slot) for name, slot in self._slots(queue).items()),
            self.intact.eq(Cat(~registers.unsound, *kept).all()),
            good.eq(
                self.intact
                & self._has_codebooks(queue, command)
                & self._describe(m, descriptor, checks)
            ),
            queue.descriptors.payload.eq(descriptor),
            queue.descriptors.valid.eq(pushed & good),
            queue.enable.eq(registers.control_enable),
            queue.drop.eq(registers.control_drop),
            registers.error_descriptor_set.eq(pushed & ~good & self.intact),
            registers.error_overflow_set.eq(pushed & good & registers.status_full),
        ]

    def _slots(self, queue: Any) -> dict[str, Value]:
        """Return the codebook slots that an order names."""
        slots = {"slot": self.registers.book_slot, "pruned_slot": self.registers.book_pruned}
        named = queue.descriptors.payload.order.shape().members
        return {name: slot for name, slot in slots.items() if name in named}

    def _has_codebooks(self, queue: Any, command: data.View) -> Value:
        """Return 1 if the codebooks that a command needs are defined."""
        if not self._bus.engine.has("unary"):
            return Const(1, 1)
        slots, defined = self._slots(queue), Array(self.codebooks.defined)
        found = defined[slots["slot"]]
        if "pruned_slot" in slots:
            found &= ~(command.coded & command.target) | defined[slots["pruned_slot"]]
        return ~(command.scheme == SCHEMES.index("unary")) | found

    def _status(self, m: Module, queue: Any, activity: Activity) -> None:
        registers = self.registers
        was_busy = Signal()
        m.d.sync += was_busy.eq(self.busy)
        m.d.comb += [
            self.busy.eq(
                (activity.flying != 0) | (queue.waiting != 0) | activity.pending | ~self.live
            ),
            registers.status_busy.eq(self.busy),
            registers.status_full.eq(~queue.descriptors.ready | ~self.live),
            registers.status_draining.eq(self.drain.draining),
            registers.status_open.eq(activity.master.open),
            registers.status_quiet.eq(self.drain.quiet),
            registers.status_discards.eq(activity.discards),
            registers.outstanding_value.eq(activity.master.owed),
            registers.status_waiting.eq(queue.waiting),
            registers.status_flying.eq(activity.flying),
            registers.irq_segment_set.eq(activity.done & self.live),
            registers.irq_idle_set.eq(was_busy & ~self.busy),
        ]

    def _interrupt(self, m: Module) -> None:
        """Drive ``irq``, which falls two cycles after a write, or one after ``core_rst``."""
        registers = self.registers
        waits = Cat(
            getattr(registers, f"irq_{name}") & getattr(registers, f"irq_enable_{name}")
            for name in names_of("irq")
        )
        m.d.sync += self.irq.eq(waits.any() & ~self.core_rst)

    def _errors(self, m: Module, activity: Activity, closed: Value) -> None:
        """Record sticky causes, the first flagged segment and the first failed burst."""
        registers, faults = self.registers, activity.faults
        valid, fault = Signal(len(faults)), Signal.like(faults[0])
        m.d.comb += valid.eq(activity.fault_valid & self.live.replicate(len(faults)))
        for place in reversed(range(len(faults))):
            with m.If(valid[place]):
                m.d.comb += fault.eq(faults[place])
        causes = {
            **{name: seen & self.live for name, seen in activity.causes.items()},
            "slave": valid.any() & ~fault.decode,
            "decode": valid.any() & fault.decode,
            "guard": ~self.intact | ((closed | activity.wrong) & self.live),
            "stray": activity.master.stray,
        }
        every = (getattr(registers, f"error_{name}_set") for name in names_of("error"))
        m.d.comb += [
            *(getattr(registers, f"error_{name}_set").eq(seen) for name, seen in causes.items()),
            registers.irq_error_set.eq(Cat(every).any()),
        ]
        flagged = activity.done & activity.flagged & self.live
        self._note(m, flagged, {"error_segment_value": self.number})
        address = fault.address << self._bus.word_bits
        halves = {"error_address_low_value": address[:32], "error_address_high_value": address[32:]}
        self._note(m, valid.any(), halves)

    def _note(self, m: Module, event: Value, sources: dict[str, Value]) -> None:
        """Load registers from their sources at the first event after ERROR was written."""
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

    def _counters(self, m: Module, activity: Activity) -> None:
        """Count what happens; a counter knows it a cycle later than the segments' number."""
        registers = self.registers
        for name, value in {"cycles": self.busy, **activity.steps}.items():
            step = Signal.like(value, name=f"step_{name}")
            count = Signal(64, name=f"count_{name}")
            m.d.sync += [step.eq(value), count.eq(count + step)]
            with m.If(registers.control_clear):
                m.d.sync += [step.eq(0), count.eq(0)]
            m.d.comb += [
                getattr(registers, f"count_{name}_low_value").eq(count[:32]),
                getattr(registers, f"count_{name}_high_value").eq(count[32:]),
            ]
        number = Mux(registers.control_clear, 0, self.number + (activity.done & self.live))
        m.d.sync += self.number.eq(number)
        m.d.comb += registers.count_segments_value.eq(self.number)
