"""Look for unknown values: run the suites' payloads in a simulator with four states.

``python -m cassandra_spec.verif.icarus.unknown [--top decoder|encoder] [--batches PATTERN]``

Every register and memory starts as X: initial values are removed from the export, so only ``rst``
sets values. Sources offer X while nothing is valid. In each cycle after reset, control outputs
(``tvalid``, ``tready``, ``busy``, ``error``) must be known, and so must valid payloads; of values,
the lanes in ``tkeep``. Values must equal golden's. An encoder's output must equal that of the bulk
harness, where registers start with zeros.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from amaranth.hdl import Shape
from amaranth.lib.wiring import In

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode.top import DecoderTop, Top, to_verilog
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encoder import EncoderTop
from cassandra_spec.toolkit.programs import run_program
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.verif.decoder.bulk import Request
from cassandra_spec.verif.decoder.codebooks import LoadedBooks
from cassandra_spec.verif.decoder.faults import golden_result
from cassandra_spec.verif.encoder.bulk import EncodeRequest, RtlEncoder
from cassandra_spec.verif.icarus import require_icarus
from cassandra_spec.verif.icarus.batches import Batch, decoder_batches, encoder_batches
from cassandra_spec.verif.icarus.testbench import Ports, testbench
from cassandra_spec.verif.library.bulk import Traffic
from cassandra_spec.verif.library.packets import codebook_packet, region_packet, values_packet
from cassandra_spec.verif.tools.verilated import with_state

DECODER = DecoderConfig(lanes=8)
ENCODER = EncoderConfig(lanes=8, codebook=32, window=3, group=64, segment=2048)
TOPS = ("decoder", "encoder")
_SKIPPED = ("reset*", "after it", "chunks", "totals")  # batches left out: cut short, or long
_MEMORY = re.compile(r"^  initial begin\n(?:    .*\[\d+\] = .*;\n)+  end\n", re.MULTILINE)


def without_values(verilog: str) -> str:
    """Return Verilog of a top whose registers and memories have no initial values."""
    text = with_state(verilog, lambda head, name, depth, start: f"{head}{name}{depth};")
    return _MEMORY.sub("", text)


Words = dict[str, list[tuple[dict[str, int], int]]]
"""Each source's words: fields, and the number of earlier words of the other control stream."""


def words_of_decoder(requests: Sequence[Request], lanes: int) -> Words:
    """Return the words of each stream of a decoder."""
    books = LoadedBooks()
    loaded = [books.words(request) for request in requests]
    words = _control(
        [[word.fields for word in each] for each in loaded], [r.word for r in requests]
    )
    regions: dict[str, list[dict[str, int]]] = {"speculation": [], "verification": []}
    for request in requests:
        segment = request.segment
        regions["speculation"] += region_packet(segment.speculation.tobytes(), lanes)
        if request.target:
            regions["verification"] += region_packet(segment.verification.tobytes(), lanes)
    return words | {name: [(word, 0) for word in each] for name, each in regions.items()}


def words_of_encoder(requests: Sequence[EncodeRequest], lanes: int) -> Words:
    """Return the words of each stream of an encoder."""
    books: list[list[dict[str, int]]] = []
    loaded: tuple[int, ...] = ()
    for request in requests:
        change = request.codebook and request.codebook != loaded
        loaded = request.codebook or loaded
        books.append(list(codebook_packet(request.codebook)) if change else [])
    words = _control(books, [request.command for request in requests])
    packets = [values_packet(request.values.tolist(), lanes) for request in requests]
    return words | {"values": [(word, 0) for packet in packets for word in packet]}


def _control(books: Sequence[Sequence[dict[str, int]]], commands: Sequence[int]) -> Words:
    """Make a codebook wait for earlier commands, and a command for earlier codebooks."""
    words: Words = {"codebook": [], "command": []}
    for book, command in zip(books, commands, strict=True):
        words["codebook"] += [(word, len(words["command"])) for word in book]
        words["command"].append(({"tdata": command}, len(words["codebook"])))
    return words


class Unknown:
    """A top in Icarus Verilog, without initial values; ``work`` is a folder for files."""

    def __init__(self, verilog: str, module: str, ports: Ports, work: Path) -> None:
        require_icarus()
        self._work, self._ports = work, ports
        (work / "top.v").write_text(without_values(verilog))
        (work / "testbench.v").write_text(testbench(module, ports))
        command = ["iverilog", "-g2012", "-s", "testbench", "-o", "unknown", "top.v", "testbench.v"]
        run_program(command, work, error=CassandraError)

    def run(self, words: Words, ends: int) -> tuple[dict[str, list[list[str]]], int]:
        """Return each stream's output in hexadecimal, up to ``ends`` segments, and the cycles.

        Raises CassandraError if a forbidden X occurs, or nothing comes.
        """
        for stream, each in words.items():
            numbers = [self._ports.number(stream, word, after) for word, after in each]
            text = "".join(f"{number:x}\n" for number in (*numbers, 0))
            (self._work / f"{stream}.hex").write_text(text)
        counts = [f"+{stream}={len(each)}" for stream, each in words.items()]
        command = ["vvp", "-n", "unknown", f"+ends={ends}", *counts]
        printed = run_program(command, self._work, error=CassandraError)
        found: dict[str, list[list[str]]] = {name: [] for name in self._ports.sinks}
        for name, *rest in (line.split() for line in printed.splitlines() if line):
            if name in ("unknown", "nothing"):
                raise CassandraError(" ".join((name, *rest)))
            if name == "cycles":
                return found, int(rest[0])
            if name.startswith("m_axis_"):
                found[name.removeprefix("m_axis_")].append(rest)
        raise CassandraError(
            f"the simulation must end with its cycles, not with {printed[-200:]!r}"
        )


