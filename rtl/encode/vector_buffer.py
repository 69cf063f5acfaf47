"""Vectors of a segment: stored as they come, sent with the lanes that a draft sees."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Shape, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.beat_memory import BeatMemory
from cassandra_spec.rtl.common.networks import popcount
from cassandra_spec.rtl.encode.topk import (
    MAGNITUDE,
    NARROW,
    RadixSelect,
    SelectShape,
    ThresholdChoice,
)
from cassandra_spec.rtl.encode.types import (
    COUNT_WIDTH,
    EncodeCommandLayout,
    EncoderConfig,
    TensorWord,
)

CHOICE_LATENCY = 2
"""Cycles from a beat to its selected lanes."""

_SLOTS = 4  # vectors: two are searched, one comes in, one goes out


def StoredBeat(config: EncoderConfig) -> data.StructLayout:  # noqa: N802 (a layout)
    """A beat of values, and the segment's settings that later stages need."""
    return data.StructLayout(
        {
            "values": data.ArrayLayout(16, config.pace),
            "present": config.pace,
            "ends": 1,  # last beat of its group
            "last": 1,  # last beat of its segment
            "abort": 1,  # stands for a segment whose command is refused
            "short": 1,
            "long": 1,
            "scheme": 2,
            "truncated": 3,
            "saturate": 1,
            "mask": 1,
        }
    )


