"""A LiteX SoC for simulation: VexRiscv, RAM, our decoder and encoder, and DMAs for their values.

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
from litex.soc.cores.dma import WishboneDMAReader, WishboneDMAWriter
from litex.soc.integration.builder import Builder
from litex.soc.integration.common import get_mem_data
from litex.soc.integration.soc import SoCRegion
from litex.soc.integration.soc_core import SoCCore
from litex.soc.interconnect import axi, stream, wishbone
from litex.soc.interconnect.csr import CSRStorage
from migen import ClockSignal, Finish, If, Instance, Mux, ResetSignal, Signal
from migen.genlib.io import CRG

CLOCK = int(1e6)
REGISTERS = {"decoder": 0x9000_0000, "encoder": 0x9000_1000}
TIMEOUT = 64
"""Cycles after which LiteX's bus ends an access that no slave answers."""
ERRORS = {"slverr": 0x5000_0000, "decerr": 0x6000_0000}
"""Addresses that are answered with an error; no slave is there."""

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


class Devices(SoCCore):
    """An SoC that can have decoder and encoder, and DMAs for their values."""

    def add_devices(self, tops: Path) -> None:
        """Add both; ``tops`` has a folder of ``casspec rtl`` for each."""
        self.reset_devices = CSRStorage(1, description="soft reset of decoder and encoder")
        self._take_values(self._add_device(tops, "decoder", "m_axis_values"))
        self._give_values(self._add_device(tops, "encoder", "s_axis_values"))

    def _add_device(self, tops: Path, name: str, prefix: str) -> stream.Endpoint:
        """Put a top between its register port, its interrupt and the bus; return its values."""
        [source] = (tops / name).glob("*.json")
        described = json.loads(source.read_text())
        for file in described["files"]:
            self.platform.add_source(str(source.with_name(file)))
        ports = {port["name"]: (port["direction"], port["width"]) for port in described["ports"]}
        reads = "m_axi_rdata" in ports
        width = ports["m_axi_rdata" if reads else "m_axi_wdata"][1]
        identity = ports["m_axi_arid" if reads else "m_axi_awid"][1]
        lite = axi.AXILiteInterface(data_width=32, address_width=32)
        full = axi.AXIInterface(data_width=width, address_width=32, id_width=identity)
        values = stream.Endpoint([("data", ports[f"{prefix}_tdata"][1])])
        irq = Signal()
        signals = {
            "clk": ClockSignal(),
            "rst": ResetSignal(),
            "core_rst": self.reset_devices.storage,  # alone: the bus is drained meanwhile
            "quiesce_request": 0,
            "quiesce_done": Signal(),
            "irq": irq,
            **_channel_signals(ports, "s_axil", lite),
            **_channel_signals(ports, "m_axi", full),
            **{
                f"{prefix}_t{end}": getattr(values, end)
                for end in ("data", "valid", "ready", "last")
            },
        }
        if reads:
            signals["m_axi_rresp"] = self._answer(full.ar)
        else:
            signals["m_axi_bresp"] = self._answer(full.aw)
            signals[f"{prefix}_tkeep"] = (1 << ports[f"{prefix}_tkeep"][1]) - 1  # whole beats
        self.specials += Instance(source.stem, **_cut(signals, ports))
        region = SoCRegion(origin=REGISTERS[name], size=0x1000, cached=False)
        self.bus.add_slave(name, lite, region)
        self.bus.add_master(name, master=full)
        self.irq.add(name)
        self.comb += self.cpu.interrupt[self.irq.locs[name]].eq(irq)
        return values

    def _answer(self, request: stream.Endpoint) -> Signal:
        """Return the response to the last burst: an error at the addresses of ``ERRORS``.

        LiteX's bridges to Wishbone take one burst at a time and answer OKAY, also to an access that
        timed out.
        """
        answer, window = Signal(2), request.addr[28:]
        refused = Mux(window == ERRORS["decerr"] >> 28, axi.RESP_DECERR, axi.RESP_OKAY)
        response = Mux(window == ERRORS["slverr"] >> 28, axi.RESP_SLVERR, refused)
        self.sync += If(request.valid & request.ready, answer.eq(response))
        return answer

    def _take_values(self, values: stream.Endpoint) -> None:
        """Write the decoder's values to memory, beat behind beat."""
        bus = wishbone.Interface(data_width=32, adr_width=30)
        self.writer = WishboneDMAWriter(bus, endianness="big", with_csr=True)  # big: as it comes
        self.narrow = stream.Converter(len(values.data), 32)
        self.comb += [
            values.connect(self.narrow.sink, omit={"last"}),
            self.narrow.source.connect(self.writer.sink, omit={"last"}),
        ]
        self.bus.add_master("writer", master=bus)

    def _give_values(self, values: stream.Endpoint) -> None:
        """Read the encoder's values from memory; a transfer is a packet."""
        bus = wishbone.Interface(data_width=32, adr_width=30)
        self.reader = WishboneDMAReader(bus, endianness="big", with_csr=True)
        self.wide = stream.Converter(32, len(values.data))
        self.comb += [
            self.reader.source.connect(self.wide.sink),
            self.wide.source.connect(values),
        ]
        self.bus.add_master("reader", master=bus)


class Soc(Devices):
    """The SoC for simulation, with the devices in ``tops``."""

    def __init__(self, tops: Path, ram: int, firmware: list, memory: list) -> None:
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
            integrated_main_ram_size=ram,
            integrated_main_ram_init=memory,
            bus_timeout=TIMEOUT,
        )
        self.crg = CRG(platform.request("sys_clk"))
        self.finish = CSRStorage(1, description="end the simulation")
        self.sync += If(self.finish.re, Finish())
        for name, address in ERRORS.items():
            self.add_constant(f"{name}_BASE", address)
        self.add_devices(tops)


def _channel_signals(ports: dict, prefix: str, bus: object) -> dict:
    """Return the signals of the bus channels that a top has, by port."""
    return {
        f"{prefix}_{channel}{name}": getattr(getattr(bus, channel), name)
        for channel, names in _FIELDS.items()
        for name in ("valid", "ready", "last", *names)
        if f"{prefix}_{channel}{name}" in ports
    }


def _cut(signals: dict, ports: dict) -> dict:
    """Return signals by the ports of an instance; addresses of registers lose their high bits."""
    return {
        f"{ports[name][0][0]}_{name}": signal[: ports[name][1]]
        if name in ("s_axil_awaddr", "s_axil_araddr")
        else signal
        for name, signal in signals.items()
    }


_ADDRESS = ("addr", "prot", "id", "len", "size", "burst", "lock", "cache", "qos")
_FIELDS = {
    "aw": _ADDRESS,
    "w": ("data", "strb"),
    "b": ("resp", "id"),
    "ar": _ADDRESS,
    "r": ("data", "resp", "id"),
}


def main() -> None:
    """Write headers, or build and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tops", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ram", type=int, required=True)
    parser.add_argument("--firmware", type=Path)
    parser.add_argument("--memory", type=Path)
    args = parser.parse_args()
    words = [
        get_mem_data(str(path), data_width=32, endianness="little") if path else []
        for path in (args.firmware, args.memory)
    ]
    soc = Soc(args.tops.resolve(), args.ram, *words)
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