def same_values(requests: Sequence[Request], found: list[list[str]]) -> bool:
    """Return True if segments equal golden's, and those that golden rejects were flagged."""
    for request, (data, flagged) in zip(requests, packets(found), strict=True):
        wanted = golden_result(request)
        if flagged != (wanted is None) or (wanted is not None and data != wanted.tobytes()):
            return False
    return True


def packets(beats: Iterable[Sequence[str]]) -> Iterator[tuple[bytes, bool]]:
    """Yield the bytes of each packet, and whether it was flagged; absent lanes may be X."""
    data = b""
    for word, keep, last, user in beats:
        absent = len(word) - 2 * int(keep, 16).bit_count()
        data += bytes.fromhex(word[absent:])[::-1]
        if last == "1":
            yield data, user == "1"
            data = b""


def same_regions(
    requests: Sequence[EncodeRequest], found: Mapping[str, list[list[str]]], encoder: RtlEncoder
) -> bool:
    """Return True if regions and results of Icarus equal those of the bulk harness.

    Regions are compared up to the first segment that cannot be encoded: its bytes are of no use.
    """
    wanted = encoder.run(requests, Traffic(go_on=True))
    useless = [{"miss", "command"} & set(part.causes) for part in wanted]
    good = next((place for place, bad in enumerate(useless) if bad), len(wanted))
    for name in ("speculation", "verification"):
        data = b"".join(bytes.fromhex(word)[::-1] for word, _ in found[name])
        if not data.startswith(b"".join(getattr(part, name).tobytes() for part in wanted[:good])):
            return False
    return len(found["result"]) == len(wanted)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the batches; return 0 if nothing is unknown and all output is right, 2 if not."""
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.verif.icarus.unknown", description=__doc__)
    text = "top to test; repeatable (default: both)"
    parser.add_argument("--top", choices=TOPS, action="append", help=text)
    text = "batches to run (default: all)"
    parser.add_argument("--batches", default="*", metavar="PATTERN", help=text)
    parser.add_argument("--seed", type=int, default=1, help="seed of the payloads")
    return parser


def _run(options: argparse.Namespace) -> int:
    for top in options.top or TOPS:
        with tempfile.TemporaryDirectory() as folder:
            run(top, options.batches, options.seed, Path(folder))
    return 0


def chosen(batches: Iterable[Batch], pattern: str) -> list[Batch]:
    """Return the selected batches without those in ``_SKIPPED``."""
    skip = [*_SKIPPED]
    return [
        batch
        for batch in batches
        if fnmatch.fnmatchcase(batch.name, pattern)
        and not any(fnmatch.fnmatchcase(batch.name, each) for each in skip)
    ]


def run(top: str, pattern: str, seed: int, work: Path) -> tuple[int, int]:
    """Return segments and cycles of all batches. Raises CassandraError at the first wrong one."""
    rng, start = np.random.default_rng(seed), time.perf_counter()
    gateware: Top = DecoderTop(DECODER) if top == "decoder" else EncoderTop(ENCODER)
    simulator = Unknown(to_verilog(gateware), gateware.module_name, ports_of(gateware), work)
    segments = cycles = 0
    for batch in chosen(_batches(top, rng), pattern):
        cycles += check(top, simulator, batch)
        segments += len(batch.requests)
        print(f"{top}: {batch.name}: {segments} segments, {cycles} cycles so far", flush=True)
    print(f"{top}: nothing unknown; {time.perf_counter() - start:.0f} s")
    return segments, cycles


def _batches(top: str, rng: np.random.Generator) -> Iterator[Batch]:
    return decoder_batches(rng, DECODER) if top == "decoder" else encoder_batches(rng, ENCODER)


def check(top: str, simulator: Unknown, batch: Batch) -> int:
    """Return a batch's cycles. Raises CassandraError if it differs from the harness."""
    requests, lanes = batch.requests, DECODER.lanes
    words = words_of_decoder if top == "decoder" else words_of_encoder
    found, cycles = simulator.run(words(requests, lanes), len(requests))
    if top == "decoder":
        same = same_values(requests, found["values"])
    else:
        same = same_regions(requests, found, RtlEncoder(ENCODER))
    if not same:
        raise CassandraError(f"{batch.name} must come out as in the bulk harness, and does not")
    return cycles


def ports_of(top: Top) -> Ports:
    """Return the ports of an exported top."""
    members = top.signature.members.items()
    return Ports(
        {
            name: ("input" if member.flow == In else "output", Shape.cast(member.shape).width)
            for name, member in members
        }
    )


if __name__ == "__main__":
    raise SystemExit(main())
