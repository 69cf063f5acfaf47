"""The SoC for a ULX3S board: writes Verilog, pins and clocks for Yosys and nextpnr.

Runs in an environment with LiteX and LiteX-Boards; ``fpga.py`` calls it. LiteX-Boards has the
board's clocks and SDRAM.
"""

import argparse
from pathlib import Path

from litex.soc.integration.builder import Builder
from litex_boards.targets.radiona_ulx3s import BaseSoC
from soc import TIMEOUT, Devices  # type: ignore[import-not-found]


class Board(Devices, BaseSoC):
    """The SoC; its boot memory can be written, so that synthesis keeps it without a program."""

    def __init__(self, tops: Path, clock: int) -> None:
        super().__init__(
            device="LFE5U-85F",
            sys_clk_freq=clock,
            with_led_chaser=False,
            cpu_type="vexriscv",
            integrated_rom_size=0x8000,
            integrated_rom_mode="rw",
            integrated_sram_size=0x2000,
            bus_timeout=TIMEOUT,
        )
        self.add_devices(tops)


def main() -> None:
    """Write the files of a build; run no tool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tops", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--clock", type=int, required=True, help="Hz")
    args = parser.parse_args()
    builder = Builder(
        Board(args.tops.resolve(), args.clock), output_dir=str(args.out), compile_software=False
    )
    builder.build(run=False, build_name="board")


if __name__ == "__main__":
    main()
