"""Replies of a real model to several kinds of prompts, with all that its draft view would draft.

    python -m tests.bench.study.recorded PACKED

makes the file again, from a packed SmolLM2 (preset fast) and prompts that no figure and no
parameter is of.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.bench.study.chains import Sequences
from cassandra_spec.bench.study.emulation import Drafts, Replies
from cassandra_spec.bench.study.prompts import bundled_prompts
from cassandra_spec.drafting import Counters, Settings, encode_prompt
from cassandra_spec.drafting.low import BRANCHES
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.native.engine import Engine

FILE = Path(__file__).with_name("recorded.npz")
KINDS = ("code", "explain", "list", "poem", "recipe", "rewrite", "story", "translate")
OF_A_KIND = 2
DEPTH = 8
TOKENS = 256
_END = 2  # stop token

Arrays = dict[str, NDArray[Any]]


def record(packed: Path) -> None:
    """Write the file: a quarter of an hour on one core."""
    engine, tokenizer = Engine.from_packed(packed, threads=1), load_tokenizer(packed)
    arrays: Arrays = {}
    for kind in KINDS:
        prompts = [each.text for each in bundled_prompts("soak") if each.kind == kind]
        for number, text in enumerate(prompts[:OF_A_KIND]):
            found = _record(engine, encode_prompt(tokenizer, text))
            arrays |= {f"{kind}.{number}.{name}": array for name, array in found.items()}
            print(kind, number, len(found["reply"]), flush=True)
    np.savez_compressed(FILE, allow_pickle=False, **arrays)


def _record(engine: Engine, prompt: list[int]) -> Arrays:
    """Return one reply, the target's best tokens, and chains of the draft view from every place."""
    asked = Settings(gamma=3, max_tokens=TOKENS, stop_tokens=frozenset({_END}))
    reply = [token for some in engine.rounds(prompt, asked, Counters()) for token in some]
    places = len(reply) - 1
    engine.forward(prompt, 0, last=0)
    likely = np.zeros((places, BRANCHES), np.uint16)
    tokens, seconds = np.zeros((2, places, DEPTH), np.uint16)
    margins = np.zeros((places, DEPTH), np.float16)
    for place in range(places):
        position, token = len(prompt) + place, reply[place]
        for step in range(DEPTH):
            logits = engine.forward([token], position + step, draft=True)[0]
            token, second = np.argsort(-logits, kind="stable")[:2].tolist()
            tokens[place, step], seconds[place, step] = token, second
            margins[place, step] = logits[token] - logits[second]
        target = engine.forward([reply[place]], position)[0]
        likely[place] = np.argsort(-target, kind="stable")[:BRANCHES]
        assert likely[place, 0] == reply[place + 1]
    return {
        "prompt": np.array(prompt, np.uint16),
        "reply": np.array(reply, np.uint16),
        "likely": likely,
        "tokens": tokens,
        "seconds": seconds,
        "margins": margins,
    }


def recorded(kind: str) -> tuple[Replies, tuple[Drafts, ...]]:
    """Return the replies of a kind, and what the draft view drafts from each place of them."""
    with np.load(FILE) as file:
        arrays = [
            {name: file[f"{kind}.{number}.{name}"] for name in _NAMES}
            for number in range(OF_A_KIND)
        ]
    replies = Replies(
        prompts=tuple(tuple(each["prompt"].tolist()) for each in arrays),
        replies=tuple(tuple(each["reply"].tolist()) for each in arrays),
        max_tokens=TOKENS,
        stop_tokens=frozenset({_END}),
        sequences=Sequences(OF_A_KIND),
        likely=tuple(tuple(map(tuple, each["likely"].tolist())) for each in arrays),
    )
    drafts = tuple(
        Drafts(
            tokens=each["tokens"].astype(np.int64),
            seconds=each["seconds"].astype(np.int64),
            margins=each["margins"].astype(np.float32),
        )
        for each in arrays
    )
    return replies, drafts


_NAMES = ("prompt", "reply", "likely", "tokens", "seconds", "margins")

if __name__ == "__main__":
    record(Path(sys.argv[1]))
