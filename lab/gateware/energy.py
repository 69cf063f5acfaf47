"""Measure the energy of a decoded value on real weights (``make energy``).

``python -m cassandra_spec.lab.gateware.energy`` sends segments of SmolLM2 through the netlist of
the decoder, gate by gate, under Verilator, and compares every value with golden. The transitions of
the netlist's nets give energies (:mod:`cassandra_spec.synth.energy`), which are set beside those of
reading the saved bytes from DRAM. docs/hardware/energy.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.lab.gateware.array_rate import weights_of
from cassandra_spec.lab.system.figures.silicon import classical_factor, energy_factor
from cassandra_spec.model.weights.sources import BUNDLED, open_source
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode.top import DecoderTop, to_rtlil
from cassandra_spec.synth.energy import (
    Activity,
    Energy,
    Model,
    cell_models,
    read_slews,
    simulation,
)
from cassandra_spec.synth.export import ports_of
from cassandra_spec.synth.report import add_flow, flow_of
from cassandra_spec.synth.synthesis import Design, Flow, map_for_speed
from cassandra_spec.synth.timing import Library
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.documents import publish
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import markdown_table
from cassandra_spec.verif.decoder.bulk import RtlCodec
from cassandra_spec.verif.end_to_end.weights import RECIPES
from cassandra_spec.verif.library.payloads import Payload

DRAM = {"HBM2": 3.92, "GDDR5": 14.0}
"""pJ to read a bit: O'Connor et al., Fine-Grained DRAM, MICRO 2017."""

MODES = ("draft", "target")

BITS = 16
"""Bits of an unpacked value."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One scheme in one mode: rates, bits that are read and energy, each for a value."""

    scheme: str
    mode: str
    values_per_cycle: float
    bits: float
    energy: Energy

    def ratio(self, scaled: float, dram: float) -> float:
        """Energy to decode, at a scale, over that of reading the saved bits at ``dram`` pJ."""
        return self.energy.total * scaled / ((BITS - self.bits) * dram)


class Bench:
    """The netlist of a decoder, in a simulation that counts transitions.

    Arguments:
        config: the decoder.
        library, flow: what it is mapped to, and how.
        out: folder for all files.

    Raises CassandraError if a tool is missing or fails.
    """

    def __init__(self, config: DecoderConfig, library: Library, flow: Flow, out: Path) -> None:
        top, decoder = config.module_name, DecoderTop(config)
        design = Design(top=top, rtlil=to_rtlil(decoder), blocks=(), inside="decoder")
        path = map_for_speed(design, library, out, flow)
        netlist = path.read_text()
        self._period = flow.period
        self._model = Model(netlist, library, read_slews(path, top, library, flow.period))
        ports = ports_of(decoder)
        self._counts = out / f"{top}.saif"
        self._codec = RtlCodec(
            config,
            verilog=simulation(netlist, cell_models(library, out), top, ports),
            build=out,
            transitions=self._counts,
        )

    def run(self, payload: Payload, mode: str) -> Run:
        """Decode, compare with golden, and weigh the transitions.

        Raises CassandraError if a value is not golden's.
        """
        packed = payload.packed
        decode = self._codec.decode_target if mode == "target" else self._codec.decode_draft
        wanted = payload.target if mode == "target" else payload.draft
        wrong = np.count_nonzero(decode(packed) != wanted)
        if wrong:
            raise CassandraError(f"the netlist must decode as golden does, {wrong} values differ")
        cost, bits = self._codec.latest, packed.bits()
        activity = Activity.of(self._counts.read_text())
        cycle = self._model.per_cycle(activity, cost.cycles, self._period)
        return Run(
            scheme=payload.format.scheme,
            mode=mode,
            values_per_cycle=cost.values_per_cycle,
            bits=bits["speculation"] + (bits["verification"] if mode == "target" else 0),
            energy=cycle * (1 / cost.values_per_cycle),
        )


