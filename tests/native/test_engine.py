"""The engine beside a naive model, and its replies beside plain decoding."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cassandra_spec.drafting import Counters, Gamma, Sampling, Settings
from cassandra_spec.golden import CassandraError, Format, decode_draft
from cassandra_spec.golden.packed import Packed
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.forms import TARGETS
from cassandra_spec.native.library import rounds_attention
from cassandra_spec.native.models.reading import read_model_config
from tests.native.model_oracle import ModelOracle
from tests.native.models import DRAFT, KINDS, packed, small

PROMPT = tuple(int(token) for token in np.random.default_rng(3).integers(0, 97, 21))
ONE_ROUNDING = 2.0**-9
"""The largest relative error of a rounding to BF16.

Where a sum in float32 lies on the other side of a tie than that in float64, a value that goes into
a matrix differs by twice this part of it, but most of the values of a row do not.
"""


def make(config: dict[str, Any], tensors: Any, **options: Any) -> Engine:
    return Engine.from_tensors(config, tensors, **{"threads": 1, "pin": False, **options})


def reply(
    engine: Engine,
    prompt: tuple[int, ...] = PROMPT,
    counters: Counters | None = None,
    **settings: Any,
) -> list[int]:
    chosen = Settings(**{"max_tokens": 40, **settings})
    rounds = engine.rounds(prompt, chosen, counters or Counters())
    return list(itertools.chain.from_iterable(rounds))


def errors(found: NDArray[Any], expected: NDArray[Any]) -> NDArray[Any]:
    """Return the relative error of each row."""
    return np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)


def require_same(found: NDArray[Any], expected: NDArray[Any]) -> None:
    """Require equal rows, but for single values on the other side of a tie.

    Attention that rounds queries and weights has as many ties again.
    """
    bound = ONE_ROUNDING * (2 if rounds_attention() else 1)
    assert np.median(errors(found, expected)) < bound
    require_close(found, expected)


def require_close(found: NDArray[Any], expected: NDArray[Any]) -> None:
    """Allow single values on the other side of a tie, which later rows see."""
    bound = ONE_ROUNDING * (2 if rounds_attention() else 1)
    assert errors(found, expected).max() < 4 * bound


def test_a_draft_computes_with_draft_values(every_isa: str) -> None:
    config, tensors = small()
    read = read_model_config(config)
    whole = packed(tensors, Format(scheme="exact", truncated=2, group=32))  # a form of BF16 inputs
    drafts = {
        name: decode_draft(tensor) if isinstance(tensor, Packed) else tensor
        for name, tensor in whole.items()
    }
    expected = ModelOracle(read, drafts).logits(PROMPT)
    with make(config, whole) as engine:
        assert set(engine.forms["draft"]) <= {"packed12", "bf16"}
        require_same(engine.forward(PROMPT, draft=True), expected)


@pytest.mark.parametrize(
    ("format", "form"),
    [
        (DRAFT, "draft5"),
        (Format(scheme="mx", truncated=4, group=64), "draft5"),
        (Format(scheme="mx", truncated=5, significand=7, fill="midpoint"), "draft4"),
        (Format(scheme="exact", truncated=5, fill="midpoint", group=32), "draft4"),
        (Format(scheme="unary", truncated=4), "packed8"),
    ],
)
def test_drafts_take_the_form_of_their_scheme(format: Format, form: str) -> None:
    config, tensors = small(hidden_size=128, intermediate_size=128, head_dim=64)
    whole = packed(tensors, format)
    drafts = {
        name: decode_draft(tensor) if isinstance(tensor, Packed) else tensor
        for name, tensor in whole.items()
    }
    expected = ModelOracle(read_model_config(config), drafts).logits(PROMPT)
    with make(config, whole) as engine:
        assert engine.forms["draft"] == {form: 15}
        # Inputs of 8 bits a group: half a unit of 127 at most, some dozen times one after another.
        assert errors(engine.forward(PROMPT, draft=True), expected).max() < 13 / 254


def test_drafts_whose_groups_run_over_the_ends_of_rows_take_12_bits() -> None:
    config, tensors = small(hidden_size=72, intermediate_size=128, head_dim=16)
    whole = packed(tensors, Format(scheme="exact", truncated=4, fill="midpoint", group=64))
    drafts = {
        name: decode_draft(tensor) if isinstance(tensor, Packed) else tensor
        for name, tensor in whole.items()
    }
    expected = ModelOracle(read_model_config(config), drafts).logits(PROMPT)
    with make(config, whole) as engine:
        assert "bf16" not in engine.forms["draft"]
        assert engine.forms["draft"]["packed12"] >= 11  # inputs of 72 or 96 values
        assert errors(engine.forward(PROMPT, draft=True), expected).max() < 13 / 254


SOME = ((1, "planes"), (3, "packed12"))
ALL = tuple(itertools.product((1, 2, 3), TARGETS))


@pytest.mark.parametrize(
    ("kind", "engines", "sizes"),
    [
        *((kind, SOME, (1, 2, 5, 8, 9, 16)) for kind in KINDS),
        pytest.param("llama", ALL, range(1, 17), marks=pytest.mark.slow),
    ],
    ids=lambda each: each if isinstance(each, str) else len(each),
)
def test_rows_do_not_depend_on_each_other(
    kind: str, engines: Sequence[tuple[int, str]], sizes: Sequence[int], every_isa: str
) -> None:
    config, tensors = small(kind)
    for threads, target in engines:
        with make(config, packed(tensors), threads=threads, target=target) as engine:
            for draft in (False, True):
                passes = [engine.forward(PROMPT, rows=rows, draft=draft) for rows in sizes]
                assert all((logits == passes[0]).all() for logits in passes)


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_is_the_same_in_passes_of_any_number_of_rows(kind: str, every_isa: str) -> None:
    config, tensors = small(kind)
    prompt = [int(token) for token in np.random.default_rng(6).integers(0, 97, 150)]
    threads, target = SOME[[*KINDS].index(kind) % 2]  # in turn: the test above has both of each
    with make(config, packed(tensors), threads=threads, target=target, draft=False) as engine:
        alone = engine.forward(prompt, rows=1, last=20)
        for rows in (16, 17, 40, 128):
            assert (engine.forward(prompt, rows=rows, last=20) == alone).all()


def test_threads_and_forms_of_the_target_change_nothing(every_isa: str) -> None:
    config, tensors = small()  # few exponents: none of packed12's escapes, which are added last
    found = []
    for threads, target in itertools.product((1, 2, 5), TARGETS):
        with make(config, packed(tensors), threads=threads, target=target) as engine:
            found.append(engine.forward(PROMPT))
    assert all((logits == found[0]).all() for logits in found)


def test_portable_and_avx2_agree() -> None:
    from cassandra_spec import native
    from cassandra_spec.native.library import available_isas

    config, tensors = small()
    found = []
    for isa in available_isas()[:2]:
        native.set_isa(isa)
        with make(config, tensors) as engine:
            found.append(engine.forward(PROMPT))
    native.set_isa(None)
    assert (found[0] == found[-1]).all()


@pytest.mark.parametrize("target", ["bf16", "packed12"])
def test_rows_do_not_depend_on_each_other_in_whole_tiles_with_escapes(
    every_isa: str, target: str
) -> None:
    config, tensors = small(hidden_size=576, intermediate_size=320, head_dim=64)
    read = read_model_config(config)
    tensors["model.layers.1.mlp.gate_proj.weight"] ^= np.uint16(0x0C00)  # exponents from end to end
    expected = ModelOracle(read, tensors).logits(PROMPT)
    found = []
    for threads in (1, 2):
        with make(config, tensors, threads=threads, target=target, draft=False) as engine:
            found += [engine.forward(PROMPT, rows=rows) for rows in (1, 3, 8, 9, 13, 16)]
    assert all((logits == found[0]).all() for logits in found)
    require_same(found[0], expected)


@pytest.mark.parametrize(
    "gammas",
    [(1, 2, 4, 7, 8, 15, "adaptive"), pytest.param((3, 5, 6, 12), marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_reply_is_that_of_plain_decoding(
    threads: int, gammas: Sequence[Gamma], every_isa: str
) -> None:
    config, tensors = small()
    with make(config, packed(tensors), threads=threads) as engine:
        counters = Counters()
        plain = reply(engine, gamma=0, counters=counters)
        assert counters.drafted == 0
        drafted = itertools.product(gammas, ("model", "lookup", "hybrid"))
        for gamma, draft in (*drafted, (0, "model"), (3, "none")):
            found = reply(engine, gamma=gamma, draft=draft, counters=counters)
            assert found == plain, (gamma, draft)
        assert 0 < counters.accepted < counters.drafted


@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_is_what_the_logits_say(kind: str) -> None:
    config, tensors = small(kind)
    with make(config, packed(tensors), threads=2) as engine:
        for draft in ("model", "lookup", "hybrid"):
            found = reply(engine, gamma="adaptive" if draft == "hybrid" else 3, draft=draft)
            logits = engine.forward([*PROMPT, *found])
            assert [int(token) for token in logits[len(PROMPT) - 1 : -1].argmax(1)] == found


def test_positions_beyond_a_window_are_not_counted() -> None:
    config, tensors = small("gemma3_text")
    with make(config, tensors) as engine:
        counters = Counters()
        reply(engine, gamma=0, max_tokens=6, counters=counters)
    seen = sum(3 + (position + 1) + 3 for position in range(len(PROMPT), len(PROMPT) + 5))
    assert counters.kv is not None
    assert counters.kv.target == counters.kv.plain == seen * 2 * 2 * 2 * 24


@pytest.mark.parametrize("target", TARGETS)
def test_long_contexts(target: str) -> None:
    config, tensors = small(max_position_embeddings=2304, num_hidden_layers=1)
    prompt = tuple(int(token) for token in np.random.default_rng(5).integers(0, 97, 2048))
    with make(config, packed(tensors), target=target) as engine:
        plain = reply(engine, prompt, gamma=0, max_tokens=100)
        assert reply(engine, prompt, gamma=5, draft="hybrid", max_tokens=100) == plain
        one = engine.forward(prompt, rows=1, last=1)
        assert (engine.forward(prompt, rows=8, last=1) == one).all()


def test_logits_of_a_long_context_are_those_of_the_naive_model(every_isa: str) -> None:
    config, tensors = small(num_hidden_layers=1, head_dim=4)
    prompt = [int(token) for token in np.random.default_rng(5).integers(0, 97, 300)]
    expected = ModelOracle(read_model_config(config), tensors).logits(prompt)
    with make(config, tensors) as engine:
        require_same(engine.forward(prompt), expected)


def test_an_unsure_draft_ends_a_round() -> None:
    config, tensors = small()
    with make(config, packed(tensors)) as engine:
        plain = reply(engine, gamma=0)
        drafted = []
        for margin in (0.0, 0.2, 1e9):
            counters = Counters()
            assert reply(engine, gamma=4, min_margin=margin, counters=counters) == plain
            drafted.append(counters.drafted / counters.rounds)
    assert drafted[0] > drafted[1] > drafted[2]
    assert drafted[2] <= 1


def test_a_stop_token_ends_a_reply() -> None:
    config, tensors = small()
    with make(config, packed(tensors)) as engine:
        plain = reply(engine, gamma=0)
        stop = plain[len(plain) // 2]
        expected = plain[: plain.index(stop) + 1]
        for gamma in (0, 3, 7, 15):
            assert reply(engine, gamma=gamma, stop_tokens=frozenset({stop})) == expected


def test_a_reply_can_be_interrupted_and_the_engine_goes_on() -> None:
    config, tensors = small()
    with make(config, packed(tensors), threads=2) as engine:
        plain = reply(engine, gamma=3)
        rounds = engine.rounds(
            PROMPT, Settings(max_tokens=40), Counters(), ends=_interrupt_at(plain[7])
        )
        with pytest.raises(KeyboardInterrupt):
            list(rounds)
        assert reply(engine, gamma=3) == plain


def _interrupt_at(token: int) -> Any:
    def ends(emitted: int) -> bool:
        if emitted == token:
            raise KeyboardInterrupt
        return False

    return ends


def test_engines_do_not_disturb_each_other() -> None:
    config, tensors = small()
    with make(config, packed(tensors)) as first, make(config, packed(tensors), threads=2) as other:
        expected = reply(first, gamma=3)
        rounds = [
            engine.rounds(PROMPT, Settings(max_tokens=40), Counters()) for engine in (first, other)
        ]
        found: list[list[int]] = [[], []]
        for emitted in zip(*rounds, strict=True):
            for own, tokens in zip(found, emitted, strict=True):
                own += tokens
    assert found == [expected, expected]


def test_memory_is_stated() -> None:
    config, tensors = small()
    with make(config, packed(tensors)) as engine:
        memory = engine.memory()
    assert memory["target"] >= 2 * sum(tensors[name].size for name in tensors if "proj" in name)
    assert 0 < memory["draft"] < memory["target"]
    assert memory["embedding"] == 2 * 97 * 64
    assert memory["position"] == 2 * 2 * 2 * (16 + 16)  # heads of 12 dimensions, padded to 16


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_planes_hold_the_weights_once_and_reply_as_bf16(kind: str, every_isa: str) -> None:
    """Gemma's head is its embedding, whose rows are read from the planes."""
    config, tensors = small(kind, hidden_size=128, intermediate_size=128, head_dim=64)
    whole = packed(tensors)
    with make(config, whole) as plain, make(config, whole, target="planes", threads=2) as engine:
        assert engine.forms["target"] == {"planes": plain.forms["target"]["bf16"]}
        assert engine.forms["draft"] == plain.forms["draft"]
        assert engine.forms["draft"].keys() == {"draft5"}
        assert (engine.forward(PROMPT) == plain.forward(PROMPT)).all()
        assert (engine.forward(PROMPT, draft=True) == plain.forward(PROMPT, draft=True)).all()
        for draft in ("model", "hybrid"):
            assert reply(engine, gamma=3, draft=draft) == reply(plain, gamma=0)
        held, beside = engine.memory(), plain.memory()
        assert held["draft"] == beside["draft"]
        assert held["draft"] + held["target"] < beside["target"]
        assert (held["embedding"] == 0) == (kind == "gemma3_text")
    with make(config, whole, target="planes", draft=False) as engine, make(config, whole) as plain:
        assert (engine.forward(PROMPT) == plain.forward(PROMPT)).all()


