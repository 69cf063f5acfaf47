"""Define ``casspec bench``, with one subcommand per benchmark."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from cassandra_spec.bench.commands import context, decode, drafts, opening, serving
from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.model import flags as model_flags
from cassandra_spec.native.limits import PROMPT_ROWS
from cassandra_spec.native.linear import FORMS
from cassandra_spec.toolkit import flags

EPILOG = """\
examples:
  casspec bench decode smollm2
  casspec bench kernels
  casspec bench codec
  casspec bench pack
  casspec bench serving packed
"""

CODEC_EPILOG = """\
examples:
  casspec bench codec
  casspec bench codec ~/models/llama --no-dither
  casspec bench codec --isa portable avx512 --json codec.json

GB/s are 10^9 bytes of BF16 values per second of wall time, on one thread: median, minimum and
maximum over rounds. Each round measures everything once, memcpy included; `x memcpy` and `x ZipNN`
are medians of the ratios within a round. ZipNN is included if installed (`pip install zipnn`). The
weights of the demonstration model were once quantised, so entropy coders compress them too well;
dithering restores low mantissa bits like those of trained weights.
"""

KERNELS_EPILOG = """\
examples:
  casspec bench kernels
  casspec bench kernels --cached --threads 1
  casspec bench kernels --forms bf16 draft5 --rows 1 2 3 4 5 6 7 8 --rounds 15

The layers have SmolLM2's shapes and random weights; a pass multiplies all of them by 1 to 128 rows.
`GB/s` counts stored bytes of weights, for one row: median, minimum and maximum over rounds. `of
reading` is its ratio to the speed of plain reading in the same round; `N rows` is the time of a
pass over N rows, relative to one row. docs/software/kernels.md describes the forms.
"""

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

PACK_EPILOG = """\
examples:
  casspec bench pack
  casspec bench pack ~/models/llama --schemes exact --rounds 1 --json pack.json

Each round packs and unpacks the model with both codecs, in a temporary folder. Seconds are medians
over rounds of wall time and (CPU) of processor time, worker processes included; `golden / native`
are median, minimum and maximum of the ratios within a round. Times include reading the source,
checksums and writing. Both codecs write the same bytes.
"""


def register(subparsers: flags.Subparsers, *others: Callable[[flags.Subparsers], None]) -> None:
    """Add the command and its benchmarks; ``others`` add benchmarks defined elsewhere."""
    inner = flags.add_command(subparsers, "bench", "run a benchmark", EPILOG).add_subparsers(
        metavar="BENCHMARK", required=True
    )
    own = (decode.register, context.register, _add_levels, _add_kernels, _add_codec, _add_pack)
    for add in (*own, serving.register, drafts.register, opening.register, *others):
        add(inner)


def _add_levels(subparsers: flags.Subparsers) -> None:
    text = "measure the gain of each level of drafting, by kind of text"
    parser = flags.add_command(subparsers, "levels", text, LEVELS_EPILOG, _levels)
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
    from cassandra_spec.bench import equal, levels
    from cassandra_spec.bench.decode.report import finish
    from cassandra_spec.bench.questions import ALL, read_questions

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


def _add_kernels(subparsers: flags.Subparsers) -> None:
    text = "measure how fast the native kernels read weights, relative to plain reading"
    parser = flags.add_command(subparsers, "kernels", text, KERNELS_EPILOG, _kernels)
    flags.add_some(parser, "forms", "weight formats to measure (default: all)", FORMS, FORMS)
    counts = range(1, PROMPT_ROWS + 1)
    text = "rows of a pass, besides 1 (default: 2 4 8)"
    flags.add_some(parser, "rows", text, (2, 4, 8), counts, type=int, metavar="N")
    flags.add_count(parser, "threads", "numbers of threads (default: 1 and all cores)", many="+")
    flags.add_count(parser, "layers", "number of layers", 10)
    flags.add_count(parser, "rounds", "number of rounds", 7)
    flags.add_switch(parser, "cached", "measure one small matrix that stays in a core's cache")
    flags.add_file(parser, "json", "write all figures as JSON")


def _kernels(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.kernels import Measurement, kernel_table, measure_kernels
    from cassandra_spec.model.output import write_json

    threads = args.threads or sorted({1, len(os.sched_getaffinity(0))})
    options = {"forms": args.forms, "rows": args.rows, "rounds": args.rounds, "threads": threads}
    plan = Measurement(layers=args.layers, **options)
    if args.cached:
        plan = Measurement.cached(**options)
    results = measure_kernels(plan, lambda text: print(text, file=sys.stderr, flush=True))
    write_json(args.json, [dataclasses.asdict(result) for result in results])
    print(kernel_table(results))
    return 0


def _add_codec(subparsers: flags.Subparsers) -> None:
    text = "measure the speed of the native codec, relative to memcpy and ZipNN"
    parser = flags.add_command(subparsers, "codec", text, CODEC_EPILOG, _codec)
    model_flags.add_source(parser)
    flags.add_count(parser, "values", "number of weights", 1 << 22)
    flags.add_count(parser, "rounds", "number of rounds", 9)
    text = "instruction sets to measure (default: the best)"
    parser.add_argument("--isa", nargs="+", metavar="NAME", help=text)
    text = "measure CPU time of all threads instead of wall time, for a machine under load"
    flags.add_switch(parser, "cpu-time", text)
    flags.add_switch(parser, "no-dither", "do not dither the weights")
    flags.add_switch(parser, "golden", "also measure golden's codec")
    flags.add_file(parser, "json", "write all times as JSON")


def _codec(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.codec import codec_table, dithered, measure_codec
    from cassandra_spec.bench.codecs import take_weights
    from cassandra_spec.model.output import write_json

    values = take_weights(args.source, args.values)
    bits, seconds = measure_codec(
        values if args.no_dither else dithered(values),
        args.isa or (),
        rounds=args.rounds,
        golden=args.golden,
        clock=time.process_time if args.cpu_time else time.perf_counter,
    )
    time_of = "CPU time" if args.cpu_time else "one thread"
    weights = "as they are" if args.no_dither else "dithered"
    print(f"{values.size:,} weights of {args.source}, {weights}; {args.rounds} rounds, {time_of}\n")
    print(codec_table(bits, seconds, values.size))
    write_json(args.json, {"bits": bits, "seconds": seconds})
    return 0


def _add_pack(subparsers: flags.Subparsers) -> None:
    text = "measure the time to pack and unpack a model, with golden's codec and the native one"
    parser = flags.add_command(subparsers, "pack", text, PACK_EPILOG, _pack)
    model_flags.add_source(parser)
    flags.add_some(parser, "schemes", "schemes to measure (default: all)", SCHEMES, SCHEMES)
    flags.add_count(parser, "rounds", "number of rounds", 3)
    flags.add_jobs(parser)
    flags.add_quiet(parser)
    flags.add_file(parser, "json", "write all times as JSON")


def _pack(args: argparse.Namespace) -> int:
    from cassandra_spec.bench.pack import measure_packing, packing_table
    from cassandra_spec.model.output import write_json

    found = measure_packing(
        args.source,
        args.schemes,
        rounds=args.rounds,
        jobs=args.jobs,
        progress=flags.shows_progress(args),
    )
    print(f"{args.source}, nothing pruned; rounds: {args.rounds}\n")
    print(packing_table(found))
    write_json(args.json, found)
    return 0
