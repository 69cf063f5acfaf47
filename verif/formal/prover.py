"""Claims, and the tools that decide them: Yosys makes a circuit of gates, ABC or Yosys proves it.

Methods:
``combinational``
    Yosys' SAT solver; the design has no state, so the claim holds for every input.
``rewriting``
    The same with ABC's prover, which rewrites between calls of a solver; good at arithmetic that
    is the same in both designs but differently put.
``reachable``
    ABC's property-directed reachability from the state after reset: it holds after any number of
    cycles. Inputs, reset among them, are free in each cycle.
``corresponding``
    The same, after ABC has merged what always is equal; good at two designs that are alike.
``inductive``
    ABC's induction over at most ``depth`` cycles, from any state, and its bounded model checker
    for the first ones after reset: it holds after any number of cycles.
``bounded``
    ABC's bounded model checker: it holds in the first ``depth`` cycles after reset.
``structural``
    A Python function that looks at every cell of the flat netlist.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from amaranth.hdl import Elaboratable
from amaranth.lib import wiring

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.rtl.common.conversion import rtlil_of
from cassandra_spec.toolkit.programs import run_program
from cassandra_spec.verif.formal.harness import Watch, freeing, watching
from cassandra_spec.verif.formal.netlist import forgetful

Method = Literal[
    "combinational",
    "rewriting",
    "reachable",
    "corresponding",
    "inductive",
    "bounded",
    "structural",
]
Verdict = Literal["proved", "refuted", "undecided"]
METHODS: tuple[Method, ...] = get_args(Method)
STATELESS: tuple[Method, ...] = ("combinational", "rewriting")
DEEP: tuple[Method, ...] = ("bounded", "inductive")

_TOOLS = {"yosys": "yosys", "yosys-abc": "yosys"}
_CHECK = re.compile(
    r'^  cell \$check (?P<name>\S+)\n(?:    .*\n)*?    parameter \\FLAVOR "(?P<flavor>\w+)"\n'
    r"    connect \\EN (?P<enable>.*)\n(?:    connect \\(?:ARGS|TRG) .*\n)*"
    r"    connect \\A (?P<test>.*)\n  end\n",
    re.MULTILINE,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A property of a design, and how to prove it.

    ``design`` builds the component with the assertions; ``watches`` adds assertions to blocks
    inside it; outputs of blocks in ``free`` may have any value. With ``unreset``, memories and
    registers without reset may have any initial value. ``name`` is ``block.claim``. ``make test``
    also proves claims that are ``fast`` (a few seconds).
    """

    name: str
    what: str  # one sentence, for the table
    design: Callable[[], Elaboratable]
    method: Method = "reachable"
    depth: int = 0  # cycles of a bounded proof or of an induction
    seconds: int = 300  # time limit of the tool
    fast: bool = False
    unreset: bool = False
    free: Mapping[type[wiring.Component], Sequence[str]] = dataclasses.field(default_factory=dict)
    check: Callable[[str], list[str]] | None = None  # returns the faults of a netlist in JSON
    watches: Mapping[type[wiring.Component], Watch] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise CassandraError(
                f"method must be one of {', '.join(METHODS)}, not {self.method!r} ({self.name})"
            )
        if (self.method == "structural") != (self.check is not None):
            raise CassandraError(f"check must go with structural claims alone ({self.name})")
        if (self.method in DEEP) != (self.depth > 0):
            raise CassandraError(
                f"depth must be positive for {' and '.join(DEEP)} proofs alone, not {self.depth}"
                f" ({self.name})"
            )
        if self.unreset and self.method in (*STATELESS, "structural"):
            raise CassandraError(f"unreset must go with a method that knows state ({self.name})")

    @property
    def bound(self) -> str:
        """The number of cycles that the proof covers."""
        if self.method == "structural":
            return "the netlist"
        if self.method in STATELESS:
            return "every input"
        if self.method in ("reachable", "corresponding", "inductive"):
            return "any number of cycles"
        return f"{self.depth} cycles from reset"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """The tool's verdict: ``proved``, ``refuted`` or ``undecided``."""

    claim: Claim
    verdict: Verdict
    seconds: float
    log: str


def missing_tools() -> list[str]:
    """Return the programs that proofs need and that are missing from PATH."""
    return [name for name in _TOOLS if shutil.which(name) is None]


def to_properties(text: str) -> str:
    """Rewrite ``$check`` cells in Amaranth's RTLIL as ``$assert`` and ``$assume``.

    Yosys before 0.37, such as Debian 12's, does not know ``$check``.
    """

    def cell(match: re.Match[str]) -> str:
        return (
            f"  cell ${match['flavor']} {match['name']}\n    connect \\EN {match['enable']}\n"
            f"    connect \\A {match['test']}\n  end\n"
        )

    return _CHECK.sub(cell, text)


