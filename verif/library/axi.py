"""The rules of AXI4 and AXI4-Lite as gateware: which of them are broken in a cycle.

A component of rules listens to all wires of a port and drives none. Suites simulate it beside the
design (:class:`Ruled`); proofs assert the rules of the design and assume those of what it is
connected to (:mod:`cassandra_spec.verif.formal.bus`). The rules are those of the *AMBA AXI Protocol
Specification* (Arm IHI 0022), as far as the masters of this project use it: incrementing bursts of
whole, aligned bus words, no exclusive access, and no word before its address.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from amaranth.hdl import Cat, Elaboratable, Module, Mux, ResetSignal, Signal, Value, ValueLike
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.dma.axi import lite_ports, read_ports, write_ports
from cassandra_spec.rtl.dma.config import PAGE, BusConfig, DmaConfig, StoreConfig

_INCR = _EXOKAY = 0b01
_LITE_OPEN = 16  # maximum number of open accesses of a register port

Kept = dict[str, ValueLike]
"""For each rule, 1 if it is obeyed in this cycle."""


def held(m: Module, valid: ValueLike, ready: ValueLike, payload: ValueLike, name: str) -> Value:
    """Return 0 if a valid item that was not taken in the last cycle is withdrawn or has changed."""
    waiting = Signal(name=f"{name}_waiting")
    bits = Value.cast(payload)
    before = Signal(bits.shape(), name=f"{name}_before")
    offered = Value.cast(valid)
    m.d.sync += [waiting.eq(offered & ~Value.cast(ready)), before.eq(bits)]
    return ~waiting | (offered & (bits == before))


def _handshakes(*channels: str) -> tuple[str, ...]:
    return tuple(f"{channel}_{rule}" for channel in channels for rule in ("stays", "reset"))


def _bursts(channel: str) -> tuple[str, ...]:
    return tuple(f"{channel}_{rule}" for rule in ("incr", "size", "aligned", "page", "open"))


class Rules(wiring.Component):
    """Base of the rule components: inputs for the wires of a port, and one output bit per rule.

    Latency: none. Throughput: one cycle per cycle. Buffering: the state of accesses that wait for a
    response. The bits mean nothing in a cycle of reset, or after a broken rule until the next
    reset.

    Members
    -------
    every wire of the port : In
    broken : Out(number of rules)
        Bit i is 1 in a cycle that breaks rule i of ``DESIGN + OTHERS``.
    """

    DESIGN: ClassVar[tuple[str, ...]]  # rules for the design
    OTHERS: ClassVar[tuple[str, ...]]  # rules for the other side

    def __init__(self, ports: Mapping[str, Any]) -> None:
        inputs = {name: In(member.shape) for name, member in ports.items()}
        super().__init__(inputs | {"broken": Out(len(self.DESIGN + self.OTHERS))})

    def elaborate(self, platform: object) -> Module:
        """Build the rules and their state."""
        m = Module()
        kept = self._rules(m)
        bits = Cat(~Value.cast(kept[rule]).bool() for rule in self.DESIGN + self.OTHERS)
        m.d.comb += self.broken.eq(Mux(ResetSignal(), 0, bits))
        return m

    def _rules(self, m: Module) -> Kept:
        raise NotImplementedError

    def _wire(self, name: str) -> Signal:
        wire: Signal = getattr(self, name)
        return wire

    def _moves(self, channel: str) -> Value:
        """Return 1 if an item of a channel is taken in this cycle."""
        return self._wire(f"{channel}valid") & self._wire(f"{channel}ready")

    def _handshake(self, m: Module, *channels: str) -> Kept:
        """Require that an offer stays until it is taken, and that a reset ends all offers."""
        kept: Kept = {}
        after = Signal(init=1)  # the first cycle after a reset
        m.d.sync += after.eq(0)
        for channel in channels:
            valid, ready = self._wire(f"{channel}valid"), self._wire(f"{channel}ready")
            names = [name for name in self.signature.members if name.startswith(channel)]
            payload = Cat(self._wire(name) for name in names if not name.endswith("ready"))
            kept[f"{channel}_stays"] = held(m, valid, ready, payload, channel)
            kept[f"{channel}_reset"] = ~(valid & after)
        return kept

    def _burst(self, channel: str, config: BusConfig) -> Kept:
        """Require incrementing bursts of whole words within a page on an address channel."""
        address, low = self._wire(f"{channel}addr"), config.word_bits
        words = self._wire(f"{channel}len") + 1
        rules: Kept = {
            "incr": self._wire(f"{channel}burst") == _INCR,
            "size": self._wire(f"{channel}size") == low,
            "aligned": address[:low] == 0,
            "page": (address & (PAGE - 1)) + (words << low) <= PAGE,
        }
        idle = ~self._wire(f"{channel}valid")
        return {f"{channel}_{name}": idle | kept for name, kept in rules.items()}


class ReadRules(Rules):
    """The read channels of AXI4. Bursts of one ID are answered in order, by counting beats.

    At most ``config.depth`` bursts of an ID may be open: the room of its buffer in bus words.
    """

    DESIGN = (*_handshakes("m_axi_ar"), *_bursts("m_axi_ar"))
    OTHERS = (*_handshakes("m_axi_r"), "m_axi_r_asked", "m_axi_r_last", "m_axi_r_resp")

    def __init__(self, config: DmaConfig) -> None:
        self.config = config
        super().__init__(read_ports(config))

    def _rules(self, m: Module) -> Kept:
        asked, last, full = Signal(init=1), Signal(init=1), Signal()
        for identity in range(self.config.regions):
            self._follow(m, identity, asked, last, full)
        idle = ~self._wire("m_axi_rvalid")
        return {
            **self._handshake(m, "m_axi_ar", "m_axi_r"),
            **self._burst("m_axi_ar", self.config),
            "m_axi_ar_open": ~(self._moves("m_axi_ar") & full),
            "m_axi_r_asked": idle | asked,
            "m_axi_r_last": idle | last,
            "m_axi_r_resp": idle | (self._wire("m_axi_rresp") != _EXOKAY),
        }

    def _follow(self, m: Module, identity: int, asked: Signal, last: Signal, full: Signal) -> None:
        """Track the bursts of an ID, and the beats of its oldest one."""
        waiting = fifo.SyncFIFO(width=8, depth=self.config.depth)  # accesses, in order
        m.submodules[f"id_{identity}"] = waiting
        beats = Signal(8, name=f"beats_{identity}")
        chosen = self._wire("m_axi_rid") == identity
        ends = beats == waiting.r_data
        moves = self._moves("m_axi_r") & chosen
        asks = self._wire("m_axi_arid") == identity
        m.d.comb += [
            waiting.w_data.eq(self._wire("m_axi_arlen")),
            waiting.w_en.eq(self._moves("m_axi_ar") & asks),
            waiting.r_en.eq(moves & ends),
        ]
        with m.If(moves):
            m.d.sync += beats.eq(Mux(ends, 0, beats + 1))
        with m.If(chosen):
            right = self._wire("m_axi_rlast") == ends
            m.d.comb += [asked.eq(waiting.r_rdy), last.eq(~waiting.r_rdy | right)]
        with m.If(asks):
            m.d.comb += full.eq(~waiting.w_rdy)


class WriteRules(Rules):
    """The write channels of AXI4: words in the order of addresses, one response per burst.

    At most ``2 config.outstanding`` bursts may be open.
    """

    DESIGN = (*_handshakes("m_axi_aw", "m_axi_w"), *_bursts("m_axi_aw"), "m_axi_w_asked")
    DESIGN = (*DESIGN, "m_axi_w_last")
    OTHERS = (*_handshakes("m_axi_b"), "m_axi_b_asked", "m_axi_b_resp")

    def __init__(self, config: StoreConfig) -> None:
        self.config = config
        super().__init__(write_ports(config))

    def _rules(self, m: Module) -> Kept:
        idle, quiet = ~self._wire("m_axi_wvalid"), ~self._wire("m_axi_bvalid")
        some, length, identity, full = self._addresses(m)
        beats = Signal(8)
        last, moves = beats == length, self._moves("m_axi_w")
        with m.If(moves):
            m.d.sync += beats.eq(Mux(last, 0, beats + 1))
        owed = self._owed(m, moves & last, identity)
        return {
            **self._handshake(m, "m_axi_aw", "m_axi_w", "m_axi_b"),
            **self._burst("m_axi_aw", self.config),
            "m_axi_aw_open": ~full,
            "m_axi_w_asked": idle | some,
            "m_axi_w_last": idle | ~some | (self._wire("m_axi_wlast") == last),
            "m_axi_b_asked": quiet | owed,
            "m_axi_b_resp": quiet | (self._wire("m_axi_bresp") != _EXOKAY),
        }

    def _addresses(self, m: Module) -> tuple[Value, Value, Value, Value]:
        """Return the current write burst (present, length, ID), and an overflow flag."""
        waiting = fifo.SyncFIFO(width=9, depth=2 * self.config.outstanding)
        m.submodules.addresses = waiting
        offered = self._wire("m_axi_awvalid")
        known = Signal()  # the offered address was queued before
        begins = offered & ~known
        number = Cat(self._wire("m_axi_awlen"), self._wire("m_axi_awid"))
        oldest = Mux(waiting.r_rdy, waiting.r_data, number)
        done = self._moves("m_axi_w") & self._wire("m_axi_wlast")
        m.d.sync += known.eq(offered & ~self._wire("m_axi_awready"))
        at_once = done & ~waiting.r_rdy  # the only word of a new address
        m.d.comb += [
            waiting.w_data.eq(number),
            waiting.w_en.eq(begins & ~at_once),
            waiting.r_en.eq(done),
        ]
        return waiting.r_rdy | begins, oldest[:8], oldest[8], begins & ~waiting.w_rdy

    def _owed(self, m: Module, done: Value, identity: Value) -> Value:
        """Return 1 if a burst of the response's ID had its last word in an earlier cycle."""
        owed = Signal()
        for number in range(2):
            count = Signal(range(4 * self.config.outstanding), name=f"owed_{number}")
            answers = self._moves("m_axi_b") & (self._wire("m_axi_bid") == number)
            m.d.sync += count.eq(count + (done & (identity == number)) - answers)
            with m.If(self._wire("m_axi_bid") == number):
                m.d.comb += owed.eq(count != 0)
        return owed


