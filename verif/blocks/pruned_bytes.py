"""The bytes of pruned values, whole and coded: moved to their lanes, with rows shared by beats."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import cocotb

from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode.pruned_exponents import PrunedBytes
from cassandra_spec.verif.library.bank import Bank, Case, play, rng_of
from cassandra_spec.verif.library.models import number_of_bits
from cassandra_spec.verif.library.workloads import MASKS, masks_of

LANES = (32,)  # the suites of paths and decoders have 8 and 16
ROWS = 16  # maximum rows of a beat
BEATS = 6  # beats of a segment


def design() -> Bank:
    """Build one block for each number of lanes."""
    return Bank(
        {_name(lanes): PrunedBytes(DecoderConfig(lanes=lanes, coded=True)) for lanes in LANES}
    )


def _name(lanes: int) -> str:
    return f"bytes_{lanes}"


def load(book: Sequence[int]) -> Iterator[Case]:
    """Load a codebook, which may be empty."""
    words = [{"exponent": exponent, "last": 0, "empty": 0} for exponent in book]
    words = words or [{"exponent": 0, "last": 0, "empty": 1}]
    words[-1]["last"] = 1
    for word in words:
        yield Case({"load__valid": 1, "load__payload": word, "load_enable": 1})
    yield Case({"load_enable": 1}, {"entries": len(book), "idle": 1})


def segment(
    rng: random.Random, lanes: int, masks: Sequence[int], escapes: float, book: Sequence[int] | None
) -> Iterator[Case]:
    """Drive the beats of a segment, some with a wait; without a ``book`` values are whole."""
    yield Case({"clear": 1})
    stream, used = rng.randbytes(4 * lanes * len(masks) + 8 * lanes), 0  # more bytes than needed
    size = lanes // 8  # bytes of a row
    for mask in masks:
        first = -(-used // size)  # row
        inputs = _beat(rng, lanes, mask, escapes, book)
        values: list[int | None] = [None] * lanes  # expected values; None in lanes that are not raw
        for lane in range(lanes):
            if mask >> lane & 1:
                width = 1 + inputs["long"][lane]
                waiting = inputs["beat_values"][lane]
                values[lane] = _value(stream[used : used + width], waiting, book)
                used += width
        inputs["long"] = number_of_bits(inputs["long"])
        start = first * size
        rows = [stream[start + row * size : start + (row + 1) * size] for row in range(ROWS)]
        inputs["rows"] = [int.from_bytes(row, "little") for row in rows]
        outputs = {"wanted": -(-used // size) - first, "values": values}
        yield Case(inputs, outputs)
        yield Case({**inputs, "enable": 1}, outputs)


def _beat(
    rng: random.Random, lanes: int, mask: int, escapes: float, book: Sequence[int] | None
) -> dict[str, Any]:
    """Return the inputs of a beat; lanes that wait for their bytes have a rank."""
    raw = [mask >> lane & 1 for lane in range(lanes)]
    share = escapes if book else 1.0  # without a codebook all take two bytes
    long = [int(flag and rng.random() < share) for flag in raw]
    ranks = [rng.randrange(len(book)) if book else 0 for _ in range(lanes)]
    values = [
        rank << 7 if flag else rng.getrandbits(16) for flag, rank in zip(raw, ranks, strict=True)
    ]
    return {"coded": int(book is not None), "beat_values": values, "raw": mask, "long": long}


def _value(field: bytes, waiting: int, book: Sequence[int] | None) -> int:
    """Return a value from its bytes, by docs/format.md, section 4.1."""
    if book is None:
        return int.from_bytes(field, "little")
    exponent = field[1] if len(field) == 2 else book[waiting >> 7]
    return field[0] >> 7 << 15 | exponent << 7 | field[0] & 0x7F


def script(lanes: int) -> Iterator[Case]:
    """Drive masks x shares of escapes x codebooks, and whole values between them."""
    rng = rng_of(_name(lanes))
    books = [rng.sample(range(256), size) for size in (15, 1, 0)]
    for book in books:
        yield from load(book)
        for kind, escapes in itertools.product(MASKS, (0.0, 0.3, 1.0)):
            masks = masks_of(rng, kind, lanes, BEATS)
            yield from segment(rng, lanes, masks, escapes, book)
        yield from segment(rng, lanes, masks_of(rng, "half", lanes, BEATS), 0.0, None)


@cocotb.test()
async def values_come_from_their_bytes(dut: Any) -> None:
    """All numbers of lanes agree with the model, in lockstep."""
    await play(dut, design(), {_name(lanes): script(lanes) for lanes in LANES}, clocked=True)
