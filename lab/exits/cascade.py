"""Exits one after another: a token leaves at the first exit that is sure enough of it.

CascadeExit, section 3.3, on one cache. A token that leaves early has no keys and values in deeper
layers. They are computed later, exactly, when a token goes deeper: the pass over these layers then
runs over all the positions that have not been there, which reads the weights once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.exits.adapters import Exits
from cassandra_spec.lab.stack import Stack
from cassandra_spec.model.speculative import KeyValueCache
from cassandra_spec.model.speculative.tiles import ROWS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segment:
    """One run of a part of the layers, over some positions."""

    layers: range
    start: int  # position of its first row
    rows: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """Record which exit produced a token, and with what confidence."""

    logits: torch.Tensor  # float32 [vocabulary]
    confidence: float  # of the exit, a logit; infinite behind all layers
    depth: int  # layers that the token ran through
    segments: tuple[Segment, ...]


class Cascade:
    """Steps of a network through exits with thresholds, on a cache.

    With ``whole``, a token that no exit is sure of runs through all layers; without, it takes the
    last exit, whatever its confidence.
    """

    def __init__(
        self,
        network: Any,
        exits: Exits,
        cache: KeyValueCache,
        thresholds: Mapping[int, float],
        *,
        whole: bool,
        rows: int = ROWS,
        draft: bool = False,
    ) -> None:
        self._exits, self.stack = exits, Stack(network, cache, rows, draft=draft)
        self._logits = {layer: logit(thresholds[layer]) for layer in exits.layers}
        self._stops = [*exits.layers, self.stack.count] if whole else list(exits.layers)
        self._waiting: dict[int, torch.Tensor] = {}  # states that wait before a layer
        self._next = 0  # position of the next token

    def begin(self, position: int) -> None:
        """Forget what waits: the keys and values before ``position`` are whole."""
        self._waiting, self._next = {}, position

    def step(self, token: int) -> Step:
        """Generate the next token after ``token``, which is at the next position."""
        state, start, segments = self.stack.embed([token]), 0, list[Segment]()
        self._next += 1
        for stop in self._stops:
            state = self._deepen(state, range(start, stop), segments)
            exit_ = self._exits.heads.get(stop)
            said = torch.inf if exit_ is None else exit_.confidence(state[0]).item()
            if stop == self._stops[-1] or said >= self._logits[stop]:
                break
            start = stop
        if exit_ is not None:
            self._waiting[stop] = self._joined(stop, state)
        logits = self.stack.logits(state, self._next - 1, exit_)
        return Step(logits=logits[0], confidence=said, depth=stop, segments=tuple(segments))

    def _deepen(self, state: torch.Tensor, layers: range, segments: list[Segment]) -> torch.Tensor:
        """Return the last position's state [1, width] after a pass over all waiting positions."""
        states = self._joined(layers.start, state)
        self._waiting.pop(layers.start, None)
        start = self._next - len(states)
        segments.append(Segment(layers=layers, start=start, rows=len(states)))
        found = self.stack.run(states, start, layers)
        if layers.stop in self._exits.heads and len(states) > 1:
            self._waiting[layers.stop] = self._joined(layers.stop, found[:-1])
        return found[-1:]

    def _joined(self, layer: int, states: torch.Tensor) -> torch.Tensor:
        """Join the states that wait before a layer and the new ones."""
        waiting = self._waiting.get(layer)
        return states if waiting is None else torch.cat([waiting, states])


def logit(probability: float) -> float:
    """Return the logit of a probability; infinite at 0 and 1."""
    return torch.tensor(probability, dtype=torch.float64).logit().item()


@torch.inference_mode()
def generate(
    lm: Any,
    exits: Exits,
    prompt: Sequence[int],
    *,
    max_tokens: int,
    stop_tokens: frozenset[int],
    thresholds: Mapping[int, float] | None = None,
) -> Iterator[tuple[int, Step]]:
    """Yield the tokens of the lossy cascade, without verification.

    The last token of the prompt is the first that may leave early.
    """
    chosen = exits.thresholds if thresholds is None else thresholds
    if set(chosen) != set(exits.layers):
        raise CassandraError(
            f"thresholds must be of exits {list(exits.layers)}, not {list(chosen)}"
        )
    cache = lm.session(len(prompt) + max_tokens).cache
    cascade = Cascade(lm.network, exits, cache, chosen, whole=True)
    if len(prompt) > 1:
        cascade.stack.run(cascade.stack.embed(prompt[:-1]), 0, range(cascade.stack.count))
    cascade.begin(len(prompt) - 1)
    token = prompt[-1]
    for _ in range(max_tokens):
        step = cascade.step(token)
        token = int(step.logits.argmax())
        yield token, step
        if token in stop_tokens:
            return
