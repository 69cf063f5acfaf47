"""Bake a table of n-grams from a model's own text (docs/software/table.md).

Each conversation has a user turn that the model samples, at temperature 1, behind the opening of
its chat template, and the greedy reply to it. A conversation depends on the seed and its number
alone, so an interrupted run can be resumed, and the same seed gives the same table.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import reprlib
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from cassandra_spec.drafting import (
    Backend,
    NgramTable,
    Sampling,
    Sequences,
    Settings,
    encode_opening,
    encode_prompt,
    encode_text,
)
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.errors import FileError
from cassandra_spec.golden.model_config import read_config
from cassandra_spec.model.journal import Journal
from cassandra_spec.model.output import resumable_file
from cassandra_spec.model.packing.calibration import read_text
from cassandra_spec.model.packing.packer import open_packed

_VERSION = 1  # changes when a seed and a number give another conversation
_PIECE = 1 << 16  # characters of a text that are tokenised together
_MOST_EMPTY = 100  # user turns without text, one after another


@dataclasses.dataclass(frozen=True, kw_only=True)
class Baking:
    """Settings of a table: its texts and its size."""

    tokens: int = 50_000  # minimum length of the model's own conversations together
    texts: tuple[Path, ...] = ()  # files of the user: text, or prompts in JSON lines (.jsonl)
    turn_tokens: int = 64  # limit of a user turn
    reply_tokens: int = 128  # limit of a reply
    seed: int = 0
    order: int = 3
    max_bytes: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Baked:
    """Results of baking."""

    entries: int
    bytes: int  # size of the file
    own_tokens: int  # length of the model's own conversations
    text_tokens: int  # tokens of texts, and of conversations that begin with their prompts
    resumed: int  # conversations that an interrupted run had made


def bake_table(
    backend: Backend,
    model: Path,
    destination: Path,
    baking: Baking,
    reply: Settings,
    *,
    progress: bool = False,
) -> Baked:
    """Write the table of the packed model that ``backend`` runs; ``reply`` says how it replies.

    Conversations of an interrupted run with the same model, seed, lengths and texts are taken over.
    Progress is shown if standard error is a terminal. Raises :class:`CassandraError`, and leaves
    nothing behind then.
    """
    digest = open_packed(model).digest
    vocabulary = int(read_config(model)["vocab_size"])
    text = OwnText(backend, baking, reply, digest)
    with resumable_file(destination, key=text.key) as (path, store):
        made = text.make(store, progress=progress)
        table = NgramTable.count(
            made.sequences,
            vocabulary=vocabulary,
            order=baking.order,
            max_bytes=baking.max_bytes,
        )
        tokens = {"own_tokens": _total(made.own), "text_tokens": _total(made.user)}
        table.save(path, {**_digests(model), "seed": baking.seed, **tokens})
        return Baked(entries=len(table), bytes=path.stat().st_size, resumed=made.resumed, **tokens)


def open_table(path: Path, model: Path) -> NgramTable:
    """Open a table of a packed model.

    Raises :class:`FileError` if it is of a model with another tokenizer.
    """
    vocabulary = int(read_config(model)["vocab_size"])
    return NgramTable.load(path, vocabulary=vocabulary, owner=_digests(model))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MadeText:
    """Sequences of tokens to count, or to train on."""

    user: list[list[int]]  # texts, and conversations that begin with their prompts
    own: list[list[int]]  # the model's own conversations
    resumed: int  # conversations that an interrupted run had made

    @property
    def sequences(self) -> list[list[int]]:
        """All sequences, the user's first."""
        return [*self.user, *self.own]


class OwnText:
    """A model's own text, as ``baking`` says; ``key`` is a hash of all that it depends on."""

    def __init__(self, backend: Backend, baking: Baking, reply: Settings, digest: str) -> None:
        self._texts, self._prompts = _read_texts(backend, baking.texts)
        self._backend, self._baking, self._reply = backend, baking, reply
        self.key = _key(baking, digest, self._prompts)

    def make(self, store: Path, *, progress: bool = False) -> MadeText:
        """Make the text; reuse conversations that an interrupted run has saved in ``store``.

        A backend that holds several at once makes the same text.
        """
        journal, backend = _open_journal(store), self._backend
        resumed = len(journal.lines)
        sequences = backend.sequences()
        talks = _Conversations(
            backend, self._baking, self._reply, self._prompts, journal, sequences
        ).in_order()
        user, own = list(self._texts), list[list[int]]()
        with _bar("replying", self._prompts, len(self._prompts), " prompts", progress) as bar:
            user += [next(talks) for _ in bar]
        with _bar("baking", None, self._baking.tokens, " tokens", progress) as bar:
            while _total(own) < self._baking.tokens:
                own.append(next(talks))
                bar.update(len(own[-1]))
        return MadeText(user=user, own=own, resumed=resumed)


_Talk = Generator[tuple[list[int], Settings], list[int], list[int]]
"""Asks for replies to tokens, and returns the tokens of a conversation."""


