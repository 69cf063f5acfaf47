"""Draw the README's plot: tokens per second of a few contenders, from a page of results.

``python -m cassandra_spec.toolkit.overview`` draws docs/results/overview.svg from the block
``decode zen5`` of docs/results/decoding.md, so plot and table cannot disagree.
"""

from __future__ import annotations

import re
from pathlib import Path

from cassandra_spec.toolkit.documents import block
from cassandra_spec.toolkit.plots import Bar, Plot

RESULTS = Path(__file__).resolve().parents[1] / "docs/results"

SHOWN = {
    "llama.cpp BF16": "llama.cpp, BF16",
    "native plain, BF16": "this engine, no drafts, BF16",
    "native exact, 4 bits": "draft view: 5.1 bits a weight",
    "native hybrid, exact, 4 bits": "hybrid: draft view and copies of tokens",
}
"""Contenders of the table, and their labels in the plot."""


def rates(page: str) -> dict[str, float]:
    """Return tokens per second by contender."""
    rows = re.findall(r"^    (\S.*?)  +(\d+) \[", block(page, "decode zen5"), re.MULTILINE)
    return {contender: float(rate) for contender, rate in rows}


def plot(page: str) -> Plot:
    """Plot the contenders of :data:`SHOWN`."""
    found = rates(page)
    bars = tuple(Bar(label=label, value=found[name]) for name, label in SHOWN.items())
    title = "SmolLM2-135M on two cores of a Zen 5 server"
    return Plot(name="overview", title=title, axis="tokens per second", bars=bars)


def main() -> int:
    """Draw the plot."""
    page = (RESULTS / "decoding.md").read_text(encoding="utf-8")
    (RESULTS / "overview.svg").write_text(plot(page).svg(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
