"""Run a transformers model layer by layer, with the weights of one layer in memory.

Each layer reads its weights, runs over all samples in batches, and releases its weights. The values
are those of a pass of the whole model over each batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cassandra_spec.model.reply import Weights, fill_module

_Forward = Callable[..., torch.Tensor]


def stream_layers(
    network: Any, weights: Weights, *, step: int, done: Callable[[], object] = lambda: None
) -> None:
    """Let a model from :func:`empty_model` run over batches of ``step`` samples in each layer.

    All parameters but those of the layers and the head are filled now. ``done`` is called behind
    each batch of a layer.
    """
    model = network.model
    fill_module(model.embed_tokens, weights, "model.embed_tokens")
    fill_module(model.norm, weights, "model.norm")
    model.norm.forward = _in_batches(model.norm.forward, step)
    for number, layer in enumerate(model.layers):
        runs = _in_batches(layer.forward, step, done)
        layer.forward = _with_weights(layer, runs, weights, f"model.layers.{number}")


def _in_batches(
    forward: _Forward, step: int, done: Callable[[], object] = lambda: None
) -> _Forward:
    """Return a function that calls ``forward`` for ``step`` samples at a time."""

    def run(inputs: torch.Tensor, **options: Any) -> torch.Tensor:
        outputs = torch.empty_like(inputs)
        for start in range(0, len(inputs), step):
            part = slice(start, start + step)
            outputs[part] = forward(inputs[part], **_of_samples(options, part, len(inputs)))
            done()
        return outputs

    return run


def _of_samples(options: dict[str, Any], part: slice, samples: int) -> dict[str, Any]:
    """Cut a mask that has rows for each sample."""
    mask = options.get("attention_mask")
    if mask is None or len(mask) != samples:
        return options
    return options | {"attention_mask": mask[part]}


def _with_weights(layer: Any, forward: _Forward, weights: Weights, name: str) -> _Forward:
    """Return a function that fills a layer, calls ``forward`` and releases the weights."""

    def run(inputs: torch.Tensor, **options: Any) -> torch.Tensor:
        fill_module(layer, weights, name)
        try:
            return forward(inputs, **options)
        finally:
            for parameter in layer.parameters():
                parameter.untyped_storage().resize_(0)

    return run
