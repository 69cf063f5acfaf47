"""Timing diagrams of every interface, traced in Amaranth's own simulator.

``python -m verif.diagrams`` writes WaveDrom sources to docs/timing, and pictures beside them if the
package wavedrom is installed (2.0.3.post3 made those in the repository). What the diagrams show is
what the gateware did; tests hold them to the rules of valid and ready.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib
import importlib.util
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.sim import Simulator

from golden.format import Format
from rtl.command import DecoderConfig
from rtl.dma.config import DmaConfig
from rtl.dma.registers import register_of
from rtl.dma.top import CassandraDma
from rtl.top import DecoderTop
from verif.jobs import Job
from verif.payloads import Payload, gaussian

__all__ = ["FOLDER", "Channel", "Diagram", "digest_of", "draw", "main", "picture"]

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "timing"

Trace = list[dict[str, int]]
"""Values of signals before each rising edge."""

_COLOURS = "3456789"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Channel:
    """A stream in a diagram: payload names and a few of its signals."""

    valid: str
    ready: str
    data: str  # the bus whose transfers are named
    label: str  # of a transfer, with its number
    bits: tuple[str, ...] = ()  # further signals of the payload


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagram:
    """A part of a trace."""

    name: str
    title: str
    note: str
    channels: tuple[Channel, ...]
    extra: tuple[str, ...] = ()  # single bits
    around: str = ""  # the diagram begins two cycles before this signal is first 1
    cycles: int = 24


def _bits(values: Sequence[int | None]) -> str:
    """A wave of single bits; None is unknown."""
    marks = ["x" if value is None else str(value) for value in values]
    return "".join(
        mark if place == 0 or mark != marks[place - 1] else "." for place, mark in enumerate(marks)
    )


def _transfers(trace: Trace, channel: Channel, label: str) -> tuple[str, list[str]]:
    """The wave of a bus, with a new colour and label for each transfer."""
    wave, labels, held = "", list[str](), False
    numbers = itertools.count()
    for place, cycle in enumerate(trace):
        if not cycle[channel.valid]:
            idle = place == 0 or trace[place - 1][channel.valid]
            wave, held = wave + ("x" if idle else "."), False
            continue
        if held:
            wave += "."
        else:
            wave += _COLOURS[len(labels) % len(_COLOURS)]
            labels.append(f"{label}{next(numbers)}")
        held = not cycle[channel.ready]
    return wave, labels


def _lines(trace: Trace, diagram: Diagram) -> Iterator[dict[str, Any]]:
    yield {"name": "clk", "wave": "p" + "." * (len(trace) - 1)}
    for channel in diagram.channels:
        yield {}
        for name in (channel.valid, channel.ready):
            yield {"name": name, "wave": _bits([cycle[name] for cycle in trace])}
        wave, labels = _transfers(trace, channel, channel.label)
        yield {"name": channel.data, "wave": wave, "data": labels}
        for name in channel.bits:
            seen = [cycle[name] if cycle[channel.valid] else None for cycle in trace]
            yield {"name": name, "wave": _bits(seen)}
    if diagram.extra:
        yield {}
    for name in diagram.extra:
        yield {"name": name, "wave": _bits([cycle[name] for cycle in trace])}


def source(trace: Trace, diagram: Diagram) -> str:
    """The WaveDrom source of a diagram, a signal on each line."""
    first = next(place for place, cycle in enumerate(trace) if cycle[diagram.around])
    part = trace[max(0, first - 2) :][: diagram.cycles]
    signals = ",\n".join("  " + json.dumps(line) for line in _lines(part, diagram))
    head, foot = json.dumps({"text": diagram.title}), json.dumps({"text": diagram.note})
    return f'{{"signal": [\n{signals}\n],\n"head": {head},\n"foot": {foot}}}\n'


def digest_of(text: str) -> str:
    """What ties a picture to its source."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def picture(text: str) -> str:
    """The source as SVG, with a title and a description."""
    wavedrom = importlib.import_module("wavedrom")
    drawn = wavedrom.render(text).tostring()
    title = json.loads(text)["head"]["text"]
    described = f"<title>{title}</title><desc>WaveDrom source {digest_of(text)}</desc>"
    place = drawn.index(">", drawn.index("<svg")) + 1
    return f"{drawn[:place]}{described}{drawn[place:]}\n"


