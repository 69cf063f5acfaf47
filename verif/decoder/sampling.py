"""Coverage bins that a segment hits, computed from the packed data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.arrays.arithmetic import magnitudes, residues
from cassandra_spec.golden.format import Format
from cassandra_spec.rtl.common.residue import FIELD_MAX
from cassandra_spec.verif.decoder.jobs import Job
from cassandra_spec.verif.library.coverage import LONGEST, Coverage, legal_chunks
from cassandra_spec.verif.library.payloads import Payload, exponents_of

Extremes = dict[str, tuple[Any, Any]]
"""Flags for minimum and maximum of each quantity, by name."""

_LEGAL = frozenset(legal_chunks())


def sample_job(coverage: Coverage, job: Job) -> None:
    """Sample everything that one segment shows on its own, if it decodes right."""
    payload, fmt = job.payload, job.payload.format
    mode = "target" if job.target else "draft"
    coverage.sample(f"setting.{fmt.scheme}.{mode}.{fmt.truncated}")
    coverage.sample_if(not job.target, f"setting.{fmt.scheme}.{fmt.fill}")
    if fmt.scheme != "unary":
        coverage.sample(f"group_size.{fmt.beat}.{fmt.scheme}.{fmt.group}")
    kept = payload.fate[job.span]
    _sample_sizes(coverage, job, len(kept))
    _sample_mask(coverage, job, kept)
    if fmt.scheme == "unary":
        _sample_codes(coverage, job, kept)
    else:
        _sample_groups(coverage, job, kept)
    _sample_extremes(coverage, job, kept)
    if job.target:
        _sample_values(coverage, job, kept)
        if fmt.scheme == "exact":
            _sample_exact(coverage, job, kept)
        if fmt.pruned_exponent == "coded":
            _sample_pruned_codes(coverage, job, kept)


def _sample_sizes(coverage: Coverage, job: Job, count: int) -> None:
    fmt = job.payload.format
    names = {
        "one": 1,
        "beat_less_1": fmt.beat - 1,
        "beat": fmt.beat,
        "beat_more_1": fmt.beat + 1,
        "group_less_1": fmt.group - 1,
        "group": fmt.group,
        "group_more_1": fmt.group + 1,
        "full": fmt.segment,
    }
    for name, size in names.items():
        coverage.sample_if(count == size, f"size.{name}")
    coverage.sample_if(count % fmt.group != 0, "size.short_group")
    coverage.sample(f"last_beat.{fmt.beat}.{(count - 1) % fmt.beat + 1}")


def _sample_mask(coverage: Coverage, job: Job, kept: NDArray[np.bool_]) -> None:
    has_mask = job.payload.packed.segment(job.index).has_mask
    coverage.sample_if(not has_mask, "mask.no_stream")
    coverage.sample_if(not kept.any(), "mask.all_pruned")
    beat = job.payload.format.beat
    counts = kept[: len(kept) // beat * beat].reshape(-1, beat).sum(axis=1)
    full, empty = counts == beat, counts == 0
    if has_mask:
        coverage.sample("mask.full", int(full.sum()))
        coverage.sample("mask.empty", int(empty.sum()))
        coverage.sample("mask.partial", int((~full & ~empty).sum()))
        coverage.sample("mask.single", int((counts == 1).sum()))
        turns = (full[:-2] & empty[1:-1] & full[2:]).sum()
        coverage.sample("mask.alternating", int(turns))


def _ranks_of(book: Sequence[int], values: NDArray[np.uint16]) -> NDArray[np.int64]:
    """Return the ranks of values in a codebook; its length for values not in it."""
    places = np.full(256, len(book))
    places[list(book)] = np.arange(len(book))
    return places[exponents_of(values)]


def _sample_codes(coverage: Coverage, job: Job, kept: NDArray[np.bool_]) -> None:
    payload = job.payload
    book = payload.packed.codebook
    wanted = True if payload.kept is None else payload.kept[job.span]
    coverage.sample("miss.pruned", int((wanted & ~kept).sum()))
    coverage.sample_if(len(book) == payload.format.codebook, "miss.full_codebook")
    coverage.sample_if(len(book) == 1, "miss.one_entry")
    if not kept.any():
        return
    ranks = _ranks_of(book, payload.values[job.span][kept])
    for rank, count in enumerate(np.bincount(ranks)[: LONGEST + 1]):
        coverage.sample(f"code_length.{rank}", int(count))
    _sample_chunks(coverage, ranks)


def _sample_chunks(coverage: Coverage, ranks: NDArray[np.int64]) -> None:
    ones = np.cumsum(ranks + 1) - 1
    bits = np.zeros((ones[-1] + 1) // 8 * 8, np.uint8)
    bits[ones[ones < len(bits)]] = 1
    chunks = np.packbits(bits, bitorder="little")
    starts = 8 * np.arange(len(chunks))
    before = np.searchsorted(ones, starts) - 1
    latest = np.where(before >= 0, ones[before], -1)
    carries = starts - latest - 1
    pairs, counts = np.unique(carries * 256 + chunks, return_counts=True)
    for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
        if divmod(pair, 256) in _LEGAL:  # a codebook of 32 has more
            coverage.sample(f"chunk.{pair // 256}.{pair % 256:02x}", count)


def _sample_groups(coverage: Coverage, job: Job, kept: NDArray[np.bool_]) -> None:
    payload, fmt = job.payload, job.payload.format
    values, groups = payload.values[job.span], payload.groups[job.span]
    starts = np.arange(0, len(values), fmt.group)
    chosen, some = groups[starts], np.add.reduceat(kept, starts) > 0
    zero = np.add.reduceat(kept & (values & 0x7FFF != 0), starts) == 0
    shift = groups.astype(int) - np.maximum(exponents_of(values), 1)
    seen = magnitudes(values, exponents_of(values), groups, fmt)
    normal = kept & (seen > 0)
    zeros = 8 - np.frexp(seen.astype(float))[1]
    bins = {
        "lowest": chosen == 1,
        "highest": chosen == 254,
        "exact_255": chosen == 255,
        "none_kept": ~some,
        "all_zero": some & zero,
        "subnormal_result": normal & (groups <= zeros) if fmt.scheme == "mx" else normal & False,
        "saturated": kept & (shift < 0),
    }
    for name, hits in bins.items():
        coverage.sample(f"shared.{name}", int(hits.sum()))


def _classes(values: NDArray[np.uint16]) -> dict[str, NDArray[Any]]:
    exponent, mantissa = exponents_of(values), values & 0x7F
    top, bottom = exponent == 255, exponent == 0
    return {
        "nan": top & (mantissa != 0),
        "infinity": top & (mantissa == 0),
        "minus_zero": values == 0x8000,
        "plus_zero": values == 0,
        "subnormal": bottom & (mantissa != 0),
        "normal": ~top & ~bottom,
    }


def _sample_values(coverage: Coverage, job: Job, kept: NDArray[np.bool_]) -> None:
    scheme = job.payload.format.scheme
    for name, members in _classes(job.payload.values[job.span]).items():
        for fate, chosen in (("kept", kept), ("pruned", ~kept)):
            count = int((members & chosen).sum())
            coverage.sample_if(count, f"value.{scheme}.{fate}.{name}")


def _sample_exact(coverage: Coverage, job: Job, kept: NDArray[np.bool_]) -> None:
    payload, fmt = job.payload, job.payload.format
    values, groups = payload.values[job.span], payload.groups[job.span]
    exponents = exponents_of(values)
    windows = magnitudes(values, exponents, groups, fmt)
    fields, widths = residues(values, windows)
    zero = (values & 0x7FFF) == 0
    inside = kept & (windows > 0) & (windows < 255)
    for width, count in enumerate(np.bincount(widths[inside], minlength=8)[:8]):
        coverage.sample(f"residue.width.{width}", int(count))
    flags = kept & (windows == 0) & (fields == 1)
    coverage.sample("residue.zero_flag.plus", int((flags & (values == 0)).sum()))
    coverage.sample("residue.zero_flag.minus", int((flags & (values != 0)).sum()))
    small, top = kept & (windows == 0) & ~zero, kept & (windows == 255)
    large = exponents.astype(int) > groups
    escape = small | top
    bins = {
        "small": small,
        "large": top & large & (exponents < 255),
        "not_finite": top & (exponents == 255),
        "ordinary": top & ~large,
    }
    for name, hits in bins.items():
        coverage.sample(f"escape.{name}", int(hits.sum()))
    starts = np.arange(0, len(values), fmt.beat)
    counts = np.add.reduceat(escape.astype(int), starts)
    pruned = np.add.reduceat((~kept).astype(int), starts)
    coverage.sample("escape.several", int((counts > 1).sum()))
    coverage.sample("escape.whole_beat", int((counts == fmt.beat).sum()))
    coverage.sample("escape.beside_pruned", int(((counts > 0) & (pruned > 0)).sum()))


def _sample_extremes(coverage: Coverage, job: Job, kept: NDArray[np.bool_]) -> None:
    """Sample the minimum and maximum of sums, counters and queues of a segment."""
    payload, fmt = job.payload, job.payload.format
    lanes, starts = fmt.beat, np.arange(0, len(kept), fmt.beat)
    needs = np.add.reduceat(kept.astype(int), starts)
    fields = -np.cumsum(needs) % lanes
    ends: Extremes = {
        "count": (len(kept) == 1, len(kept) == 1 << 16),
        "kept": (needs == 0, needs == lanes),
        "fields": (fields == 0, fields == lanes - 1),
    }
    if fmt.scheme == "unary":
        ends |= _unary_extremes(payload, job.span, kept, needs)
    if job.target:
        raw = ~kept
        if fmt.scheme == "exact":
            bits, escapes = _residue_bits(payload, job.span, kept)
            raw = raw | escapes
            ends |= _exact_extremes(fmt, np.add.reduceat(bits, starts), needs)
        pruned = np.add.reduceat(raw.astype(int), starts)
        ends["pruned"] = pruned == 0, pruned == lanes
    for name, (least, most) in ends.items():
        coverage.sample(f"extreme.{lanes}.{name}.least", int(np.sum(least)))
        coverage.sample(f"extreme.{lanes}.{name}.most", int(np.sum(most)))


def _unary_extremes(
    payload: Payload, span: slice, kept: NDArray[np.bool_], needs: NDArray[np.int64]
) -> Extremes:
    """Return the extremes of windows and the rank queue."""
    fmt = payload.format
    ranks = _ranks_of(payload.packed.codebook, payload.values[span][kept])
    windows, left = np.array(list(_queued(ranks, needs, fmt))).T
    size = fmt.window_bits
    codes = np.bincount((np.cumsum(ranks + 1) - 1) // size)[:-1]  # the last window may be padded
    most = -(-fmt.codebook // fmt.window) - 1  # beside the one that is prefetched
    return {
        "codes": (codes == size // fmt.codebook, codes == size),
        "ranks": (left == 0, left + needs == fmt.beat - 1 + size),
        "starved": (windows == 0, windows == most),
    }


def _residue_bits(
    payload: Payload, span: slice, kept: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the residue bits of each value, and flags for escapes among the kept values."""
    values, groups = payload.values[span], payload.groups[span]
    windows = magnitudes(values, exponents_of(values), groups, payload.format)
    _, widths = residues(values, windows)
    small = (windows == 0) & (values & 0x7FFF != 0)
    return np.where(kept, widths, 0).astype(np.int64), kept & (small | (windows == 255))


