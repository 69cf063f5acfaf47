"""Tables of n-grams from a model's own text: what is counted, and what an interrupt leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.drafting import (
    Costs,
    Counters,
    Emitted,
    NgramTable,
    Sequences,
    Settings,
    encode_prompt,
)
from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.model.baking import Baked, Baking, bake_table, open_table
from cassandra_spec.model.packing.packer import Recipe, pack_model
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.model.weights.sources import open_source
from tests.model.tiny import WORDS

REPLY = Settings(gamma=0)
BAKING = Baking(tokens=60, turn_tokens=4, reply_tokens=6)


@pytest.fixture(scope="session")
def model(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("baking") / "packed"
    pack_model(open_source(llama), place, Recipe(format=Format(segment=256)), jobs=1)
    return place


class Speaker:
    """A backend that counts on from the seed of a turn, or from the last token of a prompt."""

    def __init__(self, model: Path, *, fails: int = -1, silent: int = 0) -> None:
        self.tokenizer = load_tokenizer(model)
        self.costs: Costs | None = None
        self.prompts: list[tuple[int, ...]] = []
        self._fails, self._silent = fails, silent

    def rounds(
        self, prompt: Sequence[int], settings: Settings, counters: Counters, **_: Any
    ) -> Iterator[list[int]]:
        if settings.seed is None:
            self.prompts.append(tuple(prompt))
        elif self._silent:
            self._silent -= 1
            yield [0]
            return
        if len(self.prompts) == self._fails:
            raise KeyboardInterrupt
        first = prompt[-2] if settings.seed is None else settings.seed
        for step in range(settings.max_tokens):
            yield [(first + step) % (len(WORDS) - 2) + 2]

    def sequences(self, counters: Counters | None = None, *, keep: bool = False) -> Sequences:
        return OneByOne(self)

    def make_report(self, counters: Counters, settings: Settings) -> Any:
        raise NotImplementedError

    def stop_tokens(self) -> frozenset[int]:
        return frozenset({0})


class OneByOne:
    """The sequences of a speaker that has one at a time."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._rounds: Iterator[list[int]] | None = None
        self._left = 0

    @property
    def free(self) -> int:
        return int(self._rounds is None)

    def claim(
        self,
        prompt: Sequence[int],
        settings: Settings,
        trace: Counters | None = None,
        **asked: Any,
    ) -> int:
        self._rounds = self._speaker.rounds(prompt, settings, Counters())
        self._left, self._stops = settings.max_tokens, settings.stop_tokens
        return 0

    def cached(self, slot: int) -> int:
        return 0

    def step(self) -> list[Emitted]:
        if self._rounds is None:
            return []
        [token] = next(self._rounds)
        self._left -= 1
        ended = not self._left or token in self._stops
        if ended:
            self._rounds = None
        return [Emitted(0, token, ended)]

    def release(self, slot: int) -> None:
        self._rounds = None


def bake(speaker: Speaker, model: Path, out: Path, **changes: Any) -> Baked:
    return bake_table(speaker, model, out, dataclasses.replace(BAKING, **changes), REPLY)


def sequences(speaker: Speaker) -> list[list[int]]:
    """Return the conversations that a speaker had."""
    return [
        [*prompt, *(token for (token,) in speaker.rounds(prompt, SIX, Counters()))]
        for prompt in list(speaker.prompts)
    ]


SIX = Settings(max_tokens=6)


def same(one: NgramTable, two: NgramTable) -> bool:
    return [each.keys.tolist() for each in one.orders] == [
        each.keys.tolist() for each in two.orders
    ] and [each.tokens.tolist() for each in one.orders] == [
        each.tokens.tolist() for each in two.orders
    ]


def test_turns_and_replies_are_counted(model: Path, tmp_path: Path) -> None:
    speaker = Speaker(model)
    done = bake(speaker, model, tmp_path / "t")
    said = sequences(speaker)
    assert done.own_tokens == sum(map(len, said)) >= BAKING.tokens
    assert done.own_tokens - len(said[-1]) < BAKING.tokens
    assert {len(prompt) for prompt in speaker.prompts[: len(said)]} == {
        5
    }  # 4 words and the template's
    table = open_table(tmp_path / "t", model)
    assert same(table, NgramTable.count(said, vocabulary=len(WORDS)))
    assert (done.entries, done.text_tokens, done.resumed) == (len(table), 0, 0)
    assert done.bytes == (tmp_path / "t").stat().st_size


