"""A top beside the rules of its AXI ports, as SystemVerilog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amaranth.hdl import Shape
from amaranth.lib import wiring
from amaranth.lib.wiring import In

WATCHED, DESIGN = "watched", "cassandra"
"""Names of the module with the rules and of the top in it."""

PACKAGE = "amba_axi4_protocol_checker_pkg"
_ADDRESS = ("ID", "ADDR", "LEN", "SIZE", "BURST", "LOCK", "CACHE", "PROT", "QOS", "REGION", "USER")
CHANNELS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "AW": ("write_address", _ADDRESS),
    "W": ("write_data", ("DATA", "STRB", "LAST", "USER")),
    "B": ("write_response", ("ID", "RESP", "USER")),
    "AR": ("read_address", _ADDRESS),
    "R": ("read_data", ("ID", "DATA", "RESP", "LAST", "USER")),
}
"""For each channel the name of its rules, and its signals beside VALID and READY."""

_LITE = {"LAST": "1'b1", "SIZE": "3'd2"}
"""Values that AXI4-Lite means where it has no signal."""


def watched(top: wiring.Component, situations: Sequence[str] = ()) -> str:
    """Return a module with a top, whose inputs are free, and the rules of its AXI ports.

    The reset of a top is synchronous, so the rules see it one cycle late, and it lasts at least two
    cycles. Bit i of the output ``reached`` was situation i in the last cycle.
    """
    members = top.signature.members.items()
    widths = {name: Shape.cast(member.shape).width for name, member in members}
    inputs = [name for name, member in members if member.flow is In]
    outputs = [name for name in widths if name not in inputs]
    pins = ", ".join(f".{name}({name})" for name in ("clk", "rst", *widths))
    count = max(1, len(situations))
    lines = [
        f"module {WATCHED}(input wire clk, input wire rst,",
        *(f"  input wire [{widths[name] - 1}:0] {name}," for name in inputs),
        f"  output reg [{count - 1}:0] reached = 0);",
        *(f"wire [{widths[name] - 1}:0] {name};" for name in outputs),
        f"{DESIGN} dut({pins});",
        "reg started = 0, reset_1 = 0, reset_2 = 0;",
        "always @(posedge clk) begin started <= 1; reset_1 <= rst; reset_2 <= reset_1; end",
        "always @(posedge clk) if (!started || (reset_1 && !reset_2)) assume (rst);",
        "wire aresetn = ~(rst & reset_1);",
        *_rules("m_axi", widths, lite=False),
        *_rules("s_axil", widths, lite=True),
        "reg asked = 0; reg [7:0] beat = 0;  // beats since the first read burst",
        *_beats(widths),
        *(f"always @(posedge clk) reached[{i}] <= {text};" for i, text in enumerate(situations)),
        "endmodule",
    ]
    return "\n".join(lines) + "\n"


def _beats(widths: Mapping[str, int]) -> list[str]:
    """Return the counter of a read master's beats; a top that only writes has none."""
    if "m_axi_arvalid" not in widths:
        return []
    return [
        "always @(posedge clk) begin",
        "  if (m_axi_arvalid && m_axi_arready) asked <= 1;",
        "  if (asked && m_axi_rvalid && m_axi_rready) beat <= beat + 1;",
        "end",
    ]


def _rules(prefix: str, widths: Mapping[str, int], *, lite: bool) -> list[str]:
    """Return the parameters of a port's rules, and one instance for each channel that it has."""
    lines = [f"localparam {PACKAGE}::axi4_checker_params_t {prefix}_of = "]
    lines[0] += _parameters(prefix, widths, lite=lite) + ";"
    for channel, (file, signals) in CHANNELS.items():
        port = f"{prefix}_{channel.lower()}"
        if f"{port}valid" not in widths:
            continue
        pins = [".ACLK(clk)", ".ARESETn(aresetn)"]
        for signal in (*signals, "VALID", "READY"):
            wire = port + signal.lower()
            absent = _LITE.get(signal, "'0") if lite else "'0"
            pins.append(f".{channel}{signal}({wire if wire in widths else absent})")
        kind = f"amba_axi4_{file}_channel #(.cfg({prefix}_of))"
        lines.append(f"{kind} {port} ({', '.join(pins)});")
    return lines


def _parameters(prefix: str, widths: Mapping[str, int], *, lite: bool) -> str:
    """Return the widths of a port, and which rules are on."""

    def width(*names: str, least: int = 1) -> int:
        return max(least, *(widths.get(f"{prefix}_{name}", 0) for name in names))

    side, kind = ("DESTINATION", "AXI4LITE") if lite else ("SOURCE", "AXI4FULL")
    users = [f"{channel}USER_WIDTH" for channel in CHANNELS]
    values: dict[str, object] = {
        "ID_WIDTH": width("arid", "awid"),
        "ADDRESS_WIDTH": width("araddr", "awaddr", least=32),  # the rules look at bit 11
        "DATA_WIDTH": width("rdata", "wdata"),
        **dict.fromkeys(users, 1),
        **dict.fromkeys(("MAX_WR_BURSTS", "MAX_RD_BURSTS"), 16),
        **dict.fromkeys(("MAX_WR_LENGTH", "MAX_RD_LENGTH"), 256),
        "MAXWAIT": 16,
        "VERIFY_AGENT_TYPE": f"{PACKAGE}::{side}",
        "PROTOCOL_TYPE": f"{PACKAGE}::{kind}",
        **dict.fromkeys(("INTERFACE_REQS", "CHECK_PARAMETERS", "FULL_WR_STRB"), 1),
        "OPTIONAL_RESET": 1,
        "OPTIONAL_WSTRB": int(not lite),  # the master writes whole words
        # off: covers, unknown values (Yosys has two), time limits, exclusive access, low power
        **dict.fromkeys(("ENABLE_COVER", "ENABLE_XPROP", "ARM_RECOMMENDED"), 0),
        **dict.fromkeys(("EXCLUSIVE_ACCESS", "OPTIONAL_LP"), 0),
    }
    return "'{" + ", ".join(f"{name}: {value}" for name, value in values.items()) + "}"
