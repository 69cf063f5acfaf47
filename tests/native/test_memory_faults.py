"""Bits that flip in packed data while native code decodes them never lead out of bounds.

``python -m tests.native.test_memory_faults DECODES`` runs longer; ``make sanitize`` runs the test
with AddressSanitizer, which sees what a test without it may miss.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from cassandra_spec import golden, native
from cassandra_spec.drafting import Counters, Settings
from cassandra_spec.golden import CassandraError, Format, Packed
from cassandra_spec.native.codec import NativeCodec
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.library import available_isas
from tests.native.models import packed as packed_model
from tests.native.models import small

FORMATS = (
    Format(scheme="unary", truncated=4, segment=4096),
    Format(scheme="unary", truncated=4, segment=4096, pruned_exponent="coded"),
    Format(scheme="mx", truncated=4, fill="midpoint", group=32, segment=4096),
    Format(scheme="exact", truncated=4, fill="midpoint", group=32, segment=4096),
)
AT_ONCE = 24  # bits that are wrong at a time

Place = Callable[[Packed], list[NDArray[np.uint8]]]
Wrong = deque[tuple[NDArray[np.uint8], int, int]]  # array, place, bits


def packed_tensors(rng: np.random.Generator) -> Iterator[Packed]:
    """Yield a tensor of each format, dense and pruned by half."""
    bits = rng.normal(scale=0.03, size=16000).astype(np.float32).view(np.uint32)
    values = (bits >> 16).astype(np.uint16)
    for format in FORMATS:
        for kept in (None, rng.random(values.size) < 0.5):
            yield golden.encode(values, format, kept=kept)


def restore(wrong: Wrong) -> None:
    part, place, bits = wrong.popleft()
    part[place] ^= bits


class Faults:
    """Flips bits of some arrays in a thread, and each one back a little later."""

    def __init__(self, parts: list[NDArray[np.uint8]], seed: int) -> None:
        self.flips = 0
        self._parts = parts
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
            time.sleep(0)  # let the thread that decodes continue
        while wrong:
            restore(wrong)

    def __enter__(self) -> Faults:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def regions(packed: Packed) -> list[NDArray[np.uint8]]:
    return [part for part in (packed.speculation, packed.verification) if part.size]


def directory(packed: Packed) -> list[NDArray[np.uint8]]:
    return [packed.directory.view(np.uint8).reshape(-1)]


def decode_under_faults(
    packed: Packed, parts: list[NDArray[np.uint8]], times: int, seed: int
) -> NDArray[np.int64]:
    """Decode both views that often; how many gave values, how many an error, bits flipped."""
    codec, ends = NativeCodec(), np.zeros(3, np.int64)
    with Faults(parts, seed) as faults:
        while faults.flips <= AT_ONCE:
            time.sleep(0)
        for decode in times * (codec.decode_target, codec.decode_draft):
            try:
                assert decode(packed).size == packed.count
                ends[0] += 1
            except CassandraError:
                ends[1] += 1
    return ends + (0, 0, faults.flips)


@pytest.mark.parametrize("place", [regions, directory])
def test_flipping_bits_never_lead_out_of_bounds(every_isa: str, place: Place) -> None:
    """Values of damaged regions, errors of a damaged directory: however slow the machine is."""
    ends = np.zeros(3, np.int64)
    for number, packed in enumerate(packed_tensors(np.random.default_rng(5))):
        clean = golden.decode_target(packed)
        ends += decode_under_faults(packed, place(packed), 20, number)
        assert np.array_equal(golden.decode_target(packed), clean)
    assert ends[0 if place is regions else 1], f"values, errors, flips: {ends}"


def tiny_engine(format: Format, target: str = "bf16") -> Engine:
    """Return an engine with checksums, whose matrices are in the forms that a format gets."""
    config, tensors = small()
    options = {"threads": 2, "pin": False, "verify": True, "target": target}
    return Engine.from_tensors(config, packed_model(tensors, format), **options)


def reply_under_faults(engine: Engine, seed: int) -> list[int] | None:
    """Return tokens of a reply while bits of the weights flip; None if it ends with an error."""
    parts = [part for _, part in engine.weights()]
    rounds = engine.rounds((1, 2, 3), Settings(gamma=3, max_tokens=30), Counters())
    with Faults(parts, seed):
        try:
            tokens = [token for emitted in rounds for token in emitted]
        except CassandraError:
            return None
    assert 0 < len(tokens) <= 30
    assert all(0 <= token < engine.config.vocabulary for token in tokens)
    return tokens


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: f"{format.scheme}")
def test_flipping_weights_of_an_engine_have_a_defined_end(every_isa: str, format: Format) -> None:
    target = "planes" if format.scheme == "exact" else "bf16"
    with tiny_engine(format, target) as engine:
        clean = engine.forward([1, 2, 3])
        for seed in range(5):
            reply_under_faults(engine, seed)
        engine.verify()
        assert np.array_equal(engine.forward([1, 2, 3]), clean)


def test_a_changed_weight_is_found_on_demand() -> None:
    with tiny_engine(FORMATS[-1]) as engine:
        for name, part in engine.weights():
            part[-1] ^= 1
            with pytest.raises(CassandraError) as error:
                engine.verify()
            assert str(error.value).startswith(f"{name} in memory must have the CRC-32 ")
            part[-1] ^= 1
        engine.verify()
    config, tensors = small()
    with (
        Engine.from_tensors(config, tensors, threads=1, pin=False, draft=False) as engine,
        pytest.raises(CassandraError, match="verify must be true of an engine"),
    ):
        engine.verify()


def main() -> int:
    """Decode as often as the first argument says, over all formats and both places."""
    cases = [
        (packed, place(packed))
        for packed in packed_tensors(np.random.default_rng(5))
        for place in (regions, directory)
    ]
    share = int(sys.argv[1]) // (2 * len(cases) * len(available_isas())) + 1
    for isa in available_isas():
        native.set_isa(isa)
        ends = [decode_under_faults(packed, parts, share, 1) for packed, parts in cases]
        values, errors, flips = np.sum(ends, axis=0)
        print(f"{isa}: {flips} flips, {values} decoded with values, {errors} with an error")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
