"""``casspec bench serve``."""

from __future__ import annotations

import argparse

from cassandra_spec.report import flags

EPILOG = """\
examples:
  casspec serve packed --name mine
  casspec bench serve http://127.0.0.1:8000
  casspec bench serve http://127.0.0.1:8000 http://127.0.0.1:8080 --clients 16

Servers of OpenAI's interface, which run already: this project's, or llama.cpp's beside it. A round
asks the bundled prompts one after another and all at once, in turn which is first, and each ratio
is of one round; medians with quartiles. The command fails if a reply differs.
"""


def register(subparsers: flags.Subparsers) -> None:
    """Add the command."""
    text = "clients at once beside one after another, at servers that run"
    parser = flags.add_command(subparsers, "serve", text, EPILOG, _serve)
    parser.add_argument("addresses", metavar="ADDRESS", nargs="+", help="http://HOST:PORT")
    flags.add_count(parser, "clients", "each with a prompt of its own", 8)
    flags.add_count(parser, "max-tokens", "of each reply", 128)
    flags.add_count(parser, "rounds", "", 5)
    flags.add_file(parser, "json", "write all figures")
    flags.add_file(parser, "document", "put the table between its markers")
    flags.add_quiet(parser)


def _serve(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.decode.report import save
    from cassandra_spec.bench.serving import load_table, measure_load
    from cassandra_spec.golden import CassandraError
    from cassandra_spec.model.study.prompts import bundled_prompts

    prompts = [each.text for each in bundled_prompts()][: args.clients]
    if not 1 < args.clients <= len(prompts):
        raise CassandraError(f"clients must be from 2 to {len(prompts)}, not {args.clients}")
    found = measure_load(
        args.addresses,
        prompts,
        rounds=args.rounds,
        max_tokens=args.max_tokens,
        say=lambda text: flags.say(args, text),
    )
    table = load_table(found)
    print(table)
    save({"loads": found}, args.json, {"serve": table}, args.document)
    return 1 if any(each.differing for each in found) else 0
