"""Structured output: grammars that a reply must match, compiled by llguidance."""

from cassandra_spec.text.grammar.compiler import (
    JSON_STYLE,
    MAX_BYTES,
    Grammar,
    GrammarCompiler,
    GrammarText,
    Syntax,
)
from cassandra_spec.text.grammar.schema import Prepared, locate, mismatch, prepare
from cassandra_spec.text.grammar.state import GrammarState

__all__ = [
    "JSON_STYLE",
    "MAX_BYTES",
    "Grammar",
    "GrammarCompiler",
    "GrammarState",
    "GrammarText",
    "Prepared",
    "Syntax",
    "locate",
    "mismatch",
    "prepare",
]
