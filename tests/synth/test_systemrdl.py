"""The exported SystemRDL, pages and constraints, as the tools that read them see them."""

from __future__ import annotations

import functools
import re
import sys
import tkinter
from pathlib import Path
from typing import Any

import pytest
from systemrdl import RDLCompileError

from cassandra_spec.golden import CassandraError
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import DmaConfig, StoreConfig
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.rtl.dma.encoder_dma import CassandraEncoderDma
from cassandra_spec.rtl.dma.registers import Field, Register, described_for, field_of
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.synth import handoff
from cassandra_spec.synth.export import describe, export, ports_of
from cassandra_spec.synth.interface.systemrdl import systemrdl
from cassandra_spec.verif.dma.description import Described, read_description

DECODER = DmaConfig(decoder=DecoderConfig(lanes=8), decoders=2, queue=4)
ENCODER = StoreConfig(encoder=EncoderConfig(lanes=8, vector=64), bus=32)


@functools.cache
def top_of(name: str) -> CassandraDma | CassandraEncoderDma:
    return CassandraDma(DECODER) if name == "decode" else CassandraEncoderDma(ENCODER)


def described(text: str, folder: Path) -> dict[str, Described]:
    path = folder / "map.rdl"
    path.write_text(text)
    return {register.name: register for register in read_description(path)}


@pytest.mark.parametrize("name", ["decode", "encode"])
def test_the_compiler_reads_the_registers_of_the_table(name: Any, tmp_path: Path) -> None:
    found = described(describe(top_of(name)), tmp_path)
    table = described_for(name)
    assert list(found) == [register.name for register in table]
    for register in table:
        other = found[register.name]
        assert (other.address, other.whole) == (register.offset, register.whole)
        assert [(field.mask, field.access, field.clears) for field in other.fields] == [
            (
                ((1 << field.width) - 1) << low,
                {"ro": "r", "wo": "w"}.get(field.access, "rw"),
                field.access == "w1c",
            )
            for field, low in register.places()
        ]


@pytest.mark.parametrize("name", ["decode", "encode"])
def test_a_description_has_no_field_of_the_other_top(name: Any) -> None:
    places = {
        f"{register.name}.{field.name}": low
        for register in described_for(name)
        for field, low in register.places()
    }
    encodes = {"control.fresh", "status.discards", "start.follow", "error.encode_miss"}
    assert encodes & places.keys() == (encodes if name == "encode" else set())
    assert ("error.rank" in places) == (name == "decode")
    for place, low in places.items():
        assert field_of(*place.split("."))[1] == low, "no bit moves"


def test_constants_are_those_of_the_configuration(tmp_path: Path) -> None:
    found = described(describe(top_of("decode")), tmp_path)
    decoder = found["decoder"].reset
    assert [decoder >> low & 0xFF for low in (0, 16, 24)] == [8, 16, 2]
    assert found["fetch"].reset >> 8 & 0xFF == 4
    assert found["id"].reset == 0x43415353
    assert (found["status"].reset, found["status"].known) == (0, 0xFFFF_FFFF)


def test_a_result_has_a_value_only_when_there_is_one(tmp_path: Path) -> None:
    found = described(describe(top_of("encode")), tmp_path)
    assert found["version"].reset >> 24 == 1
    assert found["result_saturated"].known == 0
    known = found["result"].known
    assert known & 0x0000_000F == 0x1


def test_an_upper_half_names_its_lower_half() -> None:
    text = describe(top_of("encode"))
    assert "count_words_high -> latched_by = count_words_low;" in text
    assert "speculation_base_high ->" not in text


def test_the_model_of_a_write_differs_by_access(tmp_path: Path) -> None:
    fields = tuple(
        Field(name=f"of_{access}", width=8, access=access, meaning='say "\\n"')
        for access in ("rw", "w1c", "ro", "wo")
    )
    register = Register(name="every", offset=0, meaning="m", fields=fields)
    one = described(systemrdl("m", [register], {"every_of_ro": 7}), tmp_path)["every"]
    assert one.reset == 0x0007_0000
    assert one.acting == 0xFF00_0000
    assert one.written(0x0007_FF00, 0xFFFF_0FA5, 0b1111) == 0x0007_F0A5
    assert one.written(0x0007_FF00, 0xFFFF_0FA5, 0b0001) == 0x0007_FFA5
    whole = Register(name="every", offset=0, meaning="m", fields=fields, whole=True)
    one = described(systemrdl("m", [whole], {}), tmp_path)["every"]
    assert one.written(0xFF00, 0xFFFF_0FA5, 0b0011) == 0xFF00
    assert one.written(0xFF00, 0xFFFF_0FA5, 0b1111) == 0xF0A5


def test_the_compiler_refuses_registers_that_overlap(tmp_path: Path) -> None:
    field = Field(name="f", width=1, access="rw", meaning="")
    twice = [Register(name=name, offset=8, meaning="", fields=(field,)) for name in "ab"]
    with pytest.raises(RDLCompileError):
        described(systemrdl("m", twice, {}), tmp_path)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("rtl"), ENCODER, period=0.8, pages=True)


