"""Early exits: the first layers of the model draft, alone or one exit after another (CascadeExit).

All read and write the keys and values of the target, so a round begins with exact ones.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from cassandra_spec.drafting import (
    Candidates,
    Drafter,
    DraftPass,
    LevelDrafter,
    Node,
    Outcome,
    Proposal,
    Settings,
    make_policy,
)
from cassandra_spec.drafting.sessions import MAX_PLANNED_NODES, PassView
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines.costs import NetworkSize, PassCost
from cassandra_spec.lab.baselines.method import Method, Speaker
from cassandra_spec.lab.baselines.networks import PassBytes, PreparedNetwork, clone
from cassandra_spec.lab.exits import Exit, Exits
from cassandra_spec.lab.exits.cascade import Cascade, Segment, generate, logit
from cassandra_spec.lab.exits.run import open_exits
from cassandra_spec.model.speculative import CassandraForCausalLM, ModelSession


class _ExitNorm(torch.nn.Module):
    """The adapter of an exit, then the model's own norm."""

    def __init__(self, adapter: Exit, norm: Any) -> None:
        super().__init__()
        self.adapter, self.norm = adapter, norm

    def forward(self, states: torch.Tensor) -> Any:
        return self.norm(self.adapter(states).to(states.dtype))


def _at_exit(network: Any, exits: Exits, layer: int) -> Any:
    """Clone a network that ends at an exit."""
    network.model.layers = network.model.layers[:layer]
    network.model.norm = _ExitNorm(exits.heads[layer], network.model.norm)
    return network


def _read(path: Path, lm: CassandraForCausalLM) -> Exits:
    """Read the exits of a model from a file, in BF16."""
    exits = open_exits(path, lm.folder)
    for head in exits.heads.values():
        head.bfloat16()
    return exits


@dataclasses.dataclass(frozen=True, kw_only=True)
class EarlyExit(Method, name="exit"):
    """Chains of one exit: self-speculation with shared keys and values."""

    claim = "accepted / K .551 at K = 3 behind 22 of 28 layers, .84 times as fast (Table 5)"

    file: Path  # of `casspec train-exits`
    layer: int = 0  # of the exit; 0: the deepest
    view: bool = False  # layers of the draft view instead of the target's

    def check_model(self, lm: CassandraForCausalLM) -> None:
        """Check that the exits belong to the model."""
        self._exit(lm)

    def _exit(self, lm: CassandraForCausalLM) -> tuple[Exits, int]:
        exits = _read(self.file, lm)
        layer = self.layer or exits.layers[-1]
        if layer not in exits.heads:
            raise CassandraError(f"layer must be one of {list(exits.layers)}, not {layer}")
        return exits, layer

    def prepare(self, lm: CassandraForCausalLM) -> PreparedNetwork:
        """Prepare the exits; their layers are the target's own."""
        exits, layer = self._exit(lm)
        network = _at_exit(clone(lm, draft=self.view), exits, layer)
        prepared = PreparedNetwork(
            lm,
            network,
            size=_view_size(lm, network) if self.view else None,
            memory=_bytes_of(exits.heads[layer]),
            training_seconds=exits.seconds,
        )
        prepared.prefix_only = not self.view  # the target's keys and values are those of the exit
        return prepared


@dataclasses.dataclass(frozen=True, kw_only=True)
class CascadeExit(Method, name="cascade"):
    """Each drafted token leaves at the first exit that is sure enough; drafting stops after one
    that the deepest exit is not sure of.
    """

    claim = "future work (section 8); without a verifier 1.76 times as fast (Table 3)"

    file: Path  # of `casspec train-exits`
    threshold: float = 0.0  # confidence at which a token leaves; 0: those in the file
    stop: float = 0.0  # drafting stops below this confidence of the token

    def __post_init__(self) -> None:
        for field in ("threshold", "stop"):
            value = getattr(self, field)
            if not 0 <= value <= 1:
                raise CassandraError(f"{field} must be from 0 to 1, not {value}")

    def check(self, settings: Settings) -> None:
        """Refuse levels: a pass of the cascade is over one token."""
        super().check(settings)
        if settings.uses_low_drafter:
            raise CassandraError(f"draft must be model with {self.name}, not {settings.draft}")

    def check_model(self, lm: CassandraForCausalLM) -> None:
        """Check that the exits belong to the model."""
        _read(self.file, lm)

    def prepare(self, lm: CassandraForCausalLM) -> PreparedCascade:
        """Prepare the exits; their layers are the target's own."""
        exits = _read(self.file, lm)
        thresholds = dict.fromkeys(exits.layers, self.threshold)
        return PreparedCascade(
            lm, exits, thresholds if self.threshold else dict(exits.thresholds), self.stop
        )


@dataclasses.dataclass(frozen=True)
class CascadePass(DraftPass):
    """A draft pass through some exits."""

    segments: tuple[Segment, ...] = ()


