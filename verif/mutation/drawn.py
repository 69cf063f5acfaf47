"""Draw faults with Yosys's ``mutate`` in the exported decoder and encoder.

``python -m cassandra_spec.verif.mutation.drawn [--top decoder|encoder] [--faults 500] [--seed 1]``

The command draws faults (a bit of a cell's port is stuck, inverted, or inverted by another bit),
puts all of them into one netlist of word-level cells behind a selecting input, builds that once,
and runs the batches of :mod:`cassandra_spec.verif.mutation.batches` with each fault until the
output differs. A survivor is equivalent if ABC proves that its effect never leaves the cells around
it (:mod:`cassandra_spec.verif.mutation.around`). Other survivors are named, and the command exits
with 1.

An interrupted run continues: the journal, ``TOP.jsonl`` in the folder of ``--out``, stays valid
while netlist and faults are the same. It records the batches of each fault, so after a change of
the batches only new ones run, with the faults that the others left.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import pickle
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode.top import DecoderTop, to_verilog
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encoder import EncoderTop
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.programs import run_program
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.verif.mutation import batches
from cassandra_spec.verif.mutation.around import stays_inside
from cassandra_spec.verif.mutation.opened import opened

PORT = "fault"
"""Input of a faulty netlist that selects a fault; 0: none."""

_BITS = 10
DECODER = DecoderConfig(lanes=8)
ENCODER = EncoderConfig(lanes=8, codebook=32, window=3, group=64, segment=2048)
TOPS = ("decoder", "encoder")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn:
    """A fault: its mode, a bit of a cell's port, and the port's control bit, if any."""

    number: int
    mode: str  # const0, const1, inv, cnot0 or cnot1
    cell: str
    port: str
    bit: int
    control: int | None

    @property
    def change(self) -> str:
        """The fault in the syntax of ``mutate``, without the module."""
        control = "" if self.control is None else f" -ctrlbit {self.control}"
        place = f"-cell {self.cell} -port {self.port} -portbit {self.bit}{control}"
        return f"-mode {self.mode} {place}"

    def __str__(self) -> str:
        control = "" if self.control is None else f" by {self.control}"
        return f"{self.mode}{control} {self.cell} {self.port}[{self.bit}]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Faulty:
    """A netlist with selectable faults."""

    module: str
    folder: Path
    faults: tuple[Drawn, ...]

    @property
    def verilog(self) -> str:
        """Verilog with all faults and the selecting input."""
        return (self.folder / "faulty.v").read_text()

    @property
    def netlist(self) -> str:
        """The netlist without faults, in JSON; its cells have the names in the faults."""
        return (self.folder / "good.json").read_text()


def exported(top: str) -> tuple[str, str]:
    """Return the Verilog of a top, and the name of its module."""
    gateware = DecoderTop(DECODER) if top == "decoder" else EncoderTop(ENCODER)
    return to_verilog(gateware), gateware.module_name


def draw(verilog: str, module: str, number: int, seed: int, folder: Path) -> Faulty:
    """Draw faults and write the netlists; none is in a memory, whose pins other cells have, too.

    Raises CassandraError if Yosys is missing, or the input is too narrow for the faults.
    """
    if not 0 < number < 1 << _BITS:
        raise CassandraError(f"--faults must be from 1 to {(1 << _BITS) - 1}, not {number}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "exported.v").write_text(verilog)
    script = (
        f"read_verilog exported.v; prep -flatten -top {module}; write_json good.json;"
        f" mutate -list {number} -seed {seed} -ctrl {PORT} {_BITS} 1 -o faults.ys"
        " * t:$mem* %d;"
        " script faults.ys; opt_clean; write_rtlil faulty.il; write_verilog -noattr faulty.v"
    )
    run_program(["yosys", "-q", "-p", script], folder, error=CassandraError)
    faults = tuple(_read(line) for line in (folder / "faults.ys").read_text().splitlines())
    return Faulty(module=module, folder=folder, faults=faults)


def _read(line: str) -> Drawn:
    """Parse a line of ``mutate -list``."""
    words = re.split(r" (?=-)", line)
    values = {name: value for name, _, value in (word.partition(" ") for word in words[1:])}
    control = values.get("-ctrlbit")
    return Drawn(
        number=int(values["-ctrl"].split()[2]),
        mode=values["-mode"],
        cell=values["-cell"].removeprefix("\\"),
        port=values["-port"].removeprefix("\\"),
        bit=int(values["-portbit"]),
        control=None if control is None else int(control),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of a fault: the batch that killed it, or the proof that it is equivalent."""

    number: int
    what: str
    batch: str = ""
    proof: str = ""  # the cells that it never leaves
    timing: bool = False  # the output was the same, later or earlier
    ran: tuple[str, ...] = ()  # digests of the batches that ran

    @property
    def found(self) -> bool:
        """True if the output killed it."""
        return bool(self.batch) and not self.timing


class Journal:
    """Results of faults, by number; the first line identifies the netlist and the faults."""

    def __init__(self, path: Path, digest: str) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.is_file() else []
        same = bool(lines) and json.loads(lines[0]) == {"digest": digest}
        self.results = [_of_line(line) for line in lines[1:]] if same else []
        if not same:
            path.write_text(json.dumps({"digest": digest}) + "\n")

    def add(self, result: Result) -> None:
        """Add a result; it replaces an earlier one of the same fault."""
        self.results.append(result)
        with self._path.open("a") as file:
            file.write(json.dumps(dataclasses.asdict(result)) + "\n")

    def latest(self) -> dict[int, Result]:
        """Return the latest result of each fault."""
        return {result.number: result for result in self.results}


