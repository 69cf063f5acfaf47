"""A LiteX SoC for simulation: VexRiscv, RAM, our decoders, and a writer for their values.

Runs in an environment with LiteX, not in the project's. ``run.py`` calls it twice: without a
firmware it writes the addresses of peripherals as C headers; with one it builds and runs.
"""

import argparse
import json
import os
from pathlib import Path

from litex.build.generic_platform import Pins, Subsignal
from litex.build.sim import SimPlatform
from litex.build.sim.config import SimConfig
from litex.soc.cores.dma import WishboneDMAWriter
from litex.soc.integration.builder import Builder
from litex.soc.integration.common import get_mem_data
from litex.soc.integration.soc import SoCRegion
from litex.soc.integration.soc_core import SoCCore
from litex.soc.interconnect import axi, stream, wishbone
from litex.soc.interconnect.csr import CSRStatus, CSRStorage
from migen import ClockSignal, Finish, If, Instance, Mux, ResetSignal, Signal
from migen.genlib.io import CRG

CLOCK = int(1e6)
REGISTERS = 0x9000_0000
RAM = 1 << 20
TIMEOUT = 64
"""Cycles after which LiteX's bus ends an access that no slave answers."""

_BYTE_STREAM = [
    Subsignal(f"{way}_{name}", Pins(width))
    for way in ("source", "sink")
    for name, width in (("valid", 1), ("ready", 1), ("data", 8))
]
_IO = [
    ("sys_clk", 0, Pins(1)),
    ("sys_rst", 0, Pins(1)),
    ("serial", 0, *_BYTE_STREAM),
]


class Soc(SoCCore):
    """The SoC; ``decoder`` is the folder of ``casspec rtl``, with one top."""

    def __init__(self, decoder: Path, firmware: list, memory: list) -> None:
        platform = SimPlatform("SIM", _IO)
        super().__init__(
            platform,
            clk_freq=CLOCK,
            cpu_type="vexriscv",
            uart_name="sim",
            ident="",
            integrated_rom_size=0x8000,
            integrated_rom_init=firmware,
            integrated_sram_size=0x2000,
            integrated_main_ram_size=RAM,
            integrated_main_ram_init=memory,
            bus_timeout=TIMEOUT,
        )
        self.crg = CRG(platform.request("sys_clk"))
        self.flagged = CSRStatus(32, description="flagged packets")
        self.reset_decoder = CSRStorage(1, description="hold the decoder in reset")
        self.finish = CSRStorage(1, description="end the simulation")
        self.sync += If(self.finish.re, Finish())
        self._add_decoder(platform, decoder)

    def _add_decoder(self, platform: SimPlatform, folder: Path) -> None:
        """Put the decoder between its register port, the bus and the writer of values."""
        [source] = folder.glob("*.v")
        platform.add_source(str(source))
        ports = {
            port["name"]: (port["direction"], port["width"])
            for port in json.loads(source.with_suffix(".ports.json").read_text())
        }
        lite = axi.AXILiteInterface(data_width=32, address_width=32)
        width, identity = ports["m_axi_rdata"][1], ports["m_axi_rid"][1]
        full = axi.AXIInterface(data_width=width, address_width=32, id_width=identity)
        values = stream.Endpoint([("data", ports["m_axis_values_tdata"][1])])
        last, user, irq = Signal(), Signal(), Signal()
        answer = self._answer(full)
        signals = {
            "clk": ClockSignal(),
            "rst": ResetSignal() | self.reset_decoder.storage,
            "irq": irq,
            "m_axis_values_tdata": values.data,
            "m_axis_values_tvalid": values.valid,
            "m_axis_values_tready": values.ready,
            "m_axis_values_tlast": last,
            "m_axis_values_tuser": user,
        }
        for prefix, bus in (("s_axil", lite), ("m_axi", full)):
            for channel in ("aw", "w", "b", "ar", "r"):
                endpoint = getattr(bus, channel)
                for name in ("valid", "ready", "last", *_FIELDS[channel]):
                    port = f"{prefix}_{channel}{name}"
                    if port in ports:
                        signals[port] = getattr(endpoint, name)
        signals["m_axi_rresp"] = answer
        self.specials += Instance(source.stem, **_cut(signals, ports))
        region = SoCRegion(origin=REGISTERS, size=0x1000, cached=False)
        self.bus.add_slave("cassandra", lite, region)
        self.bus.add_master("cassandra", master=full)
        self.irq.add("cassandra")
        self.comb += self.cpu.interrupt[self.irq.locs["cassandra"]].eq(irq)
        ends = values.valid & values.ready & last
        self.sync += If(ends & user, self.flagged.status.eq(self.flagged.status + 1))
        self._add_writer(values)

    def _answer(self, bus: axi.AXIInterface) -> Signal:
        """Return the response of a read: an error at 0x5000_0000 and at 0x6000_0000.

        No slave is there, and LiteX's bridges to Wishbone answer OKAY to an access that timed out.
        """
        answer, window = Signal(2), bus.ar.addr[28:]
        refused = Mux(window == 6, axi.RESP_DECERR, axi.RESP_OKAY)
        response = Mux(window == 5, axi.RESP_SLVERR, refused)
        self.sync += If(bus.ar.valid & bus.ar.ready, answer.eq(response))
        return answer

    def _add_writer(self, values: stream.Endpoint) -> None:
        """Write values to memory, beat behind beat."""
        bus = wishbone.Interface(data_width=32, adr_width=30)
        self.writer = WishboneDMAWriter(bus, with_csr=True)
        self.converter = stream.Converter(len(values.data), 32)
        self.comb += [
            values.connect(self.converter.sink, omit={"last"}),
            self.converter.source.connect(self.writer.sink, omit={"last"}),
        ]
        self.bus.add_master("writer", master=bus)


def _cut(signals: dict, ports: dict) -> dict:
    """Return signals by the ports of an instance; addresses of registers lose their high bits."""
    return {
        f"{ports[name][0][0]}_{name}": signal[: ports[name][1]]
        if name in ("s_axil_awaddr", "s_axil_araddr")
        else signal
        for name, signal in signals.items()
    }


_FIELDS = {
    "aw": ("addr", "prot"),
    "w": ("data", "strb"),
    "b": ("resp",),
    "ar": ("addr", "prot", "id", "len", "size", "burst", "lock", "cache", "qos"),
    "r": ("data", "resp", "id"),
}


def main() -> None:
    """Write headers, or build and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decoder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--firmware", type=Path)
    parser.add_argument("--memory", type=Path)
    args = parser.parse_args()
    words = [
        get_mem_data(str(path), data_width=32, endianness="little") if path else []
        for path in (args.firmware, args.memory)
    ]
    soc = Soc(args.decoder.resolve(), *words)
    builder = Builder(
        soc,
        output_dir=str(args.out),
        compile_software=False,
        compile_gateware=args.firmware is not None,
    )
    config = SimConfig()
    config.add_clocker("sys_clk", freq_hz=CLOCK)
    config.add_module("serial2console", "serial")
    builder.build(
        sim_config=config,
        interactive=False,
        run=args.firmware is not None,
        jobs=os.cpu_count(),
        opt_level="O1",
    )


if __name__ == "__main__":
    main()
