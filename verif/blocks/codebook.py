"""The codebook: loads packets of every length, with pauses, and reads all the time."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import cocotb

from cassandra_spec.rtl.decode.codebook import Codebook
from cassandra_spec.verif.library.bank import Bank, Case, play, rng_of
from cassandra_spec.verif.library.workloads import Pace, paces

BOOKS = ((1, 1), (2, 2), (8, 16), (16, 16), (8, 32))  # lanes, entries
LENGTHS = ("one", "full", "less", "more", "any", "far_more", "any")
"""Lengths of packets, relative to the codebook's size; seven, so that every pace meets each."""


def design() -> Bank:
    """Build codebooks of all sizes."""
    return Bank({_name(*book): Codebook(lanes=book[0], size=book[1]) for book in BOOKS})


def _name(lanes: int, size: int) -> str:
    return f"book_{lanes}_{size}"


def _reads(
    rng: random.Random, lanes: int, size: int, book: list[int]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ranks of all lanes, and the model's entries at them."""
    ranks = [rng.randrange(size) for _ in range(lanes)]
    return {"ranks": ranks}, _found(book, ranks)


def _found(book: list[int], ranks: list[int]) -> dict[str, Any]:
    return {
        "exponents": [book[rank] if rank < len(book) else None for rank in ranks],
        "missing": sum((rank >= len(book)) << lane for lane, rank in enumerate(ranks)),
    }


def packet_of(rng: random.Random, kind: str, size: int) -> list[int]:
    """Draw a packet."""
    lengths = {
        "one": 1,
        "less": max(size - 1, 1),
        "full": size,
        "more": size + 1,
        "far_more": 3 * size,
        "any": rng.randint(1, size),
    }
    return [rng.randrange(256) for _ in range(lengths[kind])]


def loads(rng: random.Random, lanes: int, size: int) -> Iterator[Case]:
    """Load packets under every pair of paces of source and ``enable``; read in each cycle."""
    book: list[int] = []
    look = functools.partial(_reads, rng, lanes, size, book)
    seen, found = look()
    yield Case(seen, {"idle": 1, "load__ready": 0, **found})
    lengths = itertools.cycle(LENGTHS)
    for sides in itertools.chain(paces(rng), paces(rng)):
        packet = packet_of(rng, next(lengths), size)
        yield from load(rng, size, book, packet, sides, look)
        yield from rest(rng, lanes, size, book)


def load(
    rng: random.Random,
    size: int,
    book: list[int],
    packet: list[int],
    sides: tuple[Pace, Pace],
    look: Callable[[], tuple[dict[str, Any], dict[str, Any]]],
) -> Iterator[Case]:
    """Load one packet; ``book`` becomes the expected content.

    ``sides`` set when the source offers and ``enable`` is 1. ``look`` gives the block's other
    inputs in a cycle and the outputs expected for ``book``.
    """
    offer, allow = sides
    place, offered = 0, False
    while place < len(packet):
        offered = offered or offer()
        enable = allow()
        payload = {"exponent": packet[place], "last": int(place == len(packet) - 1)}
        noise = {"exponent": rng.randrange(256), "last": rng.randrange(2)}
        seen, said = look()
        inputs = {"load__valid": int(offered), "load__payload": payload if offered else noise}
        outputs = {"load__ready": int(enable), "idle": int(place == 0 and not offered)}
        yield Case({**inputs, "enable": int(enable), **seen}, {**outputs, **said})
        if offered and enable:
            book[:] = [*(book if place else []), packet[place]][:size]
            place, offered = place + 1, False


def rest(rng: random.Random, lanes: int, size: int, book: list[int]) -> Iterator[Case]:
    """Read every rank without loading."""
    for rank in range(size):
        ranks = [(rank + lane) % size for lane in range(lanes)]
        noise = {"exponent": rng.randrange(256), "last": rng.randrange(2)}
        yield Case(
            {"load__payload": noise, "enable": rng.randrange(2), "ranks": ranks},
            {"idle": 1, **_found(book, ranks)},
        )


@cocotb.test()
async def packets_of_every_length(dut: Any) -> None:
    """Idle x enable x length; ranks without an entry are missing, also during a load."""
    scripts = {_name(*book): loads(rng_of("load", *book), *book) for book in BOOKS}
    await play(dut, design(), scripts, clocked=True)


@cocotb.test()
async def a_load_never_stalls(dut: Any) -> None:
    """With ``enable``, one entry is taken in each cycle, packet after packet."""
    scripts = {_name(*book): packet_train(rng_of("train", *book), *book) for book in BOOKS}
    await play(dut, design(), scripts, clocked=True)


def packet_train(rng: random.Random, lanes: int, size: int) -> Iterator[Case]:
    """Load packets without a pause."""
    for kind in 3 * LENGTHS:
        packet = packet_of(rng, kind, size)
        for place, exponent in enumerate(packet):
            payload = {"exponent": exponent, "last": int(place == len(packet) - 1)}
            yield Case(
                {"load__valid": 1, "load__payload": payload, "enable": 1}, {"load__ready": 1}
            )
        ranks = [rng.randrange(min(size, len(packet))) for _ in range(lanes)]
        exponents = [packet[rank] for rank in ranks]
        yield Case({"ranks": ranks}, {"exponents": exponents, "missing": 0, "idle": 1})
