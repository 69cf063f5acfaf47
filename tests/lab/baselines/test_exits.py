"""Early exits as drafters: replies, costs, deferred layers, the lossy cascade."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from cassandra_spec.drafting import Counters, Sampling, Settings
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines import parse_method
from cassandra_spec.lab.baselines.teacher_forced import accepted_lengths
from cassandra_spec.lab.exits import Exits
from cassandra_spec.lab.exits.cascade import Cascade, generate
from cassandra_spec.lab.exits.cost import speed_up
from cassandra_spec.lab.stack import Stack
from cassandra_spec.model.packing.packer import open_packed
from cassandra_spec.model.speculative import CassandraForCausalLM, run_pass
from tests.lab.baselines.replies import PROMPTS, check_lossless, reply

TOKENS = [5, 9, 17, 3, 44, 8, 60, 2, 71, 33, 90, 12]


@pytest.fixture(scope="session")
def exits(lm: CassandraForCausalLM) -> Exits:
    """Return exits whose adapters and confidence are random, after 2 and 4 of 6 layers."""
    torch.manual_seed(11)
    made = Exits.new((2, 4), lm.network.config.hidden_size, 8, 4)
    for each in made.heads.values():
        torch.nn.init.normal_(each.up.weight, std=0.05)
        torch.nn.init.normal_(each.answer.weight, std=3.0)
    return made


@pytest.fixture(scope="session")
def file(six_layers: Path, exits: Exits, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exits") / "exits.safetensors"
    thresholds = {2: 0.6, 4: 0.5}
    made = Exits(heads=exits.heads, thresholds=thresholds, seconds=3.0)
    made.save(path, {"model_digest": open_packed(six_layers).digest})
    return path


@pytest.mark.parametrize(
    "method",
    [
        *("exit:layer=2", "exit", "exit:view=yes", "cascade", "cascade:stop=0.5"),
        *("cascade:threshold=1", "cascade:threshold=1e-9"),
    ],
)
def test_replies_are_those_of_plain_decoding(
    lm: CassandraForCausalLM, file: Path, method: str
) -> None:
    name, _, options = method.partition(":")
    found = check_lossless(lm, f"{name}:file={file}" + (f":{options}" if options else ""))
    assert sum(each.drafted for each in found)


@pytest.mark.parametrize("method", ["exit:file={file}:layer=2", "geodesic:rank=24:own=yes"])
def test_one_teacher_forced_pass_has_the_acceptance_of_the_loop(
    lm: CassandraForCausalLM, file: Path, method: str
) -> None:
    prepared = parse_method(method.format(file=file)).prepare(lm)
    for prompt in PROMPTS:
        tokens, outcomes = reply(lm, prompt, Settings(gamma=3, max_tokens=40), prepared)
        found = accepted_lengths(prepared, prompt, tokens, gamma=3, max_tokens=40)
        assert [each.accepted for each in outcomes] == found
    view = parse_method(f"exit:file={file}:view=yes").prepare(lm)
    assert not view.prefix_only


def test_levels_run_below_an_exit(lm: CassandraForCausalLM, file: Path) -> None:
    found = check_lossless(lm, f"exit:file={file}", draft="hybrid")
    assert any(each.rows > 1 for outcome in found for each in outcome.proposal.passes)
    cascade = parse_method(f"cascade:file={file}")
    with pytest.raises(CassandraError, match="draft must be model with cascade, not hybrid"):
        cascade.check(Settings(draft="hybrid"))
    cascade.check(Settings(sampling=Sampling(temperature=1.0)))


def test_drafting_stops_after_a_token_of_little_confidence(
    lm: CassandraForCausalLM, file: Path
) -> None:
    asked = Settings(gamma=4, max_tokens=24)
    never, always = (
        reply(lm, PROMPTS[0], asked, parse_method(f"cascade:file={file}:stop={stop}").prepare(lm))
        for stop in (0, 1)
    )
    assert never[0] == always[0]
    assert all(each.drafted == 1 for each in always[1] if each.passes)
    assert max(each.drafted for each in never[1]) == 4


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("exit:layer=3", r"layer must be one of \[2, 4\], not 3"),
        ("cascade:threshold=2", "threshold must be from 0 to 1, not 2.0"),
    ],
)
def test_a_wrong_option_is_one_line(
    lm: CassandraForCausalLM, file: Path, method: str, message: str
) -> None:
    name, option = method.split(":")
    with pytest.raises(CassandraError, match=message):
        parse_method(f"{name}:file={file}:{option}").prepare(lm)


def test_layers_in_parts_are_layers_in_one_pass(lm: CassandraForCausalLM) -> None:
    whole, parts = lm.session(32).cache, lm.session(32).cache
    logits = run_pass(lm.network, whole, TOKENS, 0)
    stack = Stack(lm.network, parts)
    states = stack.embed(TOKENS)
    for layers in (range(2), range(2, 3), range(3, 6)):
        states = stack.run(states, 0, layers)
    assert _same(whole, parts, len(TOKENS))
    assert torch.equal(stack.logits(states, 0), logits)
    for at in range(len(states)):
        assert torch.equal(stack.logits(states[at : at + 1], at), logits[at : at + 1])


def test_deferred_layers_write_what_one_pass_would_write(
    lm: CassandraForCausalLM, exits: Exits
) -> None:
    whole, deferred = lm.session(32).cache, lm.session(32).cache
    run_pass(lm.network, whole, TOKENS, 0)
    run_pass(lm.network, deferred, TOKENS[:1], 0)
    cascade = Cascade(lm.network, exits, deferred, {2: 0.7, 4: 0.1}, whole=True)
    cascade.begin(1)
    depths = [cascade.step(token).depth for token in TOKENS[1:-1]]
    assert set(depths) == {2, 4, 6}, "the test needs tokens of every depth"
    last = Cascade(lm.network, exits, deferred, {2: 1.0, 4: 1.0}, whole=True)
    last._waiting, last._next = cascade._waiting, cascade._next
    step = last.step(TOKENS[-1])
    assert step.depth == 6
    assert _same(whole, deferred, len(TOKENS))


def _same(one: Any, two: Any, positions: int) -> bool:
    return all(
        torch.equal(a[kind], b[kind])
        for position in range(positions)
        for a, b in zip(one.rows(position), two.rows(position), strict=True)
        for kind in (0, 1)
    )


def test_a_cascade_that_nothing_leaves_is_plain_decoding(
    lm: CassandraForCausalLM, exits: Exits
) -> None:
    asked = Settings(gamma=0, max_tokens=20)
    plain = list(itertools.chain.from_iterable(lm.rounds(PROMPTS[0], asked, Counters())))
    found = generate(
        lm, exits, PROMPTS[0], max_tokens=20, stop_tokens=frozenset(), thresholds={2: 1.0, 4: 1.0}
    )
    assert [token for token, _ in found] == plain
    with pytest.raises(CassandraError, match="thresholds must be of exits"):
        next(generate(lm, exits, [1], max_tokens=1, stop_tokens=frozenset(), thresholds={2: 1.0}))


def test_a_cascade_replies_without_a_verifier(lm: CassandraForCausalLM, file: Path) -> None:
    found = []
    for threshold in ("1", "1e-9"):
        speak = parse_method(f"cascade:file={file}:threshold={threshold}").prepare(lm).alone()
        assert speak is not None
        found.append(speak(PROMPTS[0], 12, lm.stop_tokens()))
    assert found[0] == (reply(lm, PROMPTS[0], Settings(max_tokens=12))[0], 12)
    assert found[1] != found[0]
    assert parse_method("sparse").prepare(lm).alone() is None


def test_a_cascade_costs_the_layers_that_it_runs(lm: CassandraForCausalLM, file: Path) -> None:
    asked = Settings(gamma=4, max_tokens=24)
    cheap, dear = (
        parse_method(f"cascade:file={file}:threshold={threshold}").prepare(lm)
        for threshold in (1e-9, 1)
    )
    weights = []
    for prepared in (cheap, dear):
        outcomes = reply(lm, PROMPTS[0], asked, prepared)[1]
        passes = [each for outcome in outcomes for each in outcome.proposal.passes]
        weights.append({prepared.draft_cost(20, each).weights for each in passes})
    shallow, deep = (
        parse_method(f"exit:file={file}:layer={layer}").prepare(lm) for layer in (2, 4)
    )
    assert weights == [{prepared.draft_cost(20, passes[0]).weights} for prepared in (shallow, deep)]


def test_the_cost_model_is_the_loop_and_breaks_even_where_it_says(
    lm: CassandraForCausalLM, file: Path
) -> None:
    prepared = parse_method(f"exit:file={file}:layer=2").prepare(lm)
    outcomes = reply(lm, PROMPTS[0], Settings(gamma=3, max_tokens=64), prepared)[1]
    draft = prepared.draft_cost(0, outcomes[0].proposal.passes[0]).weights
    target = prepared.verify_cost(0, 0).weights
    full = [each for each in outcomes if each.drafted == 3]
    tokens = sum(each.accepted + 1 for each in full)
    measured = tokens * target / (len(full) * (target + 3 * draft))
    accepted = sum(each.accepted for each in full) / len(full)
    assert speed_up(accepted, 3, draft / target) == pytest.approx(measured)
    for length, share in itertools.product((1, 3, 8), (0.2, 0.8)):
        least = share * length
        assert speed_up(least, length, share) == pytest.approx(1)
        assert speed_up(least + 0.1, length, share) > 1 > speed_up(least - 0.1, length, share)
