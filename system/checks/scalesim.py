"""The closed form of :mod:`cassandra_spec.system.systolic` against SCALE-Sim, the simulator the
paper built on.

SCALE-Sim needs an older numpy than the project: it lives in a virtual environment of its own and is
run as a program. Its counts are kept in ``records/scalesim.json`` with what made them, so that the
closed form can be held to them where the environment is not.
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.report.programs import python_environment, run_program
from cassandra_spec.report.tables import Table, difference
from cassandra_spec.system.device import load_device
from cassandra_spec.system.errors import SystemModelError
from cassandra_spec.system.files import HERE, read_json
from cassandra_spec.system.systolic import DATAFLOWS, Array, Dataflow, Product, array_cycles

RECORDED = HERE / "records" / "scalesim.json"
"""The counts that come with the package."""

REQUIREMENTS = HERE / "checks" / "scalesim-requirements.txt"
"""Every package of SCALE-Sim's environment, with its version."""

TOLERANCE = 0.02
"""How far closed form and SCALE-Sim may be apart."""

_CONFIG = """\
[general]
run_name = array
[architecture_presets]
ArrayHeight = {rows}
ArrayWidth = {columns}
IfmapSramSzkB = 3072
FilterSramSzkB = 3072
OfmapSramSzkB = 3072
IfmapOffset = 0
FilterOffset = 100000000
OfmapOffset = 200000000
Bandwidth = 512
Dataflow = {dataflow}
ReadRequestBuffer = 512
WriteRequestBuffer = 512
[layout]
IfmapCustomLayout = False
IfmapSRAMBankBandwidth = 10
IfmapSRAMBankNum = 10
IfmapSRAMBankPort = 2
FilterCustomLayout = False
FilterSRAMBankBandwidth = 10
FilterSRAMBankNum = 10
FilterSRAMBankPort = 2
[sparsity]
SparsitySupport = false
SparseRep = ellpack_block
OptimizedMapping = false
BlockSize = 8
RandomNumberGeneratorSeed = 40
[run_presets]
InterfaceBandwidth = CALC
UseRamulatorTrace = False
"""
"""The paper's 9 MB of scratchpad in three parts; ``CALC``: no stalls, memory is a stage of ours."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Count:
    """What SCALE-Sim counted for one product on one array."""

    name: str  # of the layer
    product: Product  # its shape
    dataflow: Dataflow  # what stayed in the array
    cycles: int  # with filling and draining, without fetching from memory
    stalls: int  # cycles among them in which the array waited for memory


def array_of_npu() -> Array:
    """One of the arrays of the paper's NPU: SCALE-Sim has a single one.

    Raises:
        SystemModelError: the device file has no array.
    """
    array = load_device("npu").array
    if array is None:
        raise SystemModelError("npu must have an array, not only its peak")
    return dataclasses.replace(array, count=1)


def workloads() -> Iterator[tuple[str, Product, tuple[Dataflow, ...]]]:
    """Name, product and dataflows of every run: layers in drafts, verification, and prefill."""
    for m in range(1, 10):  # a draft has one row, verification gamma + 1
        yield f"SmolLM2-135M key, {m} rows", Product(m=m, k=576, n=192), DATAFLOWS
    for m in (1, 6, 222):
        yield f"SmolLM2-135M query, {m} rows", Product(m=m, k=576, n=576), DATAFLOWS
    for m in (1, 222):
        yield f"SmolLM2-135M gate, {m} rows", Product(m=m, k=576, n=1536), ("is", "os")
    yield "SmolLM2-135M down, 6 rows", Product(m=6, k=1536, n=576), ("is", "os")
    for m in (1, 6):
        yield f"Llama3-8B key, {m} rows", Product(m=m, k=4096, n=1024), ("is",)
    yield "Qwen3-4B key, 1 row", Product(m=1, k=2560, n=1024), ("is", "os")
    yield "Qwen3-4B key, 232 rows", Product(m=232, k=2560, n=1024), ("is",)
    for m in (4, 24):  # four query heads share a key head, in drafts and in verification
        yield f"Llama3-8B scores, {m} rows", Product(m=m, k=128, n=3076), DATAFLOWS
        yield f"Llama3-8B mix, {m} rows", Product(m=m, k=3076, n=128), DATAFLOWS


def environment(folder: Path) -> Path:
    """The interpreter of SCALE-Sim's environment in ``folder``, which is made if it is not there.

    Raises:
        SystemModelError: the packages cannot be installed.
        OSError: the folder cannot be written.
    """
    return python_environment(folder, REQUIREMENTS, error=SystemModelError) / "python"


def simulate(
    python: Path, array: Array, runs: Iterable[tuple[str, Product, tuple[Dataflow, ...]]]
) -> list[Count]:
    """Run SCALE-Sim, once for each dataflow.

    Args:
        python: interpreter of an environment that has it.
        array: rows and columns; its ``count`` must be 1.
        runs: as :func:`workloads` has them.

    Raises:
        SystemModelError: it fails, or reports another number of layers.
    """
    if array.count != 1:
        raise SystemModelError(f"array.count must be 1 for SCALE-Sim, not {array.count}")
    work = list(runs)
    counts: list[Count] = []
    for dataflow in DATAFLOWS:
        layers = [(name, product) for name, product, flows in work if dataflow in flows]
        if layers:
            counts += _simulate(python, array, dataflow, layers)
    return counts


def _simulate(
    python: Path, array: Array, dataflow: Dataflow, layers: Sequence[tuple[str, Product]]
) -> Iterator[Count]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = _CONFIG.format(rows=array.rows, columns=array.columns, dataflow=dataflow)
        (folder / "array.cfg").write_text(config)
        shapes = [f"layer{i}, {p.m}, {p.n}, {p.k}," for i, (_, p) in enumerate(layers)]
        (folder / "layers.csv").write_text("\n".join(["Layer, M, N, K,", *shapes]) + "\n")
        (folder / "layout.csv").write_text("no layout\n")
        files = ["-c", "array.cfg", "-t", "layers.csv", "-l", "layout.csv", "-p", "out"]
        command = [python, "-m", "scalesim.scale", *files, "-i", "gemm", "-s", "N"]
        plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        run_program(command, folder, error=SystemModelError, variables=plain)
        found = parse_report((folder / "out/array/COMPUTE_REPORT.csv").read_text())
    if len(found) != len(layers):
        raise SystemModelError(f"SCALE-Sim must report {len(layers)} layers, not {len(found)}")
    for (label, product), (cycles, stalls) in zip(layers, found, strict=True):
        yield Count(name=label, product=product, dataflow=dataflow, cycles=cycles, stalls=stalls)


def parse_report(text: str) -> list[tuple[int, int]]:
    """Cycles and stalls of every layer in a ``COMPUTE_REPORT.csv``.

    SCALE-Sim gives the number of the last cycle, counted from 0.

    Raises:
        SystemModelError: it has no such columns.
    """
    rows = csv.DictReader(text.splitlines(), skipinitialspace=True)
    try:
        return [(int(row["Total Cycles"]) + 1, int(row["Stall Cycles"])) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise SystemModelError(
            f"SCALE-Sim's report must have Total Cycles and Stall Cycles, not {error}"
        ) from None


# --- the record -----------------------------------------------------------------------------------


def records(counts: Sequence[Count], array: Array, command: str) -> dict[str, Any]:
    """Counts and what made them, as plain data."""
    versions = REQUIREMENTS.read_text(encoding="utf-8").split("\n")
    return {
        "command": command,
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "packages": [line for line in versions if "==" in line],
        "array": {"rows": array.rows, "columns": array.columns},
        "config": _CONFIG,
        "counts": [
            {
                "name": count.name,
                **{axis: getattr(count.product, axis) for axis in "mkn"},
                **{name: getattr(count, name) for name in ("dataflow", "cycles", "stalls")},
            }
            for count in counts
        ],
    }


def recorded(path: Path = RECORDED) -> tuple[Array, list[Count]]:
    """The array and the counts of a file that :func:`records` made.

    Raises:
        SystemModelError: it is of another form.
        OSError: it cannot be read.
    """
    content = read_json(path)
    try:
        array = Array(**content["array"])
        counts = [
            Count(
                product=Product(**{axis: row[axis] for axis in "mkn"}),
                **{name: row[name] for name in ("name", "dataflow", "cycles", "stalls")},
            )
            for row in content["counts"]
        ]
    except (KeyError, TypeError) as error:
        raise SystemModelError(f"{path} must be a record of SCALE-Sim: {error}") from None
    return array, counts


def largest(array: Array, counts: Iterable[Count]) -> float:
    """The largest difference between closed form and SCALE-Sim, as a part of the latter."""
    return max(
        abs(array_cycles(array, count.product, count.dataflow) / count.cycles - 1)
        for count in counts
    )


def comparison(array: Array, counts: Sequence[Count]) -> Table:
    """Closed form and SCALE-Sim, layer by layer."""
    rows = []
    for count in counts:
        ours = array_cycles(array, count.product, count.dataflow)
        shape = f"{count.product.m} x {count.product.k} x {count.product.n}"
        off = difference(ours, count.cycles)
        rows.append((count.name, shape, count.dataflow, f"{count.cycles:,}", f"{ours:,}", f"{off}"))
    return Table(
        title=f"Systolic array of {array.rows} x {array.columns}: closed form against SCALE-Sim",
        header=("layer", "rows x k x n", "dataflow", "SCALE-Sim", "closed form", "difference"),
        rows=tuple(rows),
        notes=(
            f"Largest difference {largest(array, counts):.2%} (allowed {TOLERANCE:.0%}). Cycles of"
            " one array; is, os, ws: inputs, outputs, weights stay in it.",
        ),
    )
