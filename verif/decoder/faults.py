"""Segments that break the format, each in one way, and the cause that must be reported."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden import codec
from cassandra_spec.golden.errors import DecodeError
from cassandra_spec.golden.format import Format, Scheme
from cassandra_spec.golden.packed import Packed
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.common.superblock_reader import BUS_ROWS
from cassandra_spec.verif.decoder.bulk import Request
from cassandra_spec.verif.decoder.jobs import Job
from cassandra_spec.verif.library.command import command_fields, pack_fields
from cassandra_spec.verif.library.coverage import group_sizes
from cassandra_spec.verif.library.payloads import Payload, draw, gaussian

Bytes = NDArray[np.uint8]
Generator = np.random.Generator


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """A request that must be flagged."""

    bin: str  # of the coverage plan
    cause: str
    request: Request


def faults(
    rng: Generator, *, lanes: int, schemes: tuple[Scheme, ...], **sizes: Any
) -> Iterator[Fault]:
    """Yield every fault of the plan that a decoder of these schemes can have, on random segments.

    ``sizes`` are format fields in which the decoder differs from the default.
    """
    base = Format(beat=lanes, **sizes)
    for target in (False, True):
        for scheme in schemes:
            yield from _wrong_lengths(rng, base, scheme, target)
            yield _bad_command(_job(rng, base, scheme, target), "scheme", "scheme", 3)
        if "unary" in schemes:
            yield from _bad_codes(rng, base, target)
        for scheme in schemes:
            if scheme != "unary":
                yield from _bad_groups(rng, base, scheme, target)
                yield _bad_command(_job(rng, base, scheme, target), "coded", "coded", 1)
    if "exact" in schemes:
        yield _bad_window(rng, base)


def coded_faults(rng: Generator, fmt: Format) -> Iterator[Fault]:
    """Yield faults of coded exponents of pruned values, in a segment of this format."""
    payload = Payload(
        name="pruned",
        format=fmt,
        values=gaussian(rng, fmt.segment),
        kept=np.zeros(fmt.segment, bool),
    )
    request = Job(payload=payload, index=0, target=True).request
    for cause, changed in _changed_lengths(rng, request, "verification"):
        yield Fault(bin=f"{cause}.coded", cause=cause, request=changed)
    for zeros in (fmt.codebook, 4 * fmt.window_bits):  # in one window, and across several
        bits = np.unpackbits(request.segment.verification, bitorder="little")
        bits[:zeros] = 0
        changed = _with(request, verification=np.packbits(bits, bitorder="little"))
        yield Fault(bin="code.pruned", cause="code", request=changed)
    for size in range(1, 9):  # bad ranks in many lanes, together and alone
        cut = dataclasses.replace(request, pruned_codebook=request.pruned_codebook[:size])
        yield Fault(bin="rank.pruned", cause="rank", request=cut)


def cuts(rng: Generator, lanes: int, **sizes: Any) -> Iterator[Fault]:
    """Yield segments of long codes, which starve in each beat, cut behind any word."""
    fmt = Format(beat=lanes, segment=256, **sizes)
    payload = draw(rng, fmt, fmt.segment, "longest")
    for target in (False, True):
        request = Job(payload=payload, index=0, target=target).request
        where = f"short.speculation.unary.{_mode(target)}"
        for cut in shortened(request):
            yield Fault(bin=where, cause="short", request=cut)


def bad_ranks(rng: Generator, lanes: int, **sizes: Any) -> Iterator[Fault]:
    """Yield beats of rank 0 with one lane whose rank is just too large: a single bit is set."""
    fmt = Format(beat=lanes, segment=256, **sizes)
    book = tuple(range(100, 100 + fmt.codebook))
    for lane, bit in itertools.product(range(lanes), range((fmt.codebook - 1).bit_length())):
        rank = 1 << bit
        exponents = np.full(lanes, book[0], np.uint16)
        exponents[lane] = book[rank]
        values = (exponents << 7 | rng.integers(1 << 7, size=lanes)).astype(np.uint16)
        payload = Payload(name="bad rank", format=fmt, values=values, codebook=book)
        request = Job(payload=payload, index=0, target=False).request
        yield Fault(
            bin="rank.draft",
            cause="rank",
            request=dataclasses.replace(request, codebook=book[:rank]),
        )


def shortened(request: Request) -> Iterator[Request]:
    """Yield a request whose speculation region ends behind each word before the last."""
    for end in _short_ends(request, "speculation"):
        yield _with(request, speculation=request.segment.speculation[:end])


def flip_bits(rng: Generator, job: Job, flips: int) -> Request:
    """Return the request of a job with some bits of its regions flipped."""
    request = job.request
    regions = {"speculation": request.segment.speculation}
    if job.target and request.segment.verification.size:
        regions["verification"] = request.segment.verification
    regions = {name: region.copy() for name, region in regions.items()}
    for _ in range(flips):
        region = regions[str(rng.choice(list(regions)))]
        region[rng.integers(region.size)] ^= 1 << rng.integers(8)
    return _with(request, **regions)


def _job(rng: Generator, base: Format, scheme: Scheme, target: bool, kind: str = "weights") -> Job:
    """Return a segment of several superblocks."""
    size = 8 * base.superblock
    fmt = dataclasses.replace(
        base,
        scheme=scheme,
        segment=size,
        group=int(rng.choice([32, 64, 256])),
        truncated=int(rng.integers(1, 6)),
        fill=("zero", "midpoint")[rng.integers(2)],
    )
    payload = draw(rng, fmt, int(rng.integers(size - 124, size + 1)), kind)
    return Job(payload=payload, index=0, target=target)


def _mode(target: bool) -> str:
    return "target" if target else "draft"


def _with(request: Request, **regions: Any) -> Request:
    return dataclasses.replace(request, segment=dataclasses.replace(request.segment, **regions))


def _word_bytes(fmt: Format, region: str) -> int:
    """Return the bytes in a word of a region's bus."""
    rows = DecoderConfig.of(fmt).verification_rows if region == "verification" else BUS_ROWS
    return rows * fmt.beat // 8