def test_a_seed_makes_one_table(model: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        bake(Speaker(model), model, tmp_path / name, seed=seed)
    one, two, other = (tmp_path / name for name in "abc")
    assert one.read_bytes() == two.read_bytes()
    assert not same(*(NgramTable.load(path, vocabulary=len(WORDS)) for path in (one, other)))


def test_order_and_size_are_limits(model: Path, tmp_path: Path) -> None:
    done = bake(Speaker(model), model, tmp_path / "t", order=2, max_bytes=320)
    assert done.entries == 10
    assert len(NgramTable.load(tmp_path / "t", vocabulary=len(WORDS)).orders) == 2


def interrupt(model: Path, out: Path, **changes: Any) -> Speaker:
    speaker = Speaker(model, fails=4)
    with pytest.raises(KeyboardInterrupt) as caught:
        bake(speaker, model, out, **changes)
    assert not out.exists()
    assert any("run it again to go on" in note for note in caught.value.__notes__)
    return speaker


def test_what_was_interrupted_goes_on(model: Path, tmp_path: Path) -> None:
    first = interrupt(model, tmp_path / "t")
    second, whole = Speaker(model), Speaker(model)
    assert bake(second, model, tmp_path / "t").resumed == 3
    bake(whole, model, tmp_path / "whole")
    assert first.prompts[:3] + second.prompts == whole.prompts
    assert (tmp_path / "t").read_bytes() == (tmp_path / "whole").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"t", "whole"}


def test_a_larger_table_that_was_interrupted_is_more_than_enough(
    model: Path, tmp_path: Path
) -> None:
    interrupt(model, tmp_path / "t", tokens=1000)
    bake(Speaker(model), model, tmp_path / "t", tokens=20)
    bake(Speaker(model), model, tmp_path / "whole", tokens=20)
    assert (tmp_path / "t").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize("change", [{"seed": 1}, {"reply_tokens": 7}, {"turn_tokens": 3}])
def test_conversations_of_something_else_are_not_used(
    change: dict[str, int], model: Path, tmp_path: Path
) -> None:
    interrupt(model, tmp_path / "t")
    assert bake(Speaker(model), model, tmp_path / "t", **change).resumed == 0


def test_a_damaged_journal_is_not_believed(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt(model, tmp_path / "t")
    journal = tmp_path / ".t.partial/store/journal"
    journal.write_bytes(b"0" + journal.read_bytes()[1:] + b"x\n")
    assert bake(Speaker(model), model, tmp_path / "t").resumed == 0
    assert "damaged: baking begins again" in capsys.readouterr().err
    bake(Speaker(model), model, tmp_path / "whole")
    assert (tmp_path / "t").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_file_that_is_there_is_replaced(model: Path, tmp_path: Path) -> None:
    (tmp_path / "t").write_text("another one")
    bake(Speaker(model), model, tmp_path / "t")
    assert len(NgramTable.load(tmp_path / "t", vocabulary=len(WORDS)))


def test_own_texts_are_counted_and_own_prompts_are_replied_to(model: Path, tmp_path: Path) -> None:
    text, prompts = tmp_path / "a.txt", tmp_path / "b.jsonl"
    text.write_text("word5 word6 word7 word8")
    prompts.write_text('"word9 word3"\n\n{"prompt": "word4", "kind": "code"}\n')
    speaker = Speaker(model)
    done = bake(speaker, model, tmp_path / "t", tokens=0, texts=(text, prompts))
    said = [encode_prompt(speaker.tokenizer, words) for words in ("word9 word3", "word4")]
    assert [list(prompt) for prompt in speaker.prompts] == said
    given = [[7, 8, 9, 10], *sequences(speaker)]
    assert (done.own_tokens, done.text_tokens) == (0, sum(map(len, given)))
    table = NgramTable.load(tmp_path / "t", vocabulary=len(WORDS))
    assert same(table, NgramTable.count(given, vocabulary=len(WORDS)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "[1]", r"a line must be a text, or an object .* prompt, not \[1\]"),
        ("a.jsonl", '{"text": "x"}', r"a line must be a text.*not {'text': 'x'}"),
        ("a.jsonl", '" "', "a line must be a text.*not ' '"),
        ("a.jsonl", "word", "a line must be JSON"),
        ("a.jsonl", "[" * 100_000, "a line must be JSON"),
        ("a.txt", " ", "must have some text"),
        ("a.txt", None, "must be a text file, and is missing"),
    ],
)
def test_texts_that_are_none_are_refused(
    name: str, content: str | None, message: str, model: Path, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(CassandraError, match=message) as caught:
        bake(Speaker(model), model, tmp_path / "t", texts=(tmp_path / name,))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "t").exists()


