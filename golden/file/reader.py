"""Read safetensors files and the packed models in them; everything read is validated."""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
import zlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from cassandra_spec.golden.checksums import checksum_error, wrong_checksum
from cassandra_spec.golden.errors import CassandraError, FileError
from cassandra_spec.golden.file.description import (
    LENGTH,
    LONGEST,
    PARTS,
    VERSION,
    PackedTensor,
    RawTensor,
    canonical,
)
from cassandra_spec.golden.format import DIRECTORY_FIELDS, FLAG_MASK, Format, is_integer
from cassandra_spec.golden.packed import Bytes, Packed

_Spec = TypeVar("_Spec")
_CRC32 = (1 << 32) - 1  # largest CRC-32
_NOTHING = np.zeros(0, np.uint8)
_PIECE = 1 << 22  # bytes checked at a time
_DIMENSIONS = 64  # maximum: the size is a product of all
_REASONS = {
    "incomplete metadata, file not fully covered": "truncated, or with bytes of no tensor",
    "invalid header length": "truncated inside its header, or of another kind",
    "header too large": "of another kind",
    "header too small": "of fewer than 8 bytes",
}


class SafetensorsFile:
    """A safetensors file of any origin; tensors are read one at a time, or in part.

    ``tensors`` maps names to :class:`RawTensor`; ``metadata`` is the header's. Raises
    :class:`FileError` if the file is truncated or not safetensors.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        header, self._data = _read_header(path)
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        self.tensors: dict[str, RawTensor] = {}
        self._starts: dict[str, int] = {}
        for name, entry in header.items():
            start, stop = entry["data_offsets"]
            shape = tuple(entry["shape"])
            self.tensors[name] = RawTensor(dtype=entry["dtype"], shape=shape, nbytes=stop - start)
            self._starts[name] = start

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Bytes:
        """Return bytes ``start`` to ``stop`` of a tensor (uint8)."""
        place = self.place(name)
        stop = self.tensors[name].nbytes if stop is None else stop
        with self.path.open("rb") as file:
            file.seek(place + start)
            data = np.fromfile(file, np.uint8, stop - start)
        if data.size != stop - start:
            raise self._cut_off(name)
        return data

    def read_into(self, name: str, data: Bytes) -> None:
        """Read a whole tensor into ``data`` (uint8), whose size must be its own."""
        place = self.place(name)
        with self.path.open("rb") as file:
            file.seek(place)
            if data.size != self.tensors[name].nbytes or file.readinto(data.data) != data.size:
                raise self._cut_off(name)

    def map(self, name: str) -> Bytes:
        """Map the bytes of a tensor (uint8); the file must not change while they are used.

        Raises :class:`FileError` if they do not start at a multiple of their item size.
        """
        place, spec = self.place(name), self.tensors[name]
        if not spec.nbytes:
            return np.zeros(0, np.uint8)  # an empty range cannot be mapped
        item = max(spec.nbytes // math.prod(spec.shape), 1)
        if place % item:
            raise FileError(
                f"{self.path}: {name} must start at a multiple of {item}, not at {place}"
            )
        try:
            return np.asarray(np.memmap(self.path, np.uint8, "r", place, (spec.nbytes,)))
        except ValueError as error:
            raise self._cut_off(name) from error

    def _cut_off(self, name: str) -> FileError:
        return FileError(f"{self.path} must not shrink while it is read ({name} is cut off)")

    def place(self, name: str) -> int:
        """Return the offset of a tensor in the file."""
        if name not in self.tensors:
            raise FileError(f"{self.path} must have a tensor {name}, and has none of that name")
        return self._data + self._starts[name]


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header, and the offset of the data after it."""
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
        (size,) = LENGTH.unpack(file.read(LENGTH.size))
        header: dict[str, Any] = json.loads(file.read(size))
    return header, LENGTH.size + size


def _what_it_is(path: Path) -> str:
    return "a directory" if path.is_dir() else "of another kind" if path.exists() else "missing"


