"""Cycles of a systolic array: by hand, by their bounds, and against SCALE-Sim's counts."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassandra_spec.lab.system import passes
from cassandra_spec.lab.system.device import known_devices, load_device
from cassandra_spec.lab.system.errors import SystemModelError
from cassandra_spec.lab.system.passes import Pass, cost_of, flops_of
from cassandra_spec.lab.system.systolic import DATAFLOWS, Array, Product, array_cycles
from cassandra_spec.lab.system.workload import load_model
from tests.lab.system.simple import DEVICE, HALF, MODEL, device

RECORD = Path(__file__).parent / "scalesim.json"
ARRAY = Array(rows=4, columns=2)


@pytest.mark.parametrize(
    ("dataflow", "cycles"),
    [
        # 3 rows of 10 times 10 x 7, in an array of 4 x 2 that takes 4 + 2 - 2 cycles to fill.
        ("is", 3 * 2 * (7 + 4 + 4)),  # inputs of 10 x 3 stay: loaded in 4 cycles, 7 columns stream
        ("ws", 3 * 4 * (3 + 4 + 4)),  # weights of 10 x 7 stay, 3 rows stream
        ("os", 1 * 4 * (10 + 4)),  # outputs of 3 x 7 stay, 10 terms stream
    ],
)
def test_cycles_by_hand(dataflow: Any, cycles: int) -> None:
    assert array_cycles(ARRAY, Product(m=3, k=10, n=7), dataflow) == cycles


def test_the_best_dataflow_is_taken() -> None:
    product = Product(m=3, k=10, n=7)
    assert ARRAY.cycles(product) == 56
    assert ARRAY.utilisation([product]) == pytest.approx(3 * 10 * 7 / (56 * 8))


def test_arrays_share_folds() -> None:
    two = dataclasses.replace(ARRAY, count=2)
    assert array_cycles(two, Product(m=3, k=10, n=7), "is") == 3 * 15
    assert array_cycles(two, Product(m=1, k=10, n=7, times=2), "is") == 3 * 15
    # 3 folds: one array would idle for one of two turns; halves take 3 turns of 7 / 2 + 8.
    assert array_cycles(two, Product(m=1, k=10, n=7), "is") == 2 * 15
    assert array_cycles(two, Product(m=1, k=10, n=70), "is") == 3 * (35 + 8)


def test_an_unknown_dataflow_lists_the_known_ones() -> None:
    with pytest.raises(SystemModelError, match="dataflow must be one of is, os, ws, not 'rs'"):
        array_cycles(ARRAY, Product(m=1, k=1, n=1), "rs")  # type: ignore[arg-type]


SIZES = st.integers(1, 400)


@given(m=SIZES, k=SIZES, n=SIZES, rows=st.integers(1, 32), count=st.integers(1, 5))
def test_no_array_does_more_than_its_multipliers(
    m: int, k: int, n: int, rows: int, count: int
) -> None:
    array = Array(rows=rows, columns=8, count=count)
    product = Product(m=m, k=k, n=n)
    assert 0 < array.utilisation([product]) <= 1
    assert all(array.cycles(product) <= array_cycles(array, product, flow) for flow in DATAFLOWS)
    more = dataclasses.replace(array, count=count + 1)
    assert more.cycles(product) <= array.cycles(product)


def test_full_folds_that_stream_for_long_reach_the_peak() -> None:
    array = Array(rows=64, columns=64, count=8)
    assert array.utilisation([Product(m=64, k=512, n=10**6)]) == pytest.approx(1, abs=2e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 0}, "array.rows must be an integer, at least 1, not 0"),
        ({"count": 1.5}, "array.count must be an integer, at least 1, not 1.5"),
    ],
)
def test_wrong_arrays(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SystemModelError) as error:
        dataclasses.replace(ARRAY, **changes)
    assert str(error.value) == message


# --- as a stage of a pass -------------------------------------------------------------------------


def test_the_products_of_a_pass_are_all_its_operations() -> None:
    """Every weight meets every row once; attention has each query head meet all that it sees."""
    step = Pass(tokens=3, context=20, batch=2, logits=1)
    model = load_model("qwen3-4b")
    linear = 2 * 6 * model.layers * model.layer_weights
    mixing = 2 * 2 * (3 * 2) * model.layers * model.heads * model.head_size * (20 + 2)
    head = 2 * 2 * model.head_weights
    assert flops_of(model, step) == linear + mixing + head


def test_the_compute_stage_is_the_arrays_cycles() -> None:
    array = Array(rows=4, columns=2, count=2)
    peak = 2 * array.multipliers * 10.0
    slow = device(compute={"bf16": peak}, array=array)
    step = Pass(tokens=1, context=5)
    products = [*passes._layer_products(MODEL, step)] * MODEL.layers
    products += passes._end_products(MODEL, step)
    cycles = sum(map(array.cycles, products))
    stages = cost_of(slow, MODEL, HALF, step).stages
    assert stages["compute"] == pytest.approx(cycles / slow.clock)
    roofline = cost_of(device(compute={"bf16": peak}), MODEL, HALF, step).stages
    assert roofline["compute"] == pytest.approx(flops_of(MODEL, step) / peak)
    assert stages["compute"] > roofline["compute"]


def test_the_papers_npu_takes_in_what_its_scratchpad_gives() -> None:
    npu = load_device("npu")
    assert npu.array is not None
    assert 2 * npu.array.multipliers * npu.clock == pytest.approx(64e12)
    assert 2 * npu.array.rows * npu.array.count == 1024  # bytes of BF16 weights in a cycle


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rows = { value = 64,", "rows = { value = 32,", "compute.bf16 must be the peak of array"),
        ("rows = { value = 64,", "rows = { value = 6.4,", "array.rows must be an integer"),
        ("rows = {", "height = {", "array must be a table of rows, columns, count, not"),
        ('unit = "count", source = "assumption: as', 'unit = "1", source = "', "unit of array.col"),
    ],
)
def test_wrong_arrays_in_files(tmp_path: Path, old: str, new: str, message: str) -> None:
    path, text = tmp_path / "wrong.toml", known_devices()["npu"].read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(SystemModelError) as error:
        load_device(path)
    assert message in str(error.value)
    assert str(error.value).count(str(path)) == 1
    assert DEVICE.array is None


# --- SCALE-Sim ------------------------------------------------------------------------------------


def test_scalesim_counts_the_same_cycles() -> None:
    """SCALE-Sim 3.0.0 counted every layer once; the record has its packages and configuration."""
    record = json.loads(RECORD.read_text())
    array = Array(**record["array"])
    npu = load_device("npu").array
    assert npu is not None
    assert array == dataclasses.replace(npu, count=1)  # SCALE-Sim has a single array
    assert record["counts"]
    for run in record["counts"]:
        product = Product(m=run["m"], k=run["k"], n=run["n"])
        assert array_cycles(array, product, run["dataflow"]) == run["cycles"], run["name"]
        assert run["stalls"] == 0
