"""A netlist with a fault beside the one without: whether an output ever differs.

Inputs are the same and free in each cycle, as long as streams keep their rule; registers begin as
the Verilog says. What a stream offers counts while it is valid, and of values the lanes that
``tkeep`` names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.report.programs import run_program

GATES = (
    "proc; flatten; setundef -undriven -zero; opt -full; memory_map; opt -fast; techmap; opt -fast;"
    " dffunmap; simplemap; setundef -zero; opt_clean; aigmap; opt_clean; write_aiger -zinit"
)
"""Commands of Yosys that make gates of what is read, and write them."""


def equal_outputs(folder: Path, module: str, fault: int, seconds: int) -> bool:
    """Whether ABC proves it: what both copies have in common is merged, then reachability.

    ``folder`` has the netlists of :func:`cassandra_spec.verif.mutation.drawn.draw`.
    """
    (good,) = json.loads((folder / "good.json").read_text())["modules"].values()
    name = f"beside_{fault}"
    (folder / f"{name}.v").write_text(miter(module, good["ports"], fault))
    script = (
        f"read_rtlil faulty.il; read_verilog {name}.v; hierarchy -check -top beside;"
        f" {GATES} {name}.aig"
    )
    run_program(["yosys", "-q", "-p", script], folder, error=CassandraError)
    commands = f"read_aiger {name}.aig; strash; scorr; pdr -T {seconds}"
    log = run_program(["yosys-abc", "-c", commands], folder, error=CassandraError)
    return "Property proved" in log


def miter(module: str, ports: Mapping[str, Any], fault: int) -> str:
    """Verilog of both copies; ``bad`` says that an output differs."""
    widths = {name: len(port["bits"]) for name, port in ports.items()}
    ins = [name for name, port in ports.items() if port["direction"] == "input"]
    outs = [name for name in ports if name not in ins]
    lines = [
        f"module beside({', '.join(f'input [{widths[i] - 1}:0] {i}' for i in ins)}, output bad);"
    ]
    for copy, number in (("a", 0), ("b", fault)):
        lines += [f"wire [{widths[o] - 1}:0] {copy}_{o};" for o in outs]
        pins = [*(f".{i}({i})" for i in ins), *(f".{o}({copy}_{o})" for o in outs)]
        lines.append(f"{module} {copy} ({', '.join(pins)}, .fault({number}));")
    lines += _rules(ins, widths)
    differ = " | ".join(_differ(name, widths, outs) for name in outs)
    lines += [f"assign bad = ~broken & ~breaks & ({differ});", "endmodule"]
    return "\n".join(lines)


def _rules(ins: list[str], widths: Mapping[str, int]) -> Iterator[str]:
    """``broken``: an input stream has dropped or changed what it offered."""
    breaks = []
    yield "reg broken = 0;"
    for valid in (name for name in ins if name.endswith("_tvalid")):
        stream = valid.removesuffix("tvalid")
        payload = [n for n in ins if n.startswith(stream) and n != valid]
        bits = f"{{{', '.join(payload)}}}"
        width = sum(widths[n] for n in payload)
        yield f"reg {stream}waits = 0; reg [{width - 1}:0] {stream}was = 0;"
        yield (
            f"always @(posedge clk) begin {stream}waits <= {valid} & ~a_{stream}tready & ~rst;"
            f" {stream}was <= {bits}; end"
        )
        breaks.append(f"({stream}waits & (~{valid} | {stream}was != {bits}))")
    yield f"wire breaks = {' | '.join(breaks) or '0'};"
    yield "always @(posedge clk) broken <= broken | breaks;"


def _differ(name: str, widths: Mapping[str, int], outs: list[str]) -> str:
    stream, _, part = name.rpartition("_")
    valid = f"{stream}_tvalid"
    if name == valid or valid not in outs:
        return f"(a_{name} != b_{name})"
    bits = f"(a_{name} ^ b_{name})"
    keep = f"{stream}_tkeep"
    if part == "tdata" and keep in outs:
        lanes = ", ".join(f"{{8{{a_{keep}[{i}]}}}}" for i in reversed(range(widths[keep])))
        bits = f"({bits} & {{{lanes}}})"
    return f"(a_{valid} & (|{bits}))"