# ---- what is traced ------------------------------------------------------------------------------


def _job() -> Job:
    """A few beats of weights, one of them pruned in part."""
    fmt = Format(scheme="unary", beat=8, segment=64, group=32)
    rng = np.random.default_rng(3)
    values = gaussian(rng, 60)
    return Job(
        payload=Payload(name="diagram", format=fmt, values=values, kept=rng.random(60) < 0.7),
        index=0,
        target=True,
    )


def _words(region: bytes, size: int) -> list[int]:
    return [int.from_bytes(region[at : at + size], "little") for at in range(0, len(region), size)]


def _record(ctx: Any, top: Any, trace: Trace, names: Sequence[str]) -> dict[str, int]:
    cycle = {name: ctx.get(getattr(top, name)) for name in names}
    trace.append(cycle)
    return cycle


def _ports(top: Any) -> list[str]:
    return list(top.signature.members)


def trace_decoder(cycles: int = 160) -> Trace:
    """Two segments through the decoder, inputs as early as may be, some back-pressure."""
    config = DecoderConfig(lanes=8, schemes=("unary",))
    top, trace = DecoderTop.of(config), Trace()
    request = _job().request
    last = len(request.codebook) - 1
    regions = {
        name: _words(getattr(request.segment, name).tobytes(), 8)
        for name in ("speculation", "verification")
    }
    queues: dict[str, list[dict[str, int]]] = {
        "codebook": [
            {"tdata": entry, "tlast": int(place == last)}
            for place, entry in enumerate(request.codebook)
        ],
        "command": [{"tdata": request.word}] * 2,
    }
    for name, words in regions.items():
        region = [{"tdata": w, "tlast": int(i == len(words) - 1)} for i, w in enumerate(words)]
        queues[name] = region * 2

    async def bench(ctx: Any) -> None:
        for number in range(cycles):
            for name, queue in queues.items():
                wait = name == "command" and bool(queues["codebook"])
                ctx.set(getattr(top, f"s_axis_{name}_tvalid"), int(bool(queue) and not wait))
                for field, value in (queue[0] if queue else {}).items():
                    ctx.set(getattr(top, f"s_axis_{name}_{field}"), value)
            ctx.set(top.m_axis_values_tready, int(number % 16 not in (5, 6)))
            cycle = _record(ctx, top, trace, _ports(top))
            for name, queue in queues.items():
                if cycle[f"s_axis_{name}_tvalid"] and cycle[f"s_axis_{name}_tready"]:
                    queue.pop(0)
            await ctx.tick()

    _simulate(top, bench)
    return trace


def _simulate(top: Any, bench: Any) -> None:
    simulator = Simulator(top)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


_BASES = (0x1FC0, 0x8000)  # the first region crosses a page


def trace_dma(cycles: int = 240) -> Trace:
    """A segment through the DMA: registers, bursts, a memory that interleaves both regions."""
    config = DmaConfig(decoder=DecoderConfig(lanes=8, schemes=("unary",)), burst=128)
    top, trace = CassandraDma(config), Trace()
    request = _job().request
    memory = {
        base + at: word
        for base, region in zip(
            _BASES, (request.segment.speculation, request.segment.verification), strict=True
        )
        for at, word in zip(
            range(0, region.size, config.bus), _words(region.tobytes(), config.bus), strict=True
        )
    }
    host = _Host(request.codebook, _registers(request))
    answers = _Answers(memory, config.bus)

    async def bench(ctx: Any) -> None:
        ctx.set(top.m_axis_values_tready, 1)
        for _ in range(cycles):
            host.drive(ctx, top)
            answers.drive(ctx, top)
            cycle = _record(ctx, top, trace, _ports(top))
            host.see(cycle)
            answers.see(cycle)
            await ctx.tick()

    _simulate(top, bench)
    return trace


