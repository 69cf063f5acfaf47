"""Prepare a benchmark of decoding before contenders take turns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cassandra_spec.bench.decode.prompts import encode_after, in_rounds
from cassandra_spec.bench.decode.results import Summary, Turns, summaries
from cassandra_spec.bench.decode.run import DEQUANTISED, Bench
from cassandra_spec.bench.study.prompts import bundled_prompts
from cassandra_spec.drafting import encode_prompt, stop_tokens
from cassandra_spec.model.packing.calibration import HELD_OUT, Norms, read_text
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.model.weights.sources import Source, fingerprint

_PROMPTS_ROOM = 512  # positions for prompts that have no context before them


def prepare(
    bench: Bench,
    source: Source,
    norms: Norms,
    *,
    rounds: int,
    prompts: int | None,
    context: int | None,
) -> Bench:
    """Prepare a benchmark: prompts, stop tokens and the number of positions.

    Packs the first model; its tokenizer encodes the first ``prompts`` bundled prompts, each after
    text that fills it up to ``context`` tokens.

    Raises:
        CassandraError: there are not enough prompts, or the text is too short.
    """
    bench.folder.mkdir(parents=True, exist_ok=True)
    packed = bench.packed("exact-4", DEQUANTISED, source, norms)
    tokenizer: Any = load_tokenizer(packed)
    texts = [prompt.text for prompt in bundled_prompts("bench")][:prompts]
    filler = read_text(None, HELD_OUT) if context else ""
    encoded = [
        encode_after(tokenizer, text, filler, context)
        if context
        else encode_prompt(tokenizer, text)
        for text in texts
    ]
    return dataclasses.replace(
        bench,
        slow_tokens=min(bench.slow_tokens, bench.max_tokens),
        context=(context or _PROMPTS_ROOM) + bench.max_tokens,
        rounds=in_rounds(encoded, rounds),
        stops=sorted(stop_tokens(tokenizer, packed)),
    )


def open_turns(bench: Bench, source: Source, name: Path = Path("turns.jsonl")) -> Turns:
    """Open the turns of a file in the folder, with the same model, prompts, settings and checkout.

    Raises:
        CassandraError: those that are there are of other ones.
    """
    names = ("rounds", "stops", "max_tokens", "slow_tokens", "threads", "context")
    about = {"model": fingerprint(source), **{name: getattr(bench, name) for name in names}}
    checkouts = {str(each.checkout) for each in bench.contenders if each.checkout}
    if checkouts:
        about["beside"] = sorted(checkouts)
    return Turns(bench.folder / name, about)


def measure_all(
    bench: Bench, sources: Mapping[str, Source], norms: Norms, turns: Turns
) -> list[Summary]:
    """Run the turns of all contenders with each source, by kind of weights; return summaries."""
    for kind, source in sources.items():
        bench.run(kind, source, norms, turns)
    names = {each.name for each in bench.contenders}
    some = [turn for turn in turns if turn.weights in sources and turn.contender in names]
    return summaries(some, bench.contenders)
