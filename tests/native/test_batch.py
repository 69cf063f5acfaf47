"""Sequences side by side: each has the tokens and the logits that it has alone."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cassandra_spec.drafting import (
    ADAPTIVE,
    Batch,
    Counters,
    DraftKind,
    Gamma,
    MeasuredSeconds,
    Outcome,
    Plan,
    Planner,
    Sampling,
    Settings,
)
from cassandra_spec.golden import CassandraError
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.engine_binding import Row
from cassandra_spec.native.limits import MAX_ROWS
from cassandra_spec.native.rounds.runtime import PLAIN_OBSERVED
from tests.native.models import packed, small

VOCABULARY, CONTEXT = 97, 512
GAMMAS: tuple[Gamma, ...] = (ADAPTIVE, 0, 4)
DRAFTS: tuple[DraftKind, ...] = ("hybrid", "model", "lookup")
SAMPLINGS = (Sampling(), Sampling(temperature=1.0), Sampling(temperature=0.7, top_k=5))


def make(threads: int = 1, slots: int = MAX_ROWS, kind: str = "llama", **options: Any) -> Engine:
    config, tensors = small(kind)
    whole = packed(tensors)
    return Engine.from_tensors(config, whole, threads=threads, slots=slots, pin=False, **options)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with make() as made:
        yield made


def requests(count: int, seed: int) -> list[tuple[list[int], Settings]]:
    """Return prompts of 1 to 60 tokens, and replies of 1 to 40, some greedy and some sampled.

    They draft in all ways.
    """
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        prompt = rng.integers(0, VOCABULARY, rng.integers(1, 61)).tolist()
        most, sampling = int(rng.integers(1, 41)), SAMPLINGS[rng.integers(3)]
        settings = Settings(
            gamma=GAMMAS[number % 3],
            draft=DRAFTS[rng.integers(3)],
            max_tokens=most,
            sampling=sampling,
            seed=number,
            stop_tokens=frozenset(rng.integers(0, VOCABULARY, 2).tolist()),
        )
        made.append((prompt, settings))
    return made


def alone(engine: Engine, prompt: Sequence[int], settings: Settings) -> list[int]:
    """Return the tokens of a reply that is decoded plainly."""
    plain = dataclasses.replace(settings, gamma=0)
    return list(itertools.chain.from_iterable(engine.rounds(prompt, plain, Counters())))


def together(
    engine: Engine,
    asked: Sequence[tuple[list[int], Settings]],
    width: int,
    seed: int,
    chance: float = 0.7,
    **options: Any,
) -> list[list[int]]:
    """Return replies of at most ``width`` sequences at once, which begin at random steps."""
    rng, waiting = np.random.default_rng(seed), list(range(len(asked)))
    found: list[list[int]] = [[] for _ in asked]
    numbers: dict[int, int] = {}
    with engine.sequences(**options) as batch:
        while waiting or batch.running:
            while waiting and len(batch.running) < width and rng.random() < chance:
                number = waiting.pop(0)
                numbers[batch.claim(*asked[number])] = number
            emitted = batch.step()
            for each in emitted:
                found[numbers[each.slot]].append(each.token)
            over = {each.slot for each in emitted if each.ended}
            assert over == {each.slot for each in emitted} - set(batch.running)
        assert batch.free == engine.slots
        assert options.get("keep") or engine.free_slots == engine.slots
    assert engine.free_slots == engine.slots
    return found


@pytest.mark.parametrize("width", [1, 3, 16])
def test_every_sequence_has_the_tokens_that_it_has_alone(width: int, every_isa: str) -> None:
    asked = requests(10 if width == 1 else 20, seed=width)
    counters = Counters()
    with make() as engine:
        expected = [alone(engine, *each) for each in asked]
        chance = 0.7 if width == 16 else 0.05  # some run alone for a while, and others come
        assert together(engine, asked, width, 1, chance, counters=counters) == expected
    assert counters.accepted
    assert counters.tokens + counters.replies == sum(map(len, expected))
    with make(threads=3, target="packed12") as engine:  # without escapes, which would change bits
        assert together(engine, asked, width, seed=2) == expected


def test_a_speculative_reply_may_run_beside_a_batch(engine: Engine) -> None:
    prompt, settings = list(range(20)), Settings(gamma=4, draft="hybrid", max_tokens=40)
    plain = Settings(gamma=0, max_tokens=40)
    expected = alone(engine, prompt, plain)
    rounds, found, emitted = engine.rounds(prompt, settings, Counters()), [], []
    with engine.sequences() as batch:
        batch.claim(prompt, plain)
        while batch.running:
            found += [each.token for each in batch.step()]
            emitted += next(rounds, [])
    assert found == expected
    assert [*emitted, *itertools.chain.from_iterable(rounds)] == expected


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("model", [0, 2])
def test_rounds_of_several_without_drafts_are_learned_from_at_times(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, count: int, model: int
) -> None:
    observed: list[int] = []

    def plan(planner: Planner, gains: Sequence[object], *_: object) -> list[Plan]:
        return [Plan(model, 0, model)] * len(gains)

    def observe(costs: MeasuredSeconds, _: object, outcomes: Sequence[Outcome], *more: int) -> None:
        observed.append(len(outcomes))

    monkeypatch.setattr(Planner, "plan", plan)
    monkeypatch.setattr(MeasuredSeconds, "observe", observe)
    settings = Settings(gamma=ADAPTIVE, draft="model", max_tokens=40)
    rounds = 0
    with engine.sequences() as batch:
        for number in range(count):
            batch.claim([number + 1], settings)
        while batch.running:
            rounds += 1
            batch.step()
    every = PLAIN_OBSERVED if count > 1 and not model else 1
    assert len(observed) == math.ceil(rounds / every)


def test_a_batch_goes_on_beyond_released_sequences(engine: Engine) -> None:
    asked = requests(4, seed=9)
    settings = Settings(gamma=0, max_tokens=30)
    with engine.sequences() as batch:
        kept = batch.claim(asked[0][0], settings)
        other = batch.claim(asked[1][0], settings)
        found = [batch.step() for _ in range(8)]
        batch.release(other)
        third = batch.claim(asked[2][0], settings)
        assert third == other
        while kept in batch.running:
            found.append(batch.step())
    tokens = [each.token for each in itertools.chain.from_iterable(found) if each.slot == kept]
    assert tokens == alone(engine, asked[0][0], settings)


# --- keys and values of others --------------------------------------------------------------------


def test_a_prompt_takes_over_what_others_have_read(engine: Engine) -> None:
    rng = np.random.default_rng(5)
    asked = requests(30, seed=5)
    for number in range(1, 30):  # beginnings of other prompts, and of their replies
        prompt, settings = asked[number]
        other = asked[rng.integers(number)]
        known = [*other[0], *alone(engine, *other)][: rng.integers(0, 80)]
        asked[number] = ([*known, *prompt[: rng.integers(1, 9)]], settings)
    expected = [alone(engine, *each) for each in asked]
    for width, keep in ((1, True), (5, True), (5, False)):
        assert together(engine, asked, width, seed=width, keep=keep) == expected


def test_slots_keep_what_they_have_until_it_is_needed() -> None:
    first, second = list(range(30)), list(range(50, 80))
    settings = Settings(gamma=0, max_tokens=5)

    def run(batch: Batch, prompt: Sequence[int]) -> tuple[int, int, list[int]]:
        slot = batch.claim(prompt, settings)
        cached, found = batch.cached(slot), []
        while batch.running:
            found += [each.token for each in batch.step()]
        return slot, cached, found

    with make(slots=3) as engine, engine.sequences(keep=True) as batch:
        place, cached, reply = run(batch, first)
        assert (cached, reply) == (0, alone(engine, first, settings))
        again = [*first, *reply, 7, 8]
        assert run(batch, again)[:2] == (place, 34)  # the last token of a reply was in no pass
        slot, cached, found = run(batch, [*first[:20], 9])  # goes another way: a slot of its own
        assert (slot != place, cached) == (True, 20)
        assert found == alone(engine, [*first[:20], 9], settings)
        third, cached, _ = run(batch, second)
        assert (cached, len({place, slot, third})) == (0, 3)
        assert run(batch, second)[:2] == (place, 29)  # longest free; a token is left to read
        running = batch.claim(first, settings)
        assert batch.cached(running) == 20
        batch.step()
        assert batch.cached(batch.claim([*first, 3], settings)) == 30  # of the one that runs
        assert (batch.free, engine.free_slots) == (1, 0)
    with pytest.raises(CassandraError, match="count must be from 0 to 512, not 513"):
        engine.copy_positions(0, 1, 513)


# --- passes --------------------------------------------------------------------------------------


def forest(rng: np.random.Generator, slots: int) -> list[tuple[int, int, int, int]]:
    """Slot, depth, token and parent of rows: a random tree in some slots, mixed."""
    rows = [(slot, 0, int(rng.integers(97)), -1) for slot in rng.permutation(slots).tolist()]
    while len(rows) < MAX_ROWS:
        parent = int(rng.integers(len(rows)))
        slot, depth = rows[parent][:2]
        rows.append((slot, depth + 1, int(rng.integers(97)), parent))
    return rows


@pytest.mark.parametrize(
    ("threads", "kind"),
    [(1, "llama"), (3, "llama"), (3, "gemma2"), (2, "gemma3_text"), (2, "phi3"), (3, "qwen2")],
)
@pytest.mark.parametrize("draft", [False, True])
def test_rows_of_trees_have_the_logits_of_their_paths(
    threads: int, kind: str, draft: bool, every_isa: str
) -> None:
    rng = np.random.default_rng(4)
    with make(threads, kind=kind) as engine, make(kind=kind) as plain:
        for slots in (1, 3, 9, 16):
            prompts = [rng.integers(0, 97, rng.integers(1, 50)).tolist() for _ in range(slots)]
            for slot, prompt in enumerate(prompts):
                for start in range(0, len(prompt), MAX_ROWS):
                    part = enumerate(prompt[start : start + MAX_ROWS])
                    rows = [Row(slot, start + at, token, at - 1) for at, token in part]
                    engine.run_rows(rows, last=0)
            shape = forest(rng, slots)
            rows = [
                Row(slot, len(prompts[slot]) + depth, token, parent)
                for slot, depth, token, parent in shape
            ]
            best, logits = engine.run_rows(rows, draft=draft, drawn=MAX_ROWS)
            assert best == logits.argmax(1).tolist()
            for slot, prompt in enumerate(prompts):
                plain.forward(prompt, last=0)
                for at in (at for at, row in enumerate(rows) if row.slot == slot):
                    expected = plain.forward(_path(rows, at), len(prompt), draft=draft, last=1)
                    np.testing.assert_array_equal(logits[at], expected[0])


def _path(rows: Sequence[Row], at: int) -> list[int]:
    above = _path(rows, rows[at].parent) if rows[at].parent >= 0 else []
    return [*above, rows[at].token]


def test_best_tokens_and_logits_are_those_of_the_last_rows(engine: Engine) -> None:
    rows = [Row(slot, 0, 7 * slot) for slot in range(5)]
    best, logits = engine.run_rows(rows, drawn=5)
    for last, drawn in itertools.product(range(6), range(6)):
        if drawn <= last:
            some, few = engine.run_rows(rows, last=last, drawn=drawn)
            assert some == best[5 - last :]
            np.testing.assert_array_equal(few, logits[5 - drawn :])


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ([], "rows must be from 1 to 16, not 0"),
        ([Row(0, at, 1, at - 1) for at in range(17)], "rows must be from 1 to 16, not 17"),
        ([Row(17, 0, 1)], "slot must be from 0 to below 17, not 17"),
        ([Row(-1, 0, 1)], "slot must be from 0 to below 17, not -1"),
        ([Row(0, 512, 1)], "position must be from 0 to below 512, not 512"),
        ([Row(0, 2**40, 1)], "position must be from 0 to below 512, not 1099511627776"),
        ([Row(0, 0, 97)], "token must be from 0 to below 97, not 97"),
        (
            [Row(0, 0, 1.5)],  # type: ignore[arg-type]
            "token must be from 0 to below 97, not 1.5",
        ),
        ([Row(0, 0, True)], "token must be from 0 to below 97, not True"),
        ([Row(0, 0, 1, 0)], "parent must be an earlier row of slot 0, or -1 for its first, not 0"),
        ([Row(0, 0, 1), Row(0, 1, 1)], "not -1 for row 1"),
        ([Row(0, 0, 1), Row(1, 1, 1, 0)], "parent must be an earlier row of slot 1"),
        ([Row(0, 0, 1), Row(0, 1, 1, -2)], "not -2 for row 1"),
        ([Row(0, 0, 1), Row(0, 2, 1, 0)], "row 1 must follow its parent in the same slot"),
        ([Row(0, 0, 1), Row(1, 0, 1), Row(1, 1, 1, 0)], "row 2 must follow its parent"),
        (
            [Row(0, 510, 1), Row(0, 511, 1, 0), Row(0, 511, 2, 0)],
            "positions and branches must fit the engine's 512, not row 2",
        ),
    ],
)
def test_rows_that_are_no_trees_are_refused(engine: Engine, rows: list[Row], line: str) -> None:
    with pytest.raises(CassandraError, match=line):
        engine.run_rows(rows)


def test_random_rows_are_run_or_refused(engine: Engine) -> None:
    """Whatever the numbers are; the sanitizers of `make sanitize` watch the native side."""
    rng, run = np.random.default_rng(8), 0
    for _ in range(2000):
        count = int(rng.integers(0, 4))
        rows = [
            Row(
                int(rng.integers(-1, 3)),
                int(rng.choice([-1, 0, 1, 2, CONTEXT - 1, CONTEXT, 2**31, 2**63 - 1])),
                int(rng.choice([-1, 0, 5, 96, 97, -(2**31)])),
                int(rng.integers(-2, 3)),
            )
            for _ in range(count)
        ]
        try:
            best, _ = engine.run_rows(rows, last=1)
        except CassandraError:
            continue
        run += 1
        assert 0 <= best[0] < VOCABULARY
    assert 20 < run < 1900


def test_what_a_batch_cannot_do_is_refused() -> None:
    with make(slots=1, context=32, draft=False) as engine:
        batch, plain = engine.sequences(), Settings(gamma=0, max_tokens=8)
        assert batch.step() == []
        for prompt, settings, line in (
            ([1], Settings(max_tokens=8), "this engine has no draft model"),
            (
                [1],
                Settings(gamma=0, sampling=SAMPLINGS[1], acceptance="rejection", max_tokens=8),
                "acceptance must be noise",
            ),
            ([], plain, "tokens must be at least one"),
            ([97], plain, "all from 0 to below 97"),
            ([1] * 25, plain, "must fit the context of 32 positions, not need 33"),
        ):
            with pytest.raises(CassandraError, match=line):
                batch.claim(prompt, settings)
        slot = batch.claim([1], plain)
        with pytest.raises(CassandraError, match="a slot must be free, not all 1 be claimed"):
            batch.claim([1], plain)
        for wrong in (0, 2, None):
            with pytest.raises(CassandraError, match="slot must be that of a running sequence"):
                batch.release(wrong)  # type: ignore[arg-type]
        batch.release(slot)
        for wrong, line in ((1, "slot must be one that is claimed"), (2, "slot must be from 1")):
            with pytest.raises(CassandraError, match=line):
                engine.release_slot(wrong)
        with pytest.raises(CassandraError, match="draft must be true of an engine"):
            engine.run_rows([Row(0, 0, 1)], draft=True)
        for last, drawn in ((2, 0), (-1, 0), (1, 2), (0, 1)):
            with pytest.raises(CassandraError, match="must be from 0 to"):
                engine.run_rows([Row(0, 0, 1)], last=last, drawn=drawn)
    with pytest.raises(CassandraError, match="must not be used after it was closed"):
        engine.run_rows([Row(0, 0, 1)])
    with pytest.raises(CassandraError, match="slots must be from 0 to 16, not 17"):
        make(slots=17)


def test_logits_that_are_not_finite_end_a_step() -> None:
    config, tensors = small()
    norm: NDArray[np.uint16] = np.full_like(tensors["model.norm.weight"], 0x7FC0)
    made = Engine.from_tensors(config, {**tensors, "model.norm.weight": norm}, threads=1, pin=False)
    with made, made.sequences() as batch:
        batch.claim([1], Settings(gamma=0, max_tokens=8))
        with pytest.raises(CassandraError, match="logits must be finite"):
            batch.step()
