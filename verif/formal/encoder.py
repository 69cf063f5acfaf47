"""The encoder: the rules of its streams and of those between its blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Assume, Cat, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.beat_memory import BeatMemory
from cassandra_spec.rtl.common.mantissa import HIGH_PLANES
from cassandra_spec.rtl.common.superblock_reader import BUS_ROWS
from cassandra_spec.rtl.encode.front import EncoderFront
from cassandra_spec.rtl.encode.group_buffer import GroupBuffer
from cassandra_spec.rtl.encode.packers import (
    BlockPacker,
    ResiduePacker,
    SharedPacker,
    UnaryPacker,
)
from cassandra_spec.rtl.encode.record_path import RecordPath
from cassandra_spec.rtl.encode.region_writer import RegionWriter
from cassandra_spec.rtl.encode.speculation_writer import SpeculationWriter
from cassandra_spec.rtl.encode.topk import RadixSelect, SelectShape
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encode.vector_buffer import VectorLoader
from cassandra_spec.rtl.encode.verification_writer import VerificationWriter
from cassandra_spec.rtl.encoder import Encoder, EncoderTop
from cassandra_spec.verif.formal.harness import Handshakes, Together, assert_holds, streams_of
from cassandra_spec.verif.formal.netlist import Netlist
from cassandra_spec.verif.formal.prover import Claim
from cassandra_spec.verif.formal.structure import ALLOWED, waiting_streams, wrong_paths

CONFIG = EncoderConfig(lanes=8, vector=16, group=8, segment=64)
_PIECES = dataclasses.replace(CONFIG, values_per_cycle=4)
_BOTH = {"beats": CONFIG, "pieces": _PIECES}
_BLOCKS: dict[str, Callable[[], wiring.Component]] = {
    "encoder": lambda: Encoder(CONFIG),
    "encoder_by_4": lambda: Encoder(_PIECES),
    "front": lambda: EncoderFront(CONFIG),
    "record_path": lambda: RecordPath(CONFIG),
    "blocks": lambda: BlockPacker(lanes=8, pace=8, width=16),
    "residue": lambda: ResiduePacker(lanes=8, pace=8),
    "codes": lambda: UnaryPacker(lanes=8, pace=8, window=2, limit=16),
    "blocks_by_4": lambda: BlockPacker(lanes=8, pace=4, width=16),
    "residue_by_4": lambda: ResiduePacker(lanes=8, pace=4),
    "codes_by_4": lambda: UnaryPacker(lanes=8, pace=4, window=2, limit=16),
    "shared": lambda: SharedPacker(lanes=16),
    "speculation": lambda: SpeculationWriter(CONFIG),
    "verification": lambda: VerificationWriter(CONFIG),
    "loader": lambda: VectorLoader(CONFIG),
    "select": lambda: RadixSelect(SelectShape(lanes=8, beats=2)),
    "groups": lambda: GroupBuffer(CONFIG),
    "writer": lambda: RegionWriter(lanes=8, superblock=128),
}


_LARGE = ("encoder", "encoder_by_4", "front", "loader", "select", "groups")
_STEPS = [name for name in _BLOCKS if name not in _LARGE]
"""Blocks with few registers."""


def _both(make: Callable[[EncoderConfig], wiring.Component], *, honest: bool = True) -> Together:
    """Return the rules of a block that takes whole beats, and of one that takes pieces."""
    return Together({n: Handshakes(make(config), honest=honest) for n, config in _BOTH.items()})


class Rows(Handshakes):
    """Rows of a schedule stay until they are taken, if its inputs obey the rule.

    Rows of the verification schedule that come from ``begun`` may be withdrawn when their block is
    complete, and come again with it.
    """

    part: SpeculationWriter | VerificationWriter

    def claims(self, m: Module) -> None:
        """Assert the rule for the rows that count."""
        self.honest_inputs(m)
        rows = self.part.rows
        payload = rows.payload
        clean = [Mux(payload.count > i, payload.rows[i], 0) for i in range(BUS_ROWS)]
        assert_holds(m, rows.valid, rows.ready, Cat(payload.count, payload.end, clean), "rows")
        with m.If(~ResetSignal()):
            m.d.comb += Assert(~rows.valid | (payload.count <= BUS_ROWS))
        if isinstance(self.part, SpeculationWriter):
            m.d.comb += Assume(self.part.beats.payload.planes <= HIGH_PLANES)
        else:
            m.d.comb += Assume(self.part.begun_count == 0)


class Indifferent(wiring.Component):
    """Two copies of a design; the second sees ready only where the first offers something.

    They must behave alike: ready makes no difference before something is offered, so nothing waits
    for ready.
    """

    def __init__(self, make: Callable[[], wiring.Component]) -> None:
        self.parts = make(), make()
        super().__init__({})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.first, m.submodules.second = self.parts
        for (path, member, port), (_, _, other) in zip(*map(_ports, self.parts), strict=True):
            if member.flow == In and path[-1] != "ready":
                free = AnySeq(len(Value.cast(port)))
                m.d.comb += [Value.cast(port).eq(free), Value.cast(other).eq(free)]
            elif path[-1] not in ("ready", "payload"):
                m.d.comb += Assert(Value.cast(port) == Value.cast(other))
        for one, other in zip(*(streams_of(p, In).values() for p in self.parts), strict=True):
            m.d.comb += Assert(~one.valid | (one.ready == other.ready))
        for one, other in zip(*(streams_of(p, Out).values() for p in self.parts), strict=True):
            free = AnySeq(1)
            m.d.comb += [one.ready.eq(free), other.ready.eq(free & one.valid)]
            same = Value.cast(one.payload) == Value.cast(other.payload)
            m.d.comb += Assert(~one.valid | same)
        return m


def _ports(part: wiring.Component) -> Iterator[Any]:
    return part.signature.flatten(part)


class Blank(wiring.Component):
    """Two copies of a design with the same inputs behave alike and offer nothing by themselves.

    For claims with ``unreset``: the copies may differ in registers without reset, and in payloads
    that are not valid. Outputs in ``loose`` may differ.
    """

    def __init__(self, make: Callable[[], wiring.Component], loose: Sequence[str] = ()) -> None:
        self.parts = make(), make()
        self.loose = loose
        super().__init__({})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.first, m.submodules.second = one, other = self.parts
        for (path, member, port), (_, _, twin) in zip(_ports(one), _ports(other), strict=True):
            bits, twin_bits = Value.cast(port), Value.cast(twin)
            if member.flow == In:
                free = AnySeq(len(bits))
                same = path[-1] != "payload"
                m.d.comb += [bits.eq(free), twin_bits.eq(free if same else AnySeq(len(bits)))]
            elif path[-1] not in ("ready", "payload") and path[0] not in self.loose:
                m.d.comb += Assert(bits == twin_bits)
        for flow, say in ((In, Assume), (Out, Assert)):
            for port, twin in zip(*(streams_of(p, flow).values() for p in self.parts), strict=True):
                same = Value.cast(port.payload) == Value.cast(twin.payload)
                m.d.comb += [
                    say(~port.valid | same),
                    Assert(~port.valid | (port.ready == twin.ready)),
                ]
        given, begun = Signal(), Signal()  # something is offered now; was offered before
        m.d.comb += given.eq(begun | Cat(port.valid for port in streams_of(one, In).values()).any())
        m.d.sync += begun.eq(given)
        for port in streams_of(one, Out).values():
            m.d.comb += Assert(~port.valid | given)
        return m


_BLANKS: dict[str, tuple[Callable[[], wiring.Component], tuple[str, ...]]] = {
    "blocks": (lambda: BlockPacker(lanes=4, pace=4, width=1), ("begun",)),
    "residue": (lambda: ResiduePacker(lanes=2, pace=2), ("need",)),
    "codes": (lambda: UnaryPacker(lanes=2, pace=2, window=2, limit=4), ()),
    "blocks_by_2": (lambda: BlockPacker(lanes=4, pace=2, width=1), ("begun",)),
    "residue_by_1": (lambda: ResiduePacker(lanes=2, pace=1), ("need",)),
    "codes_by_1": (lambda: UnaryPacker(lanes=2, pace=1, window=2, limit=4), ()),
    "shared": (lambda: SharedPacker(lanes=16), ()),
    "writer": (lambda: RegionWriter(lanes=2, superblock=4), ()),
}
"""Blocks with registers without reset, and outputs that mean nothing without a beat."""

_FREE_ROWS: dict[type[wiring.Component], tuple[str, ...]] = {
    SpeculationWriter: ("rows",),
    VerificationWriter: ("rows",),
    EncoderFront: ("records",),
}

CLAIMS = (
    Claim(
        name="encoder.handshake",
        what="Words of both regions and results stay, unchanged, until they are taken, whatever "
        "comes in and whatever the schedules emit (records and rows free).",
        design=lambda: _both(Encoder, honest=False),
        method="inductive",
        depth=2,
        free=_FREE_ROWS,
    ),
    Claim(
        name="encoder.records",
        what="Records stay, unchanged, until they are taken (data of memories free).",
        design=lambda: _both(EncoderFront),
        method="inductive",
        depth=2,
        free={BeatMemory: ("read_data",)},
    ),
    Claim(
        name="encoder.groups",
        what="Beats of groups stay, unchanged, until they are taken; the memories hold them.",
        design=lambda: _both(GroupBuffer),
        method="inductive",
        depth=2,
    ),
    Claim(
        name="encoder.speculation_rows",
        what="Rows of the speculation schedule are at most eight and stay until they are taken, if "
        "its inputs do.",
        design=lambda: Rows(SpeculationWriter(CONFIG)),
        method="bounded",
        depth=30,
    ),
    Claim(
        name="encoder.verification_rows",
        what="Rows of the verification schedule are at most eight and stay until they are taken, "
        "if its inputs do and none comes from the block that is not complete.",
        design=lambda: Rows(VerificationWriter(CONFIG)),
        method="bounded",
        depth=30,
    ),
    Claim(
        name="encoder.valid_first",
        what="In the same cycle, valid of no output of the encoder and of its blocks depends on "
        "its ready.",
        design=lambda: Together({name: make() for name, make in _BLOCKS.items()}),
        method="structural",
        check=lambda text: waiting_streams(Netlist.of(text)),
    ),
    Claim(
        name="encoder.blank",
        what="Packers and region writers (small ones) offer nothing by themselves, and whatever "
        "their registers hold that reset leaves alone makes no difference to what they offer.",
        design=lambda: Together({name: Blank(*blank) for name, blank in _BLANKS.items()}),
        unreset=True,
        fast=True,
    ),
    Claim(
        name="encoder.indifferent",
        what="Nor on ready in earlier cycles: what ready is while nothing is offered makes no "
        "difference to packers, schedules, region writers and the record path.",
        design=lambda: Together({name: Indifferent(_BLOCKS[name]) for name in _STEPS}),
        method="corresponding",
    ),
    Claim(
        name="encoder_top.registered",
        what="No output of the encoder depends on an input of the same cycle, but ready of "
        "commands on valid of codebooks.",
        design=lambda: EncoderTop(CONFIG),
        method="structural",
        check=lambda text: wrong_paths(Netlist.of(text), ALLOWED),
    ),
)
