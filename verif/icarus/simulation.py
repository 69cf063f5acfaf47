"""A top with streams in Icarus Verilog, a second simulator, between a generated testbench."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from amaranth.hdl import Shape
from amaranth.lib.wiring import In

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode.top import Top
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.verif.decoder.bulk import Request
from cassandra_spec.verif.decoder.codebooks import LoadedBooks
from cassandra_spec.verif.encoder.bulk import EncodeRequest
from cassandra_spec.verif.icarus.testbench import Ports, testbench
from cassandra_spec.verif.library.packets import codebook_packet, region_packet, values_packet

_HARMLESS = re.compile(r"warning: verinum::as_long\(\) truncated \d+ bits to 63, returns \d+")
"""Warning of Icarus 12 about the attribute `init` of a register of more than 63 bits, which it
ignores.
"""

Words = dict[str, list[tuple[dict[str, int], int]]]
"""Each source's words: fields, and the number of earlier words of the other control stream."""


def require_icarus() -> None:
    """Raise CassandraError if Icarus Verilog is missing."""
    for program in ("iverilog", "vvp"):
        if shutil.which(program) is None:
            raise CassandraError(
                f"Icarus Verilog must be installed, but there is no {program}: apt install iverilog"
            )


def compile_verilog(sources: Sequence[Path], work: Path, *flags: str) -> None:
    """Compile the module ``testbench`` and others to ``work / "simulation"``.

    Raises CassandraError with the tool's output if they do not elaborate.
    """
    require_icarus()
    files = [str(source.resolve()) for source in sources]
    command = ["iverilog", "-g2012", "-s", "testbench", "-o", "simulation"]
    _run_step([*command, *flags, *files], work)


def simulate(work: Path, *arguments: str) -> list[list[str]]:
    """Run what was compiled; return the words of each printed line."""
    lines = _run_step(["vvp", "-n", "simulation", *arguments], work).splitlines()
    return [line.split() for line in lines if line]


def write_numbers(path: Path, numbers: Sequence[int]) -> None:
    """Write numbers as a memory's content; there is one more than is read."""
    path.write_text("".join(f"{number:x}\n" for number in (*numbers, 0)))


def _run_step(command: list[str], work: Path) -> str:
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    errors = [line for line in done.stderr.splitlines() if not _HARMLESS.fullmatch(line)]
    if done.returncode or errors:
        raise CassandraError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


class Simulation:
    """A top between the generated testbench; ``sources`` define it, ``work`` is for files.

    Sources offer the bit ``idle`` while nothing is valid. In each cycle after reset, control
    outputs (``tvalid``, ``tready``, ``busy``, ``error``) must be known, and so must valid payloads;
    of values, the lanes in ``tkeep``.
    """

    def __init__(self, top: Top, sources: Sequence[Path], work: Path, *, idle: str = "x") -> None:
        members = top.signature.members.items()
        self._work = work
        self._ports = Ports(
            {
                name: ("input" if member.flow == In else "output", Shape.cast(member.shape).width)
                for name, member in members
            }
        )
        (work / "testbench.v").write_text(testbench(top.module_name, self._ports, idle))
        compile_verilog([*sources, work / "testbench.v"], work)

    def run(self, words: Words, ends: int) -> tuple[dict[str, list[list[str]]], int]:
        """Return each stream's output in hexadecimal, up to ``ends`` segments, and the cycles.

        Raises CassandraError if a forbidden X occurs, or nothing comes.
        """
        for stream, each in words.items():
            numbers = [self._ports.number(stream, word, after) for word, after in each]
            write_numbers(self._work / f"{stream}.hex", numbers)
        counts = [f"+{stream}={len(each)}" for stream, each in words.items()]
        found: dict[str, list[list[str]]] = {name: [] for name in self._ports.sinks}
        for name, *rest in simulate(self._work, f"+ends={ends}", *counts):
            if name in ("unknown", "nothing"):
                raise CassandraError(" ".join((name, *rest)))
            if name == "cycles":
                return found, int(rest[0])
            if name.startswith("m_axis_"):
                found[name.removeprefix("m_axis_")].append(rest)
        raise CassandraError("the simulation must end with its cycles, and does not")


def words_of_decoder(requests: Sequence[Request], config: DecoderConfig) -> Words:
    """Return the words of each stream of a decoder."""
    books = LoadedBooks()
    loaded = [books.words(request) for request in requests]
    words = _control(
        [[word.fields for word in each] for each in loaded], [r.word for r in requests]
    )
    regions: dict[str, list[dict[str, int]]] = {"speculation": [], "verification": []}
    wide = config.verification_rows * config.lanes // 8
    for request in requests:
        segment = request.segment
        regions["speculation"] += region_packet(segment.speculation.tobytes(), config.lanes)
        if request.target:
            regions["verification"] += region_packet(segment.verification.tobytes(), wide)
    return words | {name: [(word, 0) for word in each] for name, each in regions.items()}


def words_of_encoder(requests: Sequence[EncodeRequest], config: EncoderConfig) -> Words:
    """Return the words of each stream of an encoder."""
    books: list[list[dict[str, int]]] = []
    loaded: tuple[int, ...] = ()
    for request in requests:
        change = request.codebook and request.codebook != loaded
        loaded = request.codebook or loaded
        books.append(list(codebook_packet(request.codebook)) if change else [])
    words = _control(books, [request.command for request in requests])
    packets = [values_packet(request.values.tolist(), config.pace) for request in requests]
    return words | {"values": [(word, 0) for packet in packets for word in packet]}


def _control(books: Sequence[Sequence[dict[str, int]]], commands: Sequence[int]) -> Words:
    """Make a codebook wait for earlier commands, and a command for earlier codebooks."""
    words: Words = {"codebook": [], "command": []}
    for book, command in zip(books, commands, strict=True):
        words["codebook"] += [(word, len(words["command"])) for word in book]
        words["command"].append(({"tdata": command}, len(words["codebook"])))
    return words


def packets(beats: Iterable[Sequence[str]]) -> Iterator[tuple[bytes, bool]]:
    """Yield the bytes of each packet, and whether it was flagged; absent lanes may be X."""
    data = b""
    for word, keep, last, user in beats:
        absent = len(word) - 2 * int(keep, 16).bit_count()
        data += bytes.fromhex(word[absent:])[::-1]
        if last == "1":
            yield data, user == "1"
            data = b""


def region_bytes(words: Iterable[Sequence[str]]) -> bytes:
    """Return the bytes of a region's words."""
    return b"".join(bytes.fromhex(word)[::-1] for word, *_ in words)
