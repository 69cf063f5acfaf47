"""Build the command line of ``casspec``."""

from __future__ import annotations

import cassandra_spec
from cassandra_spec.commands.checkout import lab_commands
from cassandra_spec.toolkit.flags import Command, add_commands
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


COMMANDS = (  # those of a user come first
    Command("pack", "pack a model into a new directory", "commands.pack:add_pack"),
    Command("generate", "generate replies to prompts", "commands.generate:add_generate"),
    Command("chat", "chat with a packed model", "commands.generate:add_chat"),
    Command("serve", "start an OpenAI-compatible server", "commands.serve:define"),
    Command(
        "inspect", "show size and bits per weight of a packed model", "commands.pack:add_inspect"
    ),
    Command("rtl", "export the decoder or the encoder as Verilog", "commands.rtl:define"),
    Command("unpack", "write a packed model as BF16 safetensors", "commands.pack:add_unpack"),
    Command(
        "calibrate",
        "measure input norms of linear layers on a text, for pack",
        "commands.pack:add_calibrate",
    ),
    Command("tune", "search the best pack settings for a model", "commands.tune:define"),
    Command(
        "bake-table", "build a table of n-grams from a model's own text", "commands.own_text:define"
    ),
    Command(
        "accuracy", "measure perplexity and agreement of packed models", "commands.accuracy:define"
    ),
    Command(
        "conform",
        "compare the replies of two decoders, to check that speculation is lossless",
        "commands.conform:define",
    ),
    Command("bench", "run a benchmark", "commands.bench:define"),
)
"""The commands of the product."""


def build_parser() -> CommandParser:
    """Build the parser; a command's flags are added when it is given."""
    parser = CommandParser(prog="casspec", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument(
        "--version", action="version", version=f"casspec {cassandra_spec.__version__}"
    )
    add_commands(parser, (*COMMANDS, *lab_commands("COMMANDS")))
    return parser
