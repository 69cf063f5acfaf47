"""The tables of docs/results/system.md, and the figures in its text, are those of the model."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cassandra_spec.lab.system.costs import load_format
from cassandra_spec.lab.system.decoding import Estimate, Setup, estimate
from cassandra_spec.lab.system.device import load_device
from cassandra_spec.lab.system.errors import SystemModelError
from cassandra_spec.lab.system.figures import paper as figures
from cassandra_spec.lab.system.figures.beyond import measured_setups, target_rates
from cassandra_spec.lab.system.figures.figure_13 import bounds
from cassandra_spec.lab.system.figures.figure_14 import capacity
from cassandra_spec.lab.system.figures.paper import paper_cells
from cassandra_spec.lab.system.figures.silicon import classical_factor, energy_factor
from cassandra_spec.lab.system.passes import Pass, cost_of
from cassandra_spec.lab.system.report import everything, fill_tables
from cassandra_spec.lab.system.systolic import Array
from cassandra_spec.lab.system.workload import load_model
from cassandra_spec.toolkit.tables import Table

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = (ROOT / "docs/results/system.md").read_text(encoding="utf-8")
TEXT = " ".join(re.sub(r"<!-- table: .*?<!-- /table: .*? -->", "", DOCUMENT, flags=re.S).split())

TABLE = Table(title="T", header=("a",), rows=(("1",),))


def test_a_table_goes_between_its_markers_and_nowhere_else() -> None:
    text = "x\n<!-- table: T -->\nold\n<!-- /table: T -->\ny\n"
    filled = "x\n<!-- table: T -->\n\n| a |\n| --: |\n| 1 |\n\n<!-- /table: T -->\ny\n"
    assert fill_tables(text, [TABLE]) == filled
    assert fill_tables(filled, [TABLE]) == filled
    with pytest.raises(SystemModelError, match="table must be one of T, not 'U'"):
        fill_tables(text.replace("T", "U"), [TABLE])


def test_the_tables_of_the_document_are_those_of_the_command() -> None:
    tables = [table for _, tables in everything() for table in tables]
    assert DOCUMENT.count("<!-- table: ") == DOCUMENT.count("<!-- /table: ") > 5
    assert fill_tables(DOCUMENT, tables) == DOCUMENT


# --- figures in the text --------------------------------------------------------------------------


def ours(device: str, model: str, scheme: str) -> Estimate:
    return estimate(
        next(
            setup
            for setup in measured_setups(device, model)
            if (setup.cost.name, setup.gamma) == (scheme, 3)
        )
    )


def load_of_the_npus_arrays() -> float:
    """Compute over memory of a draft of Cassandra-1, Llama3-8B, at the mean context."""
    step = Pass(tokens=1, context=222 + 5707 / 2, draft=True)
    model, cost = load_model("llama3-8b"), load_format("cassandra-1")
    stages = cost_of(load_device("npu"), model, cost, step).stages
    return stages["compute"] / stages["memory"]


def kept_more() -> float:
    device = load_device("rtx4090")
    more = dataclasses.replace(device, reserved=device.reserved + 2**29)
    return capacity(more).over_llama / capacity(device).over_llama - 1


def spread(values: Iterator[float]) -> str:
    found = list(values)
    return f"{min(found):.2f} to {max(found):.2f}"


def int8(model: str) -> Setup:
    return figures._int8_setup(model)


def sentences() -> Iterator[str]:
    """Yield parts of the text, with the figures that the code gives."""
    npu, rtx = load_device("npu"), load_device("rtx4090")
    assert npu.array is not None
    yield f"Eight arrays of {npu.array.rows} x {npu.array.columns} at {npu.clock / 1e9:.3f} GHz"
    yield f"busy for {load_of_the_npus_arrays():.0%} of the time".replace("%", " %")
    needed = f"{figures._share_efficiency():.1%}".replace("%", " %")
    yield f"98 % needs a prefill at {needed} of the tensor cores' peak;"
    yield f"we assume {rtx.compute_efficiency:.0%}.".replace("%", " %")
    yield f"prints all {len(list(paper_cells()))} cells"
    speedups = (estimate(int8(model)).speedup for model in figures.MODELS)
    yield f"8-bit quantisation is {spread(speedups)} by traffic"
    missing = [1e6 * figures._int8_overhead(int8(model), 1.3) for model in figures.MODELS]
    yield f"takes {min(missing):.0f} to {max(missing):.0f} us more in every layer"
    plain = spread(cell.answer.speedup_compressed for cell in paper_cells())
    yield f"the compressed target alone is {plain} times as fast as BF16"
    draft_verify, magicdec, eagle, _ = bounds()
    yield f"ends at {draft_verify.best:.2f} even if every token is accepted"
    yield f"MagicDec at {magicdec.best:.2f} for one request"
    yield f"EAGLE-3 at {eagle.best:.2f}."
    yield f"leaves room for {capacity(rtx).llama:,} tokens"
    yield f"half a GiB more that is kept moves it by {kept_more():.0%}.".replace("%", " %")
    library = "osu018_stdcells"
    yield f"which differs by {classical_factor(library) / energy_factor(library):.1f}."
    yield f"({ours('rtx4090', 'smollm2-135m', 'exact').speedup:.2f} with exact)"
    yield f"it is {ours('npu', 'smollm2-135m', 'exact').speedup:.2f}."
    (full, half) = next(row[1:] for row in target_rates("rtx4090", "llama3-8b").rows if "16" in row)
    yield f"with 16 the speed-up is {half} instead of {full}."
    kv = load_format("unary").kv
    yield f"a cache of which drafts read {kv.draft} of {kv.whole} bits"


def test_the_text_has_the_figures_of_the_code() -> None:
    parts = list(sentences())
    assert [part for part in parts if part not in TEXT] == []
    assert len(parts) > 15


def test_an_array_of_smaller_edge_could_not_feed_drafts() -> None:
    """In the text, edges of 256 values would make drafts of the NPU wait for the array."""
    npu = load_device("npu")
    assert npu.array is not None
    two = Array(rows=128, columns=128, count=2)
    assert two.multipliers == npu.array.multipliers
    wide = dataclasses.replace(npu, array=two)
    step = Pass(tokens=1, context=3000, draft=True)
    model, cost = load_model("llama3-8b"), load_format("cassandra-1")
    assert cost_of(npu, model, cost, step).bound == "memory"
    assert cost_of(wide, model, cost, step).bound == "compute"


def test_half_rate_costs_nothing_while_the_memory_feeds_the_decoders() -> None:
    for decoders, full, half in target_rates("rtx4090", "llama3-8b").rows:
        assert (full == half) == (int(decoders) >= 32)
        assert math.isfinite(float(full))
