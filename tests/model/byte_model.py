"""A small packed model over bytes, which grammars can be compiled for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.commands.__main__ import main
from cassandra_spec.drafting import Settings
from cassandra_spec.model.backends import BACKENDS, CheckedBackend, Opening
from cassandra_spec.text.grammar import Grammar, GrammarCompiler, GrammarText, Syntax
from tests.model.tiny import write_model
from tests.text.byte_tokens import END, byte_tokenizer

COMPILER = GrammarCompiler(byte_tokenizer(), frozenset({END}))


def pack_byte_model(place: Path) -> Path:
    """Write and pack the model, and return its directory."""
    write_model(place / "plain", vocab_size=272, max_position_embeddings=1 << 12)
    byte_tokenizer().save_pretrained(place / "plain")
    flags = ["--scheme", "exact", "--fill", "midpoint", "--quiet", "--jobs", "1"]
    assert main(["pack", str(place / "plain"), str(place / "packed"), *flags]) == 0
    return place / "packed"


@contextlib.contextmanager
def opened(packed: Path, backend: str, *, sequences: int = 1) -> Iterator[CheckedBackend]:
    """Open the model for drafts of every kind."""
    opening = Opening(threads=1, sequences=sequences, context=1 << 12)
    with BACKENDS[backend](packed, opening, Settings(draft="hybrid")) as made:
        yield made


def logits_after(backend: CheckedBackend) -> Callable[[Sequence[int]], NDArray[np.float32]]:
    """Return what gives the logits after some tokens, by a pass over all of them."""
    run: Any = backend.passes(1 << 10)
    return lambda tokens: run(tokens, 0, 1)[0]


def compiled(syntax: Syntax, text: str) -> Grammar:
    """Return a grammar over the model's tokens."""
    return COMPILER.compile(GrammarText(syntax=syntax, text=text))
