"""The cocotb suite of a decoder behind its DMA."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import DmaConfig
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.rtl.dma.encoder_dma import CassandraEncoderDma
from cassandra_spec.synth.export import describe
from cassandra_spec.verif.dma.decoding import SMALL
from cassandra_spec.verif.dma.firmware import driver
from cassandra_spec.verif.library.axi import Ruled
from cassandra_spec.verif.tools.runner import run_suite
from tests.marks import slow

BUILD = Path(__file__).parents[2] / "build" / "cocotb"

DRIVER = Path(__file__).parents[2] / "drivers" / "cassandra.c"

MODULES = ",".join(
    f"cassandra_spec.verif.dma.{name}"
    for name in ("decoding", "failures", "software", "described", "firmware.decoding")
)
CONFIGS = {
    "l16": DmaConfig(),
    "l8": SMALL,
    "l32": DmaConfig(decoder=DecoderConfig(lanes=32), burst=128, buffer=512, queue=2, address=48),
    "l8_full": dataclasses.replace(SMALL, decoder=DecoderConfig(lanes=8, target_rate="full")),
    "l8_coded": dataclasses.replace(SMALL, decoder=DecoderConfig(lanes=8, coded=True)),
}


@pytest.mark.parametrize("name", [slow("l16"), "l8", *map(slow, ("l32", "l8_full", "l8_coded"))])
def test_dma(name: str) -> None:
    top = CassandraDma(CONFIGS[name])
    build = BUILD / f"dma_{name}"
    environment = formats(top.config) | described(top, build)
    run_suite(Ruled(top), MODULES, top.module_name, build_dir=build, extra_env=environment)


def described(top: CassandraDma | CassandraEncoderDma, build: Path) -> dict[str, str]:
    """Write what the suites read of a top, its registers and the C driver; tell them where."""
    path = build.with_suffix(".rdl")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(describe(top), encoding="utf-8")
    library = driver.build(DRIVER, build.with_suffix(".so"))
    return {"CASSANDRA_REGISTERS": str(path), "CASSANDRA_DRIVER": str(library)}


def formats(config: DmaConfig) -> dict[str, str]:
    """What tells the suites which formats a design reads."""
    decoder = config.decoder
    fields = {"lead": decoder.lead, **({"coded": True} if decoder.coded else {})}
    return {"CASSANDRA_FORMATS": json.dumps(fields)}
