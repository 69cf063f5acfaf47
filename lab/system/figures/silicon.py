"""Area and power of our decoders at the paper's node, from the reports of ``make synth``.

Areas come as gate equivalents, so a gate's area at the node is all that is needed. Energies of a
cycle are scaled by published factors, and by the classical rule beside them
(docs/results/system.md).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cassandra_spec.lab.system.errors import SystemModelError, check_count, check_number, unknown
from cassandra_spec.lab.system.files import HERE, constant, read_json, read_toml

REPORTS = HERE / "records" / "synthesis"
"""The bundled reports of ``make synth``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Synthesis:
    """A decoder in some library."""

    name: str  # lanes and schemes, for people
    schemes: tuple[str, ...]  # schemes that it decodes
    lanes: int  # values in a cycle of a draft, where nothing holds it up
    gates: float  # gate equivalents of the netlist that was timed
    flip_flops: int  # number of flip-flops
    energy: float | None  # J of a cycle, without leakage; None in a report without power
    activity: str  # switching activity at which the energy was measured
    library: str  # the library's name
    values: Mapping[str, float]  # J of a value on real weights, of the worst scheme, by mode
    made: str  # date and tools

    def __post_init__(self) -> None:
        check_count("lanes", self.lanes, 1)
        check_number("speed_total", self.gates)
        check_count("flip_flops", self.flip_flops, 1)
        if self.energy is not None:
            check_number("energy", self.energy)


def load_reports(path: Path = REPORTS) -> list[Synthesis]:
    """Load a report, or all reports of a folder of ``make synth``, by ascending number of lanes.

    Raises:
        SystemModelError: a file is no such report, or the folder has none.
        OSError: a file cannot be read.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise SystemModelError(f"{path} must have reports of make synth (.json), not none")
    return sorted((_report(file) for file in files), key=lambda report: report.lanes)


def _report(path: Path) -> Synthesis:
    content = read_json(path)
    try:
        config, made = content["config"], content.get("made", {})
        gated = content.get("flow", {}).get("gated", False)
        values = content.get("values", {})
        return Synthesis(
            name=f"{config['lanes']} lanes, {' + '.join(config['schemes'])}{', gated' * gated}",
            schemes=tuple(config["schemes"]),
            lanes=config["lanes"],
            gates=content["speed_total"],
            flip_flops=content["flip_flops"],
            energy=_energy(content),
            activity=content["power"]["activity"] if "power" in content else "",
            library=made.get("library", ""),
            values={mode: max(energies.values()) for mode, energies in values.items()},
            made=", ".join(f"{key} {value}" for key, value in made.items()),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise SystemModelError(f"{path} must be a report of make synth: {error!r}") from None
    except SystemModelError as error:
        raise SystemModelError(f"{path}: {error}") from None


def _energy(content: Mapping[str, Any]) -> float | None:
    """Return the joules per cycle; the period is in ns."""
    if "power" not in content:
        return None
    power = content["power"]
    return float((power["internal"] + power["switching"]) * content["period"] * 1e-9)


# --- scaling ------------------------------------------------------------------------------------


@cache
def _scaling() -> Mapping[str, Any]:
    return read_toml(HERE / "scaling.toml")


def _value(table: Mapping[str, Any], name: str, unit: str) -> float:
    return constant("scaling.toml", name, table[name], unit, low=-math.inf)


def mm2(gates: float) -> float:
    """Area of gate equivalents at the paper's node, in mm2."""
    return gates * _value(_scaling(), "gate", "um2") / 1e6


def scan_gates(flip_flops: int, library: str) -> float:
    """Gate equivalents that scan flip-flops at the paper's node have more than a library's."""
    here = _value(_library(library), "flip_flop", "gates")
    return flip_flops * (_value(_scaling(), "flip_flop", "gates") - here)


def _energy_of_node(node: int, voltage: float) -> float:
    table = _scaling()["energy"][str(node)]
    square, linear = _value(table, "square", "1/V2"), _value(table, "linear", "1/V")
    return square * voltage**2 + linear * voltage + _value(table, "constant", "1")


def _library(name: str) -> Mapping[str, Any]:
    """Return the constants of a cell library."""
    known: Mapping[str, Mapping[str, Any]] = _scaling()["libraries"]
    if name not in known:
        unknown("library", name, known)
    return known[name]


def _supply(library: str) -> tuple[float, float]:
    """Node in nm and voltage of a library."""
    known = _library(library)
    return _value(known, "node", "nm"), _value(known, "voltage", "V")


def energy_factor(library: str) -> float:
    """Energy at the paper's node over that in a library, by the factors of Stillmaker and Baas.

    Raises:
        SystemModelError: the library is not in ``scaling.toml``.
    """
    node, voltage = _supply(library)
    to, supply = _value(_scaling(), "node", "nm"), _value(_scaling(), "voltage", "V")
    part = math.log(32 / to) / math.log(32 / 20)
    ends = [_energy_of_node(end, supply) for end in (32, 20)]
    here = math.exp((1 - part) * math.log(ends[0]) + part * math.log(ends[1]))
    return here / _energy_of_node(round(node), voltage)


def classical_factor(library: str) -> float:
    """Return the factor by the classical rule: capacitance follows the node, energy is C V^2."""
    node, voltage = _supply(library)
    to, supply = _value(_scaling(), "node", "nm"), _value(_scaling(), "voltage", "V")
    return to / node * (supply / voltage) ** 2
