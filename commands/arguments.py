"""Build the command line of ``casspec``."""

from __future__ import annotations

import cassandra_spec
from cassandra_spec.bench.commands import measure
from cassandra_spec.commands import (
    accuracy,
    checkout,
    generate,
    lossless,
    own_text,
    pack,
    rtl,
    serve,
    tune,
)
from cassandra_spec.toolkit.running import CommandParser

DESCRIPTION = """\
Self-speculative decoding of language models without a second model: draft passes read some bits of
the packed weights, target passes read all of them.
"""

EPILOG = """\
examples:
  casspec pack smollm2 packed                     pack the demonstration model, losslessly
  casspec pack ~/models/llama packed --preset paper  use the paper's settings
  casspec inspect packed --verify                 show bits per weight, check the checksums
  casspec generate packed --prompt "Why?"         print a reply and its figures
  casspec chat packed                             chat in the terminal
  casspec serve packed                            start an OpenAI-compatible server
  casspec unpack packed plain                     convert back to BF16 safetensors
  casspec rtl --out build/rtl                     export the decoder as Verilog

exit codes: 0 success, 2 error (one line on stderr), 130 interrupted, 143 terminated. After an error
or interrupt only the state that resumes an interrupted `pack` is kept.
"""


def build_parser() -> CommandParser:
    """Build the parser of all commands."""
    parser = CommandParser(prog="casspec", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument(
        "--version", action="version", version=f"casspec {cassandra_spec.__version__}"
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    # The commands of a user come first.
    pack.add_pack(subparsers)
    generate.add_generate(subparsers)
    generate.add_chat(subparsers)
    serve.register(subparsers)
    pack.add_inspect(subparsers)
    rtl.register(subparsers)
    pack.add_unpack(subparsers)
    pack.add_calibrate(subparsers)
    tune.register(subparsers)
    own_text.register(subparsers)
    accuracy.register(subparsers)
    lossless.register(subparsers)
    commands, benchmarks = checkout.lab_commands()
    measure.register(subparsers, lossless.add_spec_bench, *benchmarks)
    for register in commands:
        register(subparsers)
    return parser
