"""The group buffer: holds the beats of a group until their shared exponent is known."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.beat_memory import BeatMemory
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encode.vector_buffer import CHOICE_LATENCY, StoredBeat

_SUBNORMAL_FLOOR = 9  # smallest exponent of a group with a kept subnormal (docs/format.md, 4.3)
_NOT_FINITE = 255
_LARGEST = 254


def GroupBeat(config: EncoderConfig) -> data.StructLayout:  # noqa: N802 (a layout)
    """A beat with its selected lanes and the exponent of its group."""
    return data.StructLayout(
        {
            "stored": StoredBeat(config),
            "chosen": config.pace,
            "shared": 8,
            "begins": 1,  # first beat of its group
        }
    )


def larger(one: Value, other: Value) -> Value:
    """Return the larger of two numbers."""
    return Mux(one > other, one, other)


class GroupBuffer(wiring.Component):
    """Attach the group exponent to beats; ``chosen`` arrives two cycles after its beat.

    The exponent is golden's default: the largest of the selected lanes, at least 1; in exact of
    finite values only, and at least 9 with a selected subnormal. A vector's selected values are its
    largest, so if a finite lane of a beat is selected, the lane with the beat's largest finite
    exponent is, too. The maximum therefore need not wait for the selection. Unary does not use it.

    Latency: five cycles after the last beat of a group. Throughput: one beat per cycle. Buffering:
    two groups of the largest size (at least 16 beats). ``grant`` bounds the beats on their way, so
    none is lost; beats without it are illegal and overwrite others.

    Members
    -------
    issued : In(1)
        A beat will come in the next cycle; only with ``grant``.
    grant : Out(1)
    valid : In(1), beat : In(StoredBeat)
    chosen : In(lanes)
        Selected lanes of the beat ``CHOICE_LATENCY`` cycles ago.
    again : Out(array of lanes, 16)
        The values of the beat that was taken last, for the next stage; the memory holds them.
    """

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config
        self.depth = max(2 * config.group // config.pace, 16)
        size = StoredBeat(config).size
        self._values = BeatMemory(width=size, depth=self.depth, ports=2)
        self._choice = BeatMemory(width=config.pace, depth=self.depth)
        self._shared = BeatMemory(width=8, depth=self.depth)
        super().__init__(
            {
                "issued": In(1),
                "grant": Out(1),
                "valid": In(1),
                "beat": In(StoredBeat(config)),
                "chosen": In(config.pace),
                "beats": Out(stream.Signature(GroupBeat(config))),
                "again": Out(data.ArrayLayout(16, config.pace)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.values, m.submodules.choice = self._values, self._choice
        m.submodules.shared = self._shared
        self._write(m)
        self._read(m, self._exponents(m))
        return m

    def _delayed(
        self, m: Module, value: Value, name: str, cycles: int, *, reset_less: bool = False
    ) -> Signal:
        for cycle in range(cycles):
            later = Signal(value.shape(), name=f"{name}_{cycle}", reset_less=reset_less)
            m.d.sync += later.eq(value)
            value = later
        assert isinstance(value, Signal)
        return value

    def _write(self, m: Module) -> None:
        """Write the beat at once, the selected lanes when they are known."""
        place, chosen_place = Signal(range(self.depth)), Signal(range(self.depth))
        late = self._delayed(m, self.valid, "choice_valid", CHOICE_LATENCY)
        m.d.comb += [
            self._values.write_address.eq(place),
            self._values.write_data.eq(self.beat),
            self._values.write_enable.eq(self.valid),
            self._choice.write_address.eq(chosen_place),
            self._choice.write_data.eq(self.chosen),
            self._choice.write_enable.eq(late),
        ]
        m.d.sync += [place.eq(place + self.valid), chosen_place.eq(chosen_place + late)]

    def _exponents(self, m: Module) -> Signal:
        """Compute the exponent of each group and store it at the place of the group's first beat.

        Returns the position up to which groups have their exponent stored.
        """
        lanes = self.config.pace
        exact = self.config.selects(self.beat.scheme, "exact")
        values = [self.beat.values[lane] for lane in range(lanes)]
        counted, subnormal, keys = Signal(lanes), Signal(lanes), []
        for lane, value in enumerate(values):
            exponent = value[7:15]
            key = Signal(8, name=f"key_{lane}")
            infinite = exponent == _NOT_FINITE
            present = self.beat.present[lane]
            m.d.comb += [
                counted[lane].eq(~(infinite & exact)),
                subnormal[lane].eq((exponent == 0) & (value[:7] != 0) & exact),
                key.eq(Mux(present & ~(infinite & exact), exponent, 0)),
            ]
            keys.append(key)
        largest = self._largest(m, keys)
        late_counted = self._delayed(m, counted, "counted", CHOICE_LATENCY, reset_less=True)
        late_subnormal = self._delayed(m, subnormal, "subnormal", CHOICE_LATENCY, reset_less=True)
        candidate, floored = Signal(8, reset_less=True), Signal(reset_less=True)
        m.d.sync += [
            candidate.eq(Mux((self.chosen & late_counted).any(), largest, 0)),
            floored.eq((self.chosen & late_subnormal).any()),
        ]
        valid = self._delayed(m, self.valid, "late_valid", CHOICE_LATENCY + 1)
        ends = self._delayed(m, self.beat.ends, "late_ends", CHOICE_LATENCY + 1)
        return self._accumulate(m, candidate, floored, valid, ends)

    def _largest(self, m: Module, keys: Sequence[Value]) -> Signal:
        """Return the largest key, ``CHOICE_LATENCY`` cycles later: half of the tree per cycle."""
        nodes = list(keys)
        while len(nodes) > 4:
            nodes = [larger(a, b) for a, b in zip(nodes[::2], nodes[1::2], strict=True)]
        middle = [Signal(8, name=f"middle_{i}", reset_less=True) for i in range(len(nodes))]
        m.d.sync += [signal.eq(node) for signal, node in zip(middle, nodes, strict=True)]
        largest = Signal(8, reset_less=True)
        first, second = larger(middle[0], middle[1]), larger(middle[2], middle[3])
        m.d.sync += largest.eq(larger(first, second))
        return largest

    def _accumulate(
        self, m: Module, candidate: Signal, floored: Signal, valid: Signal, ends: Signal
    ) -> Signal:
        """Accumulate over the beats of a group; the end of the group makes it readable."""
        place, first = Signal(range(2 * self.depth)), Signal(range(self.depth))
        most, low = Signal(8), Signal()
        joined, any_low = Signal(8), Signal()
        committed = Signal(range(2 * self.depth))
        m.d.comb += [joined.eq(larger(most, candidate)), any_low.eq(low | floored)]
        with m.If(valid):
            m.d.sync += place.eq(place + 1)
            with m.If(ends):
                m.d.sync += [most.eq(0), low.eq(0), first.eq(place + 1)]
                m.d.sync += committed.eq(place + 1)
            with m.Else():
                m.d.sync += [most.eq(joined), low.eq(any_low)]
        least = Mux(any_low, _SUBNORMAL_FLOOR, 1)
        saturated = Mux(joined == _NOT_FINITE, _LARGEST, joined)  # mx: as if it were finite
        m.d.comb += [
            self._shared.write_address.eq(first),
            self._shared.write_data.eq(larger(saturated, least)),
            self._shared.write_enable.eq(valid & ends),
        ]
        return committed

    def _read(self, m: Module, committed: Signal) -> None:
        """Send the beats of complete groups; the memories hold the one that waits."""
        place, held = Signal(range(2 * self.depth)), Signal(range(self.depth + 1))
        move, ended, shared = Signal(), Signal(init=1), Signal(8, reset_less=True)
        taken, shown = Signal(), Signal(range(self.depth))
        m.d.comb += [
            move.eq((place != committed) & (~self.beats.valid | self.beats.ready)),
            self.grant.eq(held != self.depth),
            taken.eq(self.beats.valid & self.beats.ready),
        ]
        m.d.sync += [place.eq(place + move), held.eq(held + self.issued - taken)]
        with m.If(move):
            m.d.sync += shown.eq(place)
        with m.If(move | self.beats.ready):
            m.d.sync += self.beats.valid.eq(move)
        for memory in (self._values, self._choice, self._shared):
            m.d.comb += [
                memory.read_address[0].eq(place),
                memory.read_enable[0].eq(move),
            ]
        again = data.View(StoredBeat(self.config), self._values.read_data[1])
        m.d.comb += [
            self._values.read_address[1].eq(shown),
            self._values.read_enable[1].eq(taken),
            self.again.eq(again.values),
        ]
        out = self.beats.payload
        m.d.comb += [
            out.stored.eq(self._values.read_data[0]),
            out.chosen.eq(self._choice.read_data[0]),
            out.begins.eq(ended),
            out.shared.eq(Mux(ended, self._shared.read_data[0], shared)),
        ]
        with m.If(taken):
            m.d.sync += [ended.eq(out.stored.ends), shared.eq(out.shared)]
