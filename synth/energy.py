"""Energy of a mapped netlist, from the transitions of its nets and a liberty file.

A transition of a net costs half of C V^2 for the pins that the net drives, plus the library's
internal energy of the cells at both ends, at that load and at the slews that OpenSTA computes.
Wires, the buffers of a clock tree and glitches are not included. A gated clock makes its two
transitions in the cycles in which its gate is open. OpenSTA 2.0's own power report is not used,
because it accepts activities of registers only. docs/hardware/energy.md.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.synth.buffers.cells import input_loads
from cassandra_spec.synth.buffers.netlist import instances_of
from cassandra_spec.synth.gating import CLOCK, clocks_of
from cassandra_spec.synth.liberty import InternalEnergy, groups, internal_energies
from cassandra_spec.synth.timing import Library, run_tool

SLEW = 0.1
"""Slew of ports and of the clock, in ns."""

Instances = Mapping[str, tuple[str, Mapping[str, str]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Energy:
    """Energies in pJ, per cycle or per any other unit."""

    clock: float  # pins of clocks, and the cost of their edges in flip-flops and gates
    cells: float  # inside the cells at both ends of the other nets
    nets: float  # pins that the other nets drive, including the module's ports
    leakage: float  # while nothing switches

    @property
    def total(self) -> float:
        """Total energy."""
        return self.clock + self.cells + self.nets + self.leakage

    def __mul__(self, factor: float) -> Energy:
        return Energy(**{name: factor * part for name, part in dataclasses.asdict(self).items()})


def cell_models(library: Library, out: Path) -> str:
    """Return the cells of a library as Verilog, from Yosys.

    Raises CassandraError if Yosys is missing or fails.
    """
    script = f"read_liberty {library.path}; write_verilog -noattr cells.v"
    run_tool("yosys", ["-q", "-p", script], out)
    return (out / "cells.v").read_text()


def simulation(netlist: str, cells: str, top: str, ports: Mapping[str, tuple[str, int]]) -> str:
    """Wrap the netlist, whose ports are single bits, in a module with the top's ports.

    ``ports`` are direction and width by name, including clock and reset. Verilator traces the nets
    of the netlist, which is an instance with the name ``netlist``, and not those inside of cells.
    """
    declared = ", ".join(
        f"{direction} [{width - 1}:0] {name}" if width > 1 else f"{direction} {name}"
        for name, (direction, width) in ports.items()
    )
    bits = (
        [f".\\{name}[{bit}] ({name}[{bit}])" for bit in range(width)]
        if width > 1
        else [f".{name}({name})"]
        for name, (_, width) in ports.items()
    )
    wired = ", ".join(connection for port in bits for connection in port)
    inner = re.sub(rf"\bmodule {top}\b", "module netlist", netlist, count=1)
    return (
        f"// verilator tracing_off\n{cells}\n// verilator tracing_on\n{inner}\n"
        f"module {top}({declared});\n  netlist netlist({wired});\nendmodule\n"
    )


# --- slews --------------------------------------------------------------------------------------


def slew_script(netlist: str, top: str, library: Library, period: float) -> str:
    """Return OpenSTA commands that print both slews of every cell output."""
    return f"""\
