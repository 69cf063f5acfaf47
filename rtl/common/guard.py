"""What keeps bursts inside their regions although a bit of state has changed (integration.md).

A flip-flop or a bit of a memory may change by itself (a soft error). Where a region is and how
far it has been accessed is therefore kept with one more bit, by which a single wrong bit shows;
queues keep their pointers twice; and what drives the address channel is corrected, because it may
neither change nor go away before it is taken.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out


def check_of(*values: ValueLike) -> Value:
    """The bit that goes with values: the number of ones, its own among them, is odd."""
    return ~Cat(values).xor()


def _inverse(width: int) -> Signal:
    """A register that is a second one of something, inverted; synthesis must not merge the two."""
    return Signal(width, init=(1 << width) - 1, attrs={"keep": 1})


class GuardedQueue(wiring.Component):
    """A queue that closes, until reset, when a bit of its pointers has changed.

    Each pointer is kept a second time, inverted. So an entry is never handed out twice, nor one
    that was not put in. The entries have no check of their own.

    Latency: one cycle. Throughput: an entry in each cycle. Buffering: ``depth`` entries, a power
    of two. Entries that are written while ``w_rdy`` is 0 are lost.

    Members
    -------
    w_data : In(width), w_en : In(1), w_rdy : Out(1)
    r_data : Out(width), r_en : In(1), r_rdy : Out(1)
    level : Out(range(depth + 1))
    wrong : Out(1)
        The pointers do not agree.
    """

    def __init__(self, *, width: int, depth: int) -> None:
        self.depth = depth
        super().__init__(
            {
                "w_data": In(width),
                "w_en": In(1),
                "w_rdy": Out(1),
                "r_data": Out(width),
                "r_en": In(1),
                "r_rdy": Out(1),
                "level": Out(range(depth + 1)),
                "wrong": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape = range(2 * self.depth)
        width = Shape.cast(shape).width
        put, taken = Signal(shape), Signal(shape)
        not_put, not_taken = (_inverse(width) for _ in range(2))
        m.submodules.storage = storage = Memory(shape=len(self.w_data), depth=self.depth, init=[])
        write, read = storage.write_port(), storage.read_port(domain="comb")
        level = (put - taken)[:width]
        m.d.comb += [
            self.wrong.eq((put != ~not_put) | (taken != ~not_taken)),
            self.level.eq(level),
            self.w_rdy.eq(~self.wrong & (level != self.depth)),
            self.r_rdy.eq(~self.wrong & (level != 0)),
            write.addr.eq(put),
            write.data.eq(self.w_data),
            write.en.eq(self.w_en & self.w_rdy),
            read.addr.eq(taken),
            self.r_data.eq(read.data),
        ]
        with m.If(write.en):
            m.d.sync += [put.eq(put + 1), not_put.eq(~(put + 1))]
        with m.If(self.r_en & self.r_rdy):
            m.d.sync += [taken.eq(taken + 1), not_taken.eq(~(taken + 1))]
        return m


class Corrector(wiring.Component):
    """The value of a word, its inverse and its check, of which one bit may be wrong. No latency.

    Members
    -------
    word, inverse : In(width), check : In(1)
    value : Out(width)
    """

    def __init__(self, width: int) -> None:
        super().__init__(
            {"word": In(width), "inverse": In(width), "check": In(1), "value": Out(width)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        right = check_of(self.word) == self.check
        m.d.comb += self.value.eq(Mux(right, self.word, ~self.inverse))
        return m


class GuardedRegister(wiring.Component):
    """A register that corrects itself: a bit that changes is wrong nowhere outside.

    Latency: one cycle. The value is kept twice, once inverted, and with a check; it is written
    back, corrected, in every cycle. Zero after reset.

    Members
    -------
    next : In(width), load : In(1)
    value : Out(width)
    """

    def __init__(self, width: int) -> None:
        self._width = width
        super().__init__({"next": In(width), "load": In(1), "value": Out(width)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = self._width
        m.submodules.corrector = corrector = Corrector(width)
        word, check = Signal(width), Signal(init=1)
        inverse = _inverse(width)
        after = Signal(width)
        m.d.comb += [
            corrector.word.eq(word),
            corrector.inverse.eq(inverse),
            corrector.check.eq(check),
            self.value.eq(corrector.value),
            after.eq(Mux(self.load, self.next, self.value)),
        ]
        m.d.sync += [word.eq(after), inverse.eq(~after), check.eq(check_of(after))]
        return m
