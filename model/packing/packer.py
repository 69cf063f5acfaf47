"""Pack and unpack whole models, tensor by tensor, in pieces that workers share.

A piece is a run of whole segments; pieces of a tensor are packed on their own with the tensor's
codebooks and joined (:func:`golden.concatenate`), so that memory is bounded by the packed size of
the largest tensor plus a few pieces for each worker.

Packed tensors are parts in a directory beside the destination
(:mod:`cassandra_spec.model.packing.parts`) until all exist; the model is then written from them. An
interrupted run is resumed from the parts.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from tqdm import tqdm

from cassandra_spec.golden import (
    CassandraError,
    Codec,
    Format,
    GoldenCodec,
    Packed,
    Packer,
)
from cassandra_spec.golden.errors import FileError
from cassandra_spec.golden.file import PackedFile, PackedTensor, RawTensor, SafetensorsFile, Writer
from cassandra_spec.golden.model_config import read_config
from cassandra_spec.model.output import resumable_directory, staged_directory
from cassandra_spec.model.packing.calibration import Norms
from cassandra_spec.model.packing.parts import Codebooks, Parts, write_part
from cassandra_spec.model.packing.pieces import (
    Task,
    TensorJob,
    count_piece,
    count_tensor,
    encode_piece,
    joined,
    pack_tensor,
    piece_segments,
    storage_order,
)
from cassandra_spec.model.packing.plan import Override, PackPlan, Recipe
from cassandra_spec.model.packing.statistics import (
    Counts,
    codebook_exponents,
    frequent_exponents,
)
from cassandra_spec.model.weights.mark import mark_packed, unmark
from cassandra_spec.model.weights.sources import (
    MODEL_FILE,
    Source,
    Tensor,
    Values,
    copy_companions,
)
from cassandra_spec.toolkit.workers.pool import Workers

__all__ = [
    "Outcome",
    "Override",
    "PackPlan",
    "Recipe",
    "decode_tensors",
    "open_packed",
    "pack_model",
    "unpack_model",
]

_Part = TypeVar("_Part", Packed, Values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """Results of packing or unpacking."""

    values: int  # in packed tensors
    bytes: int  # size of the file that was written
    saturated: int = 0  # values that were not finite and were replaced
    resumed: int = 0  # tensors that an interrupted run had packed


def pack_model(
    source: Source,
    destination: Path,
    recipe: Recipe | PackPlan,
    *,
    norms: Norms | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    progress: bool = False,
    fresh: bool = False,
    codec: Packer | None = None,
) -> Outcome:
    """Write ``source`` as a packed model into the new directory ``destination``.

    ``norms`` are needed for pruning by Wanda's scores and for weighted group exponents.
    ``jobs`` worker processes, all cores by default, or the workers of ``cluster``, which take
    whole tensors (:class:`~cassandra_spec.toolkit.workers.pool.Workers`); ``codec`` is golden's
    by default. What an interrupted run of the same source, recipe and norms has packed is taken
    over, unless ``fresh``. Raises :class:`CassandraError` (one line), and leaves nothing behind
    then; ``OSError`` and interrupts leave the parts for another try.
    """
    task = Task(source, PackPlan.of(recipe).recipes(source), norms)
    with (
        resumable_directory(destination, key=task.key(), fresh=fresh) as (folder, store),
        Workers(jobs, cluster=cluster) as workers,
    ):
        parts = Parts(store)
        if parts.restarted:
            tqdm.write("earlier parts are damaged: packing begins again", file=sys.stderr)
        resumed = len(parts.done)
        _pack_parts(task, parts, workers, progress, codec or GoldenCodec())
        source.save_companions(folder)
        mark_packed(folder)
        _write_model(task, parts, folder / MODEL_FILE, progress)
        size = (folder / MODEL_FILE).stat().st_size
        return Outcome(
            values=_total(task.tensors), bytes=size, saturated=parts.saturated, resumed=resumed
        )


def open_packed(path: Path) -> PackedFile:
    """Open a packed model, by its directory or its file.

    Raises :class:`FileError` that says what to do with a directory that is not packed yet.
    """
    if not path.is_dir():
        return PackedFile(path)
    file = path / MODEL_FILE
    if not file.is_file() or "cassandra" not in SafetensorsFile(file).metadata:
        raise FileError(
            f"{path} must be a packed model: make one with `casspec pack {path} PACKED`"
        )
    return PackedFile(file)


def unpack_model(
    path: Path,
    destination: Path,
    *,
    draft: bool = False,
    jobs: int | None = None,
    progress: bool = False,
    codec: Codec | None = None,
) -> Outcome:
    """Write the target values (or the draft values) of a packed model as plain BF16 safetensors.

    ``path`` is the directory of the packed model. Errors are those of :func:`pack_model`.
    """
    read_config(path)
    packed = open_packed(path)
    plain = {
        name: RawTensor(dtype="BF16", shape=spec.shape, nbytes=2 * spec.count)
        for name, spec in packed.tensors.items()
    }
    plan = storage_order({**packed.others, **plain})
    with staged_directory(destination) as folder, Workers(jobs) as workers:
        copy_companions(path, folder)
        unmark(folder)
        names = [name for name in plan if name in packed.tensors]
        decode = partial(_decode, draft=draft, codec=codec or GoldenCodec())
        results = workers.map(decode, _parts(packed, names))
        with (
            _bar("unpacking", packed.tensors.values(), progress) as bar,
            Writer(folder / MODEL_FILE, plan) as out,
        ):
            for name in plan:
                if name in packed.others:
                    out.write_raw(name, [packed.read_raw(name)])
                else:
                    parts = _taken(results, packed.tensors[name], bar)
                    out.write_raw(
                        name, (part.astype("<u2", copy=False).view("u1") for part in parts)
                    )
        size = (folder / MODEL_FILE).stat().st_size
    return Outcome(values=_total(packed.tensors.values()), bytes=size)


def decode_tensors(
    packed: PackedFile, *, draft: bool = False, jobs: int | None = None, progress: bool = False
) -> Iterator[tuple[str, Values]]:
    """Yield each packed tensor's name and target (or draft) values, BF16 patterns, flat."""
    with Workers(jobs) as workers, _bar("decoding", packed.tensors.values(), progress) as bar:
        decode = partial(_decode, draft=draft, codec=GoldenCodec())
        results = workers.map(decode, _parts(packed, packed.tensors))
        for name, spec in packed.tensors.items():
            parts = list(_taken(results, spec, bar))
            yield name, np.concatenate(parts) if parts else np.zeros(0, np.uint16)


