"""Write safetensors files tensor by tensor.

A :class:`Writer` appends tensors as they come. It reserves room for the header at the start,
computed from the plan with every number at its longest, and pads the header with spaces. The file
appears under its name complete or not at all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.file.description import (
    LENGTH,
    LONGEST,
    PARTS,
    VERSION,
    PackedTensor,
    RawTensor,
    Spec,
    canonical,
)
from cassandra_spec.golden.format import DIRECTORY_FIELDS
from cassandra_spec.golden.packed import Bytes, Packed


class Writer:
    """Write tensors one after another into a safetensors file that appears when it is complete.

    ``plan`` lists the tensors in the order of writing. Use as a context manager: leaving the block
    commits the file (fsync, then rename over ``path``), an exception removes it. A plan without
    packed tensors makes a plain safetensors file, unless ``about`` (JSON) is given: then it has
    checksums, and :class:`PackedFile` reads it.

    Write tensors with the largest dtypes first, because other readers expect each tensor to start
    at a multiple of its item size; packed tensors always fill whole groups of 4 bytes.
    """

    def __init__(
        self, path: Path, plan: Mapping[str, Spec], *, about: Mapping[str, Any] | None = None
    ) -> None:
        self._path = path
        self._about = about
        self._plan = dict(plan)
        self._written: dict[str, Spec] = {}
        self._checksums: dict[str, int] = {}  # CRC-32 of unpacked tensors, by name
        self._entries: dict[str, dict[str, Any]] = {}
        self._room = self._header_room()
        self._offset = 0  # within the data section
        self._temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
        self._file = self._temporary.open("xb")

    def __enter__(self) -> Writer:
        """Reserve room for the header."""
        self._file.write(bytes(self._room))
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Commit the file, or remove it if the block or the commit raised."""
        try:
            if kind is None:
                self._commit()
        finally:
            self._discard()

    def write_raw(self, name: str, chunks: Iterable[Bytes]) -> None:
        """Write an unpacked tensor from uint8 chunks that add up to its plan's ``nbytes``."""
        spec = self._next(name)
        if not isinstance(spec, RawTensor):
            raise CassandraError(f"{name} must be written packed, as planned, not raw")
        start, checksum = self._offset, 0
        for chunk in chunks:
            checksum = zlib.crc32(self._append(chunk), checksum)
        if self._offset - start != spec.nbytes:
            got = self._offset - start
            raise CassandraError(f"{name} must have {spec.nbytes} bytes, as planned, not {got}")
        self._entries[name] = _entry(spec.dtype, spec.shape, start, self._offset)
        self._checksums[name] = checksum
        self._written[name] = spec

    def write_packed(self, name: str, packed: Packed) -> None:
        """Write the two regions and the directory of a packed tensor."""
        spec = self._next(name)
        if not isinstance(spec, PackedTensor):
            raise CassandraError(f"{name} must be written raw, as planned, not packed")
        if (packed.format, packed.count) != (spec.format, spec.count):
            raise CassandraError(f"{name} must have the format and size of its plan")
        parts = {
            "speculation": packed.speculation,
            "verification": packed.verification,
            "directory": packed.directory.astype("<u4", copy=False),
        }
        checksums = {part: self._append_part(name, part, data) for part, data in parts.items()}
        self._written[name] = dataclasses.replace(
            spec,
            codebook=packed.codebook,
            pruned_codebook=packed.pruned_codebook,
            crc32=checksums,
            stream_bits=dict(packed.stream_bits),
        )

    def _next(self, name: str) -> Spec:
        place = len(self._written)
        expected = list(self._plan)[place] if place < len(self._plan) else "the end"
        if name != expected:
            raise CassandraError(f"the next tensor must be {expected}, as planned, not {name}")
        return self._plan[name]

    def _append(self, data: NDArray[Any]) -> memoryview:
        view = np.ascontiguousarray(data).data.cast("B") if data.size else memoryview(b"")
        self._file.write(view)
        self._offset += view.nbytes
        return view

    def _append_part(self, name: str, part: str, data: NDArray[Any]) -> int:
        start = self._offset
        checksum = zlib.crc32(self._append(data))
        self._entries[f"{name}.{part}"] = _entry(PARTS[part], data.shape, start, self._offset)
        return checksum

    def _header_room(self) -> int:
        entries: dict[str, dict[str, Any]] = {}
        for name, spec in self._plan.items():
            for key, dtype, shape in _planned_entries(name, spec):
                if key in entries or key == "__metadata__":
                    raise CassandraError(f"tensor names must be distinct, not {key} twice")
                entries[key] = _entry(dtype, shape, LONGEST, LONGEST)
        longest = {name: _longest(spec) for name, spec in self._plan.items()}
        text = _header(entries, longest, dict.fromkeys(self._plan, LONGEST), self._about)
        return LENGTH.size + -(-len(text) // 8) * 8

    def _commit(self) -> None:
        if len(self._written) != len(self._plan):
            missing = list(self._plan)[len(self._written)]
            raise CassandraError(f"{missing} must be written before the file is closed")
        text = _header(self._entries, self._written, self._checksums, self._about)
        size = self._room - LENGTH.size
        self._file.seek(0)
        self._file.write(LENGTH.pack(size) + text.ljust(size))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._temporary.replace(self._path)
        sync_directory(self._path.parent)

    def _discard(self) -> None:
        # On a full disk closing fails as writing did; the first error is the one to report.
        with contextlib.suppress(OSError):
            self._file.close()
        self._temporary.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Make new names in a directory durable (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _entry(dtype: str, shape: Iterable[int], start: int, stop: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}


def _planned_entries(name: str, spec: Spec) -> list[tuple[str, str, tuple[int, ...]]]:
    if isinstance(spec, RawTensor):
        return [(name, spec.dtype, spec.shape)]
    shapes = {"directory": (spec.segments, len(DIRECTORY_FIELDS))}
    return [
        (f"{name}.{part}", dtype, shapes.get(part, (LONGEST,))) for part, dtype in PARTS.items()
    ]


def _longest(spec: Spec) -> Spec:
    """Return the tensor's spec with the longest description that it can have."""
    if isinstance(spec, RawTensor):
        return spec
    return dataclasses.replace(
        spec,
        codebook=(255,) * spec.format.codebook,
        pruned_codebook=(255,) * spec.format.codebook,
        crc32=dict.fromkeys(PARTS, LONGEST),
        stream_bits={stream.name: LONGEST for stream in spec.format.streams},
    )


def _header(
    entries: Mapping[str, Any],
    tensors: Mapping[str, Spec],
    checksums: Mapping[str, int],
    about: Mapping[str, Any] | None,
) -> bytes:
    metadata = {"format": "pt"}  # transformers requires the framework
    if about is not None or any(isinstance(spec, PackedTensor) for spec in tensors.values()):
        metadata["cassandra"] = _description(tensors, checksums, about)
    return json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()


def _description(
    tensors: Mapping[str, Spec], checksums: Mapping[str, int], about: Mapping[str, Any] | None
) -> str:
    body: dict[str, Any] = {"version": VERSION, "tensors": {}, "others": {}}
    if about is not None:
        body["about"] = about
    for name, spec in tensors.items():
        if isinstance(spec, RawTensor):
            body["others"][name] = {
                "dtype": spec.dtype,
                "shape": list(spec.shape),
                "crc32": checksums[name],
            }
        else:
            body["tensors"][name] = _packed_entry(spec)
    return canonical({**body, "crc32": zlib.crc32(canonical(body).encode())})


def _packed_entry(spec: PackedTensor) -> dict[str, Any]:
    entry: dict[str, Any] = {"format": spec.format.to_dict(), "shape": list(spec.shape)}
    if spec.format.scheme == "unary":
        entry["codebook"] = list(spec.codebook)
    if spec.format.pruned_exponent == "coded":
        entry["pruned_codebook"] = list(spec.pruned_codebook)
    return {**entry, "crc32": dict(spec.crc32), "stream_bits": dict(spec.stream_bits)}
