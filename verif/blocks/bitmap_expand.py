"""The places of lanes, and the block buffer under the demand rule."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import cocotb

from cassandra_spec.rtl.decode.bitmap_expand import BlockBuffer, LanePlaces
from cassandra_spec.verif.library.bank import Bank, Case, play, rng_of
from cassandra_spec.verif.library.models import (
    bitmap_expand,
    lane_choices,
    number_of_bits,
)
from cassandra_spec.verif.library.workloads import MASKS, Pace, masks_of, paces

BUFFERS = ((1, 1), (2, 3), (8, 9), (16, 7), (32, 9))  # lanes, planes
PLACES = ((1, 1), (1, 4), (2, 4), (8, 8), (8, 16), (16, 64), (32, 64))  # lanes, places
BEATS = 8  # beats of a segment


def design() -> Bank:
    """Build buffers and places of all sizes."""
    buffers = {f"buffer_{n}": BlockBuffer(lanes=n, planes=planes) for n, planes in BUFFERS}
    places = {f"places_{n}_{many}": LanePlaces(lanes=n, places=many) for n, many in PLACES}
    return Bank({**buffers, **places})


def buffered_beats(
    rng: random.Random, lanes: int, planes: int, masks: list[int], step: Pace, leave: Pace
) -> Iterator[Case]:
    """Drive one segment; the rule ``blocked`` of docs/format.md, section 6, loads its blocks.

    As in the decoder, the current beat waits in a register while the schedule, one beat ahead,
    loads the blocks that the next beat needs. ``step`` and ``leave`` set when the two may move.
    """
    yield Case({"clear": 1})
    queue: list[int] = []  # values in the buffer, those of the current beat first
    avail = used = 0  # ``avail`` of the format; values that have left
    hand: int | None = None  # mask of the current beat
    waiting = list(masks)
    while waiting or hand is not None:
        advance = hand is not None and leave()
        steps = bool(waiting) and (hand is None or advance) and step()
        load = steps and avail < waiting[0].bit_count()
        block = [rng.getrandbits(planes) for _ in range(lanes)]
        rows = [number_of_bits(value >> j & 1 for value in block) for j in range(planes)]
        mask = rng.getrandbits(lanes) if hand is None else hand
        fields = None if hand is None else bitmap_expand(queue, hand, lanes)
        yield Case(
            {"block": rows, "load": int(load), "choices": choices_of(lanes, mask, used)},
            {"fields": fields},
        )
        if advance:
            used += mask.bit_count()
            queue, hand = queue[mask.bit_count() :], None
        if load:
            queue, avail = queue + block, avail + lanes
            assert len(queue) <= 2 * lanes, "the demand rule fills two blocks at most"
        if steps:
            hand = waiting.pop(0)
            avail -= hand.bit_count()


def choices_of(lanes: int, mask: int, used: int) -> dict[str, int]:
    """Return the selection bits for a store of two blocks."""
    return lane_choices(lanes, 2 * lanes, mask, used)


def places_taken(rng: random.Random, lanes: int, places: int) -> Iterator[Case]:
    """Drive streams of beats, and let each wait."""
    for kind, (leave, _) in itertools.product(MASKS, paces(rng)):
        yield Case({"clear": 1, "lane_mask": rng.getrandbits(lanes), "advance": rng.getrandbits(1)})
        used = 0
        for mask in masks_of(rng, kind, lanes, rng.randint(1, BEATS)):
            moves = False
            while not moves:
                moves = leave()
                yield Case(
                    {"lane_mask": mask, "advance": int(moves)},
                    {"head": used % places, "choices": lane_choices(lanes, places, mask, used)},
                )
            used += mask.bit_count()


def segments(rng: random.Random, lanes: int, planes: int) -> Iterator[Case]:
    """Drive segments of every kind of mask under every pair of paces; the next cuts some short."""
    for kind, (step, leave) in itertools.product(MASKS, paces(rng)):
        masks = masks_of(rng, kind, lanes, BEATS)
        beats = buffered_beats(rng, lanes, planes, masks, step, leave)
        yield from itertools.islice(beats, rng.choice((None, None, rng.randint(1, 2 * BEATS))))


@cocotb.test()
async def places_of_every_kind_of_mask(dut: Any) -> None:
    """Lanes get their values with all masks and paces, in stores of a beat's size and larger."""
    scripts = {
        f"places_{n}_{many}": places_taken(rng_of("places", n, many), n, many) for n, many in PLACES
    }
    await play(dut, design(), scripts, clocked=True)


@cocotb.test()
async def buffer_under_the_demand_rule(dut: Any) -> None:
    """Lanes get their values with all masks, paces and back-pressure, and with new segments."""
    scripts = {f"buffer_{n}": segments(rng_of("buffer", n), n, planes) for n, planes in BUFFERS}
    await play(dut, design(), scripts, clocked=True)
