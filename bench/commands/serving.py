"""Define ``casspec bench serve``."""

from __future__ import annotations

import argparse

from cassandra_spec.toolkit import flags

EPILOG = """\
examples:
  casspec serve packed --name mine
  casspec bench serve http://127.0.0.1:8000
  casspec bench serve http://127.0.0.1:8000 http://127.0.0.1:8080 --clients 16

The servers must run already and have OpenAI's API, as this project's and llama.cpp's do. Each round
sends the bundled prompts one by one and all at once, in alternating order; ratios are taken within
a round, and figures are medians with quartiles. The command fails if the replies differ.
"""


def register(subparsers: flags.Subparsers) -> None:
    """Add the command."""
    text = "measure the throughput of running servers with concurrent clients"
    parser = flags.add_command(subparsers, "serve", text, EPILOG, _serve)
    parser.add_argument("addresses", metavar="ADDRESS", nargs="+", help="http://HOST:PORT")
    flags.add_count(parser, "clients", "number of clients, each with its own prompt", 8)
    flags.add_count(parser, "max-tokens", "length limit of each reply", 128)
    flags.add_count(parser, "rounds", "number of rounds", 5)
    flags.add_file(parser, "json", "write all figures as JSON")
    flags.add_file(parser, "document", "update the table of this Markdown file")
    flags.add_quiet(parser)


def _serve(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.decode.report import save
    from cassandra_spec.bench.serving import load_table, measure_load
    from cassandra_spec.bench.study.prompts import bundled_prompts
    from cassandra_spec.golden import CassandraError

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