def _registers(request: Any) -> list[tuple[str, int]]:
    segment = request.segment
    return [
        ("speculation_base_low", _BASES[0]),
        ("verification_base_low", _BASES[1]),
        ("speculation_length", segment.speculation.size),
        ("verification_length", segment.verification.size),
        ("control", 1),
        ("command", request.word),
        ("start", 1),
    ]


class _Host:
    """Writes registers one by one, then reads STATUS and an address without a register."""

    def __init__(self, codebook: Sequence[int], writes: Sequence[tuple[str, int]]) -> None:
        last = len(codebook) - 1
        book = [
            (register_of("codebook").offset, entry | place << 8 | int(place == last) << 24)
            for place, entry in enumerate(codebook)
        ]
        self._writes = [*book, *((register_of(name).offset, value) for name, value in writes)]
        self._reads = [register_of("status").offset, 0xFC]
        self._aw = self._w = True
        self._ar = True

    def drive(self, ctx: Any, top: Any) -> None:
        """Set the port."""
        address, value = self._writes[0] if self._writes else (0, 0)
        ctx.set(top.s_axil_awaddr, address)
        ctx.set(top.s_axil_awvalid, int(bool(self._writes) and self._aw))
        ctx.set(top.s_axil_wdata, value)
        ctx.set(top.s_axil_wstrb, 15)
        ctx.set(top.s_axil_wvalid, int(bool(self._writes) and self._w))
        ctx.set(top.s_axil_bready, 1)
        ctx.set(top.s_axil_araddr, self._reads[0] if self._reads else 0)
        reading = not self._writes and bool(self._reads) and self._ar
        ctx.set(top.s_axil_arvalid, int(reading))
        ctx.set(top.s_axil_rready, 1)

    def see(self, cycle: Mapping[str, int]) -> None:
        """What was taken."""
        if cycle["s_axil_awvalid"] and cycle["s_axil_awready"]:
            self._aw = False
        if cycle["s_axil_wvalid"] and cycle["s_axil_wready"]:
            self._w = False
        if cycle["s_axil_bvalid"]:
            self._writes.pop(0)
            self._aw = self._w = True
        if cycle["s_axil_arvalid"] and cycle["s_axil_arready"]:
            self._ar = False
        if cycle["s_axil_rvalid"]:
            self._reads.pop(0)
            self._ar = True


class _Answers:
    """A memory that answers after some cycles, the IDs in turn."""

    def __init__(self, memory: Mapping[int, int], word: int) -> None:
        self._memory, self._word = memory, word
        self._queues: dict[int, list[tuple[int, int, int]]] = {0: [], 1: []}  # due, address, last
        self._cycle = 0

    def drive(self, ctx: Any, top: Any) -> None:
        """Offer a beat that is due; take addresses in two of three cycles."""
        ctx.set(top.m_axi_arready, int(self._cycle % 3 != 2))
        due = [i for i, queue in self._queues.items() if queue and queue[0][0] <= self._cycle]
        chosen = due[self._cycle % len(due)] if due else 0
        ctx.set(top.m_axi_rvalid, int(bool(due)))
        if due:
            _, address, last = self._queues[chosen].pop(0)
            ctx.set(top.m_axi_rid, chosen)
            ctx.set(top.m_axi_rdata, self._memory[address])
            ctx.set(top.m_axi_rlast, last)

    def see(self, cycle: Mapping[str, int]) -> None:
        """Queue what is asked for."""
        if cycle["m_axi_arvalid"] and cycle["m_axi_arready"]:
            count = cycle["m_axi_arlen"] + 1
            for beat in range(count):
                address = cycle["m_axi_araddr"] + beat * self._word
                entry = (self._cycle + 6, address, int(beat == count - 1))
                self._queues[cycle["m_axi_arid"]].append(entry)
        self._cycle += 1


def _stream(name: str, label: str, *bits: str, prefix: str = "s_axis") -> Channel:
    return Channel(
        valid=f"{prefix}_{name}_tvalid",
        ready=f"{prefix}_{name}_tready",
        data=f"{prefix}_{name}_tdata",
        label=label,
        bits=tuple(f"{prefix}_{name}_{bit}" for bit in bits),
    )


