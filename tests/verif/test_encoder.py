"""The cocotb suite of the encoder's top, in each configuration, and what it must cover."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.rtl.encoder import EncoderTop
from cassandra_spec.verif.encoder.testbench import CONFIGS
from cassandra_spec.verif.library.coverage import FOLDER, Coverage
from cassandra_spec.verif.tools.runner import run_suite
from tests.marks import exhaustive, slow

BUILD = Path(__file__).parents[2] / "build" / "cocotb"

NAMES = ("l8", slow("l32_c8"), *map(exhaustive, ("l16", "l16_c4", "l32")))

# Beside encode_last, encode_extreme and encode_group; each number of lanes has a part of them.
DEMANDS = (
    *("encode_setting.*", "encode_vector.*", "encode_held.*", "encode_stall.*", "encode_mask.*"),
    *("encode_error.*", "encode_recovery.*", "encode_reset.*"),
)


@pytest.mark.parametrize("name", NAMES)
def test_encoder(name: str) -> None:
    config, lanes = CONFIGS[name], CONFIGS[name].lanes
    top = EncoderTop(config)
    saved = FOLDER / f"encoder_{name}.json"
    saved.unlink(missing_ok=True)
    result = run_suite(
        top,
        "cassandra_spec.verif.encoder.testbench",
        top.module_name,
        build_dir=BUILD / f"encoder_{name}",
        extra_env={"CASSANDRA_ENCODER": name, "CASSANDRA_COVERAGE": str(saved)},
    )
    assert len(result.tests) >= 11
    groups = [size for size in (8, 16, 32, 64, 128) if lanes <= size <= config.group]
    sizes = [f"encode_group.*.{size}" for size in groups]
    ours = (f"encode_last.{lanes}.*", f"encode_extreme.{lanes}.*")
    Coverage.load([saved]).require(*DEMANDS, *ours, *sizes)
