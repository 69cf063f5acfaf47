"""docs/hardware/integration.md: the commands, the worked example and the code of the page work."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from ctypes import byref, c_uint64
from pathlib import Path
from typing import Any

import pytest
from amaranth.sim import Simulator

from cassandra_spec.golden import Format, encode
from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import DmaConfig
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.rtl.dma.registers import REGISTERS, register_of
from cassandra_spec.synth.export import export
from cassandra_spec.verif.dma.firmware.driver import FLAGS, Fault, Status, build, bus_of
from tests.drivers.test_driver import Model
from tests.golden.test_worked_example import PATTERNS
from tests.synth.test_systemrdl import run_sdc

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/hardware/integration.md").read_text()
REFERENCE = (ROOT / "docs/hardware/dma.md").read_text()
CONFIG = DmaConfig(decoder=DecoderConfig(lanes=8))
ENCODER_PAGE = (ROOT / "docs/hardware/integrate-encoder.md").read_text()
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


@pytest.mark.parametrize("page", [PAGE, ENCODER_PAGE], ids=["decoder", "encoder"])
def test_the_code_on_the_page_compiles(page: str, tmp_path: Path) -> None:
    [code] = re.findall(r"```c\n(.*?)```", page, re.S)
    (tmp_path / "page.c").write_text(code)
    command = ["gcc", *FLAGS, f"-I{ROOT / 'drivers'}", "-fsyntax-only", str(tmp_path / "page.c")]
    subprocess.run(command, check=True, capture_output=True)


class Device(Model):
    """Registers of a device that decodes a queued segment when its status is read."""

    def __init__(self) -> None:
        super().__init__()
        self.decoded: list[dict[str, int]] = []

    def _value(self, name: str) -> int:
        if name == "status" and self.queue:
            self.decoded.append(self.end())
        return super()._value(name)


def test_the_code_on_the_page_writes_what_the_page_lists(tmp_path: Path) -> None:
    """The code decodes the example: its codebook and descriptor are those of the table."""
    [code] = re.findall(r"```c\n(.*?)```", PAGE, re.S)
    (tmp_path / "page.c").write_text(code)
    driver = ROOT / "drivers/cassandra.c"
    include = f"-I{driver.parent}"
    library = build(tmp_path / "page.c", tmp_path / "page.so", include, str(driver))
    device, fault = Device(), Fault()
    bus = bus_of(device.read, device.write)
    speculation, verification = (c_uint64(base) for base in memory())
    decode = ctypes.CDLL(str(library)).decode
    assert decode(byref(bus), speculation, verification, byref(fault)) == Status.OK
    names = {register.offset: register.name for register in REGISTERS}
    written = [(names[offset], int(value, 16)) for offset, value in rows("example-writes")]
    assert device.codebook == [value for name, value in written if name == "codebook"]
    descriptor = {n: v for n, v in written if n not in ("codebook", "irq_enable", "control")}
    assert descriptor.keys() >= {"command", "speculation_base_low", "start"}
    [segment] = device.decoded
    assert {name: segment[name] for name in descriptor} == descriptor


def test_the_job_on_the_page_is_that_of_the_packed_file() -> None:
    """Each field is what golden's format, directory and codebook of section 9.1 say."""
    fields = dict(re.findall(r"\.(\w+) = (\w+)[,;]", PAGE))
    packed = encode(PATTERNS, Format(beat=8, group=8, segment=16), codebook=(126, 127, 125))
    fmt = packed.format
    numbers = ("values", "segment_values", "scheme", "truncated", "log2_group", "segments")
    assert [int(fields[name]) for name in numbers] == [
        packed.count,
        fmt.segment,
        SCHEMES.index(fmt.scheme),
        fmt.truncated,
        fmt.group.bit_length() - 1,
        len(packed.directory),
    ]
    assert fields["midpoint"] == str(fmt.fill == "midpoint").lower()
    assert fields["coded"] == str(fmt.pruned_exponent == "coded").lower()
    [entry] = re.findall(r"directory\[\] = \{\{(.*?)\}\}", PAGE)
    assert [[int(number) for number in entry.split(",")]] == packed.directory.tolist()
    arrays = (packed.speculation.tobytes(), packed.verification.tobytes())
    assert tuple(memory().values()) == arrays


