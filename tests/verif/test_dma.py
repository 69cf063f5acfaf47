"""The cocotb suite of a decoder behind its DMA."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtl.command import DecoderConfig
from rtl.dma.config import DmaConfig
from rtl.dma.top import CassandraDma
from verif.dma.decoding import SMALL
from verif.runner import run_suite

BUILD = Path(__file__).parents[2] / "build" / "cocotb"

MODULES = "verif.dma.decoding,verif.dma.failures,verif.dma.software"
CONFIGS = {
    "l16": DmaConfig(),
    "l8": SMALL,
    "l32": DmaConfig(decoder=DecoderConfig(lanes=32), burst=128, buffer=512, queue=2, address=48),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_dma(name: str) -> None:
    top = CassandraDma(CONFIGS[name])
    run_suite(top, MODULES, top.module_name, build_dir=BUILD / f"dma_{name}")
