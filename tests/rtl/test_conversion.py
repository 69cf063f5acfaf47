"""The quick search for combinational cycles against Amaranth's own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.hdl._nir import CombinationalCycle
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.conversion import quick_cycle_check, rtlil_of
from cassandra_spec.rtl.encode.regions import EncoderRegions
from cassandra_spec.rtl.encode.types import EncoderConfig

Logic = Callable[[Module, Signal, Value], Value]


class Loop(wiring.Component):
    """An output that is a function of itself and of an input."""

    def __init__(self, logic: Logic) -> None:
        self._logic = logic
        super().__init__({"a": In(8), "b": Out(8)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.b.eq(self._logic(m, self.b, self.a))
        return m


def through_memory(m: Module, b: Signal, a: Value) -> Value:
    m.submodules.memory = table = memory.Memory(shape=8, depth=8, init=[])
    port = table.read_port(domain="comb")
    m.d.comb += port.addr.eq(b)
    return port.data


CYCLES: dict[str, Logic] = {
    "itself": lambda m, b, a: b,
    "sum": lambda m, b, a: a + b,
    "bit": lambda m, b, a: a & b,
    "shift": lambda m, b, a: a >> b[:2],
    "comparison": lambda m, b, a: b == a,
    "choice": lambda m, b, a: Mux(b[0], a, 3),
    "part": lambda m, b, a: a.bit_select(b[:2], 4),
    "matches": lambda m, b, a: b.matches("1---0000"),
    "array": lambda m, b, a: Array([a, a + 1])[b[0]],
    "memory": through_memory,
}

STRAIGHT: dict[str, Logic] = {
    "none": lambda m, b, a: a + 1,
    "bits in turn": lambda m, b, a: Cat(a[0], b[:7]) ^ a,
    "choice of bits in turn": lambda m, b, a: Mux(a[0], Cat(a[0], b[:7]), a),
    "upper from lower": lambda m, b, a: Cat(a[:4], b[:4]),
}


def message(logic: Logic, *, quick: bool) -> str | None:
    with quick_cycle_check() if quick else contextlib.nullcontext():
        try:
            rtlil.convert(Loop(logic), name="loop", emit_src=False)
        except CombinationalCycle as found:
            return str(found)
    return None


@pytest.mark.parametrize("name", CYCLES)
def test_a_cycle_is_found_and_described_as_before(name: str) -> None:
    assert message(CYCLES[name], quick=True) == message(CYCLES[name], quick=False) is not None


@pytest.mark.parametrize("name", STRAIGHT)
def test_bits_that_follow_each_other_are_no_cycle(name: str) -> None:
    assert message(STRAIGHT[name], quick=True) is None
    assert message(STRAIGHT[name], quick=False) is None


def test_the_text_is_the_same() -> None:
    design = EncoderConfig(lanes=8, codebook=16, window=2, segment=256, group=256)
    slow = rtlil.convert(EncoderRegions(design), name="regions", emit_src=False)
    assert rtlil_of(EncoderRegions(design), "regions") == slow