@pytest.mark.parametrize(
    "format",
    [
        Format(scheme="unary", truncated=4),
        Format(scheme="exact", truncated=4, group=32),  # filled with zeros
        Format(scheme="exact", truncated=2, fill="midpoint", group=32),
    ],
    ids=lambda format: f"{format.scheme}-{format.truncated}-{format.fill}",
)
def test_targets_without_planes_are_bf16(format: Format) -> None:
    config, tensors = small(hidden_size=128, intermediate_size=128, head_dim=64)
    with make(config, packed(tensors, format), target="planes") as engine:
        assert engine.forms["target"] == {"bf16": 15}


def test_planes_of_mx_hold_its_rounded_targets() -> None:
    config, tensors = small(hidden_size=128, intermediate_size=128, head_dim=64)
    whole = packed(tensors, Format(scheme="mx", truncated=4, fill="midpoint", group=64))
    with make(config, whole) as plain, make(config, whole, target="planes") as engine:
        assert engine.forms["target"] == {"planes": 15}
        assert (engine.forward(PROMPT) == plain.forward(PROMPT)).all()


def test_drafts_of_matrices_that_are_not_packed_are_the_target() -> None:
    config, tensors = small()
    with make(config, tensors) as engine:
        assert engine.forms["draft"] == engine.forms["target"]
        assert engine.memory()["draft"] == 0
        assert (engine.forward(PROMPT, draft=True) == engine.forward(PROMPT)).all()


