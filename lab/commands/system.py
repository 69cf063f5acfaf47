"""Define ``casspec system``, which estimates decoding speed on a device."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from cassandra_spec.toolkit import flags

if TYPE_CHECKING:
    from cassandra_spec.lab.system.costs import Bits

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

--acceptance is the ratio of accepted to drafted tokens or, with --kind conditional, the probability
that a token is accepted if all before it were, which is larger for the same draft.
docs/hardware/system.md lists devices, models and schemes; so does the error for an unknown name.
"""

COMMANDS = (
    flags.Command(
        "estimate", "estimate for one device and model", "lab.commands.system:add_estimate"
    ),
    flags.Command(
        "reproduce",
        "compute the paper's figures and compare them",
        "lab.commands.system:add_reproduce",
    ),
)

REPRODUCE_EPILOG = """\
examples:
  casspec system reproduce
  casspec system reproduce --out build/system
  casspec system reproduce --synthesis build/synth --acceptance-file acceptance.json

Prints the paper's figures beside the model's, the reasons for differences, and estimates that go
beyond the paper.
"""


def define(parser: flags.CommandParser) -> None:
    """Define the subcommands."""
    flags.describe(parser, EPILOG)
    flags.add_commands(parser, COMMANDS)


def add_reproduce(parser: flags.CommandParser) -> None:
    """Define ``casspec system reproduce``."""
    flags.describe(parser, REPRODUCE_EPILOG, _reproduce)
    text = "synthesis report for Table V, or a folder of reports (build/synth after `make synth`)"
    flags.add_file(parser, "synthesis", text)
    text = "acceptance of our schemes, from `casspec bench acceptance --json`"
    flags.add_file(parser, "acceptance-file", text)
    text = "update the marked tables of this Markdown file (docs/results/system.md)"
    flags.add_file(parser, "document", text)
    text = "write reproduction.md and plots (SVG) to this directory"
    flags.add_folder(parser, "out", text, dest="destination")


def add_estimate(parser: flags.CommandParser) -> None:
    """Define ``casspec system estimate``."""
    flags.describe(parser, ESTIMATE_EPILOG, _estimate)
    parser.add_argument(
        "--device", required=True, metavar="X", help="device: a name, or a .toml file"
    )
    text = "model: a name, a config.json, or its directory"
    parser.add_argument("--model", required=True, metavar="Y", help=text)
    parser.add_argument("--scheme", required=True, metavar="S", help="name of the packed format")
    text = "acceptance, 0 to 1 (default: SmolLM2's, if measured at this gamma)"
    flags.add_number(parser, "acceptance", text, metavar="A")
    flags.add_choice(
        parser, "kind", ("drafted", "conditional"), "definition of --acceptance, see below"
    )
    gamma = parser.add_mutually_exclusive_group(required=True)
    gamma.add_argument("--gamma", type=int, metavar="G", help="drafted tokens per round, 0 to 8")
    text = "take gamma and acceptance from the output of `casspec generate --json`"
    flags.add_file(gamma, "report", text)
    text = "take acceptance and bits from the output of `casspec bench acceptance --json`"
    flags.add_file(parser, "acceptance-file", text)
    parser.add_argument("--label", metavar="L", help="row of --acceptance-file, if several match")
    text = "take the decoders' values per cycle from the output of `make sim`"
    flags.add_file(parser, "sim-file", text)
    default = "deepseek-r1-distill-llama-8b"
    text = f"prompt and output lengths from the paper's Table I (default {default}: 222 and 5708)"
    parser.add_argument("--workload", default=default, metavar="W", help=text)
    parser.add_argument(
        "--prompt", type=int, metavar="N", help="prompt length in tokens, instead of the workload's"
    )
    parser.add_argument(
        "--output", type=int, metavar="N", help="output length in tokens, instead of the workload's"
    )
    text = "batch size, 1 to 16 (default 1)"
    parser.add_argument("--batch", type=int, default=1, metavar="N", help=text)
    text = "cached tokens that a draft reads, sinks included (default: all)"
    parser.add_argument("--window", type=int, metavar="N", help=text)
    flags.add_switch(parser, "json", "print the estimate as JSON")


def _estimate(args: argparse.Namespace) -> int:
    """Run ``casspec system estimate``."""
    from cassandra_spec.lab.system.decoding import estimate
    from cassandra_spec.lab.system.figures.paper_file import lengths
    from cassandra_spec.lab.system.report import page
    from cassandra_spec.lab.system.setups import AcceptanceChoice, named_setup
    from cassandra_spec.lab.system.workload import Workload

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
    """Return bits of weights and head if the model is a packed directory, else None."""
    from cassandra_spec.golden import CassandraError
    from cassandra_spec.golden.file import PackedFile, SafetensorsFile
    from cassandra_spec.lab.system.costs import Bits, load_format
    from cassandra_spec.model.packing.inspection import bits_by_part

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
    """Run ``casspec system reproduce``."""
    from cassandra_spec.lab.system.figures.silicon import load_reports
    from cassandra_spec.lab.system.measured import load_acceptance
    from cassandra_spec.lab.system.report import everything, fill_tables, save

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
