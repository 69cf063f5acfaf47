"""Rounds, capacity, and the answer as a whole."""

from __future__ import annotations

import dataclasses
import json

import pytest

from cassandra_spec.lab.system.acceptance import Acceptance
from cassandra_spec.lab.system.costs import load_format, load_formats
from cassandra_spec.lab.system.decoding import cache_tokens, estimate, round_of, weight_bytes
from cassandra_spec.lab.system.device import load_device
from cassandra_spec.lab.system.passes import Pass, traffic_of
from cassandra_spec.lab.system.workload import Workload, load_model
from tests.lab.system.simple import DEVICE, HALF, MODEL, PLAIN, WIDE, device, setup


def test_a_round_is_its_drafts_and_one_verification() -> None:
    question = setup(gamma=2)
    done = round_of(question, context=8)
    steps = [
        Pass(tokens=1, context=8, draft=True),
        Pass(tokens=1, context=9, draft=True),
        Pass(tokens=3, context=8, logits=3),
    ]
    parts = [traffic_of(MODEL, HALF, step) for step in steps]
    for name, value in done.traffic.streams().items():
        assert value == pytest.approx(sum(part.streams()[name] for part in parts))
    assert done.seconds == pytest.approx(sum(part.total for part in parts) / DEVICE.bandwidth)
    assert done.tokens == 2
    assert done.seconds_per_token == done.seconds / 2


def test_the_speedup_by_weights_alone_is_tokens_over_bits() -> None:
    """If only the weights count: (1 + gamma rate) 16 / (gamma draft + whole)."""
    answer = estimate(setup(model=WIDE, workload=Workload(prompt=1, output=1), gamma=3))
    assert answer.speedup == pytest.approx(2.5 * 16 / (3 * 4 + 8), rel=0.01)
    assert answer.speedup_compressed == pytest.approx(2.0, rel=0.01)
    assert answer.gain == pytest.approx(answer.speedup / answer.speedup_compressed)


def test_no_speculation_is_the_compressed_baseline() -> None:
    answer = estimate(setup(gamma=0))
    assert answer.gain == 1
    assert answer.speedup == answer.speedup_compressed


def test_the_baseline_is_a_bf16_step_of_the_same_batch() -> None:
    workload = Workload(prompt=10, output=11, batch=4)
    answer = estimate(setup(workload=workload))
    bf16 = traffic_of(MODEL, PLAIN, Pass(tokens=1, context=15, batch=4))
    assert answer.step_bf16 == pytest.approx(bf16.total / DEVICE.bandwidth)


@pytest.mark.parametrize("scheme", load_formats())
def test_the_mean_context_gives_the_sum_over_all_steps(scheme: str) -> None:
    question = setup(
        device=load_device("rtx4090"),
        model=load_model("qwen3-4b"),
        workload=Workload(prompt=50, output=101),
        cost=load_format(scheme),
    )
    seconds = [round_of(question, context=50 + step).seconds for step in range(101)]
    assert round_of(question).seconds == pytest.approx(sum(seconds) / 101, rel=1e-9)


def test_prefill_and_decoding_together() -> None:
    answer = estimate(setup())
    mine = answer.prefill + 10 * answer.round.seconds_per_token
    assert answer.speedup_whole == pytest.approx(
        (answer.prefill_bf16 + 10 * answer.step_bf16) / mine
    )


def test_memory_of_weights_and_cache_by_hand() -> None:
    assert weight_bytes(MODEL, HALF) == 3 * 144 + 40 + 40 * 2  # the embedding stays BF16
    token = 3 * 4
    assert cache_tokens(DEVICE, MODEL, HALF) == (9000 - 552) // token


def test_a_tied_embedding_takes_no_memory_of_its_own() -> None:
    assert weight_bytes(dataclasses.replace(MODEL, tied=True), HALF) == 3 * 144 + 40


def test_weights_that_do_not_fit_leave_no_tokens() -> None:
    assert cache_tokens(device(memory=1500.0), MODEL, HALF) == 0


def test_the_two_kinds_of_one_acceptance_give_one_answer() -> None:
    drafted = Acceptance(rate=0.6)
    conditional = Acceptance(rate=drafted.conditional(4), kind="conditional")
    answers = [estimate(setup(acceptance=kind, gamma=4)) for kind in (drafted, conditional)]
    assert answers[0].speedup == pytest.approx(answers[1].speedup)


@pytest.mark.parametrize("gamma", [0, 3])
def test_the_answer_is_plain_data(gamma: int) -> None:
    answer = estimate(setup(gamma=gamma))
    told = json.loads(json.dumps(answer.to_dict()))
    rates = told["tokens_per_second"]
    assert rates["speculative"] / rates["bf16"] == pytest.approx(told["speedup"]["decode"])
    assert sum(told["bytes_per_round"].values()) == pytest.approx(answer.round.traffic.total)
    assert (told["bound"]["draft"] is None) == (gamma == 0)


def test_gamma_has_bounds() -> None:
    with pytest.raises(ValueError, match="gamma must be an integer, 0 to 8, not 9"):
        setup(gamma=9)
