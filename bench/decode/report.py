"""Tables and the picture of a benchmark of decoding."""

from __future__ import annotations

from collections.abc import Sequence

from cassandra_spec.bench.decode.results import Figure, Summary
from cassandra_spec.drafting.report import plan_shares
from cassandra_spec.toolkit.tables import text_table

_COLUMNS = (
    "contender",
    "tokens/s",
    "of plain",
    "of llama.cpp BF16",
    "accepted",
    "identical",
    "prompt tokens/s",
    "of llama.cpp BF16",
    "GB/s",
    "MB held",
    "MB resident",
)


def lines(found: Sequence[Summary]) -> str:
    """Format a table for each set of weights."""
    parts = []
    for weights in dict.fromkeys(each.weights for each in found):
        some = [each for each in found if each.weights == weights]
        parts.append(
            f"weights: {weights}\n\n" + text_table(_COLUMNS, [_cells(each) for each in some])
        )
        if beside := [
            [each.contender, spread_cell(each.to_beside, 2)] for each in some if each.to_beside
        ]:
            parts.append(text_table(["contender", "of itself on the other checkout"], beside))
        if chosen := [[each.contender, plan_shares(each.plans)] for each in some if each.plans]:
            parts.append(text_table(["adaptive gamma", "rounds by what they might draft"], chosen))
    return "\n\n".join(parts)


def _cells(one: Summary) -> list[str]:
    return [
        one.contender,
        spread_cell(one.rate, 0),
        spread_cell(one.to_plain, 2),
        spread_cell(one.to_llama, 2),
        "-" if not one.drafted else f"{(one.accepted or 0) / one.drafted:.3f}",
        _identity(one),
        spread_cell(one.prompt_rate, 0),
        spread_cell(one.prompt_to_llama, 2),
        f"{one.probe.median / 1e9:.0f}",
        "-" if one.held is None else f"{one.held / 1e6:.0f}",
        f"{one.resident / 1e6:.0f}",
    ]


def spread_cell(figure: Figure, digits: int) -> str:
    """Return a median with its quartiles, or a dash."""
    if figure is None:
        return "-"
    return f"{figure.median:.{digits}f} [{figure.low:.{digits}f}, {figure.high:.{digits}f}]"


def _identity(one: Summary) -> str:
    """Format the counts of identical replies; in brackets, those that may differ."""
    if one.compared:
        return f"{one.identical}/{one.compared}"
    return f"({one.alike})" if one.alike is not None else "-"


def differing_replies(found: Sequence[Summary]) -> tuple[int, int]:
    """Count the replies that differ although they must not, and those compared."""
    compared = sum(each.compared for each in found)
    return compared - sum(each.identical for each in found), compared


def draw(found: Sequence[Summary], *, title: str) -> bytes:
    """Draw an SVG: a bar per contender, a panel per set of weights, quartiles as lines.

    All panels have one scale; the legend explains the colours.
    """
    from matplotlib.figure import Figure as Plot
    from matplotlib.patches import Patch

    from cassandra_spec.toolkit.plots import described_svg

    groups = list(dict.fromkeys(each.weights for each in found))
    names = list(dict.fromkeys(each.contender for each in found))
    plot = Plot(figsize=(4 + 3.5 * len(groups), 1 + 0.3 * len(names)), layout="constrained")
    panels = plot.subplots(1, len(groups), sharex=True, sharey=True, squeeze=False)[0]
    for axes, weights in zip(panels, groups, strict=True):
        some = [each for each in found if each.weights == weights]
        rates = [each.rate for each in some]
        middle = [rate.median for rate in rates]
        errors = [[r.median - r.low for r in rates], [r.high - r.median for r in rates]]
        places = [names.index(each.contender) for each in some]
        axes.barh(places, middle, xerr=errors, color=[_colour(each) for each in some], capsize=2)
        axes.set(title=weights, xlabel="tokens per second")
        axes.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    key = [Patch(color=colour, label=kind) for kind, colour in _COLOURS.items()]
    plot.legend(handles=key, loc="outside lower center", ncols=len(key), frameon=False)
    text = "; ".join(f"{each.weights}, {each.contender}: {each.rate.median:.0f}" for each in found)
    return described_svg(plot, title=title, text=f"Tokens per second. {text}.")


_COLOURS = {
    "native, plain": "tab:blue",
    "native, speculative": "tab:orange",
    "other programs, torch": "tab:gray",
}


def _colour(one: Summary) -> str:
    plain, speculative, other = _COLOURS.values()
    if not one.contender.startswith("native"):
        return other
    return plain if "plain" in one.contender else speculative
