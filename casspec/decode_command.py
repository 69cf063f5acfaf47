"""``casspec bench decode``: tokens per second of every way to decode a model."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cassandra_spec.golden import CassandraError

if TYPE_CHECKING:
    from cassandra_spec.bench.decode.results import Summary, Turns
    from cassandra_spec.bench.decode.run import Bench
    from cassandra_spec.model.packing.calibration import Norms
    from cassandra_spec.model.weights.sources import Source

__all__ = ["EPILOG", "decode", "register"]

EPILOG = """\
examples:
  casspec bench decode smollm2 --llama-python bench/bin/python
  casspec bench decode smollm2 --weights dequantised dithered --figure docs/decode.svg \\
      --document docs/native.md
  casspec bench decode smollm2 --contenders "native plain*" "*hybrid*" --rounds 4
  casspec bench decode smollm2 --context 1536 --rounds 4 --contenders "native*"
  casspec bench decode --shape 1b 3b --document docs/native.md

Contenders take turns, each in a process of its own that is stopped while others have theirs; before
every turn the speed of memory is measured. Figures are medians over rounds with their quartiles;
ratios are taken round by round. Speculative replies must be those of plain decoding, and the
command fails if one is not. llama.cpp takes part if --llama-python names a Python that has
llama-cpp-python (the extra `bench`). What was measured is kept in OUT: run the command again to go
on. docs/native.md, section Speed, has the figures and what they mean.
"""

_PROMPTS_ROOM = 512  # positions for prompts that have no context before them


def register(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.set_defaults(run=decode)
    parser.add_argument(
        "source", metavar="SOURCE", nargs="?", default="smollm2", help="not packed (smollm2)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/decode"),
        metavar="DIR",
        help="for models, files and what was measured (default build/decode)",
    )
    parser.add_argument(
        "--weights",
        nargs="+",
        choices=("dequantised", "dithered"),
        default=["dequantised"],
        help="as they are, or with noise below their steps, as if never quantised",
    )
    parser.add_argument(
        "--contenders", nargs="+", default=[], metavar="GLOB", help="some of them (default: all)"
    )
    parser.add_argument("--llama-python", type=Path, metavar="PATH", help="runs llama.cpp")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="(default 2)")
    parser.add_argument(
        "--rounds", type=int, default=8, metavar="N", help="the prompts go round (default 8)"
    )
    parser.add_argument("--prompts", type=int, metavar="N", help="the first N of them (24)")
    parser.add_argument(
        "--max-tokens", type=int, default=128, metavar="N", help="of each reply (default 128)"
    )
    parser.add_argument(
        "--slow-tokens",
        type=int,
        default=24,
        metavar="N",
        help="of transformers' and torch's replies, one in each round (default 24)",
    )
    parser.add_argument(
        "--context", type=int, metavar="N", help="put text before prompts, N tokens in all"
    )
    parser.add_argument(
        "--shape",
        nargs="+",
        default=[],
        metavar="NAME",
        help="instead: costs of steps in the shapes 135m, 1b, 3b, on random weights",
    )
    parser.add_argument(
        "--acceptance",
        nargs="+",
        type=float,
        default=[0.80, 0.86, 0.90],
        metavar="A",
        help="conditional rates for the gains that --shape projects (default .80 .86 .90)",
    )
    parser.add_argument("--calibration", type=Path, metavar="FILE", help="as for `casspec pack`")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes for packing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="bars, as SVG")
    parser.add_argument(
        "--document", type=Path, metavar="FILE", help="put the table between its markers"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")


def decode(args: argparse.Namespace) -> int:
    """``casspec bench decode``."""
    from cassandra_spec.bench.decode.contenders import choose
    from cassandra_spec.bench.decode.report import lines
    from cassandra_spec.bench.decode.results import Turns, summaries
    from cassandra_spec.bench.decode.run import make_source
    from cassandra_spec.model.weights.sources import open_source

    contenders = choose(args.contenders)
    if args.threads < 1:
        raise CassandraError(f"threads must be at least 1, not {args.threads}")
    if args.shape:
        return _shapes(args)
    source = open_source(args.source)
    norms = _norms(args, source)
    bench = _bench(args, source, norms)
    turns = Turns(args.out / "turns.jsonl", _about(bench, source))
    bench = dataclasses.replace(bench, contenders=contenders)
    for weights in args.weights:
        bench.run(weights, make_source(source, weights), norms, turns)
    names = {each.name for each in contenders}
    some = [turn for turn in turns if turn.weights in args.weights and turn.contender in names]
    found = summaries(some, contenders)
    print(lines(found))
    _save(args, found, turns)
    return _verdict(found)


def _shapes(args: argparse.Namespace) -> int:
    """Costs of steps, each shape on its own: the largest take most of a machine's memory."""
    from cassandra_spec.bench.decode import shapes
    from cassandra_spec.model.output import write_file
    from cassandra_spec.report.documents import fill_file

    for acceptance in args.acceptance:
        if not 0 <= acceptance <= 1:
            raise CassandraError(f"acceptance must be from 0 to 1, not {acceptance}")
    unknown = [shape for shape in args.shape if shape not in shapes.SHAPES]
    if unknown:
        raise CassandraError(f"shape must be one of {', '.join(shapes.SHAPES)}, not {unknown[0]!r}")
    found = []
    for shape in args.shape:
        found.append(shapes.measure(shape, target="bf16", threads=args.threads))
        if not args.quiet:
            print(f"{shape}: measured", file=sys.stderr, flush=True)
    text = shapes.lines(found, args.acceptance)
    print(text)
    if args.json:
        body = {"shapes": [dataclasses.asdict(each) for each in found]}
        write_file(args.json, (json.dumps(body) + "\n").encode())
    if args.document:
        fill_file(args.document, {"shapes": _indented(text)})
    return 0


