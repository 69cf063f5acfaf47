"""Packed models, and files of llama.cpp, as ways to decode."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.bench.conform.replies import Reply
from cassandra_spec.bench.decode.workers import Worker
from cassandra_spec.drafting import Counters, Settings, encode_prompt
from cassandra_spec.drafting.choice.sampling import top_tokens
from cassandra_spec.model.backends import CheckedBackend, Pass

MAX_DRAFTED = 8
"""Drafted tokens of the verifications whose rows are compared."""


class Vocabulary:
    """A tokenizer with a name of its file's contents."""

    def __init__(self, tokenizer: Any, source: Path, *, raw: bool) -> None:
        self._tokenizer, self._raw = tokenizer, raw
        self._digest = hashlib.sha256((source / "tokenizer.json").read_bytes()).hexdigest()

    def encode(self, prompt: str) -> list[int]:
        """Encode a user's prompt, in the chat template unless it is raw."""
        return encode_prompt(self._tokenizer, prompt, raw=self._raw)

    def reply(self, tokens: Sequence[int]) -> Reply:
        """Decode the tokens of a reply."""
        texts = [
            self._tokenizer.decode(tokens[:stop], skip_special_tokens=True)
            for stop in range(1, len(tokens) + 1)
        ]
        ends = tuple(map(len, texts))
        text = texts[-1] if texts else ""
        return Reply(text=text, ends=ends, tokens=tuple(tokens), vocabulary=self._digest)


class Packed:
    """A packed model in a backend (:class:`~cassandra_spec.bench.conform.replies.Way`)."""

    def __init__(
        self,
        name: str,
        backend: CheckedBackend,
        settings: Settings,
        vocabulary: Vocabulary,
        about: Sequence[object],
    ) -> None:
        self.name, self._backend, self._vocabulary, self._about = name, backend, vocabulary, about
        self._settings = dataclasses.replace(settings, stop_tokens=backend.stop_tokens())

    @property
    def key(self) -> Sequence[object]:
        """The model, the backend and the settings."""
        return [*self._about, repr(self._settings)]

    def reply(self, prompt: str) -> Reply:
        """Generate a reply by the backend's rounds."""
        ids = self._vocabulary.encode(prompt)
        rounds = self._backend.rounds(ids, self._settings, Counters())
        return self._vocabulary.reply(list(itertools.chain.from_iterable(rounds)))

    def margin(self, prompt: str, reply: Reply, place: int) -> float | None:
        """Return the margin of the target's logits, from one pass over the tokens before."""
        tokens = [*self._vocabulary.encode(prompt), *reply.tokens[:place]]
        [logits] = self._backend.passes(len(tokens))(tokens, 0, 1)
        best, second = top_tokens(logits, 2)
        return float(logits[best]) - float(logits[second])

    def unequal_rows(self, prompt: str, reply: Reply) -> list[int] | None:
        """Along the end of the reply."""
        tokens = [*self._vocabulary.encode(prompt), *reply.tokens]
        return unequal_rows(self._backend.passes(len(tokens)), tokens)


def unequal_rows(run: Pass, tokens: Sequence[int]) -> list[int]:
    """Return :meth:`Way.unequal_rows` for the last of some tokens."""
    most = min(MAX_DRAFTED, len(tokens) - 1)
    start = len(tokens) - most - 1
    if start:
        run(tokens[:start], 0, 1)
    alone = [run([token], start + n, 1).tobytes() for n, token in enumerate(tokens[start:])]
    return [
        drafted
        for drafted in range(1, most + 1)
        if run(tokens[start : start + drafted + 1], start, drafted + 1).tobytes()
        != b"".join(alone[: drafted + 1])
    ]


class Gguf:
    """A file of llama.cpp, decoded plainly by its library, on the tokens of a packed model."""

    def __init__(
        self,
        name: str,
        worker: Worker,
        vocabulary: Vocabulary,
        *,
        max_tokens: int,
        stops: frozenset[int],
        about: Sequence[object],
    ) -> None:
        self.name, self._worker, self._vocabulary = name, worker, vocabulary
        self._request = {"max_tokens": max_tokens, "stops": sorted(stops)}
        self._about = about

    @property
    def key(self) -> Sequence[object]:
        """The file and the request."""
        return [*self._about, self._request]

    def reply(self, prompt: str) -> Reply:
        """Request a reply from the worker."""
        found = self._worker.ask({"prompt": self._vocabulary.encode(prompt), **self._request})
        return self._vocabulary.reply(found["tokens"])

    def margin(self, prompt: str, reply: Reply, place: int) -> float | None:
        """Return None: the worker returns only tokens."""
        return None

    def unequal_rows(self, prompt: str, reply: Reply) -> list[int] | None:
        """Return None: the worker returns only tokens."""
        return None
