"""Segments to decode with their expected values: the scoreboard's side of a request."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.format import SCHEMES, Scheme
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.verif.decoder.bulk import Request
from cassandra_spec.verif.library.payloads import Payload, draw, random_format


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One segment of a payload in one mode."""

    payload: Payload
    index: int  # of the segment
    target: bool

    @property
    def span(self) -> slice:
        """Positions of its values in the tensor."""
        size = self.payload.format.segment
        return slice(self.index * size, min((self.index + 1) * size, len(self.payload.values)))

    @property
    def expected(self) -> NDArray[np.uint16]:
        """The values that golden decodes."""
        values = self.payload.target if self.target else self.payload.draft
        return values[self.span]

    @property
    def request(self) -> Request:
        """The inputs of the decoder's ports."""
        packed = self.payload.packed
        return Request(
            segment=packed.segment(self.index),
            format=packed.format,
            target=self.target,
            codebook=packed.codebook,
            pruned_codebook=packed.pruned_codebook,
        )

    def __str__(self) -> str:
        mode = "target" if self.target else "draft"
        return f"segment {self.index} of {self.payload.name}, {mode}, {self.payload.format}"


def jobs_of(payload: Payload, modes: Sequence[bool] = (False, True)) -> Iterator[Job]:
    """Yield every segment in every mode."""
    for index in range(len(payload.packed.directory)):
        for target in modes:
            yield Job(payload=payload, index=index, target=target)


def with_long_book(rng: np.random.Generator, job: Job) -> Request:
    """Return the request of a job with codebooks longer than the decoder holds.

    The codebook of pruned values gets more entries only if it is full: the rank after its last
    entry means an escape.
    """
    request = job.request
    size, pruned = request.format.codebook, request.pruned_codebook
    return dataclasses.replace(
        request,
        codebook=_longer(rng, request.codebook, size),
        pruned_codebook=_longer(rng, pruned, size) if len(pruned) == size - 1 else pruned,
    )


def _longer(rng: np.random.Generator, book: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Return a non-empty book with more entries, up to some past ``size``."""
    others = [exponent for exponent in range(256) if exponent not in book]
    more = size - len(book) + int(rng.integers(1, 4))
    return (*book, *rng.permutation(others)[:more].tolist()) if book else book


def sizes_of(config: DecoderConfig) -> dict[str, Any]:
    """Return the format fields, beside the lanes, that a decoder is built for."""
    names = ("codebook", "window", "superblock", "lead")
    return {name: getattr(config, name) for name in names}


def mixed_jobs(
    rng: np.random.Generator,
    *,
    lanes: int,
    count: int,
    segment: int = 512,
    schemes: Sequence[Scheme] = SCHEMES,
    **fixed: Any,
) -> list[Job]:
    """Yield random segments of random payloads in random order: every neighbour is a switch.

    ``fixed`` goes to :func:`cassandra_spec.verif.library.payloads.random_format` (codebook, window,
    superblock, lead, coded, truncated).
    """
    jobs: list[Job] = []
    while len(jobs) < count:
        scheme = schemes[int(rng.integers(len(schemes)))]
        fmt = random_format(rng, lanes=lanes, scheme=scheme, segment=segment, **fixed)
        jobs.extend(jobs_of(draw(rng, fmt, int(rng.integers(1, 3 * fmt.segment)))))
    return [jobs[place] for place in rng.permutation(len(jobs))[:count]]
