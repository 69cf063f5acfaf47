"""``make regression``: replies of the native engine, speculative against plain, token by token.

SmolLM2 is packed in each scheme. All prompts that come with the project are answered by plain
decoding and speculatively, with every gamma, every kind of draft, with and without a minimum
margin, in turn, and both forms of the target; some follow enough text that prompt and reply
fill 2,048 positions. Unary and exact must give the replies of one plain target, mx those of its
own.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from tqdm import tqdm

from cassandra_spec.bench.decode.prompts import encode_behind
from cassandra_spec.drafting import Counters, DraftKind, Settings, encode_prompt
from cassandra_spec.golden import CassandraError
from cassandra_spec.model.packing.packer import Recipe, pack_model
from cassandra_spec.model.study.prompts import bundled_prompts
from cassandra_spec.model.weights.sources import BUNDLED, open_source
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.engine_binding import MOST
from cassandra_spec.report.tables import text_table
from tests.soak.replies import RECIPES

POSITIONS = 2048
"""Most positions of prompt and reply."""

CONTEXTS: tuple[int | None, ...] = (None, None, 600, None, None, 1900)
"""Tokens of the prompts in turn; None: as it is."""

DRAFTS: tuple[DraftKind, ...] = ("model", "hybrid", "lookup")
TARGETS: tuple[Literal["bf16", "packed12"], ...] = ("bf16", "packed12")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ask:
    """How a prompt is answered."""

    prompt: int  # number
    context: int | None
    draft: DraftKind
    gamma: int | Literal["adaptive"]
    min_margin: float


def asks(prompts: int) -> Iterator[Ask]:
    """A speculative reply to each prompt; settings, drafts and contexts go round, out of step."""
    gammas: tuple[int | Literal["adaptive"], ...] = (*range(1, MOST + 1), "adaptive")
    for number in range(prompts):
        yield Ask(
            prompt=number,
            context=CONTEXTS[number % len(CONTEXTS)],
            draft=DRAFTS[(number + number // len(CONTEXTS)) % len(DRAFTS)],
            gamma=gammas[number % len(gammas)],
            min_margin=0.75 if number % 5 < 2 else 0.0,
        )


@dataclasses.dataclass(kw_only=True)
class Outcome:
    """What came of the replies of one engine."""

    replies: int = 0
    tokens: int = 0
    differing: list[Ask] = dataclasses.field(default_factory=list)
    counters: Counters = dataclasses.field(default_factory=Counters)


class Prompts:
    """The bundled prompts as tokens."""

    def __init__(self, folder: Path) -> None:
        from cassandra_spec import model
        from cassandra_spec.model.pretrained import load_tokenizer

        self._tokenizer = load_tokenizer(folder)
        data = Path(model.__file__).parent / "data"
        self._filler = (data / "heldout.txt").read_text(encoding="utf-8")
        self.stops = frozenset({int(self._tokenizer.eos_token_id)})

    def __call__(self, ask: Ask) -> list[int]:
        text = bundled_prompts()[ask.prompt].text
        if ask.context is None:
            return encode_prompt(self._tokenizer, text)
        return encode_behind(self._tokenizer, text, self._filler, ask.context)


Plain = dict[int, list[int]]
"""Plain replies by prompt."""


def reply(
    engine: Engine, prompt: Sequence[int], settings: Settings, counters: Counters
) -> list[int]:
    """The tokens of a reply."""
    return [token for emitted in engine.rounds(prompt, settings, counters) for token in emitted]


def compare(
    engine: Engine, prompts: Prompts, todo: Sequence[Ask], plain: Plain, max_tokens: int
) -> Outcome:
    """Answer by an engine, and hold it to plain replies; those that are missing are made by it."""
    found = Outcome()
    for ask in todo:
        prompt = prompts(ask)
        if ask.prompt not in plain:
            settings = Settings(draft="none", max_tokens=max_tokens, stop_tokens=prompts.stops)
            plain[ask.prompt] = reply(engine, prompt, settings, Counters())
        settings = Settings(
            draft=ask.draft,
            gamma=ask.gamma,
            min_margin=ask.min_margin,
            max_tokens=max_tokens,
            stop_tokens=prompts.stops,
        )
        tokens = reply(engine, prompt, settings, found.counters)
        found.replies += 1
        found.tokens += len(tokens)
        if tokens != plain[ask.prompt]:
            found.differing.append(ask)
    return found


def packed(folder: Path, scheme: str) -> Path:
    """A packed model, made if it is not there yet; chosen exponents need no calibration."""
    place = folder / f"engine-{scheme}"
    if not place.exists():
        recipe: Recipe = RECIPES[scheme].without_norms()
        pack_model(open_source(BUNDLED), place, recipe, progress=True)
    return place


def main(argv: Sequence[str] | None = None) -> int:
    """0 if all replies are those of plain decoding."""
    parser = argparse.ArgumentParser(prog="make regression", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/soak"))
    parser.add_argument("--prompts", type=int, default=60, help="of those that come along")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--schemes", nargs="+", choices=RECIPES, default=list(RECIPES))
    args = parser.parse_args(argv)
    known = len(bundled_prompts())
    if not 1 <= args.prompts <= known:
        raise CassandraError(f"prompts must be from 1 to {known}, not {args.prompts}")
    args.out.mkdir(parents=True, exist_ok=True)
    todo, lines, differing = list(asks(args.prompts)), [], 0
    lossless: dict[str, Plain] = {target: {} for target in TARGETS}  # each adds in its own order
    for scheme in args.schemes:
        for target in TARGETS:
            plain: Plain = {} if scheme == "mx" else lossless[target]
            place = packed(args.out, scheme)
            with Engine.from_packed(
                place, target=target, threads=args.threads, context=POSITIONS
            ) as engine:
                some = partial(compare, engine, Prompts(place), plain=plain)
                bar = tqdm(todo, desc=f"{scheme}, {target}")
                found = some(todo=bar, max_tokens=args.max_tokens)
            differing += len(found.differing)
            lines.append(_line(scheme, target, found))
            for ask in found.differing:
                print(f"{scheme}, {target}: differs: {ask}", file=sys.stderr)
    print(
        text_table(
            ["scheme", "target", "replies", "tokens", "identical", "copied", "accepted"], lines
        )
    )
    print(f"{'FAIL' if differing else 'PASS'}: {differing} replies differ from plain decoding")
    return 1 if differing else 0


def _line(scheme: str, target: str, found: Outcome) -> list[str]:
    same = found.replies - len(found.differing)
    rate = f"{found.counters.accepted / max(found.counters.drafted, 1):.3f}"
    copied = str(found.counters.copies.drafted)
    counts = [str(found.replies), str(found.tokens), f"{same}/{found.replies}"]
    return [scheme, target, *counts, copied, rate]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CassandraError as error:
        sys.exit(f"regression: {error}")
