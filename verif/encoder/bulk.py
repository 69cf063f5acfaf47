"""The encoder's gateware behind golden's interface: the Verilated top as a shared library.

:class:`RtlEncoder` passes batches of segments to a library
(:mod:`cassandra_spec.verif.library.bulk`) and assembles the output as ``golden.encode`` does.
Libraries are built as in :mod:`cassandra_spec.verif.decoder.bulk`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.arguments import check_arguments
from cassandra_spec.golden.codec import choose_codebooks
from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import ENCODE_ERROR_CAUSES, FLAG_MASK, Format
from cassandra_spec.golden.packed import Packed
from cassandra_spec.golden.selection import keep_largest
from cassandra_spec.rtl.decode.top import to_verilog
from cassandra_spec.rtl.encode.regions import EncodeResult
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encoder import EncoderTop
from cassandra_spec.verif.library.bulk import GatewareError, Harness, Statistics, Traffic
from cassandra_spec.verif.library.command import encode_command_word
from cassandra_spec.verif.library.models import names_of_bits
from cassandra_spec.verif.tools.verilated import Library

OUTPUTS = ("speculation", "verification", "result")
PORTS = ("command", "codebook", "values", *OUTPUTS)
"""Streams of the top, in the order of ``bulk.h``."""

_SEGMENT = np.dtype(
    [
        *(("values", "u8"), ("codebook", "u8"), ("regions", "u8", 2), ("room", "u8")),
        *(("command", "u8"), ("codebook_size", "u4"), ("count", "u4")),
    ]
)
_OUTCOME = np.dtype([("result", "u8"), ("bytes", "u8", 2), ("cycles", "u8"), ("packets", "u4", 2)])


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncodeRequest:
    """One segment to encode: the inputs of the encoder's ports."""

    values: NDArray[np.uint16]
    command: int
    codebook: tuple[int, ...] = ()  # unary; loaded if it differs from the current one


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoded:
    """The result of one segment."""

    speculation: NDArray[np.uint8]  # the region's bytes
    verification: NDArray[np.uint8]
    has_mask: bool
    saturated: int  # values replaced
    causes: tuple[str, ...]  # cassandra_spec.golden.format.ENCODE_ERROR_CAUSES
    cycle: int  # of the batch, in which the result left


class RtlEncoder:
    """The encoder gateware as a :class:`cassandra_spec.golden.encoders.Encoder`.

    ``latest`` has the counts of the last batch. One encoder serves one thread. Raises
    CassandraError if Verilator or a C++ compiler is missing.
    """

    def __init__(self, config: EncoderConfig | None = None) -> None:
        self.config = config or EncoderConfig()
        text, module = _verilog_of(self.config), self.config.module_name
        library = Library(verilog=text, module=module, lanes=self.config.lanes, kind="encoder")
        self._harness = Harness(library.built(), PORTS, _SEGMENT, _OUTCOME)
        self.latest = Statistics.none()

    def encode(
        self,
        values: NDArray[np.uint16],
        format: Format,
        *,
        vector: int,
        keep: int | None = None,
        codebook: Sequence[int] | None = None,
    ) -> Packed:
        """Pack whole segments of vectors; see :class:`cassandra_spec.golden.encoders.Encoder`.

        Regions and directory are those of ``golden.encode`` with ``always_mask`` where something
        may be pruned (``stream_bits``, which only informs, stays empty). Raises CassandraError if
        the gateware does not support the arguments or reports a cause, and GatewareError if it
        hangs or breaks a rule of its ports.
        """
        work = list(requests_of(values, format, vector=vector, keep=keep, codebook=codebook))
        self._check(format, vector, min(format.segment, len(values)))
        parts = self.run(work)
        for index, part in enumerate(parts):
            if part.causes:
                raise CassandraError(f"segment {index}: the encoder names {part.causes[0]!r}")
        return _packed(parts, format, len(values), work[0].codebook if work else ())

    def run(
        self, requests: Iterable[EncodeRequest], traffic: Traffic | None = None
    ) -> list[Encoded]:
        """Encode segments of any formats that the gateware has, back to back."""
        batch = _Batch(list(requests), self.config)
        outcomes, statistics, _ = self._harness.run(batch.table, traffic or Traffic())
        self.latest = dataclasses.replace(statistics, values=int(batch.table["count"].sum()))
        return [batch.encoded(index, outcome) for index, outcome in enumerate(outcomes)]

    def _check(self, format: Format, vector: int, segment: int) -> None:
        ours = self.config
        if not ours.has(format.scheme):
            expected = ", ".join(ours.schemes)
            raise CassandraError(
                f"scheme must be one of {expected} for this encoder, not {format.scheme!r}"
            )
        pairs = {
            "beat": ours.lanes,
            "codebook": ours.codebook,
            "window": ours.window,
            "superblock": ours.superblock,
            "lead": 1,
            "pruned_exponent": "raw",
        }
        for name, value in pairs.items():
            if getattr(format, name) != value:
                theirs = getattr(format, name)
                raise CassandraError(f"{name} must be {value!r} for this encoder, not {theirs!r}")
        limits = {"group": format.group, "segment": segment, "vector": vector}
        for name, number in limits.items():
            if number > getattr(ours, name):
                most = getattr(ours, name)
                raise CassandraError(
                    f"{name} must be at most {most} for this encoder, not {number}"
                )


