"""Packed models as safetensors files (docs/format.md, section 8).

This is the one module that knows safetensors. The safetensors library checks every header that is
read (its own rules: whole file covered, no holes, sizes that fit dtype and shape). Where bytes lie
is then read from the header here, because the library offers no access without a framework's dtypes
(numpy has no BF16) and no way to write a file whose tensors are not all in memory.

A :class:`Writer` puts tensors into the file as they come: room for the header, computed from the
plan with every number at its longest, is kept free at the start and completed with spaces. The
file appears under its name whole or not at all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import secrets
import struct
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from cassandra_spec.golden.errors import CassandraError, FileError
from cassandra_spec.golden.format import DIRECTORY_FIELDS, FLAG_MASK, Format
from cassandra_spec.golden.packed import Bytes, Packed

__all__ = [
    "PackedFile",
    "PackedTensor",
    "RawTensor",
    "SafetensorsFile",
    "Writer",
    "sync_directory",
]

VERSION = 1
_Spec = TypeVar("_Spec")
_PARTS = {"speculation": "U8", "verification": "U8", "directory": "U32"}
_LONGEST = (1 << 63) - 1  # a number of as many digits as a length can have
_LENGTH = struct.Struct("<Q")  # of the header, in the first 8 bytes
_REASONS = {
    "incomplete metadata, file not fully covered": "truncated, or with bytes of no tensor",
    "invalid header length": "truncated inside its header, or of another kind",
    "header too large": "of another kind",
    "header too small": "of fewer than 8 bytes",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RawTensor:
    """A tensor that is stored as it is."""

    dtype: str  # safetensors' name, such as "BF16"
    shape: tuple[int, ...]
    nbytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackedTensor:
    """What a file says about a packed tensor; the last four are known once it is packed."""

    format: Format
    shape: tuple[int, ...]
    codebook: tuple[int, ...] = ()  # exponents by rank (unary)
    pruned_codebook: tuple[int, ...] = ()  # exponents of pruned values by rank (unary, coded)
    crc32: Mapping[str, int] = dataclasses.field(default_factory=dict)  # by part
    stream_bits: Mapping[str, int] = dataclasses.field(default_factory=dict)  # without padding

    @property
    def count(self) -> int:
        """Values of the tensor."""
        return math.prod(self.shape)

    @property
    def segments(self) -> int:
        """Segments of the tensor."""
        return -(-self.count // self.format.segment)


# --- writing ------------------------------------------------------------------------------------


class Writer:
    """Write tensors, one after another, into a safetensors file that appears when it is whole.

    ``plan`` says what will be written, in the order of writing. Use as a context manager: leaving
    the block commits the file (fsync, then rename over ``path``), an exception removes it. A plan
    without a packed tensor makes a plain safetensors file.

    Tensors should come with the largest dtypes first, as other readers want each tensor to start
    at a multiple of its item size; packed tensors always fill whole groups of 4 bytes.
    """

    def __init__(self, path: Path, plan: Mapping[str, RawTensor | PackedTensor]) -> None:
        self._path = path
        self._plan = dict(plan)
        self._written: dict[str, RawTensor | PackedTensor] = {}
        self._checksums: dict[str, int] = {}  # of raw tensors
        self._entries: dict[str, dict[str, Any]] = {}
        self._room = self._header_room()
        self._offset = 0  # in the data buffer
        self._temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
        self._file = self._temporary.open("xb")

    def __enter__(self) -> Writer:
        """Reserve room for the header."""
        self._file.write(bytes(self._room))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit the file, or remove it when the block or the commit raised."""
        try:
            if kind is None:
                self._commit()
        finally:
            self._discard()

    def write_raw(self, name: str, chunks: Iterable[Bytes]) -> None:
        """Write a tensor as it is, from uint8 chunks that make ``nbytes`` of its plan in all."""
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

    def _next(self, name: str) -> RawTensor | PackedTensor:
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
        self._entries[f"{name}.{part}"] = _entry(_PARTS[part], data.shape, start, self._offset)
        return checksum

    def _header_room(self) -> int:
        entries: dict[str, dict[str, Any]] = {}
        for name, spec in self._plan.items():
            for key, dtype, shape in _planned_entries(name, spec):
                if key in entries or key == "__metadata__":
                    raise CassandraError(f"tensor names must be distinct, not {key} twice")
                entries[key] = _entry(dtype, shape, _LONGEST, _LONGEST)
        longest = {name: _longest(spec) for name, spec in self._plan.items()}
        text = _header(entries, longest, dict.fromkeys(self._plan, _LONGEST))
        return _LENGTH.size + -(-len(text) // 8) * 8

    def _commit(self) -> None:
        if len(self._written) != len(self._plan):
            raise CassandraError(f"{self._next_name()} must be written before the file is closed")
        text = _header(self._entries, self._written, self._checksums)
        size = self._room - _LENGTH.size
        self._file.seek(0)
        self._file.write(_LENGTH.pack(size) + text.ljust(size))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._temporary.replace(self._path)
        sync_directory(self._path.parent)

    def _next_name(self) -> str:
        return list(self._plan)[len(self._written)]

    def _discard(self) -> None:
        # On a full disk closing fails as writing did, and the first error is the one to show.
        with contextlib.suppress(OSError):
            self._file.close()
        self._temporary.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Make new names in a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _entry(dtype: str, shape: Iterable[int], start: int, stop: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}


def _planned_entries(
    name: str, spec: RawTensor | PackedTensor
) -> list[tuple[str, str, tuple[int, ...]]]:
    if isinstance(spec, RawTensor):
        return [(name, spec.dtype, spec.shape)]
    shapes = {"directory": (spec.segments, len(DIRECTORY_FIELDS))}
    return [
        (f"{name}.{part}", dtype, shapes.get(part, (_LONGEST,))) for part, dtype in _PARTS.items()
    ]


def _longest(spec: RawTensor | PackedTensor) -> RawTensor | PackedTensor:
    """The same tensor with as much text as its description can have."""
    if isinstance(spec, RawTensor):
        return spec
    return dataclasses.replace(
        spec,
        codebook=(255,) * spec.format.codebook,
        pruned_codebook=(255,) * spec.format.codebook,
        crc32=dict.fromkeys(_PARTS, _LONGEST),
        stream_bits={stream.name: _LONGEST for stream in spec.format.streams},
    )


def _header(
    entries: Mapping[str, Any],
    tensors: Mapping[str, RawTensor | PackedTensor],
    checksums: Mapping[str, int],
) -> bytes:
    metadata = {"format": "pt"}  # transformers wants to know whose layout the tensors have
    if any(isinstance(spec, PackedTensor) for spec in tensors.values()):
        metadata["cassandra"] = _description(tensors, checksums)
    return json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()


def _description(
    tensors: Mapping[str, RawTensor | PackedTensor], checksums: Mapping[str, int]
) -> str:
    body: dict[str, Any] = {"version": VERSION, "tensors": {}, "others": {}}
    for name, spec in tensors.items():
        if isinstance(spec, RawTensor):
            body["others"][name] = {
                "dtype": spec.dtype,
                "shape": list(spec.shape),
                "crc32": checksums[name],
            }
        else:
            body["tensors"][name] = _packed_entry(spec)
    return _canonical({**body, "crc32": zlib.crc32(_canonical(body).encode())})


def _packed_entry(spec: PackedTensor) -> dict[str, Any]:
    entry: dict[str, Any] = {"format": spec.format.to_dict(), "shape": list(spec.shape)}
    if spec.format.scheme == "unary":
        entry["codebook"] = list(spec.codebook)
    if spec.format.pruned_exponent == "coded":
        entry["pruned_codebook"] = list(spec.pruned_codebook)
    return {**entry, "crc32": dict(spec.crc32), "stream_bits": dict(spec.stream_bits)}


def _canonical(body: Mapping[str, Any]) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


# --- reading ------------------------------------------------------------------------------------


class SafetensorsFile:
    """A safetensors file of any origin; tensors are read one at a time, or in part.

    ``tensors`` maps names to :class:`RawTensor`, ``metadata`` is the header's. Raises
    :class:`FileError` if the file is not whole or not safetensors.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        header = _read_header(path)
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        self.tensors: dict[str, RawTensor] = {}
        self._starts: dict[str, int] = {}
        for name, entry in header.items():
            start, stop = entry["data_offsets"]
            shape = tuple(entry["shape"])
            self.tensors[name] = RawTensor(dtype=entry["dtype"], shape=shape, nbytes=stop - start)
            self._starts[name] = start

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Bytes:
        """Bytes ``start`` to ``stop`` of a tensor (uint8)."""
        if name not in self.tensors:
            raise FileError(f"{self.path} must have a tensor {name}, and has none of that name")
        stop = self.tensors[name].nbytes if stop is None else stop
        with self.path.open("rb") as file:
            (header,) = _LENGTH.unpack(file.read(_LENGTH.size))
            file.seek(_LENGTH.size + header + self._starts[name] + start)
            data = np.fromfile(file, np.uint8, stop - start)
        if data.size != stop - start:
            raise FileError(f"{self.path} must not shrink while it is read ({name} is cut off)")
        return data


def _read_header(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileError(f"{path} must be a file, and is {_what_it_is(path)}")
    try:
        with safe_open(path, framework="np"):  # checks the header
            pass
    except SafetensorError as error:
        reason = str(error).removeprefix("Error while deserializing header: ")
        reason = _REASONS.get(reason, reason)
        raise FileError(f"{path} must be a whole safetensors file, not one {reason}") from error
    with path.open("rb") as file:
        (size,) = _LENGTH.unpack(file.read(_LENGTH.size))
        header: dict[str, Any] = json.loads(file.read(size))
    return header


def _what_it_is(path: Path) -> str:
    return "a directory" if path.is_dir() else "of another kind" if path.exists() else "missing"


class PackedFile:
    """A packed model's file: ``tensors`` (packed) and ``others`` (as they were), by name.

    Opening reads and checks the header alone. Raises :class:`FileError` with a line that names the
    file, the tensor and what was expected.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = SafetensorsFile(path)
        body = self._description()
        self.tensors = {
            str(name): self._packed_tensor(name, entry)
            for name, entry in self._object("tensors", body).items()
        }
        self._checksums: dict[str, int] = {}
        self.others = {
            str(name): self._other(name, entry)
            for name, entry in self._object("others", body).items()
        }
        self._check_names()

    def read_packed(self, name: str) -> Packed:
        """One packed tensor, its checksums verified."""
        spec = self._known(name, self.tensors)
        parts = {part: self._read_checked(f"{name}.{part}", spec.crc32[part]) for part in _PARTS}
        directory = parts["directory"].view("<u4").astype(np.uint32, copy=False)
        directory = directory.reshape(spec.segments, len(DIRECTORY_FIELDS))
        self._check_directory(name, spec, directory, parts)
        return Packed(
            format=spec.format,
            count=spec.count,
            speculation=parts["speculation"],
            verification=parts["verification"],
            directory=directory,
            codebook=spec.codebook,
            pruned_codebook=spec.pruned_codebook,
            stream_bits=spec.stream_bits,
        )

    def read_raw(self, name: str) -> Bytes:
        """The bytes of a tensor that is not packed (uint8), its checksum verified."""
        self._known(name, self.others)
        return self._read_checked(name, self._checksums[name])

    def verify(self) -> int:
        """Read everything and check every checksum; returns how many there are."""
        for name in self.tensors:
            self.read_packed(name)
        for name in self.others:
            self.read_raw(name)
        return len(_PARTS) * len(self.tensors) + len(self.others)

    def stored_bytes(self, name: str) -> dict[str, int]:
        """Bytes of the parts of a packed tensor."""
        self._known(name, self.tensors)
        return {part: self._file.tensors[f"{name}.{part}"].nbytes for part in _PARTS}

    def _known(self, name: str, kind: Mapping[str, _Spec]) -> _Spec:
        if name not in kind:
            raise FileError(f"{self.path} must have a tensor {name}, and has none of that name")
        return kind[name]

    def _read_checked(self, key: str, expected: int) -> Bytes:
        data = self._file.read(key)
        found = zlib.crc32(data.data)
        self._require(
            found == expected, f"{key} must have the CRC-32 {expected:08x}, not {found:08x}"
        )
        return data

    def _require(self, condition: bool, expectation: str) -> None:
        if not condition:
            raise FileError(f"{self.path}: {expectation}")

    def _description(self) -> dict[str, Any]:
        text = self._file.metadata.get("cassandra")
        if text is None:
            raise FileError(f"{self.path} must be a packed model: its metadata has no 'cassandra'")
        try:
            body = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FileError(f"{self.path}: the entry 'cassandra' must be JSON ({error})") from error
        self._require(isinstance(body, dict), "the entry 'cassandra' must be a JSON object")
        version = body.get("version")
        self._require(version == VERSION, f"version must be {VERSION}, not {version!r}")
        checksum = body.pop("crc32", None)
        found = zlib.crc32(_canonical(body).encode())
        self._require(
            checksum == found, f"the entry 'cassandra' must have the CRC-32 {checksum}, not {found}"
        )
        return dict(body)

    def _object(self, key: str, body: Mapping[str, Any]) -> dict[str, Any]:
        value = body.get(key)
        self._require(isinstance(value, dict), f"{key} must be an object, not {value!r}")
        return dict(body[key])

    def _packed_tensor(self, name: str, entry: Any) -> PackedTensor:
        self._require(isinstance(entry, dict), f"{name} must be an object, not {entry!r}")
        try:
            format_ = Format.from_dict(self._object("format", entry))
        except FileError:
            raise
        except CassandraError as error:
            raise FileError(f"{self.path}: {name}: {error}") from error
        spec = PackedTensor(
            format=format_,
            shape=self._numbers(name, "shape", entry, _LONGEST),
            codebook=self._codebook(name, "codebook", entry, format_),
            pruned_codebook=self._codebook(name, "pruned_codebook", entry, format_),
            crc32=self._counts(name, "crc32", entry),
            stream_bits=self._counts(name, "stream_bits", entry),
        )
        self._require(set(spec.crc32) >= set(_PARTS), f"{name} must have a CRC-32 of every part")
        self._check_parts(name, spec)
        return spec

    def _other(self, name: str, entry: Any) -> RawTensor:
        self._require(isinstance(entry, dict), f"{name} must be an object, not {entry!r}")
        found = self._known(name, self._file.tensors)
        stated = (entry.get("dtype"), self._numbers(name, "shape", entry, _LONGEST))
        stored = (found.dtype, found.shape)
        self._require(stored == stated, f"{name} must be {_text(*stated)}, not {_text(*stored)}")
        self._require(_is_count(entry.get("crc32")), f"{name} must have a CRC-32")
        self._checksums[name] = entry["crc32"]
        return found

    def _numbers(self, name: str, key: str, entry: Mapping[str, Any], most: int) -> tuple[int, ...]:
        value = entry.get(key)
        ok = isinstance(value, list) and all(_is_count(item) and item <= most for item in value)
        self._require(ok, f"{name}: {key} must be a list of numbers to {most}, not {value!r}")
        return tuple(entry[key])

    def _codebook(
        self, name: str, key: str, entry: Mapping[str, Any], format_: Format
    ) -> tuple[int, ...]:
        if key not in entry:
            needed = format_.scheme == "unary" and (
                key == "codebook" or format_.pruned_exponent == "coded"
            )
            self._require(not needed, f"{name} must have a {key} (scheme unary)")
            return ()
        book = self._numbers(name, key, entry, 255)
        most = format_.codebook - (key == "pruned_codebook")
        ok = len(set(book)) == len(book) <= most
        self._require(ok, f"{name}: {key} must list at most {most} exponents, each once")
        return book

    def _counts(self, name: str, key: str, entry: Mapping[str, Any]) -> dict[str, int]:
        value = entry.get(key)
        ok = isinstance(value, dict) and all(_is_count(item) for item in value.values())
        self._require(ok, f"{name}: {key} must be an object of numbers, not {value!r}")
        return dict(entry[key])

    def _check_parts(self, name: str, spec: PackedTensor) -> None:
        """The three arrays exist, in the dtype and shape that the format fixes."""
        for part, dtype in _PARTS.items():
            found = self._known(f"{name}.{part}", self._file.tensors)
            shape: tuple[int, ...] = (found.nbytes,)
            if part == "directory":
                shape = (spec.segments, len(DIRECTORY_FIELDS))
            stated, stored = _text(dtype, shape), _text(found.dtype, found.shape)
            self._require(stated == stored, f"{name}.{part} must be {stated}, not {stored}")

    def _check_names(self) -> None:
        known = {f"{name}.{part}" for name in self.tensors for part in _PARTS} | set(self.others)
        for name in self._file.tensors:
            self._require(name in known, f"{name} must be in the entry 'cassandra', and is not")

    def _check_directory(
        self,
        name: str,
        spec: PackedTensor,
        directory: NDArray[np.uint32],
        parts: Mapping[str, Bytes],
    ) -> None:
        """Regions follow each other and fill the arrays (section 5)."""
        columns = dict(zip(DIRECTORY_FIELDS, directory.T.astype(np.int64), strict=True))
        for part in ("speculation", "verification"):
            ends = np.cumsum(columns[f"{part}_length"])
            starts = ends - columns[f"{part}_length"]
            total = int(ends[-1]) * spec.format.superblock if ends.size else 0
            ok = bool((columns[f"{part}_offset"] == starts).all()) and total == parts[part].size
            self._require(ok, f"{name}.directory must cover {name}.{part} without holes")
        flags = bool((columns["flags"] <= FLAG_MASK).all())
        self._require(flags, f"{name}.directory must have flags of 0 or {FLAG_MASK}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _text(dtype: object, shape: Iterable[int]) -> str:
    return f"{dtype} {list(shape)}"
