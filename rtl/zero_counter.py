"""The parallel zero counter (paper, Figure 9; Algorithm 1 corrected as in docs/paper-notes.md)."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.rtl.common.networks import popcount

CHUNK = 8
"""Bits in a chunk (paper, V.A)."""


def _check(field: str, value: int, low: int) -> None:
    if not isinstance(value, int) or value < low:
        raise CassandraError(f"{field} must be an integer of at least {low}, not {value!r}")


def _leading_zeros(m: Module, bits: Signal, width: int) -> list[Signal]:
    """Count the zeros directly before each position; 0 if the previous bit is a one."""
    runs = []
    for i in range(width):
        run = Signal(range(max(i, 2)), name=f"run_{i}")
        for j in range(i):
            # Later statements override earlier ones, so the nearest one before i wins.
            with m.If(bits[j]):
                m.d.comb += run.eq(i - 1 - j)
        runs.append(run)
    return runs


class _Counter(wiring.Component):
    """Ports of both counters. A chunk must not be longer than a code."""

    def __init__(self, width: int, limit: int, *, chunk: int) -> None:
        _check("width", width, 1)
        _check("limit", limit, min(width, chunk))
        self.width = width
        self.limit = limit
        super().__init__(
            {
                "bits": In(width),
                "carry_in": In(range(limit + 1)),
                "runs": Out(data.ArrayLayout(range(limit + 1), width)),
                "ones": Out(range(width + 1)),
                "carry_out": Out(range(limit + 1)),
                "overflow": Out(1),
            }
        )


class ZeroCounter(_Counter):
    """Count the zeros before each one of a chunk of a unary-coded stream.

    Combinational, no buffering.

    Parameters
    ----------
    width
        Bits in the chunk, at least 1.
    limit
        Length of the longest legal code, at least ``width``: a run of ``limit`` zeros is illegal.

    Members
    -------
    bits : In(width)
        The chunk, first bit of the stream in bit 0.
    carry_in : In(range(limit + 1))
        Zeros since the last one before this chunk, saturated at ``limit``.
    runs : Out(array of width, range(limit + 1))
        ``runs[i]`` is the number of zeros between bit ``i`` and the one before it, saturated at
        ``limit``: the rank of the code that ends at bit ``i``. Arbitrary if bit ``i`` is not a one.
    ones : Out(range(width + 1))
        Codes that end in this chunk.
    carry_out : Out(range(limit + 1))
        Zeros since the last one at the end of this chunk, saturated at ``limit``.
    overflow : Out(1)
        A run has reached ``limit`` zeros in or before this chunk; ranks that it touches are
        ``limit``, which is not a legal rank.
    """

    def __init__(self, width: int = CHUNK, *, limit: int = 16) -> None:
        super().__init__(width, limit, chunk=width)

    def elaborate(self, platform: object) -> Module:
        """Add the carry to the zeros before the first one, or to all if the chunk has no one."""
        m = Module()
        lead = Signal(range(self.width + 1))
        joined, first = Signal(range(self.limit + self.width + 1)), Signal(range(self.limit + 1))
        m.d.comb += [
            lead.eq(self.width),
            joined.eq(self.carry_in + lead),
            first.eq(Mux(joined > self.limit, self.limit, joined)),
            self.ones.eq(popcount(self.bits)),
            self.overflow.eq(joined >= self.limit),
            self.carry_out.eq(first),
        ]
        for i in reversed(range(self.width)):
            with m.If(self.bits[i]):
                m.d.comb += lead.eq(i)
        for i in range(self.width):
            with m.If(self.bits[i]):
                m.d.comb += self.carry_out.eq(self.width - 1 - i)
        for i, run in enumerate(_leading_zeros(m, self.bits, self.width)):
            seen = self.bits[:i].any()
            m.d.comb += self.runs[i].eq(Mux(seen, run, first))
        return m


class ParallelZeroCounter(_Counter):
    """Find the ranks of all codes that end in a window, with a carry from chunk to chunk.

    Combinational, no buffering. The members are those of :class:`ZeroCounter`, for ``width`` bits
    in chunks of eight (the last may be shorter). ``overflow`` is set if it is set in any chunk.
    """

    def __init__(self, width: int = 32, *, limit: int = 16) -> None:
        super().__init__(width, limit, chunk=CHUNK)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        overflow: Value = Const(0, 1)
        for low in range(0, self.width, CHUNK):
            size = min(CHUNK, self.width - low)
            m.submodules[f"chunk_{low}"] = chunk = ZeroCounter(size, limit=self.limit)
            carry = self._carry(m, low)
            m.d.comb += [
                chunk.bits.eq(self.bits[low : low + size]),
                chunk.carry_in.eq(carry),
            ]
            m.d.comb += [self.runs[low + i].eq(chunk.runs[i]) for i in range(size)]
            overflow = overflow | chunk.overflow
        m.d.comb += [
            self.ones.eq(popcount(self.bits)),
            self.carry_out.eq(self._carry(m, self.width)),
            self.overflow.eq(overflow),
        ]
        return m

    def _carry(self, m: Module, end: int) -> Signal:
        """Count the zeros before bit ``end``, back to the last chunk with a one."""
        carry = Signal(range(self.limit + 1), name=f"carry_{end}")
        m.d.comb += carry.eq(self._saturated(self.carry_in + end))
        for low in range(0, end, CHUNK):
            bits = self.bits[low : min(low + CHUNK, end)]
            after = end - low - len(bits)  # bits of later chunks
            with m.If(bits.any()):
                for i in range(len(bits)):
                    with m.If(bits[i]):
                        zeros = len(bits) - 1 - i + after
                        m.d.comb += carry.eq(min(zeros, self.limit))
        return carry

    def _saturated(self, count: Value) -> Value:
        return Mux(count > self.limit, self.limit, count)
