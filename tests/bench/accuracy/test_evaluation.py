from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from cassandra_spec.bench.accuracy import evaluation
from cassandra_spec.bench.accuracy.evaluation import Evaluation, compare, evaluate, token_windows
from cassandra_spec.golden import CassandraError
from tests.model.tiny import MODEL_TYPES, write_model

WINDOWS = np.random.default_rng(5).integers(2, 96, (5, 12))


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_token_is_predicted_from_those_before_it(model_type: str, tmp_path: Path) -> None:
    path = write_model(tmp_path / "m", model_type=model_type)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    found = evaluate(model, WINDOWS)
    for window, loss, choices in zip(WINDOWS, found.losses, found.choices, strict=True):
        tokens = torch.from_numpy(window)[None]
        with torch.inference_mode():
            whole = model(input_ids=tokens, labels=tokens)  # the loss as transformers defines it
        assert loss == pytest.approx(whole.loss.item(), rel=1e-5)
        assert choices.tolist() == whole.logits[0, :-1].argmax(-1).tolist()


def test_a_cap_on_logits_counts(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m", model_type="gemma3_text", final_logit_softcapping=2.0)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    tokens = torch.from_numpy(WINDOWS)
    with torch.inference_mode():
        expected = model(input_ids=tokens, labels=tokens).loss.item()
    assert evaluate(model, WINDOWS).losses.mean() == pytest.approx(expected, rel=1e-5)


def test_windows_in_one_pass_or_several(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = AutoModelForCausalLM.from_pretrained(llama, dtype=torch.float32)
    together = evaluate(model, WINDOWS)
    monkeypatch.setattr(evaluation, "_BATCH", 24)
    alone = evaluate(model, WINDOWS)
    np.testing.assert_allclose(alone.losses, together.losses, rtol=1e-5)
    np.testing.assert_array_equal(alone.choices, together.choices)


def test_windows_follow_each_other(llama: Path) -> None:
    text = " ".join(f"word{number}" for number in range(50))
    assert token_windows(llama, text, length=20).tolist() == [
        list(range(2, 22)),
        list(range(22, 42)),
    ]
    assert token_windows(llama, text, length=5, most=17).shape == (3, 5)


def test_texts_that_are_too_short(llama: Path) -> None:
    with pytest.raises(
        CassandraError, match="text must have at least 2 windows of 20 tokens, not 3"
    ):
        token_windows(llama, "word1 word2 word3", length=20)
    with pytest.raises(CassandraError, match="length must be at least 2, not 1"):
        token_windows(llama, "word1 word2 word3", length=1)


def test_figures_by_hand() -> None:
    reference = Evaluation(losses=np.array([1.0, 2.0]), choices=np.array([[1, 2], [3, 4]]))
    found = Evaluation(losses=np.array([1.5, 3.5]), choices=np.array([[1, 2], [3, 5]]))
    figures = compare(found, reference)
    assert figures.tokens == 4
    assert figures.perplexity == pytest.approx(math.exp(2.5))
    assert figures.perplexity_error == pytest.approx(math.exp(2.5) * 1.0)  # losses differ by 2
    assert (figures.agreement, figures.agreement_error) == pytest.approx((0.75, 0.25))
    assert (figures.loss_increase, figures.loss_increase_error) == pytest.approx((1.0, 0.5))
    same = compare(reference, reference)
    assert (same.agreement, same.agreement_error) == (1, 0)
    assert (same.loss_increase, same.loss_increase_error) == (0, 0)


def test_the_standard_error_covers() -> None:
    """Over many samples, the error of the mean equals its estimate."""
    rng = np.random.default_rng(7)
    losses = rng.normal(3, 1, (400, 50))
    choices = np.zeros((50, 1), np.int64)
    found = [
        compare(one, Evaluation(losses=np.zeros(50), choices=choices))
        for one in (Evaluation(losses=row, choices=choices) for row in losses)
    ]
    spread = np.std([one.loss_increase for one in found])
    # the spread of 400 means has a relative standard error of 3.5 %
    assert np.mean([one.loss_increase_error for one in found]) == pytest.approx(spread, rel=0.14)
