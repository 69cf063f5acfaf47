"""The command line of ``casspec``."""

from __future__ import annotations

import cassandra_spec
from cassandra_spec.bench.commands import compare, measure
from cassandra_spec.casspec import (
    accuracy_commands,
    generate_command,
    lossless_commands,
    own_text_commands,
    pack_commands,
    rtl_command,
    serve_command,
    system_commands,
    tune_command,
)
from cassandra_spec.report.commands import CommandParser

DESCRIPTION = """\
Pack the weights of a language model so that a draft pass reads a part of their bits and a target
pass reads the rest: self-speculative decoding without a second model.
"""

EPILOG = """\
examples:
  casspec pack smollm2 packed                     the demonstration model, lossless and fast
  casspec pack ~/models/llama packed --preset paper  the paper's setting: 40 % pruned in the draft
  casspec inspect packed --verify                 bits per weight by stream; every checksum
  casspec generate packed --prompt "Why?"         a reply, with every figure beside it
  casspec chat packed                             a conversation
  casspec serve packed                            an OpenAI-compatible server
  casspec unpack packed plain                     back to BF16 safetensors
  casspec rtl --out build/rtl                     Verilog of the decoder

exit codes: 0 done, 2 bad input (one line says what), 130 interrupted. Nothing is left behind but
what an interrupted `pack` goes on with.
"""


def build_parser() -> CommandParser:
    """The whole command line."""
    parser = CommandParser(prog="casspec", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument(
        "--version", action="version", version=f"casspec {cassandra_spec.__version__}"
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    pack_commands.register(subparsers)
    generate_command.register(subparsers)
    serve_command.register(subparsers)
    own_text_commands.register(subparsers)
    accuracy_commands.register(subparsers)
    rtl_command.register(subparsers)
    tune_command.register(subparsers)
    measure.register(subparsers, lossless_commands.add_spec_bench)
    compare.register(subparsers)
    lossless_commands.register(subparsers)
    system_commands.register(subparsers)
    return parser
