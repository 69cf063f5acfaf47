"""Flip bits in the flip-flops of a decoder or an encoder with DMA, and count the outcomes.

Each flip has a number, which with the seed determines some segments, a register, a bit of it and a
cycle. The segments run to their end, or until nothing moves. Then the peripheral is reset and runs
other segments, whose output must be that of a run without a flip. No burst may ever leave the
regions of its descriptors.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.documents import fill_file
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import markdown_table
from cassandra_spec.verif.dma.soft_errors.flips import (
    KINDS,
    RULES,
    Flip,
    Kind,
    Peripheral,
    Run,
    Work,
)
from cassandra_spec.verif.library.bulk import GatewareError

OUTCOMES = (
    "no effect",
    "flagged",
    "stops, flagged",
    "wrong, not flagged",
    "stops, not flagged",
)
"""Outcomes of a flip. Flagged: ERROR is not zero, or a packet of values has ``tuser`` set."""

PROMISES = RULES[:3]
"""Burst counts that must stay zero."""

_POOL = 64  # works, drawn once
_BLOCKS = {
    "engine.channel_0": "decoder",
    "engine.encoder": "encoder",
    "reads": "read master",
    "store": "write master",
    "engine.queue": "queue of descriptors",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hit:
    """A flip and its outcome."""

    number: int
    place: str  # register or memory
    outcome: str
    broken: tuple[str, ...]  # broken promises

    @property
    def block(self) -> str:
        """The part of the peripheral with the register."""
        return _block(self.place)


class Campaign:
    """Flips in one peripheral.

    Raises GatewareError if segments fail without a flip.
    """

    def __init__(self, kind: Kind, seed: int) -> None:
        self.peripheral, self._seed = Peripheral(kind), seed
        rng = np.random.default_rng([seed])
        works = [self.peripheral.draw(rng) for _ in range(_POOL)]
        self._pool = [(work, self.peripheral.run(work)) for work in works]
        for work, run in self._pool:
            if not run.clean or (kind == "dma" and not run.data.startswith(work.values.tobytes())):
                raise GatewareError(f"segments are not right without a flip (SEED={seed})")

    def run(self, numbers: Sequence[int]) -> Iterator[Hit]:
        """Run flips. Raises GatewareError with the flip's number if the segments after a reset
        fail.
        """
        for number in numbers:
            yield self._hit(number)

    def _hit(self, number: int) -> Hit:
        rng, places = np.random.default_rng([self._seed, number]), self.peripheral.places
        (work, right), (other, after) = self._drawn(rng), self._drawn(rng)
        place = int(rng.integers(len(places)))
        name, bits = places[place]
        cycle, bit = int(rng.integers(right.cycles)), int(rng.integers(bits))
        run = self.peripheral.run(work, Flip(cycle=cycle, place=place, bit=bit))
        if self.peripheral.run(other) != after:
            where = f"bit {bit} of {name} in cycle {cycle}"
            raise GatewareError(
                f"flip {number} (SEED={self._seed}), {where}: not right after reset"
            )
        broken = tuple(name for name in PROMISES if getattr(run, name))
        return Hit(number=number, place=name, outcome=_outcome(run, right), broken=broken)

    def _drawn(self, rng: np.random.Generator) -> tuple[Work, Run]:
        return self._pool[int(rng.integers(_POOL))]


def _outcome(run: Run, right: Run) -> str:
    if run.stopped:
        return OUTCOMES[2] if run.error else OUTCOMES[4]
    if run.error:
        return OUTCOMES[1]
    return OUTCOMES[0] if run.data == right.data else OUTCOMES[3]


def _block(place: str) -> str:
    first, second = (*place.split("."), "")[:2]
    return _BLOCKS.get(first) or _BLOCKS.get(f"{first}.{second}", "registers and codebooks")


def table(hits: Sequence[Hit], places: Sequence[tuple[str, int]]) -> str:
    """Format the shares of the outcomes by block, and the bursts that break a promise."""
    rows = []
    for block in (*sorted({_block(name) for name, _ in places}), "all"):
        mine = [hit for hit in hits if block in (hit.block, "all")]
        bits = sum(size for name, size in places if block in (_block(name), "all"))
        counts = Counter(hit.outcome for hit in mine)
        shares = [f"{100 * counts[name] / max(len(mine), 1):.1f} %" for name in OUTCOMES]
        breaks = sum(bool(hit.broken) for hit in mine)
        rows.append([block, f"{bits:,}", f"{len(mine):,}", *shares, breaks])
    head = ["flips in", "bits", "flips", *OUTCOMES, "leaves its regions"]
    return markdown_table(head, rows, left=1)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.verif.dma.soft_errors", description=__doc__)
    flags.add_some(parser, "kinds", "tops to test (default: both)", KINDS, KINDS)
    flags.add_count(parser, "flips", "flips of each top", 10_000)
    flags.add_count(parser, "first", "number of the first flip", 0, low=0)
    flags.add_count(parser, "seed", "seed of the flips", 1, low=0)
    flags.add_file(parser, "document", "also update the tables of this Markdown file")
    return parser


def _run(args: argparse.Namespace) -> int:
    tables, broken = {}, []
    for kind in args.kinds:
        print(f"{kind}: flips {args.first} to {args.first + args.flips - 1}, SEED={args.seed}")
        campaign = Campaign(kind, args.seed)
        hits = list(campaign.run(range(args.first, args.first + args.flips)))
        tables[f"soft-errors {kind}"] = table(hits, campaign.peripheral.places)
        print(tables[f"soft-errors {kind}"], flush=True)
        broken += [hit for hit in hits if hit.broken]
    for hit in broken:
        print(f"flip {hit.number} in {hit.place}: {', '.join(hit.broken)}", file=sys.stderr)
    if args.document:
        fill_file(args.document, tables)
    return int(bool(broken))


def main(argv: Sequence[str] | None = None) -> int:
    """Flip bits; return 1 if a burst left its regions, 2 for bad input."""
    return run_command(_parser, _run, argv)


if __name__ == "__main__":
    sys.exit(main())