class PackedFile:
    """A packed model file: ``tensors`` (packed) and ``others`` (unchanged), by name.

    ``about`` is the other metadata of the file; ``digest`` (SHA-256, in hexadecimal) covers all of
    the file's descriptions, including the checksums of all tensors.

    Opening reads and checks only the header. Raises :class:`FileError` with a line that names the
    file, the tensor and what was expected.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = SafetensorsFile(path)
        body = self._description()
        packed, others = self._object("tensors", body), self._object("others", body)
        self.tensors = {name: self._packed_tensor(name, packed) for name in packed}
        self._checksums: dict[str, int] = {}
        self.others = {name: self._other(name, others) for name in others}
        self.about = self._object("about", body) if "about" in body else {}
        self.digest = hashlib.sha256(canonical(body).encode()).hexdigest()
        self._check_names()

    def read_packed(self, name: str, *, without: Collection[str] = ()) -> Packed:
        """Read one packed tensor and verify its checksums.

        Arrays named in ``without`` are returned empty; their checksums are verified too, holding
        one piece at a time in memory.
        """
        spec = self._known(name, self.tensors)
        for part in without:
            self._check_in_pieces(f"{name}.{part}", spec.crc32[part])
        parts = {
            part: self._read_checked(f"{name}.{part}", spec.crc32[part])
            for part in PARTS
            if part not in without
        }
        directory = parts["directory"].view("<u4").astype(np.uint32, copy=False)
        directory = directory.reshape(spec.segments, len(DIRECTORY_FIELDS))
        self._check_directory(name, spec, directory)
        return Packed(
            format=spec.format,
            count=spec.count,
            speculation=parts.get("speculation", _NOTHING),
            verification=parts.get("verification", _NOTHING),
            directory=directory,
            codebook=spec.codebook,
            pruned_codebook=spec.pruned_codebook,
            stream_bits=spec.stream_bits,
        )

    def read_raw(self, name: str) -> Bytes:
        """Return the bytes of an unpacked tensor (uint8), after verifying its checksum."""
        self._known(name, self.others)
        return self._read_checked(name, self._checksums[name])

    def read_raw_into(self, name: str, data: Bytes) -> None:
        """Read an unpacked tensor into ``data`` (uint8) of its size; verify its checksum."""
        self._known(name, self.others)
        self._file.read_into(name, data)
        self._checked(name, data, self._checksums[name])

    def map_raw(self, name: str) -> Bytes:
        """Map the bytes of an unpacked tensor: :meth:`read_raw` by :meth:`SafetensorsFile.map`."""
        self._known(name, self.others)
        return self._checked(name, self._file.map(name), self._checksums[name])

    def check_packed(self, name: str, packed: Packed) -> None:
        """Check the parts of a packed tensor in memory against the file's checksums."""
        spec = self._known(name, self.tensors)
        for part in PARTS:
            data = np.ascontiguousarray(getattr(packed, part))
            if part == "directory":
                data = data.astype("<u4", copy=False)
            octets = data.reshape(-1).view(np.uint8)
            self._checked(f"{name}.{part}", octets, spec.crc32[part])

    def verify(self) -> int:
        """Read the whole file, verify every checksum, and return the number of checksums."""
        for name in self.tensors:
            self.read_packed(name)
        for name in self.others:
            self.read_raw(name)
        return len(PARTS) * len(self.tensors) + len(self.others)

    def stored_bytes(self, name: str) -> dict[str, int]:
        """Return the stored bytes of each part of a packed tensor."""
        self._known(name, self.tensors)
        return {part: self._file.tensors[f"{name}.{part}"].nbytes for part in PARTS}

    def place(self, key: str) -> int:
        """Return the offset of a tensor, or of a packed one's part (``NAME.speculation``)."""
        return self._file.place(key)

    def _known(self, name: str, kind: Mapping[str, _Spec]) -> _Spec:
        if name not in kind:
            raise FileError(f"{self.path} must have a tensor {name}, and has none of that name")
        return kind[name]

    def _read_checked(self, key: str, expected: int) -> Bytes:
        return self._checked(key, self._file.read(key), expected)

    def _check_in_pieces(self, key: str, expected: int) -> None:
        size, crc = self._file.tensors[key].nbytes, 0
        for start in range(0, size, _PIECE):
            crc = zlib.crc32(self._file.read(key, start, min(start + _PIECE, size)).data, crc)
        wrong = checksum_error(key, crc, expected)
        self._require(not wrong, wrong)

    def _checked(self, key: str, data: Bytes, expected: int) -> Bytes:
        wrong = wrong_checksum(key, data, expected)
        self._require(not wrong, wrong)
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
        self._require(version == VERSION, f"version must be {VERSION}, not {reprlib.repr(version)}")
        checksum = body.pop("crc32", None)
        computed = zlib.crc32(canonical(body).encode())
        self._require(
            checksum == computed,
            f"the entry 'cassandra' must have the CRC-32 {reprlib.repr(checksum)}, not {computed}",
        )
        return dict(body)

    def _object(self, key: str, body: Mapping[str, Any]) -> dict[str, Any]:
        value = body.get(key)
        self._require(
            isinstance(value, dict), f"{key} must be an object, not {reprlib.repr(value)}"
        )
        return dict(body[key])

    def _packed_tensor(self, name: str, entries: Mapping[str, Any]) -> PackedTensor:
        entry = self._object(name, entries)
        try:
            format_ = Format.from_dict(self._object("format", entry))
        except FileError:
            raise
        except CassandraError as error:
            raise FileError(f"{self.path}: {name}: {error}") from error
        spec = PackedTensor(
            format=format_,
            shape=self._shape(name, entry),
            codebook=self._codebook(name, "codebook", entry, format_),
            pruned_codebook=self._codebook(name, "pruned_codebook", entry, format_),
            crc32=self._counts(name, "crc32", entry, _CRC32),
            stream_bits=self._counts(name, "stream_bits", entry, LONGEST),
        )
        self._require(set(spec.crc32) >= set(PARTS), f"{name} must have a CRC-32 of every part")
        self._check_parts(name, spec)
        return spec

    def _other(self, name: str, entries: Mapping[str, Any]) -> RawTensor:
        entry = self._object(name, entries)
        tensor = self._known(name, self._file.tensors)
        stated = (entry.get("dtype"), self._shape(name, entry))
        stored = (tensor.dtype, tensor.shape)
        self._require(stored == stated, f"{name} must be {_text(*stated)}, not {_text(*stored)}")
        self._require(is_integer(entry.get("crc32"), 0, _CRC32), f"{name} must have a CRC-32")
        self._checksums[name] = entry["crc32"]
        return tensor

    def _numbers(self, name: str, key: str, entry: Mapping[str, Any], most: int) -> tuple[int, ...]:
        value = entry.get(key)
        ok = isinstance(value, list) and all(is_integer(item, 0, most) for item in value)
        expected = f"a list of numbers to {most}"
        self._require(ok, f"{name}: {key} must be {expected}, not {reprlib.repr(value)}")
        return tuple(entry[key])

    def _shape(self, name: str, entry: Mapping[str, Any]) -> tuple[int, ...]:
        shape = self._numbers(name, "shape", entry, LONGEST)
        expected = f"{name}: shape must have at most {_DIMENSIONS} dimensions, not {len(shape)}"
        self._require(len(shape) <= _DIMENSIONS, expected)
        return shape

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
        limit = format_.codebook - (key == "pruned_codebook")
        ok = len(set(book)) == len(book) <= limit
        self._require(ok, f"{name}: {key} must list at most {limit} exponents, each once")
        return book

    def _counts(self, name: str, key: str, entry: Mapping[str, Any], most: int) -> dict[str, int]:
        value = entry.get(key)
        ok = isinstance(value, dict) and all(is_integer(n, 0, most) for n in value.values())
        expected = f"an object of numbers to {most}"
        self._require(ok, f"{name}: {key} must be {expected}, not {reprlib.repr(value)}")
        return dict(entry[key])

    def _check_parts(self, name: str, spec: PackedTensor) -> None:
        """Check that the three arrays exist, in the dtype and shape that the format requires."""
        for part, dtype in PARTS.items():
            tensor = self._known(f"{name}.{part}", self._file.tensors)
            shape: tuple[int, ...] = (tensor.nbytes,)
            if part == "directory":
                shape = (spec.segments, len(DIRECTORY_FIELDS))
            stated, stored = _text(dtype, shape), _text(tensor.dtype, tensor.shape)
            self._require(stated == stored, f"{name}.{part} must be {stated}, not {stored}")

    def _check_names(self) -> None:
        packed = {f"{name}.{part}" for name in self.tensors for part in PARTS}
        for name in (packed | set(self.tensors)) & set(self.others):
            self._require(
                False, f"{name} must be packed or plain in the entry 'cassandra', not both"
            )
        for name in self._file.tensors:
            known = name in packed or name in self.others
            self._require(known, f"{name} must be in the entry 'cassandra', and is not")

    def _check_directory(
        self,
        name: str,
        spec: PackedTensor,
        directory: NDArray[np.uint32],
    ) -> None:
        """Check that regions are contiguous and fill the arrays (section 5)."""
        columns = dict(zip(DIRECTORY_FIELDS, directory.T.astype(np.int64), strict=True))
        for part in ("speculation", "verification"):
            ends = np.cumsum(columns[f"{part}_length"])
            starts = ends - columns[f"{part}_length"]
            total = int(ends[-1]) * spec.format.superblock if ends.size else 0
            whole = total == self._file.tensors[f"{name}.{part}"].nbytes
            ok = whole and bool((columns[f"{part}_offset"] == starts).all())
            self._require(ok, f"{name}.directory must cover {name}.{part} without holes")
        flags = bool((columns["flags"] <= FLAG_MASK).all())
        self._require(flags, f"{name}.directory must have flags of 0 or {FLAG_MASK}")


def _text(dtype: object, shape: Iterable[int]) -> str:
    return f"{dtype} {list(shape)}"
