"""Draft with FractalLLM: a compressed copy of all layers within some layers of the target.

One phase drafts w + n + 1 tokens. The last token and w placeholder slots pass the target's layers.
Before layer i_k (k = 1 to n, evenly spaced) the copy takes over: its upper layers and head predict
a token for every row, one token more than there were slots; its embedding and lower layers compute
the hidden states of these tokens, and the last token keeps its own hidden state. So the window is w
+ k after the k-th fractal layer, and the target's head predicts w + n + 1 tokens. Each fractal
layer makes one more of them correct, as far as the copy agrees with the target.

Keys and values of the prefix are the target's, for the copy, too: no hidden state of the prefix
changes, so those of the target's layers are exact.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch

from cassandra_spec.drafting import (
    Candidates,
    Drafter,
    DraftPass,
    Outcome,
    Proposal,
    Settings,
)
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines import Method, NetworkSize, PassCost, Prepared, clone
from cassandra_spec.lab.baselines.quantized import quantized_clone, stored_bytes
from cassandra_spec.lab.stack import Stack, require_stack
from cassandra_spec.model.speculative import CassandraForCausalLM, ModelSession

FRACTAL = "fractal"
"""Source of its nodes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fractal(Method, name="fractal"):
    """n fractal layers, a window of w slots; the copy has ``bits`` bits, or with 16 all of them."""

    compared = ("fractal", "fractal:n=8:w=8")
    claim = "7.74 accepted per verification at n = w = 7; 1.20 to 2.47 times as fast"

    n: int = 7
    w: int = 7
    bits: int = 8
    group: int = 64  # inputs that share a scale
    slots: Literal["last", "end", "rest"] = "last"  # initial content of the slots: the last token,
    # 0, or what was drafted behind the first rejected token

    def __post_init__(self) -> None:
        for name, least in {"n": 1, "w": 0, "group": 1}.items():
            if getattr(self, name) < least:
                raise CassandraError(f"{name} must be at least {least}, not {getattr(self, name)}")
        if self.bits not in (4, 8, 16):
            raise CassandraError(f"bits must be 4, 8 or 16, not {self.bits}")

    def check_model(self, lm: CassandraForCausalLM) -> None:
        """Check that the model has the layers, and room for a window."""
        require_stack(lm.network)
        count, most = len(lm.network.model.layers), lm.network.config.max_position_embeddings
        if self.n > count:
            raise CassandraError(f"n must be at most the model's {count} layers, not {self.n}")
        if self.w + self.n + 1 >= most:
            raise CassandraError(
                f"w and n must fit the model's {most} positions, not be {self.w + self.n}"
            )

    def prepare(self, lm: CassandraForCausalLM) -> Prepared:
        """Prepare the copy, which takes memory beside the target, once for all fractal layers."""
        self.check_model(lm)
        return _Prepared(lm, self)


class _Prepared(Prepared):
    def __init__(self, lm: CassandraForCausalLM, method: Fractal) -> None:
        exact = method.bits == 16
        self._network = lm.network
        self._copy = (
            clone(lm) if exact else quantized_clone(lm, bits=method.bits, group=method.group)
        )
        super().__init__(lm, memory=0 if exact else stored_bytes(self._copy))
        self._method, self._size = method, NetworkSize.of(self._copy)

    def drafter(
        self,
        session: ModelSession,
        settings: Settings,
        seed: int,
        table: Candidates | None = None,
    ) -> Drafter:
        target, copy = (
            Stack(network, session.cache, session.rows, draft=True)
            for network in (self._network, self._copy)
        )
        return FractalDrafter(target, copy, self._method, session.cache.capacity)

    def draft_cost(self, position: int, drafted: DraftPass) -> PassCost:
        """Return the cost of all layers and the head, n times in the copy and once in the
        target.
        """
        rows = [drafted.rows - self._method.n + k for k in range(self._method.n + 1)]
        copies = [self._size.cost(position, max(count, 1)) for count in rows[:-1]]
        config = self._network.config
        head = 2 * config.vocab_size * config.hidden_size
        layers = [self._target.cost(position, max(count, 1)).flops - head * count for count in rows]
        shares = np.diff([0, *_fractal_layers(len(self._network.model.layers), len(copies)), 0])
        shares[-1] = len(self._network.model.layers) - shares[:-1].sum()
        main = dataclasses.replace(
            self._target.cost(position, drafted.rows),
            flops=float(shares @ layers) / shares.sum() + head * drafted.rows,
        )
        return functools.reduce(PassCost.__add__, copies, main)


def _fractal_layers(layers: int, n: int) -> list[int]:
    """Return the numbers, from 0, of the layers before which the copy is inserted."""
    return [(k + 1) * layers // n - 1 for k in range(n)]


class FractalDrafter:
    """Phases of one reply (:class:`cassandra_spec.drafting.Drafter`)."""

    def __init__(self, target: Stack, copy: Stack, method: Fractal, capacity: int) -> None:
        self._target, self._copy, self._method = target, copy, method
        self._capacity = capacity
        self._rest: list[int] = []

    @torch.inference_mode()
    def propose(self, context: Sequence[int], budget: int) -> Proposal:
        """Propose a chain of w + n + 1 tokens, or fewer at the end of a reply."""
        if not budget:
            return Proposal()
        pending, position = context[-1], len(context) - 1
        room = self._capacity - len(context)
        hidden, done = self._target.embed([pending, *self._slots(pending)[:room]]), 0
        for layer in _fractal_layers(self._target.count, self._method.n):
            hidden = self._target.run(hidden, position, range(done, layer))
            tokens = self._fractal(hidden, position, layer)[:room]
            hidden, done = self._merged(hidden, tokens, position, layer), layer
        hidden = self._target.run(hidden, position, range(done, self._target.count))
        logits = self._target.logits(hidden, position)
        first, second = logits.topk(2).values.T
        margins, best = (first - second).tolist(), logits.argmax(-1).tolist()  # the first of equals
        chain = Proposal.chain(best[:budget], margins[:budget], FRACTAL)
        return dataclasses.replace(chain, passes=(DraftPass(0, len(margins)),))

    def _slots(self, pending: int) -> list[int]:
        """Return the initial tokens of the slots."""
        rest = self._rest if self._method.slots == "rest" else []
        slot = 0 if self._method.slots == "end" else pending
        return [*rest, *[slot] * self._method.w][: self._method.w]

    def _fractal(self, hidden: torch.Tensor, position: int, layer: int) -> list[int]:
        """Predict a token after every row by the copy's upper layers and head."""
        upper = self._copy.run(hidden, position, range(layer, self._copy.count))
        found: list[int] = self._copy.logits(upper, position).argmax(-1).tolist()
        return found

    def _merged(
        self, hidden: torch.Tensor, tokens: list[int], position: int, layer: int
    ) -> torch.Tensor:
        """Join the last token's hidden state and those of new tokens by the copy's lower layers."""
        embedded = self._copy.embed(tokens)
        lower = self._copy.run(embedded, position + 1, range(layer))
        return torch.cat([hidden[:1], lower])

    def observe(self, outcome: Outcome) -> None:
        """Remember what was drafted behind the first rejected token."""
        self._rest = list(outcome.proposal.tokens[outcome.accepted + 1 :])
