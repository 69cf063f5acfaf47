"""Look for unknown values: run the suites' payloads in a simulator with four states.

``python -m cassandra_spec.verif.icarus.unknown [--top decoder|encoder] [--batches PATTERN]``

Every register and memory starts as X: initial values are removed from the export, so only ``rst``
sets values. Outputs must be known (:mod:`cassandra_spec.verif.icarus.simulation`). Values must
equal golden's. An encoder's output must equal that of the bulk harness, where registers start with
zeros.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode.top import DecoderTop, Top, to_verilog
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encoder import EncoderTop
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.verif.decoder.bulk import Request
from cassandra_spec.verif.decoder.faults import golden_result
from cassandra_spec.verif.encoder.bulk import EncodeRequest, RtlEncoder
from cassandra_spec.verif.icarus.batches import Batch, decoder_batches, encoder_batches
from cassandra_spec.verif.icarus.simulation import (
    Simulation,
    packets,
    region_bytes,
    words_of_decoder,
    words_of_encoder,
)
from cassandra_spec.verif.library.bulk import Traffic
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


def unknown(top: Top, verilog: str, work: Path) -> Simulation:
    """Return the simulation of a top's Verilog without initial values."""
    (work / "top.v").write_text(without_values(verilog))
    return Simulation(top, [work / "top.v"], work)


def same_values(requests: Sequence[Request], found: list[list[str]]) -> bool:
    """Return True if segments equal golden's, and those that golden rejects were flagged."""
    for request, (data, flagged) in zip(requests, packets(found), strict=True):
        wanted = golden_result(request)
        if flagged != (wanted is None) or (wanted is not None and data != wanted.tobytes()):
            return False
    return True


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
        known = b"".join(getattr(part, name).tobytes() for part in wanted[:good])
        if not region_bytes(found[name]).startswith(known):
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
    return [
        batch
        for batch in batches
        if fnmatch.fnmatchcase(batch.name, pattern)
        and not any(fnmatch.fnmatchcase(batch.name, each) for each in _SKIPPED)
    ]


def run(top: str, pattern: str, seed: int, work: Path) -> tuple[int, int]:
    """Return segments and cycles of all batches. Raises CassandraError at the first wrong one."""
    rng, start = np.random.default_rng(seed), time.perf_counter()
    gateware: Top = DecoderTop(DECODER) if top == "decoder" else EncoderTop(ENCODER)
    simulation = unknown(gateware, to_verilog(gateware), work)
    batches = decoder_batches(rng, DECODER) if top == "decoder" else encoder_batches(rng, ENCODER)
    segments = cycles = 0
    for batch in chosen(batches, pattern):
        cycles += check(top, simulation, batch)
        segments += len(batch.requests)
        print(f"{top}: {batch.name}: {segments} segments, {cycles} cycles so far", flush=True)
    print(f"{top}: nothing unknown; {time.perf_counter() - start:.0f} s")
    return segments, cycles


def check(top: str, simulation: Simulation, batch: Batch) -> int:
    """Return a batch's cycles. Raises CassandraError if it differs from the harness."""
    requests, ends = batch.requests, len(batch.requests)
    if top == "decoder":
        found, cycles = simulation.run(words_of_decoder(requests, DECODER), ends)
        same = same_values(requests, found["values"])
    else:
        found, cycles = simulation.run(words_of_encoder(requests, ENCODER), ends)
        same = same_regions(requests, found, RtlEncoder(ENCODER))
    if not same:
        raise CassandraError(f"{batch.name} must come out as in the bulk harness, and does not")
    return cycles


if __name__ == "__main__":
    raise SystemExit(main())
