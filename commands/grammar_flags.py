"""Add the flags of structured output."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cassandra_spec.golden import CassandraError
from cassandra_spec.toolkit import flags

if TYPE_CHECKING:
    from cassandra_spec.drafting import Settings
    from cassandra_spec.model.backends import CheckedBackend
    from cassandra_spec.text.grammar import GrammarText

_GRAMMARS: dict[str, Literal["lark", "gbnf"]] = {".lark": "lark", ".gbnf": "gbnf"}


def add_grammar(parser: argparse.ArgumentParser) -> None:
    """Add the flags; a command line may have one of them."""
    group = parser.add_argument_group("structured output (docs/software/serving.md)")
    flags.add_file(group, "json-schema", "restrict replies to JSON that matches the schema in FILE")
    flags.add_file(group, "grammar", "restrict replies to the grammar in FILE (.lark or .gbnf)")
    text = "restrict replies to matches of this regular expression"
    group.add_argument("--regex", metavar="TEXT", help=text)


def grammar_of(args: argparse.Namespace) -> GrammarText | None:
    """Return the grammar that the flags ask for, as text."""
    from cassandra_spec.text.grammar import GrammarText

    given = [name for name in ("json_schema", "grammar", "regex") if getattr(args, name, None)]
    if len(given) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise CassandraError(f"one of {names} must be given, not both")
    if not given:
        return None
    if given == ["regex"]:
        return GrammarText(syntax="regex", text=args.regex)
    path: Path = getattr(args, given[0])
    if given == ["json_schema"]:
        return GrammarText(syntax="json_schema", text=_without_notes(_read(path), path))
    if path.suffix not in _GRAMMARS:
        raise CassandraError(f"--grammar must be a file NAME.lark or NAME.gbnf, not {path.name}")
    return GrammarText(syntax=_GRAMMARS[path.suffix], text=_read(path))


def with_grammar(settings: Settings, text: GrammarText | None, backend: CheckedBackend) -> Settings:
    """Add a grammar to the settings. Raises :class:`CassandraError`."""
    from cassandra_spec.text.grammar import GrammarCompiler

    if text is None:
        return settings
    grammar = GrammarCompiler(backend.tokenizer, backend.stop_tokens()).compile(text)
    return dataclasses.replace(settings, processors=(*settings.processors, grammar))


def _without_notes(text: str, path: Path) -> str:
    """Return a schema without its notes; keywords that a grammar cannot enforce stay in it."""
    from cassandra_spec.text.grammar import prepare

    try:
        prepared = prepare(json.loads(text), str(path))
    except (ValueError, RecursionError):
        return text  # which the compiler refuses
    return text if prepared.checked else json.dumps(prepared.grammar)


def _read(path: Path) -> str:
    from cassandra_spec.text.grammar import MAX_BYTES

    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CassandraError(f"{path} must be text in UTF-8 ({error})") from error
