"""Internal energies and drive strengths of cells, from a liberty file."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

LOAD, SLEW = "total_output_net_capacitance", "input_transition_time"
"""Table variables that are supported."""

IN_SLEW = "input_net_transition"
"""The name of the slew in delay tables."""

_AXES = re.compile(r"\bindex_(\d)\s*\(\s*\"([^\"]*)\"")
_VARIABLES = re.compile(r"\bvariable_(\d)\s*:\s*\"?(\w+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Energies of one edge over loads and slews, in the library's unit.

    ``axes`` are the variables of the dimensions of ``values`` and their index values.
    """

    axes: tuple[tuple[str, NDArray[Any]], ...]
    values: NDArray[Any]

    def at(self, **point: float) -> float:
        """Return the energy at ``load`` and ``slew``, by linear inter- and extrapolation."""
        known = {LOAD: point["load"], SLEW: point["slew"]}
        values = self.values
        for variable, places in self.axes:
            values = _between(places, values, known[variable])
        return float(values)


def _between(places: NDArray[Any], values: NDArray[Any], x: float) -> NDArray[Any]:
    """Interpolate along the first axis at ``x``."""
    if len(places) == 1:
        return np.asarray(values[0])
    left = int(np.clip(np.searchsorted(places, x) - 1, 0, len(places) - 2))
    part = (x - places[left]) / (places[left + 1] - places[left])
    return np.asarray(values[left] * (1 - part) + values[left + 1] * part)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InternalEnergy:
    """One ``internal_power`` group: the energy inside the cell of an edge of its pin.

    ``related`` is the input that makes the output change, empty in a group of an input. An edge
    without a table costs nothing.
    """

    related: str
    rise: Table | None
    fall: Table | None

    def mean(self, *, load: float, slew: float) -> float:
        """Return the mean of both edges: a net that rises falls as often."""
        tables = [table for table in (self.rise, self.fall) if table is not None]
        return sum(table.at(load=load, slew=slew) for table in tables) / 2


def internal_energies(liberty: str) -> dict[tuple[str, str], list[InternalEnergy]]:
    """Return the groups of every pin in the text of a liberty file, by cell and pin."""
    templates = dict(groups(liberty, "power_lut_template"))
    return {
        (cell, pin): [_group(body, templates) for _, body in groups(text, "internal_power")]
        for cell, pin, text in pin_groups(liberty)
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drive:
    """The drive of an output pin: how its delay grows with the load, and the load's limit."""

    slope: float  # in the library's units of time and capacitance, the worse edge
    max_load: float


def drives(liberty: str) -> dict[tuple[str, str], Drive]:
    """Return the drive of every output pin that has delays and a limit."""
    templates = dict(groups(liberty, "lu_table_template"))
    found = {}
    for cell, pin, text in pin_groups(liberty):
        most = re.search(r"\bmax_capacitance\s*:\s*([\d.e+-]+)", text)
        edges = [group for edge in ("rise", "fall") for group in groups(text, f"cell_{edge}")]
        tables = [_table(*edge, templates) for edge in edges]
        slopes = [slope for table in tables for slope in _slopes(table)]
        if most and slopes:
            found[cell, pin] = Drive(slope=max(slopes), max_load=float(most[1]))
    return found


def _slopes(table: Table) -> Iterator[float]:
    """Yield the delay growth from the smallest load to the largest, at a middle slew."""
    if [variable for variable, _ in table.axes] == [LOAD, IN_SLEW]:
        loads, middle = table.axes[0][1], len(table.axes[1][1]) // 2
        yield (table.values[-1, middle] - table.values[0, middle]) / (loads[-1] - loads[0])


def _group(body: str, templates: Mapping[str, str]) -> InternalEnergy:
    related = re.search(r"\brelated_pin\s*:\s*\"(\w+)", body)
    edges = {
        edge: next((_table(*found, templates) for found in groups(body, f"{edge}_power")), None)
        for edge in ("rise", "fall")
    }
    return InternalEnergy(related=related[1] if related else "", **edges)


def _table(template: str, body: str, templates: Mapping[str, str]) -> Table:
    own = templates.get(template, "")
    variables = dict(_VARIABLES.findall(own))
    places = dict(_AXES.findall(own)) | dict(_AXES.findall(body))
    axes = tuple((variables[axis], _numbers(places[axis])) for axis in sorted(variables))
    found = re.search(r"\bvalues\s*\((.*?)\)", body, re.S)
    values = _numbers(" ".join(re.findall(r'"([^"]*)"', found[1] if found else "")))
    return Table(axes=axes, values=values.reshape([len(points) for _, points in axes]))


def _numbers(text: str) -> NDArray[Any]:
    return np.array([float(number) for number in re.split(r"[,\s]+", text.strip())])


def groups(text: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield argument and body of every group of this name, at any depth."""
    for found in re.finditer(rf'\b{name}\s*\(\s*"?([\w.]*)"?\s*\)\s*\{{', text):
        yield found[1], text[found.end() : _closing(text, found.end())]


def _closing(text: str, start: int) -> int:
    """Return where the brace that was opened before ``start`` is closed."""
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return brace.start()
    return len(text)


def pin_groups(liberty: str) -> Iterator[tuple[str, str, str]]:
    """Yield cell, pin and text of every pin group."""
    for cell, body in groups(liberty, "cell"):
        for pin, text in groups(body, "pin"):
            yield cell, pin, text
