"""The store with flat AXI names: a top of its own, and the ports that every top with it has."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.dma.ledger import Store
from cassandra_spec.rtl.dma.store_config import REGIONS, StoreConfig

__all__ = ["CassandraStore", "connect_writes", "write_ports"]

_CACHE = 0b0011  # normal memory, not cached on the way
_PROT = 0b010  # data, not secure, not privileged
_INCR = 0b01


def write_ports(config: StoreConfig) -> dict[str, object]:
    """The write channels of AXI4."""
    return {
        "m_axi_awid": Out(1),
        "m_axi_awaddr": Out(config.address),
        "m_axi_awlen": Out(8),
        "m_axi_awsize": Out(3),
        "m_axi_awburst": Out(2),
        "m_axi_awlock": Out(1),
        "m_axi_awcache": Out(4),
        "m_axi_awprot": Out(3),
        "m_axi_awqos": Out(4),
        "m_axi_awvalid": Out(1),
        "m_axi_awready": In(1),
        "m_axi_wdata": Out(8 * config.bus),
        "m_axi_wstrb": Out(config.bus),
        "m_axi_wlast": Out(1),
        "m_axi_wvalid": Out(1),
        "m_axi_wready": In(1),
        "m_axi_bid": In(1),
        "m_axi_bresp": In(2),
        "m_axi_bvalid": In(1),
        "m_axi_bready": Out(1),
    }


def connect_writes(m: Module, top: Any, store: Store) -> None:
    """Connect the ports of :func:`write_ports`."""
    config, aw, w, b = store.config, store.aw, store.w, store.b
    m.d.comb += [
        top.m_axi_awid.eq(aw.payload.id),
        top.m_axi_awaddr.eq(aw.payload.address << config.word_bits),
        top.m_axi_awlen.eq(aw.payload.words - 1),
        top.m_axi_awsize.eq(config.word_bits),
        top.m_axi_awburst.eq(_INCR),
        top.m_axi_awcache.eq(_CACHE),
        top.m_axi_awprot.eq(_PROT),
        top.m_axi_awvalid.eq(aw.valid),
        aw.ready.eq(top.m_axi_awready),
        top.m_axi_wdata.eq(w.payload.data),
        top.m_axi_wstrb.eq((1 << config.bus) - 1),
        top.m_axi_wlast.eq(w.payload.last),
        top.m_axi_wvalid.eq(w.valid),
        w.ready.eq(top.m_axi_wready),
        b.payload.id.eq(top.m_axi_bid),
        b.payload.resp.eq(top.m_axi_bresp),
        b.valid.eq(top.m_axi_bvalid),
        top.m_axi_bready.eq(b.ready),
    ]


class CassandraStore(wiring.Component):
    """The store by itself: regions of any encoder in, AXI4 writes out.

    Latency, throughput, buffering and illegal input: see
    :class:`cassandra_spec.rtl.dma.ledger.Store`.

    Members
    -------
    s_axis_speculation_*, s_axis_verification_* : AXI4-Stream, a packet for each region with words
    s_axis_place_* : AXI4-Stream, ``place_layout`` of both regions, one for each segment
    s_axis_result_* : AXI4-Stream, ``EncodeResult``, one for each segment
    m_axis_entry_* : AXI4-Stream, ``entry_layout``, one for each segment
    m_axi_aw*, m_axi_w*, m_axi_b* : AXI4, the write channels
    fault, decode : Out(1)
        A write is answered with an error, with DECERR; ``fault_address``: of its burst.
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
        """Name of the Verilog module, one for each configuration."""
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
        for prefix, stream in (("place", store.places), ("result", store.results)):
            m.d.comb += [
                Value.cast(stream.payload).eq(getattr(self, f"s_axis_{prefix}_tdata")),
                stream.valid.eq(getattr(self, f"s_axis_{prefix}_tvalid")),
                getattr(self, f"s_axis_{prefix}_tready").eq(stream.ready),
            ]
        m.d.comb += [
            self.m_axis_entry_tdata.eq(store.entries.payload),
            self.m_axis_entry_tvalid.eq(store.entries.valid),
            store.entries.ready.eq(self.m_axis_entry_tready),
        ]
        return m
