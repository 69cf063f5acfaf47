"""Perplexity and agreement of a network on a text, window by window.

A window is ``length`` consecutive tokens; each but the first is predicted from those before it in
the window. Windows follow each other and are the unit of the standard errors: tokens of one text
depend on each other, windows much less.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from cassandra_spec.golden import CassandraError
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.model.speculative.passes import capped

_BATCH = 2048  # tokens in a pass, at least one window


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A network's predictions per window, comparable with others of the same windows."""

    losses: NDArray[np.float64]  # [windows]: mean of -ln p(token)
    choices: NDArray[np.int64]  # [windows, length - 1]: the most likely tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Figures of a model beside those of the reference, with standard errors over windows."""

    tokens: int  # predicted tokens
    perplexity: float
    perplexity_error: float
    agreement: float  # fraction of tokens where both find the same token most likely
    agreement_error: float
    loss_increase: float  # of the mean of -ln p(token), in nats
    loss_increase_error: float  # of the paired difference


def token_windows(
    folder: Path, text: str, *, length: int, most: int | None = None
) -> NDArray[np.int64]:
    """Split a text into int64 [windows, length], at least two windows; drop the rest.

    ``folder`` has the tokenizer, ``most`` is the largest number of tokens that are taken.
    """
    if length < 2:
        raise CassandraError(f"length must be at least 2, not {length}")
    tokenizer = load_tokenizer(folder)
    tokens = np.array(tokenizer(text).input_ids, np.int64)[:most]
    count = tokens.size // length
    if count < 2:
        raise CassandraError(
            f"text must have at least 2 windows of {length} tokens, not {tokens.size} tokens"
        )
    return tokens[: count * length].reshape(count, length)


def evaluate(
    network: Any, windows: NDArray[np.int64], *, title: str = "", progress: bool = False
) -> Evaluation:
    """Predict every token of the windows with a transformers model.

    The layers compute several windows at once and the head one at a time, so that memory holds the
    logits of one window.
    """
    step = max(_BATCH // windows.shape[1], 1)
    losses: list[float] = []
    choices: list[NDArray[np.int64]] = []
    bar = tqdm(desc=title, total=windows.size, unit=" tokens", disable=not progress)
    with torch.inference_mode(), bar:
        for start in range(0, len(windows), step):
            batch = torch.from_numpy(windows[start : start + step])
            hidden = network.model(input_ids=batch, use_cache=False).last_hidden_state
            for tokens, states in zip(batch, hidden, strict=True):
                logits = _logits(network, states[:-1])
                losses.append(float(torch.nn.functional.cross_entropy(logits, tokens[1:])))
                choices.append(logits.argmax(dim=-1).numpy())
            bar.update(batch.numel())
    return Evaluation(losses=np.array(losses), choices=np.array(choices))


def _logits(network: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Return logits in float32, scaled and capped by the model's config, as in transformers."""
    logits: torch.Tensor = network.lm_head(hidden).float()
    logits = logits / getattr(network.config, "logits_scaling", 1.0)
    return capped(logits, getattr(network.config, "final_logit_softcapping", None))


def compare(found: Evaluation, reference: Evaluation) -> Accuracy:
    """Compare ``found`` with ``reference`` on the same windows."""
    loss, loss_error = _mean(found.losses)
    agree, agree_error = _mean((found.choices == reference.choices).mean(axis=1))
    increase, increase_error = _mean(found.losses - reference.losses)
    return Accuracy(
        tokens=found.choices.size,
        perplexity=math.exp(loss),
        perplexity_error=math.exp(loss) * loss_error,
        agreement=agree,
        agreement_error=agree_error,
        loss_increase=increase,
        loss_increase_error=increase_error,
    )


def _mean(values: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(values.size))