def requests_of(
    values: NDArray[np.uint16],
    format: Format,
    *,
    vector: int,
    keep: int | None = None,
    codebook: Sequence[int] | None = None,
) -> Iterator[EncodeRequest]:
    """Yield the segments of a tensor.

    Arguments as in :meth:`cassandra_spec.golden.encoders.Encoder.encode`.
    """
    book: tuple[int, ...] = ()
    if format.scheme == "unary" and len(values):
        kept = None if keep is None else keep_largest(values, vector, keep)
        book = choose_codebooks(
            check_arguments(values, format, kept=kept, codebook=codebook)
        ).codebook
    for start in range(0, len(values), format.segment):
        part = values[start : start + format.segment]
        command = encode_command_word(
            format,
            len(part),
            vector=vector,
            keep=keep,
            mask=keep is not None or format.scheme == "unary",
            saturate=format.scheme == "mx",
        )
        yield EncodeRequest(values=part, command=command, codebook=book)


class _Batch:
    """Segments as ``bulk.h`` reads them, and buffers for the output."""

    def __init__(self, requests: Sequence[EncodeRequest], config: EncoderConfig) -> None:
        self.table = np.zeros(len(requests), _SEGMENT)
        self._superblock = config.superblock
        self._keep: list[NDArray[Any]] = []
        self._regions: list[list[NDArray[np.uint8]]] = []
        loaded: tuple[int, ...] = ()
        for row, request in zip(self.table, requests, strict=True):
            change = bool(request.codebook) and request.codebook != loaded
            loaded = request.codebook if change else loaded
            book = np.array(request.codebook if change else (), np.uint8)
            values = np.ascontiguousarray(request.values, np.uint16)
            # More than any scheme writes: 32 bits per code, and 16 bits twice, beside padding.
            room = 12 * (len(values) + config.lanes) + 2 * config.superblock
            regions = [np.zeros(room, np.uint8) for _ in range(2)]
            self._keep += [values, book]
            self._regions.append(regions)
            row["values"], row["codebook"] = values.ctypes.data, book.ctypes.data
            row["regions"] = [region.ctypes.data for region in regions]
            row["room"], row["command"] = room, request.command
            row["codebook_size"], row["count"] = book.size, len(values)

    def encoded(self, index: int, outcome: Any) -> Encoded:
        """Return a segment's output; the lengths in the result must be those of the packets."""
        result = _result(int(outcome["result"]))
        sizes = [int(size) for size in outcome["bytes"]]
        for which, name in enumerate(("speculation", "verification")):
            told = result[name] * self._superblock
            if told != sizes[which] or outcome["packets"][which] != (told > 0):
                raise GatewareError(
                    f"segment {index}: {name} has {sizes[which]} bytes, and a length of {told}"
                )
        return Encoded(
            speculation=self._regions[index][0][: sizes[0]],
            verification=self._regions[index][1][: sizes[1]],
            has_mask=bool(result["mask"]),
            saturated=result["saturated"],
            causes=names_of_bits(result["errors"], ENCODE_ERROR_CAUSES),
            cycle=int(outcome["cycles"]),
        )


def _result(word: int) -> dict[str, int]:
    return {
        str(name): word >> field.offset & ((1 << field.width) - 1) for name, field in EncodeResult()
    }


def _packed(
    parts: Sequence[Encoded], format: Format, count: int, codebook: tuple[int, ...]
) -> Packed:
    directory = np.zeros((len(parts), 5), np.uint32)
    unit = format.superblock
    for column, name in ((0, "speculation"), (2, "verification")):
        lengths = np.array([getattr(part, name).size // unit for part in parts], np.uint32)
        directory[:, column] = np.cumsum(lengths) - lengths
        directory[:, column + 1] = lengths
    directory[:, 4] = [FLAG_MASK if part.has_mask else 0 for part in parts]
    empty = [np.zeros(0, np.uint8)]
    return Packed(
        format=format,
        count=count,
        speculation=np.concatenate([*empty, *(part.speculation for part in parts)]),
        verification=np.concatenate([*empty, *(part.verification for part in parts)]),
        directory=directory,
        codebook=codebook,
        saturated=sum(part.saturated for part in parts),
    )


@functools.cache
def _verilog_of(config: EncoderConfig) -> str:
    return to_verilog(EncoderTop(config))
