"""Exported tops in Icarus Verilog, a second simulator.

A smoke test: the file elaborates with ``-g2012`` and decodes, or encodes, as golden does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode.top import DecoderTop
from cassandra_spec.rtl.dma.config import REGIONS, DmaConfig
from cassandra_spec.rtl.dma.registers import register_of
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encoder import EncoderTop
from cassandra_spec.verif.decoder.jobs import Job
from cassandra_spec.verif.dma.host import codebook_words, compose
from cassandra_spec.verif.encoder.bulk import EncodeRequest
from cassandra_spec.verif.encoder.model import Segment
from cassandra_spec.verif.icarus.simulation import (
    Simulation,
    compile_verilog,
    packets,
    region_bytes,
    simulate,
    words_of_decoder,
    words_of_encoder,
    write_numbers,
)
from cassandra_spec.verif.library.packets import region_packet

__all__ = ["decode", "decode_by_dma", "encode"]


def decode(
    verilog: Path, config: DecoderConfig, jobs: Sequence[Job], work: Path
) -> NDArray[np.uint16]:
    """Decode segments with the exported decoder; ``work`` is a folder for files.

    The sources are those of the file list beside ``verilog``.

    Raises CassandraError with the tool's output if it does not elaborate, hangs, or flags a
    segment.
    """
    simulation = Simulation(DecoderTop(config), _sources(verilog), work, idle="1")
    words = words_of_decoder([job.request for job in jobs], config)
    return _values(simulation.run(words, len(jobs))[0]["values"])


def encode(
    verilog: Path, config: EncoderConfig, segment: Segment, work: Path
) -> tuple[bytes, bytes]:
    """Encode one segment with the exported encoder; return both regions. Errors as in decode."""
    request = EncodeRequest(
        values=segment.values, command=segment.word, codebook=tuple(segment.codebook)
    )
    simulation = Simulation(EncoderTop(config), _sources(verilog), work, idle="1")
    found, _ = simulation.run(words_of_encoder([request], config), 1)
    return region_bytes(found["speculation"]), region_bytes(found["verification"])


def decode_by_dma(
    verilog: Path, config: DmaConfig, jobs: Sequence[Job], work: Path
) -> NDArray[np.uint16]:
    """Decode segments of one tensor with the exported dma or array. Errors as in decode."""
    memory = bytearray()
    writes = [("codebook", word) for word in codebook_words(0, jobs[0].request.codebook)]
    writes.append(("control", compose("control", enable=1)))
    for job in jobs:
        writes += _segment_writes(job, memory, config.bus)
    words = [word["tdata"] for word in region_packet(bytes(memory), config.bus)]
    numbers = [register_of(name).offset << 32 | word for name, word in writes]
    write_numbers(work / "writes.hex", numbers)
    write_numbers(work / "memory.hex", words)
    defines = {
        "TOP": config.module_name,
        "BUS": 8 * config.bus,
        "VALUES": 16 * config.beat_values,
        "ID": config.id_bits,
        "ADDRESS": config.address,
        "WRITES": len(writes),
        "WORDS": len(words),
        "PACKETS": len(jobs),
    }
    sources = [*_sources(verilog), Path(__file__).with_name("dma.v")]
    compile_verilog(sources, work, *(f"-D{name}={value}" for name, value in defines.items()))
    return _values(line for line in simulate(work) if len(line) == 4)


def _sources(verilog: Path) -> list[Path]:
    listed = verilog.with_suffix(".f").read_text(encoding="utf-8").split()
    return [verilog.with_name(name) for name in listed]


def _segment_writes(job: Job, memory: bytearray, word: int) -> list[tuple[str, int]]:
    """Return the register writes of a segment, and append its regions to memory."""
    numbers = {"command": job.request.word}
    for name in REGIONS:
        region = getattr(job.request.segment, name).tobytes()
        numbers |= {f"{name}_base_low": len(memory), f"{name}_length": len(region)}
        memory += region + bytes(-len(region) % word)
    return [*numbers.items(), ("start", compose("start", push=1))]


def _values(beats: Iterable[Sequence[str]]) -> NDArray[np.uint16]:
    found = list(packets(beats))
    if any(flagged for _, flagged in found):
        raise CassandraError("the gateware flagged a segment")
    return np.frombuffer(b"".join(data for data, _ in found), np.uint16)