def _channel(prefix: str, data: str, label: str, *bits: str) -> Channel:
    return Channel(
        valid=f"{prefix}valid",
        ready=f"{prefix}ready",
        data=f"{prefix}{data}",
        label=label,
        bits=tuple(f"{prefix}{bit}" for bit in bits),
    )


DECODER_DIAGRAMS = (
    Diagram(
        name="codebook",
        title="Codebook: an exponent in each cycle, the last with tlast; then the command",
        note="the command is sent when its codebook has been taken",
        channels=(_stream("codebook", "e", "tlast"), _stream("command", "segment ")),
        around="s_axis_codebook_tvalid",
        cycles=20,
    ),
    Diagram(
        name="command",
        title="Command: the next one waits until the segment before it has left",
        note="a segment of 60 values on 8 lanes, target mode",
        channels=(
            _stream("command", "segment "),
            _stream("values", "", "tlast", prefix="m_axis"),
        ),
        extra=("busy",),
        around="s_axis_command_tvalid",
        cycles=48,
    ),
    Diagram(
        name="speculation",
        title="Speculation region: a packet of words, taken as rows are used up",
        note="four words are taken at once; what completes the region is drained",
        channels=(_stream("speculation", "w", "tlast"), _stream("command", "segment ")),
        around="s_axis_command_tvalid",
        cycles=44,
    ),
    Diagram(
        name="verification",
        title="Verification region: the same, for segments whose command asks for it",
        note="words of the next segment wait until its region begins",
        channels=(_stream("verification", "w", "tlast"), _stream("command", "segment ")),
        around="s_axis_command_tvalid",
        cycles=44,
    ),
    Diagram(
        name="values",
        title="Values: a beat is held until it is taken; the last of a segment has tlast",
        note="target mode; tuser would be 1 in the last beat of a bad segment",
        channels=(_stream("values", "b", "tlast", "tuser", prefix="m_axis"),),
        around="m_axis_values_tvalid",
        cycles=28,
    ),
)
DMA_DIAGRAMS = (
    Diagram(
        name="axi_read",
        title="AXI4 reads: bursts of both regions, answered interleaved; RREADY is always high",
        note="a1 ends at a page and is short; rid 0 is the speculation region, 1 the other",
        channels=(
            _channel("m_axi_ar", "addr", "a", "id"),
            _channel("m_axi_r", "data", "d", "id", "last"),
        ),
        around="m_axi_arvalid",
        cycles=36,
    ),
    Diagram(
        name="axi_lite",
        title="AXI4-Lite: a write is answered two cycles after address and data, a read likewise",
        note="the last read has no register: rresp is SLVERR",
        channels=(
            _channel("s_axil_aw", "addr", "a"),
            _channel("s_axil_w", "data", "d"),
            _channel("s_axil_b", "resp", "ok "),
            _channel("s_axil_ar", "addr", "r"),
            _channel("s_axil_r", "resp", "answer "),
        ),
        around="near_the_end_of_writes",
        cycles=20,
    ),
)


def draw() -> Iterator[tuple[str, str]]:
    """Name and WaveDrom source of every diagram."""
    trace = trace_decoder()
    for diagram in DECODER_DIAGRAMS:
        yield diagram.name, source(trace, diagram)
    trace = trace_dma()
    reads = next(i for i, cycle in enumerate(trace) if cycle["s_axil_arvalid"])
    for place, cycle in enumerate(trace):
        cycle["near_the_end_of_writes"] = int(place >= reads - 8)
    for diagram in DMA_DIAGRAMS:
        yield diagram.name, source(trace, diagram)


def main(argv: Sequence[str] | None = None) -> int:
    """Write sources, and pictures if wavedrom is there."""
    parser = argparse.ArgumentParser(prog="verif.diagrams", description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write to")
    out = parser.parse_args(argv).out
    out.mkdir(parents=True, exist_ok=True)
    for name, text in draw():
        (out / f"{name}.json").write_text(text, encoding="utf-8")
        if importlib.util.find_spec("wavedrom"):
            (out / f"{name}.svg").write_text(picture(text), encoding="utf-8")
        print(out / f"{name}.json")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
