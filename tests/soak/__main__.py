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
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path

import torch
from tqdm import tqdm

from casspec.table import table
from golden import CassandraError, Format
from model.calibration import cache_directory, load_or_calibrate
from model.output import write_file
from model.packing import Recipe, pack_model
from model.sources import BUNDLED, open_source
from model.speculative import CassandraForCausalLM, KeyValueFormat, Settings, Tally, decode
from model.study.prompts import bundled_prompts

GAMMAS = range(1, 9)
RECIPES = {
    "unary": Recipe(format=Format(scheme="unary", truncated=4), prune=0.4),
    "exact": Recipe(
        format=Format(scheme="exact", group=64, truncated=4, fill="midpoint"),
        group_exponents="weighted",
    ),
    "mx": Recipe(format=Format(scheme="mx", truncated=4, fill="midpoint")),
}
KV = KeyValueFormat(format=Format(scheme="unary", truncated=4, fill="midpoint"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One reply: gamma 0 is plain decoding."""

    scheme: str
    kv: bool
    gamma: int
    prompt: int  # number

    @property
    def key(self) -> str:
        """For the file of replies."""
        return f"{self.scheme} {'kv' if self.kv else 'bf16'} {self.gamma} {self.prompt}"

    @property
    def plain(self) -> Case:
        """What the reply must be equal to; lossless schemes share theirs."""
        scheme = "mx" if self.scheme == "mx" else "exact"
        return Case(scheme=scheme, kv=False, gamma=0, prompt=self.prompt)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """The tokens of a reply, and how many of the drafted ones were accepted."""

    tokens: tuple[int, ...]
    accepted: int
    drafted: int


def cases(schemes: Sequence[str], prompts: int) -> Iterator[Case]:
    """Plain replies first; gamma goes from 1 to 8 over the prompts."""
    speculative = [
        Case(scheme=scheme, kv=kv, gamma=GAMMAS[prompt % len(GAMMAS)], prompt=prompt)
        for scheme in schemes
        for kv in ((False,) if scheme == "mx" else (False, True))
        for prompt in range(prompts)
    ]
    yield from dict.fromkeys(case.plain for case in speculative)
    yield from speculative


@cache
def _model(folder: Path, scheme: str) -> CassandraForCausalLM:
    return CassandraForCausalLM.from_pretrained(folder / scheme)


def answer(folder: Path, case: Case, max_tokens: int) -> Answer:
    """Decode one reply, on one thread."""
    torch.set_num_threads(1)
    lm = _model(folder, case.scheme)
    prompt = lm.encode_prompt(bundled_prompts()[case.prompt].text)
    settings = Settings(gamma=case.gamma, max_tokens=max_tokens, stop_tokens=lm.stop_tokens())
    session = lm.session(len(prompt) + max_tokens, kv=KV if case.kv else None)
    tally = Tally()
    tokens = [token for settled in decode(session, prompt, settings, tally) for token in settled]
    return Answer(tokens=tuple(tokens), accepted=tally.accepted, drafted=tally.drafted)


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
    found = hashlib.sha256(Path(__file__).read_bytes())
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
    context = multiprocessing.get_context("spawn")
    bar = tqdm(total=len(todo), initial=len(todo) - len(left), desc="replies")
    with ProcessPoolExecutor(jobs, context) as pool, bar:
        waiting = {pool.submit(answer, folder, case, tokens): case for case in left}
        try:
            for done in as_completed(waiting):
                answers.add(waiting[done], done.result())
                bar.update()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


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
    print(table(["scheme", "KV", "prompts", "tokens", "identical", "accepted"], lines))
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
