"""Plots as SVG, each with the baseline that it must be held to."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from cassandra_spec.lab.system.decoding import cache_tokens, estimate
from cassandra_spec.lab.system.device import load_device
from cassandra_spec.lab.system.figures.beyond import (
    CONTEXTS,
    gain,
    measured_setup,
    measured_setups,
    swings,
    tornado_setups,
)
from cassandra_spec.lab.system.figures.figure_13 import bounds
from cassandra_spec.lab.system.figures.figure_14 import capacity
from cassandra_spec.lab.system.figures.paper import EQUAL, decode_share, paper_cells
from cassandra_spec.lab.system.figures.paper_file import claim, paper
from cassandra_spec.lab.system.workload import Workload, load_model
from cassandra_spec.toolkit.plots import BASELINE, Bar, Plot

_SPEED = "decoding, times BF16"


def plots() -> Iterator[Plot]:
    """Yield every plot of ``casspec system reproduce``."""
    yield _figure_3()
    yield from _figure_12()
    yield _figure_13()
    yield _figure_14()
    yield from _our_schemes()
    yield from _tornados()
    yield from _limits()


def _figure_3() -> Plot:
    device, model = load_device("rtx4090"), load_model("llama3-8b")
    lengths = [(EQUAL.prompt, EQUAL.output), *paper()["lengths"].values()]
    bars = []
    for prompt, output in lengths:
        workload = Workload(prompt=prompt, output=output)
        share = 100 * decode_share(device, model, workload)
        packed = 100 * decode_share(device, model, workload, "cassandra-1")
        bars.append(Bar(label=f"{prompt}:{output}", value=share, mark=packed, series="BF16"))
    return Plot(
        name="figure-3",
        title="Figure 3: share of decoding, Llama3-8B on RTX 4090, by tokens in:out",
        axis="time of decoding, percent of all",
        bars=tuple(bars),
        lines=(("the paper, as many in as out", 100 * claim("decode_share")),),
    )


def _figure_12() -> Iterator[Plot]:
    cells = sorted(paper_cells(), key=lambda cell: (cell.device, cell.model, cell.benchmark))
    for device, group in itertools.groupby(cells, key=lambda cell: cell.device):
        bars = [
            Bar(
                label=f"{cell.answer.setup.model.name}, {cell.benchmark}",
                value=cell.answer.speedup,
                mark=cell.answer.speedup_compressed,
                series=cell.scheme,
            )
            for cell in group
        ]
        yield Plot(
            name=f"figure-12-{device}",
            title=f"Figure 12: {load_device(device).name}, acceptance of Table IV",
            axis=_SPEED,
            bars=tuple(bars),
            lines=(
                ("the paper's lowest", claim("speedup_lowest")),
                ("its highest", claim("speedup_highest")),
            ),
        )


def _figure_13() -> Plot:
    bars = [
        Bar(
            label=bound.name,
            value=bound.best,
            mark=1 / bound.target,
            series="if every drafted token is accepted",
        )
        for bound in bounds()
    ]
    return Plot(
        name="figure-13",
        title="Figure 13: bounds by traffic, DS-Llama-8B, gamma 5",
        axis=_SPEED,
        bars=tuple(bars),
        lines=(
            ("the paper's Lookahead, AIME2025", claim("lookahead_aime")),
            ("GPQA-Diamond", claim("lookahead_gpqa")),
        ),
    )


def _figure_14() -> Plot:
    found = capacity(load_device("rtx4090"))
    names = ("BF16", "Cassandra-1", "EAGLE-3", "Llama-3.2-3B as drafter")
    return Plot(
        name="figure-14",
        title="Figure 14: tokens of Llama3-8B that fit on an RTX 4090",
        axis="tokens in the cache",
        bars=tuple(
            Bar(label=name, value=float(value), mark=float(value) if name == names[1] else None)
            for name, value in zip(names, dataclasses.astuple(found), strict=True)
        ),
        lines=(
            ("the paper's 1.81 times EAGLE-3's", claim("tokens_eagle") * found.eagle),
            ("its 11.59 times a Llama draft's", claim("tokens_llama") * found.llama),
        ),
    )


def _our_schemes() -> Iterator[Plot]:
    for device, model in (
        ("rtx4090", "smollm2-135m"),
        ("npu", "smollm2-135m"),
        ("rtx4090", "llama3-8b"),
    ):
        bars = []
        for setup in measured_setups(device, model):
            answer = estimate(setup)
            bars.append(
                Bar(
                    label=setup.cost.name,
                    value=answer.speedup,
                    mark=answer.speedup_compressed,
                    series=f"gamma {setup.gamma}",
                )
            )
        yield Plot(
            name=f"schemes-{model}-{device}",
            title=f"Our schemes: {load_model(model).name} on {load_device(device).name},"
            " acceptance of SmolLM2",
            axis=_SPEED,
            bars=tuple(bars),
        )


def _tornados() -> Iterator[Plot]:
    for setup in tornado_setups():
        answer = estimate(setup)
        here, plain = answer.speedup, answer.speedup_compressed
        bars = [
            Bar(label=swing.name, start=here, value=value, mark=plain, series=series)
            for swing in swings(setup)
            for series, value in (("first change", swing.low), ("second change", swing.high))
        ]
        yield Plot(
            name=f"tornado-{setup.cost.name}",
            title=f"Sensitivity: {setup.cost.name}, {setup.model.name} on {setup.device.name},"
            f" {here:.3f} as it is",
            axis=_SPEED,
            bars=tuple(bars),
            zoom=True,
        )


def _limits() -> Iterator[Plot]:
    for scheme in ("unary", "exact"):
        setup = measured_setup("rtx4090", "llama3-8b", scheme)
        curves, room = [], []
        tokens = cache_tokens(setup.device, setup.model, setup.cost)
        for batch in (1, 4, 16):
            used = dataclasses.replace(
                setup, workload=dataclasses.replace(setup.workload, batch=batch)
            )
            points = tuple((float(context), gain(used, context)) for context in CONTEXTS)
            curves.append((f"{batch} at once", points))
            room.append(tokens / batch)
        yield Plot(
            name=f"limits-{scheme}",
            title=f"Where speculation pays: {scheme}, {setup.model.name} on {setup.device.name}",
            axis=f"times the {BASELINE}",
            across="tokens in the cache",
            curves=tuple(curves),
            room=tuple(room),
            lines=((BASELINE, 1.0),),
        )
