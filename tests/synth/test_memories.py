"""Memories of exports: modules by shape, which behave as the memories of the gateware."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import Format
from cassandra_spec.rtl.common import ram
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.common.conversion import verilog_of
from cassandra_spec.rtl.common.ram import Shape, Wrapped
from cassandra_spec.rtl.decode.top import to_rtlil
from cassandra_spec.rtl.dma.config import DmaConfig, StoreConfig
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.rtl.dma.encoder_dma import CassandraEncoderDma
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.synth.export import export
from cassandra_spec.synth.timing import run_tool
from cassandra_spec.verif import icarus
from cassandra_spec.verif.decoder.jobs import jobs_of
from cassandra_spec.verif.encoder.cases import draw_segment
from cassandra_spec.verif.library.payloads import draw
from tests.synth.test_tools import need

DMA = DmaConfig(decoder=DecoderConfig(lanes=8, schemes=("unary",)))
ENCODER = EncoderConfig(lanes=8, schemes=("mx",), vector=64, group=64, segment=256)


class Kept(wiring.Component):
    """A memory of the gateware with the ports of a shape's module."""

    def __init__(self, shape: Shape, *, transparent: bool = False) -> None:
        self.shape, self.transparent = shape, transparent
        place = shape.address_bits
        ports = {"w_en": In(1), "w_addr": In(place), "w_data": In(shape.width)}
        for read in shape.read_names:
            ports |= {f"{read}_addr": In(place), f"{read}_data": Out(shape.width)}
            ports |= {f"{read}_en": In(1)} if shape.latency else {}
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape = self.shape
        m.submodules.store = store = Memory(shape=shape.width, depth=shape.words, init=[])
        write = store.write_port()
        m.d.comb += [write.en.eq(self.w_en), write.data.eq(self.w_data)]
        m.d.comb += write.addr.eq(self.w_addr)
        for name in shape.read_names:
            seen = (write,) if self.transparent else ()
            read = store.read_port(domain="sync" if shape.latency else "comb", transparent_for=seen)
            m.d.comb += [read.addr.eq(getattr(self, f"{name}_addr"))]
            m.d.comb += getattr(self, f"{name}_data").eq(read.data)
            if shape.latency:
                m.d.comb += read.en.eq(getattr(self, f"{name}_en"))
        return m


SHAPES = [
    Shape(words=words, width=width, reads=reads, latency=latency)
    for words, width, reads in ((2, 1, 2), (2, 3, 1), (4, 3, 1), (4, 2, 2))
    for latency in (0, 1)
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_module_is_the_memory_of_the_gateware(shape: Shape, tmp_path: Path) -> None:
    """Every sequence of seven cycles from zeros gives the same, collisions included."""
    need("yosys", "yosys")
    assert not miter(shape, shape.verilog(), tmp_path)


def test_a_wrong_body_is_found(tmp_path: Path) -> None:
    need("yosys", "yosys")
    shape = Shape(words=4, width=2, reads=1, latency=1)
    assert miter(shape, shape.verilog().replace("if (r_en) ", ""), tmp_path)


def miter(shape: Shape, body: str, folder: Path) -> bool:
    """Return True if the body and the memory of the gateware can differ."""
    texts = {
        "gold": verilog_of(Kept(shape), "gold"),
        "gate": verilog_of(Kept(shape), "gate", platform=Wrapped()),
        "body": body,
    }
    for name, text in texts.items():
        (folder / f"{name}.v").write_text(text)
    script = (
        "read_verilog gold.v gate.v body.v\nsetattr -mod -unset top gold gate\n"
        "proc\nflatten\nmemory\n"
        "miter -equiv -flatten gold gate both\nhierarchy -top both\n"
        "sat -seq 7 -set-init-zero -prove trigger 0 -verify both\n"
    )
    (folder / "miter.ys").write_text(script)
    try:
        run_tool("yosys", ["-q", "-s", "miter.ys"], folder)
    except CassandraError as error:
        if "proof did fail" not in str(error):
            raise
        return True
    return False


def test_a_memory_that_no_shape_describes_is_refused() -> None:
    shape = Shape(words=4, width=2, reads=1, latency=1)
    with pytest.raises(NotImplementedError, match="read ports must be alike and not transparent"):
        verilog_of(Kept(shape, transparent=True), "top", platform=Wrapped())


@pytest.fixture(scope="module")
def dma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("dma"), DMA)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("encoder"), ENCODER)


