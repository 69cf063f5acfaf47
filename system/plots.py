"""Plots as SVG: horizontal bars, each with the baseline that it must be held to.

Written without a plotting library: this layer imports the standard library alone, and bars need
no more.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from system.beyond import measured_setups, swings, tornado_setups
from system.decoding import estimate
from system.device import load_device
from system.paper import EQUAL, capacity, decode_share, paper_cells
from system.paper_file import paper
from system.workload import Workload, load_model

__all__ = ["Bar", "Plot", "plots"]

_WIDTH, _LABEL, _ROW, _TOP = 760, 330, 18, 48  # pixels
_SPAN = _WIDTH - _LABEL - 90
_COLOURS = {"bar": "#4477aa", "mark": "#222222", "line": "#cc3311"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar.

    Attributes:
        label: to its left.
        value: where it ends.
        start: where it begins.
        mark: where the baseline is, or None.
    """

    label: str
    value: float
    start: float = 0.0
    mark: float | None = None

    @property
    def shown(self) -> str:
        """What is written to its right."""
        end = f"{self.value:,.4g}"
        return f"{self.start:,.4g} to {end}" if self.start else end


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plot:
    """Bars below each other.

    Attributes:
        name: of the file, without its ending.
        title: above.
        legend: what bars, marks and lines are.
        bars: from top to bottom; at least one.
        lines: values with a vertical line, the paper's.
    """

    name: str
    title: str
    legend: str
    bars: tuple[Bar, ...]
    lines: tuple[float, ...] = ()

    @property
    def largest(self) -> float:
        """The value at the right end of the scale."""
        marks = [bar.mark for bar in self.bars if bar.mark is not None]
        starts = [bar.start for bar in self.bars]
        return max(*(bar.value for bar in self.bars), *marks, *starts, *self.lines, 1e-9)

    def svg(self) -> str:
        """The plot as an SVG document with title and description."""
        height = _TOP + _ROW * len(self.bars) + 8
        body = [self._head(height), *self._lines(height)]
        for number, bar in enumerate(self.bars):
            body += self._bar(bar, _TOP + _ROW * number)
        return "\n".join([*body, "</svg>\n"])

    def _head(self, height: int) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}"'
            ' font-family="sans-serif" font-size="11">\n'
            f"<title>{escape(self.title)}</title>\n<desc>{escape(self.legend)}</desc>\n"
            '<rect width="100%" height="100%" fill="white"/>\n'
            f'<text x="8" y="18" font-size="14">{escape(self.title)}</text>\n'
            f'<text x="8" y="36" fill="#555555">{escape(self.legend)}</text>'
        )

    def _at(self, value: float) -> float:
        return _LABEL + _SPAN * value / self.largest

    def _lines(self, height: int) -> Iterator[str]:
        for value in self.lines:
            yield _upright(self._at(value), _TOP - 4, height - 4, _COLOURS["line"], f"{value:g}")

    def _bar(self, bar: Bar, top: int) -> Iterator[str]:
        left, right = sorted((self._at(bar.start), self._at(bar.value)))
        tip = f"{bar.label}: {bar.value:g}"
        yield f'<text x="{_LABEL - 6}" y="{top + 12}" text-anchor="end">{escape(bar.label)}</text>'
        yield (
            f'<rect class="bar" x="{left:.2f}" y="{top + 2}" width="{right - left:.2f}"'
            f' height="{_ROW - 5}" fill="{_COLOURS["bar"]}"><title>{escape(tip)}</title></rect>'
        )
        yield f'<text x="{right + 4:.2f}" y="{top + 12}">{bar.shown}</text>'
        if bar.mark is not None:
            shown = _COLOURS["mark"]
            yield _upright(self._at(bar.mark), top + 1, top + _ROW - 2, shown, f"{bar.mark:g}")


