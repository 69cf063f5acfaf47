"""Soft resets and quiet buses: at any cycle, bus masters keep AXI's rules and come to an end."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from amaranth.hdl import Assert, Assume, Cat, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import REGIONS, DmaConfig
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.rtl.dma.drain import Drain
from cassandra_spec.rtl.dma.encoder_dma import CassandraEncoderDma
from cassandra_spec.rtl.dma.read_master import ReadMaster, _Region
from cassandra_spec.rtl.dma.write_master import RegionStore, WriteMaster
from cassandra_spec.verif.formal.harness import Around, assume_holds, pass_on
from cassandra_spec.verif.formal.netlist import Bit, Netlist
from cassandra_spec.verif.formal.prover import Claim
from cassandra_spec.verif.formal.store import CONFIG

READS = DmaConfig(decoder=DecoderConfig(lanes=8), bus=64, burst=128, buffer=128, address=32)
END = 3
"""Cycles after the last answer of memory within which a reset ends."""


class Drained(wiring.Component):
    """A bus master with its :class:`Drain`; requests may come in any cycle."""

    def __init__(self, master: ReadMaster | WriteMaster) -> None:
        self.master, self.config = master, master.config
        kept = {n: p for n, p in master.signature.members.items() if n not in ("hold", "drain")}
        requests = dict.fromkeys(("request", "quiesce_request"), In(1))
        super().__init__({**kept, **requests, "quiet": Out(1), "draining": Out(1)})

    def elaborate(self, platform: object) -> Module:
        """Build both and the wires between them."""
        m = Module()
        m.submodules.master = master = self.master
        m.submodules.control = control = Drain()
        m.d.comb += [
            control.request.eq(self.request),
            control.quiesce_request.eq(self.quiesce_request),
            control.open.eq(master.open),
            master.hold.eq(control.hold),
            master.drain.eq(control.drain),
            self.quiet.eq(control.quiet),
            self.draining.eq(control.draining),
        ]
        pass_on(m, self, master)
        return m


class _Ending(Around):
    """Resets and quiet phases, beside counts of what memory owes, made from the port alone."""

    part: Drained

    def conclude(self, m: Module, *, offers: Value, owes: Value) -> None:
        """Assert when a reset ends, and that nothing moves in a quiet phase.

        ``offers``: an address or a word waits for memory. ``owes``: memory owes an answer.
        """
        part, still, was = self.part, Signal(range(END + 2)), Signal()
        idle = ~offers & ~owes
        m.d.sync += [
            still.eq(Mux(part.draining & ~part.request & idle, still + 1, 0)),
            was.eq(part.draining),
        ]
        with m.If(~ResetSignal()):
            m.d.comb += [
                Assert(still < END),
                Assert(~(was & ~part.draining) | idle),
                Assert(~part.quiet | idle),
            ]


class ReadsEnd(_Ending):
    """The read master with regions that ask for any burst."""

    def __init__(self) -> None:
        super().__init__(Drained(ReadMaster(READS)))

    def claims(self, m: Module) -> None:
        """Assert the end of resets, if memory answers only what was asked for."""
        part = self.part
        ar, debts = part.ar, []
        for place in range(READS.regions):
            debt = Signal(range(READS.depth + 1), name=f"debt_{place}")
            asks = ar.valid & ar.ready & (ar.payload.id == place)
            pays = part.r_valid & (part.r.id == place)
            words = Mux(asks, ar.payload.burst.words, 0)
            m.d.sync += debt.eq(debt + words - pays)
            m.d.comb += [Assume(~pays | (debt != 0)), Assume(debt + words <= READS.depth)]
            debts.append(debt)
        begins, waited, was = Signal(), Signal(), Signal()
        m.d.sync += [waited.eq(ar.valid & ~ar.ready), was.eq(part.draining)]
        m.d.comb += begins.eq(ar.valid & ~waited)
        with m.If(~ResetSignal()):
            m.d.comb += [Assert(~(was & part.draining & begins)), Assert(~part.stray)]
        self.conclude(m, offers=ar.valid, owes=Cat(debts).any())


class WritesEnd(_Ending):
    """The write master with regions that have any burst, whose words may fail to come."""

    def __init__(self) -> None:
        super().__init__(Drained(WriteMaster(CONFIG)))

    def claims(self, m: Module) -> None:
        """Assert the end of resets, if memory answers only bursts that were written."""
        part = self.part
        aw, w, b = part.aw, part.w, part.b
        addressed, written, identity = Signal(), Signal(), Signal()  # of the burst at work
        now_addressed, now_written = Signal(), Signal()
        m.d.comb += [
            now_addressed.eq(addressed | (aw.valid & aw.ready)),
            now_written.eq(written | (w.valid & w.ready & w.payload.last)),
        ]
        complete = now_addressed & now_written
        m.d.sync += [
            addressed.eq(now_addressed & ~complete),
            written.eq(now_written & ~complete),
        ]
        with m.If(aw.valid):
            m.d.sync += identity.eq(aw.payload.id)
        number, debts = Mux(aw.valid, aw.payload.id, identity), []
        for place in range(len(REGIONS)):
            debt = Signal(range(CONFIG.outstanding + 1), name=f"debt_{place}")
            adds = complete & (number == place)
            offered = b.valid & (b.payload.id == place)
            m.d.sync += debt.eq(debt + adds - (offered & b.ready))
            m.d.comb += [
                Assume(~offered | (debt != 0)),
                Assume(~adds | (debt != CONFIG.outstanding)),
            ]
            debts.append(debt)
        with m.If(~ResetSignal()):
            m.d.comb += [Assert(~part.stray), Assert(~(part.draining & b.valid) | b.ready)]
        self.conclude(m, offers=aw.valid | w.valid, owes=Cat(debts).any())


def _legal_region(m: Module, region: _Region) -> None:
    """Assume that a burst has words, and no more than the longest."""
    bursts = region.bursts
    words = bursts.payload.words
    m.d.comb += Assume((words != 0) & (words <= READS.longest))


def _legal_store(m: Module, region: RegionStore) -> None:
    """Assume that bursts keep the rule of streams and have a legal length."""
    bursts = region.bursts
    assume_holds(m, bursts.valid, bursts.ready, bursts.payload, "bursts")
    words = bursts.payload.words
    m.d.comb += Assume((words != 0) & (words <= CONFIG.longest))


_SHELL = (
    r"irq|reset_control\.(?:draining|quiet)",
    # the register port: an access that is at work, and its response
    r"registers\.(?:(?:write|read)_\w+|word|[br]__\w+)",
    r"reads\.(?:beat|valid|owed|latest)",
    r"reads\.(?:owed_\d+)\..*",
    r"reads\.address\..*",
    r"(?:store|store\.master)\.(?:address|course|owed_\d+)\..*",
    r"(?:store|store\.master)\.(?:blank|owed)",
    r"out\.(?:values__\w+|inside|closing|counts)",
    r"source\.(?:inside|discards)",
)


def kept_by_soft_reset(netlist: Netlist, shell: re.Pattern[str]) -> list[str]:
    """Return flip-flops outside ``shell`` that ``rst`` resets and a soft reset does not.

    The input of each other one must come from a multiplexer that ``rst`` switches, and, in front of
    it, from one that the request or the drain switches to the initial state.
    """
    initial, names = netlist.initial(), _names(netlist)
    (reset,) = netlist.ports["rst"]["bits"]
    by_reset = _muxes(netlist, {reset})
    switches = {
        bit
        for name, net in netlist.names.items()
        if re.fullmatch(r"reset_control\.request|(?:reads|store)\.clear", name)
        for bit in net["bits"]
    }
    by_drain = _muxes(netlist, switches)
    wrong = set()
    for cell in netlist.cells.values():
        if cell["type"] != "$dff":
            continue
        pins = cell["connections"]
        for d, q in zip(pins["D"], pins["Q"], strict=True):
            if by_reset.get(d, (q,))[0] == q:  # data without a reset, or a constant
                continue
            to = by_drain.get(by_reset[d][0], (None, None))[1]
            if to != initial.get(q, "x") and not any(shell.fullmatch(n) for n in names[q]):
                wrong.add(max(names[q], key=len))
    return sorted(wrong)


def _names(netlist: Netlist) -> dict[Bit, list[str]]:
    found: dict[Bit, list[str]] = {}
    for name, net in netlist.names.items():
        for bit in net["bits"]:
            found.setdefault(bit, []).append(name)
    return found


def _muxes(netlist: Netlist, switches: set[Bit]) -> dict[Bit, tuple[Bit, Bit]]:
    """Map the outputs of multiplexers that a bit switches to their inputs when it is 0 and 1."""
    found: dict[Bit, tuple[Bit, Bit]] = {}
    for cell in netlist.cells.values():
        pins = cell["connections"]
        if cell["type"] == "$mux" and pins["S"][0] in switches:
            pairs = zip(pins["A"], pins["B"], strict=True)
            found.update(zip(pins["Y"], pairs, strict=True))
    return found


_SHELL_NAMES = re.compile("|".join(_SHELL))


def _kept(text: str) -> list[str]:
    return kept_by_soft_reset(Netlist.of(text), _SHELL_NAMES)


_FREE: Mapping[type[wiring.Component], Sequence[str]] = {_Region: ("bursts",)}
_TOPS: dict[str, Any] = {
    "dma.soft_reset": functools.partial(
        CassandraDma, DmaConfig(decoder=DecoderConfig(lanes=8), address=32)
    ),
    "encoder_dma.soft_reset": functools.partial(CassandraEncoderDma, CONFIG),
}

CLAIMS = (
    Claim(
        name="drain.reads",
        what="A soft reset of the decoder's DMA at any cycle begins no burst, and ends when memory "
        f"owes no beat, at most {END} cycles after its last one; while quiesce_done is set no "
        "burst is open; a beat that is owed is never called stray (bursts free).",
        design=ReadsEnd,
        free=_FREE,
        watches={_Region: _legal_region},
        fast=True,
    ),
    Claim(
        name="drain.writes",
        what="A soft reset of the store at any cycle completes the burst that has begun, takes "
        f"each response at once, and ends when memory owes none, at most {END} cycles after its "
        "last one; while quiesce_done is set no burst is open (bursts and words free).",
        design=WritesEnd,
        method="corresponding",
        free={RegionStore: ("bursts", "beats")},
        watches={RegionStore: _legal_store},
        fast=True,
    ),
    *(
        Claim(
            name=name,
            what="A soft reset puts every flip-flop into its initial state, but those of the "
            "register port, of open bursts and of the packets at the port.",
            design=design,
            method="structural",
            check=_kept,
        )
        for name, design in _TOPS.items()
    ),
)
