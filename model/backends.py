"""Packed models opened for replies: torch and native code behind one interface."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.drafting import (
    Backend,
    Counters,
    NgramTable,
    Sequences,
    Settings,
    stop_tokens,
)
from cassandra_spec.golden import CassandraError, Codec, Encoder
from cassandra_spec.golden.model_config import read_config
from cassandra_spec.model.packing.packer import open_packed
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.engine_binding import engine_library
from cassandra_spec.native.forms import TARGETS, TRIED_PLANES, Target
from cassandra_spec.native.key_values import SealedFormat
from cassandra_spec.native.library import isa
from cassandra_spec.native.models.kept import weights_cache
from cassandra_spec.native.models.reading import read_model_config
from cassandra_spec.native.rounds.chains import rejecting_rounds

Pass = Callable[[Sequence[int], int, int], NDArray[np.float32]]
"""Run the target on consecutive tokens from a position on; ``Pass(tokens, position, last)`` returns
the logits of the ``last`` tokens, float32 [last, vocabulary]. Earlier positions must be written."""


class CheckedBackend(Backend, Protocol):
    """A backend that can check its weights, and knows how long a sequence may be."""

    @property
    def positions(self) -> int:
        """Maximum length of a sequence, prompt and reply."""

    def passes(self, positions: int) -> Pass:
        """Return passes over one sequence of up to ``positions``; decode no reply between them."""

    def verify(self) -> None:
        """Raise :class:`CassandraError` if the weights in memory have changed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opening:
    """Options with which a backend opens a packed model."""

    table: Path | None = None  # file of n-grams
    verify: bool = False  # keep checksums of the weights in memory
    native_target: Target = "bf16"  # form of the native target in memory
    threads: int | None = None  # native engine; None: one per processor
    memory_limit: int | None = None  # bytes; native weights beyond it stay in the file
    sequences: int = 1  # that the native engine decodes at once
    context: int | None = None  # maximum positions of a sequence; None: the model's default
    codec: Codec | None = None  # decodes weights for torch; None: golden's
    encoder: Encoder | None = None  # packs torch's keys and values; None: golden's
    kv: SealedFormat | None = None  # form of keys and values, torch's with it; None: BF16


@contextmanager
def _open_torch(source: Path, opening: Opening, settings: Settings) -> Iterator[CheckedBackend]:
    """Open a model with torch's kernels on decoded weights."""
    from cassandra_spec.model.speculative import (  # takes seconds
        CassandraForCausalLM,
        KeyValueFormat,
    )

    assert opening.kv is None or isinstance(opening.kv, KeyValueFormat)
    yield CassandraForCausalLM.from_pretrained(
        source,
        codec=opening.codec,
        encoder=opening.encoder,
        kv=opening.kv,
        table=_table(source, opening),
        verify=opening.verify,
        context=opening.context,
    )


@contextmanager
def _open_native(source: Path, opening: Opening, settings: Settings) -> Iterator[CheckedBackend]:
    """Open a model with the native engine, which re-encodes the packed weights."""
    open_packed(source)
    with Engine.from_packed(
        source,
        target=opening.native_target,
        threads=opening.threads,
        draft=settings.uses_draft_view,
        slots=opening.sequences,
        context=opening.context,
        memory_limit=opening.memory_limit,
        cache=weights_cache(),
        verify=opening.verify,
        key_values=opening.kv,
    ) as engine:
        engine.use_table(_table(source, opening))
        tokenizer = load_tokenizer(source)
        yield _Native(engine, tokenizer, stop_tokens(tokenizer, source))


def _table(source: Path, opening: Opening) -> NgramTable | None:
    from cassandra_spec.model.baking import open_table

    return open_table(opening.table, source) if opening.table else None


def timed_targets() -> tuple[Target, ...]:
    """Return the forms of the native target that are compared on this machine."""
    return tuple(target for target in TARGETS if target != "planes" or isa() in TRIED_PLANES)


VERIFIED_ROWS = 6
"""Rows of a typical verification: adaptive drafts have up to seven nodes."""


def target_seconds(
    source: Path, threads: int | None, rows: int, passes: int = 11
) -> dict[Target, float]:
    """Time a pass over ``rows`` with each form of the native target; return median seconds.

    Forms of fewer bits win with one row, where memory is the limit, and lose with several, where
    each value is decoded as often. The model is loaded once for each form, without its draft.
    """
    seconds = {}
    for target in timed_targets():
        with Engine.from_packed(
            source, target=target, draft=False, threads=threads, context=rows * (passes + 1)
        ) as engine:
            seconds[target] = statistics.median(_pass_seconds(engine, rows, passes))
    return seconds


def _pass_seconds(engine: Engine, rows: int, passes: int) -> Iterator[float]:
    engine.forward([0] * rows, last=rows)
    for number in range(1, passes + 1):
        begun = time.perf_counter()
        engine.forward([0] * rows, rows * number, last=rows)
        yield time.perf_counter() - begun


class _Native:
    """An engine with its tokenizer, which also runs several sequences at once."""

    def __init__(self, engine: Engine, tokenizer: Any, stops: frozenset[int]) -> None:
        self.tokenizer = tokenizer
        self._engine = engine
        self.costs = engine.costs
        self.make_report = engine.make_report
        self.verify = engine.verify
        self._stops = stops

    @property
    def positions(self) -> int:
        """Maximum length of a sequence, prompt and reply."""
        return self._engine.context

    def rounds(
        self, prompt: Sequence[int], settings: Settings, counters: Counters, **ends: Any
    ) -> Iterator[list[int]]:
        """Run the engine's rounds, or those with acceptance by Eq. 1."""
        if settings.rejects:
            return rejecting_rounds(self._engine, prompt, settings, counters, **ends)
        return self._engine.rounds(prompt, settings, counters, **ends)

    def passes(self, positions: int) -> Pass:
        """Return the engine's passes."""
        return lambda tokens, position, last: self._engine.forward(tokens, position, last=last)

    def stop_tokens(self) -> frozenset[int]:
        """Return the tokens that end a reply, by the tokenizer and the model's files."""
        return self._stops

    def sequences(self, counters: Counters | None = None, *, keep: bool = False) -> Sequences:
        """Open the sequences of the engine, one per slot."""
        return self._engine.sequences(counters, keep=keep)


BACKENDS: dict[str, Callable[[Path, Opening, Settings], AbstractContextManager[CheckedBackend]]] = {
    "torch": _open_torch,
    "native": _open_native,
}
"""Each opens the model in a directory, as an :class:`Opening` says, for some settings."""


def native_obstacle(source: Path) -> str:
    """Return why native code cannot run a model on this machine, or an empty string."""
    config = read_config(source)
    try:
        read_model_config(config)
        engine_library()
    except CassandraError as error:
        return str(error)
    return ""
