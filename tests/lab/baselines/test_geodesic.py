"""Low-rank attention as a draft: factors, what they keep, replies."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cassandra_spec.drafting import DraftPass
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines import parse_method
from cassandra_spec.lab.geodesic.low_rank import (
    LowRank,
    by_activations,
    by_weights,
    gather_grams,
    output_error,
    project,
    projections,
    weight_of,
)
from cassandra_spec.model.speculative import CassandraForCausalLM
from tests.lab.baselines.replies import check_lossless

TEXT = " ".join(f"word{number * 5 % 94}" for number in range(60))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.mark.parametrize("options", ["rank=20", "rank=8:own=yes"])
def test_replies_are_those_of_plain_decoding(lm: CassandraForCausalLM, options: str) -> None:
    found = check_lossless(lm, f"geodesic:{options}")
    assert 0 < sum(each.accepted for each in found) < sum(each.drafted for each in found)


def test_replies_by_activations(lm: CassandraForCausalLM, text: Path) -> None:
    sizes = "samples=2:length=16"
    assert check_lossless(lm, f"geodesic:rank=20:by=activations:text={text}:{sizes}")


def test_a_rank_beyond_the_dimension_is_refused(lm: CassandraForCausalLM) -> None:
    for rank in (0, 49):
        with pytest.raises(
            CassandraError, match="rank must be from 1 to 48, the model's dimension"
        ):
            parse_method(f"geodesic:rank={rank}").prepare(lm)


def test_the_whole_rank_changes_nothing(lm: CassandraForCausalLM) -> None:
    network = project(lm, 48)
    assert not any(isinstance(module, LowRank) for module in network.modules())
    assert parse_method("geodesic:rank=48").prepare(lm).memory == 0


def test_factors_have_the_least_error_in_what_they_keep() -> None:
    random = torch.Generator().manual_seed(1)
    weight = torch.randn(24, 24, generator=random)
    inputs = torch.randn(200, 24, generator=random) * torch.logspace(0, -3, 24)
    gram = (inputs.T @ inputs).double()
    near, kept = by_weights(weight, 6), by_activations(weight, 6, gram)
    assert near[0].shape == kept[0].shape == (24, 6)
    singular = torch.linalg.svdvals(weight)
    apart = (weight - near[0] @ near[1]).norm()
    assert float(apart) == pytest.approx(float(singular[6:].norm()), rel=1e-4)
    values = torch.linalg.svdvals(inputs @ weight.T).double().square()
    assert output_error(weight, kept, gram) == pytest.approx(
        float(values[6:].sum() / values.sum()), rel=1e-2
    )
    assert output_error(weight, kept, gram) < output_error(weight, near, gram) / 3


def test_gram_matrices_are_those_of_the_inputs(lm: CassandraForCausalLM) -> None:
    tokens = [[5, 9, 17, 3], [8, 8, 1]]
    found: dict[str, torch.Tensor] = {}
    layer = lm.network.model.layers[2].self_attn.v_proj
    handle = layer.register_forward_hook(
        lambda _, x, y: found.update(x=torch.cat([found.get("x", x[0][0][:0]), x[0][0]]))
    )
    grams = gather_grams(lm.network, tokens)
    handle.remove()
    assert set(grams) == {name for name, _ in projections(lm.network)}
    x = found["x"].double()
    assert x.shape == (7, 48)
    torch.testing.assert_close(grams["model.layers.2.self_attn.v_proj"], x.T @ x, rtol=1e-5, atol=0)


def test_a_low_rank_pass_reads_its_factors(lm: CassandraForCausalLM) -> None:
    prepared = parse_method("geodesic:rank=8").prepare(lm)
    assert isinstance(prepared.memory, int)
    whole = sum(2 * weight_of(layer).numel() for _, layer in projections(lm.network))
    sides = [sum(weight_of(layer).shape) for _, layer in projections(lm.network)]
    assert prepared.memory == 2 * 8 * sum(sides)
    target = prepared.verify_cost(0, 0).weights
    assert prepared.draft_cost(0, DraftPass(0, 1)).weights == target - whole + prepared.memory
