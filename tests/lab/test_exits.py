"""Exits of a frozen model: training, what an interrupt leaves, files and confidence."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from cassandra_spec.drafting import Settings
from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.lab.exits import Exit, Exits, probe
from cassandra_spec.lab.exits.calibration import (
    calibration_error,
    cascade_thresholds,
    f1_threshold,
    fit_scale,
    precision_threshold,
    reliability,
)
from cassandra_spec.lab.exits.features import Features
from cassandra_spec.lab.exits.run import Trained, open_exits, train_exits
from cassandra_spec.lab.exits.training import Trainer, Training
from cassandra_spec.model.baking import Baking
from cassandra_spec.model.packing.packer import Recipe, pack_model
from cassandra_spec.model.weights.sources import open_source
from tests.model.test_baking import Speaker, model
from tests.model.tiny import write_model

__all__ = ["model"]  # a fixture

REPLY = Settings(gamma=0)
BAKING = Baking(tokens=300, turn_tokens=4, reply_tokens=6)
TRAINING = Training(layers=(1,), epochs=2, batch=32, bottleneck=8, hidden=4)


def train(speaker: Speaker, model: Path, out: Path, **changes: Any) -> Trained:
    return train_exits(speaker, model, out, BAKING, REPLY, dataclasses.replace(TRAINING, **changes))


def test_the_same_seed_gives_the_same_exits_whatever_interrupts(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    done = train(Speaker(model), model, whole)
    epoch = Trainer.epoch

    def interrupted(self: Trainer, number: int, *arguments: Any) -> None:
        if number == 1:
            raise KeyboardInterrupt
        epoch(self, number, *arguments)

    with pytest.raises(KeyboardInterrupt):
        train(Speaker(model, fails=5), model, broken)
    monkeypatch.setattr(Trainer, "epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(Speaker(model), model, broken)
    monkeypatch.undo()
    again = train(Speaker(model, fails=0), model, broken)
    assert again.resumed > done.resumed == 0
    assert again.exits == done.exits
    one, two = (open_exits(path, model).state() for path in (whole, broken))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not list(tmp_path.glob(".*partial"))
    other = tmp_path / "other"
    train(Speaker(model), model, other, seed=1)
    assert not torch.equal(one["1.gate.weight"], open_exits(other, model).state()["1.gate.weight"])


@pytest.mark.parametrize("layers", [(2,), (0,), (1, 1), ()])
def test_exits_are_behind_layers_of_the_model(
    model: Path, tmp_path: Path, layers: tuple[int, ...]
) -> None:
    with pytest.raises(CassandraError, match=r"exits? must be"):
        train(Speaker(model, fails=0), model, tmp_path / "out", layers=layers)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "changes", [{"epochs": 0}, {"classes": 0}, {"alpha": 1.5}, {"precision": 0.0}]
)
def test_a_training_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(CassandraError, match="must be"):
        dataclasses.replace(TRAINING, **changes)


def test_exits_of_another_model_or_a_damaged_file_are_refused(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "exits"
    train(Speaker(model), model, path)
    whole = path.read_bytes()
    other = tmp_path / "packed"
    source = open_source(write_model(tmp_path / "m", num_hidden_layers=3))
    pack_model(source, other, Recipe(format=Format(segment=256)), jobs=1)
    with pytest.raises(CassandraError, match="model_digest must be the model's"):
        open_exits(path, other)
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    path.write_bytes(flipped)
    with pytest.raises(CassandraError, match="CRC-32"):
        open_exits(path, model)
    with pytest.raises(CassandraError, match="must be exits of a model"):
        open_exits(model / "model.safetensors", model)


def test_an_untrained_adapter_changes_nothing_but_the_size() -> None:
    state = torch.randn(3, 16, dtype=torch.bfloat16) * 50
    adapted = Exit(16, 8, 4)(state)
    assert torch.allclose(adapted * state.float().square().mean(-1, True).sqrt(), state.float())


def _features(tokens: int) -> tuple[Any, Features]:
    """Return states from which the last ones follow by a matrix, with a head of ten tokens."""
    random = torch.Generator().manual_seed(3)
    states = torch.randn(tokens, 1, 12, generator=random)
    states /= states.square().mean(-1, keepdim=True).sqrt()
    final = states[:, 0] @ torch.randn(12, 12, generator=random)
    head = torch.nn.Linear(12, 10, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.randn(10, 12, generator=random))
        labels = head(final).argmax(-1)
    network = torch.nn.Module()
    network.model, network.lm_head = torch.nn.Module(), head
    network.model.norm = torch.nn.Identity()
    return network, Features(states=states, final=final, labels=labels)


def test_training_finds_what_the_states_say() -> None:
    network, features = _features(512)
    training = Training(layers=(1,), epochs=30, batch=64, bottleneck=32, hidden=16, rate=1e-2)
    trainer = Trainer(network, features, training)
    losses: list[float] = []
    for number in range(training.epochs):
        trainer.epoch(number, losses.append)
    trainer.estimate()
    assert len(losses) == trainer.steps
    assert sum(losses[-8:]) < 0.3 * sum(losses[:8])


def test_the_probe_solves_a_linear_relation() -> None:
    network, features = _features(256)
    found = probe.best_agreement(features, features, 0, network.lm_head.weight.detach())
    assert found > 0.98


def test_a_scale_makes_confidence_as_precise_as_it_says() -> None:
    random = torch.Generator().manual_seed(0)
    true = torch.randn(20_000, generator=random)
    right = torch.rand(20_000, generator=random) < true.sigmoid()
    said = (true - 1) * 3  # overconfident, and shifted
    slope, offset = fit_scale(said, right)
    assert slope == pytest.approx(1 / 3, abs=0.02)
    assert offset == pytest.approx(1, abs=0.05)
    before, after = (
        calibration_error(reliability(x.sigmoid(), right)) for x in (said, slope * said + offset)
    )
    assert after < 0.02 < before


def test_reliability_is_of_equal_bins() -> None:
    bins = reliability(torch.tensor([0.05, 0.25, 0.29, 1.0]), torch.tensor([0, 1, 0, 1]).bool())
    assert [each.tokens for each in bins] == [1, 2, 1]
    assert [each.precision for each in bins] == [0, 0.5, 1]
    assert calibration_error(bins) == pytest.approx((0.05 + 2 * 0.23 + 0) / 4)


def test_thresholds_by_precision_and_by_f1() -> None:
    said = torch.tensor([0.9, 0.8, 0.8, 0.6, 0.4, 0.2])
    right = torch.tensor([1, 1, 0, 1, 1, 0]).bool()
    assert precision_threshold(said, right, 1.0) == pytest.approx(0.9)
    assert precision_threshold(said, right, 0.75) == pytest.approx(0.4)
    assert precision_threshold(said, ~right, 0.9) == 1.0
    assert f1_threshold(said, right) == pytest.approx(0.4)
    both = {1: said, 2: said.flip(0)}
    good = {1: right, 2: torch.ones(6).bool()}
    assert cascade_thresholds(both, good, 1.0) == pytest.approx({1: 0.9, 2: 0.4})
    assert set(cascade_thresholds(both, good, None)) == {1, 2}


def test_exits_are_kept_by_depth() -> None:
    assert Exits.new((5, 2), 8, 4, 2).layers == (2, 5)