def test_every_memory_is_listed_with_its_bits(dma: Path) -> None:
    listed = json.loads(dma.with_suffix(".json").read_text())
    text = verilog_of(CassandraDma(DMA), "top")
    arrays = re.findall(r"^  reg (?:\[(\d+):0\] )?\S+ \[(\d+):0\];$", text, re.M)
    ours = Counter((int(last) + 1, int(high or 0) + 1) for high, last in arrays)
    theirs = Counter(
        (one["words"], one["width"]) for one in listed["memories"] for _ in one["instances"]
    )
    assert ours == theirs
    assert listed["memory_bits"] == sum(words * width for words, width in ours.elements())
    for one in listed["memories"]:
        shape = Shape.named(one["module"])
        assert shape is not None
        assert one["bits"] == shape.bits == one["words"] * one["width"]


def test_instances_are_found_in_both_languages(dma: Path) -> None:
    ours = dict(ram.instances(dma.read_text()))
    assert ours == dict(ram.instances(to_rtlil(CassandraDma(DMA))))
    assert len(ours) == 9
    assert ours["reads.region_0.buffer.storage"].latency == 1


def test_no_memory_has_an_initial_value(dma: Path) -> None:
    bodies = dma.with_name(f"{dma.stem}_memories.v").read_text()
    assert " initial " not in bodies
    assert not re.search(r"^  reg .*\[.*\] \w+ \[", dma.read_text(), re.M)


def replaced(verilog: Path, folder: Path) -> Path:
    """Copy an export; put in memories that give X where the rules leave the word open."""
    copy = shutil.copytree(verilog.parent, folder / "rtl") / verilog.name
    path = copy.with_name(f"{copy.stem}_memories.v")
    text, count = re.subn(
        r"if \((\w+)_en\) \w+ <= (words\[\w+\]);",
        r"if (\1_en) \1_data <= w_en && w_addr == \1_addr ? 'bx : \2;",
        path.read_text(),
    )
    assert count
    path.write_text(text)
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("target", [False, True])
def test_other_memories_decode_as_golden_does(dma: Path, target: bool, tmp_path: Path) -> None:
    """Words start as X, and collisions give X: neither reaches the values."""
    need("iverilog", "iverilog")
    fmt = Format(scheme="unary", beat=8, segment=96)
    jobs = list(jobs_of(draw(np.random.default_rng(1), fmt, 250, "weights"), [target]))
    values = icarus.decode_by_dma(replaced(dma, tmp_path), DMA, jobs, tmp_path)
    assert np.array_equal(values, np.concatenate([job.expected for job in jobs]))


@pytest.mark.slow
def test_other_memories_encode_as_golden_does(encoder: Path, tmp_path: Path) -> None:
    need("iverilog", "iverilog")
    segment = draw_segment(np.random.default_rng(1), ENCODER, "mx", "normal")
    packed = segment.packed
    found = icarus.encode(replaced(encoder, tmp_path), ENCODER, segment, tmp_path)
    assert found == (packed.speculation.tobytes(), packed.verification.tobytes())


def test_an_encoder_with_its_dma_has_no_other_kind_of_memory() -> None:
    config = StoreConfig(encoder=ENCODER)
    text = to_rtlil(CassandraEncoderDma(config))
    assert "\n  memory " not in text
    assert len(list(ram.instances(text))) > 20
