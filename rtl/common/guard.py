"""Parts that keep bursts inside their regions after a soft error (docs/hardware/dma.md).

A soft error flips one flip-flop or memory bit. Therefore regions and progress counts have a parity
bit, which reveals a single flip; queues keep their pointers twice; and the state that drives the
address channel is corrected, because a valid address may neither change nor be withdrawn.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out


def check_of(*values: ValueLike) -> Value:
    """Return the check bit of some values: with it, the number of ones is odd."""
    return ~Cat(values).xor()


def _inverse(width: int) -> Signal:
    """Return a register for an inverted copy that synthesis must not merge with the original."""
    return Signal(width, init=(1 << width) - 1, attrs={"keep": 1})


class GuardedQueue(wiring.Component):
    """A queue that closes, until reset, when a bit of its pointers has flipped.

    Each pointer is stored a second time, inverted. The queue therefore never hands out an entry
    twice, nor an entry that was not written. The entries have no check of their own.

    Latency: one cycle. Throughput: one entry per cycle. Buffering: ``depth`` entries, a power of
    two. Entries that are written while ``w_rdy`` is 0 are lost.

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
    """Correct a single wrong bit in a word, its inverse and its check. Combinational.

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
    """A register that corrects itself: a flipped bit never shows outside.

    Latency: one cycle. The value is stored twice, once inverted, with a check, and is corrected and
    written back in every cycle. It is zero after reset.

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
