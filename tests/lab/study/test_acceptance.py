"""Figures from rounds: rates, traffic, intervals."""

from __future__ import annotations

import numpy as np
import pytest

from cassandra_spec.bench.study.acceptance import ACCEPTANCE
from cassandra_spec.bench.study.chains import Sequences
from cassandra_spec.bench.study.drafts import KeyValueBytes, Measured, Setting
from cassandra_spec.bench.study.emulation import Drafts, Replies
from cassandra_spec.drafting import Costs, Counters, ReadBytes
from cassandra_spec.golden import Format
from cassandra_spec.lab.study.acceptance import best_row, row
from cassandra_spec.lab.study.intervals import bootstrap
from cassandra_spec.model.packing.packer import PackPlan
from cassandra_spec.model.speculative import KeyValueFormat

DEPTH = 4
REPLY = tuple(range(10, 21))  # 11 tokens
COSTS = Costs(
    linear=ReadBytes(draft=30, target=70, bf16=100),
    head=ReadBytes(draft=3, target=7, bf16=10),
    other=1,
    position=8,
)


def measured(
    right: list[list[int]], *, kv: KeyValueFormat | None = None, prompt: int = 40
) -> Measured:
    """Return two replies or more, whose draft has these numbers of right tokens from each place."""
    return Measured(
        setting=Setting(name="made up", plan=PackPlan(), kv=kv),
        replies=Replies(
            prompts=(tuple(range(prompt)),) * len(right),
            replies=(REPLY,) * len(right),
            max_tokens=len(REPLY),
            stop_tokens=frozenset(),
            sequences=Sequences(len(right)),
            likely=((),) * len(right),
        ),
        drafts=tuple(drafts(each) for each in right),
        costs=COSTS,
        kv=KeyValueBytes(bf16=8, draft=2, target=5),
    )


def drafts(right: list[int]) -> Drafts:
    """Return tokens of the reply as far as they are right, then -1; sure of all."""
    tokens = [
        [REPLY[k + 1 + step] if step < count else -1 for step in range(DEPTH)]
        for k, count in enumerate(right)
    ]
    return Drafts(
        tokens=np.array(tokens),
        seconds=np.full((len(right), DEPTH), -2),
        margins=np.full((len(right), DEPTH), 9, np.float32),
    )


ALWAYS = [min(DEPTH, 10 - k) for k in range(10)]
NEVER = [0] * 10


def test_rates_by_hand() -> None:
    # gamma 2, all right: rounds of 3, 3 and 3 tokens, then one token is left and none is drafted.
    found = row(measured([ALWAYS, NEVER]), 2)
    assert found.report.rounds == 4 + 10
    # Never right: two are drafted while three tokens are left or more.
    assert found.report.drafted == 3 * 2 + 8 * 2 + 1
    assert found.report.accepted == 6
    assert found.acceptance.value == 6 / 23
    assert found.conditional.value == 6 / (6 + 9)
    assert found.draft_bits == pytest.approx(16 * 33 / 110)
    assert found.target_bits == pytest.approx(16 * 77 / 110)
    assert found.report.tokens == 2 * len(REPLY)
    assert found.prompts == 2


def test_traffic_by_hand() -> None:
    found = row(measured([ALWAYS]), 4)
    # Rounds at 40 (4 drafted, 5 emitted) and at 45 (4 drafted, 5 emitted): nothing is left.
    positions = [41, 42, 43, 44, 45, 46, 47, 48, 49, 50]
    draft = 8 * (33 + 1) + 8 * sum(positions[:4] + positions[5:9])
    target = 2 * (77 + 1) + 8 * (45 + 50)
    bf16 = 10 * (110 + 1) + 8 * sum(positions)
    assert found.report.rounds == 2
    assert found.speedup.value == pytest.approx(bf16 / (draft + target))
    assert found.report.traffic["all"].speedup == found.speedup.value


def test_sealed_keys_and_values_are_read_in_their_format() -> None:
    kv = KeyValueFormat(format=Format(scheme="exact", group=32, truncated=4), block=32)
    found = row(measured([ALWAYS], kv=kv), 4)
    tokens = 10
    # One block of 32 positions is sealed from the beginning to the end (positions 40 to 50).
    draft = [32 * 2 + (seen - 32) * 8 for seen in (41, 42, 43, 44, 46, 47, 48, 49)]
    target = [32 * 5 + (seen - 32) * 8 for seen in (45, 50)]
    plain = [32 * 5 + (seen - 32) * 8 for seen in range(41, 51)]
    assert found.report.kv.draft == sum(draft) / tokens
    assert found.report.kv.target == sum(target) / tokens
    assert found.report.kv.plain == sum(plain) / tokens
    assert found.report.kv.bf16 == 8 * sum(range(41, 51)) / tokens


def test_the_best_gamma_has_the_least_traffic() -> None:
    perfect, useless = measured([ALWAYS]), measured([NEVER])
    assert best_row(perfect, DEPTH).gamma == DEPTH
    assert best_row(useless, DEPTH).gamma == 1
    for each in (perfect, useless):
        speedups = [row(each, gamma).speedup.value for gamma in range(1, DEPTH + 1)]
        assert best_row(each, DEPTH).speedup.value == max(speedups)


def test_an_interval_is_of_prompts() -> None:
    same = [Counters(drafted=10, accepted=6)] * 5
    alike = bootstrap(same, ACCEPTANCE)
    assert (alike.value, alike.low, alike.high) == (0.6, 0.6, 0.6)
    mixed = [Counters(drafted=10, accepted=n) for n in (0, 10)]
    apart = bootstrap(mixed, ACCEPTANCE)
    assert (apart.value, apart.low, apart.high) == (0.5, 0.0, 1.0)
    again = bootstrap(mixed, ACCEPTANCE)
    assert again == apart


def test_an_interval_covers_what_it_should() -> None:
    random = np.random.default_rng(3)
    covered, trials = 0, 60
    for _ in range(trials):
        accepted = random.binomial(20, 0.7, size=25)
        found = bootstrap(
            [Counters(drafted=20, accepted=int(n)) for n in accepted],
            ACCEPTANCE,
        )
        covered += found.low <= 0.7 <= found.high
    # 95 % of intervals, somewhat fewer with 25 prompts; 47 or fewer would be chance in 1 of 10,000.
    assert covered >= 48


def test_json_has_what_the_system_model_reads() -> None:
    body = row(measured([ALWAYS, NEVER]), 2).to_dict()
    wanted = {"scheme", "label", "gamma", "drafted", "accepted", "acceptance_rate"}
    wanted |= {"conditional_rate", "draft_bits", "target_bits", "tokens", "prompts"}
    assert wanted <= set(body)
    assert body["acceptance_rate"] == body["accepted"] / body["drafted"]
