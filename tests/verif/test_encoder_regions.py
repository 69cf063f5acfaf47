"""The encoder's back end against golden's regions, cycle by cycle."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.rtl.encode.regions import EncoderRegions
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.verif.tools.runner import run_suite
from tests.marks import exhaustive

BUILD = Path(__file__).parents[2] / "build" / "suites"

CONFIGURATIONS = (
    exhaustive(EncoderConfig(lanes=16, codebook=16, window=2, segment=512, group=256)),
    EncoderConfig(lanes=16, codebook=16, window=2, segment=512, group=256, values_per_cycle=4),
    EncoderConfig(lanes=8, codebook=32, window=3, segment=256, group=256),
    exhaustive(EncoderConfig(lanes=32, codebook=32, window=1, segment=1024, group=256)),
)
VARIABLES = ("lanes", "pace", "codebook", "window", "segment")


@pytest.mark.slow
@pytest.mark.parametrize(
    "config", CONFIGURATIONS, ids=lambda config: f"lanes_{config.lanes}_by_{config.pace}"
)
def test_regions(config: EncoderConfig) -> None:
    name = f"encoder_regions_l{config.lanes}_c{config.pace}"
    result = run_suite(
        EncoderRegions(config),
        "cassandra_spec.verif.encoder.regions_testbench",
        name,
        build_dir=BUILD / name,
        extra_env={f"CASSANDRA_{key.upper()}": str(getattr(config, key)) for key in VARIABLES},
    )
    assert len(result.tests) >= 10
