"""The rules of AXI as gateware, beside a naive list of them, on traffic with one wrong wire."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter, defaultdict, deque
from typing import Any

import pytest
from amaranth.hdl import ClockDomain, Module
from amaranth.lib import wiring
from amaranth.sim import Simulator

from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.axi import lite_ports
from cassandra_spec.rtl.dma.config import PAGE, DmaConfig, StoreConfig
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.verif.library.axi import (
    LiteRules,
    ReadRules,
    Ruled,
    Rules,
    WriteRules,
    rules_of,
)
from tests.rtl.simulation import run

Wires = dict[str, int]
READS = DmaConfig(decoder=DecoderConfig(lanes=8), burst=128, buffer=128, address=32)
WRITES = StoreConfig(encoder=EncoderConfig(lanes=8), burst=128, buffer=128, outstanding=2)


class Naive:
    """Handshakes; what else there is, by kind of port."""

    def __init__(self, channels: tuple[str, ...], payload: dict[str, tuple[str, ...]]) -> None:
        self.channels, self.payload = channels, payload
        self.waiting: dict[str, tuple[int, ...]] = {}
        self.first = True

    def cycle(self, wires: Wires) -> set[str]:
        """Return rules that this cycle breaks."""
        broken = set()
        for channel in self.channels:
            valid = wires[f"{channel}valid"]
            content = tuple(wires[name] for name in self.payload[channel])
            before = self.waiting.pop(channel, None)
            if before is not None and (not valid or content != before):
                broken.add(f"{channel}_stays")
            if valid and self.first:
                broken.add(f"{channel}_reset")
            if valid and not wires[f"{channel}ready"]:
                self.waiting[channel] = content
        self.first = False
        return broken | self.others(wires)

    def others(self, wires: Wires) -> set[str]:
        raise NotImplementedError


def moves(wires: Wires, channel: str) -> bool:
    return bool(wires[f"{channel}valid"] and wires[f"{channel}ready"])


def wrong_burst(wires: Wires, channel: str, bus: int) -> set[str]:
    """Return rules of a burst that an address channel breaks, in bytes."""
    if not wires[f"{channel}valid"]:
        return set()
    first = wires[f"{channel}addr"]
    last = first + (wires[f"{channel}len"] + 1) * bus - 1
    rules = {
        "incr": wires[f"{channel}burst"] == 1,
        "size": 1 << wires[f"{channel}size"] == bus,
        "aligned": first % bus == 0,
        "page": first // PAGE == last // PAGE,
    }
    return {f"{channel}_{name}" for name, kept in rules.items() if not kept}


class NaiveReads(Naive):
    """Bursts by ID."""

    def __init__(self, **payload: Any) -> None:
        super().__init__(**payload)
        self.bursts: dict[int, deque[int]] = defaultdict(deque)  # beats that are still to come

    def others(self, wires: Wires) -> set[str]:
        broken = wrong_burst(wires, "m_axi_ar", READS.bus)
        queue = self.bursts[wires["m_axi_rid"]]
        asking = self.bursts[wires["m_axi_arid"]]
        full = len(asking) == READS.depth
        if wires["m_axi_rvalid"]:
            broken |= set() if queue else {"m_axi_r_asked"}
            ends = bool(queue) and queue[0] == 1
            broken |= set() if not queue or wires["m_axi_rlast"] == ends else {"m_axi_r_last"}
            broken |= {"m_axi_r_resp"} if wires["m_axi_rresp"] == 1 else set()
        if moves(wires, "m_axi_r") and queue:
            queue[0] -= 1
            if not queue[0]:
                queue.popleft()
        if moves(wires, "m_axi_ar"):
            broken |= {"m_axi_ar_open"} if full else set()
            asking.append(wires["m_axi_arlen"] + 1)
        return broken


class NaiveWrites(Naive):
    """Bursts whose words come, and those that wait for their response."""

    def __init__(self, **payload: Any) -> None:
        super().__init__(**payload)
        self.bursts: deque[list[int]] = deque()  # words to come, and ID
        self.owed: Counter[int] = Counter()
        self.known = False

    def others(self, wires: Wires) -> set[str]:
        broken = wrong_burst(wires, "m_axi_aw", WRITES.bus)
        owed = self.owed[wires["m_axi_bid"]]
        if wires["m_axi_awvalid"] and not self.known:
            if len(self.bursts) == 2 * WRITES.outstanding:
                broken.add("m_axi_aw_open")
            self.bursts.append([wires["m_axi_awlen"] + 1, wires["m_axi_awid"]])
        self.known = bool(wires["m_axi_awvalid"] and not wires["m_axi_awready"])
        if wires["m_axi_wvalid"]:
            ends = bool(self.bursts) and self.bursts[0][0] == 1
            broken |= set() if self.bursts else {"m_axi_w_asked"}
            if self.bursts and wires["m_axi_wlast"] != ends:
                broken.add("m_axi_w_last")
        if wires["m_axi_bvalid"]:
            broken |= set() if owed else {"m_axi_b_asked"}
            broken |= {"m_axi_b_resp"} if wires["m_axi_bresp"] == 1 else set()
        if moves(wires, "m_axi_b"):
            self.owed[wires["m_axi_bid"]] -= 1
        if moves(wires, "m_axi_w") and self.bursts:
            self.bursts[0][0] -= 1
            if not self.bursts[0][0]:
                self.owed[self.bursts.popleft()[1]] += 1
        return broken


class NaiveLite(Naive):
    """Accesses that were taken and not answered."""

    def __init__(self, **payload: Any) -> None:
        super().__init__(**payload)
        self.open: Counter[str] = Counter()

    def others(self, wires: Wires) -> set[str]:
        broken = set()
        for channel, asked in {"b": ("aw", "w"), "r": ("ar",)}.items():
            if wires[f"s_axil_{channel}valid"]:
                known = all(self.open[name] > 0 for name in asked)
                broken |= set() if known else {f"s_axil_{channel}_asked"}
                if wires[f"s_axil_{channel}resp"] == 1:
                    broken.add(f"s_axil_{channel}_resp")
            for name in asked:
                self.open[name] -= moves(wires, f"s_axil_{channel}")
                self.open[name] += moves(wires, f"s_axil_{name}")
        return broken


@dataclasses.dataclass
class Channel:
    """A channel on which legal items are offered, and how many cycles each waits for ready."""

    name: str
    rng: random.Random
    offered: Wires | None = None

    def drive(self, wires: Wires, item: Wires | None) -> bool:
        """Offer ``item``, if nothing is offered; returns whether it was taken up."""
        fresh = self.offered is None and item is not None
        if fresh:
            named = {f"{self.name}{field}": value for field, value in (item or {}).items()}
            every = {name: value for name, value in wires.items() if name.startswith(self.name)}
            self.offered = every | {name: value for name, value in named.items() if name in every}
        wires |= self.offered or {}
        wires[f"{self.name}valid"] = int(self.offered is not None)
        wires[f"{self.name}ready"] = self.rng.randrange(2)
        if self.offered is not None and wires[f"{self.name}ready"]:
            self.offered = None
        return fresh


class Traffic:
    """Wires of a port in each cycle; all rules are kept."""

    def __init__(self, rng: random.Random, kind: str) -> None:
        self.rng, self.kind = rng, kind
        self.first = True
        self.channels: dict[str, Channel] = {}
        self.bursts: dict[int, deque[int]] = defaultdict(deque)
        self.words: deque[list[int]] = deque()
        self.owed: Counter[int] = Counter()
        self.open: Counter[str] = Counter()

    def cycle(self, noise: Wires) -> Wires:
        """Return the wires, over noise where nothing is offered."""
        wires = dict(noise)
        getattr(self, f"_{self.kind}")(wires)
        self.first = False
        return wires

    def _offer(self, wires: Wires, name: str, item: Wires | None) -> bool:
        channel = self.channels.setdefault(name, Channel(name=name, rng=self.rng))
        some = not self.first and self.rng.random() < 0.7
        return channel.drive(wires, item if some else None)

    def _address(self, bus: int, ids: int, low: int) -> Wires:
        words = self.rng.choice([1, 2, self.rng.randint(1, 16)])
        place = self.rng.randrange(PAGE // bus - words + 1) * bus
        address = self.rng.randrange(1 << 18) * PAGE + place
        fields = {"id": self.rng.randrange(ids), "addr": address, "len": words - 1}
        return fields | {"burst": 1, "size": low}

    def _reads(self, wires: Wires) -> None:
        item = self._address(READS.bus, READS.regions, READS.word_bits)
        if len(self.bursts[item["id"]]) >= READS.depth - 1:
            item = None  # type: ignore[assignment]
        open_ids = [identity for identity, queue in self.bursts.items() if queue]
        beat = None
        if open_ids:
            identity = self.rng.choice(open_ids)
            last = int(self.bursts[identity][0] == 1)
            beat = {"id": identity, "last": last, "resp": self.rng.choice([0, 2, 3])}
        self._offer(wires, "m_axi_ar", item)
        if self._offer(wires, "m_axi_r", beat) and beat is not None:
            queue = self.bursts[beat["id"]]
            queue[0] -= 1
            if not queue[0]:
                queue.popleft()
        if moves(wires, "m_axi_ar"):
            self.bursts[wires["m_axi_arid"]].append(wires["m_axi_arlen"] + 1)

    def _writes(self, wires: Wires) -> None:
        item = self._address(WRITES.bus, 2, WRITES.word_bits)
        waits = len(self.words) >= 2 * WRITES.outstanding
        owed = [identity for identity, count in self.owed.items() if count]
        answer = {"id": self.rng.choice(owed), "resp": self.rng.choice([0, 2, 3])} if owed else None
        if self._offer(wires, "m_axi_b", answer) and answer is not None:
            self.owed[answer["id"]] -= 1
        if self._offer(wires, "m_axi_aw", None if waits else item):
            self.words.append([wires["m_axi_awlen"] + 1, wires["m_axi_awid"]])
        word = {"last": int(self.words[0][0] == 1)} if self.words else None
        if word is not None:
            word |= {"data": self.rng.getrandbits(64), "strb": 255}
        self._offer(wires, "m_axi_w", word)
        if moves(wires, "m_axi_w"):
            self.words[0][0] -= 1
            if not self.words[0][0]:
                self.owed[self.words.popleft()[1]] += 1

    def _lite(self, wires: Wires) -> None:
        for channel, asked in {"b": ("aw", "w"), "r": ("ar",)}.items():
            answered = all(self.open[name] > 0 for name in asked)
            answer = {"resp": self.rng.choice([0, 2, 3]), "data": 1}
            if self._offer(wires, f"s_axil_{channel}", answer if answered else None):
                self.open.subtract(asked)
            for name in asked:
                full = self.open[name] > 6
                item = {"addr": self.rng.randrange(64), "prot": 0, "data": 5, "strb": 15}
                self._offer(wires, f"s_axil_{name}", None if full else item)
                self.open[name] += moves(wires, f"s_axil_{name}")


KINDS = {
    "reads": (ReadRules(READS), NaiveReads, ("m_axi_ar", "m_axi_r")),
    "writes": (WriteRules(WRITES), NaiveWrites, ("m_axi_aw", "m_axi_w", "m_axi_b")),
    "lite": (LiteRules(), NaiveLite, tuple(f"s_axil_{n}" for n in ("aw", "w", "b", "ar", "r"))),
}
EPISODES, LONGEST = 150, 30


def widths_of(rules: Rules) -> dict[str, int]:
    return {name: len(getattr(rules, name)) for name in rules.signature.members if name != "broken"}


@pytest.mark.parametrize("kind", KINDS)
def test_broken_rules_are_those_of_the_naive_list(kind: str) -> None:
    rules, naive, channels = KINDS[kind]
    names, widths = rules.DESIGN + rules.OTHERS, widths_of(rules)
    rng = random.Random(7)
    payload = {
        channel: tuple(
            name for name in widths if name.startswith(channel) and not name.endswith("ready")
        )
        for channel in channels
    }
    m = Module()
    m.domains.sync = clock = ClockDomain()
    m.submodules.rules = rules
    seen: Counter[str] = Counter()

    def episode() -> list[tuple[Wires, set[str]]]:
        """Return cycles, and what they break: nothing, but for the last one."""
        oracle, traffic, cycles = naive(channels=channels, payload=payload), Traffic(rng, kind), []
        for _ in range(rng.choice([1, rng.randint(1, LONGEST)])):
            noise = {name: rng.getrandbits(width) for name, width in widths.items()}
            idle = {name: 0 for name in widths if name.endswith("valid")}
            cycles.append(traffic.cycle(noise | idle))
        wire = rng.choice([*widths, *(name for name in widths if name.endswith("valid"))])
        bit = 1 << rng.randrange(widths[wire])
        cycles[-1][wire] = cycles[-1][wire] ^ bit
        return [(wires, oracle.cycle(wires)) for wires in cycles]

    async def bench(ctx: Any) -> None:
        for _ in range(EPISODES * len(channels)):
            ctx.set(clock.rst, 1)
            await ctx.tick()
            ctx.set(clock.rst, 0)
            for place, (wires, broken) in enumerate(cycles := episode()):
                for name, value in wires.items():
                    ctx.set(getattr(rules, name), value)
                bits = ctx.get(rules.broken)
                found = {name for i, name in enumerate(names) if bits >> i & 1}
                assert found == broken, f"cycle {place} of {len(cycles)}: {wires}"
                assert place == len(cycles) - 1 or not broken
                seen.update(found)
                await ctx.tick()

    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert set(seen) >= set(names) - {"m_axi_ar_open", "m_axi_aw_open"}


class Hasty(wiring.Component):
    """A register port that responds when nothing was asked, or never."""

    def __init__(self, *, responds: bool) -> None:
        self.responds = responds
        super().__init__(lite_ports())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.s_axil_bvalid.eq(self.responds)
        return m


@pytest.mark.parametrize("responds", [False, True])
def test_rules_beside_a_top_see_its_wires(responds: bool) -> None:
    top, seen = Ruled(Hasty(responds=responds)), []

    async def work(ctx: Any) -> None:
        await ctx.tick()
        seen.append((ctx.get(top.lite_rules), ctx.get(top.broken)))

    run(top, work)
    assert seen == [(responds << LiteRules.DESIGN.index("s_axil_b_asked"), responds)]


def test_a_top_has_rules_for_each_of_its_axi_ports() -> None:
    assert set(rules_of(CassandraDma(READS))) == {"read_rules", "lite_rules"}
