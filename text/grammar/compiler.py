"""Compile grammars from JSON Schemas, regular expressions, Lark and GBNF, within limits.

Grammar text comes from requests, so a child process compiles it first: llguidance bounds most of
its work, but a chain of rules can overflow its stack, and a number in a schema can take minutes.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import json
import threading
from collections.abc import Sequence
from typing import Any, Literal, get_args

from cassandra_spec.golden import CassandraError
from cassandra_spec.text.bounded import TextChild
from cassandra_spec.text.grammar.state import GrammarState, one_line

Syntax = Literal["json_schema", "regex", "lark", "gbnf"]

MAX_BYTES = 1 << 16
"""Maximum size of a grammar's text."""

SECONDS = 5.0
"""Maximum time to compile a grammar."""

_COMPILED_BYTES = 1 << 22
_STACK = 1 << 21  # bytes of stack for the child's compilation, a quarter of a thread's stack here
_KEPT = 32  # compiled grammars in the cache

JSON_STYLE: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""Spaces as in Python's ``json.dumps``: they are forced, so they cost no pass."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GrammarText:
    """Grammar source as the user wrote it. Raises :class:`CassandraError` if it is too long."""

    syntax: Syntax
    text: str

    def __post_init__(self) -> None:
        if self.syntax not in get_args(Syntax):
            known = ", ".join(get_args(Syntax))
            raise CassandraError(f"syntax must be one of {known}, not {self.syntax!r}")
        size = len(self.text.encode("utf-8", "surrogatepass"))
        if size > MAX_BYTES:
            raise CassandraError(f"{self.syntax} must have at most {MAX_BYTES} bytes, not {size}")


@dataclasses.dataclass(frozen=True, eq=False)
class Grammar:
    """Compiled grammar (:class:`cassandra_spec.drafting.Processor`)."""

    text: GrammarText
    matcher: Any  # an LLMatcher in its initial state
    tokens: Any  # the matcher's LLTokenizer

    def begin(self, prompt: Sequence[int]) -> GrammarState:
        """Return the state before the first token of a reply."""
        return GrammarState(self.matcher.deep_copy(), self.tokens)


class GrammarCompiler:
    """Compile grammars over one model's tokens. Thread-safe.

    A reply may end with one of ``stop_tokens`` where its text matches the grammar. ``tokenizer``
    has its ``backend_tokenizer`` of the package ``tokenizers``, which is converted when the first
    grammar is compiled.
    """

    def __init__(self, tokenizer: Any, stop_tokens: frozenset[int]) -> None:
        self._tokenizer, self._stop_tokens = tokenizer, stop_tokens
        self._lock = threading.Lock()
        self._child = TextChild("the grammar")
        self._tokens: Any = None
        self._known: collections.OrderedDict[GrammarText, Grammar] = collections.OrderedDict()

    def compile(self, text: GrammarText) -> Grammar:
        """Return the compiled grammar.

        Raises :class:`CassandraError` with the reason if it is malformed, matches no text or
        reaches a limit, or if llguidance cannot use the model's tokenizer or stop tokens.
        """
        with self._lock:
            if text not in self._known:
                self._known[text] = self._compiled(text)
            self._known.move_to_end(text)
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
            return self._known[text]

    def _compiled(self, text: GrammarText) -> Grammar:
        tokens = self._tokens = self._tokens or _read_tokens(self._tokenizer, self._stop_tokens)
        try:
            answer = self._child.text(
                lambda request: _try(tokens, *request),
                [text.syntax, text.text],
                seconds=SECONDS,
                size=_COMPILED_BYTES,
            )
        except CassandraError as error:
            limits = f"in {SECONDS:g} s and without a lack of memory"
            raise CassandraError(f"{text.syntax} must compile {limits}, and does not") from error
        compiled = json.loads(answer)
        if "error" in compiled:
            raise CassandraError(f"{text.syntax} must be a grammar to compile: {compiled['error']}")
        return Grammar(text, _matcher(tokens, compiled["grammar"]), tokens)


def _read_tokens(tokenizer: Any, stop_tokens: frozenset[int]) -> Any:
    """Convert a tokenizer to llguidance's form."""
    try:
        from llguidance import LLTokenizer
    except ModuleNotFoundError as error:
        package = "llguidance: pip install 'cassandra-spec[grammar]'"
        raise CassandraError(f"a grammar must have the package {package}") from error
    if not stop_tokens:
        raise CassandraError("a grammar must have a model with stop tokens, and this has none")
    try:
        backend = copy.deepcopy(tokenizer.backend_tokenizer)
        backend.no_padding()
        backend.no_truncation()
        return LLTokenizer(backend.to_str(), eos_token=sorted(stop_tokens))
    except Exception as error:
        why = one_line(str(error))
        raise CassandraError(
            f"a grammar must have a tokenizer that llguidance reads: {why}"
        ) from error


def _matcher(tokens: Any, grammar: str) -> Any:
    """Return the matcher of a grammar in llguidance's own syntax."""
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(verbose_errors=False)
    return LLMatcher(tokens, grammar, log_level=0, limits=limits)


# --- in the child -------------------------------------------------------------------------------


def _try(tokens: Any, syntax: Syntax, text: str) -> str:
    """Return the grammar in llguidance's syntax, or the reason it is invalid, as JSON."""
    results: list[dict[str, str]] = []
    threading.stack_size(_STACK)
    thread = threading.Thread(target=lambda: results.append(_checked(tokens, syntax, text)))
    thread.start()
    thread.join()
    return json.dumps(results[0])


def _checked(tokens: Any, syntax: Syntax, text: str) -> dict[str, str]:
    try:
        grammar = _native_form(syntax, text)
    except (ValueError, RecursionError) as error:
        return {"error": one_line(str(error))}
    matcher = _matcher(tokens, grammar)
    possible = not matcher.is_error() and any(matcher.compute_bitmask())
    if possible and not matcher.is_error():
        return {"grammar": grammar}
    why = one_line(matcher.get_error())
    return {"error": "no text matches it" if why.startswith("NoExtension") else why}


def _native_form(syntax: Syntax, text: str) -> str:
    from llguidance import LLMatcher, grammar_from

    if syntax == "json_schema":
        return str(LLMatcher.grammar_from_json_schema(text, defaults=JSON_STYLE))
    return str(grammar_from(syntax, text))
