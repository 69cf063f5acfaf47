"""The cocotb suite of the store by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.rtl.dma.config import StoreConfig
from cassandra_spec.rtl.dma.store import CassandraStore
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.verif.dma.storing import SMALL
from cassandra_spec.verif.library.axi import Ruled
from cassandra_spec.verif.tools.runner import run_suite
from tests.marks import exhaustive

BUILD = Path(__file__).parents[2] / "build" / "cocotb"

CONFIGS = {
    "l16": StoreConfig(),
    "l8": SMALL,
    "l32": StoreConfig(encoder=EncoderConfig(lanes=32), burst=128, buffer=256),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["l8", *map(exhaustive, ("l16", "l32"))])
def test_store(name: str) -> None:
    top = CassandraStore(CONFIGS[name])
    run_suite(
        Ruled(top),
        "cassandra_spec.verif.dma.storing",
        top.module_name,
        build_dir=BUILD / f"store_{name}",
    )
