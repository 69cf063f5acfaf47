"""The cocotb suite of the decoder's top, for each number of lanes, and what it must cover."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode.top import DecoderTop
from cassandra_spec.verif.library.coverage import FOLDER, Coverage
from cassandra_spec.verif.tools.runner import run_suite
from tests.marks import exhaustive

BUILD = Path(__file__).parents[2] / "build" / "cocotb"

# Beside last_beat; the bulk suite demands every chunk with every carry.
DEMANDS = (
    *("code_length.*", "mask.*", "size.*", "switch.*", "setting.*", "value.*"),
    *("miss.pruned", "miss.full_codebook", "miss.one_entry"),
    *("shared.*", "residue.*", "escape.*", "stall.*", "error.*", "recovery.*", "reset.*"),
    "handshake.*",
)


@pytest.mark.parametrize("lanes", [exhaustive(8), 16, exhaustive(32)])
def test_decoder(lanes: int) -> None:
    top = DecoderTop(DecoderConfig(lanes=lanes))
    saved = FOLDER / f"cocotb_{lanes}.json"
    saved.unlink(missing_ok=True)
    run_suite(
        top,
        "cassandra_spec.verif.decoder.testbench",
        top.module_name,
        build_dir=BUILD / f"decoder_l{lanes}",
        extra_env={"CASSANDRA_COVERAGE": str(saved)},
    )
    groups = (f"group_size.{lanes}.*.{size}" for size in (32, 64))
    Coverage.load([saved]).require(*DEMANDS, f"last_beat.{lanes}.*", *groups)