def _upright(x: float, top: int, bottom: int, colour: str, tip: str) -> str:
    return (
        f'<line x1="{x:.2f}" x2="{x:.2f}" y1="{top}" y2="{bottom}" stroke={quoteattr(colour)}'
        f' stroke-width="2"><title>{escape(tip)}</title></line>'
    )


# --- the plots ----------------------------------------------------------------------------------

_BASELINE = "black mark: the compressed target without speculation"


def plots() -> Iterator[Plot]:
    """Every plot of ``casspec system reproduce``."""
    yield _figure_3()
    yield from _figure_12()
    yield _figure_14()
    yield from _our_schemes()
    yield from _tornados()


def _figure_3() -> Plot:
    device, model = load_device("rtx4090"), load_model("llama3-8b")
    lengths = [(EQUAL.prompt, EQUAL.output), *paper()["lengths"].values()]
    bars = [
        Bar(
            label=f"{prompt}:{output}",
            value=100 * decode_share(device, model, Workload(prompt=prompt, output=output)),
        )
        for prompt, output in lengths
    ]
    return Plot(
        name="figure-3",
        title="Figure 3: share of decoding, Llama3-8B on RTX 4090, BF16, percent",
        legend="bar: by tokens in:out, no speculation; red line: the paper, for as many in as out",
        bars=tuple(bars),
        lines=(100 * paper()["figures"]["decode_share"],),
    )


def _figure_12() -> Iterator[Plot]:
    claims = paper()["figures"]
    for device, cells in itertools.groupby(paper_cells(), key=lambda cell: cell.device):
        bars = [
            Bar(
                label=f"{cell.scheme}, {cell.model}, {cell.benchmark}",
                value=cell.answer.speedup,
                mark=cell.answer.speedup_compressed,
            )
            for cell in cells
        ]
        yield Plot(
            name=f"figure-12-{device}",
            title=f"Figure 12: decoding against BF16, {load_device(device).name}",
            legend=f"{_BASELINE}; red lines: the paper's lowest and highest",
            bars=tuple(bars),
            lines=(claims["speedup_lowest"], claims["speedup_highest"]),
        )


def _figure_14() -> Plot:
    found = capacity(load_device("rtx4090"))
    amounts = {
        "BF16, no speculation": found.bf16,
        "Cassandra-1": found.cassandra,
        "EAGLE-3": found.eagle,
        "Llama-3.2-3B as drafter": found.llama,
    }
    return Plot(
        name="figure-14",
        title="Figure 14: tokens of Llama3-8B that fit on an RTX 4090",
        legend="bar: tokens in the cache; the compressed target without speculation has as many",
        bars=tuple(Bar(label=name, value=float(value)) for name, value in amounts.items()),
    )


def _our_schemes() -> Iterator[Plot]:
    for device, model in (("npu", "smollm2-135m"), ("rtx4090", "llama3-8b")):
        bars = []
        for setup in measured_setups(device, model):
            answer = estimate(setup)
            label = f"{setup.cost.name}, gamma {setup.gamma}, .{setup.acceptance.rate * 100:.0f}"
            bars.append(Bar(label=label, value=answer.speedup, mark=answer.speedup_compressed))
        yield Plot(
            name=f"schemes-{model}-{device}",
            title=f"Our schemes: {load_model(model).name} on {load_device(device).name}",
            legend=f"bar: decoding against BF16, acceptance of SmolLM2; {_BASELINE}",
            bars=tuple(bars),
        )


def _tornados() -> Iterator[Plot]:
    for setup in tornado_setups():
        answer = estimate(setup)
        bars = [
            Bar(label=swing.name, start=swing.low, value=swing.high, mark=answer.speedup)
            for swing in swings(setup)
        ]
        yield Plot(
            name=f"tornado-{setup.cost.name}",
            title=f"Sensitivity: {setup.cost.name}, {setup.model.name} on {setup.device.name}",
            legend="bar: speed-up at both ends; black mark: as it is; red line: no speculation",
            bars=tuple(bars),
            lines=(round(answer.speedup_compressed, 3),),
        )