class _Conversations:
    """Tokens of conversations by number, from the journal or made now.

    The first ones begin with ``prompts``, the others with turns that the model samples. They are
    written in order, so an interrupt costs those that are finished before an earlier one is.
    """

    def __init__(
        self,
        backend: Backend,
        baking: Baking,
        reply: Settings,
        prompts: Sequence[str],
        journal: Journal,
        sequences: Sequences,
    ) -> None:
        stops = reply.stop_tokens | backend.stop_tokens()
        self._tokenizer, self._seed = backend.tokenizer, baking.seed
        self._prompts, self._journal, self._sequences = prompts, journal, sequences
        self._reply = dataclasses.replace(reply, max_tokens=baking.reply_tokens, stop_tokens=stops)
        self._turn = Settings(
            gamma=0,
            draft="none",
            max_tokens=baking.turn_tokens,
            stop_tokens=stops,
            sampling=Sampling(temperature=1.0),
        )
        self._opening = encode_opening(backend.tokenizer)
        self._begun = len(journal.lines)
        self._most = math.inf if baking.tokens else len(prompts)
        self._talks: dict[int, tuple[int, _Talk, list[int]]] = {}  # by slot
        self._finished: dict[int, list[int]] = {}  # not written yet

    def in_order(self) -> Iterator[list[int]]:
        """Yield all conversations by number; without own ones, those with prompts."""
        for number in itertools.count():
            while number >= len(self._journal.lines):
                self._go_on()
            yield list(self._journal.lines[number]["tokens"])

    def _go_on(self) -> None:
        """Begin what there is room for, and take a step with all."""
        while self._sequences.free and self._begun < self._most:
            number, self._begun = self._begun, self._begun + 1
            self._ask(number, self._talk(number), None)
        answered = []
        for emitted in self._sequences.step():
            self._talks[emitted.slot][2].append(emitted.token)
            if emitted.ended:
                answered.append(self._talks.pop(emitted.slot))
        for talk in answered:  # each may claim the slot of any of them
            self._ask(*talk)

    def _ask(self, number: int, talk: _Talk, answer: list[int] | None) -> None:
        """Take a conversation to the next reply that it asks for, or to its end."""
        try:
            request = talk.send(answer)  # type: ignore[arg-type]  # None begins it
        except StopIteration as end:
            self._finished[number] = end.value
            while (first := len(self._journal.lines)) in self._finished:
                self._journal.add({"tokens": self._finished.pop(first)})
        else:
            self._talks[self._sequences.claim(*request)] = (number, talk, [])

    def _talk(self, number: int) -> _Talk:
        """Make a conversation that begins with a prompt, or with a turn that the model samples."""
        if number < len(self._prompts):
            turn = self._prompts[number]
        else:
            turn = yield from self._sampled(number)
        tokens = encode_prompt(self._tokenizer, turn)
        return [*tokens, *(yield tokens, self._reply)]

    def _sampled(self, number: int) -> Generator[tuple[list[int], Settings], list[int], str]:
        """Sample a user turn that is not empty."""
        for attempt in range(_MOST_EMPTY):
            state = np.random.SeedSequence([self._seed, number, attempt])
            seed = int(state.generate_state(1)[0])
            tokens = yield self._opening, dataclasses.replace(self._turn, seed=seed)
            text: str = self._tokenizer.decode(tokens, skip_special_tokens=True).strip()
            if text:
                return text
        raise CassandraError("the model must sample user turns with some text, and samples none")


def _digests(model: Path) -> dict[str, str]:
    """Return the digests of the packed model and of its tokenizer, if any."""
    tokenizer = model / "tokenizer.json"
    digests = {"model_digest": open_packed(model).digest}
    if tokenizer.exists():
        digests["tokenizer_digest"] = hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    return digests


def _bar(
    title: str, items: Iterable[str] | None, total: int, unit: str, progress: bool
) -> tqdm[str]:
    """Return a progress bar on standard error, if that is a terminal."""
    return tqdm(items, title, total, unit=unit, disable=None if progress and total else True)


def _total(sequences: Sequence[Sequence[int]]) -> int:
    return sum(map(len, sequences))


def _key(baking: Baking, digest: str, prompts: Sequence[str]) -> str:
    """Return a hash of all inputs of conversations."""
    lengths = [baking.turn_tokens, baking.reply_tokens]
    body = [_VERSION, digest, baking.seed, lengths, list(prompts)]
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()


def _open_journal(store: Path) -> Journal:
    """Open the journal of an interrupted run, or a new one if it is missing or damaged."""
    path = store / "journal"
    try:
        return Journal(path)
    except ValueError:
        tqdm.write("earlier conversations are damaged: baking begins again", file=sys.stderr)
        path.unlink()
        return Journal(path)


def _read_texts(backend: Backend, files: Sequence[Path]) -> tuple[list[list[int]], list[str]]:
    """Read the tokens of texts and the prompts of JSON lines."""
    texts, prompts = list[list[int]](), list[str]()
    for file in files:
        text = read_text(file)
        if file.suffix == ".jsonl":
            prompts += [_prompt(line, file) for line in text.splitlines() if line.strip()]
        else:
            pieces = (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
            texts += [encode_text(backend.tokenizer, piece) for piece in pieces]
    return texts, prompts


def _prompt(line: str, file: Path) -> str:
    """Parse a prompt in JSON: a string, or the entry ``prompt`` of an object."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{file}: a line must be JSON ({error})") from error
    prompt = entry.get("prompt") if isinstance(entry, dict) else entry
    if not isinstance(prompt, str) or not prompt.strip():
        raise FileError(
            f"{file}: a line must be a text, or an object with a text as prompt, "
            f"not {reprlib.repr(entry)}"
        )
    return prompt
