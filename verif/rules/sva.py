"""Rewrite concurrent assertions of SystemVerilog as immediate ones, which Yosys reads.

The rules of SVA-AXI4-FVIP are implications: ``A |-> B``, ``A |-> ##1 B``, or ``B`` alone, with
``disable iff``, often as a named property of a package. Each becomes one clocked ``assert`` or
``assume`` of the same name. Anything else is an error, so no rule is lost; only rules with a time
limit (``##[1:n]``) are left out, by name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

from cassandra_spec.golden.errors import CassandraError

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_STRING = re.compile(r'"[^"\n]*"')
_PROPERTY = re.compile(
    r"\bproperty\s+(?P<name>\w+)\s*(?:\((?P<arguments>[^)]*)\))?\s*;(?P<body>.*?);?\s*endproperty\b"
    r"(?:\s*:\s*\w+)?",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"(?P<name>\w+)\s*:\s*(?P<kind>assert|assume)\s+property\s*\(")
_ACTION = re.compile(r"\s*else\s*\$error\s*\(")
_CLOCKING = re.compile(r"default\s+clocking\s+\w+\s+@\(posedge\s+(\w+)\)\s*;\s*endclocking")
_DISABLE = re.compile(r"disable\s+iff\s*\(")
_TEMPORAL = re.compile(r"##|\|=>|\|->|\[\*|\bs_\w+|\bthroughout\b|\buntil\b")
_STARTED = "started__"  # 0 in the first cycle, in which $past means nothing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Property:
    """A named property: its arguments, and its text."""

    arguments: tuple[str, ...]
    body: str

    def called(self, values: Sequence[str]) -> str:
        """Return the text with values in place of the arguments."""
        given = dict(zip(self.arguments, map(_grouped, values), strict=True))
        return re.sub(r"\w+", lambda word: given.get(word[0], word[0]), self.body)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rewritten:
    """A source whose assertions are immediate; the names of all, and of those left out."""

    text: str
    rules: tuple[str, ...]
    left_out: tuple[str, ...]


def properties_of(sources: Iterable[str]) -> dict[str, Property]:
    """Return the named properties of sources."""
    found = (match for text in sources for match in _PROPERTY.finditer(_plain(text)))
    return {
        match["name"]: Property(
            arguments=tuple(_split(match["arguments"] or "")),
            body=" ".join(match["body"].split()),
        )
        for match in found
    }


def without_properties(text: str) -> str:
    """Return a source without its named properties."""
    return _PROPERTY.sub("", _plain(text))


def rewrite(text: str, properties: Mapping[str, Property]) -> Rewritten:
    """Rewrite the assertions and assumptions of a module.

    Raises CassandraError for one that this module does not understand.
    """
    text = _plain(text)
    clock = _CLOCKING.search(text)
    matches = list(_DIRECTIVE.finditer(text))
    if clock is None:
        raise CassandraError("rules must have a default clocking, and this module has none")
    parts, at, left_out = list[str](), 0, list[str]()
    for match in matches:
        end = _closing(text, match.end())
        statement = _immediate(match, text[match.end() : end], properties, clock[1])
        left_out += [] if statement else [match["name"]]
        parts += [text[at : match.start()], statement or ";"]
        at = _after_action(text, end + 1)
    whole = "".join([*parts, text[at:]])
    start = f"reg {_STARTED} = 0; always @(posedge {clock[1]}) {_STARTED} <= 1;"
    return Rewritten(
        text=_CLOCKING.sub(start, whole),
        rules=tuple(match["name"] for match in matches),
        left_out=tuple(left_out),
    )


def _immediate(
    match: re.Match[str], body: str, properties: Mapping[str, Property], clock: str
) -> str:
    """Return the immediate form of one assertion, or an empty text if it has a time limit."""
    name, kind = match["name"], match["kind"]
    enabled, body = _enabled(body)
    body = _inner(_called(_inner(body), properties)).replace("$isunknown(", "(1'b0 & ")
    before, arrow, after = body.partition("|->")
    before, after = (before.strip(), _inner(after)) if arrow else ("1'b1", body)
    if after.startswith("##["):
        return ""
    condition = f"{enabled} && ({before})"
    if after.startswith("##1"):
        condition = f"{_STARTED} && {enabled} && $past({condition})"
        after = after.removeprefix("##1")
    if _TEMPORAL.search(f"{before} {after}"):
        raise CassandraError(f"rule must be an implication over one cycle, not {body!r} ({name})")
    after = re.sub(r"^\s*not\b", "!", after)
    return f"always @(posedge {clock}) if ({condition}) {name}: {kind} ({after.strip()});"


def _enabled(body: str) -> tuple[str, str]:
    """Return when a rule is enabled, and the rest of it."""
    body = body.strip()
    match = _DISABLE.match(body)
    if match is None:
        return "1'b1", body
    end = _closing(body, match.end())
    return f"!({body[match.end() : end]})", body[end + 1 :].strip()


def _called(body: str, properties: Mapping[str, Property]) -> str:
    """Return the text of a named property that is called, else the text itself."""
    match = re.fullmatch(r"(\w+)\s*\((.*)\)", body, re.DOTALL)
    if match is None or match[1] not in properties:
        return body
    return properties[match[1]].called(_split(match[2]))


def _after_action(text: str, at: int) -> int:
    """Return the place behind ``else $error(...);``, or behind the semicolon alone."""
    match = _ACTION.match(text, at)
    return text.index(";", _closing(text, match.end()) if match else at) + 1


def _plain(text: str) -> str:
    """Return a source without comments and without the contents of strings."""
    return _STRING.sub('""', _COMMENT.sub(" ", text))


def _grouped(text: str) -> str:
    return text if re.fullmatch(r"[\w.]+", text) else f"({text})"


def _inner(text: str) -> str:
    """Return a text without the parentheses around all of it."""
    text = text.strip()
    while text.startswith("(") and _closing(text, 1) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _split(text: str) -> list[str]:
    """Split at the commas that are outside brackets."""
    parts, depth, last = list[str](), 0, 0
    for place, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append(text[last:place])
            last = place + 1
    return [part.strip() for part in (*parts, text[last:]) if part.strip()]


def _closing(text: str, start: int) -> int:
    """Return the place of the parenthesis that closes one before ``start``."""
    depth = 1
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if not depth:
            return place
    raise CassandraError("rules must close every parenthesis, and a module does not")
