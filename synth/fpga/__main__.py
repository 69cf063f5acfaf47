"""Place and route the decoder on an FPGA (``make fpga``; docs/hardware/fpga.md).

Yosys maps the decoder to Lattice ECP5, nextpnr places and routes it. The decoder has more ports
than the device has pins, so a wrapper feeds its inputs from one long shift register and collects
its outputs in another. All paths run from register to register, and the wrapper's own cells are not
counted.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode.top import DecoderTop, Top, to_rtlil
from cassandra_spec.synth.export import ports_of
from cassandra_spec.synth.fpga.nextpnr import mhz_of, nextpnr
from cassandra_spec.synth.timing import run_tool
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.documents import publish
from cassandra_spec.toolkit.programs import run_program
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import markdown_table

DEVICE, PACKAGE, SPEED = "45k", "CABGA381", 6
"""LFE5U-45F in its slowest speed grade."""

TARGET = 100.0
"""Clock in MHz that nextpnr is asked for."""

KINDS = {"LUT4": "LUT4", "CCU2C": "carry cells", "TRELLIS_FF": "flip-flops"}
"""Reported cells; multiplexers between LUTs (PFUMX, L6MUX21) come with them for free."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placed:
    """Figures of one top: its own cells, and the fastest clock in the wrapper."""

    cells: Mapping[str, int]
    mhz: float


def wrapper(top: str, ports: Mapping[str, tuple[str, int]]) -> str:
    """Return Verilog of a module ``wrapper`` with four pins around a top.

    Inputs come from a shift register that ``d`` fills. A register captures all outputs in every
    cycle; ``load`` copies it into a shift register that leaves at ``q``.
    """
    sizes = {"input": 1, "output": 0}
    buses = {"input": "into", "output": "out"}
    connected = [".clk(clk)", ".rst(into[0])"]
    for name, (direction, width) in ports.items():
        if name not in ("clk", "rst"):
            low = sizes[direction]
            sizes[direction] += width
            connected.append(f".{name}({buses[direction]}[{low + width - 1}:{low}])")
    inputs, outputs = sizes["input"], sizes["output"]
    return f"""\
module wrapper(input clk, input d, input load, output q);
  reg [{inputs - 1}:0] into;
  reg [{outputs - 1}:0] held, shifted;
  wire [{outputs - 1}:0] out;
  assign q = shifted[{outputs - 1}];
  always @(posedge clk) begin
    into <= {{into, d}};
    held <= out;
    shifted <= load ? held : {{shifted, 1'b0}};
  end
  {top} decoder ({", ".join(connected)});
endmodule
"""


def _script(top: str) -> str:
    """Return Yosys commands that map and count the decoder, then map the wrapper around it."""
    return (
        f"read_rtlil {top}.il\nsynth_ecp5 -top {top}\n"
        f"tee -o {top}.cells.json stat -json -top {top}\n"
        f"read_verilog {top}.wrapper.v\nhierarchy -top wrapper\n"
        f"synth_ecp5 -top wrapper -run coarse: -json {top}.json\n"
    )


def place(top: Top, program: str, out: Path, seed: int = 1) -> Placed:
    """Map, place and route a top with one clock; files go to ``out``.

    ``program`` is nextpnr. Raises CassandraError if a tool is missing or fails.
    """
    name = top.module_name
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.il").write_text(to_rtlil(top))
    (out / f"{name}.wrapper.v").write_text(wrapper(name, ports_of(top)))
    (out / f"{name}.fpga.ys").write_text(_script(name))
    run_tool("yosys", ["-q", "-s", f"{name}.fpga.ys"], out)
    arguments = [f"--{DEVICE}", "--package", PACKAGE, "--speed", str(SPEED), "--seed", str(seed)]
    arguments += ["--json", f"{name}.json", "--report", f"{name}.report.json", "--quiet"]
    arguments += ["--freq", f"{TARGET:g}", "--lpf-allow-unconstrained", "--timing-allow-fail"]
    run_program([program, *arguments], out, error=CassandraError)
    return Placed(
        cells=cells_of((out / f"{name}.cells.json").read_text(), name),
        mhz=mhz_of((out / f"{name}.report.json").read_text()),
    )


def cells_of(stat: str, top: str) -> dict[str, int]:
    """Return cells by the names of :data:`KINDS`, from the output of ``stat -json``."""
    counts = json.loads(stat)["modules"][f"\\{top}"]["num_cells_by_type"]
    return {label: int(counts.get(kind, 0)) for kind, label in KINDS.items()}


def markdown(placed: Mapping[DecoderConfig, Placed]) -> str:
    """Format the table, as the document has it."""
    head = ["ECP5", *KINDS.values(), "MHz", "GB/s of values, at most"]
    rows = [
        [
            f"{config.lanes} lanes, {' + '.join(config.schemes)}",
            *one.cells.values(),
            f"{one.mhz:.1f}",
            f"{2 * config.lanes * one.mhz / 1e3:.2f}",
        ]
        for config, one in placed.items()
    ]
    return markdown_table(head, rows) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Place decoders of 8 and 16 lanes, or those that the flags name, and print the table."""
    return run_command(_parser, _report, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.synth.fpga", description=__doc__)
    text = "lanes of the decoders (default 8 16)"
    parser.add_argument("--lanes", type=int, nargs="+", metavar="N", default=[8, 16], help=text)
    parser.add_argument("--seed", type=int, default=1, help="seed of nextpnr (default 1)")
    flags.add_folder(parser, "out", "folder for netlists and reports", "build/fpga")
    parser.add_argument(
        "--env",
        type=Path,
        default=Path("build/fpga/env"),
        help="environment for nextpnr, created if nextpnr is not on PATH (default build/fpga/env)",
    )
    flags.add_file(parser, "document", "update the table of this Markdown file")
    return parser


def _report(args: argparse.Namespace) -> int:
    program = nextpnr(args.env)
    configs = [DecoderConfig(lanes=lanes) for lanes in args.lanes]
    placed = {config: place(DecoderTop(config), program, args.out, args.seed) for config in configs}
    text = markdown(placed)
    publish(text, args.document, "fpga")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
