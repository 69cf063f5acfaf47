"""Segments for the encoder: values of every kind, in every setting of a command."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.format import SCHEMES, Format, Scheme
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encode.vector_buffer import select_shape
from cassandra_spec.verif.encoder.model import Segment

KINDS = ("normal", "any", "equal", "zeros", "ties", "edges", "small", "wide", "infinite")
"""Kinds of values: see :func:`values_of`."""

_EDGES = (0, 0x8000, 1, 0x7F, 0x80, 0x7F7F, 0x7F80, 0xFF80, 0x7FC1, 0xFFFF, 0x3FFF, 0x4000)


def values_of(rng: np.random.Generator, kind: str, count: int) -> NDArray[np.uint16]:
    """Return BF16 patterns of a kind: random or directed."""
    signs = rng.integers(0, 2, count) << 15
    if kind == "normal":
        numbers = rng.normal(scale=2.0 ** rng.integers(-8, 8), size=count)
        return (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    magnitudes = {
        "any": rng.integers(0, 1 << 15, count),
        "equal": np.full(count, rng.integers(0, 1 << 15)),
        "zeros": np.zeros(count, dtype=np.int64),
        "ties": rng.choice(rng.integers(0x3F00, 0x4080, 3), count),  # across the whole vector
        "edges": rng.choice(np.array(_EDGES) & 0x7FFF, count),
        "small": rng.integers(0, 11 << 7, count),  # subnormals, zeros, the smallest normal values
        "wide": rng.integers(110, 130, count) << 7 | rng.integers(0, 128, count),
        "infinite": 0x7F80 | rng.integers(0, 2, count) * rng.integers(0, 128, count),
    }[kind]
    return (signs | magnitudes).astype(np.uint16)


def _codebook(rng: np.random.Generator, fmt: Format, values: NDArray[np.uint16]) -> list[int]:
    """Return the most frequent exponents, more or fewer, in any order; sometimes foreign ones."""
    found, counts = np.unique((values >> 7) & 0xFF, return_counts=True)
    size = int(rng.integers(1, fmt.codebook + 1))
    if rng.random() < 0.2:
        return [int(e) for e in rng.permutation(256)[:size]]
    chosen = found[np.argsort(-counts)][:size]
    return [int(e) for e in rng.permutation(chosen)]


def _format(rng: np.random.Generator, config: EncoderConfig, scheme: Scheme) -> Format:
    groups = [g for g in (8, 16, 32, 64, 128, 256) if config.lanes <= g <= config.group]
    return Format(
        scheme=scheme,
        truncated=int(rng.integers(0, 8)),
        group=int(rng.choice(groups)),
        segment=config.segment,
        codebook=config.codebook,
        beat=config.lanes,
        window=config.window,
        superblock=config.superblock,
    )


def _keep(rng: np.random.Generator, vector: int) -> int | None:
    kinds: Sequence[int | None] = (None, None, 0, 1, vector - 1, vector // 2, vector // 4)
    if rng.random() < 0.3:
        return int(rng.integers(0, vector + 2))
    return kinds[int(rng.integers(len(kinds)))]


def draw_segment(
    rng: np.random.Generator,
    config: EncoderConfig,
    scheme: Scheme,
    kind: str,
    *,
    beats: int = 24,
    whole_vectors: bool = False,
) -> Segment:
    """Draw a random segment of at most ``beats`` beats."""
    fmt = _format(rng, config, scheme)
    vector = config.lanes * int(rng.integers(1, config.vector // config.lanes + 1))
    count = int(rng.integers(1, beats * config.lanes + 1))
    if whole_vectors or rng.random() < 0.3:
        count = max(count // vector, 1) * vector
    values = values_of(rng, kind, min(count, config.segment))
    keep = _keep(rng, vector)
    everything = keep is None or keep >= vector
    mask = bool(scheme == "unary" or not everything or rng.random() < 0.4)
    book = tuple(_codebook(rng, fmt, values)) if scheme == "unary" else ()
    return Segment(
        format=fmt,
        values=values,
        vector=vector,
        keep=keep,
        mask=mask,
        codebook=book,
    )


def every_kind(rng: np.random.Generator, config: EncoderConfig) -> Iterator[Segment]:
    """Yield, endlessly, each scheme with each kind of values, in a shuffled order."""
    pairs = list(itertools.product(config.schemes, KINDS))
    while True:
        for place in rng.permutation(len(pairs)):
            yield draw_segment(rng, config, *pairs[place])


def finite(rng: np.random.Generator, config: EncoderConfig) -> Iterator[Segment]:
    """Yield segments without ``saturate`` whose values are all finite."""
    for kind in ("normal", "ties", "small", "wide"):
        yield dataclasses.replace(draw_segment(rng, config, "mx", kind), saturate=False)


def directed(
    rng: np.random.Generator, config: EncoderConfig, scheme: Scheme, kind: str
) -> list[Segment]:
    """Yield every kind of k over vectors of 64 values and of the longest length.

    From kind to kind, t and the length of the last vector take all their values.
    """
    found = []
    for which, vector in enumerate((64, config.vector)):
        number = 2 * (SCHEMES.index(scheme) * len(KINDS) + KINDS.index(kind)) + which
        base = draw_segment(rng, config, scheme, kind, whole_vectors=True)
        fmt = dataclasses.replace(base.format, truncated=number % 8)
        base = dataclasses.replace(base, format=fmt, vector=vector, mask=True)
        values = values_of(rng, kind, 2 * vector + 1 + number)
        for keep in (0, 1, vector // 2, vector - 1, vector, None):
            found.append(dataclasses.replace(base, values=values, keep=keep))
    return found


def extremes(rng: np.random.Generator, config: EncoderConfig, scheme: Scheme) -> list[Segment]:
    """Return segments that bring sums, counters and queues to their minimum and maximum.

    The maximum number of values, all equal with all but one kept; or different with one, all but
    one, all or none kept; the longest codes, residues and pruned values; a kept value followed by
    pruned ones only; a single value.
    """
    base = draw_segment(rng, config, scheme, "normal")
    base = dataclasses.replace(base, vector=config.vector, mask=True, keep=None)
    count, lanes = config.segment, config.lanes
    book = tuple(int(e) for e in 140 - rng.permutation(config.codebook))
    if scheme == "unary":
        base = dataclasses.replace(base, codebook=book)
    steps = np.arange(count, dtype=np.uint16) % config.vector
    rank = [np.full(count, exponent << 7, np.uint16) for exponent in (*book[-1:], *book[:1])]
    alone = np.zeros(count, np.uint16)
    alone[0] = book[0] << 7
    cases: list[tuple[NDArray[np.uint16], int, int | None]] = [
        *((each, config.vector, None) for each in (*rank, alone)),
        *((rank[0], config.vector, keep) for keep in (0, config.vector - 1)),
        *((rank[0] + steps, config.vector, keep) for keep in (1, config.vector - 1)),
        (rank[0], lanes, 1),
        (np.full(count, 0x7F80, np.uint16), config.vector, None),
        (_far_from_first(config), config.vector, None),
        (rank[0][:1], lanes, None),
    ]
    fmt = dataclasses.replace(base.format, group=config.group)
    return [
        dataclasses.replace(base, format=fmt, values=values, vector=vector, keep=keep)
        for values, vector, keep in cases
    ]


def codes(rng: np.random.Generator, config: EncoderConfig) -> Iterator[Segment]:
    """Yield unary codes that end at every place, with full codebooks, each also with inverted bits.

    Each beat keeps one to all values: with random ranks; two values with codes of two windows; all
    values, few with a long code, or the first value only; or the first values of each piece with
    codes of two windows in total, and the others with the shortest code or pruned.
    """
    lanes, size = config.lanes, config.codebook
    beats = config.segment // lanes
    book = 1 + rng.permutation(254)[:size]
    base = draw_segment(rng, config, "unary", "normal")
    draws = [(k, rng.integers(size, size=(beats, lanes))) for k in [*range(1, lanes + 1)] * 2]
    draws += [(2, _of_two_windows(rng, config, beats)) for _ in range(8)]
    draws += [(None, ranks * (rng.random(ranks.shape) < 1 / lanes)) for _, ranks in draws[:4]]
    draws += [(None, _behind_a_long_one(config, beats, to)) for to in range(config.window * lanes)]
    draws += [(None, _two_windows_first(rng, config, rest)) for rest in [-1] * 24 + [0] * 12]
    for turn, (keep, ranks) in enumerate(draws):
        exponents = 255 - book if turn % 2 else book
        patterns = np.where(ranks < 0, 0, exponents[ranks] << 7)
        yield dataclasses.replace(
            base,
            values=(patterns | rng.integers(128, size=ranks.shape)).astype(np.uint16).ravel(),
            codebook=tuple(exponents.tolist()),
            vector=lanes,
            keep=keep,
            mask=True,
        )


def _of_two_windows(
    rng: np.random.Generator, config: EncoderConfig, beats: int
) -> NDArray[np.int64]:
    """Return ranks of beats with two codes that fill two windows or nearly; -1 elsewhere."""
    total = np.minimum(2 * config.window * config.lanes, 2 * config.codebook)
    both = total - 2 - rng.integers(3, size=beats)
    first = rng.integers(np.maximum(both - config.codebook + 1, 0), config.codebook)
    ranks = np.full((beats, config.lanes), -1)
    ranks[:, :2] = np.stack([first, both - first], axis=1)
    return rng.permuted(ranks, axis=1)


def _two_windows_first(
    rng: np.random.Generator, config: EncoderConfig, rest: int
) -> NDArray[np.int64]:
    """Return ranks of beats in which the first values of each piece fill at most two windows.

    Their codes have nearly as many bits as possible; or any number, if the others have the shortest
    code (``rest`` 0 instead of -1).
    """
    ranks = np.full((config.segment // config.pace, config.pace), rest)
    for row in ranks:
        count = int(rng.integers(1, config.pace + 1))
        most = min(2 * config.window * config.lanes, count * config.codebook) - count
        left = most - int(rng.integers(3) if rest < 0 else rng.integers(most + 1))
        row[:count] = 0
        for lane in rng.permutation(count):
            row[lane] = min(max(left, 0), config.codebook - 1)
            left -= row[lane]
    return ranks.reshape(-1, config.lanes)


def _behind_a_long_one(config: EncoderConfig, beats: int, to: int) -> NDArray[np.int64]:
    """Return ranks of beats that are 0 except for the first one.

    Its code ends at ``to`` of the window after the one in which it begins, if such a code exists.
    """
    size, begin = config.window * config.lanes, 0
    ranks = np.zeros((beats, config.lanes), np.int64)
    for row in ranks:
        row[0] = (size + to - begin) % config.codebook
        begin = (begin + row.sum() + config.lanes) % size
    return ranks


def halves(rng: np.random.Generator, config: EncoderConfig) -> Iterator[Segment]:
    """Yield groups of powers of two and neighbours: the bits shifted out are near half a unit.

    All distances from the group's exponent occur, in mx, which rounds, and in exact.
    """
    for scheme in ("mx", "exact"):
        base = draw_segment(rng, config, scheme, "normal")
        exponents = rng.integers(118, 130, config.segment)
        mantissas = rng.choice(np.array((0, 0, 1, 0x40, 0x7F)), config.segment)
        values = (exponents << 7 | mantissas).astype(np.uint16)
        yield dataclasses.replace(base, values=values, vector=config.vector, keep=None, mask=True)


def thresholds(rng: np.random.Generator, config: EncoderConfig) -> Iterator[Segment]:
    """Yield vectors whose smallest kept value has any digit of the search; most are above it.

    The values above have the largest digit at that place; more significant digits are equal.
    """
    base = draw_segment(rng, config, "exact", "normal")
    vector, digits = config.vector, select_shape(config).digits
    rows = config.segment // vector
    places = [
        (15 - sum(digits[: number + 1]), value, (1 << width) - 1)
        for number, width in enumerate(digits)
        for value in range((1 << width) - 1)
    ]
    for start, above in itertools.product(
        range(0, len(places), rows), (vector // 2, vector * 3 // 4, vector - 2)
    ):
        values = [_around(rng, vector, above, *place) for place in places[start : start + rows]]
        yield dataclasses.replace(
            base, values=np.concatenate(values), vector=vector, keep=above + 1, mask=True
        )


def _around(
    rng: np.random.Generator, vector: int, above: int, shift: int, digit: int, largest: int
) -> NDArray[np.uint16]:
    """Return a shuffled vector: ``above`` values have the largest digit at a place, the others
    ``digit``.
    """
    digits = rng.permutation(np.where(np.arange(vector) < above, largest, digit))
    prefix = int(rng.integers(1 << 15)) & -(largest + 1 << shift)
    return (prefix | digits << shift | rng.integers(1 << shift, size=vector)).astype(np.uint16)


def crowded(rng: np.random.Generator, config: EncoderConfig, scheme: Scheme) -> Iterator[Segment]:
    """Yield segments that fill queues while an output stalls.

    Segments of one piece, more than there are places for groups; then the maximum number of groups
    and low bits. All or none of the maximum number of values are kept, in the smallest groups.
    """
    for _ in range(80):
        segment = draw_segment(rng, config, scheme, "any", beats=1)
        yield dataclasses.replace(segment, values=segment.values[: config.pace])
    for keep in (0, config.vector):
        segment = full(rng, config, scheme, keep)
        yield from (segment, segment)


def full(rng: np.random.Generator, config: EncoderConfig, scheme: Scheme, keep: int) -> Segment:
    """Return a segment of maximum length, in the smallest groups, with the most low bits."""
    base = draw_segment(rng, config, scheme, "wide")
    return dataclasses.replace(
        base,
        format=dataclasses.replace(base.format, group=config.lanes, truncated=7),
        values=values_of(rng, "wide", config.segment),
        vector=config.vector,
        keep=keep,
        mask=True,
    )


def filling(rng: np.random.Generator, config: EncoderConfig) -> dict[str, list[Segment]]:
    """Return, by region, segments that fill the queues of a region that stalls from its first
    words.

    Rows of shared exponents, followed by windows of codes; blocks of low bits, residues, and both;
    residues of segments whose last word of eight rows is not full.
    """
    pruned = full(rng, config, "exact", 0)
    coded, low = (full(rng, config, scheme, config.vector) for scheme in ("unary", "exact"))
    without = (low.values & 0x807F | 120 << 7).astype(np.uint16)  # one exponent, so no residues
    alike = dataclasses.replace(low, values=without)
    fmt = dataclasses.replace(low.format, group=config.group, truncated=0)
    bare = dataclasses.replace(low, format=fmt, values=_far_from_first(config))
    above, short = (
        dataclasses.replace(bare, values=bare.values[: beats * config.lanes]) for beats in (57, 7)
    )
    return {
        "speculation": [pruned, pruned, coded],
        "verification": [low, low, alike, alike, bare, bare, above, short, short, short],
    }


def _far_from_first(config: EncoderConfig) -> NDArray[np.uint16]:
    """Return groups whose first value is 128 times as large as all others."""
    exponents = np.full(config.segment, 120)
    exponents[:: config.group] = 127
    return (exponents << 7 | 0x55).astype(np.uint16)
