"""Project passes of a model on processors that are not here, from counts and published figures.

A pass takes as long as its bytes at the memory's bandwidth, or its instructions at an assumed
number for each cycle, whichever is longer. Attention, norms and waiting are left out.
"""

from __future__ import annotations

import ctypes
import dataclasses
import math
from collections.abc import Iterator, Mapping
from functools import cache

from cassandra_spec.lab.decode.shapes import SHAPES
from cassandra_spec.lab.instructions.counting import GROUP
from cassandra_spec.native.forms import FORMS, FormName
from cassandra_spec.native.library import declare, load
from cassandra_spec.toolkit.tables import markdown_table

Counts = Mapping[tuple[FormName, str, int], float]
"""Instructions for each weight by form, instruction set and rows."""

MODELS = {"135m": "SmolLM2-135M", "1b": "Llama 3.2 1B"}
DRAFT: FormName = "draft5"
ROWS = (1, 8)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Device:
    """A processor by its published figures, and an assumption."""

    name: str
    isa: str
    cores: int
    clock: float  # Hz
    bandwidth: float  # bytes per second
    per_cycle: tuple[float, float]  # assumed instructions of one core, low and high


# docs/results/arm.md has the sources.
DEVICES = (
    Device(
        name="Raspberry Pi 5",
        isa="neon",
        cores=4,
        clock=2.4e9,
        bandwidth=11e9,
        per_cycle=(1, 2.5),
    ),
    Device(
        name="Jetson AGX Orin",
        isa="neon",
        cores=12,
        clock=2.2e9,
        bandwidth=204.8e9,
        per_cycle=(1, 2.5),
    ),
    Device(
        name="Apple M1, one core",
        isa="neon",
        cores=1,
        clock=3.2e9,
        bandwidth=50e9,
        per_cycle=(2, 5),
    ),
    Device(
        name="Apple M2, one core",
        isa="neonbf16",
        cores=1,
        clock=3.5e9,
        bandwidth=50e9,
        per_cycle=(2, 5),
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pass:
    """A pass over all weights of a model in one form."""

    nbytes: int
    instructions: float

    def seconds(self, device: Device, per_cycle: float) -> float:
        """Return the longer one of the times of bytes and instructions."""
        return max(self.nbytes / device.bandwidth, self._busy(device, per_cycle))

    def waits(self, device: Device, per_cycle: float) -> bool:
        """Return True if memory is the limit."""
        return self.nbytes / device.bandwidth > self._busy(device, per_cycle)

    def _busy(self, device: Device, per_cycle: float) -> float:
        return self.instructions / (device.cores * device.clock * per_cycle)


def matrix_bytes(form: FormName, shape: tuple[int, ...]) -> int:
    """Return the bytes of a matrix in a form, without escapes and patches."""
    count = ctypes.c_int64
    signature = (count, (ctypes.c_int, ctypes.c_int, count, count))
    declare(load(), {"linear_room": signature})
    room = load().cassandra_linear_room
    forms: tuple[FormName, ...] = ("draft5", form) if form == "planes" else (form,)
    return sum(int(room(FORMS.index(each), GROUP, *shape)) for each in forms)


@cache
def _matrices(model: str) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of the matrices that a pass reads; the embedding is the head, too."""
    from cassandra_spec.native.models.reading import read_model_config

    shapes = read_model_config(SHAPES[model]).tensor_shapes().values()
    return tuple(shape for shape in shapes if len(shape) == 2)


def model_pass(model: str, form: FormName, isa: str, rows: int, counts: Counts) -> Pass:
    """Return a pass over rows of input."""
    matrices = _matrices(model)
    weights = sum(map(math.prod, matrices))
    return Pass(
        nbytes=sum(matrix_bytes(form, shape) for shape in matrices),
        instructions=weights * counts[form, isa, rows],
    )


PLAIN: tuple[FormName, ...] = ("bf16", "packed12")
"""Forms of the target that are projected."""

_HEAD = (
    *("model", "processor", "instructions a cycle", "plain `bf16`", "plain `packed12`", "draft"),
    *("draft / plain", "8 rows / plain"),
)


def projection_table(counts: Counts) -> str:
    """Format passes per second of each model and processor; (m): memory is the limit."""
    cases = [(m, d, rate) for m in MODELS for d in DEVICES for rate in d.per_cycle]
    return markdown_table(_HEAD, [list(_cells(*case, counts)) for case in cases])


def _cells(model: str, device: Device, per_cycle: float, counts: Counts) -> Iterator[str]:
    plain, many = (
        [model_pass(model, form, device.isa, rows, counts) for form in PLAIN] for rows in ROWS
    )
    draft = model_pass(model, DRAFT, device.isa, 1, counts)
    yield from (MODELS[model], device.name, f"{per_cycle:g}")
    for each in (*plain, draft):
        mark = " (m)" if each.waits(device, per_cycle) else ""
        yield f"{1 / each.seconds(device, per_cycle):.3g}{mark}"
    best, eight = (min(p.seconds(device, per_cycle) for p in passes) for passes in (plain, many))
    yield f"{draft.seconds(device, per_cycle) / best:.2f}"
    yield f"{eight / best:.2f}"
