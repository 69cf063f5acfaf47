"""Flat AXI names of the exported tops, and what connects them to streams."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.dma.config import BusConfig, DmaConfig, StoreConfig
from cassandra_spec.rtl.dma.read_master import ReadMaster
from cassandra_spec.rtl.dma.register_file import RegisterFile
from cassandra_spec.rtl.dma.registers import ADDRESS_BITS

__all__ = [
    "connect_lite",
    "connect_reads",
    "connect_writes",
    "lite_ports",
    "read_ports",
    "write_ports",
]

_CACHE = 0b0011  # normal memory, not cached on the way
_PROT = 0b010  # data, not secure, not privileged
_INCR = 0b01


def lite_ports() -> dict[str, object]:
    """The register port, AXI4-Lite."""
    widths = {"addr": ADDRESS_BITS, "prot": 3, "valid": 1}
    write, read = (
        {f"s_axil_{channel}{name}": In(width) for name, width in widths.items()}
        | {f"s_axil_{channel}ready": Out(1)}
        for channel in ("aw", "ar")
    )
    return {
        **write,
        "s_axil_wdata": In(32),
        "s_axil_wstrb": In(4),
        "s_axil_wvalid": In(1),
        "s_axil_wready": Out(1),
        "s_axil_bresp": Out(2),
        "s_axil_bvalid": Out(1),
        "s_axil_bready": In(1),
        **read,
        "s_axil_rdata": Out(32),
        "s_axil_rresp": Out(2),
        "s_axil_rvalid": Out(1),
        "s_axil_rready": In(1),
    }


def connect_lite(m: Module, top: Any, port: RegisterFile) -> None:
    """Connect the ports of :func:`lite_ports` to registers."""
    for name in ("aw", "ar"):
        channel = getattr(port, name)
        m.d.comb += [
            channel.payload.eq(getattr(top, f"s_axil_{name}addr")),
            channel.valid.eq(getattr(top, f"s_axil_{name}valid")),
            getattr(top, f"s_axil_{name}ready").eq(channel.ready),
        ]
    m.d.comb += [
        port.w.payload.data.eq(top.s_axil_wdata),
        port.w.payload.strobe.eq(top.s_axil_wstrb),
        port.w.valid.eq(top.s_axil_wvalid),
        top.s_axil_wready.eq(port.w.ready),
        top.s_axil_bresp.eq(port.b.payload),
        top.s_axil_bvalid.eq(port.b.valid),
        port.b.ready.eq(top.s_axil_bready),
        top.s_axil_rdata.eq(port.r.payload.data),
        top.s_axil_rresp.eq(port.r.payload.response),
        top.s_axil_rvalid.eq(port.r.valid),
        port.r.ready.eq(top.s_axil_rready),
    ]


def _address_ports(channel: str, config: BusConfig, id_bits: int) -> dict[str, object]:
    """The address channel ``ar`` or ``aw`` of AXI4."""
    widths = {
        "id": id_bits,
        "addr": config.address,
        "len": 8,
        "size": 3,
        "burst": 2,
        "lock": 1,
        "cache": 4,
        "prot": 3,
        "qos": 4,
        "valid": 1,
    }
    ports: dict[str, object] = {f"m_axi_{channel}{name}": Out(n) for name, n in widths.items()}
    return ports | {f"m_axi_{channel}ready": In(1)}


def _connect_address(
    m: Module, top: Any, channel: str, bursts: stream.Interface, words: Value, address: Value
) -> None:
    """Connect the ports of :func:`_address_ports` to bursts: ``words`` from ``address``."""
    low = top.config.word_bits
    values = {
        "id": bursts.payload.id,
        "addr": address << low,
        "len": words - 1,
        "size": low,
        "burst": _INCR,
        "cache": _CACHE,
        "prot": _PROT,
        "valid": bursts.valid,
    }
    m.d.comb += [
        *(getattr(top, f"m_axi_{channel}{name}").eq(value) for name, value in values.items()),
        bursts.ready.eq(getattr(top, f"m_axi_{channel}ready")),
    ]


def read_ports(config: DmaConfig) -> dict[str, object]:
    """The read channels of AXI4."""
    return _address_ports("ar", config, config.id_bits) | {
        "m_axi_rid": In(config.id_bits),
        "m_axi_rdata": In(8 * config.bus),
        "m_axi_rresp": In(2),
        "m_axi_rlast": In(1),
        "m_axi_rvalid": In(1),
        "m_axi_rready": Out(1),
    }


def connect_reads(m: Module, top: Any, reads: ReadMaster) -> None:
    """Connect the ports of :func:`read_ports`."""
    burst = reads.ar.payload.burst
    _connect_address(m, top, "ar", reads.ar, burst.words, burst.address)
    m.d.comb += [
        reads.r.data.eq(top.m_axi_rdata),
        reads.r.id.eq(top.m_axi_rid),
        reads.r.resp.eq(top.m_axi_rresp),
        reads.r_valid.eq(top.m_axi_rvalid),
        top.m_axi_rready.eq(1),
    ]


def write_ports(config: StoreConfig) -> dict[str, object]:
    """The write channels of AXI4."""
    return _address_ports("aw", config, 1) | {
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


def connect_writes(m: Module, top: Any, store: Any) -> None:
    """Connect the ports of :func:`write_ports` to a store."""
    aw, w, b = store.aw, store.w, store.b
    _connect_address(m, top, "aw", aw, aw.payload.words, aw.payload.address)
    m.d.comb += [
        top.m_axi_wdata.eq(w.payload.data),
        top.m_axi_wstrb.eq((1 << store.config.bus) - 1),
        top.m_axi_wlast.eq(w.payload.last),
        top.m_axi_wvalid.eq(w.valid),
        w.ready.eq(top.m_axi_wready),
        b.payload.id.eq(top.m_axi_bid),
        b.payload.resp.eq(top.m_axi_bresp),
        b.valid.eq(top.m_axi_bvalid),
        top.m_axi_bready.eq(b.ready),
    ]
