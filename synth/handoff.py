"""Files for other tools beside the Verilog: registers, constraints and a FuseSoC core.

PeakRDL makes register pages from the SystemRDL text. It runs as a program of its own, so this
package imports none of its exporters (two are under the GPL).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError

PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "html": ("_html", ()),
    "markdown": (".md", ()),
    "uvm": ("_uvm_pkg.sv", ("--type-style", "hier")),
}
"""The suffix of the result and the options of each subcommand of PeakRDL."""

_LIMIT = 120  # seconds of one PeakRDL run


def register_pages(folder: Path, name: str, untested: Mapping[str, bool]) -> list[Path]:
    """Write pages and a UVM model from ``NAME.rdl`` beside it; nothing without PeakRDL.

    ``untested`` has the registers that UVM's own sequences must leave out: True if all of them, so
    that the reset value cannot be read either, False if those that write. Each file appears whole
    or not at all.
    """
    if importlib.util.find_spec("peakrdl") is None:
        return []
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}.") as scratch:
        made = [_page(kind, folder, name, Path(scratch)) for kind in PAGES]
        _mark_untested(made[-1], untested)
        return [_replace(path, folder / path.name) for path in made]


def _page(kind: str, folder: Path, name: str, scratch: Path) -> Path:
    """Run one exporter of PeakRDL into a scratch folder."""
    suffix, options = PAGES[kind]
    out = scratch / f"{name}{suffix}"
    words = [kind, f"{name}.rdl", "-o", str(out.absolute()), *options]
    environment = os.environ | {"GIT_PYTHON_REFRESH": "quiet"}
    run = subprocess.run(
        [sys.executable, "-m", "peakrdl", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_LIMIT,
        check=False,
    )
    if run.returncode:
        lines = run.stderr.strip().splitlines() or [f"exit status {run.returncode}"]
        raise CassandraError(f"registers must be readable for peakrdl {kind}, not {lines[-1]}")
    for launcher in out.glob("launcher-*.bat"):  # of browsers of one system
        launcher.unlink()
    return out


_EXCLUDED = (
    '            uvm_resource_db #(bit)::set({{"REG::", this.{name}.get_full_name()}},'
    ' "{test}", 1, this);\n'
)
_BUILT = re.compile(r"^            this\.(\w+)\.build\(\);\n", re.MULTILINE)
_WRITING = ("NO_REG_ACCESS_TEST", "NO_REG_BIT_BASH_TEST", "NO_REG_SHARED_ACCESS_TEST")


def _mark_untested(model: Path, untested: Mapping[str, bool]) -> None:
    """Exclude registers of a UVM model from sequences of UVM's library."""

    def marked(built: re.Match[str]) -> str:
        name = built[1]
        tests = () if name not in untested else ("NO_REG_TESTS",) if untested[name] else _WRITING
        return built[0] + "".join(_EXCLUDED.format(name=name, test=test) for test in tests)

    model.write_text(_BUILT.sub(marked, model.read_text(encoding="utf-8")), encoding="utf-8")


def _replace(source: Path, target: Path) -> Path:
    """Move a file or folder to where an older one may be."""
    if target.is_dir():
        shutil.rmtree(target)
    return source.replace(target)


_CONSTRAINTS = """\
# {name}: timing constraints, in ns.
# To change a variable, set it before this file is read. All ports belong to the one clock; no path
# is false.
foreach {{variable default}} {{
    cassandra_period {period}
    cassandra_input_fraction 0.3
    cassandra_output_fraction 0.3
}} {{
    if {{![info exists $variable]}} {{ set $variable $default }}
}}
create_clock -name clk -period $cassandra_period [get_ports clk]
set_input_delay [expr {{$cassandra_period * $cassandra_input_fraction}}] -clock clk \\
    [get_ports {{{inputs}}}]
set_output_delay [expr {{$cassandra_period * $cassandra_output_fraction}}] -clock clk \\
    [get_ports {{{outputs}}}]
"""


def constraints(name: str, ports: Mapping[str, tuple[str, int]], period: float) -> str:
    """Write an SDC file: the clock, and delays of inputs and outputs as fractions of its period."""

    def of(direction: str) -> Iterable[str]:
        for port, (way, width) in ports.items():
            if way == direction and port != "clk":
                yield port if width == 1 else f"{port}[*]"

    inputs, outputs = " ".join(of("input")), " ".join(of("output"))
    return _CONSTRAINTS.format(name=name, period=period, inputs=inputs, outputs=outputs)


_CORE = """\
CAPI=2:
name: cassandra:{kind}:{name}:{version}
description: {title} of the Cassandra format for self-speculative decoding
filesets:
  rtl:
    files:
      - {name}.v
      - {name}.vlt: {{file_type: vlt}}
    file_type: verilogSource
{memories}  constraints:
    files:
      - {name}.sdc: {{file_type: SDC}}
  assertions:
    files:
      - {name}_assertions.sv
    file_type: systemVerilogSource
{registers}targets:
  default: &default
    filesets: [{sets}, "assertions ? (assertions)"]
    toplevel: {name}
  lint:
    <<: *default
    filesets: [{lint}]
    flow: lint
    flow_options:
      tool: verilator
"""

_MEMORIES = """\
  memories:  # a chip has its own: --flag external_memories
    files:
      - {name}_memories.v
    file_type: verilogSource
"""

_REGISTERS = """\
  registers:
    files:
      - regs/{name}.rdl: {{file_type: systemRDLSource}}
      - {name}.h: {{file_type: cSource, is_include_file: true}}
"""


def core(name: str, kind: str, version: str, *, registers: bool, memories: bool) -> str:
    """Write a FuseSoC core description (CAPI 2)."""
    sets = ["rtl", '"!external_memories ? (memories)"'] if memories else ["rtl"]
    more = ["constraints", "registers"] if registers else ["constraints"]
    return _CORE.format(
        name=name,
        kind=kind,
        title=kind.capitalize(),
        version=version,
        registers=_REGISTERS.format(name=name) if registers else "",
        memories=_MEMORIES.format(name=name) if memories else "",
        sets=", ".join(sets + more),
        lint="rtl, memories" if memories else "rtl",
    )
