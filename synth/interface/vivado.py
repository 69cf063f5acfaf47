"""Attributes by which Vivado finds the interfaces of an exported top without asking."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cassandra_spec.synth.interface.ipxact import buses_of

_LEVELS = {"rst": "ACTIVE_HIGH", "aresetn": "ACTIVE_LOW"}
_PORT = re.compile(r"(?m)^  (?:input|output) (?:\[\d+:0\] )?(\w+);$")


def interface_attributes(ports: Iterable[str]) -> dict[str, str]:
    """Return the attributes of each port that belongs to an interface, by its name."""
    names = list(ports)
    buses = buses_of(names)
    kinds = {bus.name: "axis" if bus.type[0] == "AXI4Stream" else "aximm" for bus in buses}
    found = {
        port: f'{_info(f"interface:{kinds[bus.name]}", bus.name)} {logical}"'
        for bus in buses
        for logical, port in bus.ports.items()
    }
    [reset] = _LEVELS.keys() & set(names)
    others = ":".join(bus.name for bus in buses)
    clocked = f"ASSOCIATED_BUSIF {others}, ASSOCIATED_RESET {reset}"
    signals = {
        "clk": ("clock", "CLK", clocked),
        reset: ("reset", "RST", f"POLARITY {_LEVELS[reset]}"),
        "irq": ("interrupt", "INTERRUPT", "SENSITIVITY LEVEL_HIGH"),
    }
    return found | {
        name: f'{_info(f"signal:{kind}", name)} {pin}", X_INTERFACE_PARAMETER = "{parameter}"'
        for name, (kind, pin, parameter) in signals.items()
        if name in names
    }


def _info(kind: str, name: str) -> str:
    return f'X_INTERFACE_INFO = "xilinx.com:{kind}:1.0 {name}'


def with_attributes(verilog: str, ports: Iterable[str]) -> str:
    """Write the attributes of a top, the first module, in front of its ports."""
    attributes = interface_attributes(ports)
    end = verilog.index("endmodule")

    def one(port: re.Match[str]) -> str:
        known = attributes.get(port[1])
        return f"  (* {known} *)\n{port[0]}" if known else port[0]

    return _PORT.sub(one, verilog[:end]) + verilog[end:]
