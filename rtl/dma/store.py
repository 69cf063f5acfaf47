"""The store: tracks segments on their way to memory, from their places to their entries."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.wires import drive
from cassandra_spec.rtl.dma.axi import connect_writes, write_ports
from cassandra_spec.rtl.dma.config import IN_FLIGHT, REGIONS, StoreConfig
from cassandra_spec.rtl.dma.drain import master_members
from cassandra_spec.rtl.dma.write_master import WriteMaster, place_layout
from cassandra_spec.rtl.encode.region_writer import LENGTH_WIDTH
from cassandra_spec.rtl.encode.regions import EncodeResult
from cassandra_spec.rtl.encode.types import COUNT_WIDTH, EncodeErrorLayout

OFFSET_BITS = 32


def entry_layout() -> data.StructLayout:
    """An entry: a stored segment's directory entry (docs/format.md, section 5) and its causes.

    ``failed``: a write was answered with an error. ``room``: a region did not fit.
    """
    return data.StructLayout(
        {
            "offsets": data.ArrayLayout(OFFSET_BITS, len(REGIONS)),
            "lengths": data.ArrayLayout(LENGTH_WIDTH, len(REGIONS)),
            "mask": 1,
            "errors": EncodeErrorLayout,
            "failed": 1,
            "room": 1,
            "saturated": COUNT_WIDTH,
        }
    )


class Store(wiring.Component):
    """Write an encoder's output to memory, and make an entry for each stored segment.

    The entry of a segment comes when every byte of both regions has been acknowledged. Its offsets
    count superblocks from the last place without ``follow``. A region may be written while the
    other one, or the result of the previous segment, is still on its way.

    Latency: the memory's, and four cycles. Throughput: that of :class:`WriteMaster`. Buffering:
    ``IN_FLIGHT`` segments, counted from their place until their entry is taken. No further place is
    taken, so no queue can overflow, however long entries wait. Illegal input: a result that calls a
    region empty although it has words, or the other way round.

    Members
    -------
    places : In(stream of {regions: place_layout for each, ...})
    words : In(stream of {data: 8 * lanes, last: 1}) for each region
        One packet per region that is not empty.
    results : In(stream of EncodeResult)
        One per segment, valid before the first word of the next segment.
    entries : Out(stream of entry_layout)
    aw, w, b, writing, wrong, fault, fault_valid, hold, drain, clear, open, owed, stray
        As in :class:`WriteMaster`.
    flying : Out(range(IN_FLIGHT + 1))
        Number of segments inside.
    """

    def __init__(self, config: StoreConfig) -> None:
        self.config = config
        self.master = WriteMaster(config)
        self._follows = fifo.SyncFIFO(width=1, depth=IN_FLIGHT)
        self._waiting = fifo.SyncFIFO(width=EncodeResult().size, depth=IN_FLIGHT)
        master = self.master.signature.members
        names = ["words", "aw", "w", "b", "writing", "wrong", "fault", "fault_valid"]
        names += master_members()
        super().__init__(
            {
                "places": In(
                    stream.Signature(data.ArrayLayout(place_layout(config), len(REGIONS)))
                ),
                "results": In(stream.Signature(EncodeResult())),
                "entries": Out(stream.Signature(entry_layout())),
                "flying": Out(range(IN_FLIGHT + 1)),
                **{name: master[name] for name in names},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.master = master = self.master
        for name in ("aw", "w"):
            wiring.connect(m, getattr(master, name), wiring.flipped(getattr(self, name)))
        wiring.connect(m, wiring.flipped(self.b), master.b)
        drive(m, self, master, "writing", "wrong", "clear", "open", "owed", "stray")
        drive(m, master, self, "hold", "drain")
        for place in range(len(REGIONS)):
            wiring.connect(m, wiring.flipped(self.words[place]), master.words[place])
            m.d.comb += [
                self.fault[place].eq(master.fault[place]),
                self.fault_valid[place].eq(master.fault_valid[place]),
            ]
        m.submodules.segments = ResetInserter(self.clear)(self._segments())
        return m

    def _segments(self) -> Module:
        """Return the part that tracks segments, which a drain resets."""
        m = Module()
        m.submodules.follows, m.submodules.results = self._follows, self._waiting
        taken = Signal()  # an entry is taken
        self._begin(m, taken)
        self._learn(m)
        self._finish(m, taken)
        return m

    def _begin(self, m: Module, taken: Signal) -> None:
        """Take a segment's places while everything that may follow from it has room."""
        places = self.master.places
        begun = self.places.valid & self.places.ready
        m.d.comb += [
            self.places.ready.eq(self.flying != IN_FLIGHT),
            self._follows.w_data.eq(self.places.payload[0].follow),
            self._follows.w_en.eq(begun),
        ]
        for place, region in enumerate(places):
            m.d.comb += [
                region.payload.eq(self.places.payload[place]),
                region.valid.eq(begun),
            ]
        m.d.sync += self.flying.eq(self.flying + begun - taken)

    def _learn(self, m: Module) -> None:
        """Queue results until their regions end; tell the master which regions are empty."""
        waiting, known, taken = self._waiting, self.master.known, Signal()
        m.d.comb += [
            taken.eq(self.results.valid & self.results.ready),
            self.results.ready.eq(waiting.w_rdy & Cat(region.ready for region in known).all()),
            waiting.w_data.eq(self.results.payload),
            waiting.w_en.eq(taken),
        ]
        for place, name in enumerate(REGIONS):
            m.d.comb += [
                known[place].payload.eq(getattr(self.results.payload, name) == 0),
                known[place].valid.eq(taken),
                self.master.pending[place].eq(self.results.valid),
            ]

    def _finish(self, m: Module, taken: Signal) -> None:
        """Make the entry of the oldest segment from both ends and the result."""
        result = data.View(EncodeResult(), self._waiting.r_data)
        entry, ends = self.entries.payload, self.master.ends
        complete = Cat(self._waiting.r_rdy, self._follows.r_rdy, *(end.valid for end in ends)).all()
        drive(m, entry, result, "mask", "errors", "saturated")
        m.d.comb += [
            self.entries.valid.eq(complete),
            taken.eq(self.entries.valid & self.entries.ready),
            self._waiting.r_en.eq(taken),
            self._follows.r_en.eq(taken),
            entry.failed.eq(Cat(end.payload.failed for end in ends).any()),
            entry.room.eq(Cat(end.payload.room for end in ends).any()),
        ]
        for place, name in enumerate(REGIONS):
            previous = Signal(OFFSET_BITS, name=f"previous_{name}")  # end of the last segment
            offset, length = entry.offsets[place], entry.lengths[place]
            m.d.comb += [
                ends[place].ready.eq(taken),
                offset.eq(Mux(self._follows.r_data, previous, 0)),
                length.eq(getattr(result, name)),
            ]
            with m.If(taken):
                m.d.sync += previous.eq(offset + length)


