"""The rank map: loads packets of every length, with pauses, and looks up all the time."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator
from typing import Any

import cocotb

from cassandra_spec.rtl.encode.rank_map import AT_ONCE, MORE, RankMap
from cassandra_spec.verif.blocks.codebook import LENGTHS, load
from cassandra_spec.verif.library.bank import Bank, Case, play, rng_of
from cassandra_spec.verif.library.workloads import paces

BOOKS = ((1, 16), (8, 32), (16, 16))  # lanes, entries


def design() -> Bank:
    """Build maps of all sizes."""
    return Bank({_name(*book): RankMap(lanes=book[0], size=book[1]) for book in BOOKS})


def _name(lanes: int, size: int) -> str:
    return f"map_{lanes}_{size}"


def _packet(rng: random.Random, kind: str, size: int) -> list[int]:
    """Return distinct exponents."""
    lengths = {"one": 1, "less": size - 1, "full": size, "more": size + 1, "far_more": 3 * size}
    return rng.sample(range(256), lengths.get(kind, rng.randint(1, size)))


def _lookup(
    rng: random.Random, lanes: int, size: int, book: list[int]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return exponents of all lanes, half of them from the book, and a part's expected ranks."""
    known = book or [0]
    part = rng.randrange(size // AT_ONCE)
    wanted = [rng.choice(known) if rng.random() < 0.5 else rng.randrange(256) for _ in range(lanes)]
    places = [book.index(e) if e in book else None for e in wanted]
    shown = {*range(AT_ONCE * part, AT_ONCE * (part + 1)), *range(AT_ONCE, AT_ONCE + MORE)}
    ranks = [place if place in shown else None for place in places]
    found = sum((rank is not None) << lane for lane, rank in enumerate(ranks))
    return {"exponents": wanted, "part": part}, {"ranks": ranks, "found": found}


def _script(rng: random.Random, lanes: int, size: int) -> Iterator[Case]:
    """Drive packets under every pair of paces, and lookups between them."""
    book: list[int] = []
    lengths = itertools.cycle(LENGTHS)
    look = functools.partial(_lookup, rng, lanes, size, book)
    for sides in paces(rng):
        packet = _packet(rng, next(lengths), size)
        yield from load(rng, size, book, packet, sides, look)
        for _ in range(size):
            looked, expected = look()
            yield Case(looked, {**expected, "idle": 1})


@cocotb.test()
async def packets_of_every_length(dut: Any) -> None:
    """Idle x enable x length; exponents outside the book are not found, also during a load."""
    scripts = {_name(*book): _script(rng_of("load", *book), *book) for book in BOOKS}
    await play(dut, design(), scripts, clocked=True)
