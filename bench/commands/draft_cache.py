"""``casspec bench draft-cache``: agreement of drafts by what they read of the KV cache."""

from __future__ import annotations

import argparse

from cassandra_spec.model import flags as model_flags
from cassandra_spec.toolkit import flags

EPILOG = """\
examples:
  casspec bench draft-cache packed --questions question.jsonl
  casspec bench draft-cache packed --questions question.jsonl --categories rag summarization \\
      --contexts 4096 8000 --windows 512 1024 --document docs/results/kv.md

Each draft reads a part of the KV cache: all positions, or sinks and a window; all bits of each
value, or fewer (--bits); all values of a vector, or the largest (--keep). It is evaluated along the
target's own continuations of long prompts, which are joined questions. The table has the share of
positions at which draft and target agree on the best token, with standard error and counts. With
--skip, settings can be chosen on some questions and reported on others. A file of questions has
Spec-Bench's form.
"""

CONTEXTS, WINDOWS, SINKS = (2048, 4096, 8000), (256, 512, 1024, 2048), (16,)
BITS, KEEP = (6, 5, 4), (48,)
CATEGORIES = ("summarization", "rag")


def register(subparsers: flags.Subparsers) -> None:
    """Add the command."""
    text = "measure agreement of draft and target, by the part of the KV cache that drafts read"
    parser = flags.add_command(subparsers, "draft-cache", text, EPILOG, _draft_cache)
    model_flags.add_packed(parser)
    flags.add_file(
        parser, "questions", "questions in Spec-Bench's form (default: the bundled prompts)"
    )
    text = f"categories of --questions to use (default {' '.join(CATEGORIES)})"
    flags.add_some(parser, "categories", text, metavar="NAME")
    flags.add_count(parser, "skip", "leave out the first N questions", 0, low=0)
    numbers = (
        ("contexts", CONTEXTS, "prompt lengths in tokens"),
        ("windows", WINDOWS, "last positions that drafts read"),
        ("sinks", SINKS, "first positions that drafts read"),
    )
    fewer = (
        ("bits", BITS, "bits of each value that drafts read, including the sign"),
        ("keep", KEEP, "largest values of each vector that drafts read"),
    )
    for name, default, text in (*numbers, *fewer):
        shown = " ".join(map(str, default))
        flags.add_some(parser, name, f"{text} (default {shown})", default, type=int, metavar="N")
    flags.add_count(parser, "texts", "prompts of each length", 6)
    flags.add_count(parser, "tokens", "length of each continuation", 64)
    flags.add_count(parser, "threads", "threads of the native engine", 2)
    flags.add_results(parser)


def _draft_cache(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.decode.context import check_contexts
    from cassandra_spec.bench.decode.report import publish
    from cassandra_spec.bench.draft_cache import lines, measure, readings
    from cassandra_spec.bench.questions import read_questions

    check_contexts(args.contexts)
    views = readings(args.windows, args.sinks, args.bits, args.keep)
    categories = args.categories or (CATEGORIES if args.questions else ())
    questions = read_questions(args.questions)
    chosen = [one for one in questions if not categories or one.category in categories]
    found = measure(
        args.source,
        chosen[args.skip :],
        contexts=args.contexts,
        views=views,
        texts=args.texts,
        tokens=args.tokens,
        threads=args.threads,
        say=lambda text: flags.say(args, text),
    )
    publish(args, {"agreements": found}, {"draft-cache": lines(found)})
    return 0
