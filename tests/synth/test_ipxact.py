"""IP-XACT of the tops: another reader finds the registers; ports and interfaces are complete."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from peakrdl_ipxact import IPXACTImporter
from systemrdl import RDLCompiler
from systemrdl.node import RegNode

from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import DmaConfig
from cassandra_spec.rtl.dma.registers import described_for
from cassandra_spec.synth.export import export
from cassandra_spec.synth.interface.ipxact import buses_of

CONFIG = DmaConfig(decoder=DecoderConfig(lanes=8, schemes=("mx",)))
ALONE = ("irq", "core_rst", "quiesce_request", "quiesce_done")
NS = {"x": "http://www.accellera.org/XMLSchema/IPXACT/1685-2014"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("ip"), CONFIG).with_suffix(".xml")


def test_another_reader_finds_the_registers(exported: Path) -> None:
    compiler = RDLCompiler()
    IPXACTImporter(compiler).import_file(str(exported))
    nodes = [node for node in compiler.elaborate().top.descendants() if isinstance(node, RegNode)]
    table = described_for("decode")
    assert [(node.inst_name, node.absolute_address) for node in nodes] == [
        (register.name, register.offset) for register in table
    ]
    for node, register in zip(nodes, table, strict=True):
        fields = {field.inst_name: field for field in node.fields()}
        assert fields.keys() == {field.name for field in register.fields}
        for field, low in register.places():
            found = fields[field.name]
            assert (found.low, found.width) == (low, field.width)
            assert (found.is_sw_readable, found.is_sw_writable) == {
                "ro": (True, False),
                "rw": (True, True),
                "w1c": (True, True),
                "wo": (False, True),
            }[field.access]


def test_ports_are_those_of_the_top(exported: Path) -> None:
    ports = json.loads(exported.with_suffix(".json").read_text())["ports"]
    found = [
        {
            "name": port.findtext("x:name", "", NS),
            "direction": port.findtext("x:wire/x:direction", "", NS) + "put",
            "width": int(port.findtext("x:wire/x:vectors/x:vector/x:left", "0", NS)) + 1,
        }
        for port in ET.parse(exported).iterfind("x:model/x:ports/x:port", NS)
    ]
    assert found == ports


def test_every_port_belongs_to_one_interface_or_to_none(exported: Path) -> None:
    tree = ET.parse(exported)
    ports = [port.text for port in tree.iterfind("x:model/x:ports/x:port/x:name", NS)]
    mapped = [name.text for name in tree.iterfind(".//x:physicalPort/x:name", NS)]
    assert sorted([*mapped, *ALONE]) == sorted(ports)  # type: ignore[type-var]
    types = {
        one.findtext("x:name", "", NS): one.find("x:busType", NS).attrib["name"]  # type: ignore[union-attr]
        for one in tree.iterfind("x:busInterfaces/x:busInterface", NS)
    }
    assert types == {
        "s_axil": "AXI4-Lite",
        "m_axi": "AXI4",
        "m_axis_values": "AXI4Stream",
        "clk": "clock",
        "rst": "reset",
    }
    assert tree.find(".//x:slave/x:memoryMapRef", NS) is not None


def test_logical_names_are_those_of_amba() -> None:
    [lite, full, stream] = buses_of(["s_axil_awaddr", "m_axi_arlen", "m_axis_values_tdata", "irq"])
    assert (lite.mode, dict(lite.ports)) == ("slave", {"AWADDR": "s_axil_awaddr"})
    assert (full.mode, dict(full.ports)) == ("master", {"ARLEN": "m_axi_arlen"})
    assert (stream.name, dict(stream.ports)) == (
        "m_axis_values",
        {"TDATA": "m_axis_values_tdata"},
    )


def test_files_that_it_names_are_there(exported: Path) -> None:
    names = [one.text for one in ET.parse(exported).iterfind(".//x:file/x:name", NS)]
    assert len(names) == 3
    assert all((exported.parent / str(name)).is_file() for name in names)