def _payloads(config: DecoderConfig, part: str, segments: int) -> Iterator[Payload]:
    """Yield the same weights in each scheme, packed like those of the main job, in decoder
    beats.
    """
    source = open_source(BUNDLED)
    for scheme in config.schemes:
        recipe = RECIPES[scheme]
        fmt = dataclasses.replace(recipe.format, beat=config.lanes)
        yield weights_of(source, part, dataclasses.replace(recipe, format=fmt), segments)


def _energies(runs: Sequence[Run]) -> str:
    head = ["pJ/value", "mode", "values/cycle", "clock", "cells", "nets", "leakage", "total"]
    rows = [
        [
            run.scheme,
            run.mode,
            f"{run.values_per_cycle:.2f}",
            *(f"{part:.2f}" for part in dataclasses.astuple(run.energy)),
            f"{run.energy.total:.2f}",
        ]
        for run in runs
    ]
    return markdown_table(head, rows)


def _ratios(runs: Sequence[Run], library: str) -> str:
    scales = {"fitted": energy_factor(library), "classical": classical_factor(library)}
    head = ["28 nm", "mode", "bits read", "bits saved", *(f"pJ/value, {how}" for how in scales)]
    head += [f"of {name}, {how}" for name in DRAM for how in scales]
    rows = [
        [
            run.scheme,
            run.mode,
            f"{run.bits:.2f}",
            f"{BITS - run.bits:.2f}",
            *(f"{run.energy.total * scale:.2f}" for scale in scales.values()),
            *(
                f"{run.ratio(scale, dram):.1%}"
                for dram in DRAM.values()
                for scale in scales.values()
            ),
        ]
        for run in runs
    ]
    return markdown_table(head, rows)


def markdown(runs: Sequence[Run], library: str) -> str:
    """Format both tables for the document."""
    return f"{_energies(runs)}\n\n{_ratios(runs, library)}\n"


def read_report(path: Path, config: DecoderConfig, flow: Flow) -> dict[str, Any]:
    """Read the report of a netlist; the energies of a value in J go to its ``values``.

    Raises CassandraError if it is of another decoder or flow.
    """
    try:
        report: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CassandraError(f"into must be a report of make synth, not {path}: {error}") from error
    for name, ours in (("config", config), ("flow", flow)):
        wanted = json.loads(json.dumps(dataclasses.asdict(ours)))
        if report.get(name) != wanted:
            raise CassandraError(f"{name} of into must be {wanted}, not {report.get(name)}")
    return report


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.lab.gateware.energy", description=__doc__)
    parser.add_argument("--lanes", type=int, default=16, help="lanes of the decoder (default 16)")
    flags.add_count(parser, "segments", "segments of 16384 values", 2)
    text = "tensor to decode, by a part of its name (default: the middle one)"
    parser.add_argument("--tensor", default="", metavar="NAME", help=text)
    add_flow(parser)
    flags.add_folder(parser, "out", "folder for netlists and reports", "build/energy")
    flags.add_file(parser, "document", "update the tables of this Markdown file")
    text = "add the energies to this report of `make synth`, for Table V"
    flags.add_file(parser, "into", text)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    return run_command(_parser, _run, argv)


def _run(args: argparse.Namespace) -> int:
    library = Library.chosen(args.liberty)
    config, flow = DecoderConfig(lanes=args.lanes), flow_of(args)
    report = read_report(args.into, config, flow) if args.into else {}
    bench = Bench(config, library, flow, args.out)
    runs = [
        bench.run(payload, mode)
        for payload in _payloads(config, args.tensor, args.segments)
        for mode in MODES
    ]
    text = markdown(runs, library.path.stem)
    publish(text, args.document, "energy" + " gated" * flow.gated)
    if args.into:
        report["values"] = {
            mode: {run.scheme: run.energy.total * 1e-12 for run in runs if run.mode == mode}
            for mode in MODES
        }
        args.into.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