def _wrong_lengths(rng: Generator, base: Format, scheme: Scheme, target: bool) -> Iterator[Fault]:
    for name in ("speculation", "verification") if target else ("speculation",):
        where = f"{name}.{scheme}"
        if name == "speculation":
            where += f".{_mode(target)}"
        request = _job(rng, base, scheme, target).request
        for cause, wrong in _changed_lengths(rng, request, name):
            yield Fault(bin=f"{cause}.{where}", cause=cause, request=wrong)
    if target:
        none = _with(request, verification=np.zeros(0, np.uint8))
        yield Fault(bin=f"short.no_verification.{scheme}", cause="short", request=none)


def _changed_lengths(rng: Generator, request: Request, name: str) -> Iterator[tuple[str, Request]]:
    """Yield a request whose region ``name`` is too short, and one whose region is too long."""
    region: Bytes = getattr(request.segment, name)
    short = region[: int(rng.choice(_short_ends(request, name)))]
    more = request.format.superblock * int(rng.integers(1, 4))
    long = np.concatenate([region, rng.integers(256, size=more, dtype=np.uint8)])
    for cause, changed in (("short", short), ("long", long)):
        yield cause, _with(request, **{name: changed})


def _short_ends(request: Request, name: str) -> range:
    """Return the sizes of a region, in whole words, that lack more than its padding."""
    region: Bytes = getattr(request.segment, name)
    word = _word_bytes(request.format, name)
    return range(word, region.size - request.format.superblock + 1, word)


def _bad_command(job: Job, name: str, field: str, value: int) -> Fault:
    """Return a command that the decoder must refuse: one field has another value."""
    fields = command_fields(job.payload.format, job.request.segment, target=job.target)
    request = dataclasses.replace(job.request, command=pack_fields({**fields, field: value}))
    return Fault(bin=f"command.{name}.{_mode(job.target)}", cause="command", request=request)


def _bad_codes(rng: Generator, base: Format, target: bool) -> Iterator[Fault]:
    mode = _mode(target)
    request = _job(rng, base, "unary", target).request
    first = request.format.beat * int(request.segment.has_mask)
    window, zeros = request.format.window_bits, request.format.codebook
    for start, size in ((int(rng.integers(window - zeros + 1)), zeros), (0, window)):
        bits = np.unpackbits(request.segment.speculation, bitorder="little")
        bits[first + start : first + start + size] = 0
        changed = np.packbits(bits, bitorder="little")
        yield Fault(bin=f"code.{mode}", cause="code", request=_with(request, speculation=changed))
    request = _job(rng, base, "unary", target, "longest").request
    cut = request.codebook[: -int(rng.integers(1, 15))]
    yield Fault(
        bin=f"rank.{mode}", cause="rank", request=dataclasses.replace(request, codebook=cut)
    )


def _dense(rng: Generator, fmt: Format, target: bool) -> Job:
    payload = Payload(name="dense", format=fmt, values=gaussian(rng, 500))
    return Job(payload=payload, index=0, target=target)


def _bad_groups(rng: Generator, base: Format, scheme: Scheme, target: bool) -> Iterator[Fault]:
    """Change the first byte of a segment without a mask, the exponent of its first group."""
    sizes = group_sizes(base.beat)
    fmt = dataclasses.replace(base, scheme=scheme, segment=512, group=int(rng.choice(sizes)))
    job = _dense(rng, fmt, target)
    request = job.request
    for name, exponent in (("zero", 0), ("255", 255)):
        if (scheme, name) != ("exact", "255"):
            changed = request.segment.speculation.copy()
            changed[0] = exponent
            yield Fault(
                bin=f"group.{scheme}_{name}.{_mode(target)}",
                cause="group",
                request=_with(request, speculation=changed),
            )
    for wrong in (0, sizes[0].bit_length() - 2, 9, 10, 15):
        yield _bad_command(job, "group", "log2_group", wrong)


def _bad_window(rng: Generator, base: Format) -> Fault:
    """Return an exponent of 1 for values whose windows have leading zeros."""
    fmt = dataclasses.replace(base, scheme="exact", segment=512)
    request = _dense(rng, fmt, True).request
    changed = request.segment.speculation.copy()
    changed[0] = 1
    return Fault(bin="window.target", cause="window", request=_with(request, speculation=changed))


def golden_result(request: Request) -> NDArray[np.uint16] | None:
    """Decode with golden; return None for a rejected segment or a word it does not have."""
    if request.command is not None:
        return None
    segment, unit = request.segment, request.format.superblock
    lengths = [segment.speculation.size // unit, segment.verification.size // unit]
    entry = [0, lengths[0], 0, lengths[1], int(segment.has_mask)]
    packed = Packed(
        format=request.format,
        count=segment.count,
        speculation=segment.speculation,
        verification=segment.verification,
        directory=np.array([entry], np.uint32),
        codebook=request.codebook[: request.format.codebook],
        pruned_codebook=request.pruned_codebook[: request.format.codebook - 1],
    )
    try:
        return codec.decode_target(packed) if request.target else codec.decode_draft(packed)
    except DecodeError:
        return None
