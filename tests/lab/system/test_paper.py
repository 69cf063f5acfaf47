"""The reproduction: its own arithmetic by hand, and what it must come close to."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from cassandra_spec.lab.system.costs import load_format
from cassandra_spec.lab.system.device import load_device
from cassandra_spec.lab.system.figures import paper as figures
from cassandra_spec.lab.system.figures.figure_13 import draft_verify_share, eagle_weights
from cassandra_spec.lab.system.figures.figure_14 import capacity, whole_model
from cassandra_spec.lab.system.figures.paper import decode_share, overhead_for, paper_cells
from cassandra_spec.lab.system.figures.paper_file import paper
from cassandra_spec.lab.system.figures.table_5 import decoders_needed
from cassandra_spec.lab.system.workload import Workload, load_model
from tests.lab.system.simple import DEVICE, MODEL

CLAIMS = paper()["figures"]


def test_the_share_of_decoding_by_hand() -> None:
    """One token in, three out: BF16 steps with a cache of 1 + 1 tokens beside the first one."""
    step = 3 * 144 * 2 + 40 * 2 + 4 * 2 + 3 * 4 * 2 + 2 * (3 * 52 + 14)  # cache aside
    prefill, later = step, step + 3 * 4 * 2 * 2
    share = decode_share(DEVICE, MODEL, Workload(prompt=1, output=3))
    assert share == pytest.approx(2 * later / (prefill + 2 * later))


def test_the_efficiency_that_gives_the_papers_share_gives_it() -> None:
    found = figures._efficiency_of_share(0.98, figures.EQUAL)
    slower = dataclasses.replace(load_device("rtx4090"), compute_efficiency=found)
    share = decode_share(slower, load_model("llama3-8b"), figures.EQUAL)
    assert share == pytest.approx(0.98, abs=1e-9)


def test_every_cell_of_table_iv_is_on_every_device() -> None:
    cells = {(cell.device, cell.scheme, cell.model, cell.benchmark) for cell in paper_cells()}
    assert cells == set(
        itertools.product(figures.DEVICES, figures.SCHEMES, figures.MODELS, paper()["benchmarks"])
    )


def test_cells_have_the_acceptance_of_their_place_in_table_iv() -> None:
    (cell,) = (
        cell
        for cell in paper_cells()
        if (cell.device, cell.scheme, cell.model, cell.benchmark)
        == ("npu", "cassandra-2", "qwen3-8b", "Longbench")
    )
    assert (cell.answer.setup.acceptance.rate, cell.answer.setup.gamma) == (0.85, 3)
    assert cell.answer.setup.acceptance.kind == "drafted"


def test_the_highest_cell_is_the_papers_by_traffic_of_weights() -> None:
    """(1 + 5 x .88) 16 / (5 x 4.49 + 13.31) = 2.416: the paper's 2.41 needs no more than that."""
    by_hand = (1 + 5 * 0.88) * 16 / (5 * 4.49 + 13.31)
    assert by_hand == pytest.approx(CLAIMS["speedup_highest"], rel=0.005)
    highest = max(cell.answer.speedup for cell in paper_cells())
    assert highest == pytest.approx(by_hand, rel=0.02)


def test_the_overhead_that_gives_the_papers_lowest_cell_gives_it() -> None:
    slowest = min(paper_cells(), key=lambda cell: cell.answer.speedup)
    fitted = overhead_for(slowest.answer, 1.78)
    cells = list(paper_cells(overheads={slowest.device: fitted}))
    assert min(cell.answer.speedup for cell in cells) == pytest.approx(1.78)
    assert max(cell.answer.speedup for cell in cells) == pytest.approx(2.41, abs=0.005)


def test_weights_of_eagles_drafter_are_those_of_its_published_file() -> None:
    """EAGLE3-LLaMA3.1-Instruct-8B has one layer, q k v of twice the width, and 32,000 tokens."""
    fusion = 3 * 4096 * 4096
    attention = 8192 * 4096 + 2 * 8192 * 1024 + 4096 * 4096
    mlp, head = 3 * 4096 * 14336, 4096 * 32000
    assert eagle_weights(load_model("llama3-8b")) == fusion + attention + mlp + head


def test_draft_and_verify_loads_what_the_paper_says() -> None:
    share = draft_verify_share(load_model("deepseek-r1-distill-llama-8b"))
    assert share == pytest.approx(CLAIMS["draft_verify_share"], abs=0.003)


def test_tokens_in_memory_by_hand() -> None:
    usable, weights = 23 * 2**30, 8_030_261_248 - 65 * 4096
    left = usable - 2 * weights
    found = capacity(load_device("rtx4090"))
    assert found.bf16 == left // 131072
    assert found.cassandra == int((usable - weights * 13.31 / 8) / (131072 * 13.31 / 16))
    assert found.eagle == (left - 2 * eagle_weights(load_model("llama3-8b"))) // (131072 + 4096)
    assert found.llama == (left - 2 * (3_212_749_824 - 57 * 3072)) // (131072 + 28 * 4096)
    assert whole_model(load_format("cassandra-1"), load_model("llama3-8b")) == weights * 13.31 / 8


def test_figure_14_is_within_five_percent_of_both_ratios() -> None:
    found = capacity(load_device("rtx4090"))
    assert found.over_eagle == pytest.approx(CLAIMS["tokens_eagle"], rel=0.05)
    assert found.over_llama == pytest.approx(CLAIMS["tokens_llama"], rel=0.05)


def test_the_missing_time_of_eight_bits_brings_it_down_to_the_papers() -> None:
    setup = figures._int8_setup("qwen3-8b")
    answer = figures.estimate(setup)
    missing = figures._int8_overhead(setup, 1.3) * setup.model.layers
    assert answer.step_bf16 / (answer.step_compressed + missing) == pytest.approx(1.3)


def test_the_areas_of_table_v_do_not_have_the_stated_ratios() -> None:
    modules = paper()["table_5"]
    total = 64.8 + 2.4 + 24.1 + 0.24 + 0.08 + 1.76
    assert sum(part["area"] for part in modules.values()) == pytest.approx(total)
    wrong = {
        name
        for name, part in modules.items()
        if abs(100 * part["area"] / total - part["ratio"]) > 0.06
    }
    assert wrong == {"BF16 MAC", "SRAM"}


def test_decoders_are_counted_up() -> None:
    assert [decoders_needed(rate) for rate in (12.8, 16.0, 15.87, 512.0)] == [
        40,
        32,
        33,
        1,
    ]
