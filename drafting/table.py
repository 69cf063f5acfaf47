"""N-gram table: the most frequent continuations of n-grams in a text, such as a model's own.

A lookup needs no model pass. ``casspec bake-table`` makes the file (docs/software/table.md).
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.errors import CassandraError, FileError
from cassandra_spec.golden.file import PackedFile, RawTensor, Writer
from cassandra_spec.golden.format import is_integer

TOKEN_BITS = 21
"""Bits of a token in a key."""

CONTINUATIONS = 3
"""Maximum tokens of an entry."""

ENTRY_BYTES = 8 + 8 * CONTINUATIONS
"""Bytes of an entry, in memory and in a file."""

SMOOTHING = 5.0
"""Added to the occurrences of an n-gram; chosen by likelihood on the development prompts."""

TRUST = {1: 0.5, 2: 0.8}
"""Factor on the confidences of orders below 3: without a longer match the text differs from the
table's. Chosen on the development prompts.
"""

_MOST_ORDER = 64 // TOKEN_BITS
_KIND = "n-grams"
_DTYPES = {"keys": "U64", "tokens": "I32", "confidences": "F32"}
_NUMPY = {"U64": "<u8", "I32": "<i4", "F32": "<f4"}

_Keys = NDArray[np.uint64]
_Counts = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class TableOrder:
    """Continuations of n-grams of one order."""

    keys: _Keys  # [n], ascending: the n-gram, TOKEN_BITS per token, the latest in the lowest bits
    tokens: NDArray[np.int32]  # [n, CONTINUATIONS], best first; -1: unused
    confidences: NDArray[np.float32]  # [n, CONTINUATIONS]: share of continuations; 0: unused

    def find(self, run: Sequence[int]) -> Iterator[tuple[int, float]]:
        """Yield the continuations of an n-gram, best first, with their confidences."""
        key = np.uint64(_packed(run))
        place = int(np.searchsorted(self.keys, key))
        if place < len(self.keys) and self.keys[place] == key:
            continuations = zip(
                self.tokens[place].tolist(), self.confidences[place].tolist(), strict=True
            )
            yield from ((token, share) for token, share in continuations if token >= 0)


@dataclasses.dataclass(frozen=True, eq=False)
class NgramTable:
    """Continuations of n-grams, from the highest order down to 1."""

    orders: tuple[TableOrder, ...]

    def __len__(self) -> int:
        """Return the number of entries of all orders."""
        return sum(len(each.keys) for each in self.orders)

    def candidates(self, tail: Sequence[int]) -> list[tuple[int, float]]:
        """Return continuations of ``tail`` with confidences, highest order first, each once."""
        confidences: dict[int, float] = {}
        for order, each in zip(range(len(self.orders), 0, -1), self.orders, strict=True):
            if len(tail) >= order:
                trust = TRUST.get(order, 1.0)
                for token, share in each.find(tail[len(tail) - order :]):
                    confidences.setdefault(token, trust * share)
        return list(confidences.items())

    @classmethod
    def count(
        cls,
        sequences: Iterable[Sequence[int]],
        *,
        vocabulary: int,
        order: int = _MOST_ORDER,
        min_count: int = 1,
        max_bytes: int | None = None,
        smoothing: float = SMOOTHING,
    ) -> Self:
        """Count the continuations of each n-gram of 1 to ``order`` tokens in each sequence.

        N-grams that occur fewer than ``min_count`` times are dropped, and then the rarest, higher
        orders first, until the table fits ``max_bytes``. The confidence is count / (total +
        ``smoothing``). Among equal counts the smaller token comes first.
        """
        _check(order, vocabulary)
        tokens, places = _flat(sequences, vocabulary)
        counted = [_count(tokens, places, each) for each in range(1, order + 1)]
        kept = _frequent([each.totals for each in counted], min_count, max_bytes)
        orders = [_order(*each, smoothing) for each in zip(counted, kept, strict=True)]
        return cls(tuple(reversed(orders)))

    def save(self, path: Path, metadata: Mapping[str, Any]) -> None:
        """Write a file atomically.

        ``metadata`` is stored as JSON. Its ``tokenizer_digest`` identifies the tokenizer; files
        without one are identified by their ``model_digest``.
        """
        arrays = {
            f"{name}.{order}": getattr(each, name)
            for name in _DTYPES
            for order, each in zip(range(len(self.orders), 0, -1), self.orders, strict=True)
        }
        plan = {
            name: RawTensor(dtype=_dtype(name), shape=array.shape, nbytes=array.nbytes)
            for name, array in arrays.items()
        }
        about = {**metadata, "kind": _KIND, "order": len(self.orders)}
        with Writer(path, plan, about=about) as out:
            for name, array in arrays.items():
                data = np.ascontiguousarray(array, _NUMPY[_dtype(name)])
                out.write_raw(name, [data.reshape(-1).view(np.uint8)])

    @classmethod
    def load(cls, path: Path, *, vocabulary: int, owner: Mapping[str, str] | None = None) -> Self:
        """Map a file into memory and validate its contents.

        Raises :class:`FileError` if it is not a complete table for this vocabulary and for the
        model with these digests (see :meth:`save`).
        """
        file = PackedFile(path)
        about = file.about
        if about.get("kind") != _KIND or not is_integer(about.get("order"), 1, _MOST_ORDER):
            raise FileError(f"{path} must be a table of n-grams (casspec bake-table)")
        digest = "tokenizer_digest" if "tokenizer_digest" in about else "model_digest"
        if owner is not None and about.get(digest) != owner.get(digest):
            raise FileError(
                f"{path}: {digest} must be the model's, {owner.get(digest, 'none')[:16]}, "
                f"not {reprlib.repr(about.get(digest))}"
            )
        _check(about["order"], vocabulary)
        orders = range(about["order"], 0, -1)
        known = {f"{name}.{order}" for name in _DTYPES for order in orders}
        for name in (*file.tensors, *file.others):
            if name not in known:
                raise FileError(f"{path}: {name} must be an array of a table, and is not")
        return cls(tuple(_read(file, order, vocabulary) for order in orders))


def _packed(run: Iterable[int]) -> int:
    key = 0
    for token in run:
        key = key << TOKEN_BITS | token
    return key


def _check(order: int, vocabulary: int) -> None:
    if not 1 <= order <= _MOST_ORDER:
        raise CassandraError(f"order must be from 1 to {_MOST_ORDER}, not {order}")
    if not 1 <= vocabulary <= 1 << TOKEN_BITS:
        raise CassandraError(f"vocabulary must be from 1 to {1 << TOKEN_BITS}, not {vocabulary}")


# --- counting ------------------------------------------------------------------------------------


def _flat(
    sequences: Iterable[Sequence[int]], vocabulary: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return all tokens, and the position of each in its sequence."""
    arrays = [np.asarray(sequence, np.int64) for sequence in sequences]
    tokens = np.concatenate([np.zeros(0, np.int64), *arrays])
    wrong = tokens[(tokens < 0) | (tokens >= vocabulary)]
    if wrong.size:
        raise CassandraError(f"tokens must be from 0 to {vocabulary - 1}, not {wrong[0]}")
    places = [np.arange(array.size) for array in arrays]
    return tokens.astype(np.uint64), np.concatenate([np.zeros(0, np.int64), *places])


