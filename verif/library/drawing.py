"""Timing diagrams as pictures: WaveDrom sources, drawn as small SVG files."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from xml.sax.saxutils import escape

_CYCLE, _ROW, _HEIGHT, _LETTER, _TOP = 30, 26, 18, 7.3, 36  # in pixels
_FILLS = dict(
    zip("x3456789", ["ccc", "ffc", "fda", "adf", "cfc", "dcf", "cee", "fcd"], strict=True)
)
_STYLE = "text{font:12px monospace}path,rect{fill:none;stroke:#000}.g{stroke:#ddd}" + "".join(
    f".f{mark}{{fill:#{fill}}}" for mark, fill in _FILLS.items()
)


def picture(text: str) -> str:
    """Draw a WaveDrom source as SVG: clock, bits, buses with labels, a title and a note.

    Args:
        text: The source, with a wave of the same length for every signal and the marks of
            :func:`~cassandra_spec.verif.library.waves.source`.
    """
    drawn = json.loads(text)
    signals, title = drawn["signal"], drawn["head"]["text"]
    left = 10 + _LETTER * max(len(signal["name"]) for signal in signals if signal)
    steps = [_ROW if signal else _ROW // 2 for signal in signals]
    tops = list(itertools.accumulate(steps, initial=_TOP))
    width, bottom = left + _CYCLE * len(signals[0]["wave"]) + 10, tops[-1]
    edges = range(len(signals[0]["wave"]) + 1)
    grid = "".join(f"M{left + _CYCLE * edge:g} {_TOP}V{bottom}" for edge in edges)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {bottom + 30}">',
        f"<title>{escape(title)}</title><desc>{escape(drawn['foot']['text'])}</desc>",
        f"<style>{_STYLE}</style>",
        f'<rect width="{width:g}" height="{bottom + 30}" style="fill:#fff;stroke:none"/>',
        f'<path class="g" d="{grid}"/>',
        _text(width / 2, 20, title, "middle"),
        _text(width / 2, bottom + 20, drawn["foot"]["text"], "middle"),
    ]
    for signal, top in zip(signals, tops, strict=False):
        if signal:
            lines.append(_text(left - 6, top + 14, signal["name"], "end"))
            lines += _wave(signal["wave"], iter(signal.get("data", ())), left, top)
    return "\n".join([*lines, "</svg>\n"])


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:g}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _runs(wave: str) -> Iterator[tuple[str, int, int]]:
    """Yield mark, first cycle and number of cycles of each run in a wave; a dot continues a run."""
    starts = [place for place, mark in enumerate(wave) if mark != "."]
    for start, end in itertools.pairwise([*starts, len(wave)]):
        yield wave[start], start, end - start


def _wave(wave: str, labels: Iterator[str], left: float, top: int) -> Iterator[str]:
    """Yield the line of a clock or a bit, or the boxes of a bus."""
    line, level = "", ""
    for mark, start, cycles in _runs(wave):
        x, width = left + _CYCLE * start, _CYCLE * cycles
        if mark == "p":
            half = _CYCLE // 2
            line += f"M{x:g} {top + _HEIGHT}" + f"v{-_HEIGHT}h{half}v{_HEIGHT}h{half}" * cycles
        elif mark in "01":
            y = top if mark == "1" else top + _HEIGHT
            line += f"{f'V{y}' if level else f'M{x:g} {y}'}h{width}"
        else:
            size = f'width="{width}" height="{_HEIGHT}"'
            yield f'<rect class="f{mark}" x="{x:g}" y="{top}" {size}/>'
            if mark != "x":
                yield _text(x + width / 2, top + 13, next(labels), "middle")
        level = mark if mark in "01" else ""
    if line:
        yield f'<path d="{line}"/>'
