"""The gateware behind golden's codec interface: the Verilated decoder as a shared library.

:class:`RtlCodec` packs segments into batches, hands each batch to ``verif/decoder/bulk.cpp`` (a
C++ loop around the Verilated top) and returns the values that came out, with counts of cycles and
stalls. The library is built once for each configuration, under ``build/bulk``, in a folder named
after a hash of everything that goes into it. ctypes releases the interpreter lock during a batch,
so several instances of the decoder use several cores.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.errors import CassandraError, DecodeError
from cassandra_spec.golden.format import ERROR_CAUSES, SCHEMES, Format, Scheme
from cassandra_spec.golden.packed import Packed, Segment
from cassandra_spec.rtl.common.command import DecoderConfig, TargetRate
from cassandra_spec.rtl.decode.top import DecoderTop, to_verilog
from cassandra_spec.verif.decoder.codebooks import LoadedBooks
from cassandra_spec.verif.library.command import command_word
from cassandra_spec.verif.library.patterns import ALWAYS, Pattern
from cassandra_spec.verif.tools.verilated import BUILD, build_library, library_path

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
    "build_library",
    "library_path",
    "requests_of",
]

PORTS = ("command", "codebook", "speculation", "verification", "values")
"""Streams of the top, in the order of ``bulk.cpp``."""

_SEGMENT = np.dtype(
    {
        "names": [
            *("speculation", "speculation_bytes", "verification", "verification_bytes"),
            *("codebook", "codebook_size", "command", "count", "use_verification"),
        ],
        "formats": ["u8"] * 5 + ["u4"] * 4,
    }
)
_OUTCOME = np.dtype(
    [("values", "u4"), ("flagged", "u4"), ("causes", "u4"), ("done", "u4"), ("cycles", "u8")]
)
_PATTERN = np.dtype([("kind", "u4"), ("on", "u4"), ("off", "u4"), ("reserved", "u4")])
_OPTIONS = np.dtype(
    [
        *(("patterns", _PATTERN, len(PORTS)), ("seed", "u8"), ("hang_cycles", "u8")),
        *(("limit_cycles", "u8"), ("serial", "u4"), ("go_on", "u4")),
    ]
)
_STATISTICS = np.dtype([("cycles", "u8"), ("ports", "u8", (len(PORTS), 3))])

_DONE, _FLAGGED, _HANG, _LIMIT = range(4)
_BROKEN_RULES = {
    4: "m_axis_values_tvalid fell before the beat was taken",
    5: "m_axis_values changed while the beat waited",
    6: "m_axis_values_tkeep must be contiguous, full before the last beat, and 0 with tuser",
    7: "the packet has the wrong number of values",
}


class GatewareError(RuntimeError):
    """The gateware hung or broke a rule of its interface; never the fault of packed data."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """One segment to decode: what the ports of the decoder are to be given."""

    segment: Segment
    format: Format
    target: bool
    codebook: tuple[int, ...] = ()  # of unary; loaded if it differs from the one in place
    pruned_codebook: tuple[int, ...] = ()  # likewise, in targets with coded pruned exponents
    command: int | None = None  # instead of the command word that fits (tests of bad input)

    @property
    def word(self) -> int:
        """The command word."""
        if self.command is not None:
            return self.command
        return command_word(self.format, self.segment, target=self.target)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traffic:
    """How the ports are driven. The default is as fast as the decoder takes and gives."""

    patterns: Mapping[str, Pattern] = dataclasses.field(default_factory=dict)  # by PORTS
    seed: int = 1  # of the random patterns
    serial: bool = False  # a command waits for the end of the packet before it
    go_on: bool = False  # after a flagged segment, instead of stopping there
    hang_cycles: int = 20_000  # cycles without any transfer that count as a hang
    limit_cycles: int = 0  # stop and reset in this cycle; 0: never

    def __post_init__(self) -> None:
        for name in self.patterns:
            if name not in PORTS:
                raise CassandraError(f"port must be one of {', '.join(PORTS)}, not {name!r}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PortCount:
    """Cycles of one port."""

    moved: int  # transfers: valid and ready
    stalled: int  # valid, not ready
    starved: int  # ready, not valid


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statistics:
    """What batches cost, summed over the instances that shared the work."""

    values: int  # that came out
    cycles: int
    ports: Mapping[str, PortCount]

    @property
    def beats(self) -> int:
        """Beats of values that came out."""
        return self.ports["values"].moved

    @property
    def values_per_cycle(self) -> float:
        """Values that came out in a cycle, on average."""
        return self.values / max(self.cycles, 1)

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics(
            values=self.values + other.values,
            cycles=self.cycles + other.cycles,
            ports={name: _sum(self.ports[name], other.ports[name]) for name in PORTS},
        )

    @classmethod
    def none(cls) -> Statistics:
        """No cycles at all; the neutral element of the sum."""
        nothing = PortCount(moved=0, stalled=0, starved=0)
        return cls(values=0, cycles=0, ports=dict.fromkeys(PORTS, nothing))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one segment ended."""

    values: int  # that came out before the end
    causes: tuple[str, ...]  # of the flag at the last beat; none: the segment is good. Unless the
    # traffic is serial, causes of segments before it (and, rarely, of the next) are among them
    cycle: int  # of the batch, in which the last beat left


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What a batch gave."""

    values: NDArray[np.uint16]  # all segments in turn; after a flagged one's values, zeros
    outcomes: tuple[Outcome | None, ...]  # one for each segment; None: not reached
    statistics: Statistics


class RtlCodec:
    """The decoder gateware as a :class:`cassandra_spec.golden.packed.Codec`.

    Arguments:
        lanes, schemes, codebook, window, superblock, target_rate, coded: as of
            :class:`cassandra_spec.rtl.decode.top.DecoderTop`.
        instances: decoders that share the segments of a call, each with a thread of its own.
        traffic: how ports are driven in :meth:`decode_draft` and :meth:`decode_target`.
        verilog: text to simulate instead of the gateware's own: another module of the same name
            and ports, such as a netlist from synthesis.
        build: folder for the library.
        transitions: SAIF file that each batch writes anew, with the transitions of every net: each
            is looked at once in a cycle, settled, and starts from zero. One instance only.

    ``statistics`` sums all calls, ``latest`` is of the last one. One codec serves one thread.
    Raises CassandraError if there is no Verilator or no C++ compiler.
    """

    def __init__(
        self,
        *,
        lanes: int = 16,
        schemes: tuple[Scheme, ...] = SCHEMES,
        codebook: int = 16,
        window: int = 2,
        superblock: int = 128,
        target_rate: TargetRate = "half",
        coded: bool = False,
        instances: int = 1,
        traffic: Traffic | None = None,
        verilog: str | None = None,
        build: Path = BUILD,
        transitions: Path | None = None,
    ) -> None:
        self.config = DecoderConfig(
            lanes=lanes,
            schemes=schemes,
            codebook=codebook,
            window=window,
            superblock=superblock,
            target_rate=target_rate,
            coded=coded,
        )
        self.traffic = traffic or Traffic()
        text = _verilog_of(self.config) if verilog is None else verilog
        if transitions and instances > 1:
            raise CassandraError(f"instances must be 1 to count transitions, not {instances}")
        activity = transitions is not None
        name = self.config.module_name
        self.library = build_library(text, name, lanes, build, activity=activity)
        self._instances = [_Instance(_load(self.library), transitions) for _ in range(instances)]
        self.latest = self.statistics = Statistics.none()

    def decode_draft(self, packed: Packed) -> NDArray[np.uint16]:
        """Draft values, uint16 [count], through the gateware.

        Raises DecodeError if the gateware flags a segment, and GatewareError if it hangs or breaks
        a rule of its ports.
        """
        return self.run(requests_of(packed, target=False)).values

    def decode_target(self, packed: Packed) -> NDArray[np.uint16]:
        """Target values, uint16 [count], through the gateware; errors as of decode_draft."""
        return self.run(requests_of(packed, target=True)).values

    def run(self, requests: Iterable[Request], traffic: Traffic | None = None) -> Result:
        """Decode segments of any formats that the gateware has, back to back.

        With ``go_on`` flagged segments are reported in the outcomes; else they raise DecodeError.
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
        if found.coded and not config.coded:
            raise CassandraError("pruned_exponent must be 'raw' for this decoder, not 'coded'")


