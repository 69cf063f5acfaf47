"""Tokens per verification under a schema, with and without the tokens that it makes certain."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.drafting import (
    GRAMMAR,
    Counters,
    DraftKind,
    Levels,
    Settings,
    encode_prompt,
)
from cassandra_spec.drafting.settings import BEST_MARGIN
from cassandra_spec.lab.drafts.extractions import EXTRACTIONS, Extraction
from cassandra_spec.model.backends import BACKENDS, CheckedBackend, Opening
from cassandra_spec.text.grammar import Grammar, GrammarCompiler, GrammarText
from cassandra_spec.toolkit.tables import text_table

GAMMA = 7
"""Draft length, fixed so that counts do not depend on times."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Way:
    """One way to decode the replies."""

    draft: DraftKind  # none: plainly
    schema: bool = True  # whether replies are under their schemas
    grammar: bool = False  # whether tokens that the schema determines are drafted


WAYS = (
    Way(draft="none"),
    Way(draft="lookup"),
    Way(draft="lookup", grammar=True),
    Way(draft="hybrid"),
    Way(draft="hybrid", grammar=True),
    Way(draft="hybrid", schema=False),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """The results of one draft source over all prompts."""

    way: Way
    tokens: int  # of the replies, without the first of each, which is the prompt's
    verifications: int
    draft_passes: int
    certain: int  # accepted tokens that the grammar drafted
    valid: int  # replies that are JSON with the fields of the schema
    same: int  # replies that are those of plain decoding under the schema

    @property
    def rate(self) -> float:
        """Tokens per verification."""
        return self.tokens / self.verifications


def measure(
    packed: Path,
    *,
    backend: str,
    threads: int | None,
    max_tokens: int,
    say: Callable[[str], object],
) -> list[Figures]:
    """Decode the replies to all prompts in each way."""
    whole = Settings(gamma=GAMMA, draft="hybrid", min_margin=BEST_MARGIN, max_tokens=max_tokens)
    with BACKENDS[backend](packed, Opening(threads=threads), whole) as opened:
        whole = dataclasses.replace(whole, stop_tokens=opened.stop_tokens())
        compiler = GrammarCompiler(opened.tokenizer, opened.stop_tokens())
        grammars = [_compiled(compiler, each) for each in EXTRACTIONS]
        plain, found = list[list[int]](), list[Figures]()
        for way in WAYS:
            counters, asked = Counters(), _settings(way, whole)
            replies = _replies(opened, asked, grammars if way.schema else (), counters)
            plain = plain or replies
            found.append(_figures(way, counters, replies, plain, opened.tokenizer))
            say(f"{way.draft}: {found[-1].rate:.2f} tokens per verification")
    return found


def _compiled(compiler: GrammarCompiler, extraction: Extraction) -> Grammar:
    text = json.dumps(extraction.schema)
    return compiler.compile(GrammarText(syntax="json_schema", text=text))


def _settings(way: Way, whole: Settings) -> Settings:
    if way.draft == "none":
        return dataclasses.replace(whole, gamma=0)
    return dataclasses.replace(whole, draft=way.draft, levels=Levels(grammar=way.grammar))


def _replies(
    backend: CheckedBackend, settings: Settings, grammars: Sequence[Grammar], counters: Counters
) -> list[list[int]]:
    found = []
    for each, grammar in itertools.zip_longest(EXTRACTIONS, grammars):
        processors = (grammar,) if grammar else ()
        asked = dataclasses.replace(settings, processors=processors)
        prompt = encode_prompt(backend.tokenizer, each.prompt)
        found.append(list(itertools.chain(*backend.rounds(prompt, asked, counters))))
    return found


def _figures(
    way: Way,
    counters: Counters,
    replies: Sequence[Sequence[int]],
    plain: Sequence[Sequence[int]],
    tokenizer: Any,
) -> Figures:
    texts = [tokenizer.decode(tokens, skip_special_tokens=True) for tokens in replies]
    certain = counters.sources.get(GRAMMAR)
    return Figures(
        way=way,
        tokens=counters.tokens,
        verifications=counters.rounds,
        draft_passes=counters.passes,
        certain=certain.accepted if certain else 0,
        valid=sum(_is_valid(*each) for each in zip(EXTRACTIONS, texts, strict=True)),
        same=sum(one == other for one, other in zip(replies, plain, strict=True)),
    )


def _is_valid(extraction: Extraction, text: str) -> bool:
    try:
        body = json.loads(text)
    except ValueError:
        return False
    return isinstance(body, dict) and list(body) == list(extraction.fields)


def lines(found: Sequence[Figures]) -> str:
    """Return a table with a row for each way."""
    rows = [
        (
            "yes" if each.way.schema else "no",
            each.way.draft,
            "yes" if each.way.grammar else "no",
            str(each.tokens),
            str(each.verifications),
            str(each.draft_passes),
            str(each.certain),
            f"{each.rate:.2f}",
            str(each.valid),
            str(each.same),
        )
        for each in found
    ]
    head = ("schema", "drafts", "certain text", "tokens", "verifications", "draft passes")
    return text_table(
        (*head, "certain tokens", "tokens per verification", "valid", "as plain"), rows
    )
