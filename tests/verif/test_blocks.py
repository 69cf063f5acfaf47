"""The cocotb suites of the blocks, each in one simulation of its block in several sizes.

Small blocks take a second or some in Amaranth's simulator, and far more to compile.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from cassandra_spec.verif.mutation.check import module_of
from cassandra_spec.verif.tools.runner import choose_seed, run_suite
from cassandra_spec.verif.tools.simulated import run_simulated
from tests.marks import slow

BUILD = Path(__file__).parents[2] / "build" / "suites"

BLOCKS = (
    slow("zero_counter"),
    slow("residue"),  # `test_formal.py` proves it for every input
    slow("bitmap_expand"),
    "codebook",
    slow("exponent_path"),
    "superblock_reader",
    slow("speculation"),
    slow("verification"),
    "pruned_bytes",
    slow("encoder.front"),
)
SMALL = ("mantissa", "encoder.align", "encoder.rank_map")


@pytest.mark.parametrize("block", SMALL)
def test_small_block(block: str) -> None:
    print(f"SEED={choose_seed()}")
    assert run_simulated(importlib.import_module(module_of(block)))


@pytest.mark.parametrize("block", BLOCKS)
def test_block(block: str) -> None:
    module = module_of(block)
    design = importlib.import_module(module).design()
    result = run_suite(
        design, module, f"{block.replace('.', '_')}_bench", build_dir=BUILD / f"block_{block}"
    )
    assert len(result.tests) >= 1
