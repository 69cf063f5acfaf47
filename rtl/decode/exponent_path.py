"""Unary exponents at a fixed rate: takes windows, gives ranks, decoupled by a rank queue."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import ChoicesLayout
from cassandra_spec.rtl.common.networks import compact, popcount, prefix_sums
from cassandra_spec.rtl.decode.bitmap_expand import expanded
from cassandra_spec.rtl.zero_counter import CHUNK, ParallelZeroCounter


def places_written(lanes: int, window: int) -> int:
    """Return the places of the rank queue that each window writes, whatever its number of codes."""
    return 1 << (window * lanes - 1).bit_length()


def queue_entries(lanes: int, window: int) -> int:
    """Return the size of the rank queue, a power of two.

    The schedule leaves at most ``lanes - 1`` ranks before it takes a window, and the previous beat
    may still have its ``lanes`` ranks in the queue. A window is written to as many places as it
    could have codes, rounded up to a power of two.
    """
    most = (lanes - 1) + lanes + places_written(lanes, window)
    return 1 << (most - 1).bit_length()


class ExponentPath(wiring.Component):
    """Decode the ranks of a beat's kept values from the ``exponent`` stream (paper, V.A steps 3,
    4).

    Latency: a window taken in cycle c is counted in cycle c + 1 and its ranks can be used from
    cycle c + 2. Throughput: one window and one beat per cycle. Buffering: one window and
    ``queue_entries`` ranks. There is no back-pressure: the driver counts ranks by the demand
    schedule, which bounds the queue.

    Illegal input (a run of ``limit`` zeros) raises ``overflow``, which stays until ``clear``.

    Members
    -------
    window : In(window * lanes), window_valid : In(1)
        A window of the stream.
    choices : In(ChoicesLayout)
        The ranks that the lanes take, from a
        :class:`cassandra_spec.rtl.decode.bitmap_expand.LanePlaces` of ``queue_entries`` places.
    ranks : Out(array of lanes, range(limit))
        Rank of each lane; arbitrary in lanes that take none, and after an illegal code;
        combinational.
    clear : In(1)
        A new stream begins: empties the queue and the carry.
    overflow : Out(1)
        A run of ``limit`` zeros or more has been seen since ``clear``.
    busy : Out(1)
        A window is waiting to be counted.
    tail : Out(range(queue_entries))
        The place after the last rank in the queue.
    """

    def __init__(self, *, lanes: int, window: int, limit: int) -> None:
        self.lanes = lanes
        self.window_bits = window * lanes
        self.places = places_written(lanes, window)
        self.limit = limit
        self.entries = queue_entries(lanes, window)
        super().__init__(
            {
                "window": In(self.window_bits),
                **dict.fromkeys(("window_valid", "clear"), In(1)),
                "choices": In(ChoicesLayout(lanes, self.entries)),
                "ranks": Out(data.ArrayLayout(range(limit), lanes)),
                "overflow": Out(1),
                "busy": Out(1),
                "tail": Out(range(self.entries)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rank = range(self.limit)
        places = range(self.entries)
        queue = [Signal(rank, name=f"queue_{i}", reset_less=True) for i in places]
        self._push(m, queue, self.tail)
        lanes = expanded(m, queue, self.choices, "lane")
        m.d.comb += [self.ranks[i].eq(rank) for i, rank in enumerate(lanes)]
        with m.If(self.clear):
            m.d.sync += [self.tail.eq(0), self.overflow.eq(0), self.busy.eq(0)]
        return m

    def _push(self, m: Module, queue: list[Signal], tail: Signal) -> None:
        m.submodules.counter = counter = ParallelZeroCounter(self.window_bits, limit=self.limit)
        held = Signal(self.window_bits, reset_less=True)
        carry = Signal(range(self.limit + 1))
        m.d.sync += self.busy.eq(self.window_valid)
        with m.If(self.window_valid):
            m.d.sync += held.eq(self.window)
        m.d.comb += [counter.bits.eq(held), counter.carry_in.eq(carry)]
        starts, end = self._starts(m, held, tail)
        with m.If(self.busy):
            m.d.sync += [
                carry.eq(counter.carry_out),
                tail.eq(end),
                self.overflow.eq(self.overflow | counter.overflow),
            ]
        with m.If(self.clear):
            m.d.sync += carry.eq(0)
        self._write(m, queue, starts, counter)

    def _starts(self, m: Module, held: Signal, tail: Signal) -> tuple[list[Value], Value]:
        """Return the queue place of each code of the window, and the place after the last one.

        The codes of each chunk are counted before the window is held, so only the places within a
        chunk wait for a count.
        """
        width = len(tail)
        bases: list[Value] = [tail]
        counts = []
        for low in range(0, self.window_bits, CHUNK):
            codes = Signal(range(CHUNK + 1), name=f"codes_{low // CHUNK}", reset_less=True)
            with m.If(self.window_valid):
                m.d.sync += codes.eq(popcount(self.window[low : low + CHUNK]))
            counts.append(codes)
        bases += [(tail + count)[:width] for count in prefix_sums(m, counts, width, "chunk")]
        starts: list[Value] = []
        for chunk, base in enumerate(bases[:-1]):
            ones = list(held[CHUNK * chunk : CHUNK * (chunk + 1)])[:-1]
            before = prefix_sums(m, ones, (CHUNK - 1).bit_length(), f"ones_{chunk}")
            starts += [base, *((base + count)[:width] for count in before)]
        return starts + bases[-1:] * (self.places - len(starts)), bases[-1]

    def _write(
        self,
        m: Module,
        queue: list[Signal],
        starts: list[Value],
        counter: ParallelZeroCounter,
    ) -> None:
        """Compact the ranks of the window to their places, starting at ``starts[0]``, the tail.

        Outputs without a code go to the places behind the codes, where the queue has room.
        """
        size, tail, width = len(starts), starts[0], len(starts[0])
        rank = (self.limit - 1).bit_length()  # bits of a legal rank
        runs = [counter.runs[min(i, self.window_bits - 1)][:rank] for i in range(size)]
        low = size.bit_length() - 1  # place bits that the network sorts by
        for i, item in enumerate(compact(m, runs, starts, "ranks")):
            turn = Signal(max(width - low, 1), name=f"turn_{i}")  # which of the places i mod size
            after = tail[:low] > i if i < size - 1 else 0
            m.d.comb += turn.eq(tail[low:] + after)
            for j, entry in enumerate(queue[i::size]):
                with m.If(self.busy & (turn == j)):
                    m.d.sync += entry.eq(item)
