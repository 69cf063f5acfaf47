"""Measure how fast the linear kernels read weights in memory, relative to plain reading."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.native.linear import (
    FORMS,
    FormName,
    NativeLinear,
    NativeStreams,
    time_layers,
    time_reading,
)
from cassandra_spec.toolkit.tables import text_table

SHAPES: tuple[tuple[int, int], ...] = ((960, 576), (576, 576), (3072, 576), (576, 1536))
"""Outputs and inputs of a layer of SmolLM2-135M: query, key, value; output; gate, up; down."""

_GROUP = 64
_PASSES = 9  # timed together; their median is a round's figure
_READ_BYTES = 256 << 20  # more than caches hold


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelTime:
    """One form on a number of threads: a figure of each round."""

    form: FormName
    threads: int
    bits: float  # per weight, as stored
    nbytes: int  # read by a pass
    seconds: dict[int, list[float]]  # of a pass, by rows of input
    reading: list[float]  # bytes per second of plain reading, in the same rounds

    def rate(self, rows: int) -> list[float]:
        """Return the bytes of weights per second in each round."""
        return [self.nbytes / time for time in self.seconds[rows]]

    def share(self, rows: int) -> list[float]:
        """Return the ratio to plain reading in each round."""
        return [rate / reading for rate, reading in zip(self.rate(rows), self.reading, strict=True)]

    def relative(self, rows: int) -> list[float]:
        """Time of a pass over that of a pass with one row, in each round."""
        pairs = zip(self.seconds[rows], self.seconds[1], strict=True)
        return [time / one for time, one in pairs]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
    """A plan of the measurement; every round measures everything once."""

    forms: Sequence[FormName] = FORMS
    rows: Sequence[int] = (1, 2, 4, 8)
    threads: Sequence[int] = (1, 2)
    rounds: int = 7
    layers: int = 10
    shapes: Sequence[tuple[int, int]] = SHAPES
    repeats: int = 1  # of the layers in a pass

    @classmethod
    def cached(cls, **options: Any) -> Measurement:
        """Return a plan with one matrix in the second-level cache: the bound of the
        instructions.
        """
        return cls(layers=1, shapes=((320, 576),), repeats=10, **options)


def sample_values(
    form: FormName, shape: tuple[int, int], rng: np.random.Generator
) -> NDArray[np.uint16]:
    """Random BF16 patterns that a form can hold, with full mantissas."""
    odd = {"draft5": 16, "draft4": 8}
    if form in odd:
        numbers = (2 * rng.integers(-odd[form], odd[form], shape) + 1) * 2.0**-9
    elif form == "mx9":
        numbers = rng.integers(-255, 256, shape) * 2.0**-12
    else:
        numbers = rng.normal(scale=0.03, size=shape)
    bits = numbers.astype(np.float32).view(np.uint32)
    patterns: NDArray[np.uint16] = (bits >> 16).astype(np.uint16)
    if form == "packed8":
        patterns = ((patterns & 0xFFF0) | 8).astype(np.uint16)
    return patterns


def _layers(
    form: FormName, threads: int, plan: Measurement, stack: ExitStack
) -> list[NativeLinear]:
    rng = np.random.default_rng(1)
    streams = stack.enter_context(NativeStreams(threads))
    samples = [sample_values(form, shape, rng) for shape in plan.shapes]
    layers = [
        stack.enter_context(NativeLinear(values, form, group=_GROUP, streams=streams))
        for _ in range(plan.layers)
        for values in samples
    ]
    return layers * plan.repeats


def _empty(form: FormName, layers: list[NativeLinear], rows: Sequence[int]) -> KernelTime:
    nbytes = sum(layer.nbytes for layer in layers)
    weights = sum(layer.shape[0] * layer.shape[1] for layer in layers)
    return KernelTime(
        form=form,
        threads=layers[0].threads,
        bits=8 * nbytes / weights,
        nbytes=nbytes,
        seconds={count: [] for count in sorted({1, *rows})},
        reading=[],
    )


def measure_kernels(
    plan: Measurement, progress: Callable[[str], None] = lambda text: None
) -> list[KernelTime]:
    """Time passes through layers of random weights; plain reading is measured before each.

    Raises :class:`native.NativeError` if there is no native library.
    """
    with ExitStack() as stack:
        made: list[tuple[KernelTime, list[NativeLinear]]] = []
        for threads in plan.threads:
            for form in plan.forms:
                progress(f"{form}, {threads} threads: making layers")
                layers = _layers(form, threads, plan, stack)
                made.append((_empty(form, layers, plan.rows), layers))
        for number in range(plan.rounds):
            progress(f"round {number + 1} of {plan.rounds}")
            for result, layers in made:
                _round(result, layers)
        return [result for result, _ in made]


def _round(result: KernelTime, layers: list[NativeLinear]) -> None:
    reading = statistics.median(time_reading(_READ_BYTES, _PASSES, result.threads))
    result.reading.append(_READ_BYTES / reading)
    for rows, seconds in result.seconds.items():
        seconds.append(statistics.median(time_layers(layers, rows, _PASSES, result.threads)))


def _spread(figures: Sequence[float]) -> str:
    return f"{statistics.median(figures):.1f} [{min(figures):.1f}, {max(figures):.1f}]"


def kernel_table(results: Sequence[KernelTime]) -> str:
    """Format the result of :func:`measure_kernels`."""
    rows = [count for count in results[0].seconds if count > 1]
    header = ["form", "threads", "bits/weight", "MB", "GB/s", "of reading"]
    header += [f"{count} rows" for count in rows]
    lines = [
        [
            result.form,
            str(result.threads),
            f"{result.bits:.2f}",
            f"{result.nbytes / 1e6:.0f}",
            _spread([rate / 1e9 for rate in result.rate(1)]),
            f"{statistics.median(result.share(1)):.2f}",
            *(f"{statistics.median(result.relative(count)):.2f}" for count in rows),
        ]
        for result in results
    ]
    return text_table(header, lines)
