"""Replies of the torch runtime, with keys and values in BF16 and in the format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import torch

from cassandra_spec.drafting import Counters, decode
from cassandra_spec.golden import Format
from cassandra_spec.lab.soak.cases import Answer, Case, Prompts, Run
from cassandra_spec.model.speculative import CassandraForCausalLM, KeyValueFormat

GAMMAS = range(1, 9)
BF16, PACKED = "BF16", "unary -4"
KV = KeyValueFormat(format=Format(scheme="unary", truncated=4, fill="midpoint"))


def pairs(schemes: Sequence[str], prompts: int) -> Iterator[tuple[Case, Case]]:
    """Speculative and plain cases; gamma goes from 1 to 8 over the prompts."""
    for scheme in schemes:
        for variant in (BF16,) if scheme == "mx" else (BF16, PACKED):
            for prompt in range(prompts):
                gamma = GAMMAS[prompt % len(GAMMAS)]
                case = Case(scheme=scheme, variant=variant, prompt=prompt, gamma=gamma)
                yield case, case.plain(BF16)


@cache
def _model(folder: Path) -> CassandraForCausalLM:
    return CassandraForCausalLM.from_pretrained(folder)


def answer(run: Run, case: Case) -> Answer:
    """Decode one reply, on one thread unless others are asked for."""
    torch.set_num_threads(run.threads or 1)
    place = run.folder / case.scheme
    lm, prompts = _model(place), Prompts.of(place)
    prompt, counters = prompts(case), Counters()
    kv = KV if case.variant == PACKED else None
    session = lm.session(len(prompt) + run.max_tokens, kv=kv)
    rounds = decode(session, prompt, case.settings(run.max_tokens, prompts.stops), counters)
    return Answer.of(rounds, counters)