read_liberty {library.path}
read_verilog {netlist}
link_design {top}
create_clock -name {CLOCK} -period {period} [get_ports {CLOCK}]
set_clock_transition {SLEW} [all_clocks]
set_input_transition {SLEW} [all_inputs]
foreach pin [get_pins */*] {{
  if {{[get_property $pin direction] == "output"}} {{
    puts "slew [get_full_name $pin] [get_property $pin actual_rise_transition_max]\\
      [get_property $pin actual_fall_transition_max]"
  }}
}}
exit
"""


def read_slews(netlist: Path, top: str, library: Library, period: float) -> dict[str, float]:
    """Return the mean slew of both edges in ns by output pin (``instance/pin``), from OpenSTA.

    Raises CassandraError if OpenSTA is missing or fails.
    """
    script = netlist.with_suffix(".slews.tcl")
    script.write_text(slew_script(netlist.name, top, library, period))
    printed = run_tool("sta", ["-exit", script.name], netlist.parent)
    found = re.findall(r"^slew (\S+) (\S+)\s+(\S+)$", printed, re.M)
    if not found:
        last = (printed.strip().splitlines() or ["nothing"])[-1]
        raise CassandraError(f"sta must print slews, not {last!r}")
    return {pin: (float(rise) + float(fall)) / 2 for pin, rise, fall in found}


# --- transitions --------------------------------------------------------------------------------

_COUNT = re.compile(r"\((\S+) \(T0 (\d+)\) \(T1 (\d+)\).*?\(TC (\d+)\)\)", re.S)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Activity:
    """Transitions and duty of a netlist's nets, by name."""

    transitions: Mapping[str, int]
    high: Mapping[str, float]  # share of the time

    @classmethod
    def of(cls, saif: str) -> Activity:
        """Read the activity of the instance ``netlist`` from a SAIF file."""
        found = _COUNT.findall(saif.partition("(INSTANCE netlist")[2])
        times = {plain(net): (int(low), int(high)) for net, low, high, _ in found}
        return cls(
            transitions={plain(net): int(count) for net, _, _, count in found},
            high={net: high / max(1, low + high) for net, (low, high) in times.items()},
        )


def plain(net: str) -> str:
    """Remove the escapes of Verilog and SAIF from the name of a net."""
    return net.replace("\\", "").strip()


# --- energies -----------------------------------------------------------------------------------


class Model:
    """Energy of a transition of each net of a netlist.

    Arguments:
        netlist: one flat module of cells, as ``synthesis.map_for_speed`` writes it.
        library: its cells.
        slews: as from :func:`read_slews`; nets that no cell drives have the slew of ports.

    ``nets`` and ``cells`` are energies of a transition in pJ, by net. Raises CassandraError if the
    library does not state its units as pF and V.
    """

    def __init__(self, netlist: str, library: Library, slews: Mapping[str, float]) -> None:
        text = library.path.read_text(errors="replace")
        self._volt = _volt(text)
        self._leakage_unit = _leakage_unit(text)
        self._leakage = _leakages(text)
        self._loads = input_loads(text)
        self._tables = internal_energies(text)
        self._instances: Instances = {
            name: (cell, {pin: plain(net) for pin, net in pins.items()})
            for name, (cell, pins) in instances_of(netlist).items()
        }
        self._slew = {
            pins[pin]: slews[f"{name}/{pin}"]
            for name, (cell, pins) in self._instances.items()
            for pin in self._outputs(cell, pins)
        }
        self._clocks = clocks_of(self._instances)
        self._load = self._net_loads()
        self.nets = {net: load * self._volt**2 / 2 for net, load in self._load.items()}
        self.cells: dict[str, float] = {}
        for net, energy in self._inside():
            self.cells[net] = self.cells.get(net, 0.0) + energy

    def per_cycle(self, activity: Activity, cycles: int, period: float) -> Energy:
        """Return the energy of a cycle of ``period`` ns, from the activity over all cycles.

        Raises CassandraError if a net of the netlist has not been counted.
        """
        counts = activity.transitions
        missing = [net for net in self.nets if net not in self._clocks and net not in counts]
        missing += [net for net in self._clocks.values() if net and net not in activity.high]
        if missing:
            raise CassandraError(f"transitions must be of every net, {missing[0]} is missing")
        return Energy(
            clock=sum(
                2
                * (activity.high[opens] if opens else 1)
                * (self.nets[net] + self.cells.get(net, 0.0))
                for net, opens in self._clocks.items()
            ),
            cells=self._sum(self.cells, counts) / cycles,
            nets=self._sum(self.nets, counts) / cycles,
            leakage=self._leaking() * period,
        )

    def _sum(self, energies: Mapping[str, float], transitions: Mapping[str, int]) -> float:
        return sum(
            energy * transitions[net] for net, energy in energies.items() if net not in self._clocks
        )

    def _leaking(self) -> float:
        """Return the leakage in mW, which is pJ per ns."""
        cells = (cell for cell, _ in self._instances.values())
        return sum(self._leakage[cell] for cell in cells) * self._leakage_unit * 1e3

    def _outputs(self, cell: str, pins: Mapping[str, str]) -> Iterator[str]:
        return (pin for pin in pins if (cell, pin) not in self._loads)

    def _net_loads(self) -> dict[str, float]:
        """Return the capacitance of the input pins on each net; constants are not nets."""
        loads: dict[str, float] = {}
        for cell, pins in self._instances.values():
            for pin, net in pins.items():
                if "'" not in net:
                    loads[net] = loads.get(net, 0.0) + self._loads.get((cell, pin), 0.0)
        return loads

    def _inside(self) -> Iterator[tuple[str, float]]:
        """Yield nets and the energies inside the cells at their ends per transition."""
        for cell, pins in self._instances.values():
            for pin, net in pins.items():
                energies = self._tables.get((cell, pin), [])
                if energies and net in self._load:
                    yield net, self._mean(energies, pins, net)

    def _mean(self, energies: Sequence[InternalEnergy], pins: Mapping[str, str], net: str) -> float:
        """Average over the inputs that may cause the transition."""
        found = [
            energy.mean(
                load=self._load[net],
                slew=self._slew.get(pins[energy.related] if energy.related else net, SLEW),
            )
            for energy in energies
        ]
        return sum(found) / len(found)


def _volt(liberty: str) -> float:
    units = {
        "voltage_unit": '"1V"',
        "capacitive_load_unit": "1,pf",
        "time_unit": '"1ns"',
    }
    for name, unit in units.items():
        if not re.search(rf"\b{name}\s*[:(]\s*{unit}", liberty, re.I):
            raise CassandraError(f"LIBERTY must have the {name} {unit}")
    found = re.search(r"\bnom_voltage\s*:\s*([\d.]+)", liberty)
    if found is None:
        raise CassandraError("LIBERTY must have a nom_voltage")
    return float(found[1])


def _leakage_unit(liberty: str) -> float:
    """Return the library's leakage unit in W."""
    found = re.search(r'\bleakage_power_unit\s*:\s*"1([munp]?)W"', liberty)
    if found is None:
        raise CassandraError("LIBERTY must have a leakage_power_unit of 1 W, mW, uW, nW or pW")
    return {"": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9, "p": 1e-12}[found[1]]


def _leakages(liberty: str) -> dict[str, float]:
    found = {}
    for name, body in groups(liberty, "cell"):
        leakage = re.search(r"\bcell_leakage_power\s*:\s*([\d.e+-]+)", body)
        found[name] = float(leakage[1]) if leakage else 0.0
    return found
