"""Break-even, sensitivity, limits, and the page."""

from __future__ import annotations

import dataclasses
import re

import pytest

from cassandra_spec.lab.system.acceptance import Acceptance
from cassandra_spec.lab.system.costs import FormatCost, load_formats
from cassandra_spec.lab.system.decoding import estimate, round_of
from cassandra_spec.lab.system.device import known_devices
from cassandra_spec.lab.system.errors import SystemModelError
from cassandra_spec.lab.system.figures.beyond import (
    break_even,
    crossing,
    gain,
    limits,
    measured_setups,
    our_schemes,
    swings,
    tornado,
)
from cassandra_spec.lab.system.figures.paper import DEVICES
from cassandra_spec.lab.system.report import everything, markdown, page
from tests.lab.system.simple import HALF, MODEL, WIDE, bits, device, setup


def test_at_the_break_even_acceptance_speculation_gains_nothing() -> None:
    question = setup(model=WIDE)
    even = Acceptance(rate=break_even(question))
    answer = estimate(dataclasses.replace(question, acceptance=even))
    assert answer.gain == pytest.approx(1)


def test_break_even_by_traffic_of_weights_is_draft_over_whole() -> None:
    """gamma drafts cost gamma x 4/8 of a step, so half of the drafted tokens must be accepted."""
    assert break_even(setup(model=WIDE)) == pytest.approx(0.5, rel=0.01)


def test_a_draft_that_saves_nothing_never_pays() -> None:
    same = FormatCost(name="x", title="x", weight=bits(8, 8), kv=bits(8, 8), head=bits(8, 8))
    assert break_even(setup(cost=same)) > 1


def test_the_gain_at_the_mean_context_is_that_of_the_estimate() -> None:
    question = setup()
    assert gain(question, question.workload.context) == pytest.approx(estimate(question).gain)


def test_drafts_read_no_more_of_the_cache_than_their_window() -> None:
    windowed = dataclasses.replace(setup(), window=100)
    whole, seen = round_of(setup(), 1000), round_of(windowed, 1000)
    assert seen.drafts == round_of(setup(), 100).drafts
    assert seen.verification == whole.verification
    assert round_of(windowed, 40) == round_of(setup(), 40)  # all of a shorter cache
    with pytest.raises(SystemModelError, match="window must be"):
        dataclasses.replace(setup(), window=0)


def test_a_cache_whose_draft_saves_nothing_takes_the_gain_away() -> None:
    question = setup(
        model=WIDE,
        cost=dataclasses.replace(HALF, kv=bits(8, 8)),
        acceptance=Acceptance(rate=0.8),
    )
    gains = [gain(question, context) for context in (0.0, 1e7, 1e8, 1e10)]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 1 > gains[-1]


def test_swings_are_those_of_the_inputs() -> None:
    question = setup()
    found = {swing.name: swing for swing in swings(question)}
    acceptance = found["acceptance -/+ .05"]
    speedup = estimate(question).speedup
    # Tokens per round are 2.5, and 2.35 or 2.65 with .05 less or more.
    assert acceptance.low == pytest.approx(speedup * 2.35 / 2.5)
    assert acceptance.high == pytest.approx(speedup * 2.65 / 2.5)
    compute = found["compute x 1/2, x 2"]
    assert compute.width == pytest.approx(0)  # memory sets the pace of the simple device
    assert found["bandwidth x 1/2, x 2"].width == pytest.approx(0, abs=1e-12)


def test_a_head_in_bf16_has_no_bits_to_swing() -> None:
    """If the head dominates, other bits of packed weights change nothing."""
    model = dataclasses.replace(MODEL, vocabulary=10**6)
    question = setup(model=model, cost=HALF.with_plain_head())
    found = {swing.name: swing.width for swing in swings(question)}
    assert found["bits of a draft +/- 10 %"] == pytest.approx(0, abs=1e-3)
    assert found["bits of the whole +/- 10 %"] == pytest.approx(0, abs=1e-3)


