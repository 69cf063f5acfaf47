"""Verilog and RTLIL of Amaranth components, with a fast search for combinational cycles.

Amaranth visits every bit of every cell and, from each, every input that the bit depends on. For
wide shifters and comparisons that is quadratic in their width and takes four fifths of a
conversion. Here such a cell is visited once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

from amaranth.back import rtlil, verilog
from amaranth.hdl import Elaboratable
from amaranth.hdl._nir import AsyncReadPort, Cell, Matches, Net, Netlist, Operator, Part

_BITWISE = ("~", "&", "|", "^", "m")

# One bit of an output, or the whole output of a cell whose bits depend on the same inputs.
_Node = int | tuple[int]


def verilog_of(
    design: Elaboratable, name: str, *, strip_attributes: bool = False, platform: object = None
) -> str:
    """Convert a component and everything below it to Verilog, as one text."""
    with quick_cycle_check():
        text: str = verilog.convert(
            design, name, platform, emit_src=False, strip_internal_attrs=strip_attributes
        )
    return text


def rtlil_of(design: Elaboratable, name: str, platform: object = None) -> str:
    """Convert a component and everything below it to RTLIL, for Yosys and proofs."""
    with quick_cycle_check():
        text: str = rtlil.convert(design, name, platform, emit_src=False)
    return text


@contextlib.contextmanager
def quick_cycle_check() -> Iterator[None]:
    """Make conversions find cycles in linear time while this context is open.

    A netlist with a cycle goes to Amaranth's own check, which names the signals on it.
    """
    slow = Netlist.check_comb_cycles

    def check(netlist: Netlist) -> None:
        if _has_cycle(netlist):
            slow(netlist)

    with mock.patch.object(Netlist, "check_comb_cycles", check):
        yield


def _has_cycle(netlist: Netlist) -> bool:
    """Search depth first from every signal.

    Cells are created after their inputs, so every cycle contains a signal.
    """
    done: set[_Node] = set()
    for start in netlist.connections:
        path: dict[_Node, Iterator[_Node]] = {}
        node: _Node | None = start if start not in done else None
        while node is not None or path:
            if node is not None:
                path[node] = iter(_sources(netlist, node))
            last = next(reversed(path))
            node = next((source for source in path[last] if source not in done), None)
            if node in path:
                return True
            if node is None:
                done.add(last)
                del path[last]
    return False


def _sources(netlist: Netlist, node: _Node) -> Sequence[_Node]:
    """Return the nodes that a node depends on within a clock cycle."""
    if isinstance(node, tuple):
        return _inputs(netlist.cells[node[0]], 0)
    net = Net(node)
    if net.is_const:
        return ()
    if net.is_late:
        return (netlist.connections[net],)
    cell = netlist.cells[net.cell]
    return ((net.cell,),) if _depends_on_all(cell) else _inputs(cell, net.bit)


def _inputs(cell: Any, bit: int) -> Sequence[_Node]:
    return [source for source, _ in cell.comb_edges_to(bit)]


def _depends_on_all(cell: Cell) -> bool:
    """Return True if every bit of the output depends on every bit of the inputs."""
    if isinstance(cell, Operator):
        return cell.operator not in _BITWISE
    return isinstance(cell, Part | Matches | AsyncReadPort)
