"""The rate that an encoder of keys and values must have."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.lab.gateware import encoder_rate
from cassandra_spec.lab.system.device import load_device
from cassandra_spec.lab.system.workload import load_model
from cassandra_spec.toolkit.documents import block

DOCUMENT = Path(__file__).parents[2] / "docs" / "results" / "rate.md"


def test_the_rate_of_llama3_8b_by_hand() -> None:
    """32 layers: eight heads of keys and of values; four projections, three feed-forward ones."""
    model, device = load_model("llama3-8b"), load_device("npu")
    values = 32 * (8 + 8) * 128
    weights = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    seconds = 2 * weights / 64e12  # of a token
    assert encoder_rate.values_of_a_token(model) == values == 65_536
    assert encoder_rate.needed(model, device) == pytest.approx(values / seconds / 976_562_500)


def test_the_document_has_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert encoder_rate.main([]) == 0
    assert capsys.readouterr().out.strip("\n") == block(DOCUMENT.read_text(), "needed")
