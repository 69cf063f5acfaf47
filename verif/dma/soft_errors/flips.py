"""A peripheral with a bit flip in one register, in any cycle of some work.

:class:`Peripheral` is a Verilated decoder or encoder behind its registers, with a program around it
(``flips.cpp``) that acts as software and memory. The outcome of a piece of :class:`Work` is a
:class:`Run`: values or memory, registers, and every access that no descriptor allows.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.rtl.decode.top import to_verilog
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.rtl.dma.encoder_dma import CassandraEncoderDma
from cassandra_spec.rtl.dma.registers import register_of, registers_for
from cassandra_spec.verif.decoder.jobs import mixed_jobs
from cassandra_spec.verif.dma.decoding import SMALL
from cassandra_spec.verif.dma.encoding import commands_of, small
from cassandra_spec.verif.dma.host import codebook_words, compose
from cassandra_spec.verif.encoder.cases import draw_segment
from cassandra_spec.verif.library.bulk import GatewareError, address
from cassandra_spec.verif.tools.verilated import Library

Kind = Literal["dma", "encoder_dma"]
KINDS: tuple[Kind, ...] = ("dma", "encoder_dma")
"""Decoders behind their registers, and the encoder."""

_U4, _U8 = "u4", "u8"
_STEP = np.dtype([(name, _U4) for name in ("kind", "address", "data", "opens")])
_REGION = np.dtype([(name, _U8) for name in ("base", "bytes", "data")])
_ADDRESSES = ("steps", "regions", "values", "reads", "packets")
_NUMBERS = ("step_count", "region_count", "packet_count", "seed", "hang_cycles")
_WORK = np.dtype([(name, _U8) for name in (*_ADDRESSES, *_NUMBERS)])
_FLIP = np.dtype([("cycle", _U8), ("place", _U4), ("bit", _U4)])
RULES = ("outside", "repeated", "broken", "unheld")
"""Counters of a :class:`Run` for bursts and data."""

_COUNTS = (*RULES, "steps", "packets", "flagged", "wrong", "silent")
_OUTCOME = np.dtype([("cycles", _U8), *((name, _U4) for name in _COUNTS), ("spare", _U4)])
_WRITE, _READ, _AWAIT = range(3)
_HANG_CYCLES = 400
_NEVER = np.iinfo(np.uint64).max
_SEGMENTS = 2


class Script:
    """The software's actions, step by step; the step that queues regions opens them."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int, int, int]] = []
        self.regions: list[tuple[int, NDArray[np.uint8]]] = []  # base and content

    def write(self, register: str, value: int) -> None:
        """Write a register; open regions may be accessed from then on."""
        self._add(_WRITE, register, value)

    def read(self, register: str) -> None:
        """Read a register; :attr:`Run.reads` has the value."""
        self._add(_READ, register, 0)

    def finish(self) -> None:
        """Enable the descriptors, and await the interrupt of the last one."""
        self.write("control", compose("control", enable=1))
        self.steps.append((_AWAIT, 0, 0, 0))
        self.read("error")

    def load(self, slot: int, codebook: Sequence[int]) -> None:
        """Write a codebook into a slot."""
        for word in codebook_words(slot, codebook):
            self.write("codebook", word)

    def describe(self, name: str, base: int, length: int) -> None:
        """Write the registers of a region."""
        self.write(f"{name}_base_low", base & 0xFFFF_FFFF)
        self.write(f"{name}_base_high", base >> 32)
        self.write(f"{name}_length", length)

    def _add(self, kind: int, register: str, value: int) -> None:
        self.steps.append((kind, register_of(register).offset, value, len(self.regions)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """Segments with everything that a peripheral needs for them."""

    script: Script
    values: NDArray[np.uint16]  # output or input values
    packets: NDArray[np.uint32]  # values of each
    seed: int  # of the patterns


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flip:
    """A bit flip."""

    cycle: int
    place: int  # of :attr:`Peripheral.places`
    bit: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """The outcome of a piece of work."""

    cycles: int
    outside: int  # bursts outside the descriptors' regions
    repeated: int  # bursts to words accessed before
    broken: int  # broken AXI rules about addresses and bursts
    unheld: int  # data that changed or was withdrawn before it was taken
    stopped: bool  # the interrupt, or an answer of the register port, is missing
    error: int  # the register, and 1 << 32 if a packet of values was flagged
    data: bytes  # all other results: values, memory, other registers

    @property
    def clean(self) -> bool:
        """True if every rule was obeyed and nothing was flagged."""
        return not (self.stopped or self.error or any(getattr(self, name) for name in RULES))


class Peripheral:
    """A Verilated peripheral, its registers and memories by name."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.config = SMALL if kind == "dma" else small(8, 32)
        top = CassandraDma(SMALL) if kind == "dma" else CassandraEncoderDma(small(8, 32))
        name, lanes = top.module_name, self.config.engine.lanes
        library = Library(verilog=to_verilog(top), module=name, lanes=lanes, kind=kind)
        self._library = ctypes.CDLL(str(library.built()))
        self._library.cassandra_create.restype = ctypes.c_void_p
        self._library.cassandra_place.restype = ctypes.c_char_p
        sizes = (ctypes.c_uint32 * 5)()
        self._library.cassandra_sizes(sizes)
        expected = [kind.itemsize for kind in (_STEP, _REGION, _WORK, _FLIP, _OUTCOME)]
        if list(sizes) != expected:
            what = f"structures of flips.cpp must be {expected} bytes, not {list(sizes)}"
            raise GatewareError(what)
        self._handle = ctypes.c_void_p(self._library.cassandra_create())
        self.places = list(self._places(name))

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._library.cassandra_destroy(self._handle)

    def _places(self, top: str) -> Iterator[tuple[str, int]]:
        """Yield registers and memories below the top, with their bits."""
        bits = ctypes.c_uint32()
        for place in range(self._library.cassandra_places(self._handle)):
            found = self._library.cassandra_place(self._handle, place, ctypes.byref(bits))
            scope, name = found.decode().split(" ", 1)
            block = scope.replace("\\", "").rpartition(top)[2].strip(". ") or "top"
            yield f"{block}.{name.strip()}", bits.value

    def run(self, work: Work, flip: Flip | None = None) -> Run:
        """Reset, run the work, and flip a bit on the way."""
        steps = np.array(work.script.steps, np.uint32).view(_STEP).ravel()
        decodes = self.kind == "dma"
        memory = [part if decodes else np.zeros_like(part) for _, part in work.script.regions]
        values = np.zeros_like(work.values) if decodes else work.values
        reads = np.zeros(len(steps), np.uint32)
        regions = _region_table(work.script, memory)
        entry = _work_entry(work, (steps, regions, values, reads, work.packets))
        change, outcome = np.zeros((), _FLIP), np.zeros((), _OUTCOME)
        change["cycle"] = _NEVER
        if flip is not None:
            change["cycle"], change["place"], change["bit"] = flip.cycle, flip.place, flip.bit
        self._library.cassandra_run(self._handle, *map(address, (entry, change, outcome)))
        counts = {name: int(outcome[name]) for name in _COUNTS}
        seen = [values] if decodes else memory
        rest = np.array([counts["packets"], counts["wrong"], *reads[1:]], np.uint32)
        return Run(
            cycles=int(outcome["cycles"]),
            **{name: counts[name] for name in RULES},
            stopped=bool(counts["silent"]) or counts["steps"] < len(steps),
            error=int(reads[0]) | bool(counts["flagged"]) << 32,
            data=b"".join(part.tobytes() for part in (*seen, rest)),
        )

    def draw(self, rng: np.random.Generator) -> Work:
        """Draw random segments, with the expected values if they are decoded."""
        return _decoding(rng) if self.kind == "dma" else _encoding(rng)


def _region_table(script: Script, memory: Sequence[NDArray[np.uint8]]) -> NDArray[Any]:
    """Return the regions of a script as ``flips.cpp`` reads them; their bytes are in ``memory``."""
    table = np.zeros(len(memory), _REGION)
    for row, (base, part), room in zip(table, script.regions, memory, strict=True):
        row["base"], row["bytes"], row["data"] = base, part.size, room.ctypes.data
    return table


def _work_entry(work: Work, arrays: tuple[NDArray[Any], ...]) -> NDArray[Any]:
    """Return work as ``flips.cpp`` reads it; the arrays must outlive the call."""
    steps, regions, _, _, packets = map(len, arrays)
    entry = np.zeros((), _WORK)
    for name, array in zip(_ADDRESSES, arrays, strict=True):
        entry[name] = array.ctypes.data
    numbers = (steps, regions, packets, work.seed, _HANG_CYCLES)
    for name, number in zip(_NUMBERS, numbers, strict=True):
        entry[name] = number
    return entry


def _place(rng: np.random.Generator, number: int) -> int:
    """Return an address of its own, often shortly before the border of a page."""
    return (number + 1 << 36) + 4096 * int(rng.integers(1, 1 << 20)) - 32 * int(rng.integers(20))


def _begin() -> Script:
    script = Script()
    script.write("irq_enable", compose("irq_enable", idle=1))
    return script


def _decoding(rng: np.random.Generator) -> Work:
    script = _begin()
    lanes = SMALL.decoder.lanes
    jobs = mixed_jobs(rng, lanes=lanes, count=_SEGMENTS, segment=128)
    for slot, job in enumerate(jobs):
        request = job.request
        segment = request.segment
        if request.format.scheme == "unary":
            script.load(slot, request.codebook or (0,))
        script.write("command", request.word)
        script.write("book", slot)
        for name in ("speculation", "verification"):
            content = np.ascontiguousarray(getattr(segment, name))
            base = _place(rng, len(script.regions))
            script.describe(name, base, content.size)
            # a draft's verification region is described, but must not be read
            if name == "speculation" or (job.target and content.size):
                script.regions.append((base, content))
        script.write("start", compose("start", push=1))
    script.finish()
    values = np.concatenate([job.expected for job in jobs])
    packets = np.array([job.expected.size for job in jobs], np.uint32)
    return Work(script=script, values=values, packets=packets, seed=int(rng.integers(1 << 62)))


def _encoding(rng: np.random.Generator) -> Work:
    script, config = _begin(), small(8, 32)
    scheme = SCHEMES[int(rng.integers(len(SCHEMES)))]
    segments = [draw_segment(rng, config.encoder, scheme, "normal") for _ in range(_SEGMENTS)]
    regions = [(one.packed.speculation, one.packed.verification) for one in segments]
    follow = rng.random() < 0.5
    for slot, segment in enumerate(segments):
        if scheme == "unary":
            script.load(slot, segment.codebook)
        for register, word in commands_of(segment.word).items():
            script.write(register, word)
        script.write("book", slot)
        if not (follow and slot):
            for which, name in enumerate(("speculation", "verification")):
                room = regions if follow else regions[slot : slot + 1]
                size = sum(each[which].size for each in room)
                base = _place(rng, len(script.regions))
                script.describe(name, base, size)
                script.regions.append((base, np.zeros(size, np.uint8)))
        script.write("start", compose("start", push=1, follow=int(follow and slot > 0)))
    script.finish()
    for _ in segments:
        for found in registers_for("encode"):
            if found.name.startswith("result"):
                script.read(found.name)
        script.write("result", compose("result", pop=1))
    values = np.concatenate([segment.values for segment in segments])
    packets = np.array([segment.values.size for segment in segments], np.uint32)
    return Work(script=script, values=values, packets=packets, seed=int(rng.integers(1 << 62)))
