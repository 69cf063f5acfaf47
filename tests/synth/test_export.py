"""Verilog export: whole files, names that tools can use, and ports as described."""

import dataclasses
import json
import re

import pytest
import yaml
from amaranth.sim import Simulator

import cassandra_spec
from cassandra_spec.commands.__main__ import main
from cassandra_spec.golden import CassandraError
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import DmaConfig, StoreConfig
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.rtl.dma.registers import VERSION
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.synth import export as exporter
from cassandra_spec.synth.interface import identity
from cassandra_spec.synth.interface.registers import c_header
from cassandra_spec.synth.interface.vivado import interface_attributes

CONFIG = DecoderConfig(lanes=8, schemes=("mx",))
ENCODER = EncoderConfig(lanes=8, schemes=("mx",), vector=64, group=64, segment=1024)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    out = tmp_path_factory.mktemp("rtl")
    return exporter.export(out, CONFIG)


SUFFIXES = (
    *(".v", ".f", ".sim.f", "_assertions.sv", ".core", ".vlt"),
    *("_v5006.vlt", ".sdc", ".json", ".xml"),
)


def test_a_configuration_is_ten_files(exported):
    name = CONFIG.module_name
    assert exported.name == f"{name}.v"
    found = {path.name for path in exported.parent.iterdir()}
    assert found == {f"{name}{suffix}" for suffix in SUFFIXES}


def test_the_core_names_files_that_are_there(exported, tmp_path):
    store = exporter.export(tmp_path, StoreConfig(encoder=ENCODER))
    for path, count in ((exported, 4), (store, 7)):
        core = yaml.safe_load(path.with_suffix(".core").read_text().split("\n", 1)[1])
        files = [one for each in core["filesets"].values() for one in each["files"]]
        names = [name for one in files for name in ([one] if isinstance(one, str) else one)]
        assert len(names) == count
        assert all((path.parent / name).is_file() for name in names)
        optional = {
            "assertions": "assertions ? (assertions)",
            "memories": "!external_memories ? (memories)",
        }
        chosen = [optional.get(name, name) for name in core["filesets"]]
        assert sorted(core["targets"]["default"]["filesets"]) == sorted(chosen)


def test_the_file_list_and_the_core_name_the_sources_that_are_there(exported):
    listed = exported.with_suffix(".f").read_text().split()
    simulated = exported.with_suffix(".sim.f").read_text().split()
    core = exported.with_suffix(".core").read_text()
    assert simulated == [*listed, f"{CONFIG.module_name}_assertions.sv"]
    assert all((exported.parent / name).is_file() for name in simulated)
    assert core.startswith("CAPI=2:\n")
    assert f"- {exported.name}" in core
    assert f"toplevel: {CONFIG.module_name}" in core


def test_the_port_list_is_that_of_the_module(exported):
    text = exported.read_text()
    top = text[text.index(f"module {CONFIG.module_name}(") :]
    declared = {
        name: (direction, int(high or 0) + 1)
        for direction, high, name in re.findall(
            r"^  (input|output) (?:\[(\d+):0\] )?(\w+);", top[: top.index("endmodule")], re.M
        )
    }
    ports = json.loads(exported.with_suffix(".json").read_text())["ports"]
    assert {p["name"]: (p["direction"], p["width"]) for p in ports} == declared
    assert not [name for name in declared if "__" in name or "$" in name]


def test_vivado_finds_every_port_of_an_interface(exported):
    ports = json.loads(exported.with_suffix(".json").read_text())["ports"]
    found = dict(
        re.findall(
            r'X_INTERFACE_INFO = "xilinx.com:([^"]+)".*\n  (?:input|output) (?:\[\d+:0\] )?(\w+);',
            exported.read_text(),
        )
    )
    names = {port["name"] for port in ports}
    assert {*found.values()} == names - {"busy", "error", "clear_error"}
    assert {"interface:axis:1.0 s_axis_command TVALID", "signal:clock:1.0 clk CLK"} <= found.keys()


@pytest.mark.parametrize(("reset", "level"), [("rst", "HIGH"), ("aresetn", "LOW")])
def test_attributes_tell_bus_clock_and_level(reset, level):
    ports = ["clk", reset, "irq", "s_axil_awaddr", "m_axi_arlen", "core_rst"]
    found = interface_attributes(ports)
    assert found.keys() == {*ports} - {"core_rst"}
    assert found["m_axi_arlen"] == 'X_INTERFACE_INFO = "xilinx.com:interface:aximm:1.0 m_axi ARLEN"'
    assert found["clk"].endswith(f'"ASSOCIATED_BUSIF s_axil:m_axi, ASSOCIATED_RESET {reset}"')
    assert found[reset].endswith(f'"POLARITY ACTIVE_{level}"')


