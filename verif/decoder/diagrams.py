"""Draw timing diagrams of every interface, traced in Amaranth's own simulator.

``python -m cassandra_spec.verif.decoder.diagrams`` writes WaveDrom sources and pictures to
docs/hardware/timing. The diagrams show real traces of the gateware; tests hold them to the rules of
valid and ready.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cassandra_spec.golden.format import Format
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode.top import DecoderTop
from cassandra_spec.rtl.dma.config import DmaConfig
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.rtl.dma.registers import register_of
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.verif.decoder.jobs import Job
from cassandra_spec.verif.encoder.diagrams import (
    ENCODER_DIAGRAMS,
    STORE_DIAGRAMS,
    trace_encoder,
    trace_store,
)
from cassandra_spec.verif.library.drawing import picture
from cassandra_spec.verif.library.packets import codebook_packet, region_packet
from cassandra_spec.verif.library.payloads import Payload, gaussian
from cassandra_spec.verif.library.tracing import (
    Host,
    Packets,
    Ready,
    Traced,
    codebook_writes,
    writes_of,
)
from cassandra_spec.verif.library.waves import Diagram, Trace, axi, axi_stream, source

FOLDER = Path(__file__).resolve().parents[2] / "docs/hardware/timing"


def _job() -> Job:
    """Return a few beats of weights, one of them partly pruned."""
    fmt = Format(scheme="unary", beat=8, segment=64, group=32)
    rng = np.random.default_rng(3)
    values = gaussian(rng, 60)
    return Job(
        payload=Payload(name="diagram", format=fmt, values=values, kept=rng.random(60) < 0.7),
        index=0,
        target=True,
    )


def trace_decoder(cycles: int = 160) -> Trace:
    """Trace two segments through the decoder, inputs as early as possible, some back-pressure."""
    request = _job().request
    packets = Packets(
        codebook=codebook_packet(request.codebook),
        command=[{"tdata": request.word}] * 2,
        speculation=2 * list(region_packet(request.segment.speculation.tobytes(), 8)),
        verification=2 * list(region_packet(request.segment.verification.tobytes(), 8)),
    )
    taken = Ready("m_axis_values_tready", lambda cycle: cycle % 16 not in (5, 6))
    top = DecoderTop(DecoderConfig(lanes=8, schemes=("unary",)))
    return Traced(top).run([packets, taken], cycles)


_IRQS = 6  # IRQ_ENABLE: idle, error
_BASES = (0x1FC0, 0x8000)  # the first region crosses a page
_DMA = DmaConfig(decoder=DecoderConfig(lanes=8, schemes=("unary",)), burst=128)


@functools.cache
def _dma() -> Traced:
    return Traced(CassandraDma(_DMA))


def trace_dma(
    cycles: int = 240, *, reset: int = 0, failed: int | None = None, enabled: int = 0
) -> Trace:
    """Trace a segment through the DMA: registers, bursts, a memory that interleaves regions.

    ``reset`` cycles come first, and software begins four cycles behind them. The memory answers the
    address ``failed`` with SLVERR. ``enabled`` is the value of IRQ_ENABLE, if not 0. The trace has
    two more signals, ``near_the_end_of_writes`` and ``near_the_start``.
    """
    request = _job().request
    regions = (request.segment.speculation, request.segment.verification)
    memory = {
        base + at * _DMA.bus: word["tdata"]
        for base, region in zip(_BASES, regions, strict=True)
        for at, word in enumerate(region_packet(region.tobytes(), _DMA.bus))
    }
    reads = [(register_of("status").offset, None), (0xFC, None)]  # no register at the last address
    writes = {
        "speculation_base_low": _BASES[0],
        "verification_base_low": _BASES[1],
        "speculation_length": request.segment.speculation.size,
        "verification_length": request.segment.verification.size,
        **({"irq_enable": enabled} if enabled else {}),
        "control": 1,
        "command": request.word,
        "start": 1,
    }
    accesses = [*codebook_writes(request.codebook), *writes_of(writes), *reads]
    host = Host(accesses, wait=reset + 4 if reset else 0)
    answers = _Answers(memory, _DMA.bus, failed)
    drivers = (Ready("m_axis_values_tready"), host, answers)
    trace = _dma().run(drivers, cycles, reset)
    first = next(i for i, cycle in enumerate(trace) if cycle["s_axil_arvalid"])
    for place, cycle in enumerate(trace):
        cycle["near_the_end_of_writes"] = int(place >= first - 8)
        cycle["near_the_start"] = int(place >= first - 2)
    return trace


class _Answers:
    """A memory that answers after some cycles, alternating between the IDs."""

    def __init__(self, memory: Mapping[int, int], word: int, failed: int | None = None) -> None:
        self._memory, self._word, self._failed = memory, word, failed
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
            ctx.set(top.m_axi_rresp, 2 if address == self._failed else 0)

    def see(self, cycle: Mapping[str, int]) -> None:
        """Queue the requests of a cycle."""
        if cycle["m_axi_arvalid"] and cycle["m_axi_arready"]:
            count = cycle["m_axi_arlen"] + 1
            for beat in range(count):
                address = cycle["m_axi_araddr"] + beat * self._word
                entry = (self._cycle + 6, address, int(beat == count - 1))
                self._queues[cycle["m_axi_arid"]].append(entry)
        self._cycle += 1


DECODER_DIAGRAMS = (
    Diagram(
        name="codebook",
        title="Codebook: an exponent in each cycle, the last with tlast; then the command",
        note="the command is sent when its codebook has been taken",
        channels=(axi_stream("codebook", "e", "tlast"), axi_stream("command", "segment ")),
        around="s_axis_codebook_tvalid",
        cycles=20,
    ),
    Diagram(
        name="command",
        title="Command: the next one waits until the segment before it has left",
        note="a segment of 60 values on 8 lanes, target mode",
        channels=(
            axi_stream("command", "segment "),
            axi_stream("values", "", "tlast", prefix="m_axis"),
        ),
        extra=("busy",),
        around="s_axis_command_tvalid",
        cycles=48,
    ),
    Diagram(
        name="speculation",
        title="Speculation region: a packet of words, taken as rows are used up",
        note="four words are taken at once; what completes the region is drained",
        channels=(axi_stream("speculation", "w", "tlast"), axi_stream("command", "segment ")),
        around="s_axis_command_tvalid",
        cycles=44,
    ),
    Diagram(
        name="verification",
        title="Verification region: the same, for segments whose command asks for it",
        note="words of the next segment wait until its region begins",
        channels=(axi_stream("verification", "w", "tlast"), axi_stream("command", "segment ")),
        around="s_axis_command_tvalid",
        cycles=44,
    ),
    Diagram(
        name="values",
        title="Values: a beat is held until it is taken; the last of a segment has tlast",
        note="target mode; tuser would be 1 in the last beat of a bad segment",
        channels=(axi_stream("values", "b", "tlast", "tuser", prefix="m_axis"),),
        around="m_axis_values_tvalid",
        cycles=28,
    ),
)
_READS = (axi("m_axi_ar", "addr", "a", "id"), axi("m_axi_r", "data", "d", "id", "last"))
DMA_DIAGRAMS = (
    Diagram(
        name="axi_read",
        title="AXI4 reads: bursts of both regions, answered interleaved; RREADY is always high",
        note="a1 ends at a page and is short; rid 0 is the speculation region, 1 the other",
        channels=_READS,
        around="m_axi_arvalid",
        cycles=36,
    ),
    Diagram(
        name="axi_lite",
        title="AXI4-Lite: a write is answered two cycles after address and data, a read likewise",
        note="the last read has no register: rresp is SLVERR",
        channels=(
            axi("s_axil_aw", "addr", "a"),
            axi("s_axil_w", "data", "d"),
            axi("s_axil_b", "resp", "ok "),
            axi("s_axil_ar", "addr", "r"),
            axi("s_axil_r", "resp", "answer "),
        ),
        around="near_the_end_of_writes",
        cycles=20,
    ),
)

RESET_DIAGRAM = Diagram(
    name="dma_reset",
    title="Reset: one cycle is enough; registers can be written from the next cycle on",
    note="the first writes are those of the codebook",
    channels=(axi("s_axil_aw", "addr", "a"), axi("s_axil_w", "data", "d")),
    extra=("rst", "irq"),
    around="rst",
    cycles=20,
)
SEGMENT_DIAGRAM = Diagram(
    name="dma_segment",
    title="A whole segment: START, reads of both regions, values, interrupt",
    note="60 values on 8 lanes, target mode; two reads of registers follow START",
    channels=(*_READS, axi_stream("values", "b", "tlast", "tuser", prefix="m_axis")),
    extra=("irq",),
    around="near_the_start",
    cycles=76,
)
ERROR_DIAGRAM = dataclasses.replace(
    SEGMENT_DIAGRAM,
    name="dma_error",
    title="Error: a read answered with SLVERR ends its segment with tuser, and raises irq",
    note="the other reads of the segment are still taken",
)

DIAGRAMS = (
    *(*DECODER_DIAGRAMS, *DMA_DIAGRAMS, RESET_DIAGRAM, SEGMENT_DIAGRAM, ERROR_DIAGRAM),
    *(*ENCODER_DIAGRAMS, *STORE_DIAGRAMS),
)


def segment_diagram() -> str:
    """Return the WaveDrom source of one whole segment: command, regions, values."""
    diagram = Diagram(
        name="segment",
        title="A segment of 60 values on 8 lanes: command, speculation and verification, values",
        note="target mode, some back-pressure",
        channels=(
            axi_stream("command", "segment "),
            axi_stream("speculation", "s", "tlast"),
            axi_stream("verification", "v", "tlast"),
            axi_stream("values", "b", "tlast", prefix="m_axis"),
        ),
        extra=("busy",),
        around="s_axis_command_tvalid",
        cycles=52,
    )
    return source(trace_decoder(), diagram)


def draw() -> Iterator[tuple[str, str]]:
    """Yield name and WaveDrom source of every diagram."""
    for trace, diagrams in (
        (trace_decoder(), DECODER_DIAGRAMS),
        (trace_dma(), DMA_DIAGRAMS),
        (trace_dma(reset=3), (RESET_DIAGRAM,)),
        (trace_dma(enabled=_IRQS), (SEGMENT_DIAGRAM,)),
        (trace_dma(enabled=_IRQS, failed=_BASES[0] + 8), (ERROR_DIAGRAM,)),
        (trace_encoder(), ENCODER_DIAGRAMS),
        (trace_store(), STORE_DIAGRAMS),
    ):
        for diagram in diagrams:
            yield diagram.name, source(trace, diagram)


def main(argv: Sequence[str] | None = None) -> int:
    """Write sources and pictures."""
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.verif.decoder.diagrams", description=__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write to")
    return parser


def _run(args: argparse.Namespace) -> int:
    args.out.mkdir(parents=True, exist_ok=True)
    for name, text in draw():
        (args.out / f"{name}.json").write_text(text, encoding="utf-8")
        (args.out / f"{name}.svg").write_text(picture(text), encoding="utf-8")
        print(args.out / f"{name}.json")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
