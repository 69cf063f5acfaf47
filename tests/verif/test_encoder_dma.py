"""The cocotb suite of the encoder behind its registers and its write master."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.rtl.dma.encoder_dma import CassandraEncoderDma
from cassandra_spec.verif.dma.encoding import small
from tests.marks import exhaustive, slow
from tests.verif.test_dma import described, run_checked, run_strays, sweep

MODULES = ",".join(
    f"cassandra_spec.verif.dma.{name}"
    for name in (
        "encoding",
        "encoder_software",
        "described",
        "firmware.encoding",
    )
)
BUILD = Path(__file__).parents[2] / "build" / "cocotb"

CONFIGS = {"l8": small(8, 32), "l16_c4": small(16, 32, 4)}


@pytest.mark.parametrize("name", ["l8", exhaustive("l16_c4")])
def test_encoder_dma(name: str) -> None:
    top = CassandraEncoderDma(CONFIGS[name])
    build = BUILD / f"encoder_dma_{name}"
    run_checked(top, MODULES, build, environment(top, build))


@pytest.mark.parametrize(
    ("name", "aborts"),
    [("l8", "few"), slow("l8", "shared"), *(exhaustive(name, "each") for name in CONFIGS)],
)
def test_resets(name: str, aborts: str) -> None:
    top = CassandraEncoderDma(CONFIGS[name])
    build = BUILD / f"encoder_dma_{name}"
    variables = environment(top, build) | sweep(aborts)
    run_checked(top, "cassandra_spec.verif.dma.resets.encoding", build, variables)
    run_strays(top, "cassandra_spec.verif.dma.resets.stray_writes", build, variables)


def environment(top: CassandraEncoderDma, build: Path) -> dict[str, str]:
    """Return the variables by which the suites know the encoder."""
    return {"CASSANDRA_LANES": str(top.config.encoder.lanes)} | described(top, build)