def test_defaults_have_distinct_names_and_all_lane_counts():
    names = [config.module_name for config in exporter.DEFAULT_CONFIGS]
    assert len(set(names)) == len(names)
    decoders = [c for c in exporter.DEFAULT_CONFIGS if isinstance(c, DecoderConfig)]
    assert {config.lanes for config in decoders} == {8, 16, 32}
    assert {c.decoders for c in exporter.DEFAULT_CONFIGS if isinstance(c, DmaConfig)} == {1, 2, 4}


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(CassandraError, match="out must be a folder that can be written, not "):
        exporter.export(blocked, CONFIG)


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(exporter.Path, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        exporter.export(tmp_path, CONFIG)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "config", "ports"),
    [
        *(
            (
                f"{top} --queue 4 --decoders {decoders}",
                DmaConfig(decoder=CONFIG, decoders=decoders, bus=32, queue=4),
                {"m_axi_rdata": 256, "m_axi_arid": ids, "m_axis_values_tdata": 128 * decoders},
            )
            for top, decoders, ids in (("dma", 1, 1), ("array", 2, 2))
        ),
        (
            "encoder-dma --vector 64 --group 64 --segment 1024 --results 4",
            StoreConfig(encoder=ENCODER, bus=32, results=4),
            {"m_axi_wdata": 256, "s_axis_values_tdata": 128},
        ),
    ],
)
def test_a_dma_has_its_registers(flags, config, ports, tmp_path, capsys):
    shared = ["--lanes", "8", "--schemes", "mx", "--bus", "256"]
    assert main(["rtl", "--out", str(tmp_path), *shared, "--top", *flags.split()]) == 0
    name = config.module_name
    assert capsys.readouterr().out.strip() == str(tmp_path / f"{name}.v")
    files = {"regs", *(f"{name}{end}" for end in (*SUFFIXES, "_memories.v", ".h"))}
    assert {path.name for path in tmp_path.iterdir()} == files
    assert (tmp_path / f"{name}.h").read_text() == c_header(config)
    described = json.loads((tmp_path / f"{name}.json").read_text())["ports"]
    widths = {port["name"]: port["width"] for port in described}
    assert ports == {port: widths[port] for port in ports}
    assert not [port for port in widths if "__" in port or "$" in port]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"top": "encoder", "bus": 128}, "bus must be left out for the top 'encoder'"),
        ({"top": "encoder-dma", "decoders": 2}, "decoders must be left out for the top 'encoder-d"),
        ({"top": "dma", "results": 4}, "results must be left out for the top 'dma'"),
        ({"top": "encoder-dma", "results": 3}, "results must be one of 1, 2, 4, 8, 16, 32, 64, no"),
        ({"top": "encoder-dma", "bus": 32}, "bus must be one of 8, 16, 32, 64, 128, not 4"),
        ({"top": "encoder-dma", "burst": 4096}, "burst must be at most 2048, 256 bus words, not 4"),
        ({"top": "encoder-dma", "buffer": 300}, "buffer must be 256 times a power of two"),
        ({"top": "decoder", "bus": 128}, "bus must be left out for the top 'decoder'"),
        ({"top": "dma", "bus": 100}, "bus must be a number of whole bytes, not 100 bits"),
        ({"top": "dma", "bus": 24}, "bus must be one of 8, 16, 32, 64, 128, not 3"),
        ({"top": "dma", "decoders": 2}, "decoders must be 1 for the top 'dma', not 2"),
        ({"top": "array", "decoders": 1}, "decoders must be at least 2 for the top 'array', not 1"),
        ({"top": "array", "decoders": 3}, "decoders must be one of 1, 2, 4, 8, not 3"),
        ({"top": "dma", "burst": 300}, "burst must be one of "),
        ({"top": "dma", "burst": 4096, "bus": 64}, "burst must be at most 2048, 256 bus words"),
        (
            {"top": "dma", "buffer": 300},
            "buffer must be 256 times a power of two, at most 65536, not 300",
        ),
        (
            {"top": "array", "reorder": 8},
            "reorder must be 32 times a power of two, at most 131072, not 8",
        ),
        ({"top": "dma", "address": 33}, "address must be one of 32, 40, 48, 56, 64, not 33"),
    ],
)
def test_flags_that_cannot_be_are_named(flags, message):
    with pytest.raises(CassandraError, match=message):
        exporter.choose(flags.pop("top"), CONFIG, **flags)


@pytest.mark.parametrize("top", ["encoder", "encoder-dma"])
def test_encoders_have_no_coded_pruned_exponents_and_no_rate_of_targets(top):
    with pytest.raises(CassandraError, match=f"coded must be left out for the top '{top}'"):
        exporter.choose(top, DecoderConfig(coded=True))
    with pytest.raises(CassandraError, match=f"target_rate must be left out for the top '{top}'"):
        exporter.choose(top, DecoderConfig(target_rate="full"))


def test_a_range_of_t_is_the_decoders(tmp_path):
    some = DecoderConfig(lanes=8, schemes=("mx",), truncated=(4, 7))
    assert exporter.choose("dma", some) == DmaConfig(decoder=some)
    with pytest.raises(CassandraError, match="truncated must be left out for the top 'encoder'"):
        exporter.choose("encoder", some)


