from __future__ import annotations

import numpy as np
import pytest

from cassandra_spec.golden import CassandraError
from cassandra_spec.model.speculative import Settings, Tally, decode
from cassandra_spec.model.speculative.gamma import MOST, AdaptiveGamma, FixedGamma, make_gamma
from tests.model.speculative.test_loop import Script, flat


def tokens_per_byte(rate: float, gamma: int, draft: float, target: float) -> float:
    return sum(rate**place for place in range(gamma + 1)) / (gamma * draft + target)


def after(rounds: int, *, accepted: int, drafted: int) -> AdaptiveGamma:
    rule = AdaptiveGamma()
    for _ in range(rounds):
        rule.count(accepted=accepted, drafted=drafted)
    return rule


@pytest.mark.parametrize("draft", [10.0, 30.0, 50.0, 90.0])
@pytest.mark.parametrize("accepted", range(4))
def test_the_choice_is_the_best_by_its_estimate(draft: float, accepted: int) -> None:
    rule = after(20, accepted=accepted, drafted=3)
    found = rule.choose(draft, 70.0)
    worth = [tokens_per_byte(rule.rate, gamma, draft, 70.0) for gamma in range(MOST + 1)]
    assert worth[found] == pytest.approx(max(worth), rel=1e-12)


def test_much_accepted_is_much_drafted() -> None:
    assert after(30, accepted=8, drafted=8).choose(30, 70) == MOST
    assert after(30, accepted=0, drafted=3).choose(30, 70) == 0
    choices = [after(30, accepted=n, drafted=3).choose(30, 70) for n in range(4)]
    assert choices == sorted(choices)


def test_cheap_drafts_are_drafted_more() -> None:
    rule = after(10, accepted=2, drafted=3)
    choices = [rule.choose(draft, 70) for draft in (1, 20, 40, 70, 200)]
    assert choices == sorted(choices, reverse=True)
    assert choices[0] > choices[-1] == 0


def test_the_estimate_is_that_of_the_last_rounds() -> None:
    random = np.random.default_rng(2)
    rule = AdaptiveGamma()
    for rate in (0.95, 0.3, 0.95):
        for _ in range(60):
            right = random.random(3) < rate
            rule.count(accepted=3 if right.all() else int(np.argmin(right)), drafted=3)
        assert abs(rule.rate - rate) < 0.2


def test_drafting_is_tried_again() -> None:
    rule = after(30, accepted=0, drafted=3)
    choices = []
    for _ in range(40):
        choices.append(rule.choose(30, 70))
        rule.count(accepted=0, drafted=0)
    assert choices[0] == 0 < choices[-1]


def test_a_fixed_gamma_stays() -> None:
    rule = make_gamma(5)
    rule.count(accepted=0, drafted=5)
    assert rule == FixedGamma(5)
    assert rule.choose(1, 1) == 5


def test_the_loop_follows_the_rule() -> None:
    """Right drafts make rounds longer, wrong ones end drafting; the reply is the same."""
    settings = Settings(gamma="adaptive", max_tokens=120)
    lengths = []
    for script in (Script(), Script(wrong=range(200))):
        tally = Tally()
        reply = flat(list(decode(script, [1, 2, 3], settings, tally)))
        assert reply == [script.truth(place) for place in range(3, 123)]
        lengths.append(tally.lengths)
    assert max(lengths[0]) == MOST
    assert set(lengths[1]) == {0}


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(CassandraError, match="gamma must be at least 0, or 'adaptive', not 'fast'"):
        Settings(gamma="fast")  # type: ignore[arg-type]
