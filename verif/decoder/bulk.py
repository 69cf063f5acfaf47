"""The gateware behind golden's codec interface: the Verilated decoder as a shared library.

:class:`RtlCodec` packs segments into batches, passes each batch to the library
(:mod:`cassandra_spec.verif.library.bulk`) and returns the decoded values, with counts of cycles and
stalls. The library is built once per configuration, under ``build/bulk``, in a folder named after a
hash of all its inputs.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.arguments import check_packed, whole_segments
from cassandra_spec.golden.errors import CassandraError, DecodeError
from cassandra_spec.golden.format import COMMAND_FIELDS, ERROR_CAUSES, Format
from cassandra_spec.golden.packed import Packed, Segment
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode.top import DecoderTop, to_verilog
from cassandra_spec.verif.decoder.codebooks import LoadedBooks
from cassandra_spec.verif.library.bulk import (
    GatewareError,
    Harness,
    PortCount,
    Statistics,
    Traffic,
)
from cassandra_spec.verif.library.command import command_fields, command_word, pack_fields
from cassandra_spec.verif.library.models import names_of_bits
from cassandra_spec.verif.tools.verilated import BUILD, Library

__all__ = [
    "PORTS",
    "GatewareError",
    "Outcome",
    "PortCount",
    "Request",
    "Result",
    "RtlCodec",
    "Statistics",
    "Traffic",
    "requests_of",
]

PORTS = ("command", "codebook", "speculation", "verification", "values")
"""Streams of the top, in the order of ``bulk.h``."""

_SEGMENT = np.dtype(
    {
        "names": [
            *("speculation", "speculation_bytes", "verification", "verification_bytes"),
            *("values", "codebook", "codebook_size", "command", "count", "use_verification"),
        ],
        "formats": ["u8"] * 6 + ["u4"] * 4,
    }
)
_OUTCOME = np.dtype(
    [("values", "u4"), ("flagged", "u4"), ("causes", "u4"), ("done", "u4"), ("cycles", "u8")]
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """One segment to decode: the inputs of the decoder's ports."""

    segment: Segment
    format: Format
    target: bool
    codebook: tuple[int, ...] = ()  # unary; loaded if it differs from the current one
    pruned_codebook: tuple[int, ...] = ()  # the same, in targets with coded pruned exponents
    command: int | None = None  # replaces the segment's command word (tests of bad input)

    @property
    def word(self) -> int:
        """The command word."""
        if self.command is not None:
            return self.command
        return command_word(self.format, self.segment, target=self.target)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of one segment."""

    values: int  # values before the end
    causes: tuple[str, ...]  # of the flag at the last beat; empty: the segment is good. Unless
    # traffic is serial, causes of earlier segments (seldom, of the next) are among them
    cycle: int  # cycle of the batch in which the last beat left


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a batch."""

    values: NDArray[np.uint16]  # all segments in turn; after a flagged segment's values, zeros
    outcomes: tuple[Outcome | None, ...]  # one per segment; None: not reached
    statistics: Statistics


class RtlCodec:
    """The decoder gateware as a :class:`cassandra_spec.golden.packed.Codec`.

    Arguments:
        config: the decoder.
        instances: decoders that share the segments of a call, each with its own thread.
        traffic: how ports are driven in :meth:`decode_draft` and :meth:`decode_target`.
        verilog: text to simulate instead of the gateware's own: another module of the same name and
            ports, such as a netlist from synthesis.
        build: folder for the library.
        transitions: SAIF file that each batch overwrites with the transitions of every net, sampled
            once per cycle when settled. One instance only.

    ``statistics`` sums all calls, ``latest`` is from the last one. One codec serves one thread.
    Raises CassandraError if Verilator or a C++ compiler is missing.
    """

    def __init__(
        self,
        config: DecoderConfig | None = None,
        *,
        instances: int = 1,
        traffic: Traffic | None = None,
        verilog: str | None = None,
        build: Path = BUILD,
        transitions: Path | None = None,
    ) -> None:
        self.config = config or DecoderConfig()
        self.traffic = traffic or Traffic()
        text = _verilog_of(self.config) if verilog is None else verilog
        if transitions and instances > 1:
            raise CassandraError(f"instances must be 1 to count transitions, not {instances}")
        activity = transitions is not None
        name = self.config.module_name
        lanes = self.config.lanes
        library = Library(verilog=text, module=name, lanes=lanes, activity=activity)
        self.library = library.built(build)
        self._instances = [_Instance(self.library, transitions) for _ in range(instances)]
        self.latest = self.statistics = Statistics.none()

    def decode_draft(self, packed: Packed) -> NDArray[np.uint16]:
        """Decode draft values, uint16 [count], with the gateware.

        Raises DecodeError if the gateware flags a segment, and GatewareError if it hangs or breaks
        a rule of its ports.
        """
        return self.run(requests_of(packed, target=False)).values

    def decode_target(self, packed: Packed) -> NDArray[np.uint16]:
        """Decode target values, uint16 [count], with the gateware; errors as in decode_draft."""
        return self.run(requests_of(packed, target=True)).values

    def run(self, requests: Iterable[Request], traffic: Traffic | None = None) -> Result:
        """Decode segments of any formats that the gateware has, back to back.

        With ``go_on`` flagged segments are reported in the outcomes; otherwise they raise
        DecodeError.
        """
        work = list(requests)
        for request in work:
            self._check(request)
        parts = list(_split(work, len(self._instances)))
        chosen = traffic or self.traffic
        with ThreadPoolExecutor(len(self._instances)) as pool:
            results = list(
                pool.map(_Instance.run, self._instances, parts, itertools.repeat(chosen))
            )
        self.latest = sum((result.statistics for result in results), Statistics.none())
        self.statistics += self.latest
        return Result(
            values=np.concatenate([result.values for result in results]),
            outcomes=tuple(itertools.chain.from_iterable(result.outcomes for result in results)),
            statistics=self.latest,
        )

    def _check(self, request: Request) -> None:
        fmt, config = request.format, self.config
        found = DecoderConfig.of(fmt)
        if not config.has(fmt.scheme):
            raise CassandraError(
                f"scheme must be one of {', '.join(config.schemes)} for this decoder,"
                f" not {fmt.scheme!r}"
            )
        for name in ("lanes", "codebook", "window", "superblock", "target_rate"):
            ours, theirs = getattr(config, name), getattr(found, name)
            if ours != theirs:
                raise CassandraError(f"{name} must be {ours} for this decoder, not {theirs}")
        least, most = config.truncated
        if not least <= fmt.truncated <= most:
            raise CassandraError(
                f"truncated must be from {least} to {most} for this decoder, not {fmt.truncated}"
            )
        if found.coded and not config.coded:
            raise CassandraError("pruned_exponent must be 'raw' for this decoder, not 'coded'")


