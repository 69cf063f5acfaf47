"""One reply of the regression: what is answered, and how. Workers import it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import torch

from cassandra_spec.drafting import Counters, Settings
from cassandra_spec.golden import Format
from cassandra_spec.model.packing.packer import Recipe
from cassandra_spec.model.speculative import CassandraForCausalLM, KeyValueFormat, decode
from cassandra_spec.model.study.prompts import bundled_prompts

GAMMAS = range(1, 9)
RECIPES = {
    "unary": Recipe(format=Format(scheme="unary", truncated=4), prune=0.4),
    "exact": Recipe(
        format=Format(scheme="exact", group=64, truncated=4, fill="midpoint"),
        group_exponents="weighted",
    ),
    "mx": Recipe(format=Format(scheme="mx", truncated=4, fill="midpoint")),
}
KV = KeyValueFormat(format=Format(scheme="unary", truncated=4, fill="midpoint"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One reply: gamma 0 is plain decoding."""

    scheme: str
    kv: bool
    gamma: int
    prompt: int  # number

    @property
    def key(self) -> str:
        """For the file of replies."""
        return f"{self.scheme} {'kv' if self.kv else 'bf16'} {self.gamma} {self.prompt}"

    @property
    def plain(self) -> Case:
        """What the reply must be equal to; lossless schemes share theirs."""
        scheme = "mx" if self.scheme == "mx" else "exact"
        return Case(scheme=scheme, kv=False, gamma=0, prompt=self.prompt)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """The tokens of a reply, and how many of the drafted ones were accepted."""

    tokens: tuple[int, ...]
    accepted: int
    drafted: int


def cases(schemes: Sequence[str], prompts: int) -> Iterator[Case]:
    """Plain replies first; gamma goes from 1 to 8 over the prompts."""
    speculative = [
        Case(scheme=scheme, kv=kv, gamma=GAMMAS[prompt % len(GAMMAS)], prompt=prompt)
        for scheme in schemes
        for kv in ((False,) if scheme == "mx" else (False, True))
        for prompt in range(prompts)
    ]
    yield from dict.fromkeys(case.plain for case in speculative)
    yield from speculative


@cache
def _model(folder: Path, scheme: str) -> CassandraForCausalLM:
    return CassandraForCausalLM.from_pretrained(folder / scheme)


def answer(folder: Path, case: Case, max_tokens: int) -> Answer:
    """Decode one reply, on one thread."""
    torch.set_num_threads(1)
    lm = _model(folder, case.scheme)
    prompt = lm.encode_prompt(bundled_prompts()[case.prompt].text)
    settings = Settings(gamma=case.gamma, max_tokens=max_tokens, stop_tokens=lm.stop_tokens())
    session = lm.session(len(prompt) + max_tokens, kv=KV if case.kv else None)
    counters = Counters()
    tokens = [token for emitted in decode(session, prompt, settings, counters) for token in emitted]
    return Answer(tokens=tuple(tokens), accepted=counters.accepted, drafted=counters.drafted)
