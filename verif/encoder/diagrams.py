"""Timing diagrams of the encoder: its streams, and the store's writes and registers."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from cassandra_spec.golden.format import Format
from cassandra_spec.rtl.dma.config import StoreConfig
from cassandra_spec.rtl.dma.encoder_dma import CassandraEncoderDma
from cassandra_spec.rtl.dma.registers import register_of
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encoder import EncoderTop
from cassandra_spec.verif.dma.encoding import commands_of
from cassandra_spec.verif.encoder.model import Segment
from cassandra_spec.verif.library.packets import codebook_packet, values_packet
from cassandra_spec.verif.library.payloads import gaussian
from cassandra_spec.verif.library.tracing import (
    Host,
    Packets,
    Ready,
    Traced,
    codebook_writes,
    writes_of,
)
from cassandra_spec.verif.library.waves import Diagram, Trace, axi, axi_stream

_CONFIG = EncoderConfig(lanes=8, schemes=("unary",), vector=16, group=16, segment=64)
_BASES = (0x1FC0, 0x8000)  # the first region crosses a page


def _segment() -> Segment:
    """Return two vectors and part of a third; ten values of each are kept."""
    values = gaussian(np.random.default_rng(3), 36)
    exponents, counts = np.unique(values >> 7 & 0xFF, return_counts=True)
    book = tuple(int(e) for e in exponents[np.argsort(-counts, kind="stable")][:16])
    fmt = Format(scheme="unary", beat=8, segment=64, group=16)
    return Segment(format=fmt, values=values, vector=16, keep=10, mask=True, codebook=book)


def trace_encoder(cycles: int = 160) -> Trace:
    """Trace two segments through the encoder, inputs as early as possible, some back-pressure."""
    segment = _segment()
    packets = Packets(
        codebook=codebook_packet(segment.codebook),
        command=[{"tdata": segment.word}] * 2,
        values=2 * list(values_packet(segment.values.tolist(), _CONFIG.lanes)),
    )
    outputs = [
        Ready("m_axis_speculation_tready", lambda cycle: cycle % 16 not in (5, 6)),
        Ready("m_axis_verification_tready"),
        Ready("m_axis_result_tready", lambda cycle: cycle % 4 == 3),
    ]
    return Traced(EncoderTop(_CONFIG)).run([packets, *outputs], cycles)


def trace_store(cycles: int = 320) -> Trace:
    """Trace a segment into memory that takes words in three of five cycles, then its entry."""
    segment = _segment()
    top = CassandraEncoderDma(StoreConfig(encoder=_CONFIG, burst=128, buffer=256))
    before = {
        "speculation_base_low": _BASES[0],
        "verification_base_low": _BASES[1],
        "speculation_length": 256,
        "verification_length": 256,
        "irq_enable": 1,
        "control": 1,
        **commands_of(segment.word),
        "start": 1,
    }
    numbers = ("result", "result_speculation_length", "result_verification_length")
    reads = [(register_of(name).offset, None) for name in numbers]
    host = Host(
        [*codebook_writes(segment.codebook), *writes_of(before)],
        later=[*reads, *writes_of({"result": 1 << 13, "irq": 1})],
    )
    values = Packets(values=values_packet(segment.values.tolist(), _CONFIG.lanes))
    trace = Traced(top).run([host, values, _Memory()], cycles)
    last = max(i for i, cycle in enumerate(trace) if cycle["m_axi_bvalid"])
    for place, cycle in enumerate(trace):
        cycle["last_response"] = int(place == last)
    return trace


class _Memory:
    """Takes addresses at once and words in three of five cycles; answers six cycles later."""

    def __init__(self) -> None:
        self._bursts = deque[int]()  # IDs of bursts without words yet
        self._answers = deque[tuple[int, int]]()  # cycle, ID
        self._cycle = 0

    def drive(self, ctx: Any, top: Any) -> None:
        """Set ready, and offer a response that is due."""
        ctx.set(top.m_axi_awready, 1)
        ctx.set(top.m_axi_wready, int(self._cycle % 5 < 3))
        due = bool(self._answers) and self._answers[0][0] <= self._cycle
        ctx.set(top.m_axi_bvalid, int(due))
        ctx.set(top.m_axi_bid, self._answers[0][1] if due else 0)

    def see(self, cycle: Mapping[str, int]) -> None:
        if cycle["m_axi_bvalid"] and cycle["m_axi_bready"]:
            self._answers.popleft()
        if cycle["m_axi_awvalid"] and cycle["m_axi_awready"]:
            self._bursts.append(cycle["m_axi_awid"])
        if cycle["m_axi_wvalid"] and cycle["m_axi_wready"] and cycle["m_axi_wlast"]:
            self._answers.append((self._cycle + 6, self._bursts.popleft()))
        self._cycle += 1


ENCODER_DIAGRAMS = (
    Diagram(
        name="encoder_input",
        title="Encoder: codebook, command, then the values of the segment, a beat in each cycle",
        note="36 values in vectors of 16, 8 lanes: five beats, of which the last is cut short",
        channels=(
            axi_stream("codebook", "e", "tlast"),
            axi_stream("command", "segment "),
            axi_stream("values", "b", "tlast"),
        ),
        extra=("busy",),
        around="s_axis_codebook_tvalid",
        cycles=40,
    ),
    Diagram(
        name="encoder_output",
        title="Encoder: both regions leave, then the result, before the next segment's words",
        note="regions of one superblock, 16 words; a result waits until it is taken",
        channels=(
            axi_stream("speculation", "s", "tlast", prefix="m_axis"),
            axi_stream("verification", "v", "tlast", prefix="m_axis"),
            axi_stream("result", "r", prefix="m_axis"),
        ),
        extra=("busy",),
        around="m_axis_speculation_tvalid",
        cycles=48,
    ),
)
STORE_DIAGRAMS = (
    Diagram(
        name="axi_write",
        title="AXI4 writes: an address when its burst is whole, its words at once; responses later",
        note="WREADY is low in two of five cycles; a0 ends at a page; id 1: verification region",
        channels=(
            axi("m_axi_aw", "addr", "a", "id"),
            axi("m_axi_w", "data", "w", "last"),
            axi("m_axi_b", "resp", "ok ", "id"),
        ),
        around="m_axi_awvalid",
        cycles=56,
    ),
    Diagram(
        name="store_result",
        title="A segment is in memory: interrupt; its entry is read and popped; IRQ is cleared",
        note="r0 to r2 are RESULT and both lengths; a0 pops the entry, a1 clears IRQ",
        channels=(
            axi("m_axi_b", "resp", "ok ", "id"),
            axi("s_axil_ar", "addr", "r"),
            axi("s_axil_r", "data", "d"),
            axi("s_axil_aw", "addr", "a"),
        ),
        extra=("irq",),
        around="last_response",
        cycles=32,
    ),
)
