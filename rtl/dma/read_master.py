"""The read master: regions of memory as streams of words (AXI4, read channels only)."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.guard import GuardedQueue, GuardedRegister, check_of
from cassandra_spec.rtl.common.wires import drive
from cassandra_spec.rtl.dma.config import IN_FLIGHT, REGIONS, DmaConfig
from cassandra_spec.rtl.dma.drain import Owed, master_members, total

RESPONSE_ERROR = 1
"""Bit of RRESP that is set in SLVERR and DECERR."""


def region_layout(config: DmaConfig) -> data.StructLayout:
    """A region to read: address and length in bus words, their check, and the segment's tag."""
    return data.StructLayout(
        {
            "address": config.address - config.word_bits,
            "words": config.count_bits,
            "check": 1,
            "tag": range(IN_FLIGHT),
        }
    )


def burst_layout(config: DmaConfig) -> data.StructLayout:
    """A burst: the address of its first bus word, and its number of bus words."""
    return data.StructLayout(
        {
            "address": config.address - config.word_bits,
            "words": range(config.burst // config.bus + 1),
        }
    )


def beat_layout(config: DmaConfig) -> data.StructLayout:
    """A beat of the R channel."""
    return data.StructLayout({"data": 8 * config.bus, "id": config.id_bits, "resp": 2})


def fault_layout(config: DmaConfig) -> data.StructLayout:
    """A failed burst: its address in bus words, the kind of error, and the segment's tag."""
    return data.StructLayout(
        {
            "address": config.address - config.word_bits,
            "decode": 1,
            "tag": range(IN_FLIGHT),
        }
    )


class BurstIssuer(wiring.Component):
    """Cut regions into bursts, while the buffer has room for their words.

    Bursts end at multiples of ``config.burst``, so none crosses a page. All but the first and the
    last of a region have that length.

    Latency: two cycles from a region to its first burst. Throughput: one burst in two cycles; no
    pause between regions. Buffering: one region. A burst is offered only while the buffer has room
    for all its words, so every returned word is accepted. A region of no words is illegal. After a
    soft error in this block or in the region, a burst that does not continue its region is not
    offered, nor is any later one.

    Members
    -------
    regions : In(stream of region_layout)
    bursts : Out(stream of burst_layout)
    released : In(range(3))
        Bus words that have left the buffer, or will never reach it.
    wrong : Out(1)
        A burst is withheld because it does not continue its region.
    """

    def __init__(self, config: DmaConfig) -> None:
        self.config = config
        super().__init__(
            {
                "regions": In(stream.Signature(region_layout(config))),
                "bursts": Out(stream.Signature(burst_layout(config))),
                "released": In(range(3)),
                "wrong": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        longest, room = config.burst // config.bus, config.buffer // config.bus
        burst = self.bursts.payload
        left = Signal(config.count_bits)  # words of the region not yet requested
        check = Signal(init=1)  # of the address and of ``left``
        known = Signal()  # ``burst`` has the length of the next burst
        free = Signal(range(room + 1), init=room)
        to_border, words = Signal(range(longest + 1)), Signal(range(longest + 1))
        address, rest = Signal.like(burst.address), Signal.like(left)  # after the burst
        right, moved = Signal(), Signal()
        m.d.comb += [
            to_border.eq(longest - (burst.address & (longest - 1))),
            words.eq(Mux(left < to_border, left, to_border)),
            right.eq(
                (left != 0) & (burst.words == words) & (check == check_of(burst.address, left))
            ),
            self.wrong.eq(known & ~right),
            self.regions.ready.eq(left == 0),
            self.bursts.valid.eq(known & right & (free >= burst.words)),
            moved.eq(self.bursts.valid & self.bursts.ready),
            address.eq(burst.address + burst.words),
            rest.eq(left - burst.words),
        ]
        m.d.sync += free.eq(free + self.released - Mux(moved, burst.words, 0))
        with m.If(moved):
            m.d.sync += [
                burst.address.eq(address),
                left.eq(rest),
                check.eq(check_of(address, rest)),
                known.eq(0),
            ]
        with m.Elif((left != 0) & ~known):
            m.d.sync += [burst.words.eq(words), known.eq(1)]
        with m.If(self.regions.valid & self.regions.ready):
            region = self.regions.payload
            m.d.sync += [
                burst.address.eq(region.address),
                left.eq(region.words),
                check.eq(region.check),
            ]
        return m


class RegionReceiver(wiring.Component):
    """Turn the R beats of one ID back into regions.

    The words of a region become a packet. A beat with an error response ends the packet early, and
    the rest of the region is dropped. The decoder then finds its region too short, and ``faults``
    tells why.

    Latency: none. Throughput: one beat per cycle. Buffering: ``IN_FLIGHT`` regions that wait for
    their first beat. Beats without a waiting region are illegal.

    Members
    -------
    regions : In(stream of region_layout)
        Ready while there is room for another region.
    beat : In(beat_layout), beat_valid : In(1)
    word : Out({data, last}), word_valid : Out(1)
    dropped : Out(1)
        The beat is dropped.
    pending : Out(1)
        The current region has words that have not come.
    fault : Out(fault_layout), fault_valid : Out(1)
        The first beat of a region with an error.
    """

    def __init__(self, config: DmaConfig) -> None:
        self.config = config
        self.word_layout = data.StructLayout({"data": 8 * config.bus, "last": 1})
        super().__init__(
            {
                "regions": In(stream.Signature(region_layout(config))),
                "beat": In(beat_layout(config)),
                "beat_valid": In(1),
                "word": Out(self.word_layout),
                **dict.fromkeys(("word_valid", "dropped", "pending", "fault_valid"), Out(1)),
                "fault": Out(fault_layout(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        region = Signal(region_layout(self.config))
        left, ends = Signal.like(region.words), Signal()  # words to come; the next is the last
        dropping, bad, final = Signal(), Signal(), Signal()
        m.d.comb += [
            bad.eq(self.beat.resp[RESPONSE_ERROR]),
            final.eq(self.beat_valid & ends),
            self.word.data.eq(self.beat.data),
            self.word.last.eq(ends | bad),
            self.word_valid.eq(self.beat_valid & ~dropping),
            self.dropped.eq(self.beat_valid & dropping),
            self.fault_valid.eq(self.beat_valid & bad & ~dropping),
            self.fault.tag.eq(region.tag),
            self.fault.decode.eq(self.beat.resp[0]),
            self.fault.address.eq(self._burst(region, left)),
        ]
        with m.If(self.beat_valid):
            m.d.sync += [
                left.eq(left - 1),
                ends.eq(left == 2),
                dropping.eq((dropping | bad) & ~final),
                self.pending.eq(~final),
            ]
        m.submodules.queue = queue = self._queue(m)
        head = data.View(region.shape(), queue.r_data)
        m.d.comb += queue.r_en.eq(queue.r_rdy & (~self.pending | final))
        with m.If(queue.r_en):
            m.d.sync += [
                region.eq(head),
                left.eq(head.words),
                ends.eq(head.words == 1),
                self.pending.eq(1),
            ]
        return m

    def _queue(self, m: Module) -> fifo.SyncFIFO:
        """Return a queue that takes the regions."""
        queue = fifo.SyncFIFO(width=region_layout(self.config).size, depth=IN_FLIGHT)
        m.d.comb += [
            queue.w_data.eq(self.regions.payload),
            queue.w_en.eq(self.regions.valid & self.regions.ready),
            self.regions.ready.eq(queue.w_rdy),
        ]
        return queue

    def _burst(self, region: data.View, left: Signal) -> Value:
        """Return the address of the word's burst: the last border before it, or the region's.

        Nothing is added up from word to word, as only a failed burst needs its address.
        """
        low = (self.config.burst // self.config.bus - 1).bit_length()
        within = region.address[:low]
        borders = (within + (region.words - left))[low:]
        return Cat(Mux(borders == 0, within, 0), region.address[low:] + borders)


class Narrow(wiring.Component):
    """Split bus words into words of a decoder, ``size`` bytes each, least significant first.

    Latency: none. Throughput: one decoder word per cycle. Buffering: none; the bus word is taken
    with its last part.

    Members
    -------
    wide : In(stream of {data: 8 * bus, last: 1}), words : Out(stream of {data: 8 * size, last: 1})
    """

    def __init__(self, *, bus: int, size: int) -> None:
        self._bus, self._size = bus, size
        super().__init__(
            {
                "wide": In(stream.Signature(data.StructLayout({"data": 8 * bus, "last": 1}))),
                "words": Out(stream.Signature(data.StructLayout({"data": 8 * size, "last": 1}))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count, wide, words = self._bus // self._size, self.wide, self.words
        if count == 1:
            wiring.connect(m, wiring.flipped(wide), wiring.flipped(words))
            return m
        place, end = Signal(range(count)), Signal()
        whole = wide.payload.data
        parts = Array([whole.word_select(part, 8 * self._size) for part in range(count)])
        m.d.comb += [
            end.eq(place == count - 1),
            words.valid.eq(wide.valid),
            words.payload.data.eq(parts[place]),
            words.payload.last.eq(wide.payload.last & end),
            wide.ready.eq(words.ready & end),
        ]
        with m.If(words.valid & words.ready):
            m.d.sync += place.eq(Mux(end, 0, place + 1))
        return m


class _Region(wiring.Component):
    """One region of one decoder: issuer, receiver, buffer and width conversion.

    Latency: three cycles from a beat to its first word. Throughput: one bus word in and one word
    out per cycle. Buffering: ``config.buffer`` bytes, and ``IN_FLIGHT`` regions.
    """

    def __init__(self, config: DmaConfig, size: int) -> None:
        self.config = config
        self.issuer = BurstIssuer(config)
        self.receiver = RegionReceiver(config)
        self.narrow = Narrow(bus=config.bus, size=size)
        super().__init__(
            {
                "regions": In(stream.Signature(region_layout(config))),
                "bursts": Out(stream.Signature(burst_layout(config))),
                "beat": In(beat_layout(config)),
                "beat_valid": In(1),
                "words": self.narrow.signature.members["words"],
                "fault": Out(fault_layout(config)),
                **dict.fromkeys(("pending", "fault_valid", "wrong"), Out(1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.issuer, m.submodules.receiver = self.issuer, self.receiver
        m.submodules.narrow = self.narrow
        wiring.connect(m, self.issuer.bursts, wiring.flipped(self.bursts))
        wiring.connect(m, self.narrow.words, wiring.flipped(self.words))
        self._regions(m)
        self._buffer(m)
        receiver = self.receiver
        drive(m, receiver, self, "beat", "beat_valid")
        drive(m, self, receiver, "pending", "fault", "fault_valid")
        return m

    def _regions(self, m: Module) -> None:
        """Send a region to the receiver at once and hold it for the issuer."""
        layout = region_layout(self.config)
        m.submodules.waiting = waiting = GuardedQueue(width=layout.size, depth=IN_FLIGHT)
        receiver, issuer = self.receiver.regions, self.issuer.regions
        m.d.comb += [
            self.wrong.eq(waiting.wrong | self.issuer.wrong),
            self.regions.ready.eq(waiting.w_rdy & receiver.ready),
            waiting.w_data.eq(self.regions.payload),
            receiver.payload.eq(self.regions.payload),
            waiting.w_en.eq(self.regions.valid & self.regions.ready),
            receiver.valid.eq(waiting.w_en),
            issuer.payload.eq(waiting.r_data),
            issuer.valid.eq(waiting.r_rdy),
            waiting.r_en.eq(issuer.valid & issuer.ready),
        ]

    def _buffer(self, m: Module) -> None:
        receiver, wide = self.receiver, self.narrow.wide
        depth = self.config.buffer // self.config.bus
        size = receiver.word_layout.size
        # One word is in the output register, a power of two in the memory.
        m.submodules.buffer = buffer = fifo.SyncFIFOBuffered(width=size, depth=depth + 1)
        taken = Signal()
        m.d.comb += [
            buffer.w_data.eq(receiver.word),
            buffer.w_en.eq(receiver.word_valid),
            wide.payload.eq(buffer.r_data),
            wide.valid.eq(buffer.r_rdy),
            taken.eq(wide.valid & wide.ready),
            buffer.r_en.eq(taken),
            self.issuer.released.eq(taken + receiver.dropped),
        ]


class ReadMaster(wiring.Component):
    """Read the regions of all decoders over one AXI4 port.

    Region 2 i is the speculation region of decoder i, region 2 i + 1 its verification region. The
    number is the ID of its bursts, so the memory may answer different regions in any order and
    interleaved. Bursts of one ID are answered in order, as AXI requires. ``RREADY`` is always high:
    a burst is requested only when the buffer has room for it.

    Latency: five cycles from a region to ARVALID, four from a beat to a decoder's word. Throughput:
    one address per cycle (round robin), one beat per cycle. Buffering: see the configuration. The
    base and the length of a region are multiples of the bus word. A beat whose ID has no open burst
    is ignored.

    Members
    -------
    regions : In(stream of region_layout) for each region
    speculation, verification : Out(stream of {data, last: 1}) for each decoder
        Words of the decoder's regions.
    fault : Out(fault_layout), fault_valid : Out(1) for each region
    ar : Out(stream of {burst: burst_layout, id})
    r : In(beat_layout), r_valid : In(1)
    reading : Out(1)
        A beat is being taken.
    pending : Out(1)
        Words of a region that is read have not come, requested or not.
    wrong : Out(1)
        A soft error in a region's state has stopped its reads.
    hold, drain, clear, open, owed, stray
        See :func:`cassandra_spec.rtl.dma.drain.master_members`; ``owed`` counts beats. ``drain``
        resets the regions at once.
    """

    def __init__(self, config: DmaConfig) -> None:
        self.config = config
        count = config.regions
        sizes = (config.decoder.lanes, config.widest)
        self.units = [_Region(config, size) for _ in range(config.decoders) for size in sizes]
        words = [unit.signature.members["words"] for unit in self.units[: len(REGIONS)]]
        self.ar_layout = data.StructLayout({"burst": burst_layout(config), "id": config.id_bits})
        super().__init__(
            {
                "regions": In(stream.Signature(region_layout(config))).array(count),
                **{
                    name: port.array(config.decoders)
                    for name, port in zip(REGIONS, words, strict=True)
                },
                "fault": Out(fault_layout(config)).array(count),
                "fault_valid": Out(1).array(count),
                "ar": Out(stream.Signature(self.ar_layout)),
                "r": In(beat_layout(config)),
                "r_valid": In(1),
                **dict.fromkeys(("reading", "pending", "wrong"), Out(1)),
                **master_members(),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        beat, valid = Signal(beat_layout(self.config)), Signal()
        m.d.sync += [beat.eq(self.r), valid.eq(self.r_valid)]
        known = self._count(m, beat, valid)
        m.d.comb += [
            self.clear.eq(self.drain),
            self.stray.eq(valid & ~known),
            self.reading.eq(valid & known & ~self.clear),
            self.pending.eq(Cat(unit.pending for unit in self.units).any()),
            self.wrong.eq(Cat(unit.wrong for unit in self.units).any()),
        ]
        for place, unit in enumerate(self.units):
            m.submodules[f"region_{place}"] = ResetInserter(self.clear)(unit)
            wiring.connect(m, wiring.flipped(self.regions[place]), unit.regions)
            words = getattr(self, REGIONS[place % len(REGIONS)])[place // len(REGIONS)]
            wiring.connect(m, unit.words, wiring.flipped(words))
            m.d.comb += [
                unit.beat.eq(beat),
                unit.beat_valid.eq(self.reading & (beat.id == place)),
                self.fault[place].eq(unit.fault),
                self.fault_valid[place].eq(unit.fault_valid),
            ]
        self._arbitrate(m)
        return m

    def _count(self, m: Module, beat: data.View, valid: Signal) -> Value:
        """Count the beats that each ID is owed; return 1 if one is owed to the beat's ID."""
        counts = []
        asked = self.ar.payload
        for place in range(len(self.units)):
            m.submodules[f"owed_{place}"] = owed = Owed(self.config.depth)
            asks = self.ar.valid & self.ar.ready & (asked.id == place)
            m.d.comb += [
                owed.asks.eq(Mux(asks, asked.burst.words, 0)),
                owed.pays.eq(valid & (beat.id == place)),
            ]
            counts.append(owed)
        m.d.comb += self.open.eq(self.ar.valid | Cat(owed.some for owed in counts).any())
        m.d.sync += self.owed.eq(total([owed.owed for owed in counts]))
        return Array(owed.some for owed in counts)[beat.id]

    def _arbitrate(self, m: Module) -> None:
        """Fill the address register from the first issuer after the last one that has a burst."""
        count = len(self.units)
        layout = data.StructLayout({"valid": 1, "payload": self.ar_layout})
        m.submodules.address = register = GuardedRegister(layout.size)
        after, now = Signal(layout), data.View(layout, register.value)
        chosen, latest = Signal(range(count)), Signal(range(count))
        free, begins = Signal(), Signal()
        wanted = Signal(count)
        m.d.comb += [
            self.ar.valid.eq(now.valid),
            self.ar.payload.eq(now.payload),
            free.eq(~self.ar.valid | self.ar.ready),
            wanted.eq(Cat(unit.bursts.valid for unit in self.units)),
            register.load.eq(free),
            register.next.eq(after),
            begins.eq(free & ~self.hold & ~self.drain),
            after.valid.eq(wanted.any() & begins),
        ]
        with m.Switch(latest):
            for last in range(count):
                with m.Case(last):
                    for step in range(count, 0, -1):  # the nearest is assigned last and wins
                        place = (last + step) % count
                        with m.If(wanted[place]):
                            m.d.comb += chosen.eq(place)
        for place, unit in enumerate(self.units):
            grant = unit.bursts.valid & begins & (chosen == place)
            m.d.comb += unit.bursts.ready.eq(grant)
            with m.If(chosen == place):
                m.d.comb += [
                    after.payload.burst.eq(unit.bursts.payload),
                    after.payload.id.eq(place),
                ]
            with m.If(grant):
                m.d.sync += latest.eq(place)
