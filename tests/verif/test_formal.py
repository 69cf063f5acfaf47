"""Proofs: what is false is refuted, what is true is proved, and the fast claims hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from amaranth.hdl import Assert, Assume, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.formal import prover
from cassandra_spec.verif.formal.__main__ import main
from cassandra_spec.verif.formal.encoder import Indifferent
from cassandra_spec.verif.formal.harness import Around, level_of
from cassandra_spec.verif.formal.netlist import Netlist, not_reset
from cassandra_spec.verif.formal.prover import Claim, prove
from cassandra_spec.verif.formal.registry import claims
from cassandra_spec.verif.formal.structure import waiting_streams, wrong_paths
from tests.marks import slow

needs_tools = pytest.mark.skipif(
    bool(prover.missing_tools()), reason="Yosys is not on PATH (Debian: apt install yosys)"
)


SLOW = ("bus.writes", "encoder.blank", "drain.writes")
"""Claims of a quarter of a minute, about blocks that the suite of the encoder's DMA simulates."""
FAST = [slow(one.name) if one.name in SLOW else one.name for one in claims() if one.fast]


class Counter(wiring.Component):
    """Counts steps up to ``top``; asserts that it never reaches ``never``."""

    def __init__(self, top: int, never: int, *, calm: bool = False) -> None:
        self.top = top
        self.never = never
        self.calm = calm
        super().__init__({"step": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = Signal(8)
        with m.If(self.step & (count < self.top)):
            m.d.sync += count.eq(count + 1)
        m.d.comb += Assert(count != self.never)
        if self.calm:
            m.d.comb += Assume(~self.step)
        return m


class Sum(wiring.Component):
    """Asserts that a sum is never ``never``."""

    def __init__(self, never: int) -> None:
        self.never = never
        super().__init__({"a": In(4), "b": In(4)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += Assert(self.a + self.b != self.never)
        return m


class Silent(wiring.Component):
    def __init__(self) -> None:
        super().__init__({})

    def elaborate(self, platform: object) -> Module:
        return Module()


class Bucket(wiring.Component):
    """Counts items that are put in and taken out."""

    def __init__(self, *, careful: bool) -> None:
        self.careful = careful
        super().__init__({"put": In(1), "take": In(1), "clear": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        level = Signal(3)
        taken = self.take & (level > 0) if self.careful else self.take
        put = self.put & (level < 5)
        m.d.sync += level.eq(level + put - taken)
        with m.If(self.clear):
            m.d.sync += level.eq(0)
        level_of(m, "bucket", room=5, put=put, taken=taken, clear=self.clear)
        return m


def verdict(design: wiring.Component, method: prover.Method, depth: int = 0) -> str:
    claim = Claim(name="test.it", what="-", design=lambda: design, method=method, depth=depth)
    return prove(claim).verdict


@needs_tools
def test_what_is_false_is_refuted_and_what_is_true_is_proved() -> None:
    assert verdict(Sum(31), "combinational") == "proved"
    assert verdict(Sum(30), "combinational") == "refuted"
    assert verdict(Sum(31), "rewriting") == "proved"
    assert verdict(Sum(30), "rewriting") == "refuted"
    assert verdict(Counter(9, 10), "reachable") == "proved"
    assert verdict(Counter(9, 9), "reachable") == "refuted"
    assert verdict(Counter(9, 9, calm=True), "reachable") == "proved"


@needs_tools
def test_any_number_of_cycles_by_induction_and_by_correspondence() -> None:
    assert verdict(Counter(9, 10), "inductive", 2) == "proved"
    assert verdict(Counter(9, 9), "inductive", 2) == "undecided"  # reached later, not excluded
    assert verdict(Counter(9, 9), "inductive", 12) == "refuted"
    assert verdict(Counter(9, 10), "corresponding") == "proved"
    assert verdict(Counter(9, 9), "corresponding") == "refuted"


class Hasty(wiring.Component):
    """Offers something: at once, or after it has seen ``ready`` (in the same cycle, if asked)."""

    def __init__(self, waits: str) -> None:
        self.waits = waits
        super().__init__({"items": Out(stream.Signature(1))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        seen = Signal()
        m.d.sync += seen.eq(seen | self.items.ready)
        offers = {"nothing": Const(1), "earlier": seen, "now": self.items.ready}
        m.d.comb += self.items.valid.eq(offers[self.waits])
        return m


@needs_tools
@pytest.mark.parametrize("waits", ["nothing", "earlier", "now"])
def test_valid_that_waits_for_ready_is_found(waits: str) -> None:
    """In the same cycle in the netlist, in later ones by two designs side by side."""
    later = Claim(
        name="test.it",
        what="-",
        design=lambda: Indifferent(lambda: Hasty(waits)),
        method="corresponding",
    )
    assert (prove(later).verdict == "proved") == (waits != "earlier")
    now = Claim(
        name="test.it",
        what="-",
        design=lambda: Hasty(waits),
        method="structural",
        check=lambda text: waiting_streams(Netlist.of(text)),
    )
    assert (prove(now).verdict == "proved") == (waits != "now")


class Reservoir(Around):
    """A tap inside a basin that is empty is watched from outside, ``when`` asked."""

    def __init__(self, when: str) -> None:
        self.when = when
        super().__init__(Basin())

    def claims(self, m: Module) -> None:
        tap = self.block("tap")
        when = {"always": Const(1, 1), "open": tap.open, "shut": ~tap.open}[self.when]
        level_of(m, "tap", room=3, put=0, taken=tap.open, clear=Const(0, 1), when=when)


class Tap(wiring.Component):
    def __init__(self) -> None:
        super().__init__({"open": In(1)})

    def elaborate(self, platform: object) -> Module:
        return Module()


class Basin(wiring.Component):
    def __init__(self) -> None:
        super().__init__({"open": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.tap = tap = Tap()
        m.d.comb += tap.open.eq(self.open)
        return m


@needs_tools
@pytest.mark.parametrize(("when", "found"), [("always", True), ("open", True), ("shut", False)])
def test_a_block_inside_is_watched_when_asked(when: str, found: bool) -> None:
    """The first cycle in which the tap is open takes too much, because the queue stays empty."""
    claim = Claim(
        name="test.it", what="-", design=lambda: Reservoir(when), method="bounded", depth=1
    )
    assert (prove(claim).verdict == "refuted") == found


@needs_tools
def test_a_bound_is_as_long_as_it_says() -> None:
    # The counter holds 9 in the tenth cycle at the earliest.
    assert verdict(Counter(200, 9), "bounded", 9) == "proved"
    assert verdict(Counter(200, 9), "bounded", 10) == "refuted"


@needs_tools
def test_levels_are_watched() -> None:
    assert verdict(Bucket(careful=True), "reachable") == "proved"
    assert verdict(Bucket(careful=False), "reachable") == "refuted"


@needs_tools
@pytest.mark.parametrize(
    ("design", "method", "message"),
    [
        (Silent, "combinational", "design must assert something"),
        (lambda: Counter(1, 2), "combinational", "design must have no state"),
    ],
)
def test_claims_that_say_nothing_are_refused(
    design: type[wiring.Component], method: prover.Method, message: str
) -> None:
    with pytest.raises(CassandraError, match=message):
        prove(Claim(name="test.it", what="-", design=design, method=method))


def test_absent_tools_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([]) == 2
    with pytest.raises(CassandraError, match="apt install yosys"):
        prove(claims()[0])


def test_names_are_checked() -> None:
    assert len({claim.name for claim in claims()}) == len(claims())
    assert main(["no_such_claim", "--list"]) == 2
    assert main(["zero_counter", "--list"]) == 0


class Registers(wiring.Component):
    """``y`` is a register, ``z`` a wire; the register may have no reset."""

    def __init__(self, *, reset: bool) -> None:
        self.reset = reset
        super().__init__({"a": In(2), "y": Out(2), "z": Out(2)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        state = Signal(2, init=2, reset_less=not self.reset)
        m.d.sync += state.eq(self.a)
        m.d.comb += [self.y.eq(state), self.z.eq(state ^ self.a)]
        return m


@needs_tools
def test_flip_flops_without_reset_and_paths_through_are_found() -> None:
    def wrong(design: wiring.Component, check: Callable[[Netlist], list[str]]) -> list[str]:
        claim = Claim(
            name="test.it",
            what="-",
            design=lambda: design,
            method="structural",
            check=lambda text: check(Netlist.of(text)),
        )
        outcome = prove(claim)
        assert (outcome.verdict == "proved") == (outcome.log == "")
        return outcome.log.splitlines()

    assert wrong(Registers(reset=True), not_reset) == []
    assert len(wrong(Registers(reset=False), not_reset)) == 1
    data = re.compile("state")
    assert wrong(Registers(reset=False), lambda netlist: not_reset(netlist, data)) == []
    paths = wrong(Registers(reset=True), lambda netlist: wrong_paths(netlist, {}))
    assert paths == ["z depends on a"]


class Leaf(wiring.Component):
    def __init__(self) -> None:
        super().__init__({"a": In(2), "y": Out(2), "z": Out(2)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [self.y.eq(self.a), self.z.eq(self.a)]
        return m


class Same(wiring.Component):
    """Asserts that a leaf hands on what it gets, by one of its outputs."""

    def __init__(self, output: str) -> None:
        self.output = output
        super().__init__({"a": In(2)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.leaf = leaf = Leaf()
        m.d.comb += [leaf.a.eq(self.a), Assert(getattr(leaf, self.output) == self.a)]
        return m


@needs_tools
def test_outputs_that_are_free_may_be_anything_and_others_are_not() -> None:
    def proved(output: str) -> bool:
        claim = Claim(
            name="test.it",
            what="-",
            design=lambda: Same(output),
            method="reachable",
            free={Leaf: ("z",)},
        )
        return prove(claim).verdict == "proved"

    assert proved("y")
    assert not proved("z")


@needs_tools
@pytest.mark.parametrize("name", FAST)
def test_a_fast_claim_holds(name: str) -> None:
    (claim,) = claims([name])
    outcome = prove(claim)
    assert outcome.verdict == "proved", outcome.log[-2000:]


def test_the_document_has_a_line_for_each_block() -> None:
    text = (Path(__file__).parents[2] / "docs/hardware/verification.md").read_text(encoding="utf-8")
    lines = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    for block in {claim.name.split(".")[0] for claim in claims()}:
        assert any(f"`{block}`" in line for line in lines), block
