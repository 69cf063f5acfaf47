"""The parallel zero counter (paper, Figure 9 and Algorithm 1 as corrected in docs/format.md)."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from golden.errors import CassandraError
from rtl.networks import popcount

__all__ = ["ParallelZeroCounter", "ZeroCounter"]

CHUNK = 8
"""Bits in a chunk (paper, V.A)."""


def _check(field: str, value: int, low: int) -> None:
    if not isinstance(value, int) or value < low:
        raise CassandraError(f"{field} must be an integer of at least {low}, not {value!r}")


def _leading_zeros(m: Module, bits: Signal, width: int) -> list[Signal]:
    """For each position, the zeros between it and the one before it (or the start)."""
    runs = []
    for i in range(width):
        run = Signal(range(max(i, 1) + 1), name=f"run_{i}")
        for j in range(i):
            # The latest one before i that is set wins: later statements override.
            with m.If(bits[j]):
                m.d.comb += run.eq(i - 1 - j)
            if j == 0:
                with m.Else():
                    m.d.comb += run.eq(i)
        runs.append(run)
    return runs


class ZeroCounter(wiring.Component):
    """Zeros before each one of a chunk of a unary-coded stream.

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
        ``limit``: the rank of the code that ends at bit ``i``, if that is a one.
    ones : Out(range(width + 1))
        Codes that end in this chunk.
    carry_out : Out(range(limit + 1))
        Zeros since the last one at the end of this chunk, saturated at ``limit``.
    overflow : Out(1)
        A run has reached ``limit`` zeros in or before this chunk; ranks that it touches are
        ``limit``, which is not a legal rank.
    """

    def __init__(self, width: int = CHUNK, *, limit: int = 16) -> None:
        _check("width", width, 1)
        _check("limit", limit, width)
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

    def elaborate(self, platform: object) -> Module:
        m = Module()
        local = _leading_zeros(m, self.bits, self.width)
        seen = Const(0, 1)
        for i, run in enumerate(local):
            joined = Signal(range(self.limit + self.width), name=f"joined_{i}")
            m.d.comb += joined.eq(self.carry_in + i)
            with m.If(seen):
                m.d.comb += self.runs[i].eq(run)
            with m.Else():
                m.d.comb += self.runs[i].eq(Mux(joined > self.limit, self.limit, joined))
            seen = Cat(self.bits[: i + 1]).any()
        self._carry(m)
        return m

    def _carry(self, m: Module) -> None:
        """The chunk's tail replaces the carry if it holds a one, else all its zeros join it."""
        joined = Signal(range(self.limit + self.width + 1))
        lead = Signal(range(self.width + 1))
        m.d.comb += [
            self.ones.eq(popcount(self.bits)),
            joined.eq(self.carry_in + self.width),
            lead.eq(self.width),
        ]
        m.d.comb += self.carry_out.eq(Mux(joined > self.limit, self.limit, joined))
        for i in range(self.width):
            with m.If(self.bits[i]):
                m.d.comb += self.carry_out.eq(self.width - 1 - i)
        for i in reversed(range(self.width)):
            with m.If(self.bits[i]):
                m.d.comb += lead.eq(i)
        m.d.comb += self.overflow.eq(self.carry_in + lead >= self.limit)


class ParallelZeroCounter(wiring.Component):
    """Ranks of all codes that end in a window: chunk counters with a carry from chunk to chunk.

    Combinational, no buffering. Members as :class:`ZeroCounter`, for ``width`` bits in chunks of
    eight (the last may be shorter); ``overflow`` is that of any chunk.
    """

    def __init__(self, width: int = 32, *, limit: int = 16) -> None:
        _check("width", width, 1)
        _check("limit", limit, min(width, CHUNK))
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

    def elaborate(self, platform: object) -> Module:
        m = Module()
        carry, overflow = self.carry_in, Const(0, 1)
        for low in range(0, self.width, CHUNK):
            size = min(CHUNK, self.width - low)
            m.submodules[f"chunk_{low}"] = chunk = ZeroCounter(size, limit=self.limit)
            m.d.comb += [
                chunk.bits.eq(self.bits[low : low + size]),
                chunk.carry_in.eq(carry),
            ]
            m.d.comb += [self.runs[low + i].eq(chunk.runs[i]) for i in range(size)]
            carry, overflow = chunk.carry_out, overflow | chunk.overflow
        m.d.comb += [
            self.ones.eq(popcount(self.bits)),
            self.carry_out.eq(carry),
            self.overflow.eq(overflow),
        ]
        return m