@pytest.mark.parametrize(("rate", "least"), [("half", 16), ("full", 32)])
def test_a_bus_is_at_least_a_word_of_the_decoder(rate, least):
    decoder = DecoderConfig(target_rate=rate)
    with pytest.raises(CassandraError, match=f"bus must be at least {least} bytes, a word of a"):
        exporter.choose("dma", decoder, bus=64)
    assert exporter.choose("dma", decoder) == DmaConfig(decoder=decoder, bus=least)


def test_every_combinational_block_looks_at_what_starts_it(exported):
    text = exported.read_text()
    blocks = re.findall(r"^  always @\*(.*)\n(.*)\n", text, re.M)
    assert blocks
    assert all(head == " begin" and first == "    if (starter) begin end" for head, first in blocks)
    assert not re.search(r"^  reg starter *= 0;", text, re.M)
    assert len(re.findall(r"^  initial starter ?= 0;$", text, re.M)) == text.count("  reg starter;")


def test_every_file_has_one_version(exported):
    version = ".".join(map(str, VERSION))
    described = json.loads(exported.with_suffix(".json").read_text())
    assert described["version"] == version
    assert described["sources_sha256"] in exported.read_text()
    assert f"// Version {version}, by cassandra-spec {cassandra_spec.__version__};" in (
        exported.read_text()
    )
    assert f"{CONFIG.module_name}:{version}\n" in exported.with_suffix(".core").read_text()
    assert f"<ipxact:version>{version}<" in exported.with_suffix(".xml").read_text()
    assert f"version {version} of the map" in c_header()
    assert f"Version {version}." in exporter.describe(CassandraDma(DmaConfig(decoder=CONFIG)))


def test_the_options_are_those_of_the_configuration(exported):
    options = json.loads(exported.with_suffix(".json").read_text())["options"]
    assert options == {**dataclasses.asdict(CONFIG), "reset": "rst", "initial": True} | {
        "schemes": ["mx"],
        "truncated": [0, 7],
    }
    assert "// lanes=8 schemes=mx codebook=16" in exported.read_text()


def test_a_source_that_changes_changes_the_hash(tmp_path, monkeypatch):
    for name in ("golden", "rtl", "synth"):
        (tmp_path / name).mkdir()
    (tmp_path / "rtl" / "a.py").write_text("a")
    monkeypatch.setattr(identity, "_ROOT", tmp_path)
    found = set()
    for change in (
        lambda: None,
        lambda: (tmp_path / "rtl" / "a.py").write_text("b"),
        lambda: (tmp_path / "rtl" / "a.py").rename(tmp_path / "rtl" / "c.py"),
    ):
        change()
        identity.sources_hash.cache_clear()
        found.add(identity.sources_hash())
    identity.sources_hash.cache_clear()
    assert len(found) == 3


def test_a_style_has_its_own_reset_and_no_initial_values(exported, tmp_path):
    style = exporter.Style(reset="aresetn", initial=False)
    other = exporter.export(tmp_path, CONFIG, style=style)
    name = f"{CONFIG.module_name}_aresetn_noinit"
    assert other.stem == name
    text, usual = other.read_text(), exported.read_text()
    assert "  input aresetn;\n  wire aresetn;\n  wire rst = ~aresetn;\n" in text
    assert not re.search(r"^  reg .* = ", text, re.M)
    assert re.search(r"^  reg .* = ", usual, re.M)
    assert "aresetn" not in usual
    back = text.replace("aresetn;\n  wire aresetn;\n  wire rst = ~aresetn", "rst;\n  wire rst")
    back = back.replace("POLARITY ACTIVE_LOW", "POLARITY ACTIVE_HIGH")
    back = re.sub(r"\baresetn\b", "rst", back.replace(name, CONFIG.module_name))
    plain = re.sub(r"(?m)^  \(\* init = .*\n|^(  reg [^=\n]*\w) = .*(;)$", r"\1\2", usual)
    start = "\nmodule "
    assert back[back.index(start) :] == plain[plain.index(start) :]
    names = {port["name"] for port in json.loads(other.with_suffix(".json").read_text())["ports"]}
    assert "aresetn" in names
    assert "rst" not in names
    assert "wire rst = !aresetn;" in (tmp_path / f"{name}_assertions.sv").read_text()


def test_attributes_can_be_ports():
    chosen = exporter.choose("dma", CONFIG, attributes=True)
    assert chosen == DmaConfig(decoder=CONFIG, attributes=True)
    assert chosen.module_name.endswith("_p1")
    top, seen = CassandraDma(chosen), []
    assert {"axi_cache", "axi_prot"} <= {*exporter.ports_of(top)}

    async def bench(ctx):
        for cache, prot in ((0b1111, 0b001), (0, 0)):
            ctx.set(top.axi_cache, cache)
            ctx.set(top.axi_prot, prot)
            seen.append((ctx.get(top.m_axi_arcache), ctx.get(top.m_axi_arprot)))

    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    assert seen == [(0b1111, 0b001), (0, 0)]
    with pytest.raises(CassandraError, match="attributes must be left out for the top 'encoder'"):
        exporter.choose("encoder", CONFIG, attributes=True)