class _Pairs(NamedTuple):
    """Distinct pairs of n-gram and continuation, by n-gram, then count (descending), then token."""

    keys: _Keys
    nexts: NDArray[np.uint64]
    counts: _Counts
    firsts: NDArray[np.int64]  # index of the first pair of each distinct n-gram
    totals: _Counts  # occurrences of each distinct n-gram


def _count(tokens: NDArray[np.uint64], places: NDArray[np.int64], order: int) -> _Pairs:
    ends = np.flatnonzero(places >= order)
    keys = np.zeros(ends.size, np.uint64)
    for back in range(order, 0, -1):
        keys = keys << np.uint64(TOKEN_BITS) | tokens[ends - back]
    nexts = tokens[ends]
    by = np.lexsort((nexts, keys))
    keys, nexts = keys[by], nexts[by]
    pairs = np.flatnonzero(_changes(keys) | _changes(nexts))
    counts = np.diff(pairs, append=keys.size)
    totals = np.diff(np.flatnonzero(_changes(keys)), append=keys.size)
    keys, nexts = keys[pairs], nexts[pairs]
    by = np.lexsort((nexts, -counts, keys))
    return _Pairs(keys[by], nexts[by], counts[by], np.flatnonzero(_changes(keys)), totals)


def _changes(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of values that differ from the one before; the first is True."""
    return np.concatenate([np.ones(min(values.size, 1), bool), values[1:] != values[:-1]])


def _frequent(
    totals: Sequence[_Counts], min_count: int, max_bytes: int | None
) -> list[NDArray[np.bool_]]:
    """Return a mask of the n-grams to keep, for each order from 1 up."""
    every = np.concatenate(totals)
    kept = every >= min_count
    if max_bytes is not None:
        rank = np.argsort(np.argsort(-every, kind="stable"), kind="stable")
        kept &= rank < max_bytes // ENTRY_BYTES
    return np.split(kept, np.cumsum([each.size for each in totals])[:-1])


def _order(pairs: _Pairs, kept: NDArray[np.bool_], smoothing: float) -> TableOrder:
    """Return the entries of the n-grams that are kept."""
    run = np.repeat(np.arange(pairs.firsts.size), np.diff(pairs.firsts, append=pairs.keys.size))
    rank = np.arange(run.size) - pairs.firsts[run]
    stored = rank < CONTINUATIONS
    tokens = np.full((pairs.firsts.size, CONTINUATIONS), -1, np.int32)
    confidences = np.zeros(tokens.shape, np.float32)
    run, rank = run[stored], rank[stored]
    tokens[run, rank] = pairs.nexts[stored]
    confidences[run, rank] = pairs.counts[stored] / (pairs.totals[run] + smoothing)
    return TableOrder(pairs.keys[pairs.firsts][kept], tokens[kept], confidences[kept])


# --- reading -------------------------------------------------------------------------------------


def _dtype(name: str) -> str:
    return _DTYPES[name.partition(".")[0]]


def _read(file: PackedFile, order: int, vocabulary: int) -> TableOrder:
    """Read and validate one order of a file."""
    arrays = {name: _mapped(file, f"{name}.{order}") for name in _DTYPES}
    rows = arrays["keys"].shape[:1]
    for name, array in arrays.items():
        shape = rows if name == "keys" else (*rows, CONTINUATIONS)
        if array.shape != shape:
            raise FileError(
                f"{file.path}: {name}.{order} must have the shape {list(shape)}, "
                f"not {list(array.shape)}"
            )
    for name, expected, wrong in _violations(**arrays, order=order, vocabulary=vocabulary):
        if wrong.any():
            value = arrays[name][wrong].flat[0]
            raise FileError(f"{file.path}: {name}.{order} must be {expected}, not {value}")
    return TableOrder(**arrays)


def _mapped(file: PackedFile, name: str) -> NDArray[Any]:
    data = file.map_raw(name)
    dtype, spec = _dtype(name), file.others[name]
    if spec.dtype != dtype:
        raise FileError(f"{file.path}: {name} must be {dtype}, not {spec.dtype}")
    return data.view(_NUMPY[dtype]).reshape(spec.shape)


def _violations(
    keys: _Keys,
    tokens: NDArray[np.int32],
    confidences: NDArray[np.float32],
    *,
    order: int,
    vocabulary: int,
) -> Iterator[tuple[str, str, NDArray[np.bool_]]]:
    """Yield arrays of an order with invalid values: name, requirement, and mask of violations."""
    below = f"from 0 to {vocabulary - 1}"
    yield "keys", "ascending, each once", np.append(False, keys[1:] <= keys[:-1])[: keys.size]
    outside = keys >> np.uint64(TOKEN_BITS * order) > 0
    for place in range(order):
        piece = keys >> np.uint64(TOKEN_BITS * place) & np.uint64((1 << TOKEN_BITS) - 1)
        outside |= piece >= vocabulary
    yield "keys", f"of {order} tokens {below}", outside
    wrong = (tokens < -1) | (tokens >= vocabulary)
    wrong[:, :1] |= tokens[:, :1] < 0
    wrong[:, 1:] |= (tokens[:, 1:] >= 0) & (tokens[:, :-1] < 0)
    yield "tokens", f"{below}, or -1 behind the last of a row", wrong
    wrong = ~((confidences >= 0) & (confidences <= 1)) | ((tokens < 0) & (confidences != 0))
    yield "confidences", "from 0 to 1, and 0 where there is no token", wrong