class PreparedCascade(PreparedNetwork):
    """Exits one after another (:class:`cassandra_spec.lab.baselines.Prepared`)."""

    def __init__(
        self,
        lm: CassandraForCausalLM,
        exits: Exits,
        thresholds: dict[int, float],
        stop: float,
    ) -> None:
        network = _at_exit(clone(lm), exits, exits.layers[-1])
        memory = sum(_bytes_of(head) for head in exits.heads.values())
        super().__init__(lm, network, memory=memory, training_seconds=exits.seconds)
        self._lm, self._exits, self._thresholds, self._stop = lm, exits, thresholds, stop
        layers = [_size_of(layer, lm) for layer in lm.network.model.layers[: exits.layers[-1]]]
        self._layers = layers
        self._end = _less(self.size, layers)

    def drafter(
        self,
        session: ModelSession,
        settings: Settings,
        seed: int,
        table: Candidates | None = None,
    ) -> Drafter:
        """Make a drafter of chains, with one pass per token."""
        cascade = Cascade(
            self._lm.network,
            self._exits,
            session.cache,
            self._thresholds,
            whole=False,
            rows=session.rows,
            draft=True,
        )
        view = _CascadeView(cascade, settings, seed, self._stop)
        policy = make_policy(settings, PassBytes(self), max_nodes=MAX_PLANNED_NODES)
        return _CascadeDrafter(LevelDrafter(None, view, policy, settings), cascade, view)

    def alone(self) -> Speaker:
        """Return the lossy cascade."""
        return self._cascade

    def _cascade(
        self, prompt: Sequence[int], most: int, stop_tokens: frozenset[int]
    ) -> tuple[list[int], int]:
        made = generate(
            self._lm,
            self._exits,
            prompt,
            max_tokens=most,
            stop_tokens=stop_tokens,
            thresholds=self._thresholds,
        )
        tokens = [token for token, _ in made]
        return tokens, len(tokens)

    def draft_cost(self, position: int, drafted: DraftPass) -> PassCost:
        """Return the cost of a draft pass of a round at ``position``: all its segments, and one
        head.
        """
        if not isinstance(drafted, CascadePass):
            return super().draft_cost(position, drafted)
        total = self._end.cost(position + drafted.start, 1)
        for segment in drafted.segments:
            for layer in segment.layers:
                total += self._layers[layer].cost(segment.start, segment.rows)
        return total


class _CascadeView(PassView):
    """Draft passes of a cascade; a margin is how far the confidence is above the least one."""

    def __init__(self, cascade: Cascade, settings: Settings, seed: int, stop: float) -> None:
        super().__init__(self, settings, seed)
        self._cascade, self._least = cascade, logit(stop)
        self.segments: list[tuple[Segment, ...]] = []

    def draft(self, pending: int, nodes: Sequence[Node], position: int) -> torch.Tensor:
        """Compute the logits [1, vocabulary] of one token."""
        assert not nodes, "a cascade drafts chains"
        step = self._cascade.step(pending)
        self._confidence = step.confidence
        self.segments.append(step.segments)
        return step.logits[None]

    def margin(self, row: int, apart: float) -> float:
        return self._confidence - self._least

    def keep(self, path: Sequence[int]) -> None:
        """Keep the drafted path; a chain has no branches to drop."""


class _CascadeDrafter:
    """A drafter whose cascade is told where a round begins, and whose passes say how deep they were
    (:class:`cassandra_spec.drafting.Drafter`).
    """

    def __init__(self, inner: LevelDrafter, cascade: Cascade, view: _CascadeView) -> None:
        self._inner, self._cascade, self._view = inner, cascade, view

    def propose(self, context: Sequence[int], budget: int) -> Proposal:
        self._cascade.begin(len(context) - 1)
        self._view.segments.clear()
        proposal = self._inner.propose(context, budget)
        passes = tuple(
            CascadePass(each.start, each.rows, each.seconds, segments)
            for each, segments in zip(proposal.passes, self._view.segments, strict=True)
        )
        return dataclasses.replace(proposal, passes=passes)

    def observe(self, outcome: Outcome) -> None:
        self._inner.observe(outcome)


def _bytes_of(head: Exit) -> int:
    return sum(each.numel() * each.element_size() for each in head.parameters())


def _size_of(layer: Any, lm: CassandraForCausalLM) -> NetworkSize:
    """Return the size of one layer of a model."""
    alone = types.SimpleNamespace(modules=layer.modules, config=lm.network.config)
    return NetworkSize.of(alone)


def _less(whole: NetworkSize, parts: Sequence[NetworkSize]) -> NetworkSize:
    """Subtract parts from a size."""
    fields = [field.name for field in dataclasses.fields(NetworkSize)]
    return NetworkSize(
        **{name: getattr(whole, name) - sum(getattr(p, name) for p in parts) for name in fields}
    )


def _view_size(lm: CassandraForCausalLM, network: Any) -> NetworkSize:
    """Return the size of layers of the draft view: their share of its bytes of packed layers."""
    whole = NetworkSize.of(lm.network)
    size = NetworkSize.of(network)
    weights = lm.costs.weights
    return dataclasses.replace(size, weights=round(size.weights * weights.draft / whole.weights))
