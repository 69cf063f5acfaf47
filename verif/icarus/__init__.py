"""Exported tops in Icarus Verilog, a second simulator.

A smoke test: the file elaborates with ``-g2012`` and decodes, or encodes, as golden does.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.rtl.common.command import COMMAND_WIDTH, DecoderConfig
from cassandra_spec.rtl.dma.config import DmaConfig
from cassandra_spec.rtl.dma.registers import field_of, register_of
from cassandra_spec.rtl.encode.types import ENCODE_COMMAND_WIDTH, EncoderConfig
from cassandra_spec.rtl.encoder import RESULT_WIDTH
from cassandra_spec.verif.decoder.codebooks import LoadedBooks
from cassandra_spec.verif.decoder.jobs import Job
from cassandra_spec.verif.encoder.model import Segment
from cassandra_spec.verif.library.packets import codebook_packet, region_packet, values_packet

__all__ = ["decode", "decode_by_dma", "encode", "require_icarus"]

_HERE = Path(__file__).parent
_VALUE = 16
_SECONDS = 300


def require_icarus() -> None:
    """Raise CassandraError if Icarus Verilog is missing."""
    for program in ("iverilog", "vvp"):
        if shutil.which(program) is None:
            raise CassandraError(
                f"Icarus Verilog must be installed, but there is no {program}: apt install iverilog"
            )


def decode(verilog: Path, config: DecoderConfig, job: Job, work: Path) -> NDArray[np.uint16]:
    """Decode one segment with the exported decoder; ``work`` is a folder for files.

    The sources are those of the file list beside ``verilog``.

    Raises CassandraError with the tool's output if it does not elaborate, hangs, or flags the
    segment.
    """
    request, lanes = job.request, config.lanes
    wide = config.verification_rows * lanes // 8
    verification = request.segment.verification if job.target else np.zeros(0, np.uint8)
    words = {
        "speculation": _packet(request.segment.speculation.tobytes(), lanes),
        "verification": _packet(verification.tobytes(), wide),
    }
    book = [word.number for word in LoadedBooks().words(request)]
    memories = {"book": book, **words}
    defines = {
        "TOP": config.module_name,
        "BUS": 8 * lanes,
        "WIDE": 8 * wide,
        "VALUES": _VALUE * lanes,
        "ENTRIES": len(book),
        "SPECULATION": len(words["speculation"]),
        "VERIFICATION": len(words["verification"]),
        "PACKETS": 1,
        "COMMAND": f"{COMMAND_WIDTH}'d{request.word}",
        **({"CODED": 1} if config.coded else {}),
    }
    return _values(_run(verilog, "decoder.v", memories, defines, work))


def encode(
    verilog: Path, config: EncoderConfig, segment: Segment, work: Path
) -> tuple[bytes, bytes]:
    """Encode one segment with the exported encoder; return both regions. Errors as in decode."""
    pace = config.pace
    words = [
        word["tdata"] | word["tkeep"] << _VALUE * pace | word["tlast"] << (_VALUE + 2) * pace
        for word in values_packet(segment.values.tolist(), pace)
    ]
    book = [word["tdata"] | word["tlast"] << 8 for word in codebook_packet(segment.codebook)]
    defines = {
        "TOP": config.module_name,
        "BUS": 8 * config.lanes,
        "VALUES": _VALUE * pace,
        "RESULT": RESULT_WIDTH,
        "ENTRIES": len(book),
        "BEATS": len(words),
        "COMMAND": f"{ENCODE_COMMAND_WIDTH}'d{segment.word}",
    }
    found = {"speculation": b"", "verification": b""}
    for name, data, _ in _run(verilog, "encoder.v", {"book": book, "values": words}, defines, work):
        if name in found:
            found[name] += bytes.fromhex(data)[::-1]
    return found["speculation"], found["verification"]


def decode_by_dma(
    verilog: Path, config: DmaConfig, jobs: Sequence[Job], work: Path
) -> NDArray[np.uint16]:
    """Decode segments of one tensor with the exported dma or array. Errors as in decode."""
    memory, writes = bytearray(), _codebook_writes(jobs[0].request.codebook)
    writes.append(_write("control", "enable", 1))
    for job in jobs:
        writes += _segment_writes(job, memory, config.bus)
    words = [word["tdata"] for word in region_packet(bytes(memory), config.bus)]
    memories = {"writes": writes, "memory": words}
    defines = {
        "TOP": config.module_name,
        "BUS": 8 * config.bus,
        "VALUES": _VALUE * config.beat_values,
        "ID": config.id_bits,
        "ADDRESS": config.address,
        "WRITES": len(writes),
        "WORDS": len(memories["memory"]),
        "PACKETS": len(jobs),
    }
    return _values(_run(verilog, "dma.v", memories, defines, work))


def _write(register: str, field: str, value: int) -> int:
    """Return the write of one field, as the testbench reads it."""
    return register_of(register).offset << 32 | value << field_of(register, field)[1]


def _codebook_writes(book: Sequence[int]) -> list[int]:
    return [
        _write("codebook", "exponent", exponent)
        | _write("codebook", "entry", place)
        | _write("codebook", "last", int(place == len(book) - 1))
        for place, exponent in enumerate(book)
    ]


def _segment_writes(job: Job, memory: bytearray, word: int) -> list[int]:
    """Return the register writes of a segment, and append its regions to memory."""
    segment = job.request.segment
    numbers = {"command": job.request.word}
    for name in ("speculation", "verification"):
        region = getattr(segment, name).tobytes()
        numbers |= {f"{name}_base_low": len(memory), f"{name}_length": len(region)}
        memory += region + bytes(-len(region) % word)
    writes = [register_of(name).offset << 32 | number for name, number in numbers.items()]
    return [*writes, _write("start", "push", 1)]


def _packet(data: bytes, size: int) -> list[int]:
    """Return the words of a packet, with ``last`` above their data."""
    return [word["tdata"] | word["tlast"] << 8 * size for word in region_packet(data, size)]


def _run(
    verilog: Path,
    testbench: str,
    memories: Mapping[str, Sequence[int]],
    defines: Mapping[str, object],
    work: Path,
) -> list[list[str]]:
    """Run the testbench; return its lines of three words."""
    require_icarus()
    for name, numbers in memories.items():
        text = "".join(f"{number:x}\n" for number in (*numbers, 0))  # one more than is read
        (work / f"{name}.hex").write_text(text)
    flags = [f"-D{name}={value}" for name, value in defines.items()]
    listed = verilog.with_suffix(".f").read_text(encoding="utf-8").split()
    sources = [*(str(verilog.resolve().with_name(name)) for name in listed), str(_HERE / testbench)]
    _step(
        ["iverilog", "-g2012", f"-I{_HERE}", "-s", "testbench", "-o", "smoke", *flags, *sources],
        work,
    )
    lines = _step(["vvp", "-n", "smoke"], work).splitlines()
    return [line.split() for line in lines if len(line.split()) == 3]


_HARMLESS = re.compile(r"warning: verinum::as_long\(\) truncated \d+ bits to 63, returns \d+")
"""Warning of Icarus 12 about the attribute `init` of a register of more than 63 bits, which it
ignores.
"""


def _step(command: list[str], work: Path) -> str:
    done = subprocess.run(
        command, cwd=work, capture_output=True, text=True, check=False, timeout=_SECONDS
    )
    errors = [line for line in done.stderr.splitlines() if not _HARMLESS.fullmatch(line)]
    if done.returncode or errors:
        raise CassandraError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _values(beats: Sequence[Sequence[str]]) -> NDArray[np.uint16]:
    parts = []
    for data, keep, user in beats:
        if user != "0":
            raise CassandraError("the gateware flagged the segment")
        count = int(keep, 16).bit_count() // 2
        parts.append(np.frombuffer(bytes.fromhex(data)[::-1], np.uint16)[:count])
    return np.concatenate(parts)
