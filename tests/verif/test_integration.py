"""docs/hardware/integration.md: the commands, the worked example and the code of the page work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from amaranth.sim import Simulator

from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import DmaConfig
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.rtl.dma.registers import REGISTERS, register_of
from cassandra_spec.verif.dma.firmware.driver import FLAGS
from cassandra_spec.verif.tools.toolchain import verilator_binary, verilator_environment
from tests.synth.test_systemrdl import run_sdc

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/hardware/integration.md").read_text()
REFERENCE = (ROOT / "docs/hardware/dma.md").read_text()
CONFIG = DmaConfig(decoder=DecoderConfig(lanes=8))
PROGRAMS = "casspec|verilator|cc|peakrdl|build/ip/sim/Vtestbench"
SUPERBLOCK = 128


def after(mark: str) -> str:
    """Return the text behind a mark, up to the next empty line."""
    return PAGE.split(f"<!-- {mark} -->\n")[1].split("\n\n")[0]


def rows(mark: str) -> list[tuple[int, str]]:
    found = re.findall(r"^\| `0x(\w+)` \| `([^`]+)` \|", after(mark), re.M)
    return [(int(first, 16), second) for first, second in found]


def memory() -> dict[int, bytes]:
    return {
        base: bytes.fromhex(text).ljust(SUPERBLOCK, b"\0") for base, text in rows("example-memory")
    }


class Bus:
    """Register writes one by one, bursts one by one, and what leaves."""

    def __init__(self) -> None:
        self.writes = [(offset, int(value, 16)) for offset, value in rows("example-writes")]
        self.beats: list[tuple[int, int, bool]] = []  # data, ID, last
        self.packet: list[dict[str, int]] = []
        self.interrupted = False

    def drive(self, ctx: Any, top: Any) -> None:
        offset, value = self.writes[0] if self.writes else (0, 0)
        for name, number in {
            "s_axil_awaddr": offset,
            "s_axil_wdata": value,
            "s_axil_wstrb": 15,
            "s_axil_awvalid": int(bool(self.writes)),
            "s_axil_wvalid": int(bool(self.writes)),
            "s_axil_bready": 1,
            "m_axi_arready": int(not self.beats),
            "m_axi_rvalid": int(bool(self.beats)),
            "m_axis_values_tready": 1,
        }.items():
            ctx.set(getattr(top, name), number)
        if self.beats:
            data, identity, last = self.beats[0]
            ctx.set(top.m_axi_rdata, data)
            ctx.set(top.m_axi_rid, identity)
            ctx.set(top.m_axi_rlast, last)

    def see(self, ctx: Any, top: Any) -> None:
        def get(name: str) -> int:
            return int(ctx.get(getattr(top, name)))

        if self.beats:
            self.beats.pop(0)
        elif get("m_axi_arvalid"):
            self._read(get("m_axi_araddr"), get("m_axi_arlen") + 1, get("m_axi_arid"))
        if self.writes and get("s_axil_awready"):  # address and data are taken together
            self.writes.pop(0)
        if get("m_axis_values_tvalid"):
            fields = ("tdata", "tkeep", "tlast", "tuser")
            self.packet.append({field: get(f"m_axis_values_{field}") for field in fields})
        self.interrupted |= bool(get("irq"))

    def _read(self, address: int, count: int, identity: int) -> None:
        [base] = [base for base in memory() if base <= address < base + SUPERBLOCK]
        data = memory()[base][address - base :]
        for beat in range(count):
            word = data[beat * CONFIG.bus : (beat + 1) * CONFIG.bus]
            self.beats.append((int.from_bytes(word, "little"), identity, beat == count - 1))


def test_the_worked_example_does_what_the_page_says() -> None:
    top, bus = CassandraDma(CONFIG), Bus()

    async def bench(ctx: Any) -> None:
        for _ in range(300):
            bus.drive(ctx, top)
            bus.see(ctx, top)
            await ctx.tick()

    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert [(beat["tkeep"], beat["tlast"], beat["tuser"]) for beat in bus.packet] == [
        (0xFFFF, 0, 0),
        (0x00FF, 1, 0),
    ]
    data = b"".join(beat["tdata"].to_bytes(16, "little") for beat in bus.packet)
    values = [f"{data[at + 1]:02x}{data[at]:02x}" for at in range(0, 24, 2)]
    assert values == after("example-values").split()
    assert bus.interrupted


def test_the_example_names_the_registers_that_it_writes() -> None:
    names = {register.offset: register.name.upper() for register in REGISTERS}
    table = re.findall(r"^\| `0x(\w+)` \| `0x\w+` \| `(\w+)", after("example-writes"), re.M)
    assert table
    assert all(names[int(offset, 16)] == name for offset, name in table)


def test_the_code_on_the_page_compiles(tmp_path: Path) -> None:
    [code] = re.findall(r"```c\n(.*?)```", PAGE, re.S)
    (tmp_path / "page.c").write_text(code)
    command = ["gcc", *FLAGS, f"-I{ROOT / 'drivers'}", "-fsyntax-only", str(tmp_path / "page.c")]
    subprocess.run(command, check=True, capture_output=True)


def test_registers_that_are_named_exist() -> None:
    named = set(re.findall(r"`([A-Z][A-Z_]+)(?:\.(\w+))?`", PAGE + REFERENCE))
    ours = {register.name.upper(): register for register in REGISTERS}
    pairs = {name.rsplit("_", 1)[0] for name in ours if name.endswith("_LOW")}
    foreign = {"RREADY", "RLAST", "ARCACHE", "ARPROT"}
    for name, field in named:
        assert name in ours or name in pairs or name in foreign, name
        if field and name in ours:
            fields = {one.name for one in register_of(name.lower()).fields}
            assert field in fields, f"{name}.{field}"


@pytest.mark.slow
def test_the_commands_of_the_tutorial_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("drivers", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    environment = tools(tmp_path / "bin")
    commands = re.findall(rf"^    ((?:{PROGRAMS})\b.*)$", PAGE, re.M)
    printed = [run_shell(command, tmp_path, environment) for command in commands]
    _, lint, _, _, simulation, withdrawn, registers = printed
    assert "%Warning" not in lint
    assert re.findall(r"^(?:[0-9a-f]{4}|irq)$", simulation, re.M) == [
        *after("example-values").split(),
        "irq",
    ]
    assert "s_axil_aw.valid_stays: 'assert' failed" in withdrawn
    assert "START" in registers.upper()
    monkeypatch.chdir(tmp_path)
    [constraints] = re.findall(r"```tcl\n(.*?)```", PAGE, re.S)
    calls = run_sdc(constraints)
    assert calls["create_clock"][3] == "2.0"
    assert float(calls["set_input_delay"][0]) == pytest.approx(0.8)


def tools(folder: Path) -> dict[str, str]:
    """Write the programs of the page that an environment has under other names."""
    folder.mkdir()
    python = f'exec "{sys.executable}" -m'
    programs = {
        "casspec": f"{python} cassandra_spec.commands",
        "peakrdl": f"{python} peakrdl",
        # coroutines need C++20, which a Verilator of one's own asks for by itself
        "verilator": f'exec "{verilator_binary()}" -CFLAGS -std=c++20',
    }
    for name, command in programs.items():
        (folder / name).write_text(f'#!/bin/sh\n{command} "$@"\n')
        (folder / name).chmod(0o755)
    environment = verilator_environment() | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return environment | {"PATH": f"{folder}{os.pathsep}{environment['PATH']}"}


def run_shell(command: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a line of the page, which must succeed unless it shows a fault; return its output."""
    shell = ["bash", "-c", command]
    run = subprocess.run(
        shell, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert (run.returncode == 0) == ("withdraw" not in command), (
        command,
        run.stdout[-1000:],
        run.stderr[-1000:],
    )
    return run.stdout + run.stderr
