"""The write master: regions of segments into memory (AXI4, write channels only)."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.guard import GuardedQueue, GuardedRegister, check_of
from cassandra_spec.rtl.dma.config import IN_FLIGHT, REGIONS, StoreConfig
from cassandra_spec.rtl.dma.drain import Owed, master_members, total

RESPONSE_ERROR = 1
"""Bit of BRESP that is set in SLVERR and DECERR."""


def place_layout(config: StoreConfig) -> data.StructLayout:
    """The place of a region, in bus words; ``follow``: behind the previous region instead.

    ``check`` covers the other fields; with ``follow`` set, only that field is used.
    """
    return data.StructLayout(
        {
            "address": config.address - config.word_bits,
            "room": config.count_bits,
            "follow": 1,
            "check": 1,
        }
    )


def write_burst_layout(config: StoreConfig) -> data.StructLayout:
    """A burst whose words have all arrived; ``words`` may be 0 at the end of a region."""
    return data.StructLayout(
        {
            "address": config.address - config.word_bits,
            "words": range(config.longest + 1),
            "end": 1,  # the region's last burst
            "room": 1,  # at the end: the region did not fit
            "check": 1,  # covers address and words
        }
    )


def end_layout() -> data.StructLayout:
    """The outcome of writing a region."""
    return data.StructLayout({"failed": 1, "room": 1})


def write_fault_layout(config: StoreConfig) -> data.StructLayout:
    """A burst that was answered with an error: its address in bus words, and the kind of error."""
    return data.StructLayout({"address": config.address - config.word_bits, "decode": 1})


def word_layout(size: int) -> data.StructLayout:
    """A word of a region, ``size`` bytes; ``last`` in its last one."""
    return data.StructLayout({"data": 8 * size, "last": 1})


def write_layout(config: StoreConfig) -> data.StructLayout:
    """A word on its way to memory; ``strobe``: all of its bytes are written, else none."""
    return data.StructLayout({"data": 8 * config.bus, "strobe": 1, "last": 1})


class Gather(wiring.Component):
    """Combine words of an encoder into bus words, the first in the lowest bits.

    Latency: one cycle from the word that completes a bus word (none if both have one size).
    Throughput: one word per cycle. Buffering: one bus word. A region whose last word does not
    complete a bus word would be completed with zeros; this does not occur, because a superblock is
    a whole number of bus words.

    Members
    -------
    words : In(stream of {data: 8 * lanes, last: 1}), wide : Out(stream of {data: 8 * bus, last: 1})
    """

    def __init__(self, config: StoreConfig) -> None:
        self.config = config
        super().__init__(
            {
                "words": In(stream.Signature(word_layout(config.encoder.lanes))),
                "wide": Out(stream.Signature(word_layout(config.bus))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, bus = self.config.encoder.lanes, self.config.bus
        if bus == lanes:
            wiring.connect(m, wiring.flipped(self.words), wiring.flipped(self.wide))
            return m
        words, wide, parts = self.words, self.wide, bus // lanes
        place, complete = Signal(range(parts)), Signal()
        m.d.comb += [
            words.ready.eq(~wide.valid | wide.ready),
            complete.eq(words.payload.last | (place == parts - 1)),
        ]
        with m.If(wide.ready):
            m.d.sync += wide.valid.eq(0)
        with m.If(words.valid & words.ready):
            m.d.sync += [
                wide.valid.eq(complete),
                wide.payload.last.eq(words.payload.last),
                place.eq(Mux(complete, 0, place + 1)),
            ]
            for part in range(parts):
                field = wide.payload.data[8 * lanes * part : 8 * lanes * (part + 1)]
                with m.If(place == part):
                    m.d.sync += field.eq(words.payload.data)
                with m.Elif(place == 0):
                    m.d.sync += field.eq(0)
        return m


class BurstFormer(wiring.Component):
    """Cut regions into bursts as their words arrive; the last word tells the region's length.

    Bursts end at multiples of ``config.burst``, so none crosses a page. A burst is handed on
    together with its last word, so its writer never waits for data. Words that do not fit the
    region's room are dropped, and the region's end reports that.

    A region without words has no packet. A place's region therefore begins when a word waits, or is
    skipped when ``known`` says that it is empty. The result of a segment is known before a word of
    a later one waits (``pending``: it is just arriving). The end of each region, empty or not, is a
    burst with ``end`` set, of no words if need be.

    Latency: none for words, one cycle for a burst. Throughput: one word per cycle; three cycles
    between regions. Buffering: none. A room of 0 drops everything. After a soft error in a place or
    in the region's state, the block stops until reset.

    Members
    -------
    places : In(stream of place_layout)
        The place of the next region; taken at the region's end.
    known : In(stream of 1), pending : In(1)
        1 if the region is empty, in order; taken at the region's end.
    words : In(stream of {data: 8 * bus, last: 1})
    beats : Out(stream of 8 * bus), bursts : Out(stream of write_burst_layout)
    wrong : Out(1)
        The block has stopped.
    """

    def __init__(self, config: StoreConfig) -> None:
        self.config = config
        super().__init__(
            {
                "places": In(stream.Signature(place_layout(config))),
                "known": In(stream.Signature(1)),
                "pending": In(1),
                "words": In(stream.Signature(word_layout(config.bus))),
                "beats": Out(stream.Signature(8 * config.bus)),
                "bursts": Out(stream.Signature(write_burst_layout(config))),
                "wrong": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        place = self.places.payload
        burst = Signal(write_burst_layout(self.config))  # the burst being formed
        room = Signal(self.config.count_bits)
        check = Signal(init=1)  # of the burst's address and words, and of the room
        overrun = Signal()
        load, fresh = Signal(), Signal(init=1)  # fresh: the place has not been loaded yet
        placed = place.check == check_of(place.address, place.room, place.follow)
        given = self.places.valid & placed & fresh
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.wrong.eq(~fresh | (self.places.valid & ~placed))
                empty = self.known.valid & self.known.payload
                whole = self.known.valid & ~self.known.payload
                begins = whole | (~self.known.valid & ~self.pending & self.words.valid)
                with m.If(given & empty):
                    m.d.comb += load.eq(1)
                    m.next = "EMPTY"
                with m.Elif(given & begins):
                    m.d.comb += load.eq(1)
                    m.next = "OPEN"
            with m.State("OPEN"):
                self._form(m, burst, room, check, overrun, fresh)
                with m.If(self.words.valid & self.words.ready & self.words.payload.last):
                    m.next = "CLOSE"
            with m.State("EMPTY"):
                m.d.comb += [
                    self.bursts.valid.eq(1),
                    self.bursts.payload.end.eq(1),
                    self.bursts.payload.check.eq(1),
                ]
                with m.If(self.bursts.ready):
                    m.next = "CLOSE"
            with m.State("CLOSE"):
                m.d.comb += [
                    self.wrong.eq(fresh),
                    self.places.ready.eq(self.known.valid & ~fresh),
                    self.known.ready.eq(~fresh),
                ]
                with m.If(self.places.ready):
                    m.d.sync += fresh.eq(1)
                    m.next = "IDLE"
        with m.If(load):
            m.d.sync += [burst.words.eq(0), overrun.eq(0), fresh.eq(0)]
            m.d.sync += check.eq(check ^ Value.cast(burst.words).xor())
            with m.If(~place.follow):
                m.d.sync += [
                    burst.address.eq(place.address),
                    room.eq(place.room),
                    check.eq(check_of(place.address, place.room)),
                ]
        return m

    def _form(
        self,
        m: Module,
        burst: data.View,
        room: Signal,
        check: Signal,
        overrun: Signal,
        fresh: Signal,
    ) -> None:
        """Pass words on; send a burst with the word that completes it."""
        words, longest = self.words, self.config.longest
        fits, closes, moved, right = Signal(), Signal(), Signal(), Signal()
        after = Signal.like(burst.address)  # after this word
        offered = self.bursts.payload
        m.d.comb += [
            right.eq((check == check_of(burst.address, burst.words, room)) & ~fresh),
            self.wrong.eq(~right),
            fits.eq(room != 0),
            after.eq(burst.address + burst.words + 1),
            closes.eq(words.payload.last | (fits & (((after & (longest - 1)) == 0) | (room == 1)))),
            words.ready.eq(right & (self.beats.ready | ~fits) & (self.bursts.ready | ~closes)),
            moved.eq(words.valid & words.ready),
            self.beats.payload.eq(words.payload.data),
            self.beats.valid.eq(right & words.valid & fits & (self.bursts.ready | ~closes)),
            offered.address.eq(burst.address),
            offered.words.eq(burst.words + fits),
            offered.end.eq(words.payload.last),
            offered.room.eq(overrun | ~fits),
            offered.check.eq(check_of(offered.address, offered.words)),
            self.bursts.valid.eq(right & words.valid & closes & (self.beats.ready | ~fits)),
        ]
        left, address = Signal.like(room), Signal.like(burst.address)  # after this word
        count = Signal.like(burst.words)
        m.d.comb += [
            left.eq(room - 1),
            address.eq(Mux(closes, after, burst.address)),
            count.eq(Mux(closes, 0, burst.words + 1)),
        ]
        with m.If(moved & fits):
            m.d.sync += [
                room.eq(left),
                burst.address.eq(address),
                burst.words.eq(count),
                check.eq(check_of(address, count, left)),
            ]
        with m.If(moved & ~fits):
            m.d.sync += overrun.eq(1)


class RegionStore(wiring.Component):
    """One region of each segment, up to its queued bursts and its end.

    Latency: three cycles from a word to its burst. Throughput: one word in and one beat out per
    cycle. Buffering: ``config.buffer`` bytes, ``config.outstanding`` bursts that wait to be written
    and as many that wait for their response, and ``IN_FLIGHT`` places, lengths and ends. The end of
    a region is held until it is taken; responses that would bring more ends wait meanwhile.

    Members
    -------
    places : In(stream of place_layout), known : In(stream of 1), pending : In(1)
        See :class:`BurstFormer`.
    words : In(stream of {data: 8 * lanes, last: 1})
    bursts : Out(stream of write_burst_layout), beats : Out(stream of 8 * bus)
        The data to write; every burst has words.
    responses : In(stream of 2)
        BRESP of the region's bursts, in order.
    ends : Out(stream of end_layout)
        One per place.
    fault : Out(write_fault_layout), fault_valid : Out(1)
    wrong : Out(1)
        A soft error in the region's state has stopped its writes.
    """

    def __init__(self, config: StoreConfig) -> None:
        self.config = config
        self.gather, self.former = Gather(config), BurstFormer(config)
        super().__init__(
            {
                "places": In(stream.Signature(place_layout(config))),
                "known": In(stream.Signature(1)),
                "pending": In(1),
                "words": In(stream.Signature(word_layout(config.encoder.lanes))),
                "bursts": Out(stream.Signature(write_burst_layout(config))),
                "beats": Out(stream.Signature(8 * config.bus)),
                "responses": In(stream.Signature(2)),
                "ends": Out(stream.Signature(end_layout())),
                "fault": Out(write_fault_layout(config)),
                **dict.fromkeys(("fault_valid", "wrong"), Out(1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, former = self.config, self.former
        m.submodules.gather, m.submodules.former = self.gather, former
        wiring.connect(m, wiring.flipped(self.words), self.gather.words)
        wiring.connect(m, self.gather.wide, former.words)
        queues = [
            _queue_into(m, name, getattr(self, name), getattr(former, name))
            for name in ("places", "known")
        ]
        # One beat is in the output register, a power of two in the memory.
        buffer = fifo.SyncFIFOBuffered(width=8 * config.bus, depth=config.depth + 1)
        m.submodules.buffer = buffer
        pass_through(m, former.beats, buffer, self.beats)
        m.d.comb += former.pending.eq(self.pending | self.known.valid)
        wrong = self._follow(m)
        m.d.comb += self.wrong.eq(Cat(former.wrong, wrong, *(q.wrong for q in queues)).any())
        return m

    def _follow(self, m: Module) -> Value:
        """Send bursts to the memory, then queue them for their response.

        Returns 1 if a burst is withheld because one of its bits has flipped.
        """
        layout = write_burst_layout(self.config)
        formed, sent = Signal(layout), Signal(layout)
        depth = self.config.outstanding
        m.submodules.formed = ready = GuardedQueue(width=layout.size, depth=depth)
        m.submodules.sent = waiting = fifo.SyncFIFO(width=layout.size, depth=depth)
        m.submodules.ends_queue = ends = fifo.SyncFIFO(width=end_layout().size, depth=IN_FLIGHT)
        bare, answered, leaves, bad = Signal(), Signal(), Signal(), Signal()
        failed = Signal()  # an earlier burst of the region failed
        right = ready.r_rdy & (formed.check == check_of(formed.address, formed.words))
        m.d.comb += [
            ready.w_data.eq(self.former.bursts.payload),
            ready.w_en.eq(self.former.bursts.valid & ready.w_rdy),
            self.former.bursts.ready.eq(ready.w_rdy),
            formed.eq(ready.r_data),
            self.bursts.payload.eq(formed),
            self.bursts.valid.eq(right & waiting.w_rdy & (formed.words != 0)),
            waiting.w_data.eq(formed),
            waiting.w_en.eq(
                (self.bursts.valid & self.bursts.ready)
                | (right & waiting.w_rdy & (formed.words == 0))
            ),
            ready.r_en.eq(waiting.w_en),
            sent.eq(waiting.r_data),
            bare.eq(sent.words == 0),
            answered.eq(bare | self.responses.valid),
            leaves.eq(waiting.r_rdy & answered & (ends.w_rdy | ~sent.end)),
            waiting.r_en.eq(leaves),
            self.responses.ready.eq(waiting.r_rdy & ~bare & (ends.w_rdy | ~sent.end)),
            bad.eq(leaves & ~bare & self.responses.payload[RESPONSE_ERROR]),
            self.fault_valid.eq(bad),
            self.fault.address.eq(sent.address),
            self.fault.decode.eq(self.responses.payload[0]),
            ends.w_en.eq(leaves & sent.end),
            ends.w_data.eq(Cat(failed | bad, sent.room)),
            self.ends.payload.eq(ends.r_data),
            self.ends.valid.eq(ends.r_rdy),
            ends.r_en.eq(self.ends.valid & self.ends.ready),
        ]
        with m.If(leaves):
            m.d.sync += failed.eq((failed | bad) & ~sent.end)
        return ready.wrong | (ready.r_rdy & ~right)


class WriteMaster(wiring.Component):
    """Write the regions of segments over one AXI4 port.

    The index of a region in ``REGIONS`` is the ID of its bursts, so the responses of the two may
    come in any order. A burst is requested when all of its words have arrived. Its words follow at
    once, in the order of the addresses. A response that would end a region while ``IN_FLIGHT`` ends
    wait is held, together with those behind it. So no more than ``IN_FLIGHT`` places may be handed
    out without an end (:class:`cassandra_spec.rtl.dma.store.Store` ensures that).

    Latency: five cycles from the last word of a burst to AWVALID. Throughput: one beat per cycle;
    the regions alternate, burst by burst. Buffering: see :class:`RegionStore`. The base of a region
    is a multiple of the bus word. A response whose ID has no burst that was written is ignored.

    A drain lets a begun burst send its words. Only if one is missing, which a soft
    error alone can bring about, does the rest of the burst follow without strobes. Then the regions
    are reset, and the responses that are owed are awaited.

    Members
    -------
    places, known, pending, words, ends, fault, fault_valid
        As in :class:`RegionStore`, for each region.
    aw : Out(stream of {address, words, id}), w : Out(stream of write_layout)
    b : In(stream of {id, resp})
    writing : Out(1)
        A beat leaves.
    wrong : Out(1)
        A soft error in a region's state has stopped its writes.
    hold, drain, clear, open, owed, stray
        See :func:`cassandra_spec.rtl.dma.drain.master_members`; ``owed`` counts bursts whose words
        have been written.
    """

    def __init__(self, config: StoreConfig) -> None:
        self.config = config
        self.units = [RegionStore(config) for _ in REGIONS]
        unit, count = self.units[0].signature.members, len(REGIONS)
        self.aw_layout = data.StructLayout(
            {
                "address": config.address - config.word_bits,
                "words": range(config.longest + 1),
                "id": 1,
            }
        )
        names = ("places", "known", "pending", "words", "ends", "fault", "fault_valid")
        super().__init__(
            {
                **{name: unit[name].array(count) for name in names},
                "aw": Out(stream.Signature(self.aw_layout)),
                "w": Out(stream.Signature(write_layout(config))),
                "b": In(stream.Signature(data.StructLayout({"id": 1, "resp": 2}))),
                **dict.fromkeys(("writing", "wrong"), Out(1)),
                **master_members(),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for place, unit in enumerate(self.units):
            m.submodules[f"region_{REGIONS[place]}"] = ResetInserter(self.clear)(unit)
            for name in ("places", "known", "words"):
                wiring.connect(m, wiring.flipped(getattr(self, name)[place]), getattr(unit, name))
            wiring.connect(m, unit.ends, wiring.flipped(self.ends[place]))
            m.d.comb += [
                unit.pending.eq(self.pending[place]),
                self.fault[place].eq(unit.fault),
                self.fault_valid[place].eq(unit.fault_valid),
                unit.responses.payload.eq(self.b.payload.resp),
                unit.responses.valid.eq(
                    self.b.valid & ~self.stray & ~self.drain & (self.b.payload.id == place)
                ),
            ]
        m.d.comb += self.wrong.eq(Cat(unit.wrong for unit in self.units).any())
        self._count(m, *self._write(m))
        return m

    def _count(self, m: Module, written: Signal, identity: Signal, begun: Signal) -> None:
        """Count the responses that each ID is owed, and take a response."""
        chosen = self.b.payload.id
        counts = []
        for place in range(len(self.units)):
            m.submodules[f"owed_{place}"] = owed = Owed(self.config.outstanding)
            m.d.comb += [
                owed.asks.eq(written & (identity == place)),
                owed.pays.eq(self.b.valid & self.b.ready & (chosen == place)),
            ]
            counts.append(owed)
        takes = Array(unit.responses.ready for unit in self.units)[chosen]
        known = Array(owed.some for owed in counts)[chosen]
        m.d.comb += [
            self.stray.eq(self.b.valid & ~known),
            self.b.ready.eq(takes | ~known | self.drain),
            self.open.eq(begun | Cat(owed.some for owed in counts).any()),
            self.clear.eq(self.drain & ~begun),
        ]
        m.d.sync += self.owed.eq(total([owed.owed for owed in counts]))

    def _write(self, m: Module) -> tuple[Signal, Signal, Signal]:
        """Write address and words of one burst after another.

        Returns 1 in the cycle in which the burst is complete, its ID, and 1 from its begin to that
        cycle.
        """
        asked = data.StructLayout({"valid": 1, "payload": self.aw_layout})
        course = data.StructLayout({"left": range(self.config.longest + 1), "latest": 1})
        m.submodules.address = address = GuardedRegister(asked.size)
        m.submodules.course = current = GuardedRegister(course.size)
        now, after = data.View(asked, address.value), Signal(asked)
        at, then = data.View(course, current.value), Signal(course)  # words of the burst; region
        chosen, granted = Signal(), Signal()
        final, free = Signal(), Signal()
        begun, written, begins = Signal(), Signal(), Signal()
        blank = Signal()  # a word was missing: the rest of the burst has no strobes
        first, second = (unit.bursts for unit in self.units)
        m.d.comb += [
            self.aw.valid.eq(now.valid),
            self.aw.payload.eq(now.payload),
            self.w.payload.last.eq(at.left == 1),
            final.eq((at.left == 1) & self.writing),
            free.eq((~self.aw.valid | self.aw.ready) & ((at.left == 0) | final)),
            chosen.eq(Mux(at.latest, ~first.valid, second.valid)),  # the other region first
            begun.eq(self.aw.valid | (at.left != 0)),
            written.eq(begun & free),
            begins.eq(free & ~self.hold & ~self.drain),
            granted.eq(begins & (first.valid | second.valid)),
            self.w.payload.strobe.eq(~blank),
            self.writing.eq(self.w.valid & self.w.ready),
            address.load.eq(granted | self.aw.ready),
            address.next.eq(after),
            after.valid.eq(granted),
            current.load.eq(1),
            current.next.eq(then),
            then.left.eq(at.left - self.writing),
            then.latest.eq(Mux(granted, chosen, at.latest)),
        ]
        for place, unit in enumerate(self.units):
            burst = unit.bursts.payload
            m.d.comb += unit.bursts.ready.eq(begins & (chosen == place))
            with m.If(chosen == place):
                m.d.comb += [
                    after.payload.address.eq(burst.address),
                    after.payload.words.eq(burst.words),
                    after.payload.id.eq(place),
                ]
                with m.If(granted):
                    m.d.comb += then.left.eq(burst.words)
            with m.If(at.latest == place):
                m.d.comb += [
                    self.w.payload.data.eq(Mux(blank, 0, unit.beats.payload)),
                    self.w.valid.eq((at.left != 0) & (blank | unit.beats.valid)),
                    unit.beats.ready.eq((at.left != 0) & self.w.ready & ~blank),
                ]
        with m.If(final | (at.left == 0)):
            m.d.sync += blank.eq(0)
        with m.Elif(self.drain & ~self.w.valid):
            m.d.sync += blank.eq(1)
        return written, at.latest, begun


def pass_through(
    m: Module,
    source: stream.Interface,
    queue: fifo.FIFOInterface | GuardedQueue,
    sink: stream.Interface,
) -> None:
    """Pass a stream through a FIFO."""
    m.d.comb += [
        queue.w_data.eq(source.payload),
        queue.w_en.eq(source.valid & queue.w_rdy),
        source.ready.eq(queue.w_rdy),
        sink.payload.eq(queue.r_data),
        sink.valid.eq(queue.r_rdy),
        queue.r_en.eq(sink.valid & sink.ready),
    ]


def _queue_into(
    m: Module, name: str, source: stream.Interface, sink: stream.Interface
) -> GuardedQueue:
    """Pass a stream through a guarded queue."""
    queue = GuardedQueue(width=len(Value.cast(source.payload)), depth=IN_FLIGHT)
    m.submodules[f"{name}_queue"] = queue
    pass_through(m, source, queue, sink)
    return queue
