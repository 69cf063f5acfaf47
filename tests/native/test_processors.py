"""Replies of the native engine with logits processors, beside plain decoding by whole histories."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from cassandra_spec.drafting import Counters, Processor, Sampling, Score, Settings
from cassandra_spec.native.engine import Engine
from tests.drafting.processors import PROCESSORS, naive_reply, naive_score, require_close
from tests.native.models import packed, small

PROMPTS = [np.random.default_rng(at).integers(0, 97, 5 + 9 * at).tolist() for at in range(5)]
DRAFTS: tuple[dict[str, Any], ...] = (
    {"gamma": 4, "draft": "hybrid"},
    {"gamma": "adaptive", "draft": "hybrid"},
    {"gamma": 3, "draft": "model"},
    {"gamma": 7, "draft": "lookup"},
    {"gamma": 0},
)
STOPS = frozenset({60, 61})


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    config, tensors = small()
    whole = packed(tensors)
    with Engine.from_tensors(config, whole, threads=2, slots=8, pin=False) as made:
        yield made


def expected(engine: Engine, prompt: list[int], settings: Settings) -> list[int]:
    def after(tokens: list[int]) -> Any:
        return engine.forward(tokens, last=1)[0]

    return naive_reply(after, prompt, settings)[0]


def settings_of(processors: tuple[Processor, ...], **fields: Any) -> Settings:
    return Settings(
        **{"max_tokens": 30, "stop_tokens": STOPS, "processors": processors, "seed": 3, **fields}
    )


def in_batch(
    engine: Engine, asked: list[tuple[list[int], Settings]], chance: float
) -> list[tuple[list[int], list[Score]]]:
    """Return tokens and scores of sequences that begin at random steps of one batch."""
    found = [(list[int](), list[Score]()) for _ in asked]
    rng, numbers, waiting = np.random.default_rng(0), dict[int, int](), list(range(len(asked)))
    with engine.sequences(keep=True) as batch:
        while waiting or batch.running:
            while waiting and batch.free and rng.random() < chance:
                number = waiting.pop(0)
                numbers[batch.claim(*asked[number], scores=found[number][1])] = number
            for each in batch.step():
                found[numbers[each.slot]][0].append(each.token)
    return found


@pytest.mark.parametrize("processors", PROCESSORS)
def test_drafts_do_not_change_a_processed_reply(
    engine: Engine, processors: tuple[Processor, ...]
) -> None:
    plain = list(itertools.chain(*engine.rounds(PROMPTS[1], settings_of(()), Counters())))
    counters = Counters()
    for prompt in PROMPTS:
        reply = expected(engine, prompt, settings_of(processors))
        for drafts in DRAFTS:
            rounds = engine.rounds(prompt, settings_of(processors, **drafts), counters)
            assert list(itertools.chain(*rounds)) == reply
    assert counters.accepted
    assert expected(engine, PROMPTS[1], settings_of(processors)) != plain


def test_samples_are_drawn_from_processed_logits(engine: Engine) -> None:
    for processors, prompt in zip(PROCESSORS, PROMPTS, strict=False):
        for sampling in (Sampling(temperature=0.8), Sampling(temperature=1.5, min_p=0.05)):
            for drafts in DRAFTS:
                settings = settings_of(processors, sampling=sampling, **drafts)
                rounds = engine.rounds(prompt, settings, Counters())
                assert list(itertools.chain(*rounds)) == expected(engine, prompt, settings)


def test_processed_replies_of_a_batch_are_those_alone(engine: Engine) -> None:
    kinds = itertools.cycle(((), *PROCESSORS))
    asked = []
    for number, prompt in enumerate(PROMPTS * 2):
        sampling = Sampling(temperature=1.0) if number % 3 == 2 else Sampling()
        settings = settings_of(next(kinds), sampling=sampling, **DRAFTS[number % len(DRAFTS)])
        asked.append((prompt, settings))
    wanted = list(itertools.starmap(partial(expected, engine), asked))
    assert [tokens for tokens, _ in in_batch(engine, asked, 0.1)] == wanted


# --- log-probabilities ---------------------------------------------------------------------------


@pytest.mark.parametrize("prompts", [False, True])
def test_scores_are_the_targets_bit_for_bit(engine: Engine, prompts: bool) -> None:
    asked = []
    for number, prompt in enumerate(PROMPTS * 2):
        processors = PROCESSORS[number % 4] if number % 2 else ()
        fields = {"logprobs": number % 4, "prompt_logprobs": prompts, "max_tokens": 1 + 5 * number}
        asked.append((prompt, settings_of(processors, **DRAFTS[number % len(DRAFTS)], **fields)))
    alone = [in_batch(engine, [each], 1.0)[0] for each in asked]
    plain = [(prompt, dataclasses.replace(each, gamma=0)) for prompt, each in asked]
    assert in_batch(engine, plain, 0.1) == alone
    assert in_batch(engine, asked, 0.1) == alone
    for (prompt, settings), (reply, scores) in zip(asked, alone, strict=True):
        tokens = [*prompt, *reply] if prompts else reply
        assert [each.token for each in scores] == tokens
        rows = engine.forward([*prompt, *reply], last=len(reply) + 1)[:-1]
        if prompts:
            assert scores[0] == Score(prompt[0], None, ())
            rows = engine.forward([*prompt, *reply])[:-1]
            scores, tokens = scores[1:], tokens[1:]
        for score, row, token in zip(scores, rows, tokens, strict=True):
            require_close(score, naive_score(row, token, settings.logprobs or 0))
        if not prompts:
            counted: list[Score] = []
            rounds = engine.rounds(prompt, settings, Counters(), scores=counted)
            assert (list(itertools.chain(*rounds)), counted) == (reply, scores)


def test_a_reply_is_cut_with_its_scores_where_it_ends(engine: Engine) -> None:
    for drafts in DRAFTS:
        settings = settings_of((), **drafts, logprobs=1, stop_tokens=frozenset())
        [(whole, scores)] = in_batch(engine, [(PROMPTS[2], settings)], 1.0)
        for end in (0, 1, 7, 12, 13):
            asked, cut = list[int](), list[Score]()

            def ends(token: int, asked: list[int] = asked, end: int = end) -> bool:
                asked.append(token)
                return len(asked) == end + 1

            with engine.sequences(keep=True) as batch:
                slot = batch.claim(PROMPTS[2], settings, ends=ends, scores=cut)
                found = []
                while batch.running:
                    found += batch.step()
                assert [each.token for each in found] == asked == whole[: end + 1]
                assert [each.ended for each in found] == [False] * end + [True]
                assert cut == scores[: end + 1]
                slot = batch.claim([*PROMPTS[2], *whole], settings)
                assert batch.cached(slot) == len(PROMPTS[2]) + end


@dataclasses.dataclass(frozen=True)
class Failing:
    """Forbids all tokens after some."""

    after: int

    def begin(self, prompt: Any) -> Failing:
        return dataclasses.replace(self)

    def apply(self, logits: Any) -> None:
        if not self.after:
            logits[:] = -np.inf

    def advance(self, token: int) -> None:
        object.__setattr__(self, "after", self.after - 1)


def test_a_processor_that_fails_ends_its_own_sequence(engine: Engine) -> None:
    good = settings_of(PROCESSORS[0], gamma=0)
    with engine.sequences() as batch:
        other = batch.claim(PROMPTS[0], good)
        bad = batch.claim(PROMPTS[1], settings_of((Failing(3),), gamma=0))
        found = []
        while batch.running:
            found += batch.step()
    [last] = [each for each in found if each.error]
    assert (last.slot, last.ended) == (bad, True)
    assert len([each for each in found if each.slot == bad]) == 4
    tokens = [each.token for each in found if each.slot == other]
    assert tokens == expected(engine, PROMPTS[0], good)
