"""Define ``casspec bench structured``: tokens per verification under a schema."""

from __future__ import annotations

import argparse

from cassandra_spec.model import flags as model_flags
from cassandra_spec.toolkit import flags

EPILOG = """\
examples:
  casspec bench structured packed
  casspec bench structured packed --document docs/results/serving.md

The model extracts facts from twenty texts as JSON of a schema. Each draft source decodes all
replies greedily, with and without the tokens that the schema determines, with up to 7 drafted
tokens per round. The figures are counts, so they do not depend on the machine's load.
"""


def register(subparsers: flags.Subparsers) -> None:
    """Add the command."""
    text = "measure tokens per verification under a JSON schema"
    parser = flags.add_command(subparsers, "structured", text, EPILOG, _structured)
    model_flags.add_packed(parser)
    flags.add_choice(parser, "backend", ("native", "torch"), "engine that decodes", "native")
    flags.add_count(parser, "threads", "threads of the native backend", 2)
    flags.add_count(parser, "max-tokens", "length limit of each reply", 96)
    flags.add_results(parser)


def _structured(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.decode.report import publish
    from cassandra_spec.bench.structured.measure import lines, measure

    found = measure(
        args.source,
        backend=args.backend,
        threads=args.threads,
        max_tokens=args.max_tokens,
        say=lambda text: flags.say(args, text),
    )
    publish(args, {"structured": found}, {"structured": lines(found)})
    return 0
