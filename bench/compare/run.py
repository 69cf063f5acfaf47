"""Draft methods on the same prompts: replies compared, acceptance, traffic, operations.

Every turn of every question is answered by plain decoding and by each contender. Everything that is
counted does not depend on the machine's load. Traffic is that of docs/runtime.md: a pass reads its
weights once, and the keys and values of the positions that it sees once; speed-ups are over plain
decoding in BF16.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from cassandra_spec.bench.levels import ALL, Question
from cassandra_spec.drafting import (
    ADAPTIVE,
    Candidates,
    Counters,
    Drafter,
    Outcome,
    Proposal,
    Settings,
    encode_prompt,
)
from cassandra_spec.golden import CassandraError
from cassandra_spec.model.drafters import (
    Method,
    NetworkSize,
    PassCost,
    Prepared,
    known_methods,
    parse_method,
)
from cassandra_spec.model.drafters.costs import NOTHING
from cassandra_spec.model.drafters.teacher_forced import accepted_lengths
from cassandra_spec.model.speculative import CassandraForCausalLM, ModelSession
from cassandra_spec.native.codec import NativeCodec

_CONTENDER = re.compile(r"(?P<method>.+?)(@(?P<gamma>\d+|adaptive))?(?P<low>\+low)?")
_PATH = re.compile(r"=[^:]*/")  # labels name files without their folders


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contender:
    """A method with settings, written ``METHOD[@GAMMA][+low]``; ``+low``: above low drafters."""

    label: str
    method: Method
    settings: Settings

    @classmethod
    def read(cls, text: str, *, gamma: int, max_tokens: int) -> Contender:
        """Raises :class:`CassandraError` in one line."""
        found = _CONTENDER.fullmatch(text)
        if found is None:
            raise CassandraError(f"methods must be METHOD[@GAMMA][+low], not {text!r}")
        given = found["gamma"] or str(gamma)
        settings = Settings(
            gamma=ADAPTIVE if given == ADAPTIVE else int(given),
            draft="hybrid" if found["low"] else "model",
            max_tokens=max_tokens,
        )
        method = parse_method(found["method"])
        method.check(settings)
        return cls(label=_PATH.sub("=", text), method=method, settings=settings)


def default_contenders() -> list[str]:
    """What each method says of itself."""
    return [text for method in known_methods().values() for text in method.compared]


@dataclasses.dataclass
class Tally:
    """Sums over replies by one contender."""

    turns: int = 0
    looped: int = 0  # replies that the loop has made
    identical: int = 0  # of these: to those of plain decoding
    forced: int = 0  # replies that a teacher-forced pass was taken of
    forced_equal: int = 0  # those whose rounds it had as the loop had them
    whole_rounds: int = 0  # whose proposals the end of the reply did not cut
    whole_tokens: int = 0  # of these: accepted, and one more each
    counters: Counters = dataclasses.field(default_factory=Counters)
    draft: PassCost = NOTHING
    verify: PassCost = NOTHING
    plain: PassCost = NOTHING  # of plain decoding of the same tokens in BF16

    def add(self, other: Tally) -> None:
        """Count what another one has counted."""
        self.counters.add(other.counters)
        for name in vars(self).keys() - {"counters"}:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class _Recorder:
    """A drafter that prices its rounds (:class:`cassandra_spec.drafting.Drafter`)."""

    def __init__(self, inner: Drafter, prepared: Prepared, tally: Tally) -> None:
        self._inner, self._prepared, self._tally = inner, prepared, tally
        self._position = self._budget = 0
        self.accepted: list[int] = []  # of each round

    def propose(self, context: Sequence[int], budget: int) -> Proposal:
        self._position, self._budget = len(context) - 1, budget
        return self._inner.propose(context, budget)

    def observe(self, outcome: Outcome) -> None:
        for each in outcome.proposal.passes:
            self._tally.draft += self._prepared.draft_cost(self._position, each)
        self._tally.verify += self._prepared.verify_cost(self._position, outcome.drafted)
        whole = outcome.drafted < self._budget
        self._tally.whole_rounds += whole
        self._tally.whole_tokens += whole * (outcome.accepted + 1)
        self.accepted.append(outcome.accepted)
        self._inner.observe(outcome)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ready:
    """A contender on one of the models."""

    contender: Contender
    label: str
    lm: CassandraForCausalLM
    prepared: Prepared


class Run:
    """Answers to questions by all contenders.

    ``sources`` are packed models of the same tokens: all contenders run on the first one, and the
    first that is Cassandra on each of the others. All are prepared at once: what does not fit is
    refused before anything is generated.
    """

    def __init__(self, sources: Sequence[Path], contenders: Sequence[Contender]) -> None:
        self._lms = {
            source: CassandraForCausalLM.from_pretrained(source, codec=NativeCodec())
            for source in sources
        }
        self.ready: list[Ready] = []
        views = [each for each in contenders if each.method.name == "cassandra"][:1]
        for number, (source, lm) in enumerate(self._lms.items()):
            for each in views if number else contenders:
                label = f"{each.label} ({source.name})" if number else each.label
                prepared = each.method.prepare(lm)
                self.ready.append(Ready(contender=each, label=label, lm=lm, prepared=prepared))
        self.tallies: dict[tuple[str, str], Tally] = {}  # by label and category

    def run(self, questions: Sequence[Question], say: Callable[[str], object]) -> int:
        """Ask all questions, a first one of each category, then a second one, and so on.

        Ctrl-C ends with those so far. Returns how many were answered by all.
        """
        for number, question in enumerate(_in_turn(questions)):
            try:
                found = list(self._answers(question, say))
            except KeyboardInterrupt:
                return number
            for label, tally in found:
                self.add(label, question.category, tally)
            say(f"{number + 1} of {len(questions)} questions, {question.category}")
        return len(questions)

    def add(self, label: str, category: str, tally: Tally) -> None:
        """Count a contender's reply to a question of a category."""
        for name in (ALL, category):
            self.tallies.setdefault((label, name), Tally()).add(tally)

    def _answers(
        self, question: Question, say: Callable[[str], object]
    ) -> Iterator[tuple[str, Tally]]:
        """The replies of all contenders to each turn; the next turn follows the plain reply."""
        first = self.ready[0].lm
        chat: list[dict[str, str]] = []
        for text in question.turns:
            chat.append({"role": "user", "content": text})
            prompt = encode_prompt(first.tokenizer, chat)
            most = max(each.contender.settings.max_tokens for each in self.ready)
            if len(prompt) + most > first.network.config.max_position_embeddings:
                return
            plain: dict[int, list[int]] = {}
            for each in self.ready:
                if id(each.lm) not in plain:
                    plain[id(each.lm)] = self._plain(each, prompt)
                yield each.label, self._reply(each, prompt, plain[id(each.lm)])
                say(f"  {each.label}")
            reply = first.tokenizer.decode(plain[id(first)], skip_special_tokens=True)
            chat.append({"role": "assistant", "content": reply})

    def _plain(self, ready: Ready, prompt: Sequence[int]) -> list[int]:
        settings = dataclasses.replace(self._settings(ready), gamma=0)
        return list(ready.lm.stream(prompt, settings, Counters()))

    def _settings(self, ready: Ready) -> Settings:
        stops = ready.lm.stop_tokens()
        return dataclasses.replace(ready.contender.settings, stop_tokens=stops)

    def _reply(self, ready: Ready, prompt: Sequence[int], plain: list[int]) -> Tally:
        tally, settings, recorders = (
            Tally(turns=1, looped=1),
            self._settings(ready),
            list[_Recorder](),
        )

        def make(
            session: ModelSession,
            settings: Settings,
            random: np.random.Generator,
            table: Candidates | None,
        ) -> Drafter:
            inner = ready.prepared.drafter(session, settings, random, table)
            recorders.append(_Recorder(inner, ready.prepared, tally))
            return recorders[0]

        rounds = ready.lm.rounds(prompt, settings, tally.counters, make=make)
        tokens = list(itertools.chain.from_iterable(rounds))
        tally.identical = int(tokens == plain)
        size = NetworkSize.of(ready.lm.network)
        for place in range(len(tokens) - 1):
            tally.plain += size.cost(len(prompt) + place, 1)
        if settings.draft == "model" and settings.gamma != ADAPTIVE:
            lengths = accepted_lengths(
                ready.prepared,
                prompt,
                tokens,
                gamma=int(settings.gamma),
                max_tokens=settings.max_tokens,
            )
            tally.forced = int(lengths is not None)
            tally.forced_equal = int(lengths == recorders[0].accepted)
        return tally

    def figures(self) -> list[Figures]:
        """Of all contenders, for all turns and by category."""
        categories = dict.fromkeys(category for _, category in self.tallies)
        return [
            figures(each.label, category, self.tallies[each.label, category], each)
            for category in categories
            for each in self.ready
            if (each.label, category) in self.tallies
        ]