def _of_line(line: str) -> Result:
    fields = json.loads(line)
    return Result(**{**fields, "ran": tuple(fields["ran"])})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """A batch, its output without a fault, and a digest of both."""

    batch: batches.Batch
    wanted: batches.Seen
    digest: str


def _work(batch: batches.Batch, gateware: batches.Gateware) -> Work:
    wanted = gateware.seen(batch)
    parts = pickle.dumps((batch.name, batch.requests, batch.traffic, wanted))
    return Work(batch=batch, wanted=wanted, digest=hashlib.sha256(parts).hexdigest()[:8])


def tried(top: str, faulty: Faulty, done: Mapping[int, Result], seed: int) -> Iterator[Result]:
    """Run batches with each fault until one kills it; skip batches that it has survived.

    ``done`` has earlier results. A fault without remaining batches yields nothing.
    """
    rng = np.random.default_rng(seed)
    gateware: batches.Gateware
    if top == "decoder":
        gateware = batches.FaultyDecoder(DECODER, faulty.verilog)
        work = list(batches.decoder_batches(rng, DECODER))
    else:
        gateware = batches.FaultyEncoder(ENCODER, faulty.verilog)
        work = list(batches.encoder_batches(rng, ENCODER))
    gateware.choose(0)
    every = [_work(batch, gateware) for batch in work]
    for fault in faulty.faults:
        fresh = Result(number=fault.number, what=str(fault))
        result, rest = left_to_run(done.get(fault.number, fresh), fresh, every)
        if rest:
            gateware.choose(fault.number)
            yield tried_with(gateware, result, rest)


def left_to_run(
    result: Result, fresh: Result, every: Sequence[Work]
) -> tuple[Result, Sequence[Work]]:
    """Return the known result of a fault, and the batches that may still kill it.

    Return None if it is equivalent, or was killed by a batch that still exists. If that batch is
    gone, all batches run again.
    """
    if result.proof:
        return result, ()
    if result.batch and not {work.digest for work in every}.issuperset(result.ran):
        return fresh, every
    return result, () if result.found else [w for w in every if w.digest not in result.ran]


def tried_with(gateware: batches.Gateware, result: Result, every: Sequence[Work]) -> Result:
    """Run batches with the fault active until one kills it."""
    for work in every:
        seen = gateware.seen(work.batch)
        found = seen.what != work.wanted.what
        late = not result.batch and seen.cycles != work.wanted.cycles
        result = dataclasses.replace(result, ran=(*result.ran, work.digest))
        if found or late:
            result = dataclasses.replace(result, batch=work.batch.name, timing=not found)
        if found:
            break
    return result


def prove_survivors(faulty: Faulty, results: Sequence[Result], seconds: int) -> Iterator[Result]:
    """Yield the survivors that are proved equivalent."""
    by_number = {fault.number: fault for fault in faulty.faults}
    (module,) = json.loads(faulty.netlist)["modules"].values()
    netlist = opened(module)
    for result in results:
        fault = by_number[result.number]
        cells = stays_inside(netlist, fault.cell, fault.change, faulty.folder, seconds)
        if cells is not None:
            yield dataclasses.replace(result, proof=f"{cells} cells")


def summary(top: str, results: Sequence[Result]) -> str:
    """Format the numbers of killed and equivalent faults, and name each survivor."""
    found = [r for r in results if r.found]
    timing = [r for r in results if r.timing and not r.proof]
    proved = sum(bool(r.proof) for r in results)
    left = [r for r in results if not r.batch and not r.proof]
    lines = [
        f"{top}: {len(results)} faults, {len(found)} found by what comes out,"
        f" {len(timing)} by when; proved to be none: {proved}; left: {len(left)}",
        *(f"  {r.number}: {r.what}" for r in left),
    ]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Draw and run; return 0 if every fault is killed or proved equivalent, 1 otherwise."""
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.verif.mutation.drawn", description=__doc__)
    text = "top to test; repeatable (default: both)"
    parser.add_argument("--top", choices=TOPS, action="append", help=text)
    parser.add_argument(
        "--faults", type=int, default=500, help="number of faults of each top (default 500)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of faults and payloads")
    parser.add_argument(
        "--seconds", type=int, default=200, help="time limit of a step of a proof (default 200)"
    )
    flags.add_folder(parser, "out", "folder for results", "build/mutation/drawn")
    return parser


def _run(options: argparse.Namespace) -> int:
    code = 0
    for top in options.top or TOPS:
        results = run(top, options)
        print(summary(top, results), flush=True)
        code |= any(not result.batch and not result.proof for result in results)
    return code


def run(top: str, options: argparse.Namespace) -> list[Result]:
    """Return all results of a top; skip those in the journal."""
    out = options.out.resolve()
    start = time.perf_counter()
    faulty = draw(*exported(top), options.faults, options.seed, out / top)
    journal = Journal(out / f"{top}.jsonl", _digest(faulty, options.seed))
    for result in tried(top, faulty, journal.latest(), options.seed):
        journal.add(result)
        if not result.batch:
            print(f"{result.number}: {result.what} survives", file=sys.stderr)
    survivors = [r for r in journal.latest().values() if not r.proof and not r.batch]
    for result in prove_survivors(faulty, survivors, options.seconds):
        journal.add(result)
    print(f"{top}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return list(journal.latest().values())


def _digest(faulty: Faulty, seed: int) -> str:
    parts = (faulty.verilog, str(seed))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


if __name__ == "__main__":
    raise SystemExit(main())
