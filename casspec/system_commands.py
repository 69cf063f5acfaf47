"""``casspec system``: what the format buys on a device. Flags, and what they call."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from cassandra_spec.report import flags

if TYPE_CHECKING:
    from cassandra_spec.system.costs import Bits

EPILOG = """\
examples:
  casspec system estimate --device rtx4090 --model qwen3-8b --scheme exact --gamma 3
  casspec system reproduce
"""

ESTIMATE_EPILOG = """\
examples:
  casspec system estimate --device npu --model llama3-8b --scheme mx --acceptance 0.8 --gamma 5
  casspec system estimate --device own.toml --model ~/models/qwen --scheme exact --gamma 3
  casspec system estimate --device npu --model qwen3-4b --scheme mx --gamma 3 --batch 4 --json
  casspec system estimate --device npu --model packed --scheme exact --report run.json
  casspec system estimate --device npu --model packed --scheme mx --gamma 3 --acceptance-file a.json

acceptance is accepted over drafted tokens, or, with --kind conditional, the chance that a token is
accepted when all before it were: a larger number for the same draft. Devices, models and schemes:
docs/hardware/system.md; a wrong name lists the known ones.
"""

REPRODUCE_EPILOG = """\
examples:
  casspec system reproduce
  casspec system reproduce --out build/system
  casspec system reproduce --synthesis build/synth --acceptance-file acceptance.json

Prints the paper's figures beside the model's, the reasons for differences, and what is beyond the
paper; --out also writes them as Markdown, and plots as SVG.
"""


def register(subparsers: flags.Subparsers) -> None:
    """Add the command and its parts."""
    text = "estimate what the format buys on a device"
    inner = flags.add_command(subparsers, "system", text, EPILOG).add_subparsers(
        metavar="COMMAND", required=True
    )
    _add_estimate(inner)
    _add_reproduce(inner)


def _add_reproduce(subparsers: flags.Subparsers) -> None:
    text = "compute the paper's figures beside its own"
    parser = flags.add_command(subparsers, "reproduce", text, REPRODUCE_EPILOG, _reproduce)
    text = "report for Table V, or a folder of them: build/synth after make synth"
    flags.add_file(parser, "synthesis", text)
    text = "acceptance for our schemes, as `casspec bench acceptance --json` has it"
    flags.add_file(parser, "acceptance-file", text)
    text = "Markdown whose marked tables are brought up to date (docs/results/system.md)"
    flags.add_file(parser, "document", text)
    text = "also write reproduction.md and plots (SVG) into this directory"
    flags.add_folder(parser, "out", text, dest="destination")


def _add_estimate(subparsers: flags.Subparsers) -> None:
    text = "answer for one device and model"
    parser = flags.add_command(subparsers, "estimate", text, ESTIMATE_EPILOG, _estimate)
    parser.add_argument("--device", required=True, metavar="X", help="name, or a .toml file")
    text = "name, a config.json, or its directory"
    parser.add_argument("--model", required=True, metavar="Y", help=text)
    parser.add_argument("--scheme", required=True, metavar="S", help="name of a format")
    text = "0 to 1 (default: SmolLM2's, where it was measured at this gamma)"
    flags.add_number(parser, "acceptance", text, metavar="A")
    flags.add_choice(parser, "kind", ("drafted", "conditional"), "what the acceptance counts")
    gamma = parser.add_mutually_exclusive_group(required=True)
    gamma.add_argument("--gamma", type=int, metavar="G", help="drafted tokens in a round, 0 to 8")
    text = "gamma and acceptance of a run: the output of casspec generate --json"
    flags.add_file(gamma, "report", text)
    text = "acceptance and bits of the scheme at this gamma, as `casspec bench acceptance --json`"
    flags.add_file(parser, "acceptance-file", f"{text} has them")
    parser.add_argument("--label", metavar="L", help="which of several rows of that file")
    text = "values per cycle of the decoders, as `make sim` printed them"
    flags.add_file(parser, "sim-file", text)
    default = "deepseek-r1-distill-llama-8b"
    text = f"lengths of the paper's Table I (default {default}, 222 and 5708)"
    parser.add_argument("--workload", default=default, metavar="W", help=text)
    parser.add_argument("--prompt", type=int, metavar="N", help="tokens of the prompt instead")
    parser.add_argument("--output", type=int, metavar="N", help="tokens to generate instead")
    text = "requests at once, 1 to 16 (default 1)"
    parser.add_argument("--batch", type=int, default=1, metavar="N", help=text)
    text = "cached tokens that a draft reads, sinks included (default: all)"
    parser.add_argument("--window", type=int, metavar="N", help=text)
    flags.add_switch(parser, "json", "everything, for other programs")


def _estimate(args: argparse.Namespace) -> int:
    """``casspec system estimate``."""
    from cassandra_spec.system import Workload, estimate
    from cassandra_spec.system.figures.paper_file import lengths
    from cassandra_spec.system.report import page
    from cassandra_spec.system.setups import AcceptanceChoice, named_setup

    prompt, output = lengths(args.workload)
    answer = estimate(
        named_setup(
            args.device,
            args.model,
            args.scheme,
            Workload(
                prompt=prompt if args.prompt is None else args.prompt,
                output=output if args.output is None else args.output,
                batch=args.batch,
            ),
            AcceptanceChoice(
                gamma=args.gamma,
                rate=args.acceptance,
                kind=args.kind,
                report=args.report,
                file=args.acceptance_file,
                label=args.label,
            ),
            rates=args.sim_file,
            bits=_packed_bits(args),
            window=args.window,
        )
    )
    print(json.dumps(answer.to_dict(), indent=1) if args.json else page(answer))
    return 0


def _packed_bits(args: argparse.Namespace) -> dict[str, Bits] | None:
    """Bits of weights and head, if the model is a packed directory."""
    from cassandra_spec.golden import CassandraError
    from cassandra_spec.golden.file import PackedFile, SafetensorsFile
    from cassandra_spec.model.packing.inspection import bits_by_part
    from cassandra_spec.system.costs import Bits, load_format

    path = Path(args.model) / "model.safetensors"
    if not path.is_file() or "cassandra" not in SafetensorsFile(path).metadata:
        return None
    packed = PackedFile(path)
    schemes = {tensor.format.scheme for tensor in packed.tensors.values()}
    if load_format(args.scheme).decoder not in schemes:
        found = " and ".join(sorted(schemes))
        raise CassandraError(f"scheme must be one of {found}, as in {path}, not {args.scheme}")
    return {
        part: Bits(draft=draft, whole=whole, source=f"of {path}")
        for part, (draft, whole) in bits_by_part(packed).items()
    }


def _reproduce(args: argparse.Namespace) -> int:
    """``casspec system reproduce``."""
    from cassandra_spec.system.figures.silicon import load_reports
    from cassandra_spec.system.measured import load_acceptance
    from cassandra_spec.system.report import everything, fill_tables, save

    synthesis = args.synthesis and load_reports(args.synthesis)
    measured = args.acceptance_file and load_acceptance(args.acceptance_file)
    sections = list(everything(synthesis, measured))
    if args.document is not None:
        tables = [table for _, tables in sections for table in tables]
        text = args.document.read_text(encoding="utf-8")
        args.document.write_text(fill_tables(text, tables), encoding="utf-8")
    if args.destination is not None:
        save(sections, args.destination)
    for name, tables in sections:
        print(f"== {name} ==\n")
        print("\n\n".join(table.text() for table in tables) + "\n")
    return 0