def requests_of(packed: Packed, *, target: bool) -> Iterator[Request]:
    """The segments of a tensor, in order."""
    for segment in packed.segments():
        yield Request(
            segment=segment,
            format=packed.format,
            target=target,
            codebook=packed.codebook,
            pruned_codebook=packed.pruned_codebook,
        )


class _Instance:
    """One decoder inside the library, and batches through it."""

    def __init__(self, library: ctypes.CDLL, transitions: Path | None) -> None:
        self._library = library
        self._handle = ctypes.c_void_p(library.cassandra_create())
        if transitions is not None:
            library.cassandra_transitions(self._handle, os.fsencode(transitions))

    def __del__(self) -> None:
        self._library.cassandra_destroy(self._handle)

    def run(self, requests: Sequence[Request], traffic: Traffic) -> Result:
        table, keep = _table(requests)
        values = np.zeros(int(table["count"].sum()), np.uint16)
        outcomes = np.zeros(len(table), _OUTCOME)
        counts, at = np.zeros((), _STATISTICS), ctypes.c_uint64()
        options = _options(traffic)
        status = self._library.cassandra_run(
            self._handle,
            *(_address(table), ctypes.c_uint64(len(table)), _address(values), _address(outcomes)),
            *(_address(options), _address(counts), ctypes.byref(at)),
        )
        del keep
        statistics = _statistics(counts, outcomes)
        _raise_for(status, requests, at.value, outcomes, statistics)
        return Result(
            values=values,
            outcomes=tuple(_outcome(entry) for entry in outcomes),
            statistics=statistics,
        )


