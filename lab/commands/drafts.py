"""Define ``casspec bench levels``, ``draft-cache``, ``sampling`` and ``structured``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from cassandra_spec.model import flags as model_flags
from cassandra_spec.toolkit import flags

LEVELS_EPILOG = """\
examples:
  casspec bench levels packed
  casspec bench levels packed --table packed/table.safetensors --figure levels.svg
  casspec bench levels packed --questions question.jsonl --each 5 --json levels.json

The native engine answers each turn in all variants, with plain decoding first; the command fails if
a reply differs from the plain one. Traffic is counted as docs/software/runtime.md defines it, with
95 % intervals over turns; speed is the median over turns, with quartiles. A file of questions has
Spec-Bench's form. Ctrl-C prints the figures so far.
"""


def add_levels(parser: flags.CommandParser) -> None:
    """Define ``casspec bench levels``."""
    flags.describe(parser, LEVELS_EPILOG, _levels)
    model_flags.add_packed(parser)
    flags.add_questions(parser)
    flags.add_file(parser, "table", "n-gram table from `casspec bake-table`")
    flags.add_choice(
        parser, "prompts", ("bench", "development"), "bundled prompts to use without --questions"
    )
    flags.add_count(parser, "max-tokens", "length limit of each reply", 128)
    flags.add_count(parser, "gamma", "draft length of the variants that are not adaptive", 7)
    text = "minimum margin of the hybrid variants (default 1.1)"
    flags.add_number(parser, "min-margin", text, 1.1)
    flags.add_count(parser, "threads", "threads (default: all cores)")
    flags.add_some(parser, "variants", "variants to measure (default: all)", ("*",), metavar="GLOB")
    flags.add_results(parser, "a bar chart")


def _levels(args: argparse.Namespace) -> int:
    from cassandra_spec.bench import equal
    from cassandra_spec.bench.report import finish
    from cassandra_spec.lab.drafts import levels
    from cassandra_spec.lab.questions import ALL, read_questions

    questions = read_questions(args.questions, args.each, uses=[args.prompts])
    sizes = levels.Sizes(max_tokens=args.max_tokens, gamma=args.gamma, min_margin=args.min_margin)
    chosen = levels.choose(args.variants, sizes)
    with levels.open_run(args.source, args.table, args.threads, chosen) as run:
        answers, whole = run.run(questions, lambda text: flags.say(args, text))
        found = run.figures(answers)
    body: dict[str, Sequence[Any]] = {"figures": found, "answers": answers}
    draw = partial(levels.draw, found, title=f"Levels of drafting, {args.source}")
    finish(args, body, {"levels": levels.lines(found)}, draw)
    differing = sum(each.turns - each.identical for each in found if each.category == ALL)
    return equal.report(differing, whole=whole)


DRAFT_CACHE_EPILOG = """\
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


def add_draft_cache(parser: flags.CommandParser) -> None:
    """Define ``casspec bench draft-cache``."""
    flags.describe(parser, DRAFT_CACHE_EPILOG, _draft_cache)
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
    from cassandra_spec.bench.report import finish
    from cassandra_spec.lab.decode.context import check_contexts
    from cassandra_spec.lab.drafts.draft_cache import lines, measure, readings
    from cassandra_spec.lab.questions import read_questions

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
    finish(args, {"agreements": found}, {"draft-cache": lines(found)})
    return 0


SAMPLING_EPILOG = """\
examples:
  casspec bench sampling packed
  casspec bench sampling packed --questions question.jsonl --each 4 \\
      --document docs/results/acceptance.md

The draft view drafts chains. A drafted token is accepted if noise that belongs to its place makes
the target choose it, too, or by the paper's Eq. 1 (rejection). The rate is that of tokens whose
predecessors in the round were all accepted, with the standard error of independent tokens.
"""

TEMPERATURES = (0.3, 0.7, 1.0)


def add_sampling(parser: flags.CommandParser) -> None:
    """Define ``casspec bench sampling``."""
    flags.describe(parser, SAMPLING_EPILOG, _sampling)
    model_flags.add_packed(parser)
    flags.add_questions(parser)
    text = f"sampling temperatures (default {' '.join(map(str, TEMPERATURES))})"
    flags.add_some(parser, "temperatures", text, TEMPERATURES, type=float, metavar="T")
    flags.add_count(parser, "tokens", "length limit of each reply", 64)
    flags.add_count(parser, "gamma", "length of each chain", 3)
    flags.add_count(parser, "threads", "threads of the native engine", 2)
    flags.add_results(parser)


def _sampling(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.report import finish
    from cassandra_spec.lab.drafts.sampling import lines, measure
    from cassandra_spec.lab.questions import read_questions

    found = measure(
        args.source,
        read_questions(args.questions, args.each),
        temperatures=args.temperatures,
        tokens=args.tokens,
        gamma=args.gamma,
        threads=args.threads,
        say=lambda text: flags.say(args, text),
    )
    finish(args, {"accepted": found}, {"sampling": lines(found)})
    return 0


STRUCTURED_EPILOG = """\
examples:
  casspec bench structured packed
  casspec bench structured packed --document docs/results/serving.md

The model extracts facts from twenty texts as JSON of a schema. Each draft source decodes all
replies greedily, with and without the tokens that the schema determines, with up to 7 drafted
tokens per round. The figures are counts, so they do not depend on the machine's load.
"""


def add_structured(parser: flags.CommandParser) -> None:
    """Define ``casspec bench structured``."""
    flags.describe(parser, STRUCTURED_EPILOG, _structured)
    model_flags.add_packed(parser)
    flags.add_choice(parser, "backend", ("native", "torch"), "engine that decodes", "native")
    flags.add_count(parser, "threads", "threads of the native backend", 2)
    flags.add_count(parser, "max-tokens", "length limit of each reply", 96)
    flags.add_results(parser)


def _structured(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.report import finish
    from cassandra_spec.lab.drafts.structured import lines, measure

    found = measure(
        args.source,
        backend=args.backend,
        threads=args.threads,
        max_tokens=args.max_tokens,
        say=lambda text: flags.say(args, text),
    )
    finish(args, {"structured": found}, {"structured": lines(found)})
    return 0