def _indented(text: str) -> str:
    """A block of code in Markdown."""
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def _norms(args: argparse.Namespace, source: Source) -> Norms:
    from cassandra_spec.model.packing.calibration import (
        Calibration,
        cache_directory,
        load_or_calibrate,
    )

    calibration = Calibration(text=args.calibration)
    progress = not args.quiet
    return load_or_calibrate(source, calibration, cache=cache_directory(), progress=progress)


def _bench(args: argparse.Namespace, source: Source, norms: Norms) -> Bench:
    """Everything but the contenders; packs the first model, whose tokenizer makes the prompts."""
    from cassandra_spec.bench.decode.prompts import encode_behind, in_rounds
    from cassandra_spec.bench.decode.run import Bench
    from cassandra_spec.drafting import encode_prompt, stop_tokens
    from cassandra_spec.golden.model_config import read_config
    from cassandra_spec.model.pretrained import load_tokenizer
    from cassandra_spec.model.study.prompts import bundled_prompts

    def say(text: str) -> None:
        if not args.quiet:
            print(text, file=sys.stderr, flush=True)

    bench = Bench(
        contenders=(),
        folder=args.out,
        rounds=(),
        stops=(),
        max_tokens=args.max_tokens,
        slow_tokens=min(args.slow_tokens, args.max_tokens),
        threads=args.threads,
        context=(args.context or _PROMPTS_ROOM) + args.max_tokens,
        llama_python=None if args.llama_python is None else args.llama_python.absolute(),
        jobs=args.jobs,
        say=say,
    )
    args.out.mkdir(parents=True, exist_ok=True)
    packed = bench.packed("exact-4", "dequantised", source, norms)
    tokenizer = load_tokenizer(packed)
    texts = [prompt.text for prompt in bundled_prompts("bench")][: args.prompts]
    if args.context:
        filler = _filler()
        prompts = [encode_behind(tokenizer, text, filler, args.context) for text in texts]
    else:
        prompts = [encode_prompt(tokenizer, text) for text in texts]
    stops = sorted(stop_tokens(tokenizer, read_config(packed).get("eos_token_id")))
    rounds = in_rounds(prompts, args.rounds)
    return dataclasses.replace(bench, rounds=rounds, stops=stops)


def _filler() -> str:
    """The held-out text that comes with the project."""
    from cassandra_spec import model

    path = Path(model.__file__).parent / "data" / "heldout.txt"
    return path.read_text(encoding="utf-8")


def _about(bench: Bench, source: Source) -> dict[str, Any]:
    """What turns depend on."""
    from cassandra_spec.model.weights.sources import fingerprint

    names = ("rounds", "stops", "max_tokens", "slow_tokens", "threads", "context")
    return {"model": fingerprint(source), **{name: getattr(bench, name) for name in names}}


def _save(args: argparse.Namespace, found: list[Summary], turns: Turns) -> None:
    from cassandra_spec.bench.decode.report import draw, lines
    from cassandra_spec.model.output import write_file
    from cassandra_spec.report.documents import fill_file

    if args.json:
        body = {
            "summaries": [dataclasses.asdict(each) for each in found],
            "turns": [dataclasses.asdict(turn) for turn in turns],
        }
        write_file(args.json, (json.dumps(body) + "\n").encode())
    if args.figure:
        write_file(
            args.figure, draw(found, title=f"Decoding {args.source}, {args.threads} threads")
        )
    if args.document:
        fill_file(args.document, {"decode": _indented(lines(found))})


def _verdict(found: list[Summary]) -> int:
    """0 if all replies that must be the same are."""
    differing = sum(each.compared - each.identical for each in found)
    compared = sum(each.compared for each in found)
    print(f"\n{'FAIL' if differing else 'PASS'}: {differing} of {compared} replies differ")
    return 1 if differing else 0