def _exact_extremes(fmt: Format, bits: NDArray[np.int64], needs: NDArray[np.int64]) -> Extremes:
    """Return the extremes of the residue, and of the rows of a phase."""
    lanes = fmt.beat
    left = -np.cumsum(bits) % lanes
    before = np.concatenate([[0], left[:-1]])
    rows = (bits - before + left) // lanes
    fields = np.concatenate([[0], (-np.cumsum(needs) % lanes)[:-1]])
    low = np.where(fields < needs, fmt.truncated, 0)
    both = np.append(low[1:], 0) + rows
    return {
        "residue": (bits == 0, bits == FIELD_MAX * lanes),
        "left": (left == 0, left == lanes - 1),
        "rows": (both == 0, both == 2 * FIELD_MAX),
    }


def _sample_pruned_codes(coverage: Coverage, job: Job, kept: NDArray[np.bool_]) -> None:
    payload, fmt = job.payload, job.payload.format
    book = payload.packed.pruned_codebook
    ranks = _ranks_of(book, payload.values[job.span])
    starts = np.arange(0, len(kept), fmt.beat)
    sizes = np.diff(starts, append=len(kept))
    missing = np.add.reduceat((~kept).astype(int), starts)
    escapes = np.add.reduceat((~kept & (ranks == len(book))).astype(int), starts)
    _sample_shares(coverage, "coded.pruned", missing, sizes)
    _sample_shares(coverage, "coded.escapes", escapes[missing > 0], missing[missing > 0])
    coverage.sample_if(len(book) == fmt.codebook - 1, "coded.book.full")
    coverage.sample_if(not book and not kept.all(), "coded.book.empty")
    for rank, count in enumerate(np.bincount(ranks[~kept])[: LONGEST + 1]):
        coverage.sample(f"coded.length.{rank}", int(count))
    for windows, _ in _queued(ranks[~kept], missing, fmt):
        coverage.sample(f"coded.starve.{windows}" if windows < 2 else "coded.starve.more")