def _table(requests: Sequence[Request]) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """The batch as ``bulk.cpp`` reads it, and the arrays that must outlive the call."""
    table = np.zeros(len(requests), _SEGMENT)
    keep: list[NDArray[Any]] = []
    books = LoadedBooks()
    for row, request in zip(table, requests, strict=True):
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
        row["command"], row["count"] = request.word, segment.count
        row["use_verification"] = request.target
    return table, keep


def _options(traffic: Traffic) -> NDArray[Any]:
    options = np.zeros((), _OPTIONS)
    for place, name in enumerate(PORTS):
        pattern = traffic.patterns.get(name, ALWAYS)
        options["patterns"][place] = (pattern.kind, pattern.on, pattern.off, 0)
    for name in ("seed", "hang_cycles", "limit_cycles", "serial", "go_on"):
        options[name] = getattr(traffic, name)
    return options


def _raise_for(
    status: int,
    requests: Sequence[Request],
    at: int,
    outcomes: NDArray[Any],
    statistics: Statistics,
) -> None:
    if status in (_DONE, _LIMIT):
        return
    index = requests[at].segment.index
    where = f"segment {index} (number {at} of the batch), cycle {statistics.cycles}"
    if status == _FLAGGED:
        causes = _causes(int(outcomes[at]["causes"]))
        if not causes:
            raise GatewareError(f"{where}: flagged without a cause")
        raise DecodeError(causes[0], index, "the gateware flagged the segment")
    if status == _HANG:
        ports = ", ".join(f"{name} {count.moved}" for name, count in statistics.ports.items())
        raise GatewareError(f"{where}: nothing moves any more; transfers so far: {ports}")
    raise GatewareError(f"{where}: {_BROKEN_RULES[status]}")


def _causes(bits: int) -> tuple[str, ...]:
    return tuple(cause for bit, cause in enumerate(ERROR_CAUSES) if bits >> bit & 1)


def _outcome(entry: Any) -> Outcome | None:
    if not entry["done"]:
        return None
    causes = _causes(int(entry["causes"])) if entry["flagged"] else ()
    if entry["flagged"] and not causes:
        raise GatewareError("a segment was flagged without a cause")
    return Outcome(values=int(entry["values"]), causes=causes, cycle=int(entry["cycles"]))


def _statistics(counts: NDArray[Any], outcomes: NDArray[Any]) -> Statistics:
    ports = {
        name: PortCount(moved=int(row[0]), stalled=int(row[1]), starved=int(row[2]))
        for name, row in zip(PORTS, counts["ports"], strict=True)
    }
    values = int(outcomes["values"].sum())
    return Statistics(values=values, cycles=int(counts["cycles"]), ports=ports)


def _sum(one: PortCount, other: PortCount) -> PortCount:
    return PortCount(
        moved=one.moved + other.moved,
        stalled=one.stalled + other.stalled,
        starved=one.starved + other.starved,
    )


def _address(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _split(requests: list[Request], parts: int) -> Iterator[list[Request]]:
    """Runs of segments with about the same number of values."""
    ends = np.cumsum([0, *(request.segment.count for request in requests)])
    marks = np.searchsorted(ends, ends[-1] * np.arange(parts + 1) / parts)
    marks[-1] = len(requests)
    for first, last in itertools.pairwise(marks.tolist()):
        yield requests[first:last]


@functools.cache
def _verilog_of(config: DecoderConfig) -> str:
    return to_verilog(DecoderTop(config))


@functools.cache
def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.cassandra_create.restype = ctypes.c_void_p
    library.cassandra_run.restype = ctypes.c_int
    sizes = (ctypes.c_uint32 * 5)()
    library.cassandra_sizes(sizes)
    expected = [kind.itemsize for kind in (_SEGMENT, _OUTCOME, _OPTIONS, _STATISTICS)]
    if list(sizes)[1:] != expected:
        raise GatewareError(f"structures of bulk.cpp must be {expected} bytes, not {sizes[1:]}")
    return library