def prove(claim: Claim, folder: Path | None = None) -> Outcome:
    """Try to prove a claim; intermediate files go to ``folder`` if it is given.

    Raises CassandraError if a tool is missing or fails, or if the design asserts nothing.
    """
    for tool in missing_tools():
        raise CassandraError(
            f"{tool} must be on PATH for proofs, not absent (Debian: apt install {_TOOLS[tool]})"
        )
    if folder is None:
        with tempfile.TemporaryDirectory() as temporary:
            return prove(claim, Path(temporary))
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    with freeing(claim.free), watching(claim.watches):
        text = to_properties(rtlil_of(claim.design(), "claim"))
    if claim.check is None and "cell $assert" not in text:
        raise CassandraError(f"design must assert something, not nothing ({claim.name})")
    if claim.method in STATELESS and "cell $dff" in text:
        raise CassandraError(f"design must have no state, not flip-flops ({claim.name})")
    (folder / "claim.il").write_text(text)
    how = {"combinational": _sat, "structural": _structural}.get(claim.method, decide)
    verdict, log = how(claim, folder)
    return Outcome(claim=claim, verdict=verdict, seconds=time.perf_counter() - start, log=log)


_READ = "read_rtlil claim.il; hierarchy -check -top claim; proc; flatten; delete -output; opt_clean"


GATES = (
    "setundef -undriven -anyseq; opt -fast -keepdc; memory_map; techmap; opt -fast -keepdc; "
    "dffunmap; simplemap; setundef -anyseq; opt_clean; aigmap; opt_clean; "
    "write_aiger -zinit claim.aig"
)


def _structural(claim: Claim, folder: Path) -> tuple[Verdict, str]:
    """Check the cells as Amaranth makes them, without optimisation."""
    assert claim.check is not None
    wrong = claim.check(_netlist(folder))
    return ("refuted" if wrong else "proved"), "\n".join(wrong)


def _netlist(folder: Path) -> str:
    """Return the flat design in JSON."""
    script = "read_rtlil claim.il; hierarchy -check -top claim; proc -noopt; flatten; opt_clean"
    _run("yosys", "-p", f"{script}; write_json claim.json", folder=folder)
    return (folder / "claim.json").read_text()


def _sat(claim: Claim, folder: Path) -> tuple[Verdict, str]:
    """Solve all assertions at once with SAT."""
    script = f"{_READ}; opt -fast -keepdc; sat -set-assumes -prove-asserts -show-inputs"
    log = _run("yosys", "-p", f"{script} -timeout {claim.seconds} claim", folder=folder)
    if "SAT proof finished - no model found: SUCCESS!" in log:
        return "proved", log
    return ("refuted" if "model found: FAIL!" in log else "undecided"), log


def decide(claim: Claim, folder: Path) -> tuple[Verdict, str]:
    """Make one circuit of ``claim.il`` whose output is 1 if an assertion fails; ask ABC for a 1."""
    read = _READ
    if claim.unreset:
        (folder / "unreset.json").write_text(forgetful(_netlist(folder)))
        read = "read_json unreset.json; delete -output; opt_clean"
    _run("yosys", "-p", f"{read}; {GATES}", folder=folder)
    check = {
        "rewriting": "iprove",
        "reachable": f"pdr -T {claim.seconds}",
        "bounded": f"bmc3 -F {claim.depth} -T {claim.seconds}",
        "corresponding": f"scorr; pdr -T {claim.seconds}",
        "inductive": f"bmc3 -F {claim.depth + 1}; ind -F {claim.depth} -T {claim.seconds}",
    }[claim.method]
    commands = f"read_aiger claim.aig; fold; orpos; strash; {check}"
    log = _run("yosys-abc", "-c", commands, folder=folder)
    if "was asserted in frame" in log or re.search(r"^SATISFIABLE", log, re.MULTILINE):
        return "refuted", log
    done = re.search(r"No output asserted in (\d+) frames", log)
    proved = {
        "rewriting": re.search(r"^UNSATISFIABLE", log, re.MULTILINE) is not None,
        "reachable": "Property proved" in log,
        "bounded": done is not None and int(done[1]) >= claim.depth,
        "corresponding": "Property proved" in log,
        "inductive": "Networks are equivalent" in log
        and done is not None
        and int(done[1]) > claim.depth,
    }[claim.method]
    return ("proved" if proved else "undecided"), log


def _run(tool: str, *arguments: str, folder: Path) -> str:
    """Run a tool, log and return its output (``TOOL.log``); raise CassandraError on failure."""
    log = folder / f"{tool}.log"
    return run_program([tool, *arguments], folder, error=CassandraError, log=log)
