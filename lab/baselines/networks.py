"""Drafts that are another network over the same sequence.

Its keys and values are the target's, as far as the target has computed them, or its own. A pass
over a tree is a :class:`cassandra_spec.model.speculative.trees.TreePass` in both cases, so
:class:`cassandra_spec.drafting.LevelDrafter` drafts chains and trees with it, alone or with a low
drafter below it.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from cassandra_spec.drafting import (
    Candidates,
    Drafter,
    DraftPass,
    Node,
    Outcome,
    Proposal,
    Settings,
    make_drafter,
)
from cassandra_spec.lab.baselines.costs import NetworkSize, PassCost
from cassandra_spec.lab.baselines.method import Prepared, Speaker
from cassandra_spec.lab.baselines.teacher_forced import predicted_together
from cassandra_spec.model.speculative import (
    CassandraForCausalLM,
    KeyValueCache,
    ModelSession,
    PackedLinear,
    run_pass,
)
from cassandra_spec.model.speculative.linear import Mode
from cassandra_spec.model.speculative.tiles import ROWS
from cassandra_spec.model.speculative.trees import TreePasses


def clone(lm: CassandraForCausalLM, *, draft: bool = False) -> Any:
    """Clone the network of a model, with modules of its own and the same tensors.

    Modules of it may be replaced or left out; the target stays as it is. With ``draft``, packed
    layers are the draft view.
    """
    mode = Mode()
    mode.draft = draft
    shared = [*lm.network.parameters(), *lm.network.buffers()]
    shared += [m.products for m in lm.network.modules() if isinstance(m, PackedLinear)]
    memo: dict[int, Any] = {id(each): each for each in shared}
    return copy.deepcopy(lm.network, memo | {id(lm.mode): mode})


class SharedPasses(TreePasses):
    """Passes of a network on the keys and values of a session
    (:class:`cassandra_spec.drafting.DraftPasses`).
    """

    def draft(self, pending: int, nodes: Sequence[Node], position: int) -> torch.Tensor:
        """Compute the logits, float32 [1 + nodes, vocabulary], of a tree."""
        return self.run(pending, nodes, position, draft=True)


class OwnPasses(SharedPasses):
    """Passes of a network on keys and values of its own.

    The first pass of a round also runs over the tokens of the context that the network has not
    seen yet: the prompt, and what the rounds since have emitted.
    """

    def __init__(self, network: Any, capacity: int, rows: int) -> None:
        super().__init__(network, KeyValueCache(capacity), rows)
        self._seen: list[int] = []  # tokens whose keys and values are written
        self._context: Sequence[int] = ()
        self._tokens: list[int] = []  # of the last pass

    def begin(self, context: Sequence[int]) -> int:
        """Set the context of a round; return the number of unseen tokens before its last one."""
        same = common_prefix(self._seen, context)
        self._context = context
        del self._seen[min(same, len(context) - 1) :]
        return len(context) - 1 - len(self._seen)

    def draft(self, pending: int, nodes: Sequence[Node], position: int) -> torch.Tensor:
        """Compute the logits of a tree, after a pass over tokens not seen yet."""
        first = len(self._seen)
        if first < position:
            unseen = self._context[first:position]
            run_pass(self.network, self.cache, unseen, first, rows=self.rows, last=1, draft=True)
            self._seen += unseen
        self._tokens = [pending, *(node.token for node in nodes)]
        del self._seen[position:]
        return super().draft(pending, nodes, position)

    def keep(self, path: Sequence[int]) -> None:
        """Keep a path, like :meth:`SharedPasses.keep`."""
        super().keep(path)
        self._seen += [self._tokens[0], *(self._tokens[node + 1] for node in path)]


def common_prefix(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Return the length of the common prefix of two sequences."""
    pairs = zip(ours, theirs, strict=False)
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))


class _OwnDrafter:
    """A drafter whose passes are told the context first (:class:`cassandra_spec.drafting.Drafter`).

    The tokens that the network catches up on are rows of the first pass.
    """

    def __init__(self, inner: Drafter, passes: OwnPasses) -> None:
        self._inner, self._passes = inner, passes
        self.observe: Callable[[Outcome], None] = inner.observe

    def propose(self, context: Sequence[int], budget: int) -> Proposal:
        unseen = self._passes.begin(context)
        proposal = self._inner.propose(context, budget)
        if not (proposal.passes and unseen):
            return proposal
        first, *others = proposal.passes
        longer = dataclasses.replace(first, start=first.start - unseen, rows=first.rows + unseen)
        return dataclasses.replace(proposal, passes=(longer, *others))