def requests_of(packed: Packed, *, target: bool) -> Iterator[Request]:
    """Yield the segments of a tensor, in order.

    Raises CassandraError if the data beside the regions is malformed, and DecodeError at the first
    segment that reaches beyond its array.
    """
    check_packed(packed)
    whole, error = whole_segments(packed, target)
    for index in range(whole):
        yield Request(
            segment=packed.segment(index),
            format=packed.format,
            target=target,
            codebook=packed.codebook,
            pruned_codebook=packed.pruned_codebook,
        )
    if error is not None:
        raise error


class _Instance:
    """One decoder inside the library."""

    def __init__(self, library: Path, transitions: Path | None) -> None:
        self._harness = Harness(library, PORTS, _SEGMENT, _OUTCOME)
        if transitions is not None:
            self._harness.write_transitions(transitions)

    def run(self, requests: Sequence[Request], traffic: Traffic) -> Result:
        values = np.zeros(sum(request.segment.count for request in requests), np.uint16)
        table, keep = _table(requests, values)
        names = [f"segment {request.segment.index}" for request in requests]
        entries, statistics, flagged = self._harness.run(table, traffic, names)
        del keep
        outcomes = tuple(_outcome(entry) for entry in entries)
        if flagged is not None and (outcome := outcomes[flagged]):
            index = requests[flagged].segment.index
            raise DecodeError(outcome.causes[0], index, "the gateware flagged the segment")
        count = int(entries["values"].sum())
        statistics = dataclasses.replace(statistics, values=count)
        return Result(values=values, outcomes=outcomes, statistics=statistics)


def _filled(request: Request, number: int) -> int:
    """Return the command word of a request; a number sets the bits without meaning."""
    spare = number % 4 << sum(field.width for field in COMMAND_FIELDS)
    if request.command is not None:
        return request.command | spare
    fields = command_fields(request.format, request.segment, target=request.target)
    if request.format.scheme == "unary":
        fields["log2_group"] = number % 16
    return pack_fields(fields) | spare


def _table(
    requests: Sequence[Request], values: NDArray[np.uint16]
) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Return the batch as ``bulk.h`` reads it, and the arrays that must outlive the call."""
    table = np.zeros(len(requests), _SEGMENT)
    keep: list[NDArray[Any]] = []
    books, room = LoadedBooks(), values.ctypes.data
    for place, (row, request) in enumerate(zip(table, requests, strict=True)):
        segment = request.segment
        words = [word.number for word in books.words(request)]
        arrays: dict[str, NDArray[Any]] = {
            "speculation": np.ascontiguousarray(segment.speculation),
            "verification": np.ascontiguousarray(segment.verification),
            "codebook": np.array(words, np.uint16),
        }
        keep.extend(arrays.values())
        for name, array in arrays.items():
            row[name] = array.ctypes.data
        row["speculation_bytes"] = arrays["speculation"].size
        row["verification_bytes"] = arrays["verification"].size
        row["codebook_size"] = arrays["codebook"].size
        row["command"] = _filled(request, place)
        row["count"] = segment.count
        row["use_verification"], row["values"] = request.target, room
        room += values.itemsize * segment.count
    return table, keep


def _outcome(entry: Any) -> Outcome | None:
    if not entry["done"]:
        return None
    causes = names_of_bits(int(entry["causes"]), ERROR_CAUSES) if entry["flagged"] else ()
    if entry["flagged"] and not causes:
        raise GatewareError("a segment was flagged without a cause")
    return Outcome(values=int(entry["values"]), causes=causes, cycle=int(entry["cycles"]))


def _split(requests: list[Request], parts: int) -> Iterator[list[Request]]:
    """Split into runs of segments with about the same number of values."""
    ends = np.cumsum([0, *(request.segment.count for request in requests)])
    marks = np.searchsorted(ends, ends[-1] * np.arange(parts + 1) / parts)
    marks[-1] = len(requests)
    for first, last in itertools.pairwise(marks.tolist()):
        yield requests[first:last]


@functools.cache
def _verilog_of(config: DecoderConfig) -> str:
    return to_verilog(DecoderTop(config))
