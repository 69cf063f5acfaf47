"""Baking a table of n-grams from a model's own text (docs/table.md).

Each conversation has a user turn that the model samples, at temperature 1, behind the opening of
its chat template, and the greedy reply to it. A conversation depends on the seed and its number
alone, so work that was interrupted goes on, and the same seed gives the same table.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import reprlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from cassandra_spec.drafting import (
    Backend,
    Counters,
    NgramTable,
    Sampling,
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

_VERSION = 1  # of what a seed and a number make
_PIECE = 1 << 16  # characters of a text that are tokenised together
_MOST_EMPTY = 100  # user turns without text, one after another


@dataclasses.dataclass(frozen=True, kw_only=True)
class Baking:
    """What a table is made of, and how large it is."""

    tokens: int = 50_000  # of the model's own conversations, at least
    texts: tuple[Path, ...] = ()  # of the user's own: text, or prompts in JSON lines (.jsonl)
    turn_tokens: int = 64  # of a user turn, at most
    reply_tokens: int = 128  # of a reply, at most
    seed: int = 0
    order: int = 3
    most_bytes: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Baked:
    """What baking has done."""

    entries: int
    bytes: int  # of the file
    own_tokens: int  # of the model's own conversations
    text_tokens: int  # of texts, and of conversations that begin with their prompts
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
            made.sequences, vocabulary=vocabulary, order=baking.order, most_bytes=baking.most_bytes
        )
        tokens = {"own_tokens": _total(made.own), "text_tokens": _total(made.given)}
        table.save(path, {**_digests(model), "seed": baking.seed, **tokens})
        return Baked(entries=len(table), bytes=path.stat().st_size, resumed=made.resumed, **tokens)


def open_table(path: Path, model: Path) -> NgramTable:
    """A table with the tokens of a packed model.

    Raises :class:`FileError` if it is of a model with another tokenizer.
    """
    vocabulary = int(read_config(model)["vocab_size"])
    return NgramTable.load(path, vocabulary=vocabulary, owner=_digests(model))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MadeText:
    """Sequences of tokens to count, or to train on."""

    given: list[list[int]]  # texts, and conversations that begin with their prompts
    own: list[list[int]]  # the model's own conversations
    resumed: int  # conversations that an interrupted run had made

    @property
    def sequences(self) -> list[list[int]]:
        """All of them."""
        return [*self.given, *self.own]


class OwnText:
    """A model's own text, as ``baking`` says; ``key`` is a hash of all that it depends on."""

    def __init__(self, backend: Backend, baking: Baking, reply: Settings, digest: str) -> None:
        self._texts, self._prompts = _read_texts(backend, baking.texts)
        self._backend, self._baking, self._reply = backend, baking, reply
        self.key = _key(baking, digest, self._prompts)

    def make(self, store: Path, *, progress: bool = False) -> MadeText:
        """The text; conversations that an interrupted run has put into ``store`` are taken over."""
        made = _Conversations(self._backend, self._baking, self._reply, _open_journal(store))
        resumed = len(made)
        given = [*self._texts, *made.replies(self._prompts, progress)]
        own = made.own(len(self._prompts), progress)
        return MadeText(given=given, own=own, resumed=resumed)


class _Conversations:
    """Tokens of conversations by number, from the journal or made now."""

    def __init__(self, backend: Backend, baking: Baking, reply: Settings, journal: Journal) -> None:
        stops = reply.stop_tokens | backend.stop_tokens()
        self._backend, self._baking, self._journal = backend, baking, journal
        self._reply = dataclasses.replace(reply, max_tokens=baking.reply_tokens, stop_tokens=stops)
        self._turn = Settings(
            gamma=0,
            draft="none",
            max_tokens=baking.turn_tokens,
            stop_tokens=stops,
            sampling=Sampling(temperature=1.0),
        )
        self._opening = encode_opening(backend.tokenizer)

    def __len__(self) -> int:
        return len(self._journal.lines)

    def replies(self, prompts: Sequence[str], progress: bool) -> list[list[int]]:
        """Conversations that begin with these prompts."""
        with _bar("replying", prompts, len(prompts), " prompts", progress) as bar:
            return [self.reply(number, prompt) for number, prompt in enumerate(bar)]

    def own(self, first: int, progress: bool) -> list[list[int]]:
        """Conversations from number ``first`` on, until there are tokens enough."""
        found: list[list[int]] = []
        with _bar("baking", None, self._baking.tokens, " tokens", progress) as bar:
            while _total(found) < self._baking.tokens:
                found.append(self.reply(first + len(found)))
                bar.update(len(found[-1]))
        return found

    def reply(self, number: int, prompt: str | None = None) -> list[int]:
        """A conversation that begins with a prompt, or with a turn that the model samples."""
        if number == len(self):
            turn = self._sampled(number) if prompt is None else prompt
            tokens = encode_prompt(self._backend.tokenizer, turn)
            self._journal.add({"tokens": [*tokens, *self._emitted(tokens, self._reply)]})
        return list(self._journal.lines[number]["tokens"])

    def _sampled(self, number: int) -> str:
        """A user turn with some text in it."""
        for attempt in range(_MOST_EMPTY):
            state = np.random.SeedSequence([self._baking.seed, number, attempt])
            seed = int(state.generate_state(1)[0])
            tokens = self._emitted(self._opening, dataclasses.replace(self._turn, seed=seed))
            text: str = self._backend.tokenizer.decode(tokens, skip_special_tokens=True).strip()
            if text:
                return text
        raise CassandraError("the model must sample user turns with some text, and samples none")

    def _emitted(self, tokens: Sequence[int], settings: Settings) -> list[int]:
        rounds = self._backend.rounds(tokens, settings, Counters())
        return list(itertools.chain.from_iterable(rounds))


def _digests(model: Path) -> dict[str, str]:
    """What says whose tokens a table has: of the packed model, and of its tokenizer, if any."""
    tokenizer = model / "tokenizer.json"
    found = {"model_digest": open_packed(model).digest}
    if tokenizer.exists():
        found["tokenizer_digest"] = hashlib.sha256(tokenizer.read_bytes()).hexdigest()
    return found


def _bar(
    title: str, items: Iterable[str] | None, total: int, unit: str, progress: bool
) -> tqdm[str]:
    """A bar on standard error, if that is a terminal."""
    return tqdm(items, title, total, unit=unit, disable=None if progress and total else True)


def _total(sequences: Sequence[Sequence[int]]) -> int:
    return sum(map(len, sequences))


def _key(baking: Baking, digest: str, prompts: Sequence[str]) -> str:
    """A hash of all that conversations depend on."""
    lengths = [baking.turn_tokens, baking.reply_tokens]
    body = [_VERSION, digest, baking.seed, lengths, list(prompts)]
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()


def _open_journal(store: Path) -> Journal:
    """The journal of an interrupted run, or a new one if it is missing or damaged."""
    path = store / "journal"
    try:
        return Journal(path)
    except ValueError:
        tqdm.write("earlier conversations are damaged: baking begins again", file=sys.stderr)
        path.unlink()
        return Journal(path)


def _read_texts(backend: Backend, files: Sequence[Path]) -> tuple[list[list[int]], list[str]]:
    """Tokens of texts, and prompts of JSON lines."""
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
    """A prompt in JSON: a string, or the entry ``prompt`` of an object."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{file}: a line must be JSON ({error})") from error
    prompt = found.get("prompt") if isinstance(found, dict) else found
    if not isinstance(prompt, str) or not prompt.strip():
        raise FileError(
            f"{file}: a line must be a text, or an object with a text as prompt, "
            f"not {reprlib.repr(found)}"
        )
    return prompt
