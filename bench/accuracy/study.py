"""The rows of an accuracy table: models that are loaded and run one at a time."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cassandra_spec.bench.accuracy.evaluation import (
    Accuracy,
    Evaluation,
    compare,
    evaluate,
    token_windows,
)
from cassandra_spec.bench.accuracy.lossy import rounded_to_8_bits, wanda_pruned
from cassandra_spec.golden import CassandraError, GoldenCodec
from cassandra_spec.model.packing.calibration import Norms
from cassandra_spec.model.reply import Weights, build_model, packed_reader
from cassandra_spec.model.weights.packed import PackedSource
from cassandra_spec.model.weights.sources import Source, Tensor
from cassandra_spec.native.memory import require_memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A model to measure."""

    name: str
    weights: Weights
    bits: float  # stored for each linear weight, scales and masks included


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the table."""

    name: str
    bits: float
    accuracy: Accuracy


def candidates(
    source: Source, packed: Sequence[Path], norms: Norms | None, *, drafts: bool
) -> list[Candidate]:
    """List the model, lossy compression of it if norms are given, and packed models."""
    found = [bf16_candidate(source)]
    if norms is not None:
        found += lossy_candidates(source, norms)
    for path in packed:
        found += packed_candidates(path, drafts=drafts)
    return found


def bf16_candidate(source: Source) -> Candidate:
    """Return the original model, the reference of all comparisons."""
    return Candidate(name="BF16", weights=source, bits=16.0)


def lossy_candidates(source: Source, norms: Norms) -> list[Candidate]:
    """Rounding to 8 bits, and pruning for good in two ways (linear weights; the head stays)."""
    linear = _linear(source)
    rows = sum(tensor.shape[0] for tensor in linear) / sum(tensor.count for tensor in linear)
    return [
        Candidate(name="RTN 8 bits", weights=rounded_to_8_bits(source), bits=8 + 16 * rows),
        Candidate(name="Wanda 50 %", weights=wanda_pruned(source, norms), bits=8 + 1),
        Candidate(name="Wanda 2:4", weights=wanda_pruned(source, norms, fours=True), bits=8 + 1),
    ]


def packed_candidates(path: Path, *, drafts: bool = False) -> list[Candidate]:
    """Yield the target of a packed model and, on request, its draft."""
    source, codec = PackedSource(path), GoldenCodec()
    scheme = "/".join(sorted({spec.format.scheme for spec in source.packed.tensors.values()}))
    name = f"{path.name} ({scheme})"
    found = [
        Candidate(name=f"{name} target", weights=source, bits=_stored_bits(source, draft=False))
    ]
    if drafts:
        weights = packed_reader(source.packed, codec.decode_draft)
        found.append(
            Candidate(name=f"{name} draft", weights=weights, bits=_stored_bits(source, draft=True))
        )
    return found


def table_rows(
    source: Source,
    candidates: Sequence[Candidate],
    text: str,
    *,
    length: int,
    most: int | None = None,
    progress: bool = False,
) -> Iterator[Row]:
    """Measure the candidates on a text, the first of them as the reference."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source.save_companions(folder)
        windows = token_windows(folder, text, length=length, most=most)
        require_memory(2 * sum(tensor.count for tensor in source.tensors.values()), source.label)
        reference: Evaluation | None = None
        for candidate in candidates:
            found = _measure(folder, candidate, windows, progress)
            reference = reference or found
            yield Row(name=candidate.name, bits=candidate.bits, accuracy=compare(found, reference))


def _measure(
    folder: Path, candidate: Candidate, windows: NDArray[Any], progress: bool
) -> Evaluation:
    """Evaluate a candidate; its network is freed on return."""
    network = build_model(folder, candidate.weights)
    return evaluate(network, windows, title=f"{candidate.name:24}", progress=progress)


def _linear(source: Source) -> list[Tensor]:
    return [tensor for tensor in source.tensors.values() if tensor.kind == "linear"]


def _stored_bits(source: PackedSource, *, draft: bool) -> float:
    """Return the bits per linear weight, directories included; BF16 for unpacked tensors."""
    total = count = 0
    for tensor in _linear(source):
        count += tensor.count
        if tensor.name not in source.packed.tensors:
            total += 8 * tensor.nbytes
            continue
        stored = source.packed.stored_bytes(tensor.name)
        total += 8 * (sum(stored.values()) - (stored["verification"] if draft else 0))
    return total / count


def original(packed: Sequence[Path]) -> PackedSource:
    """Open the original model inside the first lossless packed one."""
    for path in packed:
        source = PackedSource(path)
        if source.lossless:
            return source
    raise CassandraError(
        "source must be given: no packed model is lossless (mx rounds), so none has the original"
    )