class LiteRules(Rules):
    """A register port, AXI4-Lite: one response per access, after it was taken."""

    DESIGN = (*_handshakes("s_axil_b", "s_axil_r"), "s_axil_b_asked", "s_axil_r_asked")
    DESIGN = (*DESIGN, "s_axil_b_resp", "s_axil_r_resp")
    OTHERS = _handshakes("s_axil_aw", "s_axil_w", "s_axil_ar")

    def __init__(self) -> None:
        super().__init__(lite_ports())

    def _rules(self, m: Module) -> Kept:
        no_b, no_r = ~self._wire("s_axil_bvalid"), ~self._wire("s_axil_rvalid")
        taken = {name: self._open(m, name, "b" if name != "ar" else "r") for name in _REQUESTS}
        return {
            **self._handshake(m, *(f"s_axil_{name}" for name in (*_REQUESTS, "b", "r"))),
            "s_axil_b_asked": no_b | (taken["aw"] & taken["w"]),
            "s_axil_r_asked": no_r | taken["ar"],
            "s_axil_b_resp": no_b | (self._wire("s_axil_bresp") != _EXOKAY),
            "s_axil_r_resp": no_r | (self._wire("s_axil_rresp") != _EXOKAY),
        }

    def _open(self, m: Module, request: str, answer: str) -> Value:
        """Return 1 if an item of a channel was taken in an earlier cycle and has no answer yet."""
        count = Signal(range(_LITE_OPEN), name=f"open_{request}")
        taken, answered = self._moves(f"s_axil_{request}"), self._moves(f"s_axil_{answer}")
        m.d.sync += count.eq(count + taken - answered)
        return count != 0


