"""Situations on the AXI ports that the proofs must reach: conditions in SystemVerilog, by name."""

from __future__ import annotations

from amaranth.lib import wiring

from cassandra_spec.rtl.dma.config import PAGE
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.rtl.dma.encoder_dma import CassandraEncoderDma

_ERRORS = {"SLVERR": 2, "DECERR": 3}


def situations(top: CassandraDma | CassandraEncoderDma) -> dict[str, str]:
    """Return the situations of a top."""
    reads = isinstance(top, CassandraDma)
    masters = ("m_axi_ar",) if reads else ("m_axi_aw", "m_axi_w")
    address, data = ("m_axi_ar", "m_axi_r") if reads else ("m_axi_aw", "m_axi_b")
    found = dict[str, str]()
    for port in (*masters, "s_axil_b", "s_axil_r"):
        found |= _handshakes(port)
    found |= _border(address, top.config.bus)
    found |= _read_errors(top.config.longest) if reads else _write_errors(data)
    return found | _strobes() | _at_once(top)


def _handshakes(port: str) -> dict[str, str]:
    valid, ready = f"{port}valid", f"{port}ready"
    waits = f"{valid} && !{ready}"
    return {
        f"{port}: reset while VALID waits": f"rst && !reset_1 && {waits}",
        f"{port}: READY before VALID": f"$past({ready} && !{valid}) && {valid} && {ready}",
        f"{port}: READY two cycles late": f"$past({waits}, 2) && $past({waits}) && {ready}",
    }


def _border(port: str, word: int) -> dict[str, str]:
    end = f"{{1'b0, {port}addr[11:0]}} + ({port}len + 13'd1) * 13'd{word}"
    taken = f"{port}valid && {port}ready"
    return {f"{port}: burst that ends at a 4 KiB border": f"{taken} && {end} == {PAGE}"}


def _read_errors(beats: int) -> dict[str, str]:
    """Return an error in each beat of the longest burst."""
    taken = "asked && m_axi_rvalid && m_axi_rready"
    return {
        f"m_axi_r: {name} in beat {beat}": f"{taken} && m_axi_rresp == {response} && beat == {beat}"
        for name, response in _ERRORS.items()
        for beat in range(beats)
    }


def _write_errors(port: str) -> dict[str, str]:
    taken = f"{port}valid && {port}ready"
    return {
        f"{port}: {name}": f"{taken} && {port}resp == {response}"
        for name, response in _ERRORS.items()
    }


def _strobes() -> dict[str, str]:
    taken = "!rst && s_axil_wvalid && s_axil_wready"
    return {f"s_axil_w: WSTRB {n:04b}": f"{taken} && s_axil_wstrb == {n}" for n in range(16)}


def _at_once(top: wiring.Component) -> dict[str, str]:
    ends = [f"s_axil_{channel}{end}" for channel in ("ar", "aw", "w") for end in ("valid", "ready")]
    return {"s_axil: read and write at once": " && ".join(["!rst", *ends])}
