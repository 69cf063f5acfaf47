"""The exponent path: takes windows and gives ranks by the demand schedule, at every pace."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import cocotb

from cassandra_spec.rtl.decode.exponent_path import ExponentPath, queue_entries
from cassandra_spec.verif.library.bank import Bank, Case, play, rng_of
from cassandra_spec.verif.library.models import (
    bitmap_expand,
    count_zeros,
    lane_choices,
    number_of_bits,
    unary_bits,
)
from cassandra_spec.verif.library.workloads import MASKS, RANKS, Pace, masks_of, paces, ranks_of

# Lanes, rows of a window, limit.
PATHS = ((1, 1, 16), (2, 2, 16), (8, 1, 32), (8, 3, 16), (8, 4, 16), (16, 2, 16))
BEATS = 8  # beats of a segment
FULL_BEATS = 6  # beats of the segment that fills the queue

Path = tuple[int, int, int]


def design() -> Bank:
    """Build exponent paths of all sizes."""
    return Bank(
        {_name(*path): ExponentPath(lanes=path[0], window=path[1], limit=path[2]) for path in PATHS}
    )


def _name(lanes: int, window: int, limit: int) -> str:
    return f"path_{lanes}_{window}_{limit}"


@dataclasses.dataclass
class Ranks:
    """A model of the block: the window being counted, and the ranks after it."""

    limit: int
    counting: list[int] | None = None  # bits of the window taken in the last cycle
    queue: list[int] = dataclasses.field(default_factory=list)
    used: int = 0  # ranks that have left
    carry: int = 0
    overflow: int = 0
    peak: int = 0  # maximum number of ranks inside

    def cycle(self, window: list[int] | None) -> None:
        """Model a rising edge: count the window in the register, then take the next one."""
        bits = self.counting or []
        zeros = count_zeros(bits, self.carry, self.limit)
        self.queue += [run for run, bit in zip(zeros.runs, bits, strict=True) if bit]
        self.carry = zeros.carry_out
        self.overflow |= zeros.overflow
        self.counting = window
        self.peak = max(self.peak, len(self.queue) + sum(window or []))

    def leave(self, count: int) -> None:
        """Remove the ranks of a beat."""
        del self.queue[:count]
        self.used += count


def scheduled_beats(
    rng: random.Random,
    path: Path,
    model: Ranks,
    codes: Sequence[int],
    masks: Sequence[int],
    step: Pace,
    leave: Pace,
) -> Iterator[Case]:
    """Drive one segment by the rules ``starve`` and ``prefetch`` of docs/format.md, section 6.

    As in the decoder, the current beat waits in a register while the schedule, one slot ahead,
    takes the windows that the next beat needs. ``step`` and ``leave`` set when the two may move.
    """
    lanes, window, _ = path
    yield Case({"clear": 1})
    bits = itertools.chain(codes, itertools.repeat(1))
    q, slot, hand = 0, -1, None  # ``q`` of the format; mask of the current beat
    while slot < len(masks) or hand is not None:
        advance = hand is not None and leave()
        go = slot < len(masks) and step()
        need = masks[slot].bit_count() if 0 <= slot < len(masks) else 0
        starved = go and q < need
        steps = go and not starved and (hand is None or advance or slot < 0)
        prefetch = steps and slot + 1 < len(masks) and q - need < lanes
        taken = list(itertools.islice(bits, window * lanes)) if starved or prefetch else None
        yield _case(rng, path, model, hand, taken)
        if advance and hand is not None:
            model.leave(hand.bit_count())
            hand = None
        model.cycle(taken)
        q += sum(taken or [])
        if steps:
            hand = masks[slot] if slot >= 0 else hand
            q, slot = q - need, slot + 1


def _case(
    rng: random.Random,
    path: Path,
    model: Ranks,
    hand: int | None,
    taken: list[int] | None,
) -> Case:
    """Return one cycle; without a window or a beat the wires carry noise."""
    lanes, window, _ = path
    noise = rng.getrandbits(window * lanes)
    mask = rng.getrandbits(lanes) if hand is None else hand
    inputs = {
        "window": noise if taken is None else number_of_bits(taken),
        "window_valid": int(taken is not None),
        "choices": lane_choices(lanes, queue_entries(lanes, window), mask, model.used),
    }
    outputs = {
        "overflow": model.overflow,
        "busy": int(model.counting is not None),
        "tail": (model.used + len(model.queue)) % queue_entries(lanes, window),
        "ranks": None if hand is None else _legal(bitmap_expand(model.queue, hand, lanes), model),
    }
    return Case(inputs, outputs)


def _legal(ranks: Sequence[int | None], model: Ranks) -> list[int | None]:
    """Replace the ranks of illegal codes by None."""
    return [None if rank == model.limit else rank for rank in ranks]


def legal_segments(rng: random.Random, path: Path) -> Iterator[Case]:
    """Drive ranks x masks x paces; the next segment cuts some short."""
    lanes, _, limit = path
    kinds = itertools.cycle(itertools.product(RANKS, MASKS))
    for step, leave in itertools.chain(paces(rng), paces(rng)):
        rank_kind, mask_kind = next(kinds)
        masks = masks_of(rng, mask_kind, lanes, BEATS)
        ranks = ranks_of(rng, rank_kind, limit, sum(mask.bit_count() for mask in masks))
        model = Ranks(limit)
        cycles = scheduled_beats(rng, path, model, unary_bits(ranks), masks, step, leave)
        yield from itertools.islice(cycles, rng.choice((None, None, rng.randint(1, 3 * BEATS))))
        assert not model.overflow, "the model must not flag legal codes"


def illegal_segments(rng: random.Random, path: Path) -> Iterator[Case]:
    """Drive a code of ``limit`` zeros or more somewhere in a stream, then a legal stream."""
    lanes, _, limit = path
    masks = [(1 << lanes) - 1] * BEATS
    lengths = itertools.cycle((limit, limit + 1, 2 * limit + 5, 4 * limit))
    for length, (step, leave) in zip(lengths, paces(rng), strict=False):
        ranks = ranks_of(rng, "weights", limit, BEATS * lanes)
        broken = list(ranks)
        broken[rng.randrange(len(broken))] = length
        for stream, overflow in ((broken, 1), (ranks, 0)):
            model = Ranks(limit)
            yield from scheduled_beats(rng, path, model, unary_bits(stream), masks, step, leave)
            assert model.overflow == overflow


def fullest_queue(rng: random.Random, path: Path) -> Iterator[Case]:
    """Fill the queue as far as the schedule can, while the current beat waits.

    With windows of ones only, a full beat leaves one rank less than a beat needs, if the earlier
    beats use the right number. Alternating beats of one value and of more move the place of the
    queue.
    """
    lanes, window, limit = path
    most = (lanes - 1) + window * lanes + lanes
    for turn in range(12):
        ones = (1 - turn) % lanes
        masks = [1] * turn + [(1 << ones) - 1] + [(1 << lanes) - 1] * FULL_BEATS
        model = Ranks(limit)
        leaves = itertools.cycle([False] * 3 + [True])
        yield from scheduled_beats(rng, path, model, [], masks, lambda: True, leaves.__next__)
        assert most == model.peak <= queue_entries(lanes, window)


@cocotb.test()
async def legal_streams(dut: Any) -> None:
    """Every rank comes out in the lane that takes it; nothing overflows."""
    scripts = {_name(*path): legal_segments(rng_of("legal", *path), path) for path in PATHS}
    await play(dut, design(), scripts, clocked=True)


@cocotb.test()
async def illegal_codes_raise_overflow_until_clear(dut: Any) -> None:
    """``overflow`` rises with the window that breaks the limit, stays, and falls with ``clear``."""
    scripts = {_name(*path): illegal_segments(rng_of("illegal", *path), path) for path in PATHS}
    await play(dut, design(), scripts, clocked=True)


@cocotb.test()
async def the_queue_holds_what_the_schedule_can_leave_in_it(dut: Any) -> None:
    """The bound of docs/hardware/microarchitecture.md is reached, and nothing is lost."""
    scripts = {_name(*path): fullest_queue(rng_of("full", *path), path) for path in PATHS}
    await play(dut, design(), scripts, clocked=True)