# --- packing ------------------------------------------------------------------------------------


def _taken(results: Iterator[_Part], spec: PackedTensor, bar: tqdm[None]) -> Iterator[_Part]:
    """Yield the pieces of the next tensor as they arrive."""
    for part in itertools.islice(results, -(-spec.segments // piece_segments(spec.format))):
        bar.update(len(part))
        yield part


def _pack_parts(task: Task, parts: Parts, workers: Workers, progress: bool, codec: Packer) -> None:
    """Pack the tensors that have no part yet."""
    missing = [tensor for tensor in task.tensors if tensor.name not in parts.done]
    _add_codebooks(task, parts, missing, workers, progress)
    done = _total(task.tensors) - _total(missing)
    places = {tensor.name: parts.place(number) for number, tensor in enumerate(task.tensors)}
    jobs = [
        (task.only(each), parts.codebooks.get(each.name, Codebooks()), places[each.name])
        for each in missing
    ]
    with _bar("packing", task.tensors, progress, done) as bar:
        if workers.cluster:
            saturated = workers.map(partial(pack_tensor, codec=codec), jobs)
        else:
            saturated = _packed_here(jobs, workers, codec, bar)
        for tensor, (_, _, path), count in zip(missing, jobs, saturated, strict=True):
            parts.add(tensor.name, path, count)
            if workers.cluster:
                bar.update(tensor.count)


def _packed_here(
    jobs: Sequence[TensorJob], workers: Workers, codec: Packer, bar: tqdm[None]
) -> Iterator[int]:
    """Write parts, whose pieces the processes of this machine share; yield saturated values."""
    pieces = (
        piece
        for task, books, _ in jobs
        for tensor in task.tensors
        for piece in task.pieces([tensor], {tensor.name: books})
    )
    results = workers.map(partial(encode_piece, codec=codec), pieces)
    for task, _, path in jobs:
        (tensor,) = task.tensors
        spec = task.spec(tensor)
        packed = joined(_taken(results, spec, bar), spec.format)
        write_part(path, tensor.name, packed)
        yield packed.saturated


def _write_model(task: Task, parts: Parts, path: Path, progress: bool) -> None:
    """Write the file of the model from the parts and the unpacked tensors."""
    plan = task.plan()
    with _bar("writing", task.tensors, progress) as bar, Writer(path, plan) as out:
        for name, spec in plan.items():
            if isinstance(spec, RawTensor):
                out.write_raw(name, [task.source.read_raw(name)])
            else:
                out.write_packed(name, parts.read(name))
                bar.update(spec.count)


# --- codebooks ----------------------------------------------------------------------------------


def _add_codebooks(
    task: Task, parts: Parts, missing: Iterable[Tensor], workers: Workers, progress: bool
) -> None:
    """Choose the codebooks of tensors in unary, by frequency over all pieces (docs/format.md,
    4.1).
    """
    recipes = task.recipes
    tensors = [
        tensor
        for tensor in missing
        if recipes[tensor.name].format.scheme == "unary" and tensor.name not in parts.codebooks
    ]
    if not tensors:
        return
    counts: dict[str, Counts] = defaultdict(lambda: np.zeros((2, 256), np.int64))
    with _bar("counting", tensors, progress) as bar:
        counted = (
            workers.map(count_tensor, map(task.only, tensors))
            if workers.cluster
            else workers.map(count_piece, task.pieces(tensors))
        )
        for name, piece_counts in counted:
            counts[name] += piece_counts
            bar.update(int(piece_counts[1].sum()))
    parts.set_codebooks(
        {name: _codebooks(counted, recipes[name].format) for name, counted in counts.items()}
    )


def _codebooks(counts: Counts, format: Format) -> Codebooks:
    kept, every = counts
    book = codebook_exponents(kept, format.codebook)
    if format.pruned_exponent == "raw":
        return Codebooks(codebook=book)
    pruned = every.copy()
    pruned[list(book)] -= kept[list(book)]
    return Codebooks(codebook=book, pruned_codebook=frequent_exponents(pruned, format.codebook - 1))


# --- unpacking ----------------------------------------------------------------------------------


def _parts(packed: PackedFile, names: Iterable[str]) -> Iterator[tuple[str, int, Packed]]:
    for name in names:
        tensor = packed.read_packed(name)
        step = piece_segments(tensor.format)
        for start in range(0, len(tensor.directory), step):
            yield name, start, tensor.part(start, start + step)


def _decode(job: tuple[str, int, Packed], *, draft: bool, codec: Codec) -> Values:
    name, start, part = job
    try:
        return codec.decode_draft(part) if draft else codec.decode_target(part)
    except CassandraError as error:
        raise CassandraError(f"{name}, from segment {start} on: {error}") from error


# --- progress -----------------------------------------------------------------------------------


def _total(tensors: Iterable[Tensor | PackedTensor]) -> int:
    return sum(tensor.count for tensor in tensors)


def _bar(
    title: str, tensors: Iterable[Tensor | PackedTensor], progress: bool, done: int = 0
) -> tqdm[None]:
    return tqdm(
        desc=f"{title:9}",
        total=_total(tensors),
        initial=done,
        unit=" values",
        unit_scale=True,
        disable=not progress,
    )