def _sample_shares(
    coverage: Coverage, name: str, parts: NDArray[np.int64], wholes: NDArray[np.int64]
) -> None:
    for share, hits in (
        ("none", parts == 0),
        ("some", (parts > 0) & (parts < wholes)),
        ("all", parts == wholes),
    ):
        coverage.sample(f"{name}.{share}", int(hits.sum()))


def _queued(
    ranks: NDArray[np.int64], needs: NDArray[np.int64], fmt: Format
) -> Iterator[tuple[int, int]]:
    """Return the windows by which each beat starves, and the ranks that it leaves."""
    ends = np.cumsum(ranks + 1)
    taken = used = 0  # bits, ranks
    for need in needs.tolist():
        if _codes_within(ends, taken) - used < fmt.beat:
            taken += fmt.window_bits
        prefetched = taken
        while _codes_within(ends, taken) - used < need:
            taken += fmt.window_bits
        used += need
        yield (taken - prefetched) // fmt.window_bits, _codes_within(ends, taken) - used


def _codes_within(ends: NDArray[np.int64], bits: int) -> int:
    """Count the codes that end within the first ``bits``; ones follow the last code."""
    end = int(ends[-1]) if len(ends) else 0
    return int(np.searchsorted(ends, bits, side="right")) + max(bits - end, 0)


def sample_switch(coverage: Coverage, before: Job, after: Job) -> None:
    """Sample the differences between two segments that were decoded one after the other."""
    old, new = before.payload.format, after.payload.format
    if before.target != after.target:
        coverage.sample("switch.draft_to_target" if after.target else "switch.target_to_draft")
    if old.scheme != new.scheme:
        coverage.sample(f"switch.{old.scheme}_to_{new.scheme}")
    for name in ("truncated", "fill", "group"):
        coverage.sample_if(getattr(old, name) != getattr(new, name), f"switch.{name}")
    masks = [job.payload.packed.segment(job.index).has_mask for job in (before, after)]
    coverage.sample_if(masks[0] != masks[1], "switch.mask")
    books = [job.payload.packed.codebook for job in (before, after)]
    coverage.sample_if(all(books) and books[0] != books[1], "switch.codebook")
