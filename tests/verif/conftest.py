"""Fixtures of the tests of the gateware."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable

import numpy as np
import pytest

from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.verif.decoder.bulk import RtlCodec
from cassandra_spec.verif.tools.runner import choose_seed


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Seeded with SEED and the test's name; a failure shows the seed that replays it."""
    seed = choose_seed()
    print(f"SEED={seed}")
    return np.random.default_rng([seed, zlib.crc32(request.node.name.encode())])


@pytest.fixture(scope="session")
def codec_of() -> Callable[[int], RtlCodec]:
    """Return decoders of all schemes, by lanes."""
    return functools.cache(lambda lanes: RtlCodec(DecoderConfig(lanes=lanes)))
