"""Pruned values with coded exponents: the stream of ranks, and the values' bytes."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.common.networks import expand, popcount, prefix_sums
from cassandra_spec.rtl.common.wires import drive
from cassandra_spec.rtl.decode.bitmap_expand import LanePlaces
from cassandra_spec.rtl.decode.codebook import Codebook
from cassandra_spec.rtl.decode.exponent_path import ExponentPath

_BYTE = 8
_VALUE = 16
_PLACE = 7
"""Lowest bit of the exponent of a BF16 value; a rank waits there for its exponent."""


class PrunedExponents(wiring.Component):
    """Decode the ranks of a beat's pruned values from the ``pruned_exponent`` stream.

    Requests the windows that the schedule takes (docs/format.md, section 6) and hands out the ranks
    of the beat that waits for its pruned values. :class:`PrunedBytes` looks the exponents up later.

    Latency: the ranks of a window that is taken in cycle c can be used from cycle c + 2; until then
    ``waiting`` is set. Throughput: one window in two cycles, one beat per cycle. Buffering: that of
    :class:`cassandra_spec.rtl.decode.exponent_path.ExponentPath`.

    Illegal input (a code that is too long, a rank past the escape) raises ``bad_code``, which stays
    until ``clear``, or ``bad_rank``, for ranks that are requested.

    Members
    -------
    entries : In(range(codebook))
        Entries of the codebook of pruned values, which is also the escape's rank.
    lane_mask : In(lanes)
        Lanes with a pruned value; zero if there is no beat.
    more : In(1)
        Another beat follows.
    starved : Out(1)
        The beat needs another window before it can leave.
    prefetch : Out(1)
        A window must be taken when the beat leaves.
    waiting : Out(1)
        A window is being counted: ``starved``, ``prefetch`` and the ranks are not valid yet.
    window : In(window * lanes), take : In(1)
        A window of the stream.
    ranks : Out(array of lanes, 7 + 8 bits)
        The rank of each lane of ``lane_mask``, in the place of its exponent; 0 in the others.
    escapes : Out(lanes)
        Lanes whose exponent is stored beside the value.
    advance : In(1), clear : In(1)
        ``advance``: the beat leaves. ``clear``: a new segment begins.
    """

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        lanes = config.lanes
        super().__init__(
            {
                "entries": In(range(config.codebook)),
                "lane_mask": In(lanes),
                **dict.fromkeys(("more", "take", "advance", "clear"), In(1)),
                **dict.fromkeys(("starved", "prefetch", "waiting", "bad_code", "bad_rank"), Out(1)),
                "window": In(config.window * lanes),
                "ranks": Out(data.ArrayLayout(_VALUE, lanes)),
                "escapes": Out(lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.path = path = ExponentPath(
            lanes=config.lanes, window=config.window, limit=config.codebook
        )
        m.submodules.places = places = LanePlaces(lanes=config.lanes, places=path.entries)
        drive(m, places, self, "lane_mask", "advance", "clear")
        drive(m, path, self, "window", "clear")
        level = Signal.like(path.tail)  # ranks in the queue, including those of the beat
        m.d.comb += [
            path.choices.eq(places.choices),
            level.eq(path.tail - places.head),
            path.window_valid.eq(self.take),
            self.waiting.eq(path.busy),
            self.bad_code.eq(path.overflow),
        ]
        self._demand(m, level)
        self._ranks(m, path)
        return m

    def _demand(self, m: Module, level: Value) -> None:
        needed = popcount(self.lane_mask)
        m.d.comb += [
            self.starved.eq(level < needed),
            self.prefetch.eq(self.more & (level < needed + self.config.lanes)),
        ]

    def _ranks(self, m: Module, path: ExponentPath) -> None:
        bad = Signal(self.config.lanes)
        m.d.comb += self.bad_rank.eq(bad.any())
        for lane in range(self.config.lanes):
            used, rank = self.lane_mask[lane], path.ranks[lane]
            m.d.comb += [
                self.ranks[lane].eq(Mux(used, rank << _PLACE, 0)),
                self.escapes[lane].eq(used & (rank == self.entries)),
                bad[lane].eq(used & (rank > self.entries)),
            ]


class PrunedBytes(wiring.Component):
    """Bring pruned values and escapes to their lanes, stored whole or with coded exponents.

    Combinational, except for the rest of a row. A value takes one byte or two of the ``pruned``
    stream: sign and mantissa, and the exponent of an escape; or the 16 bits of the value. Latency
    and throughput: one beat per cycle. Buffering: less than a row of bytes. Every input is legal.

    Members
    -------
    coded : In(1)
        Exponents are coded: a lane that takes one byte has a rank in place of its exponent.
    beat_values : In(array of lanes, 16), raw : In(lanes), long : In(lanes)
        The beat. ``raw`` lanes take their value from ``rows``, two bytes if ``long``.
    load : In(stream of {exponent: 8, last: 1, empty: 1}), load_enable : In(1), idle : Out(1)
        The codebook of pruned values, see :class:`cassandra_spec.rtl.decode.codebook.Codebook`.
    entries : Out(range(codebook))
        Entries of the codebook.
    enable : In(1), clear : In(1)
        ``enable``: the beat leaves. ``clear``: a new segment begins.
    wanted : Out(range(17))
        Rows that the beat needs.
    values : Out(array of lanes, 16)
        Values of the ``raw`` lanes; arbitrary in others.
    """

    def __init__(self, config: DecoderConfig) -> None:
        self.config = config
        lanes = config.lanes
        self.codebook = Codebook(lanes=lanes, size=config.codebook - 1, may_be_empty=True)
        super().__init__(
            {
                **dict.fromkeys(("coded", "load_enable", "enable", "clear"), In(1)),
                "rows": In(data.ArrayLayout(lanes, _VALUE)),
                "beat_values": In(data.ArrayLayout(_VALUE, lanes)),
                "raw": In(lanes),
                "long": In(lanes),
                "load": In(stream.Signature(self.codebook.load_layout)),
                "idle": Out(1),
                "entries": Out(range(config.codebook)),
                "wanted": Out(range(_VALUE + 1)),
                "values": Out(data.ArrayLayout(_VALUE, lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.codebook = codebook = self.codebook
        wiring.connect(m, wiring.flipped(self.load), codebook.load)
        m.d.comb += [
            codebook.enable.eq(self.load_enable),
            self.idle.eq(codebook.idle),
            self.entries.eq(codebook.count),
        ]
        found = self._bytes(m)
        for lane in range(self.config.lanes):
            low, high = found[2 * lane], found[2 * lane + 1]
            m.d.comb += codebook.ranks[lane].eq(self.beat_values[lane][_PLACE:])
            exponent = Mux(self.long[lane], high, codebook.exponents[lane])
            small = Cat(low[:_PLACE], exponent, low[_PLACE])
            m.d.comb += self.values[lane].eq(Mux(self.coded, small, Cat(low, high)))
        return m

    def _bytes(self, m: Module) -> list[Value]:
        """Return two bytes for each lane, which takes none, the first or both.

        Bytes are numbered so that the first byte of the rows is 0. The ``level`` bytes left from
        the previous row have the numbers before it and keep their place in the row: they replace
        the end of the last row, which cannot be needed in the same cycle.
        """
        lanes = self.config.lanes
        per_row = lanes // _BYTE
        store = [byte for row in range(_VALUE) for byte in _cut(self.rows[row])]
        flags = Cat(Cat(self.raw[i], self.long[i]) for i in range(lanes))
        used = popcount(flags)
        level = self._keep(m, store, used)
        m.d.comb += self.wanted.eq((used + (per_row - 1) - level) >> (per_row - 1).bit_length())
        bits = (len(store) - 1).bit_length()
        first = Signal(bits)
        m.d.comb += first.eq(-level)
        terms = [first + flags[0], *(flags[i] for i in range(1, len(store)))]
        counts = prefix_sums(m, terms, bits, "byte")
        return expand(m, store, [first, *counts[:-1]], "byte")

    def _keep(self, m: Module, store: list[Value], used: Value) -> Value:
        """Hold the last row taken; return how many of its bytes are unused.

        These bytes, its last ones, replace the same bytes of the last row in ``store``.
        """
        per_row = self.config.lanes // _BYTE
        if per_row == 1:
            return Const(0, 1)
        level = Signal(range(per_row))
        held = Signal(self.config.lanes, reset_less=True)
        for byte in range(1, per_row):
            place = len(store) - per_row + byte
            store[place] = Mux(level >= per_row - byte, _cut(held)[byte], store[place])
        last = Signal(self.config.lanes)
        for row in range(_VALUE):
            with m.If(self.wanted == row + 1):
                m.d.comb += last.eq(self.rows[row])
        with m.If(self.enable):
            m.d.sync += level.eq(level - used)
            with m.If(self.wanted != 0):
                m.d.sync += held.eq(last)
        with m.If(self.clear):
            m.d.sync += level.eq(0)
        return level


def _cut(row: Value) -> list[Value]:
    """Return the bytes of a row."""
    return [row[place : place + _BYTE] for place in range(0, len(row), _BYTE)]