_REQUESTS = ("aw", "w", "ar")


PORTS: dict[str, tuple[str, type[Rules]]] = {
    "m_axi_arvalid": ("read_rules", ReadRules),
    "m_axi_awvalid": ("write_rules", WriteRules),
    "s_axil_awvalid": ("lite_rules", LiteRules),
}
"""The output of :class:`Ruled` for the port that has this wire, and its rules."""


def rules_of(top: wiring.Component) -> dict[str, Rules]:
    """Return the rules for the AXI ports of a top, by the name of their output."""
    found = dict[str, Rules]()
    for wire, (name, kind) in PORTS.items():
        if wire in top.signature.members:
            found[name] = LiteRules() if kind is LiteRules else kind(top.config)
    return found


class Ruled(wiring.Component):
    """A top beside its rules: the top's ports, an output for each component of rules, and
    ``broken``, which is 1 in a cycle that breaks any.
    """

    def __init__(self, top: wiring.Component) -> None:
        self.top, self.rules = top, rules_of(top)
        outputs = {name: Out(len(rules.broken)) for name, rules in self.rules.items()}
        super().__init__({**top.signature.members, **outputs, "broken": Out(1)})

    def elaborate(self, platform: object) -> Elaboratable:
        """Build the top, its wires, and the rules on them."""
        m = Module()
        m.submodules.top = self.top
        for name, member in self.top.signature.members.items():
            inner, outer = getattr(self.top, name), getattr(self, name)
            driven, driver = (outer, inner) if member.flow is Out else (inner, outer)
            m.d.comb += driven.eq(driver)
        for name, rules in self.rules.items():
            m.submodules[name] = rules
            wires = [wire for wire in rules.signature.members if wire != "broken"]
            m.d.comb += [getattr(rules, wire).eq(getattr(self, wire)) for wire in wires]
            m.d.comb += getattr(self, name).eq(rules.broken)
        m.d.comb += self.broken.eq(Cat(rules.broken for rules in self.rules.values()).any())
        return m
