"""Layer skipping (Draft & Verify): the target without some of its layers drafts.

The skipped set is given, or searched on development prompts. The search takes an attention and a
feed-forward part of each layer for itself. It orders the parts by how often a draft without that
part alone still predicts the target's next token, and leaves one after another out: of the next
four, the one with the largest expected traffic speed-up (1 - a^(g+1)) / (1 - a) / (g c + 1), where
a is the share of tokens predicted, c the draft's bytes by the target's, g the best gamma up to 8.
It ends when the set is as large as asked for: on a small model the empty one would be the best.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
import time
from typing import Any

import torch

from cassandra_spec.bench.study.emulation import greedy_replies
from cassandra_spec.bench.study.prompts import bundled_prompts
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines import Method, NetworkSize, PreparedNetwork, clone
from cassandra_spec.lab.baselines.teacher_forced import predicted_together
from cassandra_spec.model.speculative import CassandraForCausalLM

_TOKENS = 48  # of a development reply
_GAMMAS = range(1, 9)
_TRIED = 4  # parts of each step

Part = tuple[str, int]
"""``self_attn`` or ``mlp``, and the number of the layer."""


class _Nothing(torch.nn.Module):
    """Adds nothing to the residual stream, in the place of attention or a feed-forward part."""

    def forward(self, x: torch.Tensor | None = None, **arguments: Any) -> Any:
        """Return zeros like ``x``, or like ``hidden_states`` (with None as attention weights)."""
        return (torch.zeros_like(arguments["hidden_states"]), None) if x is None else x * 0


def without(lm: CassandraForCausalLM, parts: set[Part]) -> Any:
    """Clone the target without some parts of its layers."""
    network = clone(lm)
    for name, number in parts:
        setattr(network.model.layers[number], name, _Nothing())
    return network


@dataclasses.dataclass(frozen=True, kw_only=True)
class Skip(Method, name="skip"):
    """The layers, and the parts of others, that a draft leaves out."""

    compared = ("skip:search=4",)
    claim = "70.7 % of the weights are still read (Cassandra, section VII.B)"

    layers: tuple[int, ...] = ()
    attention: tuple[int, ...] = ()
    mlp: tuple[int, ...] = ()
    search: int = 0  # development prompts to search the set with
    share: float = 0.1  # smallest share of the weights that a searched set leaves out
    own: bool = False  # keys and values of its own instead of the target's

    def __post_init__(self) -> None:
        if not (self.search or self.layers or self.attention or self.mlp):
            raise CassandraError("layers must be the numbers of those to skip, not left out")
        if not 0 < self.share < 1:
            raise CassandraError(f"share must be above 0 and below 1, not {self.share}")
        most = len(bundled_prompts("development"))
        if not 0 <= self.search <= most:
            raise CassandraError(f"search must be from 0 to {most} prompts, not {self.search}")

    @property
    def parts(self) -> set[Part]:
        """Return all skipped parts."""
        attention = {("self_attn", n) for n in (*self.layers, *self.attention)}
        return attention | {("mlp", n) for n in (*self.layers, *self.mlp)}

    def check_model(self, lm: CassandraForCausalLM) -> None:
        """Check that the model has the layers."""
        count = len(lm.network.model.layers)
        for _, number in sorted(self.parts):
            if not 0 <= number < count:
                raise CassandraError(f"layers must be from 0 to {count - 1}, not {number}")

    def prepare(self, lm: CassandraForCausalLM) -> PreparedNetwork:
        """Search for the set if that is asked for; its time is the training time."""
        self.check_model(lm)
        start, parts = time.monotonic(), self.parts
        if self.search:
            parts = Search(lm, self.search, self.share).run()
        prepared = PreparedNetwork(
            lm,
            without(lm, parts),
            own=self.own,
            training_seconds=time.monotonic() - start if self.search else 0.0,
        )
        prepared.about = written(parts)
        return prepared


def written(parts: set[Part]) -> str:
    """Format a set of parts as the options of the method."""
    numbers = {
        key: ",".join(str(n) for name, n in sorted(parts) if name == kind)
        for key, kind in {"attention": "self_attn", "mlp": "mlp"}.items()
    }
    return ":".join(["skip", *(f"{key}={value}" for key, value in numbers.items() if value)])


class Search:
    """The greedy search for a skipped set of a share of the weights, on development prompts."""

    def __init__(self, lm: CassandraForCausalLM, prompts: int, share: float) -> None:
        self._lm = lm
        texts = [prompt.text for prompt in bundled_prompts("development")][:prompts]
        self._replies = greedy_replies(
            clone(lm),
            [lm.encode_prompt(text) for text in texts],
            max_tokens=_TOKENS,
            stop_tokens=lm.stop_tokens(),
        )
        self._bytes = NetworkSize.of(lm.network).weights
        self._most = (1 - share) * self._bytes

    def run(self) -> set[Part]:
        """Search the parts to skip."""
        every = [(kind, n) for kind in ("self_attn", "mlp") for n in range(self._layers)]
        order = sorted(every, key=lambda part: -self.agreement({part})[0])
        chosen = set[Part]()
        while order and NetworkSize.of(without(self._lm, chosen)).weights > self._most:
            best = max(order[:_TRIED], key=lambda part: self.speedup(chosen | {part}))
            chosen.add(best)
            order.remove(best)
        return chosen

    @property
    def _layers(self) -> int:
        return len(self._lm.network.model.layers)

    def agreement(self, parts: set[Part]) -> tuple[float, float]:
        """Share of the replies' tokens that a draft predicts, and its bytes by the target's."""
        network = without(self._lm, parts)
        read = NetworkSize.of(network).weights / self._bytes
        pairs = list(zip(self._replies.prompts, self._replies.replies, strict=True))
        known = [((*prompt, *reply[:-1]), len(reply)) for prompt, reply in pairs]
        said = itertools.chain.from_iterable(predicted_together(network, known))
        answers = list(itertools.chain.from_iterable(self._replies.replies))
        return sum(map(operator.eq, said, answers)) / len(answers), read

    def speedup(self, parts: set[Part]) -> float:
        """Return the expected traffic speed-up at the best gamma, without keys and values."""
        a, c = self.agreement(parts)
        return max(sum(a**n for n in range(g + 1)) / (g * c + 1) for g in _GAMMAS)
