"""The contract of draft methods: names, options, replies, costs, one teacher-forced pass."""

from __future__ import annotations

import copy
import dataclasses
import importlib.metadata
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from cassandra_spec.drafting import (
    ADAPTIVE,
    Candidates,
    Drafter,
    DraftPass,
    Node,
    Outcome,
    Proposal,
    Sampling,
    Settings,
)
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines import (
    Method,
    NetworkSize,
    Prepared,
    PreparedNetwork,
    clone,
    known_methods,
    parse_method,
    registry,
)
from cassandra_spec.lab.baselines.teacher_forced import (
    accepted_lengths,
    keys_and_values,
    predicted_together,
)
from cassandra_spec.model.speculative import CassandraForCausalLM, KeyValueCache, run_pass
from tests.lab.baselines.replies import PROMPTS, check_lossless, reply


class _Sevens(Prepared):
    """Drafts the same token always."""

    def drafter(
        self,
        session: Any,
        settings: Settings,
        seed: int,
        table: Candidates | None = None,
    ) -> Drafter:
        return self

    def propose(self, context: Sequence[int], budget: int) -> Proposal:
        tokens = [7] * min(2, budget)
        return Proposal.chain(tokens, [1.0] * len(tokens), "sevens")

    def observe(self, outcome: Outcome) -> None: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sevens(Method, name="sevens"):
    """A method that no other file knows."""

    count: int = 1
    shares: tuple[float, ...] = ()
    greedy_only = True

    def prepare(self, lm: CassandraForCausalLM) -> Prepared:
        return _Sevens(lm)


def test_a_method_is_added_by_its_own_definition(lm: CassandraForCausalLM) -> None:
    assert known_methods()["sevens"] is Sevens
    found = check_lossless(lm, "sevens")
    assert {node.source for each in found for node in each.proposal.nodes} == {"sevens"}


def test_options_are_read_by_their_types() -> None:
    assert parse_method("sevens") == Sevens()
    assert parse_method("sevens:count=3:shares=.5,2") == Sevens(count=3, shares=(0.5, 2.0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("eights", "method must be one of .*cassandra.*, not 'eights'"),
        ("sevens:size=1", "option of sevens must be one of count, shares, not 'size'"),
        ("sevens:count=x", "count must be a whole number, not 'x'"),
        ("cassandra:own=maybe", "own must be yes or no, not 'maybe'"),
    ],
)
def test_a_wrong_method_is_one_line(text: str, message: str) -> None:
    with pytest.raises(CassandraError, match=message):
        parse_method(text)


def test_a_package_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("other", "no_such_module", registry.ENTRY_POINTS)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    with pytest.raises(CassandraError, match=r"^draft method other cannot be imported: No module"):
        parse_method("sevens")


def test_a_method_that_drafts_trees_refuses_sampling() -> None:
    with pytest.raises(CassandraError, match=r"temperature must be 0 with sevens, not 0\.7"):
        Sevens().check(Settings(sampling=Sampling(temperature=0.7)))


@pytest.mark.parametrize("own", ["no", "yes"])
@pytest.mark.parametrize("settings", [{}, {"draft": "hybrid"}, {"gamma": ADAPTIVE}], ids=str)
def test_replies_are_those_of_plain_decoding(
    lm: CassandraForCausalLM, own: str, settings: dict[str, Any]
) -> None:
    found = check_lossless(lm, f"cassandra:own={own}", **settings)
    assert settings.get("gamma") == ADAPTIVE or sum(each.accepted for each in found)


@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_one_teacher_forced_pass_has_the_acceptance_of_the_loop(
    lm: CassandraForCausalLM, gamma: int
) -> None:
    prepared, asked = (
        parse_method("cassandra:own=yes").prepare(lm),
        Settings(gamma=gamma, max_tokens=24),
    )
    lengths = []
    for prompt in PROMPTS:
        tokens, outcomes = reply(lm, prompt, asked, prepared)
        limits = {"gamma": gamma, "max_tokens": asked.max_tokens}
        lengths += [each.accepted for each in outcomes]
        assert [each.accepted for each in outcomes] == accepted_lengths(
            prepared, prompt, tokens, **limits
        )
    assert 0 < sum(lengths) < gamma * len(lengths)


def test_keys_and_values_of_the_target_leave_no_teacher_forced_pass(
    lm: CassandraForCausalLM,
) -> None:
    prepared = parse_method("cassandra").prepare(lm)
    assert accepted_lengths(prepared, [1], [2, 3], gamma=3, max_tokens=9) is None


def test_the_first_tokens_of_rounds_come_from_one_pass(lm: CassandraForCausalLM) -> None:
    prepared = parse_method("int4").prepare(lm)
    assert isinstance(prepared, PreparedNetwork)
    tails = [(tuple(prompt) * 3, 2 * len(prompt)) for prompt in PROMPTS]
    expected = []
    for tokens, last in tails:
        cache, said = KeyValueCache(len(tokens)), list[int]()
        run_pass(lm.network, cache, tokens, 0)
        for place in range(len(tokens) - last, len(tokens)):
            alone = copy.deepcopy(cache)  # of the target before the place
            logits = run_pass(prepared.network, alone, tokens[place : place + 1], place, draft=True)
            said.append(int(logits[0].argmax()))
        expected.append(said)
    target = keys_and_values(clone(lm), tails)
    assert predicted_together(prepared.network, tails, target=target) == expected
    assert predicted_together(prepared.network, tails) != expected  # on its own


def test_the_draft_view_is_that_of_the_session(lm: CassandraForCausalLM) -> None:
    asked, rows = Settings(gamma=3), [Node(9, -1, 0.0, "x"), Node(4, 0, 0.0, "x")]
    prepared = parse_method("cassandra").prepare(lm)
    own, other = lm.session(32), lm.session(32)
    drafter = prepared.drafter(other, asked, 0)
    for session in (own, other):
        session.prompt(PROMPTS[0])
    logits = own.draft(7, rows, len(PROMPTS[0]))
    passes = drafter._view._passes  # type: ignore[attr-defined]
    assert torch.equal(passes.draft(7, rows, len(PROMPTS[0])), logits)


def test_a_clone_shares_tensors_and_nothing_else(lm: CassandraForCausalLM) -> None:
    before = [parameter.data_ptr() for parameter in lm.network.parameters()]
    twin = clone(lm)
    assert [parameter.data_ptr() for parameter in twin.parameters()] == before
    twin.model.layers = twin.model.layers[:2]
    assert len(lm.network.model.layers) == 6
    assert not any(a is b for a, b in zip(twin.modules(), lm.network.modules(), strict=False))


def test_costs_follow_from_the_sizes(lm: CassandraForCausalLM) -> None:
    size, config = NetworkSize.of(lm.network), lm.network.config
    assert size.weights == lm.costs.weights.bf16
    assert size.position == lm.costs.position
    found = size.cost(10, 3)
    assert (found.weights, found.kv) == (size.weights, 13 * size.position)
    wide = config.num_attention_heads * config.head_dim
    assert size.attention == 2 * 6 * wide
    assert found.flops == 2 * 3 * size.products + 2 * size.attention * (11 + 12 + 13)
    prepared = parse_method("cassandra").prepare(lm)
    drafted = prepared.draft_cost(10, DraftPass(2, 1))
    assert drafted.bytes == lm.costs.weights.draft + 13 * size.position
    assert prepared.verify_cost(10, 2).weights == lm.costs.weights.target