class PreparedNetwork(Prepared):
    """A network that drafts (:class:`cassandra_spec.lab.baselines.Prepared`).

    ``size`` is that of its passes, by default of all its modules; ``own`` says whose keys and
    values it reads. ``memory`` is the bytes beside those of the target.
    """

    def __init__(
        self,
        lm: CassandraForCausalLM,
        network: Any,
        *,
        own: bool = False,
        size: NetworkSize | None = None,
        memory: int = 0,
        training_seconds: float = 0.0,
    ) -> None:
        super().__init__(lm, memory=memory, training_seconds=training_seconds)
        self.network, self.own, self.prefix_only = network, own, own
        self.size = NetworkSize.of(network) if size is None else size
        self._attentions = [each for each in network.modules() if hasattr(each, "layer_idx")]
        if own:
            self._number(range(len(self._attentions)))

    def _number(self, places: Iterable[int]) -> None:
        """Say where each layer's keys and values are in a cache."""
        for attention, place in zip(self._attentions, places, strict=True):
            attention.layer_idx = place

    def cache(self, session: ModelSession) -> Any:
        """Return the view of a session's keys and values for the network's passes."""
        return session.cache

    def drafter(
        self,
        session: ModelSession,
        settings: Settings,
        seed: int,
        table: Candidates | None = None,
    ) -> Drafter:
        """Make a drafter of the network's chains, within levels if the settings have them."""
        if not self.own:
            shared = SharedPasses(self.network, self.cache(session), session.rows)
            return make_drafter(
                session, settings, seed, table, passes=shared, costs=PassBytes(self)
            )
        own = OwnPasses(self.network, session.cache.capacity, session.rows)
        made = make_drafter(session, settings, seed, table, passes=own, costs=PassBytes(self))
        return _OwnDrafter(made, own)

    def draft_cost(self, position: int, drafted: DraftPass) -> PassCost:
        """Return the cost of a draft pass of a round at ``position``."""
        return self.size.cost(position + drafted.start, drafted.rows)

    @torch.inference_mode()
    def predictions(self, tokens: Sequence[int], last: int) -> list[int]:
        """Predict the token after each of the last ones, with the network's own keys and values."""
        cache = KeyValueCache(len(tokens))
        logits = run_pass(self.network, cache, tokens, 0, rows=ROWS, last=last, draft=True)
        return [int(token) for token in logits.argmax(-1)]

    def predicted(self, tokens: Sequence[int], last: int) -> list[int]:
        """Predict the same tokens, all positions in the same products."""
        return predicted_together(self.network, [(tokens, last)])[0]

    def alone(self) -> Speaker | None:
        """Return a speaker of the network itself, with its own keys and values."""
        return self._speak

    @torch.inference_mode()
    def _speak(
        self, prompt: Sequence[int], most: int, stop_tokens: frozenset[int]
    ) -> tuple[list[int], int]:
        cache, tokens, seen = KeyValueCache(len(prompt) + most), list(prompt), 0
        places = [each.layer_idx for each in self._attentions]
        self._number(range(len(places)))
        while len(tokens) < cache.capacity and not (seen and tokens[-1] in stop_tokens):
            new = tokens[seen:]
            logits = run_pass(self.network, cache, new, seen, rows=ROWS, last=1, draft=True)
            seen = len(tokens)
            tokens.append(int(logits[0].argmax()))
        self._number(places)
        return tokens[len(prompt) :], len(tokens) - len(prompt)


class PassBytes:
    """Bytes that passes read (:class:`cassandra_spec.drafting.PassCosts`)."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared

    def draft(self, positions: Sequence[int], rows: int) -> float:
        """Return the cost of one draft pass."""
        return self._prepared.draft_cost(positions[0], DraftPass(0, rows)).bytes

    def verify(self, positions: Sequence[int], rows: int) -> float:
        """Return the cost of one verification."""
        return self._prepared.verify_cost(positions[0], rows - 1).bytes

    def wants_plain(self, rows: int, recent: int) -> bool:
        """Return False: costs in bytes are known."""
        return False

    def observe(
        self,
        positions: Sequence[int],
        outcomes: Sequence[Outcome],
        counts: Sequence[int] | None = None,
    ) -> None:
        """Ignore the outcomes; costs in bytes are known, not measured."""
