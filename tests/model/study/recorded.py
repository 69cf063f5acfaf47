"""Replies of a real model to several kinds of prompts, with all that its draft view would draft.

    python -m tests.model.study.recorded

makes the file again: SmolLM2, exact with 4 bits, prompts that no figure and no parameter is of.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.model.packing.calibration import (
    Calibration,
    cache_directory,
    load_or_calibrate,
)
from cassandra_spec.model.study.chains import Sequences
from cassandra_spec.model.study.drafts import Study
from cassandra_spec.model.study.emulation import Drafts, Replies
from cassandra_spec.model.study.prompts import bundled_prompts
from cassandra_spec.model.study.settings import choose
from cassandra_spec.model.weights.sources import open_source

FILE = Path(__file__).with_name("recorded.npz")
KINDS = ("code", "explain", "list", "poem", "recipe", "rewrite", "story", "translate")
OF_A_KIND = 2
DEPTH = 8
TOKENS = 256


def record() -> None:
    """Write the file: some minutes."""
    chosen = [
        prompt
        for kind in KINDS
        for prompt in [each for each in bundled_prompts("soak") if each.kind == kind][:OF_A_KIND]
    ]
    source = open_source("smollm2")
    study = Study(
        source,
        [prompt.text for prompt in chosen],
        norms=load_or_calibrate(source, Calibration(), cache=cache_directory(), progress=True),
        max_tokens=TOKENS,
        depth=DEPTH,
        progress=True,
    )
    found = study.measure(choose(["exact-4-kv"])[0])
    arrays: dict[str, NDArray[Any]] = {}
    for at, (prompt, drafts) in enumerate(zip(chosen, found.drafts, strict=True)):
        each = {
            "prompt": np.array(found.replies.prompts[at], np.uint16),
            "reply": np.array(found.replies.replies[at], np.uint16),
            "likely": np.array(found.replies.likely[at], np.uint16),
            "tokens": drafts.tokens.astype(np.uint16),
            "seconds": drafts.seconds.astype(np.uint16),
            "margins": drafts.margins.astype(np.float16),
        }
        name = f"{prompt.kind}.{at % OF_A_KIND}"
        arrays |= {f"{name}.{part}": array for part, array in each.items()}
    np.savez_compressed(FILE, allow_pickle=False, **arrays)


def recorded(kind: str) -> tuple[Replies, tuple[Drafts, ...]]:
    """The replies of a kind, and what the draft view drafts from each place of them."""
    with np.load(FILE) as file:
        arrays = [
            {name: file[f"{kind}.{number}.{name}"] for name in _NAMES}
            for number in range(OF_A_KIND)
        ]
    replies = Replies(
        prompts=tuple(tuple(each["prompt"].tolist()) for each in arrays),
        replies=tuple(tuple(each["reply"].tolist()) for each in arrays),
        max_tokens=TOKENS,
        stop_tokens=frozenset({2}),
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
    record()
