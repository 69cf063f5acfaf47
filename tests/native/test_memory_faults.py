"""Bits that flip in packed data while native code decodes them never lead out of bounds.

``python -m tests.native.test_memory_faults FLIPS`` runs longer; ``make sanitize`` runs the test
with AddressSanitizer, which sees what a test without it may miss.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cassandra_spec import golden, native
from cassandra_spec.golden import CassandraError, Format, Packed
from cassandra_spec.native.codec import NativeCodec
from cassandra_spec.native.library import available_isas

FORMATS = (
    Format(scheme="unary", truncated=4, segment=4096),
    Format(scheme="unary", truncated=4, segment=4096, pruned_exponent="coded"),
    Format(scheme="mx", truncated=4, fill="midpoint", group=32, segment=4096),
    Format(scheme="exact", truncated=4, fill="midpoint", group=32, segment=4096),
)
AT_ONCE = 24  # bits that are wrong at a time

Wrong = deque[tuple[NDArray[np.uint8], int, int]]  # array, place, bits


def packed_tensors(rng: np.random.Generator) -> Iterator[Packed]:
    """A tensor of each format, dense and pruned by half."""
    bits = rng.normal(scale=0.03, size=16000).astype(np.float32).view(np.uint32)
    values = (bits >> 16).astype(np.uint16)
    for format in FORMATS:
        for kept in (None, rng.random(values.size) < 0.5):
            yield golden.encode(values, format, kept=kept)


def restore(wrong: Wrong) -> None:
    part, place, bits = wrong.popleft()
    part[place] ^= bits


class Faults:
    """Flips bits of a tensor's regions and directory, and each one back a little later."""

    def __init__(self, packed: Packed, seed: int) -> None:
        self.flips = 0
        directory = packed.directory.view(np.uint8).reshape(-1)
        regions = [part for part in (packed.speculation, packed.verification) if part.size]
        self._parts = [*(8 * regions), directory]  # which is small, and seldom right if changed
        self._rng = np.random.default_rng(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        wrong: Wrong = deque()
        while not self._over.is_set():
            for which, place, bit in self._rng.integers(0, 2**31, (64, 3)).tolist():
                part = self._parts[which % len(self._parts)]
                wrong.append((part, place % part.size, 1 << bit % 8))
                part[place % part.size] ^= 1 << bit % 8
                self.flips += 1
                if len(wrong) > AT_ONCE:
                    restore(wrong)
        while wrong:
            restore(wrong)

    def __enter__(self) -> Faults:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def decode_under_faults(packed: Packed, flips: int, seed: int) -> NDArray[np.int64]:
    """Decode until that many bits have flipped; how many gave values, and how many an error."""
    codec, ends = NativeCodec(), np.zeros(2, np.int64)
    with Faults(packed, seed) as faults:
        while faults.flips < flips:
            for decode in (codec.decode_target, codec.decode_draft):
                try:
                    assert decode(packed).size == packed.count
                    ends[0] += 1
                except CassandraError:
                    ends[1] += 1
    return ends


def test_flipping_bits_never_lead_out_of_bounds(every_isa: str) -> None:
    ends = np.zeros(2, np.int64)
    for number, packed in enumerate(packed_tensors(np.random.default_rng(5))):
        clean = golden.decode_target(packed)
        ends += decode_under_faults(packed, 2000, number)
        assert np.array_equal(golden.decode_target(packed), clean)
    assert ends.all(), "some must give values and some an error, or nothing was tried"


def main() -> int:
    """Run with as many flips as the first argument says, over all formats."""
    tensors = list(packed_tensors(np.random.default_rng(5)))
    share = int(sys.argv[1]) // (len(tensors) * len(available_isas())) + 1
    for isa in available_isas():
        native.set_isa(isa)
        values, errors = np.sum([decode_under_faults(p, share, 1) for p in tensors], axis=0)
        print(f"{isa}: {share * len(tensors)} flips, {values} with values, {errors} with an error")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
