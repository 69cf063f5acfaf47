"""Rounds of sequences in the slots of an engine (:class:`cassandra_spec.drafting.Runtime`)."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.drafting import (
    ADAPTIVE,
    DraftPass,
    Gains,
    KeyValueCounters,
    Others,
    Outcome,
    Part,
    Pick,
    Plan,
    Proposal,
    ReadBytes,
    Result,
    Sampling,
    Settings,
    fixed_plan,
)
from cassandra_spec.golden import CassandraError
from cassandra_spec.native.engine_binding import (
    DRAFT,
    VERIFY,
    WHOLE,
    RoundRequest,
    RoundResult,
    RoundTimes,
    nodes_of,
    passes_of,
    pick_row,
    round_request,
    set_nodes,
)
from cassandra_spec.native.limits import MAX_GAMMA, PROMPT_ROWS
from cassandra_spec.native.passes import Passes

PROMPT_SHARE = 32
"""Maximum rows of prompts in a pass beside sequences that are being decoded."""

PLAIN_OBSERVED = 4
"""Rounds without drafts of several sequences for each one that the engine learns from."""


PLAIN = Plan()


class ClaimedSlots(Protocol):
    """Slots to claim (:mod:`.slots`)."""

    @property
    def free(self) -> int:
        """Number of slots that can be claimed."""

    def claim(self, prompt: Sequence[int], running: Mapping[int, Sequence[int]]) -> tuple[int, int]:
        """Claim a slot for a prompt; return it and the number of prompt tokens cached in it."""

    def release(self, slot: int, tokens: Sequence[int]) -> None:
        """Free a slot, in which some tokens have been read."""

    def close(self) -> None:
        """Give back all free slots."""


@dataclasses.dataclass
class _Slot:
    """A running sequence."""

    history: NDArray[np.int32]  # tokens that were read, [context + 1]
    stops: NDArray[np.int32]
    gains: Gains | None  # what drafts gain; None: the gamma is fixed
    known: int = 0  # length of the history
    plan: Plan = PLAIN  # the last round's

    def read(self, tokens: Sequence[int]) -> None:
        """Append the tokens that are not in the history yet."""
        self.history[self.known : len(tokens)] = tokens[self.known :]
        self.known = len(tokens)


class EngineRuntime:
    """Rounds of sequences in some slots of an engine; passes are shared by all of them."""

    def __init__(self, engine: Passes, slots: ClaimedSlots) -> None:
        self._engine, self._slots = engine, slots
        self._running: dict[int, _Slot] = {}
        self._plain = 0  # rounds in a row without drafts

    @property
    def free(self) -> int:
        """Number of free slots."""
        return self._slots.free

    def picker(
        self, logits: NDArray[np.float32], sampling: Sampling, seed: int, position: int
    ) -> Pick:
        """Choose a token from a row of logits, as the engine does (:func:`.pick_row`)."""
        return pick_row(logits, sampling, seed, position)

    def claim(
        self, prompt: Sequence[int], settings: Settings, running: Mapping[int, Sequence[int]]
    ) -> tuple[int, int]:
        """Claim a slot for a prompt; return it and the number of prompt tokens cached in it."""
        engine = self._engine
        engine.require_room(prompt, settings)
        engine.require_rounds(settings)
        known = prompt[:1] if settings.prompt_logprobs else prompt
        slot, cached = self._slots.claim(known, running)
        history = np.zeros(engine.context + 1, np.int32)
        stops = np.array(sorted(settings.stop_tokens), np.int32)
        self._running[slot] = _Slot(history, stops, self._gains(settings))
        engine.begin(slot)
        return slot, cached

    def _gains(self, settings: Settings) -> Gains | None:
        if settings.gamma != ADAPTIVE or settings.draft == "none":
            return None
        nodes = {"max_nodes": MAX_GAMMA} if self._engine.streamed() else {}  # drafts are cheap then
        return self._engine.planning.gains(settings, **nodes)

    def release(self, slot: int, tokens: Sequence[int]) -> None:
        """Free a slot, in which some tokens have been read."""
        del self._running[slot]
        self._slots.release(slot, tokens)

    def close(self) -> None:
        """Give back all free slots."""
        self._slots.close()

    def share(self, waiting: Mapping[int, int]) -> tuple[dict[int, int], int]:
        """Return the number of tokens to read of each slot, and the maximum nodes of drafts."""
        budget = PROMPT_ROWS // len(waiting) - 1
        decoding = sum(count == 1 for count in waiting.values())
        free = PROMPT_ROWS - decoding * (1 + min(budget, MAX_GAMMA))
        free = min(free, PROMPT_SHARE) if decoding else free
        counts, prompts = dict.fromkeys(waiting, 1), len(waiting) - decoding
        free -= prompts
        for slot, count in waiting.items():
            more = min(count - 1, free)
            counts[slot], free = 1 + more, free - more
        return counts, budget

    def settle(self, part: Part, outcome: Outcome, tokens: int) -> KeyValueCounters | None:
        """Return the KV cache traffic of a round that emitted ``tokens``."""
        if part.prompt:
            return None
        return self._engine.reads(outcome, part.position, tokens, part.settings.draft_cache)

    def stored(self, slot: int) -> ReadBytes | None:
        """Return None: slots keep their memory."""
        return None

    # --- rounds ----------------------------------------------------------------------------------

    def round(self, parts: Sequence[Part]) -> list[Result]:
        """Run a round: draft, verify, and choose the tokens of each part."""
        for part in parts:
            self._running[part.slot].read(part.tokens)
        self._plan(parts)
        requests = (RoundRequest * len(parts))(*map(self._request, parts))
        results = (RoundResult * len(parts))()
        if any(part.needs_logits for part in parts):
            round_results = self._in_stages(parts, requests, results)
        else:
            times = self._engine.run_round(requests, results, WHOLE)
            proposals = _proposals(results, times)
            round_results = self._results(parts, proposals, results, times)
        self._observe(parts, round_results)
        return round_results

    def _plan(self, parts: Sequence[Part]) -> None:
        """Set the plan of each part's slot."""
        adaptive = list[Part]()
        for part in parts:
            slot, gamma = self._running[part.slot], part.settings.gamma
            slot.plan = PLAIN
            if slot.gains is not None and part.budget:
                adaptive.append(part)
            elif gamma != ADAPTIVE and part.budget:
                slot.plan = fixed_plan(part.settings, int(gamma))
        if not adaptive:
            return
        planned = {part.slot for part in adaptive}
        rest = [part for part in parts if part.slot not in planned]
        prompts = sum(part.prompt for part in rest)
        others = Others(
            rows=sum(part.count + self._running[part.slot].plan.rows for part in rest),
            plain=len(rest) - prompts,
            prompts=prompts,
        )
        planner = self._engine.planning.planner(adaptive[0].settings)
        gains = [each for part in adaptive if (each := self._running[part.slot].gains)]
        positions = [part.position for part in adaptive]
        plans = planner.plan(gains, positions, others)
        for part, plan in zip(adaptive, plans, strict=True):
            self._running[part.slot].plan = plan

    def _request(self, part: Part) -> RoundRequest:
        slot = self._running[part.slot]
        return round_request(
            part, slot.plan, slot.history, slot.stops, self._engine.config.vocabulary
        )

    def _in_stages(
        self,
        parts: Sequence[Part],
        requests: ctypes.Array[RoundRequest],
        results: ctypes.Array[RoundResult],
    ) -> list[Result]:
        """Run a round in which the tokens of some parts are chosen from logits."""
        for part, request in zip(parts, requests, strict=True):
            if not part.chooser.drafts(part.budget):
                request.model = request.rows = request.tree = 0
        times = self._engine.run_round(requests, results, DRAFT)
        proposals = [
            part.chooser.guide(proposal, part.budget)
            for part, proposal in zip(parts, _proposals(results, times), strict=True)
        ]
        for result, proposal in zip(results, proposals, strict=True):
            set_nodes(result, proposal.nodes)
        verified = self._engine.run_round(requests, results, VERIFY)
        return self._results(parts, proposals, results, verified)

    def _results(
        self,
        parts: Sequence[Part],
        proposals: Sequence[Proposal],
        results: ctypes.Array[RoundResult],
        times: RoundTimes,
    ) -> list[Result]:
        """Return the outcomes of all parts; those that need logits choose here."""
        rows = [part.count + len(each.nodes) for part, each in zip(parts, proposals, strict=True)]
        round_results = []
        for part, proposal, result, own in zip(parts, proposals, results, rows, strict=True):
            seconds = times.verify_seconds * own / sum(rows)
            outcome = partial(Outcome, proposal=proposal, verify_seconds=seconds)
            try:
                path, token = self._chosen(part, proposal, result)
            except CassandraError as error:  # a processor failed; the other sequences continue
                round_results.append(Result(error=error))
            else:
                round_results.append(
                    Result(outcome=outcome(path=path), token=token, seconds=seconds)
                )
        return round_results

    def _chosen(
        self, part: Part, proposal: Proposal, result: RoundResult
    ) -> tuple[tuple[int, ...], int | None]:
        """Return the accepted nodes of a part, and the token after them, if any."""
        if not part.needs_logits:
            path = tuple(result.path[: result.accepted])
            return path, result.next if part.ends else None
        if not part.wanted:
            return (), None
        rows = part.wanted + len(proposal.nodes)
        logits = self._engine.last_logits(result.logits, rows)
        if part.scored:
            part.chooser.read_prompt(part.position, logits)
        if not part.ends:
            return (), None
        path, token = part.chooser.choose(proposal, logits[part.wanted - 1 :])
        self._engine.keep(part.slot, part.position, path)
        return path, token

    def _observe(self, parts: Sequence[Part], results: Sequence[Result]) -> None:
        """Learn from a round what passes cost and what drafts gain.

        For several sequences that takes some per cent of a pass, and without drafts there is little
        to learn.
        """
        self._plain = 0 if any(result.outcome.drafted for result in results) else self._plain + 1
        if len(parts) > 1 and self._plain and self._plain % PLAIN_OBSERVED != 1:
            return
        planning = self._engine.planning
        adaptive = list[Part]()
        for part, result in zip(parts, results, strict=True):
            slot = self._running[part.slot]
            if slot.gains is None or result.error is not None:
                continue
            adaptive.append(part)
            if not part.prompt:
                planning.observe(part.settings, slot.gains, result.outcome, slot.plan)
        if adaptive and not any(result.error for result in results):
            costs = planning.planner(adaptive[0].settings).costs
            outcomes = [result.outcome for result in results]
            counts = [part.count for part in parts]
            costs.observe([part.position for part in parts], outcomes, counts)


def _proposals(results: ctypes.Array[RoundResult], times: RoundTimes) -> list[Proposal]:
    """Return the proposals of a round; the time of a shared pass is divided by rows."""
    own = [passes_of(result) for result in results]
    rows = [sum(passes[at][1] for passes in own if len(passes) > at) for at in range(times.passes)]
    return [
        Proposal(
            nodes=nodes_of(result),
            passes=tuple(
                DraftPass(start, count, times.pass_seconds[at] * count / rows[at])
                for at, (start, count) in enumerate(passes)
            ),
            stopped=bool(result.stopped),
        )
        for result, passes in zip(results, own, strict=True)
    ]
