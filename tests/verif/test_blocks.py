"""The cocotb suites of the blocks, each in one simulation of its block in several sizes."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from cassandra_spec.verif.mutation.check import module_of
from cassandra_spec.verif.tools.runner import run_suite
from tests.marks import slow

BUILD = Path(__file__).parents[2] / "build" / "suites"

BLOCKS = (
    slow("zero_counter"),
    "mantissa",
    "residue",
    slow("bitmap_expand"),
    "codebook",
    slow("exponent_path"),
    "superblock_reader",
    slow("speculation"),
    slow("verification"),
    "pruned_bytes",
    "encoder.align",
    "encoder.rank_map",
    slow("encoder.front"),
)


@pytest.mark.parametrize("block", BLOCKS)
def test_block(block: str) -> None:
    module = module_of(block)
    design = importlib.import_module(module).design()
    result = run_suite(
        design, module, f"{block.replace('.', '_')}_bench", build_dir=BUILD / f"block_{block}"
    )
    assert len(result.tests) >= 1