def test_a_place_that_is_none_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(CassandraError, match="must be a file to write, not a directory"):
        bake(Speaker(model), model, tmp_path)
    with pytest.raises(CassandraError, match="nowhere must be a directory to write t into"):
        bake(Speaker(model), model, tmp_path / "nowhere/t")


def test_turns_without_text_are_sampled_again(model: Path, tmp_path: Path) -> None:
    bake(Speaker(model, silent=3), model, tmp_path / "t")
    with pytest.raises(CassandraError, match="must sample user turns with some text"):
        bake(Speaker(model, silent=10_000), model, tmp_path / "u")
    assert {path.name for path in tmp_path.iterdir()} == {"t"}


class Crowd(Speaker):
    """Speakers side by side, a token of each in a step; slots that are free serve again."""

    def __init__(self, model: Path, width: int, *, fails: int = -1) -> None:
        super().__init__(model, fails=fails)
        self._width = width
        self._replies: dict[int, list[int]] = {}

    def sequences(self, counters: Counters | None = None, *, keep: bool = False) -> Sequences:
        return self

    def cached(self, slot: int) -> int:
        return 0

    @property
    def free(self) -> int:
        return self._width - len(self._replies)

    def claim(
        self,
        prompt: Sequence[int],
        settings: Settings,
        trace: Counters | None = None,
        **asked: Any,
    ) -> int:
        slot = max(slot for slot in range(self._width) if slot not in self._replies)
        rounds = self.rounds(prompt, settings, Counters())
        self._replies[slot] = [token for (token,) in rounds]
        return slot

    def step(self) -> list[Emitted]:
        emitted = [Emitted(slot, token, not rest) for slot, (token, *rest) in self._replies.items()]
        self._replies = {slot: rest for slot, (_, *rest) in self._replies.items() if rest}
        return emitted

    def release(self, slot: int) -> None:
        del self._replies[slot]


@pytest.mark.parametrize("width", [2, 5, 16])
def test_conversations_side_by_side_make_the_same_table(
    width: int, model: Path, tmp_path: Path
) -> None:
    prompts = tmp_path / "b.jsonl"
    prompts.write_text('"word9 word3"\n"word4"\n"word5"\n')
    for tokens in (0, 60):
        baking = dataclasses.replace(BAKING, tokens=tokens, texts=(prompts,))
        one, many = Speaker(model), Crowd(model, width)
        expected = bake_table(one, model, tmp_path / "a", baking, REPLY)
        assert bake_table(many, model, tmp_path / "b", baking, REPLY) == expected
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
        begun = len(many.prompts) - len(one.prompts)
        assert 0 <= begun < width if tokens else begun == 0


def test_what_was_interrupted_side_by_side_goes_on_alone(model: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        bake(Crowd(model, 3, fails=4), model, tmp_path / "t")
    assert bake(Speaker(model), model, tmp_path / "t").resumed > 0
    bake(Speaker(model), model, tmp_path / "whole")
    assert (tmp_path / "t").read_bytes() == (tmp_path / "whole").read_bytes()