def test_registers_that_are_named_exist() -> None:
    named = set(re.findall(r"`([A-Z][A-Z_]+)(?:\.(\w+))?`", PAGE + REFERENCE))
    ours = {register.name.upper(): register for register in REGISTERS}
    pairs = {name.rsplit("_", 1)[0] for name in ours if name.endswith("_LOW")}
    foreign = {"RREADY", "RLAST", "ARCACHE", "ARPROT", "NO_REG_TESTS"}
    for name, field in named:
        assert name in ours or name in pairs or name in foreign, name
        if field and name in ours:
            fields = {one.name for one in register_of(name.lower()).fields}
            assert field in fields, f"{name}.{field}"


@pytest.mark.slow
def test_the_commands_of_the_tutorial_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = run_page(PAGE, tmp_path)
    _, _, _, lint, _, _, simulation, withdrawn, registers = printed
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


@pytest.mark.slow
def test_the_commands_of_the_encoders_tutorial_run(tmp_path: Path) -> None:
    _, _, exported, lint, compiled = run_page(ENCODER_PAGE, tmp_path)
    assert exported.strip().endswith(".v")
    said = [line for line in (lint + compiled).splitlines() if line]
    assert [line for line in said if not line.startswith("- ")] == []  # Verilator's own report


def run_page(page: str, folder: Path) -> list[str]:
    """Run the indented lines of a page as they are printed; return the output of each.

    They run in one new shell, in a folder with what a checkout has, with the PATH of a system.
    Each must succeed, but the one that shows a fault.
    """
    for name in ("drivers", "examples"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    lines = commands(page)
    marked = "".join(
        f"{line}\ncode=$?; echo; echo END {place} $code\n" for place, line in enumerate(lines)
    )
    run = subprocess.run(
        ["env", "-i", "HOME=/nonexistent", "PATH=/usr/local/bin:/usr/bin:/bin", "bash"],
        cwd=folder,
        input=f"exec 2>&1\n{marked}",
        capture_output=True,
        text=True,
        check=False,
    )
    parts = re.split(r"\nEND (\d+) (\d+)\n", run.stdout)
    outputs, codes = parts[:-1:3], parts[2::3]
    failed = [line for line, code in zip(lines, codes, strict=True) if code != "0"]
    assert failed == [line for line in lines if "+withdraw" in line], run.stdout[-3000:]
    return outputs


def commands(page: str) -> list[str]:
    """Return the indented lines of a page, but those of marked examples and of code."""
    text = re.sub(r"```.*?```|<!-- ([\w-]+) -->\n.*?\n\n", "", page, flags=re.S)
    return re.findall(r"^    (\S.*)$", text, re.M)


def test_every_command_of_the_pages_is_run() -> None:
    """The lines above are the pages' own: a name that begins one is a program."""
    programs = {line.split()[0] for page in (PAGE, ENCODER_PAGE) for line in commands(page)}
    known = {".", "eval", "casspec", "verilator", "cc", "peakrdl", "build/ip/sim/Vtestbench"}
    assert programs == known


@pytest.mark.slow
def test_an_older_verilator_has_waivers_of_its_own(tmp_path: Path) -> None:
    """Debian's 5.006 knows fewer rules; an older or newer one on the system's PATH is left out."""
    program = shutil.which("verilator", path="/usr/bin")
    version = (
        program and subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    )
    if not version or " 5.006 " not in version:
        pytest.skip("Verilator 5.006 is not there: apt install verilator (Debian 12)")
    source = export(tmp_path, DecoderConfig(lanes=8, schemes=("mx",)))
    name = source.stem
    waivers, listed = source.with_name(f"{name}_v5006.vlt"), source.with_suffix(".f")
    command = [program, "--lint-only", "-Wall", "--top-module", name, waivers, "-F", listed]
    run = subprocess.run(command, capture_output=True, text=True, check=False)  # type: ignore[arg-type]
    assert (run.returncode, run.stderr) == (0, "")
