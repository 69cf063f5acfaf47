from __future__ import annotations

import json

import pytest

from cassandra_spec.model.speculative import Costs, ReadBytes, Tally, make_report

COSTS = Costs(
    linear=ReadBytes(draft=30, target=70, bf16=100),
    head=ReadBytes(draft=3, target=7, bf16=10),
    other=1,
    position=2,
)


def tally() -> Tally:
    found = Tally()
    found.add_round(position=10, drafted=3, accepted=3, tokens=4)
    found.add_round(position=14, drafted=3, accepted=1, tokens=2)
    return found


def test_rates() -> None:
    report = make_report(tally(), COSTS, gamma=3, replies=1)
    assert report.acceptance_rate == 4 / 6
    assert report.conditional_rate == 4 / 5
    assert report.tokens_per_verification == 3
    assert report.accepted_lengths == (0, 1, 0, 1)
    assert report.tokens == 7


def test_traffic() -> None:
    report = make_report(tally(), COSTS, gamma=3, replies=1)
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
    found = Tally()
    found.add_round(position=5, drafted=0, accepted=0, tokens=1)
    report = make_report(found, COSTS, gamma=0, replies=1)
    assert (report.acceptance_rate, report.conditional_rate) == (None, None)
    assert report.traffic["all"].speedup == report.traffic["all"].plain_speedup


def test_a_reply_of_one_token_has_no_ratios() -> None:
    report = make_report(Tally(), COSTS, gamma=3, replies=1)
    assert (report.tokens, report.tokens_per_verification) == (1, None)
    assert report.traffic["all"].speedup is None


def test_json_holds_everything() -> None:
    report = make_report(tally(), COSTS, gamma=3, replies=1)
    body = json.loads(json.dumps(report.to_dict()))
    assert body["traffic"]["linear"]["speedup"] == 600 / 320
    assert set(body) == set(report.__dataclass_fields__)
