"""``casspec bench``: measured figures, each by a command that anyone can run."""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cassandra_spec.bench import codec as codec_command
from cassandra_spec.bench import kernels as kernels_command
from cassandra_spec.bench import pack as pack_bench
from cassandra_spec.casspec import decode_command
from cassandra_spec.report.tables import text_table

if TYPE_CHECKING:
    from cassandra_spec.model.study.acceptance import Interval, Row
    from cassandra_spec.model.study.drafts import Study

__all__ = ["EPILOG", "acceptance", "add_study_flags", "open_study", "register", "small_model"]

EPILOG = """\
examples:
  casspec bench acceptance smollm2
  casspec bench small-model small
  casspec bench decode smollm2
  casspec bench kernels
  casspec bench codec
  casspec bench pack
"""

ACCEPTANCE_EPILOG = """\
examples:
  casspec bench acceptance smollm2
  casspec bench acceptance smollm2 --settings "exact-*" --gamma 3 5 --json acceptance.json
  casspec bench acceptance ~/models/llama --prompts own.txt --max-tokens 256
  casspec bench acceptance smollm2 --figure acceptance.svg

Packs the model in one setting after another and follows each draft along the target's greedy
replies. Intervals are of 95 %, by drawing prompts anew. `best` is the gamma with the least traffic.
docs/acceptance.md defines the figures and names the settings.
"""

SMALL_EPILOG = """\
examples:
  casspec bench small-model small
  casspec bench acceptance small --prompts lines.txt

Some minutes on two cores. The text is the one of the calibration (model/data/README.md).
"""

_PLOT_GAMMA = 5


def register(parser: argparse.ArgumentParser, add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the benchmarks to the parser of ``bench``."""
    subparsers = parser.add_subparsers(metavar="WHAT", required=True)
    text = "how many drafted tokens are accepted, and what that saves"
    bench = add(subparsers, "acceptance", text, ACCEPTANCE_EPILOG)
    bench.set_defaults(run=acceptance)
    add_study_flags(bench)
    bench.add_argument(
        "--settings", nargs="+", default=[], metavar="GLOB", help="some of them (default: all)"
    )
    bench.add_argument(
        "--gamma", nargs="+", type=int, default=[3, 5], metavar="N", help="(default: 3 5)"
    )
    bench.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    bench.add_argument(
        "--figure",
        type=Path,
        metavar="FILE",
        help="instead of the table: acceptance against bits, as a plot (SVG) and its table",
    )

    _add_small(subparsers, add)
    text = "tokens per second of every way to decode, beside llama.cpp and transformers"
    decode_command.register(add(subparsers, "decode", text, decode_command.EPILOG))
    text = "how fast the native kernels read weights, beside plain reading"
    kernels_command.register(add(subparsers, "kernels", text, kernels_command.EPILOG))
    text = "how fast the native codec encodes and decodes, beside memcpy and ZipNN"
    codec_command.register(add(subparsers, "codec", text, codec_command.EPILOG))
    text = "seconds to pack and unpack a model, by golden's codec and by native code"
    pack_bench.register(add(subparsers, "pack", text, pack_bench.EPILOG))


def _add_small(subparsers: object, add: Callable[..., argparse.ArgumentParser]) -> None:
    text = "train a small model that was never quantised, for comparison"
    small = add(subparsers, "small-model", text, SMALL_EPILOG)
    small.set_defaults(run=small_model)
    small.add_argument("destination", metavar="DEST", type=Path, help="new directory")
    small.add_argument("--steps", type=int, default=600, metavar="N", help="(default 600)")
    small.add_argument("--quiet", action="store_true", help="no progress")


def small_model(args: argparse.Namespace) -> int:
    """``casspec bench small-model``."""
    from cassandra_spec.model.study.small import train_small

    train_small(args.destination, steps=args.steps, progress=not args.quiet)
    return 0


def add_study_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of everything that follows drafts along replies."""
    parser.add_argument("source", metavar="SOURCE", help="model that is not packed")
    parser.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        help="text file with one prompt in each line (default: those that come along)",
    )
    parser.add_argument(
        "--max-tokens", type=int, default=128, metavar="N", help="of each reply (default 128)"
    )
    parser.add_argument(
        "--calibration", type=Path, metavar="FILE", help="text or norms, as for `casspec pack`"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: all cores)")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def acceptance(args: argparse.Namespace) -> int:
    """``casspec bench acceptance``."""
    from cassandra_spec.model.study.acceptance import best_row, rows
    from cassandra_spec.model.study.settings import choose

    if args.figure:
        return _figure(args)
    chosen = choose(args.settings)
    study = open_study(args, "bench")
    study.check_gammas(args.gamma)
    found: list[Row] = []
    print("\n".join(_heading(args.gamma)))
    for setting in chosen:
        measured = study.measure(setting)
        at = rows(measured, args.gamma)
        best = best_row(measured, study.depth)
        found += [*at, *([best] if best.gamma not in args.gamma else [])]
        print(_line(at, best), flush=True)
    _save(args, found)
    return 0


