"""Tensors, masks and formats for the suites: random ones and directed ones.

All data are drawn from a numpy Generator that the caller seeds, so a seed replays a run. A
:class:`Payload` is a named argument list for ``cassandra_spec.golden.codec.encode``; :data:`KINDS`
makes payloads of a format. :func:`kinds_of` leaves out the kinds that a scheme cannot have.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.arrays.arithmetic import default_group_exponents
from cassandra_spec.golden.codec import decode_draft, decode_target, encode
from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import SCHEMES, Format, Scheme
from cassandra_spec.golden.packed import Packed
from cassandra_spec.verif.library.coverage import group_sizes, legal_chunks

Values = NDArray[np.uint16]
Flags = NDArray[np.bool_]
Generator = np.random.Generator

_SUBNORMAL_FLOOR = 9  # smallest exponent of a group with a kept subnormal (format, 4.3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Payload:
    """A tensor to pack: arguments of ``encode``."""

    name: str
    format: Format
    values: Values
    kept: Flags | None = None
    codebook: tuple[int, ...] | None = None
    pruned_codebook: tuple[int, ...] | None = None
    group_exponents: NDArray[np.uint8] | None = None

    @functools.cached_property
    def packed(self) -> Packed:
        """The tensor, packed."""
        return encode(
            self.values,
            self.format,
            kept=self.kept,
            codebook=self.codebook,
            pruned_codebook=self.pruned_codebook,
            group_exponents=self.group_exponents,
        )

    @functools.cached_property
    def draft(self) -> Values:
        """The draft values, by golden."""
        return decode_draft(self.packed)

    @functools.cached_property
    def target(self) -> Values:
        """The target values, by golden."""
        return decode_target(self.packed)

    @functools.cached_property
    def fate(self) -> Flags:
        """The values that are kept; a codebook may lack exponents of others that the mask keeps."""
        kept = np.ones(len(self.values), bool) if self.kept is None else self.kept
        if self.format.scheme != "unary":
            return kept
        return kept & np.isin(exponents_of(self.values), self.packed.codebook)

    @functools.cached_property
    def groups(self) -> NDArray[np.uint8]:
        """The group exponent of each value, as packed (meaningless in unary)."""
        group, count = self.format.group, len(self.values)
        if self.group_exponents is not None:
            return np.repeat(self.group_exponents, group)[:count]
        return np.repeat(_default_groups(self), group)[:count]


def exponents_of(values: Values) -> NDArray[np.uint8]:
    """Return the exponent fields."""
    return ((values >> 7) & 0xFF).astype(np.uint8)


def bf16(numbers: NDArray[np.float32]) -> Values:
    """Return the upper halves of float32 patterns."""
    return (np.asarray(numbers, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def gaussian(rng: Generator, count: int, scale: float = 0.02) -> Values:
    """Return normally distributed values, as weights are."""
    return bf16(rng.normal(scale=scale, size=count).astype(np.float32))


def _with_exponents(rng: Generator, exponents: NDArray[np.uint16]) -> Values:
    """Return random values with these exponents."""
    noise = rng.integers(1 << 16, size=len(exponents), dtype=np.uint16) & 0x807F
    return (exponents << 7 | noise).astype(np.uint16)


def finite(values: Values) -> Values:
    """Replace the exponent 255 by 254."""
    return np.where(exponents_of(values) == 255, values & 0xFF7F, values).astype(np.uint16)


def _default_groups(payload: Payload) -> NDArray[np.uint8]:
    group = payload.format.group
    end = (0, -len(payload.values) % group)
    values, kept = np.pad(payload.values, end), np.pad(payload.fate, end)
    scheme: Scheme = "mx" if payload.format.scheme == "mx" else "exact"
    return default_group_exponents(values, kept, group, scheme)


# ---- kinds: what is in the tensor ---------------------------------------------------------------


def _weights(fmt: Format, rng: Generator, count: int) -> Payload:
    kept = rng.random(count) < rng.choice([0.3, 0.6, 0.9])
    return Payload(name="weights", format=fmt, values=gaussian(rng, count), kept=kept)


def _dense(fmt: Format, rng: Generator, count: int) -> Payload:
    return Payload(name="dense", format=fmt, values=gaussian(rng, count))


def _patterns(fmt: Format, rng: Generator, count: int) -> Payload:
    values = rng.integers(1 << 16, size=count, dtype=np.uint16)
    values = finite(values) if fmt.scheme == "mx" else values
    return Payload(name="patterns", format=fmt, values=values, kept=rng.random(count) < 0.7)


def _zeros(fmt: Format, rng: Generator, count: int) -> Payload:
    signs = rng.integers(2, size=count, dtype=np.uint16)
    values = (signs << 15).astype(np.uint16)
    return Payload(name="zeros", format=fmt, values=values, kept=rng.random(count) < 0.8)


def _equal(fmt: Format, rng: Generator, count: int) -> Payload:
    value = finite(rng.integers(1 << 16, size=1, dtype=np.uint16))
    return Payload(name="equal", format=fmt, values=np.repeat(value, count))


def _specials(fmt: Format, rng: Generator, count: int) -> Payload:
    """Draw NaN with payloads, infinities, zeros, subnormals, the largest and smallest normal
    values.
    """
    choice = rng.integers(8, size=count)
    mantissa = rng.integers(1, 128, size=count, dtype=np.uint16)
    fixed = np.array([0x7F80, 0, 0x0080, 0x7F7F], np.uint16)
    rows = [0x7F80 | mantissa, mantissa, 0x3F80 | mantissa, gaussian(rng, count) & 0x7FFF]
    magnitude = np.stack([*rows, *np.repeat(fixed[:, None], count, axis=1)])[
        choice, np.arange(count)
    ]
    values = magnitude | rng.integers(2, size=count, dtype=np.uint16) << 15
    values = finite(values) if fmt.scheme == "mx" else values
    return Payload(name="specials", format=fmt, values=values, kept=rng.random(count) < 0.7)


def _rare(fmt: Format, rng: Generator, count: int) -> Payload:
    """Draw more exponents than a codebook holds; without a user mask."""
    exponents = rng.integers(96, 96 + 3 * fmt.codebook // 2, size=count).astype(np.uint16)
    return Payload(name="rare", format=fmt, values=_with_exponents(rng, exponents))


def _pruned(fmt: Format, rng: Generator, count: int) -> Payload:
    kept = np.zeros(count, bool)
    return Payload(name="pruned", format=fmt, values=gaussian(rng, count), kept=kept)


def _single(fmt: Format, rng: Generator, count: int) -> Payload:
    """Keep one value in each beat."""
    kept = np.zeros(count, bool)
    starts = np.arange(0, count, fmt.beat)
    places = starts + rng.integers(fmt.beat, size=len(starts))
    kept[places[places < count]] = True
    return Payload(name="single", format=fmt, values=gaussian(rng, count), kept=kept)


def _alternating(fmt: Format, rng: Generator, count: int) -> Payload:
    """Alternate full and empty beats."""
    kept = np.arange(count) // fmt.beat % 2 == 0
    return Payload(name="alternating", format=fmt, values=gaussian(rng, count), kept=kept)


def _runs(fmt: Format, rng: Generator, count: int) -> Payload:
    """Alternate runs of kept and of pruned values, some longer than a beat."""
    lengths = rng.integers(1, 3 * fmt.beat, size=count)
    kept = np.repeat(np.arange(count) % 2 == 0, lengths)[:count]
    return Payload(name="runs", format=fmt, values=gaussian(rng, count), kept=kept)


def _longest(fmt: Format, rng: Generator, count: int) -> Payload:
    """Use only the longest code: the slowest windows."""
    book = tuple(range(100, 100 + fmt.codebook))
    values = _with_exponents(rng, np.full(count, book[-1], np.uint16))
    return Payload(name="longest", format=fmt, values=values, codebook=book)


def _chunks(fmt: Format, rng: Generator, count: int) -> Payload:
    """Use every legal pair of carry and chunk, whatever ``count`` is: see coverage's ``chunk``."""
    pairs = legal_chunks()
    ranks = _ranks_of_pairs([pairs[i] for i in rng.permutation(len(pairs))])
    book = tuple(int(e) for e in rng.permutation(200)[: fmt.codebook] + 20)
    values = _with_exponents(rng, np.array(book, np.uint16)[ranks])
    return Payload(name="chunks", format=fmt, values=values, codebook=book)