def test_a_missing_tensor_and_one_of_another_size_are_refused() -> None:
    config, tensors = small()
    name = "model.layers.1.mlp.up_proj.weight"
    with pytest.raises(CassandraError, match=f"must have a tensor {name}"):
        make(config, {key: value for key, value in tensors.items() if key != name})
    with pytest.raises(CassandraError, match=f"{name} must have 6144 values, not 10"):
        make(config, tensors | {name: np.zeros(10, np.uint16)})


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"threads": 0}, "threads must be from 1 to 256, not 0"),
        ({"context": 513}, "context must be from 1 to the model's 512 positions, not 513"),
        ({"target": "int4"}, "target must be bf16 or packed12 or planes, not 'int4'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], line: str) -> None:
    config, tensors = small()
    with pytest.raises(CassandraError, match=line):
        make(config, tensors, **options)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"gamma": 16}, "gamma must be from 0 to 15, or 'adaptive', not 16"),
        (
            {"sampling": Sampling(temperature=0.5), "acceptance": "rejection"},
            "acceptance must be noise in the engine's rounds, not rejection",
        ),
    ],
)
def test_settings_of_another_runtime_are_refused(settings: dict[str, Any], line: str) -> None:
    config, tensors = small()
    with make(config, tensors) as engine, pytest.raises(CassandraError, match=line):
        reply(engine, **settings)