def _in_turn(questions: Sequence[Question]) -> list[Question]:
    """The first questions of all categories, then the second ones, and so on."""
    place: dict[str, int] = {}
    order = []
    for question in questions:
        place[question.category] = place.get(question.category, 0) + 1
        order.append(place[question.category])
    pairs = sorted(zip(order, questions, strict=True), key=lambda pair: pair[0])
    return [question for _, question in pairs]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of a contender in a category, or in all."""

    label: str
    category: str
    turns: int
    looped: int  # replies that the loop has made
    identical: int
    drafted: int
    accepted: int
    acceptance: float | None  # accepted / drafted
    conditional: float | None  # accepted / drafted tokens whose predecessors were accepted
    tokens: int
    tokens_per_verification: float
    tokens_per_whole_round: float | None  # of rounds that the end of the reply did not cut
    bytes_per_token: float  # drafts and verifications, keys and values included
    draft_bytes_per_token: float
    flops_per_token: float
    flops_of_plain: float  # the same over plain decoding
    weights_speedup: float  # traffic of weights alone
    speedup: float  # keys and values included
    memory: int  # bytes beside those of the target
    training_seconds: float
    forced: int  # replies that a teacher-forced pass was taken of
    forced_equal: int
    claim: str  # of the paper
    about: str  # what was found while the method was prepared


def figures(label: str, category: str, tally: Tally, ready: Ready) -> Figures:
    """The figures of one tally."""
    counters, prepared = tally.counters, ready.prepared
    spent, tokens = tally.draft + tally.verify, max(counters.tokens, 1)
    return Figures(
        label=label,
        category=category,
        turns=tally.turns,
        looped=tally.looped,
        identical=tally.identical,
        drafted=counters.drafted,
        accepted=counters.accepted,
        acceptance=counters.accepted / counters.drafted if counters.drafted else None,
        conditional=counters.accepted / counters.tested if counters.tested else None,
        tokens=counters.tokens,
        tokens_per_verification=counters.tokens / max(counters.rounds, 1),
        tokens_per_whole_round=(
            tally.whole_tokens / tally.whole_rounds if tally.whole_rounds else None
        ),
        bytes_per_token=spent.bytes / tokens,
        draft_bytes_per_token=tally.draft.bytes / tokens,
        flops_per_token=spent.flops / tokens,
        flops_of_plain=spent.flops / tally.plain.flops,
        weights_speedup=tally.plain.weights / spent.weights,
        speedup=tally.plain.bytes / spent.bytes,
        memory=prepared.memory,
        training_seconds=prepared.training_seconds,
        forced=tally.forced,
        forced_equal=tally.forced_equal,
        claim=ready.contender.method.claim,
        about=prepared.about,
    )
