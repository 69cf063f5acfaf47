"""``make soak``: speculative replies against plain ones, token by token, on many prompts.

SmolLM2 is packed in each scheme; the prompts that come with the project are answered greedily by
plain decoding and speculatively with gamma 1 to 8 in turn, with keys and values in BF16 and in the
format. Schemes unary and exact must all give the same replies, those of the model itself; mx rounds
its weights and must give those of its own plain decoding. What was answered is kept, so that a run
that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tqdm import tqdm

from cassandra_spec.golden import CassandraError
from cassandra_spec.model.output import write_file
from cassandra_spec.model.packing.calibration import cache_directory, load_or_calibrate
from cassandra_spec.model.packing.packer import pack_model
from cassandra_spec.model.parallel import Workers
from cassandra_spec.model.study.prompts import bundled_prompts
from cassandra_spec.model.weights.sources import BUNDLED, open_source
from cassandra_spec.report.tables import text_table
from tests.soak.replies import RECIPES, Answer, Case, answer, cases


class Answers:
    """Answers by case, kept in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        stored = json.loads(path.read_text()) if path.exists() else {}
        self._found = {
            key: Answer(**{**body, "tokens": tuple(body["tokens"])}) for key, body in stored.items()
        }

    def __contains__(self, case: Case) -> bool:
        return case.key in self._found

    def __getitem__(self, case: Case) -> Answer:
        return self._found[case.key]

    def add(self, case: Case, found: Answer) -> None:
        """Keep an answer."""
        self._found[case.key] = found
        body = {key: dataclasses.asdict(each) for key, each in self._found.items()}
        write_file(self._path, json.dumps(body).encode())


def _version() -> str:
    """A hash of the code that answers: other code begins anew."""
    root = Path(__file__).parents[2]
    found = hashlib.sha256(Path(__file__).with_name("replies.py").read_bytes())
    for room in ("golden", "model"):
        for file in sorted((root / room).rglob("*.py")):
            found.update(file.read_bytes())
    return found.hexdigest()[:16]


def pack(folder: Path, schemes: Sequence[str]) -> None:
    """Pack the model in each scheme that is not there yet."""
    source = open_source(BUNDLED)
    for scheme in dict.fromkeys(case.scheme for case in cases(schemes, 1)):
        if not (folder / scheme).exists():
            norms = load_or_calibrate(source, cache=cache_directory(), progress=True)
            pack_model(source, folder / scheme, RECIPES[scheme], norms=norms, progress=True)


def run(folder: Path, todo: Sequence[Case], answers: Answers, *, jobs: int, tokens: int) -> None:
    """Answer what is not answered yet, in processes of one thread each."""
    left = [case for case in todo if case not in answers]
    bar = tqdm(total=len(todo), initial=len(todo) - len(left), desc="replies")
    with Workers(jobs) as workers, bar:
        results = workers.map(partial(answer, folder, max_tokens=tokens), left)
        for case, found in zip(left, results, strict=True):
            answers.add(case, found)
            bar.update()


def report(todo: Sequence[Case], answers: Answers) -> int:
    """Print a line for each kind of reply; the number of replies that differ from plain ones."""
    kinds: dict[tuple[str, bool], list[Case]] = {}
    for case in todo:
        if case.gamma:
            kinds.setdefault((case.scheme, case.kv), []).append(case)
    lines, differing = [], 0
    for (scheme, kv), some in kinds.items():
        same = sum(answers[case].tokens == answers[case.plain].tokens for case in some)
        differing += len(some) - same
        drafted = sum(answers[case].drafted for case in some)
        accepted = sum(answers[case].accepted for case in some)
        tokens = sum(len(answers[case].tokens) for case in some)
        where = "unary -4" if kv else "BF16"
        rate = f"{accepted / max(drafted, 1):.3f}"
        lines.append([scheme, where, str(len(some)), str(tokens), f"{same}/{len(some)}", rate])
    print(text_table(["scheme", "KV", "prompts", "tokens", "identical", "accepted"], lines))
    return differing


def main(argv: Sequence[str] | None = None) -> int:
    """0 if all replies are those of plain decoding."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/soak"))
    parser.add_argument("--prompts", type=int, default=64, help="of those that come along")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--schemes", nargs="+", choices=RECIPES, default=list(RECIPES))
    args = parser.parse_args(argv)
    known = len(bundled_prompts())
    if not 1 <= args.prompts <= known:
        raise CassandraError(f"prompts must be from 1 to {known}, not {args.prompts}")
    args.out.mkdir(parents=True, exist_ok=True)
    pack(args.out, args.schemes)
    answers = Answers(args.out / f"answers-{args.max_tokens}-{_version()}.json")
    todo = list(cases(args.schemes, args.prompts))
    run(args.out, todo, answers, jobs=args.jobs, tokens=args.max_tokens)
    differing = report(todo, answers)
    print(f"{'FAIL' if differing else 'PASS'}: {differing} replies differ from plain decoding")
    return 1 if differing else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CassandraError as error:
        sys.exit(f"soak: {error}")
