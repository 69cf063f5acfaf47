"""Batches of segments through a Verilated top; shared by decoder and encoder.

A library around ``verif/tools/bulk.cpp`` runs a whole batch in one call. ctypes releases the
interpreter lock meanwhile, so several instances of a top use several cores.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.library.patterns import ALWAYS, Pattern
from cassandra_spec.verif.tools.counting import new_counts

_PATTERN = np.dtype([("kind", "u4"), ("on", "u4"), ("off", "u4"), ("reserved", "u4")])
_NUMBERS = ("seed", "hang_cycles", "limit_cycles", "serial", "go_on")

FLAGGED = 1
_HANG = 2
_BROKEN_RULES = {
    4: "tvalid fell before the transfer was taken",
    5: "a payload changed while it waited",
    6: "m_axis_values_tkeep must be contiguous, full before the last beat, and 0 with tuser",
    7: "the packet has the wrong number of values, or comes after the last",
    8: "a region is too long, or comes after its end",
    9: "busy is low while a segment is in flight, or stays when none is",
}


class GatewareError(RuntimeError):
    """The gateware hung or broke a rule of its interface; never the fault of packed data."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Traffic:
    """Patterns by which the ports are driven; by default at full speed."""

    patterns: Mapping[str, Pattern] = dataclasses.field(default_factory=dict)  # by port
    seed: int = 1  # of the random patterns
    serial: bool = False  # a command waits for the end of the previous segment
    go_on: bool = False  # after a flagged segment, instead of stopping there
    hang_cycles: int = 20_000  # cycles without any transfer that count as a hang
    limit_cycles: int = 0  # stop and reset in this cycle; 0: never


@dataclasses.dataclass(frozen=True, kw_only=True)
class PortCount:
    """Cycles of one port."""

    moved: int = 0  # transfers: valid and ready
    stalled: int = 0  # valid, not ready
    starved: int = 0  # ready, not valid

    def __add__(self, other: PortCount) -> PortCount:
        return PortCount(
            moved=self.moved + other.moved,
            stalled=self.stalled + other.stalled,
            starved=self.starved + other.starved,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statistics:
    """Counts of batches, summed over the instances that shared the work."""

    values: int  # values of the segments that ended
    cycles: int
    ports: Mapping[str, PortCount]
    busy: int = 0  # cycles with ``busy`` set, including those after the last segment

    @property
    def beats(self) -> int:
        """Beats of values."""
        return self.ports["values"].moved

    @property
    def values_per_cycle(self) -> float:
        """Average values per cycle."""
        return self.values / max(self.cycles, 1)

    def __add__(self, other: Statistics) -> Statistics:
        names = {**self.ports, **other.ports}
        zero = PortCount()
        return Statistics(
            values=self.values + other.values,
            cycles=self.cycles + other.cycles,
            busy=self.busy + other.busy,
            ports={n: self.ports.get(n, zero) + other.ports.get(n, zero) for n in names},
        )

    @classmethod
    def none(cls) -> Statistics:
        """Return zero counts, the neutral element of the sum."""
        return cls(values=0, cycles=0, ports={"values": PortCount()})


class Harness:
    """One top inside a library, with its ports, segments and outcomes."""

    def __init__(
        self, library: Path, ports: Sequence[str], segment: np.dtype[Any], outcome: np.dtype[Any]
    ) -> None:
        self._ports, self._outcome = tuple(ports), outcome
        numbers = [(name, "u8" if place < 3 else "u4") for place, name in enumerate(_NUMBERS)]
        self._options = np.dtype([("patterns", _PATTERN, len(ports)), *numbers])
        self._counts = np.dtype(
            [("cycles", "u8"), ("busy", "u8"), ("ports", "u8", (len(ports), 3))]
        )
        self._library = _load(library)
        sizes = (ctypes.c_uint32 * 4)()
        self._library.cassandra_sizes(sizes)
        expected = [kind.itemsize for kind in (segment, outcome, self._options, self._counts)]
        if list(sizes) != expected:
            what = f"structures of bulk.cpp must be {expected} bytes, not {list(sizes)}"
            raise GatewareError(what)
        self._handle = ctypes.c_void_p(self._library.cassandra_create())
        weakref.finalize(self, _end, self._library, self._handle, library.parent)

    def write_transitions(self, path: Path) -> None:
        """Make each batch write the transitions of all nets to this file."""
        self._library.cassandra_transitions(self._handle, os.fsencode(path))

    def run(
        self, table: NDArray[Any], traffic: Traffic, names: Sequence[str] = ()
    ) -> tuple[NDArray[Any], Statistics, int | None]:
        """Return outcomes by segment, counts (without values), and the flagged segment, if any.

        Raises CassandraError if traffic names a missing port, and GatewareError with the segment
        (from ``names``) if the gateware hangs or breaks a rule of its ports.
        """
        outcomes, counts = np.zeros(len(table), self._outcome), np.zeros((), self._counts)
        options, at = self._options_of(traffic), ctypes.c_uint64()
        status = self._library.cassandra_run(
            self._handle,
            *(address(table), ctypes.c_uint64(len(table)), address(outcomes)),
            *(address(options), address(counts), ctypes.byref(at)),
        )
        statistics = self._statistics(counts)
        if status == _HANG or status in _BROKEN_RULES:
            moved = ", ".join(f"{port} {each.moved}" for port, each in statistics.ports.items())
            hang = f"nothing moves any more; transfers so far: {moved}"
            where = f"{names[at.value] if names else 'segment'} (number {at.value} of the batch)"
            what = _BROKEN_RULES.get(status, hang)
            raise GatewareError(f"{where}, cycle {statistics.cycles}: {what}")
        return outcomes, statistics, at.value if status == FLAGGED else None

    def _options_of(self, traffic: Traffic) -> NDArray[Any]:
        for name in traffic.patterns:
            if name not in self._ports:
                raise CassandraError(f"port must be one of {', '.join(self._ports)}, not {name!r}")
        options = np.zeros((), self._options)
        for place, name in enumerate(self._ports):
            pattern = traffic.patterns.get(name, ALWAYS)
            options["patterns"][place] = (pattern.kind, pattern.on, pattern.off, 0)
        for name in _NUMBERS:
            options[name] = getattr(traffic, name)
        return options

    def _statistics(self, counts: NDArray[Any]) -> Statistics:
        ports = {
            name: PortCount(moved=int(row[0]), stalled=int(row[1]), starved=int(row[2]))
            for name, row in zip(self._ports, counts["ports"], strict=True)
        }
        cycles, busy = int(counts["cycles"]), int(counts["busy"])
        return Statistics(values=0, cycles=cycles, ports=ports, busy=busy)


def _end(library: ctypes.CDLL, handle: ctypes.c_void_p, folder: Path) -> None:
    """Write the top's counts, if it counts, and delete it."""
    counts = new_counts(next(folder.glob("*.v")))
    if counts is not None:
        library.cassandra_counts(handle, os.fsencode(counts))
    library.cassandra_destroy(handle)


def address(array: NDArray[Any]) -> ctypes.c_void_p:
    """Return the address of the first element."""
    return ctypes.c_void_p(array.ctypes.data)


@functools.cache
def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.cassandra_create.restype = ctypes.c_void_p
    library.cassandra_run.restype = ctypes.c_int
    return library
