"""The cocotb suite of the encoder behind its registers and its write master."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.rtl.dma.encoder_dma import CassandraEncoderDma
from cassandra_spec.verif.dma.encoding import small
from cassandra_spec.verif.library.axi import Ruled
from cassandra_spec.verif.tools.runner import run_suite
from tests.marks import slow
from tests.verif.test_dma import described

MODULES = ",".join(
    f"cassandra_spec.verif.dma.{name}"
    for name in ("encoding", "encoder_software", "described", "firmware.encoding")
)
BUILD = Path(__file__).parents[2] / "build" / "cocotb"

CONFIGS = {"l8": small(8, 32), "l16_c4": small(16, 32, 4)}


@pytest.mark.parametrize("name", ["l8", slow("l16_c4")])
def test_encoder_dma(name: str) -> None:
    top = CassandraEncoderDma(CONFIGS[name])
    build = BUILD / f"encoder_dma_{name}"
    lanes = {"CASSANDRA_LANES": str(CONFIGS[name].encoder.lanes)}
    environment = lanes | described(top, build)
    run_suite(Ruled(top), MODULES, top.module_name, build_dir=build, extra_env=environment)
