"""The architectures, from pack to replies."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from cassandra_spec.drafting import DRAFT_VIEW, Counters, Proposal, Settings, decode
from cassandra_spec.golden import Format
from cassandra_spec.golden.model_types import ModelType, find_model_type
from cassandra_spec.model.packing.packer import pack_model
from cassandra_spec.model.speculative import CassandraForCausalLM, KeyValueFormat, PackedLinear
from cassandra_spec.model.weights.sources import open_source
from tests.model.speculative.conftest import RECIPE
from tests.model.speculative.test_generate import batch
from tests.model.speculative.test_passes import tokens_of
from tests.model.tiny import FOUR_TYPES, MODEL_TYPES, write_model

WINDOW = 24
PROMPTS = [tokens_of(length) for length in (3, 50)]


@pytest.fixture(scope="module", params=MODEL_TYPES)
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> object:
    folder = tmp_path_factory.mktemp(request.param)
    source = write_model(
        folder / "plain",
        model_type=request.param,
        max_position_embeddings=128,
        sliding_window=WINDOW,
        num_hidden_layers=6,  # one in six sees everything in Gemma 3
    )
    pack_model(open_source(source), folder / "packed", RECIPE, jobs=1)
    return CassandraForCausalLM.from_pretrained(folder / "packed")


@pytest.mark.parametrize(
    ("lm", "scheme"),
    [
        *itertools.product(FOUR_TYPES, (None, "unary", "exact", "mx")),
        *(("phi3", None), ("gemma2", "exact")),
    ],
    indirect=["lm"],
)
def test_a_batch_replies_as_plain_decoding_does(
    lm: CassandraForCausalLM, scheme: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if scheme is not None:
        format = Format(scheme=scheme, group=16, fill="midpoint")  # type: ignore[arg-type]
        monkeypatch.setattr(lm, "kv", KeyValueFormat(format=format, block=16))
    found = lm.generate(**batch(*PROMPTS), max_new_tokens=40, eos_token_id=[], pad_token_id=0)
    plain = Settings(gamma=0, max_tokens=40)
    expected = [list(lm.stream(prompt, plain, Counters())) for prompt in PROMPTS]
    assert found[:, 50:].tolist() == expected
    assert lm.report is not None
    assert 0 < lm.report.accepted < lm.report.drafted


def test_what_is_special_is_there(lm: CassandraForCausalLM) -> None:
    layers = lm.network.model.layers
    first = layers[0].self_attn
    kind = _kind(lm)
    query = first.qkv_proj if kind.fused else first.q_proj
    assert isinstance(query, PackedLinear)
    assert (query._bias is not None) == bool(kind.own_biases)
    assert hasattr(first, "k_norm") == (kind.query_key_norms is not None)
    windows = [getattr(layer.self_attn, "sliding_window", None) for layer in layers]
    assert WINDOW in windows or kind.windows not in ("alternate", "pattern")


def _kind(lm: CassandraForCausalLM) -> ModelType:
    name = lm.network.config.model_type
    return find_model_type(name, field="name", where=name)


def test_positions_beyond_a_window_are_not_read(lm: CassandraForCausalLM) -> None:
    """The bytes of keys and values count only the window."""
    config = lm.network.config
    session = lm.session(128)
    list(decode(session, PROMPTS[1], Settings(gamma=2, max_tokens=8), Counters()))
    each = lm.costs.position // config.num_hidden_layers
    kind = "sliding_attention" if _kind(lm).windows == "all" else "full_attention"
    sliding = getattr(config, "layer_types", [kind] * 6).count("sliding_attention")
    assert session.reads(60).bf16 == each * (sliding * WINDOW + (6 - sliding) * 61)


def test_replies_depend_on_the_window(tmp_path: Path) -> None:
    """Otherwise the tests above would hold without windows."""
    found = []
    for window in (8, 64):
        source = write_model(
            tmp_path / f"plain{window}", model_type="gemma3_text", sliding_window=window
        )
        pack_model(open_source(source), tmp_path / f"packed{window}", RECIPE, jobs=1)
        lm = CassandraForCausalLM.from_pretrained(tmp_path / f"packed{window}")
        tokens = tokens_of(40)
        chain = Proposal.chain(tokens[1:], [0.0] * 39, DRAFT_VIEW).nodes
        found.append(lm.session(40).target(tokens[0], chain, 0))
    assert torch.equal(found[0][:8], found[1][:8])
    assert not torch.equal(found[0][8:], found[1][8:])
