"""Merging of the values of several decoders into one stream, segment after segment."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import ValueBeat
from cassandra_spec.rtl.dma.config import DmaConfig


class Widen(wiring.Component):
    """Join as many beats of one decoder as there are decoders into a word, the first lowest.

    Latency: one cycle from the beat that completes a word. Throughput: one beat per cycle.
    Buffering: one word. The last word of a segment may be partial; a flagged one has no lane.

    Members
    -------
    beats : In(stream of ValueBeat(lanes)), words : Out(stream of ValueBeat(decoders * lanes))
    """

    def __init__(self, config: DmaConfig) -> None:
        self.config = config
        lanes = config.decoder.lanes
        super().__init__(
            {
                "beats": In(stream.Signature(ValueBeat(lanes))),
                "words": Out(stream.Signature(ValueBeat(config.decoders * lanes))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, parts = self.config.decoder.lanes, self.config.decoders
        beat, word = self.beats.payload, self.words.payload
        place, complete = Signal(range(parts)), Signal()
        m.d.comb += [
            self.beats.ready.eq(~self.words.valid | self.words.ready),
            complete.eq(beat.last | (place == parts - 1)),
        ]
        with m.If(self.words.ready):
            m.d.sync += self.words.valid.eq(0)
        with m.If(self.beats.valid & self.beats.ready):
            m.d.sync += [
                self.words.valid.eq(complete),
                place.eq(Mux(complete, 0, place + 1)),
                word.last.eq(beat.last),
                word.error.eq(beat.error),
            ]
            for part in range(parts):
                present = word.present[part * lanes : (part + 1) * lanes]
                with m.If(place == part):
                    values = [word.values[part * lanes + lane] for lane in range(lanes)]
                    m.d.sync += [Cat(values).eq(beat.values), present.eq(beat.present)]
                with m.Elif((place == 0) | beat.error):
                    m.d.sync += present.eq(0)
        return m


class InOrder(wiring.Component):
    """Put the segments of several decoders into the order of their commands.

    Every decoder fills a buffer at its own pace. One buffer at a time is emptied, one word per
    cycle, to the end of a segment. With buffers of ``(1 - 1 / decoders)`` of a segment, no decoder
    ever waits for its turn. A single decoder passes through without a buffer.

    Latency: three cycles, and the time of the earlier segments. Throughput: one word per cycle.
    Buffering: ``config.reorder`` values per decoder.

    Members
    -------
    beats : In(stream of ValueBeat(lanes)) for each decoder
    values : Out(stream of ValueBeat(decoders * lanes))
    """

    def __init__(self, config: DmaConfig) -> None:
        self.config = config
        lanes, count = config.decoder.lanes, config.decoders
        super().__init__(
            {
                "beats": In(stream.Signature(ValueBeat(lanes))).array(count),
                "values": Out(stream.Signature(ValueBeat(count * lanes))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self.config.decoders == 1:
            wiring.connect(m, wiring.flipped(self.beats[0]), wiring.flipped(self.values))
            return m
        buffers = [self._buffer(m, place) for place in range(self.config.decoders)]
        turn = Signal(range(len(buffers)))
        for place, buffer in enumerate(buffers):
            with m.If(turn == place):
                m.d.comb += [
                    self.values.payload.eq(buffer.r_data),
                    self.values.valid.eq(buffer.r_rdy),
                    buffer.r_en.eq(self.values.valid & self.values.ready),
                ]
        with m.If(self.values.valid & self.values.ready & self.values.payload.last):
            m.d.sync += turn.eq(turn + 1)
        return m

    def _buffer(self, m: Module, place: int) -> fifo.SyncFIFOBuffered:
        """Build and fill the buffer of one decoder."""
        config = self.config
        width = ValueBeat(config.beat_values).size
        depth = config.reorder // config.beat_values + 1  # one of them in the output register
        m.submodules[f"widen_{place}"] = widen = Widen(config)
        m.submodules[f"buffer_{place}"] = buffer = fifo.SyncFIFOBuffered(width=width, depth=depth)
        wiring.connect(m, wiring.flipped(self.beats[place]), widen.beats)
        m.d.comb += [
            buffer.w_data.eq(widen.words.payload),
            buffer.w_en.eq(widen.words.valid & buffer.w_rdy),
            widen.words.ready.eq(buffer.w_rdy),
        ]
        return buffer