def test_what_an_engine_cannot_do_is_refused() -> None:
    config, tensors = small()
    with make(config, tensors, draft=False, context=32) as engine:
        with pytest.raises(CassandraError, match="the context of 32 positions, not need 61"):
            reply(engine)
        with pytest.raises(CassandraError, match="this engine has no draft model"):
            reply(engine, max_tokens=5)
        with pytest.raises(CassandraError, match="all from 0 to below 97"):
            reply(engine, (97,), max_tokens=5)
        with pytest.raises(CassandraError, match="below the engine's 32, not 30 to 33"):
            engine.forward([1, 2, 3, 4], 30)
        with pytest.raises(CassandraError, match="rows must be from 1 to 128, not 129"):
            engine.forward([1], rows=129)
        assert len(reply(engine, max_tokens=5, gamma=0)) == 5
    with pytest.raises(CassandraError, match="must not be used after it was closed"):
        engine.forward([1])


def test_a_fork_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    config, tensors = small()
    with make(config, tensors, draft=False) as engine:
        here = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: here + 1)
        with pytest.raises(CassandraError, match="in the process that made it"):
            engine.forward([1])
        monkeypatch.undo()


@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.0.self_attn.q_proj.weight"])
@pytest.mark.parametrize("pattern", [0x7FC0, 0xFF80])
@pytest.mark.parametrize("threads", [1, 9])
def test_logits_that_are_not_finite_end_a_reply(
    name: str, pattern: int, threads: int, every_isa: str
) -> None:
    config, tensors = small()
    tensors[name] = np.full_like(tensors[name], pattern)
    with make(config, tensors, threads=threads) as engine:
        for gamma in (0, 3):
            with pytest.raises(CassandraError, match="logits must be finite"):
                reply(engine, gamma=gamma)
        with pytest.raises(CassandraError, match="logits must be finite"):
            engine.forward(PROMPT, draft=True)


