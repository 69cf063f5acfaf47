"""Greedy replies to the prompts for figures, for measurements that follow known replies."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import torch

from cassandra_spec.bench.study.prompts import Use, bundled_prompts
from cassandra_spec.drafting import ADAPTIVE, Counters, Settings, encode_prompt
from cassandra_spec.lab.baselines.teacher_forced import played
from cassandra_spec.model.backends import BACKENDS, CheckedBackend, Opening
from cassandra_spec.model.baking import Baking, OwnText
from cassandra_spec.model.packing.packer import open_packed


@dataclasses.dataclass(frozen=True, kw_only=True)
class KnownReply:
    """A prompt and the greedy reply to it, as tokens."""

    prompt: list[int]
    reply: list[int]

    @property
    def tokens(self) -> list[int]:
        """Both."""
        return [*self.prompt, *self.reply]


def known_replies(
    source: Path,
    texts: Sequence[str],
    *,
    max_tokens: int,
    threads: int | None = None,
    say: Callable[[str], object] = lambda line: None,
) -> list[KnownReply]:
    """Generate replies of a packed model to the texts that fit, by the native engine."""
    found = list[KnownReply]()
    with NativeReplies(source, max_tokens=max_tokens, threads=threads) as native:
        for number, text in enumerate(texts, start=1):
            prompt = encode_prompt(native.tokenizer, text)
            if len(prompt) + max_tokens <= native.positions:
                found.append(KnownReply(prompt=prompt, reply=native.reply(prompt)))
            say(f"{number} of {len(texts)} replies")
    return found


def bundled_texts(use: Use) -> list[str]:
    """Return the bundled prompts of one use."""
    return [each.text for each in bundled_prompts(use)]


def own_conversations(source: Path, tokens: int, *, threads: int | None = None) -> list[list[int]]:
    """Text of a packed model's own, by the native engine (docs/software/table.md)."""
    with NativeReplies(source, max_tokens=1, threads=threads) as native:
        return native.conversations(source, tokens)


class NativeReplies:
    """Greedy replies of a packed model by the native engine, the quickest way to them.

    The engine is opened at the first reply, and closed at the end of the block.
    """

    def __init__(self, source: Path, *, max_tokens: int, threads: int | None = None) -> None:
        self._source, self._opening = source, Opening(threads=threads)
        self._settings = Settings(gamma=ADAPTIVE, min_margin=0.75, max_tokens=max_tokens)

    @functools.cached_property
    def _backend(self) -> CheckedBackend:
        opened = BACKENDS["native"](self._source, self._opening, self._settings)
        return self._open.enter_context(opened)

    @property
    def tokenizer(self) -> Any:
        """Return the model's tokenizer."""
        return self._backend.tokenizer

    @property
    def positions(self) -> int:
        """Maximum length of a sequence, prompt and reply."""
        return self._backend.positions

    def conversations(self, source: Path, tokens: int) -> list[list[int]]:
        """Generate conversations of the model with itself, with at least ``tokens`` tokens."""
        text = OwnText(
            self._backend, Baking(tokens=tokens), self._settings, open_packed(source).digest
        )
        with tempfile.TemporaryDirectory() as store:
            return text.make(Path(store)).own

    def reply(self, prompt: Sequence[int]) -> list[int]:
        """Generate the tokens of a reply."""
        stops = self._backend.stop_tokens()
        asked = dataclasses.replace(self._settings, stop_tokens=stops)
        rounds = self._backend.rounds(prompt, asked, Counters())
        return list(itertools.chain.from_iterable(rounds))

    def __enter__(self) -> Self:
        self._open = contextlib.ExitStack()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chains:
    """Rounds of a drafter whose tokens depend on the tokens before them alone."""

    agreement: float  # share of all places of the replies at which its token is the reply's
    acceptance: float  # accepted / (rounds x length)
    per_verification: float  # tokens

    @classmethod
    def of(cls, right: Sequence[Sequence[bool]], length: int, max_tokens: int) -> Chains:
        """Compute chains from the correctness at each position of each reply after the first
        token.
        """
        accepted = [played(each, gamma=length, max_tokens=max_tokens) for each in right]
        rounds, places = sum(map(len, accepted)), sum(map(len, right))
        return cls(
            agreement=sum(map(sum, right)) / places,
            acceptance=sum(map(sum, accepted)) / (rounds * length),
            per_verification=places / rounds,
        )


@torch.inference_mode()
def forced_logits(network: Any, known: KnownReply) -> torch.Tensor:
    """Compute a network's logits, float32 [reply - 1, vocabulary], after each token of a reply."""
    tokens = known.tokens[:-1]
    out = network(
        input_ids=torch.tensor([tokens]), use_cache=False, logits_to_keep=len(known.reply) - 1
    )
    logits: torch.Tensor = out.logits[0].float()
    return logits


def surprise(logits: torch.Tensor, tokens: Sequence[int]) -> float:
    """Return minus the sum of the log-probabilities of tokens; one row of logits per token."""
    chances = logits.log_softmax(-1)
    return -float(chances[torch.arange(len(tokens)), torch.tensor(tokens)].sum())


def distinct_share(tokens: Sequence[int]) -> float:
    """Return the share of four-grams that occur once."""
    grams = [tuple(tokens[at : at + 4]) for at in range(len(tokens) - 3)]
    return sum(grams.count(each) == 1 for each in grams) / max(len(grams), 1)
