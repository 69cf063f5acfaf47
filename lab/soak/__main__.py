"""Compare speculative with plain replies, token by token, on many prompts.

SmolLM2 is packed in each scheme; the bundled prompts are answered by plain decoding and
speculatively. Schemes unary and exact must all give the replies of one plain target; mx rounds its
weights and must give those of its own plain decoding. Answers are kept, so an interrupted run can
be resumed.

``--backend torch`` (``make soak``): gamma 1 to 8 in turn, keys and values in BF16 and in the
format. ``--backend native`` (``make regression``): every gamma, every draft source, chains and
trees of three sizes, with and without a minimum margin, every form of the target, greedy and
sampled, alone and beside up to three others; some prompts follow enough text that prompt and reply
fill 8,192 positions. With ``--table`` the low drafters have a table of n-grams, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from tqdm import tqdm

from cassandra_spec.bench import equal
from cassandra_spec.bench.answers import Answers
from cassandra_spec.bench.study.prompts import bundled_prompts
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.soak import native_replies, torch_replies
from cassandra_spec.lab.soak.cases import RECIPES, Answer, Case, Run, with_plain
from cassandra_spec.model.packing.calibration import cache_directory, load_or_calibrate
from cassandra_spec.model.packing.packer import pack_model
from cassandra_spec.model.weights.sources import BUNDLED, open_source
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import text_table
from cassandra_spec.toolkit.workers.pool import Workers

BACKENDS = {"torch": torch_replies, "native": native_replies}
VARIANTS = {"torch": "KV", "native": "target"}
JOBS = {"torch": 2, "native": 1}  # the native engine has threads of its own


def _pack(folder: Path, schemes: Sequence[str], cluster: str | None) -> None:
    """Pack the model in each scheme that is not there yet."""
    source = open_source(BUNDLED)
    for scheme in schemes:
        if not (folder / scheme).exists():
            norms = load_or_calibrate(source, cache=cache_directory(), progress=True)
            recipe = RECIPES[scheme]
            pack_model(source, folder / scheme, recipe, norms=norms, cluster=cluster, progress=True)


def _answer_all(args: argparse.Namespace, todo: Sequence[Case]) -> dict[Case, Answer]:
    """Return the answers to all cases; those of an earlier run are in a journal."""
    journal = Answers(
        args.out / f"answers-{args.backend}-{args.max_tokens}.journal",
        ("golden", "model", "drafting", "native", "lab/soak"),
        [args.table] if args.table else [],
    )
    run = Run(
        folder=args.out,
        max_tokens=args.max_tokens,
        threads=args.threads,
        table=args.table,
    )
    left = [case for case in todo if [case.key] not in journal]
    answer = BACKENDS[args.backend].answer
    bar = tqdm(total=len(todo), initial=len(todo) - len(left), desc="replies")
    default = JOBS[args.backend]
    with Workers(args.jobs, cluster=args.cluster, default=default) as workers, bar:
        results = workers.map(partial(answer, run), left)
        for case, found in zip(left, results, strict=True):
            journal.get([case.key], partial(dataclasses.asdict, found))
            bar.update()
    return {case: Answer.of_json(journal[[case.key]]) for case in todo}


def compare(
    pairs: Sequence[tuple[Case, Case]], answers: Mapping[Case, Answer], variant: str
) -> int:
    """Print a line for each scheme and variant; the number of replies that differ.

    ``pairs`` are speculative cases and the plain ones whose tokens theirs must be.
    """
    kinds: dict[tuple[str, str], list[tuple[Case, Case]]] = {}
    for pair in pairs:
        kinds.setdefault((pair[0].scheme, pair[0].variant), []).append(pair)
    lines, differing = [], 0
    for kind, some in kinds.items():
        places = {
            case: equal.first_difference(answers[case].tokens, answers[plain].tokens)
            for case, plain in some
        }
        wrong = {case: place for case, place in places.items() if place is not None}
        for case, place in wrong.items():
            print(f"differs at token {place}: {case}", file=sys.stderr)
        differing += len(wrong)
        found = [answers[case] for case, _ in some]
        tokens = sum(len(each.tokens) for each in found)
        drafted, accepted, copied = (
            sum(getattr(each, name) for each in found) for name in ("drafted", "accepted", "copied")
        )
        same = f"{len(some) - len(wrong)}/{len(some)}"
        rate = f"{accepted / max(drafted, 1):.3f}"
        lines.append([*kind, str(len(some)), str(tokens), same, str(copied), rate])
    header = ["scheme", variant, "replies", "tokens", "identical", "copied", "accepted"]
    print(text_table(header, lines))
    return differing


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.lab.soak", description=__doc__)
    flags.add_choice(parser, "backend", list(BACKENDS), "backend that replies", "torch")
    flags.add_folder(parser, "out", "folder for models and replies", "build/soak")
    flags.add_count(parser, "prompts", "use the first N bundled prompts", 64)
    flags.add_count(parser, "max-tokens", "length limit of each reply", 128)
    flags.add_jobs(parser, "worker processes")
    flags.add_cluster(parser)
    flags.add_count(parser, "threads", "threads of each process")
    flags.add_file(parser, "table", "n-gram table from `casspec bake-table` (native backend)")
    schemes = list(RECIPES)
    flags.add_some(parser, "schemes", "schemes to test (default: all)", schemes, schemes)
    return parser


def _run(args: argparse.Namespace) -> int:
    known = len(bundled_prompts())
    if args.prompts > known:
        raise CassandraError(f"prompts must be from 1 to {known}, not {args.prompts}")
    if args.table is not None and args.backend == "torch":
        raise CassandraError("table must be left out with torch, not " + repr(str(args.table)))
    pairs = list(BACKENDS[args.backend].pairs(args.schemes, args.prompts))
    todo = list(with_plain(pairs))
    args.out, args.table = args.out.absolute(), args.table and args.table.absolute()
    args.out.mkdir(parents=True, exist_ok=True)
    _pack(args.out, list(dict.fromkeys(case.scheme for case in todo)), args.cluster)
    return equal.report(compare(pairs, _answer_all(args, todo), VARIANTS[args.backend]))


def main(argv: Sequence[str] | None = None) -> int:
    """0 if all replies are those of plain decoding, 1 if not, 2 for bad input."""
    return run_command(_parser, _run, argv)


if __name__ == "__main__":
    sys.exit(main())
