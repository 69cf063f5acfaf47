from __future__ import annotations

import json

import pytest

from cassandra_spec.drafting import (
    COPIES,
    DRAFT_VIEW,
    ROOT,
    Costs,
    Counters,
    Node,
    Outcome,
    Proposal,
    ReadBytes,
    Settings,
    make_report,
    native_figures,
)
from cassandra_spec.drafting.report import plan_shares
from tests.drafting.test_proposal import outcome

COSTS = Costs(
    linear=ReadBytes(draft=30, target=70, bf16=100),
    head=ReadBytes(draft=3, target=7, bf16=10),
    other=1,
    position=2,
)


def counters() -> Counters:
    found = Counters(replies=1)
    found.add_round(outcome(3, 3), position=10, tokens=4)
    found.add_round(outcome(3, 1), position=14, tokens=2)
    return found


def test_rates() -> None:
    report = make_report(counters(), Settings(gamma=3), costs=COSTS)
    assert report.acceptance_rate == 4 / 6
    assert report.conditional_rate == 4 / 5
    assert report.tokens_per_verification == 3
    assert report.accepted_lengths == (0, 1, 0, 1)
    assert report.tokens == 7


def test_traffic() -> None:
    report = make_report(counters(), Settings(gamma=3), costs=COSTS)
    assert (report.draft_bytes, report.target_bytes, report.bf16_bytes) == (34, 78, 111)
    linear, weights, everything = (report.traffic[s] for s in ("linear", "weights", "all"))
    assert linear.speculative == (6 * 30 + 2 * 70) / 6
    assert (linear.plain, linear.bf16) == (70, 100)
    assert linear.speedup == 600 / 320
    assert linear.plain_speedup == pytest.approx(100 / 70, rel=1e-15)
    assert weights.speculative == (6 * 33 + 2 * 77) / 6
    seen = (11 + 12 + 13) + 14 + (15 + 16 + 17) + 18
    assert everything.speculative == (6 * 34 + 2 * 78 + 2 * seen) / 6
    assert everything.plain == (6 * 78 + 2 * sum(range(11, 17))) / 6


def test_plain_decoding_has_no_acceptance() -> None:
    found = Counters(replies=1)
    found.add_round(outcome(0, 0), position=5, tokens=1)
    report = make_report(found, Settings(gamma=0), costs=COSTS)
    assert (report.acceptance_rate, report.conditional_rate) == (None, None)
    assert report.traffic["all"].speedup == report.traffic["all"].plain_speedup


def test_a_reply_of_one_token_has_no_ratios() -> None:
    report = make_report(Counters(replies=1), Settings(gamma=3), costs=COSTS)
    assert (report.tokens, report.tokens_per_verification) == (1, None)
    assert report.traffic["all"].speedup is None


def test_json_holds_everything() -> None:
    report = make_report(counters(), Settings(gamma=3), costs=COSTS)
    body = json.loads(json.dumps(report.to_dict()))
    assert body["traffic"]["linear"]["speedup"] == 600 / 320
    assert set(report.__dataclass_fields__) - {"native"} < set(body)


def test_json_has_the_names_of_others() -> None:
    counted = counters()
    counted.add_round(outcome(0, 0), position=16, tokens=1)
    body = make_report(counted, Settings(gamma=3)).to_dict()
    assert (body["num_drafts"], body["num_draft_tokens"], body["num_accepted_tokens"]) == (2, 6, 4)
    assert body["draft_acceptance_rate"] == body["acceptance_rate"] == 4 / 6
    assert body["mean_acceptance_length"] == 1 + 4 / 3  # three rounds
    assert body["acceptance_rate_per_position"] == [1, 1 / 2, 1 / 2]  # of two drafts
    nothing = make_report(Counters(replies=1), Settings(gamma=3)).to_dict()
    assert nothing["mean_acceptance_length"] is None
    assert nothing["acceptance_rate_per_position"] == []


def test_a_round_of_several_sources_is_one_draft() -> None:
    nodes = (Node(5, ROOT, 0.5, COPIES), Node(6, 0, 2.0, DRAFT_VIEW))
    counted = Counters(replies=1)
    counted.add_round(Outcome(proposal=Proposal(nodes=nodes), path=(0, 1)), position=9, tokens=3)
    body = make_report(counted, Settings(gamma=2)).to_dict()
    assert (body["num_drafts"], body["num_draft_tokens"]) == (1, 2)
    assert body["acceptance_rate_per_position"] == [1, 1]


def test_json_of_the_native_engine_leaves_out_the_traffic() -> None:
    settings, counted = Settings(gamma=3), counters()
    counted.verify_seconds = 1.5
    parts = {"threads": 1, "isa": "avx2", "forms": {}, "memory": {"target": 5}, "plans": {}}
    native = native_figures(counted, settings, **parts)
    body = make_report(counted, settings, native=native).to_dict()
    assert body["native"]["tokens_per_second"] == counted.tokens / 3
    assert body["sources"] == {"model": {"rounds": 2, "drafted": 6, "accepted": 4}}
    assert not {"kv", "traffic", "draft_bytes"} & set(body)


def test_five_plans_are_shown() -> None:
    plans = {**{f"model {gamma}": 10 - gamma for gamma in range(1, 8)}, "plain": 1}
    assert plan_shares(plans) == (
        "model 1: 21%; model 2: 19%; model 3: 16%; model 4: 14%; model 5: 12%; others: 19%"
    )
    assert plan_shares({"model 4": 3}) == "model 4: 100%"
    assert plan_shares({"model 4": 99, "plain": 1}) == "model 4: 99%; others: 1%"
