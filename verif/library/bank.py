"""Many instances of small blocks in one simulation.

A :class:`Bank` puts blocks side by side: all their inputs are fields of one vector, all their
outputs of another, so that a step costs one write and one read however many blocks there are.
A suite gives each block a script, the inputs of every step and the outputs that a naive model
expects, and :func:`play` runs the scripts in lockstep.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import cocotb
from amaranth.hdl import Module, Shape
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly, Timer

Fields = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """One step of one block.

    Values are numbers, lists of array elements, or mappings of structure fields. Inputs that are
    left out are 0. Outputs that are left out, or None, may have any value.
    """

    inputs: Fields
    outputs: Fields = dataclasses.field(default_factory=dict)


Script = Iterable[Case]


def number_of(shape: Any, value: Any) -> int:
    """Return ``value`` as the bits of ``shape``; absent parts and None are 0."""
    if value is None:
        return 0
    if isinstance(value, Mapping | Sequence):
        return sum(number_of(part, value[key]) << low for key, low, part in _parts(shape, value))
    width = Shape.cast(shape).width
    if not 0 <= value < 1 << width:
        raise ValueError(f"value must be a {width}-bit number, not {value!r}")
    return int(value)


def care_of(shape: Any, value: Any) -> int:
    """Return a mask with ones in the bits of ``shape`` that ``value`` specifies."""
    if value is None:
        return 0
    if isinstance(value, Mapping | Sequence):
        return sum(care_of(part, value[key]) << low for key, low, part in _parts(shape, value))
    return (1 << Shape.cast(shape).width) - 1


def fields_of(shape: Any, number: int) -> Any:
    """Invert :func:`number_of`: return nested mappings and lists."""
    if isinstance(shape, data.ArrayLayout):
        return [fields_of(part, number >> low) for _, low, part in _all_parts(shape)]
    if isinstance(shape, data.Layout):
        return {key: fields_of(part, number >> low) for key, low, part in _all_parts(shape)}
    return number & ((1 << Shape.cast(shape).width) - 1)


def _all_parts(shape: data.Layout) -> list[tuple[Any, int, Any]]:
    return [(key, field.offset, field.shape) for key, field in shape]


def _parts(shape: data.Layout, value: Any) -> Iterator[tuple[Any, int, Any]]:
    """Yield key, place and shape of the parts of ``shape`` that ``value`` has."""
    if isinstance(value, Mapping):
        for key in value:
            yield key, shape[key].offset, shape[key].shape
        return
    parts = _all_parts(shape)
    if len(parts) != len(value):
        raise ValueError(f"value must have {len(parts)} elements, not {len(value)}")
    yield from parts


class Bank(wiring.Component):
    """Blocks behind one vector of inputs and one of outputs.

    ``blocks`` maps a name to a block. Members of streams are fields like ``words__valid``.
    """

    def __init__(self, blocks: Mapping[str, wiring.Component]) -> None:
        self.blocks = dict(blocks)
        self.inputs = data.StructLayout({n: self._layout(b, In) for n, b in self.blocks.items()})
        self.outputs = data.StructLayout({n: self._layout(b, Out) for n, b in self.blocks.items()})
        super().__init__({"stimulus": In(self.inputs), "response": Out(self.outputs)})

    @staticmethod
    def _members(block: wiring.Component, flow: wiring.Flow) -> dict[str, tuple[Any, Any]]:
        """Return shape and signal of the members with this direction, by name."""
        flat = block.signature.flatten(block)
        return {
            "__".join(map(str, path)): (member.shape, value)
            for path, member, value in flat
            if member.flow == flow
        }

    @classmethod
    def _layout(cls, block: wiring.Component, flow: wiring.Flow) -> data.StructLayout:
        members = cls._members(block, flow)
        return data.StructLayout({name: shape for name, (shape, _) in members.items()})

    def elaborate(self, platform: object) -> Module:
        """Build the blocks and the wires to their fields."""
        m = Module()
        for name, block in self.blocks.items():
            m.submodules[name] = block
            for field, (_, value) in self._members(block, In).items():
                m.d.comb += value.eq(self.stimulus[name][field])
            for field, (_, value) in self._members(block, Out).items():
                m.d.comb += self.response[name][field].eq(value)
        return m


def rng_of(*names: object) -> random.Random:
    """Return a script's generator: it depends only on the names and on SEED."""
    return random.Random(" ".join(map(str, (cocotb.RANDOM_SEED, *names))))


async def play(dut: Any, bank: Bank, scripts: Mapping[str, Script], *, clocked: bool) -> int:
    """Run the scripts in lockstep, each to its end, and compare all expected outputs.

    With a clock, outputs are read in the cycle of the inputs, before its rising edge; otherwise
    when they have settled. Returns the number of steps.
    """
    if clocked:
        await _start(dut)
    running = {name: iter(script) for name, script in scripts.items()}
    stimulus, steps = 0, 0
    while running:
        stimulus, cases = _next_step(bank, running, stimulus)
        if not running:
            break
        if clocked:
            await FallingEdge(dut.clk)
        dut.stimulus.value = stimulus
        await (ReadOnly() if clocked else Timer(1, "ns"))
        _compare(bank, cases, int(dut.response.value), steps)
        steps += 1
    assert steps, "a script must have a step"
    return steps


async def _start(dut: Any) -> None:
    dut.stimulus.value = 0
    dut.rst.value = 1
    Clock(dut.clk, 2, unit="ns").start()
    for _ in range(2):
        await FallingEdge(dut.clk)
    dut.rst.value = 0


def _next_step(
    bank: Bank, running: dict[str, Iterator[Case]], stimulus: int
) -> tuple[int, dict[str, Case]]:
    """Return the inputs of all blocks, and their cases; ended scripts leave ``running``."""
    cases: dict[str, Case] = {}
    for name, script in list(running.items()):
        case = next(script, None)
        if case is None:
            del running[name]
            continue
        cases[name] = case
        place = bank.inputs[name]
        stimulus &= ~(((1 << place.width) - 1) << place.offset)
        stimulus |= number_of(place.shape, case.inputs) << place.offset
    return stimulus, cases


def _compare(bank: Bank, cases: Mapping[str, Case], response: int, step: int) -> None:
    for name, case in cases.items():
        place = bank.outputs[name]
        expected = number_of(place.shape, case.outputs)
        wrong = ((response >> place.offset) ^ expected) & care_of(place.shape, case.outputs)
        if wrong:
            got = fields_of(place.shape, response >> place.offset)
            bad = [field for field, part in place.shape if wrong >> part.offset & _ones(part.width)]
            shown = {field: got[field] for field in bad}
            wanted = {field: case.outputs[field] for field in bad}
            raise AssertionError(
                f"{name}, step {step}: {shown} must be {wanted} for inputs {dict(case.inputs)}"
            )


def _ones(width: int) -> int:
    return (1 << width) - 1
