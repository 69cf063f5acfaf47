"""Define ``casspec bench draft-cache``, ``sampling``, ``structured`` and ``streaming``."""

from __future__ import annotations

import argparse
from pathlib import Path

from cassandra_spec.golden import CassandraError
from cassandra_spec.model import flags as model_flags
from cassandra_spec.toolkit import flags


def register(subparsers: flags.Subparsers) -> None:
    """Add the commands."""
    for add in (_add_streaming, _add_draft_cache, _add_sampling, _add_structured):
        add(subparsers)


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


def _add_draft_cache(subparsers: flags.Subparsers) -> None:
    text = "measure agreement of draft and target, by the part of the KV cache that drafts read"
    parser = flags.add_command(subparsers, "draft-cache", text, DRAFT_CACHE_EPILOG, _draft_cache)
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
    from cassandra_spec.bench.decode.report import finish
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


def _add_sampling(subparsers: flags.Subparsers) -> None:
    text = "measure acceptance of sampled tokens, by temperature and rule"
    parser = flags.add_command(subparsers, "sampling", text, SAMPLING_EPILOG, _sampling)
    model_flags.add_packed(parser)
    flags.add_questions(parser)
    text = f"sampling temperatures (default {' '.join(map(str, TEMPERATURES))})"
    flags.add_some(parser, "temperatures", text, TEMPERATURES, type=float, metavar="T")
    flags.add_count(parser, "tokens", "length limit of each reply", 64)
    flags.add_count(parser, "gamma", "length of each chain", 3)
    flags.add_count(parser, "threads", "threads of the native engine", 2)
    flags.add_results(parser)


def _sampling(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.decode.report import finish
    from cassandra_spec.bench.questions import read_questions
    from cassandra_spec.bench.sampling import lines, measure

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


def _add_structured(subparsers: flags.Subparsers) -> None:
    text = "measure tokens per verification under a JSON schema"
    parser = flags.add_command(subparsers, "structured", text, STRUCTURED_EPILOG, _structured)
    model_flags.add_packed(parser)
    flags.add_choice(parser, "backend", ("native", "torch"), "engine that decodes", "native")
    flags.add_count(parser, "threads", "threads of the native backend", 2)
    flags.add_count(parser, "max-tokens", "length limit of each reply", 96)
    flags.add_results(parser)


def _structured(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.decode.report import finish
    from cassandra_spec.bench.structured.measure import lines, measure

    found = measure(
        args.source,
        backend=args.backend,
        threads=args.threads,
        max_tokens=args.max_tokens,
        say=lambda text: flags.say(args, text),
    )
    finish(args, {"structured": found}, {"structured": lines(found)})
    return 0


STREAMING_EPILOG = """\
examples:
  casspec bench streaming packed --memory-limit 140 200 250
  casspec bench streaming --shape 1b --memory-limit 1100

Reads bypass the page cache, so rates are those of the disk; the first line has the rate of
sequential reading. Tokens per second are estimated from a conditional acceptance rate. A shape is a
model with random weights, which is packed into OUT once.
"""


def _add_streaming(subparsers: flags.Subparsers) -> None:
    text = "measure rounds of a target streamed from disk, by memory limit"
    parser = flags.add_command(subparsers, "streaming", text, STREAMING_EPILOG, _streaming)
    add_source(parser)
    flags.add_count(parser, "memory-limit", "memory limits in MB, besides no limit", many="+")
    flags.add_count(parser, "threads", "threads of the native engine", 2)
    flags.add_count(parser, "rounds", "rounds per gamma", 3)
    text = "conditional acceptance rates (default .86)"
    flags.add_some(parser, "acceptance", text, (0.86,), type=float, metavar="A")
    flags.add_results(parser)


def add_source(parser: flags.Flags) -> None:
    """Add the packed model, or the shape of one to make."""
    text = "directory of a packed model"
    parser.add_argument("source", metavar="PACKED", type=Path, nargs="?", help=text)
    text = "shape of a model with random weights, instead of PACKED"
    parser.add_argument("--shape", choices=("135m", "1b", "3b"), help=text)
    flags.add_folder(parser, "out", "folder for models of --shape", "build/streaming")


def source_of(args: argparse.Namespace) -> Path:
    """Return the packed model of these flags; pack the one of a shape first."""
    from cassandra_spec.bench.decode.shapes import save_shape

    if (args.source is None) != bool(args.shape):
        raise CassandraError("either a packed model or --shape must be given")
    return args.source or save_shape(args.shape, args.out / args.shape)


def _streaming(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.decode.report import finish
    from cassandra_spec.bench.streaming import costs_table, file_rate, gammas_table, measure

    source = source_of(args)
    limits = [None, *(limit * 10**6 for limit in args.memory_limit or ())]
    rate = file_rate(source / "model.safetensors")
    found = measure(source, limits, threads=args.threads, rounds=args.rounds)
    size = (source / "model.safetensors").stat().st_size
    text = (
        f"a file of {size / 1e6:,.0f} MB, read at {rate / 1e9:.2f} GB/s\n\n"
        f"{costs_table(found, args.acceptance)}\n\n"
        f"tokens/s at {args.acceptance[0]:g}\n\n{gammas_table(found, args.acceptance[0])}"
    )
    finish(args, {"costs": found}, {"streaming": text})
    return 0