def test_the_pages_name_every_register(exported: Path) -> None:
    folder, name = exported.parent / "regs", ENCODER.module_name
    endings = [".rdl", *(suffix for suffix, _ in handoff.PAGES.values())]
    assert {path.name for path in folder.iterdir()} == {f"{name}{end}" for end in endings}
    names = [register.name for register in described_for("encode")]
    markdown = (folder / f"{name}.md").read_text()
    uvm = (folder / f"{name}_uvm_pkg.sv").read_text()
    pages = "".join(path.read_text() for path in (folder / f"{name}_html").rglob("*.html"))
    for each in names:
        assert f"### {each} register" in markdown
        assert f"add_reg(this.{each}," in uvm
        assert each.upper() in pages
    assert '"W1C"' in uvm


def test_register_tests_leave_out_what_they_cannot_predict(exported: Path) -> None:
    name = ENCODER.module_name
    uvm = (exported.parent / "regs" / f"{name}_uvm_pkg.sv").read_text()
    left_out: dict[str, set[str]] = {}
    for register, test in re.findall(
        r'set\(\{"REG::", this\.(\w+)\.get_full_name\(\)\}, "(\w+)", 1, this\);', uvm
    ):
        left_out.setdefault(register, set()).add(test)
    writing = {"NO_REG_ACCESS_TEST", "NO_REG_BIT_BASH_TEST", "NO_REG_SHARED_ACCESS_TEST"}
    assert left_out["start"] == left_out["codebook"] == {"NO_REG_TESTS"}  # act when written
    assert (
        left_out["status"] == left_out["count_cycles_low"] == writing
    )  # the hardware changes them
    assert left_out["result_saturated"] == {"NO_REG_TESTS"}  # read anything after reset
    assert not left_out.keys() & {"id", "encoder", "irq_enable", "speculation_length"}


def test_pages_that_are_there_are_replaced(exported: Path) -> None:
    folder, name = exported.parent / "regs", ENCODER.module_name
    (folder / f"{name}_html" / "old").touch()
    (folder / f"{name}.md").write_text("old")
    handoff.register_pages(folder, name, {})
    assert not (folder / f"{name}_html" / "old").exists()
    assert "### id register" in (folder / f"{name}.md").read_text()


def test_a_description_that_peakrdl_cannot_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.rdl").write_text("addrmap x {")
    with pytest.raises(CassandraError, match="must be readable for peakrdl html, not"):
        handoff.register_pages(tmp_path, "bad", {})
    assert [path.name for path in tmp_path.iterdir()] == ["bad.rdl"]


def test_without_peakrdl_there_are_no_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peakrdl", None)
    (tmp_path / "top.rdl").write_text("addrmap top {}")
    handoff.register_pages(tmp_path, "top", {})
    assert [path.name for path in tmp_path.iterdir()] == ["top.rdl"]


def run_sdc(text: str, before: str = "") -> dict[str, tuple[str, ...]]:
    """Run constraints in Tcl; returns the words of each command but ``-clock``, by its name."""
    calls: dict[str, tuple[str, ...]] = {}
    tcl = tkinter.Tcl()
    tcl.createcommand("get_ports", lambda names: names)
    for name in ("create_clock", "set_input_delay", "set_output_delay"):
        tcl.createcommand(name, lambda *words, name=name: calls.update({name: words}))
    tcl.eval(before + "\n" + text)
    return calls


def test_the_constraints_name_every_port_once(exported: Path) -> None:
    calls = run_sdc(exported.with_suffix(".sdc").read_text())
    assert calls["create_clock"] == ("-name", "clk", "-period", "0.8", "clk")
    assert float(calls["set_input_delay"][0]) == pytest.approx(0.24)
    constrained = {
        f"set_{way}_delay": [
            name if width == 1 else f"{name}[*]"
            for name, (direction, width) in ports_of(top_of("encode")).items()
            if direction == way and name != "clk"
        ]
        for way in ("input", "output")
    }
    assert {name: calls[name][-1].split() for name in constrained} == constrained


def test_variables_of_the_constraints_can_be_set_before(exported: Path) -> None:
    text = exported.with_suffix(".sdc").read_text()
    calls = run_sdc(text, "set cassandra_period 5; set cassandra_output_fraction 0.5")
    assert calls["create_clock"][3] == "5"
    assert float(calls["set_output_delay"][0]) == 2.5
    assert float(calls["set_input_delay"][0]) == 1.5


@pytest.mark.parametrize("period", [0, -1.0, float("nan"), float("inf")])
def test_a_period_that_is_none_is_refused(period: float, tmp_path: Path) -> None:
    with pytest.raises(CassandraError, match="period must be a number of ns above 0, not"):
        export(tmp_path, DecoderConfig(lanes=8, schemes=("mx",)), period=period)
    assert not list(tmp_path.iterdir())
