"""Rivals of Cassandra: lossless, refused in one line where they do not fit, and what they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cassandra_spec.drafting import ADAPTIVE, ROOT, DraftPass, Outcome, Sampling, Settings
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines import NetworkSize, parse_method
from cassandra_spec.lab.baselines.methods.lookahead import (
    POOL,
    WINDOW,
    Lookahead,
    LookaheadDrafter,
)
from cassandra_spec.lab.baselines.methods.skip import Search, written
from cassandra_spec.lab.baselines.quantized import rounded
from cassandra_spec.lab.baselines.teacher_forced import accepted_lengths
from cassandra_spec.lab.stack import Stack
from cassandra_spec.model.speculative import CassandraForCausalLM, passes
from tests.lab.baselines.replies import PROMPTS, check_lossless, reply
from tests.model.tiny import write_model


@pytest.mark.parametrize(
    "method",
    [
        *("int8", "int8:own=yes", "int4:group=16", "lookup", "recycling", "recycling:branches=1"),
        *("sparse:sinks=1:window=3", "sparse:sinks=1:window=2:top=2", "lookahead"),
        *("lookahead:window=2:ngram=2:pool=1", "fractal:n=2:w=2", "fractal:n=3:w=0:slots=end"),
        *(
            "fractal:n=2:w=3:slots=rest:bits=4",
            "fractal:n=6:w=1:bits=4",
            "skip:layers=1",
            "skip:attention=0,5:mlp=2:own=yes",
        ),
    ],
)
def test_replies_are_those_of_plain_decoding(lm: CassandraForCausalLM, method: str) -> None:
    assert check_lossless(lm, method)


@pytest.mark.parametrize("method", ["int8", "sparse"])
@pytest.mark.parametrize("settings", [{"draft": "hybrid"}, {"gamma": ADAPTIVE}], ids=str)
def test_networks_draft_within_levels(
    lm: CassandraForCausalLM, method: str, settings: dict[str, Any]
) -> None:
    assert check_lossless(lm, method, **settings)


@pytest.mark.parametrize("method", ["int4", "int4:own=yes", "lookup", "recycling", "fractal:n=2"])
def test_samples_are_drawn_and_verified(lm: CassandraForCausalLM, method: str) -> None:
    sampling = Sampling(temperature=1.0)
    asked = Settings(gamma=3, max_tokens=12, sampling=sampling, acceptance="rejection", seed=3)
    parse_method(method).check(asked)
    tokens, outcomes = reply(lm, PROMPTS[0], asked, parse_method(method).prepare(lm))
    assert len(tokens) == 12
    assert all(each.proposal.is_chain for each in outcomes)
    assert 1 + sum(each.accepted + 1 for each in outcomes) == 12


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("int8:group=0", "group must be at least 1, not 0"),
        ("recycling:branches=9", "branches must be from 1 to 4, not 9"),
        ("sparse:window=0", "window must be at least 1, not 0"),
        ("sparse:window=999", "sinks and window must fit the model's 256 positions, not be 1003"),
        ("lookahead:ngram=1", "ngram must be at least 2, not 1"),
        ("lookahead:window=300", "window and ngram must fit the model's 256 positions, not be 304"),
        ("fractal:n=7", "n must be at most the model's 6 layers, not 7"),
        ("fractal:n=2:w=280", "w and n must fit the model's 256 positions, not be 282"),
        ("skip:search=1:share=1", r"share must be above 0 and below 1, not 1\.0"),
        ("skip", "layers must be the numbers of those to skip, not left out"),
        ("skip:layers=2:mlp=6", "layers must be from 0 to 5, not 6"),
        ("fractal:bits=5", "bits must be 4, 8 or 16, not 5"),
        ("model", "path must be the directory of a draft model, not left out"),
    ],
)
def test_what_does_not_fit_is_one_line(lm: CassandraForCausalLM, method: str, message: str) -> None:
    with pytest.raises(CassandraError, match=message):
        parse_method(method).prepare(lm)


@pytest.mark.parametrize(("bits", "most"), [(8, 127), (4, 7)])
def test_weights_are_rounded_to_the_nearest(bits: int, most: int) -> None:
    weight = torch.randn(5, 21, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    found = rounded(weight, bits=bits, group=8).float()
    for start in (0, 8, 16):
        part, other = weight[:, start : start + 8].float(), found[:, start : start + 8]
        step = part.abs().amax(-1, keepdim=True) / most
        assert ((part - other).abs() <= step * 0.5 + part.abs() / 64).all()


def test_an_integer_copy_states_what_a_pass_reads(lm: CassandraForCausalLM) -> None:
    target = NetworkSize.of(lm.network)
    prepared = parse_method("int8:group=16").prepare(lm)
    found = prepared.draft_cost(0, DraftPass(0, 1))
    norms = lm.costs.other
    assert found.weights == (target.weights - norms) / 2 * (1 + 2 / 16) + norms
    assert prepared.memory == found.weights - norms
    assert found.flops == prepared.verify_cost(0, 0).flops


@pytest.mark.parametrize("gamma", [2, 8])
def test_int8_with_its_own_keys_and_values_is_prefix_only(
    lm: CassandraForCausalLM, gamma: int
) -> None:
    prepared, asked = parse_method("int8:own=yes").prepare(lm), Settings(gamma=gamma, max_tokens=16)
    for prompt in PROMPTS:
        tokens, outcomes = reply(lm, prompt, asked, prepared)
        forced = accepted_lengths(prepared, prompt, tokens, gamma=gamma, max_tokens=16)
        assert forced == [each.accepted for each in outcomes]


def test_a_sparse_draft_that_sees_everything_is_the_target(lm: CassandraForCausalLM) -> None:
    found = check_lossless(lm, "sparse:window=200")
    assert all(each.accepted == each.drafted for each in found)
    found = check_lossless(lm, "sparse:sinks=2:window=2:top=200")
    assert all(each.accepted == each.drafted for each in found)
    assert any(e.accepted < e.drafted for e in check_lossless(lm, "sparse:sinks=0:window=1"))


def test_sparse_passes_read_a_part(lm: CassandraForCausalLM) -> None:
    size = NetworkSize.of(lm.network)
    window, top = (parse_method(f"sparse:sinks=2:window=6:top={top}").prepare(lm) for top in (0, 4))
    one = DraftPass(0, 1)
    assert window.draft_cost(99, one).kv == pytest.approx(8 * size.position)
    assert top.draft_cost(99, one).kv == pytest.approx((100 + 12) / 2 * size.position)
    assert window.draft_cost(3, one).kv == 4 * size.position


def test_the_same_model_as_draft_model_is_always_right(
    lm: CassandraForCausalLM, tmp_path: Path
) -> None:
    twin = write_model(
        tmp_path / "twin", tied=True, num_hidden_layers=6, max_position_embeddings=256
    )
    found = check_lossless(lm, f"model:path={twin}")
    assert all(each.accepted == each.drafted for each in found)
    other = write_model(tmp_path / "other", vocab_size=99)
    with pytest.raises(CassandraError, match="path must be a model of 96 tokens, not 99"):
        parse_method(f"model:path={other}").prepare(lm)


def test_the_window_of_lookahead_is_a_tree_of_levels() -> None:
    drafter = LookaheadDrafter(Lookahead(window=3, ngram=3, pool=2), Settings(seed=1))
    depths = []
    for step in range(4):  # every best token is another one: no nodes are shared
        proposal = drafter.propose([1, 2, 3, 100], 99)
        below: list[int] = []
        for node in proposal.nodes:
            below.append(1 + (below[node.parent] if node.parent != ROOT else 0))
        nodes = zip(proposal.nodes, below, strict=True)
        depths.append(sorted(depth for node, depth in nodes if node.source == WINDOW))
        best = [(token, (1000 * step + at,)) for at, token in enumerate([100, *proposal.tokens])]
        drafter.observe(Outcome(proposal=proposal, seen=tuple(best)))
    assert depths == [[1, 2, 3], *[[1, 2, 2, 3, 3, 4]] * 3]  # level 0, then both levels


def test_lookahead_verifies_the_ngrams_of_its_pool(lm: CassandraForCausalLM) -> None:
    found = check_lossless(lm, "lookahead:window=3:ngram=3:pool=2", max_tokens=40)
    counts = [count for each in found if (count := each.counts().get(POOL))]
    assert sum(each.accepted for each in counts) > 0


@pytest.mark.parametrize(("n", "w"), [(1, 0), (2, 2), (3, 1), (6, 3)])
def test_fractal_with_exact_copies_has_n_plus_1_accepted_in_every_phase(
    lm: CassandraForCausalLM, n: int, w: int
) -> None:
    for each in check_lossless(lm, f"fractal:n={n}:w={w}:bits=16", max_tokens=24):
        assert each.drafted == min(w + n + 1, each.drafted)
        assert each.accepted >= min(n + 1, each.drafted)


@pytest.mark.parametrize("bits", [4, 8])
def test_the_first_token_of_a_phase_is_always_accepted(lm: CassandraForCausalLM, bits: int) -> None:
    found = check_lossless(lm, f"fractal:n=3:w=2:bits={bits}")
    assert all(each.accepted >= 1 for each in found if each.drafted)
    assert found[0].drafted == 2 + 3 + 1
    assert bits == 8 or any(each.accepted < 4 for each in found)


def test_equal_logits_are_decided_as_the_target_does(
    lm: CassandraForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_tile, logits = passes._run_tile, Stack.logits

    def coarse(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any) -> Any:
            found = make(*arguments)
            return None if found is None else found.round()  # many are equal

        return made

    monkeypatch.setattr(passes, "_run_tile", coarse(run_tile))
    monkeypatch.setattr(Stack, "logits", coarse(logits))
    found = check_lossless(lm, "fractal:n=3:w=2")
    assert all(each.accepted >= 1 for each in found if each.drafted)


def test_slots_begin_with_what_follows_the_rejected_token(lm: CassandraForCausalLM) -> None:
    found = check_lossless(lm, "fractal:n=1:w=2:bits=4", max_tokens=24)
    prepared = parse_method("fractal:n=1:w=2:slots=rest").prepare(lm)
    drafter = prepared.drafter(lm.session(40), Settings(), 0)
    for each in found:
        drafter.observe(each)
        rest = [*each.proposal.tokens[each.accepted + 1 :], 5, 5]
        assert drafter._slots(5) == rest[:2]  # type: ignore[attr-defined]


def test_a_phase_costs_n_copies_and_one_target(lm: CassandraForCausalLM) -> None:
    prepared = parse_method("fractal:n=3:w=2").prepare(lm)
    copy = parse_method("int8").prepare(lm)
    cost = prepared.draft_cost(20, DraftPass(0, 6))
    copies = [copy.draft_cost(20, DraftPass(0, rows)) for rows in (3, 4, 5)]
    whole = prepared.verify_cost(20, 5)
    assert cost.weights == sum(each.weights for each in copies) + whole.weights
    narrow = prepared.verify_cost(20, 2).flops
    assert narrow < cost.flops - sum(each.flops for each in copies) < whole.flops


def test_skipped_parts_are_neither_read_nor_computed(lm: CassandraForCausalLM) -> None:
    whole, config = NetworkSize.of(lm.network), lm.network.config
    size = parse_method("skip:attention=1,2:mlp=4").prepare(lm).size  # type: ignore[attr-defined]
    mlp = 3 * config.hidden_size * config.intermediate_size
    heads = config.num_attention_heads + config.num_key_value_heads
    attention = 2 * config.hidden_size * config.head_dim * heads
    assert whole.products - size.products == mlp + 2 * attention
    assert size.position * 6 == whole.position * 4
    assert whole.weights - size.weights == 2 * (mlp + 2 * attention)


def test_the_search_names_a_set_of_the_share_that_is_asked_for(lm: CassandraForCausalLM) -> None:
    search = Search(lm, 2, 0.2)
    found = search.run()
    whole, left = (search.agreement(parts)[1] for parts in (set(), found))
    largest = max(1 - search.agreement({part})[1] for part in found)
    assert whole == 1
    assert 0.8 - largest < left <= 0.8
    prepared = parse_method("skip:search=2:share=.2").prepare(lm)
    assert prepared.about == written(found)
    assert prepared.training_seconds > 0
    assert search.agreement(set())[0] > 0.9  # the target itself, but for rounding