def _ranks_of_pairs(pairs: list[tuple[int, int]]) -> NDArray[np.int64]:
    """Return ranks whose codes place each chunk at a multiple of 8 bits behind its carry."""
    bits: list[int] = []
    for carry, chunk in pairs:
        bits += [1] * (-(len(bits) + 1 + carry) % 8) + [1] + [0] * carry
        bits += [chunk >> i & 1 for i in range(8)]
        bits.append(1)  # ends the chunk's open code
    ones = np.flatnonzero(bits)
    return np.diff(ones, prepend=-1) - 1


def _one_entry(fmt: Format, rng: Generator, count: int) -> Payload:
    values = gaussian(rng, count)
    book = (int(np.bincount(exponents_of(values)).argmax()),)
    return Payload(name="one_entry", format=fmt, values=values, codebook=book)


def _wide(fmt: Format, rng: Generator, count: int) -> Payload:
    """Spread exponents by more than a window: residues of every width, and values too small."""
    exponents = rng.integers(110, 122, size=count).astype(np.uint16)
    values = _with_exponents(rng, exponents)
    return Payload(name="wide", format=fmt, values=values, kept=rng.random(count) < 0.8)


def _ordinary(fmt: Format, rng: Generator, count: int) -> Payload:
    """Use the significand 255 at the shared exponent: a window of 0xFF without saturation."""
    values = np.where(rng.random(count) < 0.5, 0x3FFF, gaussian(rng, count)).astype(np.uint16)
    return Payload(name="ordinary", format=fmt, values=values)


