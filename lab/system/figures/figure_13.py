"""Figure 13: other ways of speculation, as far as public inputs bound them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from cassandra_spec.lab.system.costs import load_format
from cassandra_spec.lab.system.device import load_device
from cassandra_spec.lab.system.figures.paper_file import claim, paper
from cassandra_spec.lab.system.passes import Pass, cost_of
from cassandra_spec.lab.system.workload import Model, Workload, load_model
from cassandra_spec.toolkit.tables import Table

GAMMA = 5
"""The gamma of Cassandra-1."""

EAGLE_VOCABULARY = 32_000
"""Rows of EAGLE-3's head for Llama3-8B (its public config.json, ``draft_vocab_size``)."""


def eagle_weights(model: Model) -> int:
    """Count the weights of an EAGLE-3 drafter: three hidden states to one, one layer, a smaller
    head.

    Its attention reads two states side by side, so query, key and value are twice as wide; the
    embedding is the target's.
    """
    fusion = 3 * model.hidden * model.hidden
    wider = model.hidden * model.head_size * (model.heads + 2 * model.kv_heads)
    return fusion + model.layer_weights + wider + model.hidden * EAGLE_VOCABULARY


def draft_verify_share(model: Model) -> float:
    """Part of all weights that Draft&Verify's draft loads, as the paper counts (section VII.B)."""
    skipped = paper()["draft_verify"]
    left_out = skipped["attention"] * model.attention_weights + skipped["mlp"] * model.mlp_weights
    return 1 - left_out / model.weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bound:
    """The speed-up bound of a method by its traffic, relative to BF16 decoding."""

    name: str  # of the method
    draft: float  # a draft
    target: float = 1.0  # a verification

    @property
    def round(self) -> float:
        """A round of ``GAMMA`` drafts."""
        return GAMMA * self.draft + self.target

    @property
    def best(self) -> float:
        """Speed-up if every drafted token is accepted."""
        return (GAMMA + 1) / self.round

    def acceptance_for(self, speedup: float) -> float:
        """Accepted over drafted tokens that give a speed-up; above 1 nothing does."""
        return (speedup * self.round - 1) / GAMMA


def bounds() -> Iterator[Bound]:
    """Yield all methods with a closed form, by the traffic of DS-Llama-8B's weights."""
    model = load_model("deepseek-r1-distill-llama-8b")
    streamed = model.weights - model.head_weights  # the embedding is read row by row
    skipped = (1 - draft_verify_share(model)) * model.weights
    packed = load_format("cassandra-1").weight
    yield Bound(name="Draft&Verify", draft=1 - skipped / streamed)
    yield Bound(name="MagicDec (no cache at all in the draft)", draft=_magicdec_share(model))
    yield Bound(name="EAGLE-3", draft=eagle_weights(model) / streamed)
    yield Bound(name="Cassandra-1", draft=packed.draft / 16, target=packed.whole / 16)


def figure_13(speedup: float) -> Table:
    """Figure 13: what the public inputs bound; its bars are in no table of the paper.

    ``speedup`` is that of Cassandra-1, which the others would have to reach.
    """
    rows = []
    for bound in bounds():
        need = bound.acceptance_for(speedup)
        shown = f"{need:.2f}" if need <= 1 else "-"
        rows.append((bound.name, f"{bound.draft:.2f}", f"{bound.best:.2f}", shown))
    loaded = draft_verify_share(load_model("deepseek-r1-distill-llama-8b"))
    return Table(
        title=f"Figure 13: bounds by traffic, DS-Llama-8B, gamma {GAMMA}, in BF16 steps",
        header=("method", "a draft costs", "all accepted", f"acceptance for {speedup:.2f}x"),
        rows=tuple(rows),
        notes=(
            f"Draft&Verify loads {loaded:.1%} of all weights by its skipped layers (paper"
            f" {claim('draft_verify_share'):.1%}).",
            f"The last column would tie with Cassandra-1 on GPQA-Diamond ({speedup:.2f}x, RTX"
            " 4090); - where no acceptance does.",
            f"Lookahead decoding (paper: {claim('lookahead_aime'):.2f} on AIME2025,"
            f" {claim('lookahead_gpqa'):.2f} on GPQA-Diamond) depends on n-grams that repeat: no"
            " closed form. The other bars are not in the text.",
        ),
    )


def _magicdec_share(model: Model) -> float:
    device, cost = load_device("rtx4090"), load_format("bf16")
    context = Workload(prompt=222, output=5708).context
    parts = [cost_of(device, model, cost, Pass(tokens=1, context=seen)) for seen in (0, context)]
    return parts[0].traffic.total / parts[1].traffic.total
