"""Write a top as an IP-XACT component (IEEE 1685-2014): ports, bus interfaces, registers, files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from cassandra_spec.rtl.dma.registers import ADDRESS_BITS, Field, Register

_NAMESPACE = "http://www.accellera.org/XMLSchema/IPXACT/1685-2014"
_AMBA = "amba.com", "AMBA4"
_SPAN = 1 << ADDRESS_BITS

_ACCESS = {
    "ro": ("read-only", ""),
    "rw": ("read-write", ""),
    "w1c": ("read-write", "oneToClear"),
    "wo": ("write-only", ""),
}
_FILE_TYPES = {".v": "verilogSource", ".sv": "systemVerilogSource", ".h": "cSource"}


class Bus(NamedTuple):
    """A bus interface of a top.

    Attributes:
        name: prefix of its ports.
        type: name and version of the bus definition, under ``amba.com:AMBA4``.
        mode: ``master`` or ``slave``.
        ports: physical port by logical name.
    """

    name: str
    type: tuple[str, str]
    mode: str
    ports: Mapping[str, str]


def buses_of(ports: Iterable[str]) -> list[Bus]:
    """Return the AXI interfaces among the names of ports."""
    found: dict[str, dict[str, str]] = {}
    for port in ports:
        if match := re.fullmatch(r"([sm]_axil|[sm]_axi|[sm]_axis_[a-z]+)_([a-z]+)", port):
            found.setdefault(match[1], {})[match[2].upper()] = port
    return [
        Bus(name, _type(name), "master" if name.startswith("m_") else "slave", pins)
        for name, pins in found.items()
    ]


def _type(name: str) -> tuple[str, str]:
    if "axis" in name:
        return "AXI4Stream", "r0p0_1"
    return ("AXI4-Lite" if "axil" in name else "AXI4"), "r0p0_0"


def ip_xact(
    name: str,
    version: str,
    *,
    ports: Mapping[str, tuple[str, int]],
    registers: Sequence[Register],
    built: Mapping[str, int],
    files: Iterable[str],
) -> str:
    """Write the component ``cassandra:ip:NAME:VERSION``.

    ``ports`` are direction and width by name; ``built`` has the constants of the configuration by
    ``REGISTER_FIELD``; ``files`` are Verilog sources and the C header, relative to the description.
    """
    ElementTree.register_namespace("ipxact", _NAMESPACE)
    root = _element("component")
    for tag, text in zip(
        ("vendor", "library", "name", "version"), ("cassandra", "ip", name, version), strict=True
    ):
        _add(root, tag, text)
    buses = _add(root, "busInterfaces")
    for bus in buses_of(ports):
        _bus(buses, bus, bool(registers))
    _clock_and_reset(buses, ports)
    if any(bus.mode == "master" and "axi" in bus.name for bus in buses_of(ports)):
        _address_space(root, ports)
    if registers:
        _memory_map(root, registers, built)
    _model(root, name, ports)
    _files(root, files)
    text = "Decoder or encoder of the Cassandra format for self-speculative decoding"
    _add(root, "description", text)
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _element(tag: str) -> ElementTree.Element:
    return ElementTree.Element(f"{{{_NAMESPACE}}}{tag}")


def _add(parent: ElementTree.Element, tag: str, text: str | int = "") -> ElementTree.Element:
    child = ElementTree.SubElement(parent, f"{{{_NAMESPACE}}}{tag}")
    child.text = str(text) or None
    return child


def _refer(
    parent: ElementTree.Element, tag: str, library: tuple[str, str], type_: tuple[str, str]
) -> None:
    """Add a reference to a bus or abstraction definition."""
    values = zip(("vendor", "library", "name", "version"), (*library, *type_), strict=True)
    _add(parent, tag).attrib.update(values)


def _interface(
    parent: ElementTree.Element,
    name: str,
    library: tuple[str, str],
    type_: tuple[str, str],
    ports: Mapping[str, str],
) -> ElementTree.Element:
    """Add a bus interface without its mode."""
    interface = _add(parent, "busInterface")
    _add(interface, "name", name)
    _refer(interface, "busType", library, type_)
    abstraction = _add(_add(interface, "abstractionTypes"), "abstractionType")
    _refer(abstraction, "abstractionRef", library, (f"{type_[0]}_rtl", type_[1]))
    maps = _add(abstraction, "portMaps")
    for logical, physical in ports.items():
        pair = _add(maps, "portMap")
        _add(_add(pair, "logicalPort"), "name", logical)
        _add(_add(pair, "physicalPort"), "name", physical)
    return interface


def _bus(parent: ElementTree.Element, bus: Bus, mapped: bool) -> None:
    interface = _interface(parent, bus.name, _AMBA, bus.type, bus.ports)
    mode = _add(interface, bus.mode)
    if bus.type[0] == "AXI4-Lite" and mapped:
        _add(mode, "memoryMapRef").set("memoryMapRef", "registers")
    if bus.type[0] == "AXI4":
        _add(mode, "addressSpaceRef").set("addressSpaceRef", bus.name)


def _clock_and_reset(parent: ElementTree.Element, ports: Mapping[str, tuple[str, int]]) -> None:
    """Add the interfaces of the clock and of the reset, whose name tells its level."""
    library = "xilinx.com", "signal"
    clock = _interface(parent, "clk", library, ("clock", "1.0"), {"CLK": "clk"})
    _add(clock, "slave")
    name = "rst" if "rst" in ports else "aresetn"
    reset = _interface(parent, name, library, ("reset", "1.0"), {"RST": name})
    _add(reset, "slave")
    _parameters(reset, {"POLARITY": "ACTIVE_HIGH" if name == "rst" else "ACTIVE_LOW"})
    others = ":".join(bus.name for bus in buses_of(ports))
    _parameters(clock, {"ASSOCIATED_BUSIF": others, "ASSOCIATED_RESET": name})


def _parameters(parent: ElementTree.Element, values: Mapping[str, str]) -> None:
    parameters = _add(parent, "parameters")
    for name, value in values.items():
        parameter = _add(parameters, "parameter")
        parameter.set("parameterId", f"{name}_{len(parent)}_{value}".replace(":", "_"))
        _add(parameter, "name", name)
        _add(parameter, "value", value)


def _address_space(root: ElementTree.Element, ports: Mapping[str, tuple[str, int]]) -> None:
    """Add the address space of the memory, if the top has a master for it."""
    widths = [width for name, (_, width) in ports.items() if re.fullmatch(r"m_axi_a[rw]addr", name)]
    if not widths:
        return
    data = next(
        width for name, (_, width) in ports.items() if re.fullmatch(r"m_axi_[rw]data", name)
    )
    space = _add(_add(root, "addressSpaces"), "addressSpace")
    _add(space, "name", "m_axi")
    _add(space, "range", f"'h{1 << widths[0]:x}")
    _add(space, "width", data)


def _memory_map(
    root: ElementTree.Element, registers: Sequence[Register], built: Mapping[str, int]
) -> None:
    memory_map = _add(_add(root, "memoryMaps"), "memoryMap")
    _add(memory_map, "name", "registers")
    block = _add(memory_map, "addressBlock")
    for tag, text in (("name", "registers"), ("baseAddress", 0), ("range", _SPAN), ("width", 32)):
        _add(block, tag, text)
    _add(block, "usage", "register")
    for register in registers:
        _register(block, register, built)
    _add(memory_map, "addressUnitBits", 8)


def _register(parent: ElementTree.Element, register: Register, built: Mapping[str, int]) -> None:
    element = _add(parent, "register")
    _add(element, "name", register.name)
    _add(element, "displayName", register.name.upper())
    _add(element, "description", register.meaning)
    _add(element, "addressOffset", f"'h{register.offset:x}")
    _add(element, "size", 32)
    for field, low in register.places():
        _field(element, field, low, built.get(f"{register.name}_{field.name}"))


def _field(parent: ElementTree.Element, field: Field, low: int, constant: int | None) -> None:
    """Add a field; one that the hardware changes is volatile, one that acts is not testable."""
    access, modified = _ACCESS[field.access]
    element = _add(parent, "field")
    _add(element, "name", field.name)
    _add(element, "description", field.meaning)
    _add(element, "bitOffset", low)
    if field.known:
        _add(_add(_add(element, "resets"), "reset"), "value", f"'h{constant or 0:x}")
    _add(element, "bitWidth", field.width)
    if constant is None and field.access in ("ro", "w1c"):
        _add(element, "volatile", "true")
    _add(element, "access", access)
    if modified:
        _add(element, "modifiedWriteValue", modified)
    if not is_testable(field, constant):
        _add(element, "testable", "false")


def is_testable(field: Field, constant: int | None) -> bool:
    """Return True if a test may write the field and read it back, or read a known constant."""
    return field.access == "rw" or constant is not None


def _model(root: ElementTree.Element, name: str, ports: Mapping[str, tuple[str, int]]) -> None:
    model = _add(root, "model")
    view = _add(_add(model, "views"), "view")
    _add(view, "name", "rtl")
    _add(view, "envIdentifier", "verilogSource:*Synthesis:")
    _add(view, "componentInstantiationRef", "rtl")
    instance = _add(_add(model, "instantiations"), "componentInstantiation")
    for tag, text in (("name", "rtl"), ("language", "verilog"), ("moduleName", name)):
        _add(instance, tag, text)
    _add(_add(instance, "fileSetRef"), "localName", "sources")
    listed = _add(model, "ports")
    for port, (direction, width) in ports.items():
        element = _add(listed, "port")
        _add(element, "name", port)
        wire = _add(element, "wire")
        _add(wire, "direction", direction.removesuffix("put"))
        if width > 1:
            vector = _add(_add(wire, "vectors"), "vector")
            _add(vector, "left", width - 1)
            _add(vector, "right", 0)


def _files(root: ElementTree.Element, files: Iterable[str]) -> None:
    files = list(files)
    sets = _add(root, "fileSets")
    for name, headers in (("sources", False), ("software", True)):
        chosen = [file for file in files if file.endswith(".h") == headers]
        if not chosen:
            continue
        file_set = _add(sets, "fileSet")
        _add(file_set, "name", name)
        for path in chosen:
            element = _add(file_set, "file")
            _add(element, "name", path)
            _add(element, "fileType", _FILE_TYPES[path[path.rindex(".") :]])
