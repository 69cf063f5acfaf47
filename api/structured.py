"""Read the grammar that a reply must match: a JSON schema, a grammar, a regular expression."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cassandra_spec.golden import CassandraError

if TYPE_CHECKING:
    from cassandra_spec.drafting import Backend, Settings
    from cassandra_spec.text.grammar import GrammarText

JsonSchema = Mapping[str, Any] | Path
Grammar = str | Path

_SYNTAXES: dict[str, Literal["lark", "gbnf"]] = {".lark": "lark", ".gbnf": "gbnf"}


def grammar_text(
    json_schema: JsonSchema | None = None, grammar: Grammar | None = None, regex: str | None = None
) -> GrammarText | None:
    """Return the grammar that one of the arguments describes, as text; None without arguments.

    A schema is a mapping or a file; a grammar is a text in Lark's syntax or a file NAME.lark or
    NAME.gbnf. Raises :class:`CassandraError`.
    """
    from cassandra_spec.text.grammar import GrammarText

    options = {"json_schema": json_schema, "grammar": grammar, "regex": regex}
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise CassandraError(f"one of {' and '.join(given)} must be given, not both")
    if json_schema is not None:
        return GrammarText(syntax="json_schema", text=_schema(json_schema))
    if regex is not None:
        return GrammarText(syntax="regex", text=regex)
    if isinstance(grammar, Path):
        if grammar.suffix not in _SYNTAXES:
            raise CassandraError(
                f"grammar must be a file NAME.lark or NAME.gbnf, not {grammar.name}"
            )
        return GrammarText(syntax=_SYNTAXES[grammar.suffix], text=_read(grammar))
    return None if grammar is None else GrammarText(syntax="lark", text=grammar)


def with_grammar(settings: Settings, text: GrammarText | None, backend: Backend) -> Settings:
    """Add a grammar to the settings of a backend's replies. Raises :class:`CassandraError`."""
    from cassandra_spec.text.grammar import GrammarCompiler

    if text is None:
        return settings
    grammar = GrammarCompiler(backend.tokenizer, backend.stop_tokens()).compile(text)
    return dataclasses.replace(settings, processors=(*settings.processors, grammar))


def _schema(schema: JsonSchema) -> str:
    """Return a schema without its notes; keywords that a grammar cannot enforce stay in it."""
    from cassandra_spec.text.grammar import prepare

    if isinstance(schema, Path):
        text, name = _read(schema), str(schema)
    else:
        text, name = _json(schema), "json_schema"
    try:
        prepared = prepare(json.loads(text), name)
    except (ValueError, RecursionError):
        return text  # which the compiler refuses
    return text if prepared.checked else json.dumps(prepared.grammar)


def _json(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise CassandraError(f"json_schema must be values of JSON ({error})") from error


def _read(path: Path) -> str:
    from cassandra_spec.text.grammar import MAX_BYTES

    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CassandraError(f"{path} must be text in UTF-8 ({error})") from error
