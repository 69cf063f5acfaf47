"""The cocotb suite of the encoder's top, for each number of lanes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtl.encoder import EncoderTop
from verif.encoder_testbench import CONFIGS
from verif.runner import run_suite

BUILD = Path(__file__).parents[2] / "build" / "cocotb"


@pytest.mark.slow
@pytest.mark.parametrize("lanes", list(CONFIGS))
def test_encoder(lanes: int) -> None:
    top = EncoderTop(CONFIGS[lanes])
    result = run_suite(
        top,
        "verif.encoder_testbench",
        top.module_name,
        build_dir=BUILD / f"encoder_l{lanes}",
        extra_env={"CASSANDRA_LANES": str(lanes)},
    )
    assert len(result.tests) >= 11
