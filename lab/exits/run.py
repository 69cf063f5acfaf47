"""Run ``casspec train-exits``: train exits of a packed model on its own text (drafters.md).

The order is text, states, adapters, confidence, calibration. Text, states and every epoch are kept
in files until the end, so an interrupted run can be resumed, and the same seed gives the same
exits.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from cassandra_spec.drafting import Backend, Settings
from cassandra_spec.golden.model_config import read_config
from cassandra_spec.lab.exits import probe
from cassandra_spec.lab.exits.adapters import Exits, check_layers
from cassandra_spec.lab.exits.calibration import (
    calibration_error,
    cascade_thresholds,
    fit_scale,
    reliability,
)
from cassandra_spec.lab.exits.features import Features, gather
from cassandra_spec.lab.exits.training import Trainer, Training, agreement, confidences
from cassandra_spec.model.baking import Baking, OwnText
from cassandra_spec.model.output import resumable_file
from cassandra_spec.model.packing.packer import open_packed
from cassandra_spec.model.reply import build_model
from cassandra_spec.model.weights.packed import PackedSource

_HELD_OUT = 8  # one in 8 sequences is held out of training
_MOST = 8192  # tokens that exits are judged on


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainedExit:
    """An exit on the held-out part of the text."""

    layer: int
    agreement: float  # share of tokens at which its best token is the model's
    probe: float  # the same of the ridge probe
    calibration_error: float
    threshold: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained:
    """Results of training."""

    exits: tuple[TrainedExit, ...]
    tokens: int  # training tokens
    seconds: float  # of training, without generating the text and its states
    resumed: int  # conversations and epochs that an interrupted run had made


def train_exits(
    backend: Backend,
    model: Path,
    destination: Path,
    baking: Baking,
    reply: Settings,
    training: Training,
    *,
    progress: bool = False,
) -> Trained:
    """Write exits of the packed model that ``backend`` runs; ``reply`` says how it replies.

    Raises :class:`CassandraError` before anything long begins, and leaves nothing behind then.
    """
    digest = open_packed(model).digest
    check_layers(training.layers, int(read_config(model)["num_hidden_layers"]))
    training = dataclasses.replace(training, layers=tuple(sorted(training.layers)))
    text = OwnText(backend, baking, reply, digest)
    with resumable_file(destination, key=text.key) as (path, store):
        made = text.make(store, progress=progress)
        network = build_model(model, PackedSource(model))
        found = gather(network, made.sequences, training.layers, store, progress=progress)
        held_out = next(Features.joined(found[::_HELD_OUT]).split(_MOST))
        train = Features.joined([f for n, f in enumerate(found) if n % _HELD_OUT] or found)
        trainer = Trainer(network, train, training)
        epochs, seconds = _train(trainer, training, store, progress)
        done, thresholds = _calibrate(trainer, train, held_out, training)
        exits = dataclasses.replace(trainer.exits, thresholds=thresholds, seconds=seconds)
        about = {
            "model_digest": digest,
            "training": dataclasses.asdict(training),
            "tokens": len(train),
            "exits": [dataclasses.asdict(each) for each in done],
        }
        exits.save(path, about)
        return Trained(
            exits=tuple(done), tokens=len(train), seconds=seconds, resumed=made.resumed + epochs
        )


def open_exits(path: Path, model: Path) -> Exits:
    """Open the exits of a packed model. Raises :class:`FileError` if they belong to another."""
    config = read_config(model)
    return Exits.load(
        path,
        layers=int(config["num_hidden_layers"]),
        width=int(config["hidden_size"]),
        model_digest=open_packed(model).digest,
    )


def _train(trainer: Trainer, training: Training, store: Path, progress: bool) -> tuple[int, float]:
    """Train adapters and estimators; epochs that were there, and seconds of all of them."""
    key = hashlib.sha256(json.dumps(dataclasses.asdict(training)).encode()).hexdigest()[:16]
    path = store / f"epochs-{key}.safetensors"
    done, spent = trainer.restore(path)
    start = time.monotonic() - spent
    bar = tqdm(
        total=trainer.steps,
        initial=done * trainer.steps // training.epochs,
        desc="training",
        unit=" steps",
        disable=None if progress else True,
        file=sys.stderr,
    )
    with bar:

        def update(loss: float) -> None:
            bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
            bar.update()

        for number in range(done, training.epochs):
            trainer.epoch(number, update)
            trainer.keep(path, number + 1, time.monotonic() - start)
    trainer.estimate()
    return done, time.monotonic() - start


def _calibrate(
    trainer: Trainer, train: Features, held_out: Features, training: Training
) -> tuple[list[TrainedExit], dict[int, float]]:
    """Scale confidences on the held-out tokens, choose thresholds, and say what was reached."""
    exits, norm, rows = trainer.exits, trainer.norm, trainer.rows
    right = agreement(exits, held_out, norm, rows)
    said = confidences(exits, held_out)
    for number, head in enumerate(exits.heads.values()):
        head.scale(*fit_scale(said[:, number], right[:, number]))
    sure = confidences(exits, held_out).sigmoid()
    by_layer: dict[int, Any] = dict(zip(exits.layers, sure.T, strict=True))
    good: dict[int, Any] = dict(zip(exits.layers, right.T.bool(), strict=True))
    thresholds = cascade_thresholds(by_layer, good, training.precision)
    done = [
        TrainedExit(
            layer=layer,
            agreement=good[layer].float().mean().item(),
            probe=probe.best_agreement(train, held_out, number, rows),
            calibration_error=calibration_error(reliability(by_layer[layer], good[layer])),
            threshold=thresholds[layer],
        )
        for number, layer in enumerate(exits.layers)
    ]
    return done, thresholds