def open_study(args: argparse.Namespace, use: str) -> Study:
    """The model with the prompts and the calibration of the flags."""
    from cassandra_spec.model.packing.calibration import (
        Calibration,
        cache_directory,
        load_or_calibrate,
    )
    from cassandra_spec.model.study.drafts import Study
    from cassandra_spec.model.study.prompts import bundled_prompts, read_prompts
    from cassandra_spec.model.weights.sources import open_source

    source = open_source(args.source)
    prompts = (
        [prompt.text for prompt in bundled_prompts(use)]
        if args.prompts is None
        else read_prompts(args.prompts)
    )
    progress = not args.quiet
    calibration = Calibration(text=args.calibration)
    norms = load_or_calibrate(source, calibration, cache=cache_directory(), progress=progress)
    return Study(
        source,
        prompts,
        norms=norms,
        max_tokens=args.max_tokens,
        jobs=args.jobs,
        progress=progress,
    )


def _heading(gammas: Sequence[int]) -> list[str]:
    names = ["setting".ljust(20), "draft", "whole"]
    names += [f"accepted, gamma {gamma}".rjust(19) for gamma in gammas]
    names += ["best", "linear", "weights", "all".rjust(17), "plain"]
    return ["  ".join(names), "  ".join("-" * len(name) for name in names)]


def _line(at: Sequence[Row], best: Row) -> str:
    traffic = best.report.traffic
    cells = [at[0].label.ljust(20), f"{at[0].draft_bits:5.2f}", f"{at[0].target_bits:5.2f}"]
    cells += [interval(row.acceptance).rjust(19) for row in at]
    cells += [
        f"{best.gamma:4}",
        f"{traffic['linear'].speedup:6.3f}",
        f"{traffic['weights'].speedup:7.3f}",
        interval(best.speedup).rjust(17),
        f"{traffic['all'].plain_speedup:5.3f}",
    ]
    return "  ".join(cells)


def interval(figure: Interval) -> str:
    """A figure with its bounds."""
    return f"{figure.value:.3f} [{figure.low:.2f}, {figure.high:.2f}]"


def _figure(args: argparse.Namespace) -> int:
    from cassandra_spec.model.output import write_file
    from cassandra_spec.model.study.acceptance import row
    from cassandra_spec.model.study.figure import draw
    from cassandra_spec.model.study.settings import figure_settings

    study = open_study(args, "bench")
    curves: dict[str, list[Row]] = defaultdict(list)
    for family, setting in figure_settings():
        curves[family].append(row(study.measure(setting), _PLOT_GAMMA))
    lines = [
        [family, found.label, f"{found.draft_bits:.2f}", interval(found.acceptance)]
        for family, rows in curves.items()
        for found in rows
    ]
    print(text_table(["curve", "draft", "bits/weight", f"accepted, gamma {_PLOT_GAMMA}"], lines))
    write_file(args.figure, draw(curves, title=f"{args.source}, gamma {_PLOT_GAMMA}"))
    _save(args, [found for rows in curves.values() for found in rows])
    return 0


def _save(args: argparse.Namespace, found: Sequence[Row]) -> None:
    from cassandra_spec.model.output import write_file

    if args.json:
        body = {"source": args.source, "rows": [row.to_dict() for row in found]}
        write_file(args.json, (json.dumps(body, indent=1) + "\n").encode())
        print(f"{args.json}: {len(found)} rows", file=sys.stderr)
