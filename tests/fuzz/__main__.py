"""Run the campaigns of :mod:`tests.fuzz.cases` for some seconds and print counts (``make fuzz``).

Cases are numbered, and the number is the seed: ``--case NAME NUMBER`` runs one again. They run in a
child process; one that crashes or hangs is counted, and the campaign continues.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from cassandra_spec.toolkit.tables import text_table
from tests.fuzz.cases import CAMPAIGNS, prepare

SLOW = 30
"""Seconds of the processor after which a case hangs; it may wait four times as long."""

MEMORY = 12 << 30
"""Bytes of address space that a child may have."""


def run_case(name: str, number: int, base: Path) -> tuple[str, str]:
    """Outcome of a case, and the trace if a promise is broken."""
    with tempfile.TemporaryDirectory() as room:
        try:
            case, _ = CAMPAIGNS[name]
            return case(random.Random(f"{name} {number}"), base, Path(room)), ""
        except BaseException:  # a panic of a Rust library is no Exception
            return "broken", traceback.format_exc()


def child(name: str, number: int, end: float, base: Path, pipe: int) -> None:
    """Run a case, then more until ``end``; each is announced, then told, in a line."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with os.fdopen(pipe, "w") as told:
        while True:
            print(json.dumps([number]), file=told, flush=True)
            _limit_time(SLOW)
            outcome = run_case(name, number, base)
            _limit_time(0)
            print(json.dumps([number, *outcome]), file=told, flush=True)
            if time.monotonic() >= end:
                return
            number += 1


def _limit_time(seconds: int) -> None:
    """End this process after so long; a busy machine does not count."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(4 * seconds)


def campaign(name: str, first: int, seconds: float, base: Path) -> tuple[Counter[str], list[str]]:
    """Return outcomes counted, and what is wrong."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    end, number = time.monotonic() + seconds, first
    while time.monotonic() < end:
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reading)
            try:
                child(name, number, end, base, writing)
            finally:
                os._exit(0)
        os.close(writing)
        open_case = False
        with os.fdopen(reading) as lines:
            for line in lines:
                number, *outcome = json.loads(line)
                open_case = not outcome
                if outcome:
                    counts[outcome[0]] += 1
                    if outcome[1]:
                        wrong.append(f"--case {name!r} {number}\n{outcome[1]}")
        status = os.waitpid(pid, 0)[1]
        if open_case:
            hung = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (
                signal.SIGALRM,
                signal.SIGPROF,
            )
            counts["hung" if hung else "crashed"] += 1
            wrong.append(f"--case {name!r} {number}\nended with status {status}")
        number += 1
    return counts, wrong


def main() -> int:
    """Print the table; 1 if a promise was broken, or a case crashed or hung."""
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=100, help="of the campaign (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case (default 0)")
    parser.add_argument("--case", nargs=2, metavar=("NAME", "NUMBER"), help="repeat one case")
    args = parser.parse_args()
    outcomes = ("refused", "accepted", "broken", "crashed", "hung")
    rows, wrong = [], []
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        if args.case:
            print(*run_case(args.case[0], int(args.case[1]), Path(folder)), sep="\n")
            return 0
        for name, (_, part) in CAMPAIGNS.items():
            counts, found = campaign(name, args.seed, args.seconds * part, Path(folder))
            rows.append((name, f"{counts.total()}", *(f"{counts[one]}" for one in outcomes)))
            wrong += found
    print(text_table(("campaign", "cases", *outcomes), rows))
    for each in wrong[:20]:
        print(f"\n{each}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
