"""Flat AXI names of the exported tops, and their connection to streams."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Value, ValueLike
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.wires import axi_channel, handshake
from cassandra_spec.rtl.dma.config import BusConfig, DmaConfig, StoreConfig
from cassandra_spec.rtl.dma.read_master import ReadMaster
from cassandra_spec.rtl.dma.register_file import RegisterFile
from cassandra_spec.rtl.dma.registers import ADDRESS_BITS

_CACHE = 0b0011  # normal memory, not cached on the way
_PROT = 0b010  # data, not secure, not privileged
_INCR = 0b01


def lite_ports() -> dict[str, object]:
    """Return the register port, AXI4-Lite."""
    return {
        **axi_channel("s_axil_aw", In, addr=ADDRESS_BITS, prot=3),
        **axi_channel("s_axil_w", In, data=32, strb=4),
        **axi_channel("s_axil_b", Out, resp=2),
        **axi_channel("s_axil_ar", In, addr=ADDRESS_BITS, prot=3),
        **axi_channel("s_axil_r", Out, data=32, resp=2),
    }


def connect_lite(m: Module, top: Any, port: RegisterFile, takes: ValueLike = 1) -> None:
    """Connect the ports of :func:`lite_ports` to registers; no access begins unless ``takes``."""
    for name in ("b", "r"):
        handshake(m, top, f"s_axil_{name}", getattr(port, name))
    for name in ("aw", "w", "ar"):
        valid, ready = (getattr(top, f"s_axil_{name}{end}") for end in ("valid", "ready"))
        begins = getattr(port, name)
        m.d.comb += [begins.valid.eq(valid & takes), ready.eq(begins.ready & takes)]
    m.d.comb += [
        port.aw.payload.eq(top.s_axil_awaddr),
        port.ar.payload.eq(top.s_axil_araddr),
        port.w.payload.data.eq(top.s_axil_wdata),
        port.w.payload.strobe.eq(top.s_axil_wstrb),
        top.s_axil_bresp.eq(port.b.payload),
        top.s_axil_rdata.eq(port.r.payload.data),
        top.s_axil_rresp.eq(port.r.payload.response),
    ]


def _address_ports(channel: str, config: BusConfig, id_bits: int) -> dict[str, object]:
    """Return the address channel ``ar`` or ``aw`` of AXI4."""
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
    }
    chosen: dict[str, object] = {"axi_cache": In(4), "axi_prot": In(3)} if config.attributes else {}
    return chosen | axi_channel(f"m_axi_{channel}", Out, **widths)


def _connect_address(
    m: Module, top: Any, channel: str, bursts: stream.Interface, words: Value, address: Value
) -> None:
    """Connect the ports of :func:`_address_ports` to bursts of ``words`` from ``address``."""
    low, chosen = top.config.word_bits, top.config.attributes
    values = {
        "id": bursts.payload.id,
        "addr": address << low,
        "len": words - 1,
        "size": low,
        "burst": _INCR,
        "cache": top.axi_cache if chosen else _CACHE,
        "prot": top.axi_prot if chosen else _PROT,
    }
    handshake(m, top, f"m_axi_{channel}", bursts)
    m.d.comb += [getattr(top, f"m_axi_{channel}{name}").eq(value) for name, value in values.items()]


def read_ports(config: DmaConfig) -> dict[str, object]:
    """Return the read channels of AXI4."""
    words = {"id": config.id_bits, "data": 8 * config.bus, "resp": 2, "last": 1}
    return _address_ports("ar", config, config.id_bits) | axi_channel("m_axi_r", In, **words)


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
    """Return the write channels of AXI4."""
    return {
        **_address_ports("aw", config, 1),
        **axi_channel("m_axi_w", Out, data=8 * config.bus, strb=config.bus, last=1),
        **axi_channel("m_axi_b", In, id=1, resp=2),
    }


def connect_writes(m: Module, top: Any, store: Any) -> None:
    """Connect the ports of :func:`write_ports` to a store."""
    aw, w, b = store.aw, store.w, store.b
    _connect_address(m, top, "aw", aw, aw.payload.words, aw.payload.address)
    handshake(m, top, "m_axi_w", w)
    handshake(m, top, "m_axi_b", b)
    m.d.comb += [
        top.m_axi_wdata.eq(w.payload.data),
        top.m_axi_wstrb.eq(w.payload.strobe.replicate(store.config.bus)),
        top.m_axi_wlast.eq(w.payload.last),
        b.payload.id.eq(top.m_axi_bid),
        b.payload.resp.eq(top.m_axi_bresp),
    ]
