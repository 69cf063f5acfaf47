"""The properties of a library's cells that buffering needs: loads, buffers, drive of outputs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.synth.liberty import Drive, drives, pin_groups
from cassandra_spec.synth.timing import Library

BUFFER_AREA = 1.5
"""Most area of a buffer in gate equivalents."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cells:
    """The properties of a library's cells that buffering needs."""

    loads: Mapping[tuple[str, str], float]  # capacitance of each input pin, by cell and pin
    unit: float  # capacitance of an input of the smallest NAND
    buffers: Mapping[str, tuple[str, str]]  # input and output of each buffer, by area
    drives: Mapping[tuple[str, str], Drive]  # what output pins can do, by cell and pin
    larger: Mapping[str, str]  # the next size of a cell
    smaller: Mapping[str, str]  # the size before, where that has less area
    flip_flops: frozenset[str]  # cells whose output ``Q`` is a register

    @property
    def buffer(self) -> tuple[str, str, str]:
        """The largest buffer, its input and its output."""
        name = list(self.buffers)[-1]
        return name, *self.buffers[name]

    @property
    def smallest(self) -> tuple[str, str, str]:
        """The smallest buffer, its input and its output."""
        name = next(iter(self.buffers))
        return name, *self.buffers[name]

    @classmethod
    def of(cls, library: Library) -> Cells:
        """Read the cells of a library.

        Raises CassandraError if it has no buffer that is small enough.
        """
        text = library.path.read_text(errors="replace")
        loads = input_loads(text)
        small = {
            name: pins
            for name, pins in _buffers(text).items()
            if library.areas[name] <= BUFFER_AREA * library.gate
        }
        if not small:
            raise CassandraError(
                f"LIBERTY must have a buffer of at most {BUFFER_AREA} gates, not {library.path}"
            )
        larger = _larger(library.areas)
        sizes = ((new, old) for old, new in larger.items())
        return cls(
            loads=loads,
            unit=min(load for (cell, _), load in loads.items() if cell == library.nand2),
            buffers={name: small[name] for name in sorted(small, key=library.areas.__getitem__)},
            drives=drives(text),
            larger=larger,
            smaller={new: old for new, old in sizes if library.areas[old] < library.areas[new]},
            flip_flops=library.flip_flops,
        )


def input_loads(liberty: str) -> dict[tuple[str, str], float]:
    """Return the capacitance of every input pin in the text of a liberty file, by cell and pin."""
    loads = {}
    for cell, pin, text in pin_groups(liberty):
        load = re.search(r"\bcapacitance\s*:\s*([\d.e+-]+)", text)
        if re.search(r"direction\s*:\s*\"?input", text) and load:
            loads[cell, pin] = float(load[1])
    return loads


def _buffers(liberty: str) -> dict[str, tuple[str, str]]:
    """Return input and output of every cell whose function is its only input."""
    pins: dict[str, list[tuple[str, str]]] = {}
    for cell, pin, text in pin_groups(liberty):
        function = re.search(r'function\s*:\s*"\(?\s*([^"]*?)\s*\)?"', text)
        pins.setdefault(cell, []).append((pin, function[1] if function else ""))
    return {
        cell: (found[0][0], found[1][0])
        for cell, found in pins.items()
        if len(found) == 2 and not found[0][1] and found[1][1] == found[0][0]
    }


def _larger(areas: Mapping[str, float]) -> dict[str, str]:
    """Map each cell to the next larger of its family (INVX1 to INVX2)."""
    sizes: dict[str, list[int]] = {}
    for name in areas:
        if found := re.fullmatch(r"(.*X)(\d+)", name):
            sizes.setdefault(found[1], []).append(int(found[2]))
    return {
        f"{kind}{size}": f"{kind}{after}"
        for kind, found in sizes.items()
        for size, after in zip(sorted(found), sorted(found)[1:], strict=False)
    }