def test_decoders_matter_where_they_set_the_pace() -> None:
    slow = setup(device=device(draft_rate=15.0, target_rate=15.0))
    found = {swing.name: swing for swing in swings(slow)}
    assert found["number of decoders x 1/2, x 2"].low < found["number of decoders x 1/2, x 2"].high


def test_a_tornado_is_sorted_by_width() -> None:
    rows = tornado(setup()).rows
    widths = [float(row[3]) for row in rows]
    assert widths == sorted(widths, reverse=True)


def test_every_measured_acceptance_has_its_row() -> None:
    measured = [
        (cost.name, gamma, rate)
        for cost in load_formats().values()
        for gamma, rate in cost.acceptance.items()
    ]
    setups = measured_setups("npu", "smollm2-135m")
    assert [(s.cost.name, s.gamma, s.acceptance.rate) for s in setups] == measured
    assert len(our_schemes("npu", "smollm2-135m").rows) == len(measured)


def test_what_does_not_fit_is_in_brackets() -> None:
    rows = limits("rtx4090", "llama3-8b", "exact").rows
    assert not rows[0][1].startswith("(")
    assert rows[-1][-2].startswith("(")


def test_where_a_cache_that_drafts_read_whole_takes_the_gain_away_by_hand() -> None:
    """With c cached values for each weight, 3.4 tokens take 3 (4 + 8 c) + 8 + 8 c bits of a weight.

    8 + 8 c bits take one without speculation, so both are even at c = 1.5.
    """
    model = dataclasses.replace(WIDE, intermediate=1024)
    question = setup(
        model=model, cost=dataclasses.replace(HALF, kv=bits(8, 8)), acceptance=Acceptance(rate=0.8)
    )
    found = crossing(question)
    assert found == pytest.approx(1.5 * model.layer_weights / model.kv_values, rel=0.02)
    assert found is not None
    assert gain(question, found) < 1 <= gain(question, found - 1)
    assert crossing(setup(model=WIDE, acceptance=Acceptance(rate=0.8))) is None


@pytest.mark.parametrize(
    ("device", "model", "scheme", "words"),
    [
        ("rtx4090", "llama3-8b", "exact", r"everywhere"),
        ("rtx4090", "llama3-8b", "unary", r"below [\d,]+"),
        ("rtx4090", "smollm2-135m", "unary", r"nowhere"),
    ],
)
def test_limits_say_where_it_pays(device: str, model: str, scheme: str, words: str) -> None:
    for row in limits(device, model, scheme).rows:
        assert re.fullmatch(words, row[-1])
        gains = [float(cell.strip("()")) for cell in row[1:-1]]
        assert (min(gains) >= 1) >= (row[-1] == "everywhere")
        assert (max(gains) < 1) >= (row[-1] == "nowhere")


def test_an_acceptance_that_nobody_measured_must_be_given() -> None:
    cost = load_formats()["exact"]
    assert cost.default_acceptance(3) == cost.acceptance[3]
    assert cost.default_acceptance(0) == 0
    with pytest.raises(SystemModelError, match="exact has been measured at 3, 5, not 4"):
        cost.default_acceptance(4)


@pytest.mark.parametrize("gamma", [0, 3])
def test_a_page_shows_the_baseline_and_every_stream(gamma: int) -> None:
    answer = estimate(setup(gamma=gamma))
    text = page(answer)
    assert f"{1 / answer.step_bf16:.1f}" in text
    assert f"{1 / answer.step_compressed:.1f}" in text
    for stream in ("weights", "head", "cache, read", "cache, written", "activations"):
        assert f"\n{stream}" in text
    assert "no speculation" in text
    assert "accepted/drafted" in text
    assert len(text.splitlines()) < 50  # a page


def test_the_document_has_every_table_once() -> None:
    sections = list(everything())
    text = markdown(sections)
    titles = [table.title for _, tables in sections for table in tables]
    assert len(set(titles)) == len(titles)
    assert [text.count(f"### {title}\n") for title in titles] == [1] * len(titles)
    assert set(DEVICES) == set(known_devices())