class CassandraStore(wiring.Component):
    """The store alone: takes the regions of any encoder, makes AXI4 writes.

    Latency, throughput, buffering and illegal input: see :class:`Store`.

    Members
    -------
    s_axis_speculation_*, s_axis_verification_* : AXI4-Stream, one packet per region with words
    s_axis_place_* : AXI4-Stream, ``place_layout`` of both regions, one per segment
    s_axis_result_* : AXI4-Stream, ``EncodeResult``, one per segment
    m_axis_entry_* : AXI4-Stream, ``entry_layout``, one per segment
    m_axi_aw*, m_axi_w*, m_axi_b* : AXI4, the write channels
    fault, decode : Out(1)
        A write is answered with an error; ``decode``: with DECERR. ``fault_address``: its burst.
    """

    def __init__(self, config: StoreConfig | None = None) -> None:
        self.config = config = config or StoreConfig()
        self.store = Store(config)
        members: dict[str, object] = {**write_ports(config)}
        for name in REGIONS:
            members |= {
                f"s_axis_{name}_tdata": In(8 * config.encoder.lanes),
                f"s_axis_{name}_tlast": In(1),
                f"s_axis_{name}_tvalid": In(1),
                f"s_axis_{name}_tready": Out(1),
            }
        for prefix, name, flow in (
            ("s_axis_place", "places", In),
            ("s_axis_result", "results", In),
            ("m_axis_entry", "entries", Out),
        ):
            width = len(Value.cast(getattr(self.store, name).payload))
            members |= {
                f"{prefix}_tdata": flow(width),
                f"{prefix}_tvalid": flow(1),
                f"{prefix}_tready": flow(1).flip(),
            }
        members |= {"fault": Out(1), "decode": Out(1), "fault_address": Out(config.address)}
        super().__init__(members)

    @property
    def module_name(self) -> str:
        """Name of the Verilog module, unique per configuration."""
        return self.config.module_name.replace("encoder_dma", "store", 1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.store = store = self.store
        connect_writes(m, self, store)
        for place, name in enumerate(REGIONS):
            words = store.words[place]
            m.d.comb += [
                words.payload.data.eq(getattr(self, f"s_axis_{name}_tdata")),
                words.payload.last.eq(getattr(self, f"s_axis_{name}_tlast")),
                words.valid.eq(getattr(self, f"s_axis_{name}_tvalid")),
                getattr(self, f"s_axis_{name}_tready").eq(words.ready),
            ]
            with m.If(store.fault_valid[place]):
                fault = store.fault[place]
                m.d.comb += [
                    self.fault.eq(1),
                    self.decode.eq(fault.decode),
                    self.fault_address.eq(fault.address << self.config.word_bits),
                ]
        for prefix, source in (("place", store.places), ("result", store.results)):
            m.d.comb += [
                Value.cast(source.payload).eq(getattr(self, f"s_axis_{prefix}_tdata")),
                source.valid.eq(getattr(self, f"s_axis_{prefix}_tvalid")),
                getattr(self, f"s_axis_{prefix}_tready").eq(source.ready),
            ]
        m.d.comb += [
            self.m_axis_entry_tdata.eq(store.entries.payload),
            self.m_axis_entry_tvalid.eq(store.entries.valid),
            store.entries.ready.eq(self.m_axis_entry_tready),
        ]
        return m