def _extremes(fmt: Format, rng: Generator, count: int) -> Payload:
    """Use the smallest groups at both ends of the exponent range.

    The results are subnormal, or the largest values. The largest exponents of successive groups
    take the twelve exponents at one end of the range in turn.
    """
    fmt = dataclasses.replace(fmt, group=group_sizes(fmt.beat)[0])
    group = np.arange(count) // fmt.group
    most = (group // 2 + rng.integers(12)) % 12
    exponents = np.minimum(rng.integers(12, size=count), most)
    low = exponents << 7 | rng.integers(1 << 7, size=count)
    values = np.where(group % 2 == 1, 0x7F7F - low, low) | rng.integers(2, size=count) << 15
    return Payload(name="extremes", format=fmt, values=values.astype(np.uint16))


def _totals(fmt: Format, rng: Generator, count: int) -> Payload:
    """Draw beats of the widest residues, of no residue, of escapes only, all pruned, or random.

    Segments alternately begin with a beat of one residue bit and with the widest one.
    """
    values, beat = np.arange(count), fmt.beat
    starts = values % fmt.segment // beat == 0
    begin = np.where(values // fmt.segment % 2 == 0, 1, 0)
    shapes = np.where(starts, begin, rng.integers(6, size=count // beat + 1)[values // beat])
    widths = [7, values % beat == 0, 0, 9, 0, rng.integers(9, size=count)]
    exponents = (120 - np.choose(shapes, widths)).astype(np.uint16)
    return Payload(
        name="totals",
        format=fmt,
        values=_with_exponents(rng, exponents),
        kept=shapes != 4,
        group_exponents=_constant_groups(fmt, count, 120),
    )


def _fullest(fmt: Format, rng: Generator, count: int) -> Payload:
    """Use the shortest code, once in the first beat, then in full beats: most ranks wait."""
    exponents = np.full(count, 100, np.uint16)
    return Payload(
        name="fullest",
        format=fmt,
        values=_with_exponents(rng, exponents),
        kept=np.arange(count) % fmt.segment >= fmt.beat - 1,
        group_exponents=_constant_groups(fmt, count, 100),
    )


def _constant_groups(fmt: Format, count: int, exponent: int) -> NDArray[np.uint8] | None:
    """Return the same exponent for every group; None in unary, which has no groups."""
    if fmt.scheme == "unary":
        return None
    return np.full(-(-count // fmt.group), exponent, np.uint8)


def _below(fmt: Format, rng: Generator, count: int) -> Payload:
    """Lower group exponents below the largest exponent, as an encoder may choose: saturation."""
    plain = Payload(name="below", format=fmt, values=gaussian(rng, count))
    default = _default_groups(plain)
    chosen = np.maximum(default - rng.integers(3, size=len(default)), _SUBNORMAL_FLOOR)
    return dataclasses.replace(plain, group_exponents=chosen.astype(np.uint8))


def _above(fmt: Format, rng: Generator, count: int) -> Payload:
    """Raise group exponents far above the values: windows of few bits or none."""
    plain = Payload(name="above", format=fmt, values=gaussian(rng, count))
    default = _default_groups(plain).astype(int)
    limit = 254 if fmt.scheme == "mx" else 255
    chosen = np.where(rng.random(len(default)) < 0.2, limit, default + rng.integers(10, size=1))
    return dataclasses.replace(plain, group_exponents=chosen.astype(np.uint8))


def _clipped(fmt: Format, rng: Generator, count: int) -> Payload:
    """Use groups whose values are all too large or all too small for their exponent."""
    groups = -(-count // fmt.group)
    exponents = rng.integers(100, 120, size=count).astype(np.uint16)
    return Payload(
        name="clipped",
        format=fmt,
        values=_with_exponents(rng, exponents),
        group_exponents=rng.choice(np.array([99, 110, 128], np.uint8), size=groups),
    )


Maker = Callable[[Format, Generator, int], Payload]

_ANY: tuple[Maker, ...] = (
    *(_weights, _dense, _patterns, _zeros, _equal, _specials, _rare, _pruned, _single),
    *(_alternating, _runs, _wide, _ordinary, _extremes, _totals, _fullest),
)
_UNARY: tuple[Maker, ...] = (_longest, _chunks, _one_entry)
_GROUPED: tuple[Maker, ...] = (_below, _above, _clipped)

KINDS: dict[str, Maker] = {maker.__name__[1:]: maker for maker in (*_ANY, *_UNARY, *_GROUPED)}
"""Makers of payloads by name: (format, generator, number of values) to payload."""


def kinds_of(scheme: Scheme) -> tuple[str, ...]:
    """Return the kinds for a scheme, without ``chunks``, which has its own size."""
    makers = (*_ANY, *(_UNARY if scheme == "unary" else _GROUPED))
    return tuple(maker.__name__[1:] for maker in makers if maker is not _chunks)


def sizes_of(fmt: Format) -> tuple[int, ...]:
    """Return numbers of values at which something ends early, exactly, or late."""
    beat, group, segment = fmt.beat, fmt.group, fmt.segment
    around = (size + off for size in (beat, group, segment) for off in (-1, 0, 1))
    return tuple(sorted({1, *around}))


def random_format(
    rng: Generator,
    *,
    lanes: int,
    scheme: Scheme | None = None,
    segment: int = 512,
    codebook: int = 16,
    window: int = 2,
    superblock: int = 128,
    lead: int = 1,
    coded: bool = False,
    truncated: tuple[int, int] = (0, 7),
) -> Format:
    """Draw a format that one decoder reads; ``segment`` is the maximum segment.

    Where possible, one in two is ``coded``.
    """
    group = int(rng.choice([size for size in group_sizes(lanes) if size <= segment]))
    scheme = scheme or SCHEMES[rng.integers(len(SCHEMES))]
    return Format(
        scheme=scheme,
        pruned_exponent="coded" if coded and scheme == "unary" and rng.random() < 0.5 else "raw",
        truncated=int(rng.integers(truncated[0], truncated[1] + 1)),
        fill=("zero", "midpoint")[rng.integers(2)],
        group=group,
        segment=group * int(rng.integers(1, segment // group + 1)),
        beat=lanes,
        codebook=codebook,
        window=window,
        superblock=superblock,
        lead=lead,
    )


def draw(rng: Generator, fmt: Format, count: int, kind: str | None = None) -> Payload:
    """Draw a payload of a kind, or of any kind for the scheme.

    With coded exponents, one in two has a codebook of pruned values that is not the best one.
    """
    known = kinds_of(fmt.scheme)
    name = known[rng.integers(len(known))] if kind is None else kind
    if name not in KINDS:
        raise CassandraError(f"kind must be one of {', '.join(KINDS)}, not {name!r}")
    payload = KINDS[name](fmt, rng, count)
    if fmt.pruned_exponent == "coded" and rng.random() < 0.5:
        return dataclasses.replace(payload, pruned_codebook=_some_book(payload, rng))
    return payload


def _some_book(payload: Payload, rng: Generator) -> tuple[int, ...]:
    """Return some exponents in any order, maybe none: long codes and escapes."""
    most = payload.format.codebook - 1
    others = rng.permutation(256)[:most]
    exponents = rng.permutation(np.union1d(exponents_of(payload.values), others))
    return tuple(int(exponent) for exponent in exponents[: rng.integers(most + 1)])


def directed(rng: Generator, fmt: Format) -> Iterator[Payload]:
    """Yield every kind at a size of more than two segments, and weights at every directed size."""
    for kind in kinds_of(fmt.scheme):
        yield draw(rng, fmt, 2 * fmt.segment + fmt.beat // 2 + 1, kind)
    for size in (*sizes_of(fmt), *range(1, fmt.beat)):
        yield draw(rng, fmt, size, "weights")