def test_a_single_logit_that_is_not_finite_ends_a_reply(every_isa: str) -> None:
    config, tensors = small()
    for token in (0, 40, 96):
        head = tensors["lm_head.weight"].copy()
        head[token, 0] = 0x7F80
        engine = make(config, {**tensors, "lm_head.weight": head})
        with engine, pytest.raises(CassandraError, match="logits must be finite"):
            reply(engine)


@pytest.mark.parametrize("scheme", ["mx", "exact"])
def test_a_norm_that_is_not_finite_is_not_hidden_by_integers(scheme: Any) -> None:
    config, tensors = small()
    tensors["model.norm.weight"][0] = 0x7FC0
    made = packed(tensors, Format(scheme=scheme, truncated=4, fill="midpoint", group=32))
    with make(config, made, target="packed12") as engine:
        for draft in (False, True):
            with pytest.raises(CassandraError, match="logits must be finite"):
                engine.forward(PROMPT, draft=draft)


def test_more_threads_than_tiles_of_a_tiny_vocabulary() -> None:
    config, tensors = small(vocab_size=3)
    replies = []
    for threads in (1, 8):
        with make(config, tensors, threads=threads) as engine:
            replies.append(reply(engine, (1, 2, 0, 1)))
    assert replies[0] == replies[1]