def select_shape(config: EncoderConfig) -> SelectShape:
    """Return the selection's sizes; an encoder that takes pieces counts fewer digits."""
    beats = max(config.vector // config.pace, 2)
    digits = SelectShape.digits if config.pace == config.lanes else NARROW
    return SelectShape(lanes=config.pace, beats=beats, slots=_SLOTS, digits=digits)


class _State(enum.Enum):
    IDLE = 0
    LOAD = 1
    ABORT = 2  # send a beat with ``abort``, then DRAIN
    DRAIN = 3


def _input_ports(config: EncoderConfig) -> dict[str, wiring.Member]:
    """Return the ports for commands and values; a command may be taken while ``enable`` is set."""
    return {
        "command": In(stream.Signature(EncodeCommandLayout)),
        "values": In(stream.Signature(TensorWord(config.pace))),
        "enable": In(1),
    }


class VectorLoader(wiring.Component):
    """Turn commands and words into beats of vectors in their slots.

    Latency: a word is written in the cycle in which it is taken; its vector is announced two cycles
    after its last word. Throughput: one word per cycle while a slot is free. Buffering: the
    descriptions of the announced vectors.

    A packet that is too short ends its segment there, one that is too long is drained. A command
    that is refused becomes one beat with ``abort``, and its packet is drained.

    Members
    -------
    command : In(stream of EncodeCommandLayout), values : In(stream of TensorWord)
    enable : In(1)
        A command may be taken.
    slot, place, beat, write : Out
        Address and data of a write.
    free : In(1)
        The oldest slot has become free.
    idle : Out(1)
        No segment is being loaded.
    """

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config
        self.shape = select_shape(config)
        super().__init__(
            {
                **_input_ports(config),
                "slot": Out(range(_SLOTS)),
                "place": Out(self.shape.beat),
                "beat": Out(StoredBeat(config)),
                "write": Out(1),
                "vectors": Out(stream.Signature(self.shape.vector)),
                "free": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        segment, used = _Segment(), Signal(range(_SLOTS + 1))
        room = Signal()  # a slot is free for a new vector
        m.d.comb += [room.eq(used != _SLOTS), self.idle.eq(segment.state == _State.IDLE)]
        self._sequence(m, segment, room)
        self._fill(m, segment)
        self._announce(m, segment, self._place(m, segment))
        opened = self.write & (self.place == 0)
        m.d.sync += used.eq(used + opened - self.free)
        return m

    def _legal(self, command: Value) -> Value:
        """Return 1 if the encoder can execute the command."""
        config = self.config
        lanes_log2 = (config.lanes - 1).bit_length()
        group_log2 = (config.group - 1).bit_length()
        schemes = Cat(config.selects(command.scheme, name) for name in config.schemes)
        known = schemes.any() if len(config.schemes) > 1 else self._only(command)
        whole = command.vector[:lanes_log2].all()
        everything = command.keep > command.vector
        return (
            known
            & (command.log2_group >= lanes_log2)
            & (command.log2_group <= group_log2)
            & whole
            & (command.vector < config.vector)
            & (command.count < config.segment)
            & (command.mask | everything)
        )

    def _only(self, command: Value) -> Value:
        """Return 1 if the command asks for the one scheme that is built in."""
        names = ("unary", "mx", "exact")
        return command.scheme == names.index(self.config.schemes[0])

    def _sequence(self, m: Module, segment: _Segment, room: Signal) -> None:
        """Run the state machine from command to command."""
        word, word_taken = self.values.payload, Signal()
        lanes = self.config.pace
        with m.Switch(segment.state):
            with m.Case(_State.IDLE):
                m.d.comb += self.command.ready.eq(self.enable)
                with m.If(self.command.valid & self.enable):
                    payload = self.command.payload
                    m.d.sync += [
                        segment.held.eq(payload),
                        segment.remaining.eq(payload.count + 1),
                        segment.state.eq(Mux(self._legal(payload), _State.LOAD, _State.ABORT)),
                    ]
            with m.Case(_State.LOAD):
                m.d.comb += [
                    self.values.ready.eq(room | (self.place != 0)),
                    word_taken.eq(self.values.valid & self.values.ready),
                    self.write.eq(word_taken),
                ]
                with m.If(word_taken):
                    m.d.sync += segment.remaining.eq(segment.remaining - lanes)
                with m.If(word_taken & segment.ends):
                    m.d.sync += segment.state.eq(Mux(word.last, _State.IDLE, _State.DRAIN))
            with m.Case(_State.ABORT):
                m.d.comb += self.write.eq(room)
                with m.If(room):
                    m.d.sync += segment.state.eq(_State.DRAIN)
            with m.Case(_State.DRAIN):
                m.d.comb += self.values.ready.eq(1)
                with m.If(self.values.valid & word.last):
                    m.d.sync += segment.state.eq(_State.IDLE)

    def _fill(self, m: Module, segment: _Segment) -> None:
        """Build the beat: its present lanes, and the ends that it marks."""
        word, lanes = self.values.payload, self.config.pace
        abort = segment.state == _State.ABORT
        wanted, given = Signal(lanes), Signal(lanes)
        final = Signal()  # last beat of the segment, by the command
        short = Signal()
        m.d.comb += final.eq(segment.remaining <= lanes)
        for lane in range(lanes):
            m.d.comb += wanted[lane].eq(segment.remaining > lane)
            m.d.comb += given[lane].eq(~word.last | word.keep[1 : lane + 1].all())
        m.d.comb += [
            short.eq(word.last & (~final | (wanted & ~given).any())),
            segment.ends.eq(word.last | final | abort),
            self.beat.values.eq(word.values),
            self.beat.present.eq(Mux(abort, 0, wanted & given)),
            self.beat.last.eq(segment.ends),
            self.beat.abort.eq(abort),
            self.beat.short.eq(short & ~abort),
            self.beat.long.eq(final & ~short & ~abort & (~word.last | (given & ~wanted).any())),
            self.beat.scheme.eq(segment.held.scheme),
            self.beat.truncated.eq(segment.held.truncated),
            self.beat.saturate.eq(segment.held.saturate),
            self.beat.mask.eq(segment.held.mask),
        ]

    def _place(self, m: Module, segment: _Segment) -> Signal:
        """Count slots, beats of a vector and beats of a group; return 1 if a vector ends."""
        lanes_log2, pace_log2 = (
            (number - 1).bit_length() for number in (self.config.lanes, self.config.pace)
        )
        most = max(self.config.group // self.config.pace, 2)
        in_group, vector_ends = Signal(range(most)), Signal()
        final = Signal(range(most))
        for log2 in range(lanes_log2, self.config.group.bit_length()):
            with m.If(segment.held.log2_group == log2):
                m.d.comb += final.eq((1 << log2 - pace_log2) - 1)
        whole = self.place == segment.held.vector[pace_log2:]
        m.d.comb += [
            vector_ends.eq(segment.ends | whole),
            self.beat.ends.eq(segment.ends | (in_group == final)),
        ]
        with m.If(self.write):
            m.d.sync += [
                self.place.eq(Mux(vector_ends, 0, self.place + 1)),
                self.slot.eq(self.slot + vector_ends),
                in_group.eq(Mux(self.beat.ends, 0, in_group + 1)),
            ]
        return vector_ends

    def _announce(self, m: Module, segment: _Segment, vector_ends: Signal) -> None:
        """Queue the announced vectors; the queue has room for one per slot."""
        shape, lanes = self.shape, self.config.pace
        ended = Signal()
        slot = Signal(range(_SLOTS), reset_less=True)
        final = Signal(shape.beat, reset_less=True)
        count = Signal(shape.counter, reset_less=True)
        keep = Signal(len(segment.held.keep), reset_less=True)
        m.d.sync += [
            ended.eq(self.write & vector_ends),
            slot.eq(self.slot),
            final.eq(self.place),
            count.eq(self.place * lanes + popcount(self.beat.present)),
            keep.eq(segment.held.keep),
        ]
        entries = [Signal(shape.vector, name=f"entry_{i}", reset_less=True) for i in range(_SLOTS)]
        for i, entry in enumerate(entries):
            with m.If(ended & (slot == i)):
                m.d.sync += [
                    entry.slot.eq(i),
                    entry.final.eq(final),
                    entry.keep.eq(keep),
                    entry.all.eq(keep >= count),
                    entry.none.eq(keep == 0),
                ]
        head, waiting = Signal(range(_SLOTS)), Signal(range(_SLOTS + 1))
        taken = self.vectors.valid & self.vectors.ready
        m.d.comb += [
            self.vectors.valid.eq(waiting != 0),
            self.vectors.payload.eq(Array(entries)[head]),
        ]
        m.d.sync += [head.eq(head + taken), waiting.eq(waiting + ended - taken)]


class _Segment:
    """The segment being loaded."""

    def __init__(self) -> None:
        self.state = Signal(_State)
        self.held = Signal(EncodeCommandLayout, reset_less=True)  # its command
        self.remaining = Signal(COUNT_WIDTH)  # values left
        self.ends = Signal(name="segment_ends")  # with this beat


class VectorBuffer(wiring.Component):
    """Vectors in their slots, the search for their thresholds, and the lanes that these select.

    Latency: three cycles after a threshold is found. Throughput: one beat per cycle while vectors
    are kept whole; otherwise a vector in as many turns of
    :class:`cassandra_spec.rtl.encode.topk.RadixSelect` as it has digits. Buffering: four vectors.
    Illegal input: see :class:`VectorLoader`.

    Members
    -------
    command, values, enable, idle
        As in :class:`VectorLoader`.
    grant : In(1)
        The receiver has room for one more beat.
    issued : Out(1)
        ``beat`` has a beat in the next cycle.
    chosen : Out(lanes)
        Selected lanes of the beat ``CHOICE_LATENCY`` cycles ago.
    """

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config
        self.shape = select_shape(config)
        super().__init__(
            {
                **_input_ports(config),
                **dict.fromkeys(("idle", "issued", "valid"), Out(1)),
                "grant": In(1),
                "beat": Out(StoredBeat(config)),
                "chosen": Out(config.pace),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape = self.shape
        places = 1 << Shape.cast(shape.beat).width
        m.submodules.loader = loader = VectorLoader(self.config)
        m.submodules.select = select = RadixSelect(shape)
        m.submodules.choice = choice = ThresholdChoice(shape)
        m.submodules.held = store = BeatMemory(
            width=StoredBeat(self.config).size, depth=_SLOTS * places, ports=2
        )
        wiring.connect(m, wiring.flipped(self.command), loader.command)
        wiring.connect(m, wiring.flipped(self.values), loader.values)
        wiring.connect(m, loader.vectors, select.vectors)
        m.d.comb += [
            loader.enable.eq(self.enable),
            self.idle.eq(loader.idle),
            store.write_address.eq(Cat(loader.place, loader.slot)),
            store.write_data.eq(loader.beat),
            store.write_enable.eq(loader.write),
            store.read_address[0].eq(Cat(select.beat, select.slot)),
            store.read_enable.eq(0b11),
            self.beat.eq(store.read_data[1]),
        ]
        searched = data.View(StoredBeat(self.config), store.read_data[0])
        self._connect(m, select.read, searched)
        self._connect(m, choice.beat, self.beat)
        place = self._issue(m, loader, select)
        m.d.comb += [
            store.read_address[1].eq(Cat(place, select.thresholds.payload.slot)),
            choice.valid.eq(self.valid),
            self.chosen.eq(choice.chosen),
        ]
        m.d.sync += [
            self.valid.eq(self.issued),
            choice.first.eq(place == 0),
            choice.threshold.eq(select.thresholds.payload),
        ]
        return m

    def _connect(self, m: Module, read: data.View, beat: data.View) -> None:
        m.d.comb += read.present.eq(beat.present)
        for lane in range(self.config.pace):
            m.d.comb += read.magnitudes[lane].eq(beat.values[lane][:MAGNITUDE])

    def _issue(self, m: Module, loader: VectorLoader, select: RadixSelect) -> Signal:
        """Read the vector whose threshold is next, beat by beat."""
        place = Signal(self.shape.beat)
        found, last = select.thresholds, Signal()
        m.d.comb += [
            self.issued.eq(found.valid & self.grant),
            last.eq(self.issued & (place == found.payload.final)),
            found.ready.eq(last),
            loader.free.eq(last),
        ]
        with m.If(self.issued):
            m.d.sync += place.eq(Mux(last, 0, place + 1))
        return place
