"""Unpacking of residues: fields of 0 to 7 bits, lane by lane."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import cocotb

from cassandra_spec.rtl.common.residue import FIELD_MAX, ResidueUnpack
from cassandra_spec.verif.library.bank import Bank, Case, play, rng_of
from cassandra_spec.verif.library.coverage import FOLDER, Coverage
from cassandra_spec.verif.library.models import join_fields

LANES = (1, 2, 4, 8, 16, 32)
RANDOM_BEATS = 1500


def design() -> Bank:
    """Build an unpacker for each number of lanes."""
    return Bank({f"lanes_{lanes}": ResidueUnpack(lanes=lanes) for lanes in LANES})


def case_of(rng: random.Random, widths: list[int], ones: bool = False) -> Case:
    """Return fields of these widths, with noise behind them; ``ones`` sets all their bits."""
    fields = [(1 << w) - 1 if ones else rng.getrandbits(w) if w else 0 for w in widths]
    used = sum(widths)
    noise = rng.getrandbits(FIELD_MAX * len(widths)) >> used << used
    needs = [sum(widths[i // 8 * 8 : i + 4]) for i in range(0, len(widths), 4)]
    skip = rng.randrange(len(widths))
    before = rng.getrandbits(skip) if skip else 0
    bits = (join_fields(fields, widths) | noise) << skip | before
    return Case({"bits": bits, "skip": skip, "widths": widths, "needs": needs}, {"fields": fields})


def directed_beats(rng: random.Random, lanes: int) -> Iterator[Case]:
    """Yield one width in all lanes, then one lane with each width among empty, full and random
    ones.
    """
    for width in range(FIELD_MAX + 1):
        yield case_of(rng, [width] * lanes)
        yield case_of(rng, [width] * lanes, ones=True)
        for place in range(lanes):
            for others in (0, FIELD_MAX):
                widths = [others] * lanes
                widths[place] = width
                yield case_of(rng, widths)


def random_beats(rng: random.Random, lanes: int, coverage: Coverage) -> Iterator[Case]:
    """Yield random widths: uniform, or mostly narrow as in weights."""
    for _ in range(RANDOM_BEATS):
        most = rng.choice((1, 3, FIELD_MAX))
        widths = [rng.randint(0, most) for _ in range(lanes)]
        for width in widths:
            coverage.sample(f"residue.width.{width}")
        yield case_of(rng, widths)


@cocotb.test()
async def beats_at_the_edges(dut: Any) -> None:
    """Lanes may be all empty, all full, or all alike but one."""
    scripts = {f"lanes_{n}": directed_beats(rng_of("directed", n), n) for n in LANES}
    await play(dut, design(), scripts, clocked=False)


@cocotb.test()
async def beats_at_random(dut: Any) -> None:
    """Random widths and fields."""
    coverage = Coverage()
    scripts = {f"lanes_{n}": random_beats(rng_of("random", n), n, coverage) for n in LANES}
    await play(dut, design(), scripts, clocked=False)
    coverage.require("residue.width.*")
    coverage.save(FOLDER / "block_residue.json")
