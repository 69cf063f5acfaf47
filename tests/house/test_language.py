"""Check docstrings, comments and help texts against a list of phrases that are out.

``python -m tests.house.test_language FOLDER...`` lists and counts the findings in any folders.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
CLEAN = (  # The list only grows.
    *("api", "bench", "commands", "drafting", "drivers", "examples", "golden", "lab", "model"),
    *("native", "rtl", "serve", "synth", "tests", "text", "toolkit", "verif"),
)

PHRASES = {
    "of which": r"\bof which\b",
    "so many": r"\bso (?:many|much|few)(?! \w+ that)\b",
    "some that": r"\bsome that\b",
    "what ... says": r"\bwhat [^.;:]{0,40}\bsays?\b",
    "there is none": r"\bthere (?:is|are|was|were) (?:none|no one|nothing)\b",
    "or nobody": r"\b(?:or )?nobody\b",
    "or none": r", or (?-i:none)\b|\bnone of it\b",
    "that which": r"\bthat which\b|\bthose which\b",
    "all that there is": r"\ball (?:that )?there (?:is|are)\b",
    "came about": r"\bc[ao]mes? about\b",
    "became of": r"\bbec[ao]mes? of\b",
    "go through": r"\b(?:go|goes|going|went) through\b",
    "go on": r"\b(?:go|goes|going|went) on\b",
    "is no part": r"\bno part of\b",
    "the most X of": r"\bthe (?:most|least) \w+ (?:of|that)\b",
    "by itself": r"\bof its own accord\b|\blies for itself\b",
    "diary": r"\b(?:of today|today's|as of now|since then|nowadays|the day before)\b",
    "say that": r"^Say (?:that|what|whether|how)\b",
    "let be": r"^Let (?:a|the|an|its?)\b.*\bbe\b",
    "said to": r"\bas (?:is|was) said\b|\bsaid (?:above|before)\b",
}
NOT_FIRST = re.compile(  # Such a sentence hangs on another one or lacks its noun
    r"(?:What|Whether|How|Of|Those|That|Which|Who|Why|Likewise|Everything|Nothing|Something|"
    r"The same|The ones?|One of)\b"
)
NOT_FIRST_IN_DOCSTRING = re.compile(r"(?:As|So|When|Where|Such)\b")
NOT_A_VERB = re.compile(
    r"(?:The|A|An|All|Any|Each|Every|Both|Either|Neither|No|Its|Their|This|These|It|They|One|Two|Three|Four|"
    r"If|For|From|To|In|Into|On|At|By|With|Without|After|Before|Until|Only|Also|Not|Now|True|False)\b"
    r"|[A-Za-z]*[a-rt-z]s\b"  # A plural, or the third person
)


@dataclass(frozen=True, kw_only=True)
class Text:
    """A docstring, a comment or a help text, with its place and kind."""

    file: str
    line: int
    kind: str  # "function", "test", "property", "class", "module", "attribute", "comment", "help"
    text: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A phrase that is out, with the text that holds it."""

    rule: str
    text: Text

    def __str__(self) -> str:
        start = self.text.text.splitlines()[0][:100]
        return f"{self.text.file}:{self.text.line}: {self.rule}: {start}"


def _docstrings(file: str, tree: ast.Module) -> Iterator[Text]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node)
        if text:
            yield Text(file=file, line=node.body[0].lineno, kind=_kind(node), text=text)


def _attributes(file: str, tree: ast.Module) -> Iterator[Text]:
    """Yield the docstrings of constants and attributes: strings after an assignment."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for before, after in itertools.pairwise(body if isinstance(body, list) else []):
            match before, after:
                case ast.Assign() | ast.AnnAssign(), ast.Expr(value=ast.Constant(value=str(text))):
                    yield Text(file=file, line=after.lineno, kind="attribute", text=text)


def _kind(node: ast.AST) -> str:
    if isinstance(node, ast.Module):
        return "module"
    name, returns = getattr(node, "name", ""), getattr(node, "returns", None)
    if isinstance(node, ast.ClassDef) or (returns and ast.unparse(returns).endswith("Layout")):
        return "class"  # A function that returns a layout is named and described like a class
    decorators = {ast.unparse(name) for name in getattr(node, "decorator_list", [])}
    if name.startswith("test_") or any(name.startswith("cocotb.test") for name in decorators):
        return "test"  # Its docstring may state the behaviour: "A reset empties the queue."
    noun = decorators & {"property", "cached_property", "functools.cached_property"}
    return "property" if noun else "function"


def _helps(file: str, tree: ast.Module) -> Iterator[Text]:
    """Yield the strings given as ``help``, ``description`` or ``epilog``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in ("help", "description", "epilog"):
            parts = [
                part.value
                for part in ast.walk(node.value)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
            if parts:
                yield Text(file=file, line=node.value.lineno, kind="help", text="".join(parts))


def _joined(file: str, comments: list[tuple[int, int, str]]) -> Iterator[Text]:
    """Join the comments of consecutive lines that begin in one column."""
    block: list[tuple[int, int, str]] = []
    for comment in comments:
        if block and comment[:2] != (block[-1][0] + 1, block[-1][1]):
            yield _comment(file, block)
            block = []
        block.append(comment)
    if block:
        yield _comment(file, block)


def _comment(file: str, block: list[tuple[int, int, str]]) -> Text:
    text = " ".join(words.strip(" /*#!<") for _, _, words in block)
    return Text(file=file, line=block[0][0], kind="comment", text=text)


def python_texts(file: str, source: str) -> list[Text]:
    """Return the docstrings, help texts and comments of Python code."""
    tree = ast.parse(source)
    comments = [
        (token.start[0], token.start[1], token.string)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    documented = [*_docstrings(file, tree), *_attributes(file, tree)]
    return [*documented, *_helps(file, tree), *_joined(file, comments)]


def cpp_texts(file: str, source: str) -> list[Text]:
    """Return the comments of C++ code; a ``//`` inside a string literal is none."""
    comments = []
    for line, code in enumerate(source.splitlines(), start=1):
        bare = re.sub(r'"(?:\\.|[^"\\])*"', lambda quoted: "_" * len(quoted[0]), code)
        at = min((found for mark in ("//", "/*") if (found := bare.find(mark)) >= 0), default=-1)
        if at >= 0:
            comments.append((line, at, code[at:]))
    return list(_joined(file, comments))


def findings(text: Text) -> list[Finding]:
    """Return the phrases of a text that are out."""
    words = " ".join(text.text.split())
    rules = [name for name, pattern in PHRASES.items() if re.search(pattern, words, re.I)]
    docstring = text.kind not in ("comment", "help")
    if NOT_FIRST.match(words) or (docstring and NOT_FIRST_IN_DOCSTRING.match(words)):
        rules.append("begins without its noun")
    elif text.kind == "function" and NOT_A_VERB.match(words):
        rules.append("begins without a verb")
    return [Finding(rule=rule, text=text) for rule in rules]


def folder_findings(folder: str) -> list[Finding]:
    """Return the findings of all Python and C++ files in a folder, or of one file."""
    path = REPO / folder
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    readers = {".py": python_texts, ".cpp": cpp_texts, ".h": cpp_texts}
    texts = [
        text
        for file in files
        if file.suffix in readers
        for text in readers[file.suffix](str(file.relative_to(REPO)), file.read_text())
    ]
    return [finding for text in texts for finding in findings(text)]


def report(folder: str, found: list[Finding]) -> str:
    """Return the findings of a folder, one a line, with their counts by rule at the end."""
    counts = Counter(finding.rule for finding in found).most_common()
    total = ", ".join(f"{rule} {count}" for rule, count in counts)
    return "\n".join([*map(str, found), f"{folder}: {len(found)} findings. {total}"])


@pytest.mark.parametrize("folder", CLEAN)
def test_clean_folders_stay_clean(folder: str) -> None:
    assert (REPO / folder).exists()
    found = folder_findings(folder)
    assert not found, report(folder, found)


@pytest.mark.parametrize(
    ("source", "rules"),
    [
        ('def f():\n    """Of rounds whose tokens are accepted."""', ["begins without its noun"]),
        ('def f():\n    """The figures now."""', ["begins without a verb"]),
        ('def f():\n    """Tokens of prompts a second."""', ["begins without a verb"]),
        ('def f():\n    """Return prompt tokens per second."""', []),
        ('def f():\n    """Pass the tokens."""', []),
        ('@property\ndef f():\n    """The figures."""', []),
        ('@cocotb.test()\nasync def f(d):\n    """Each fault is reported."""', []),
        ('@cocotb.test()\nasync def f(d):\n    """Of each fault."""', ["begins without its noun"]),
        ('def f() -> data.StructLayout:\n    """A beat of the bus."""', []),
        ('class C:\n    """What is to be estimated."""', ["begins without its noun"]),
        ('MOST = 8\n"""What is planned."""', ["begins without its noun"]),
        ("# Rows, some of which\n# are final", ["of which"]),
        ("# Rows, some\nx = '# of which'", []),
        ("p.add(help='who drafts: the model, ' 'or nobody')", ["or nobody"]),
        ("p.add(help=f'tokens {n} that what it says')", ["what ... says"]),
    ],
)
def test_python_findings(source: str, rules: list[str]) -> None:
    texts = python_texts("f.py", source + "\n")
    assert [finding.rule for text in texts for finding in findings(text)] == rules


@pytest.mark.parametrize(
    ("source", "rules"),
    [
        ("int x;  // Those of kept values.", ["begins without its noun"]),
        ("// What there was: zeros.\nint x;", ["begins without its noun"]),
        ("// Rows, if there\n// are none.", ["there is none"]),
        ('const char* x = "// of which";', []),
        ("// Decode the exponents of kept values from the unary codes.", []),
    ],
)
def test_cpp_findings(source: str, rules: list[str]) -> None:
    texts = cpp_texts("f.h", source)
    assert [finding.rule for text in texts for finding in findings(text)] == rules


if __name__ == "__main__":
    for name in sys.argv[1:] or CLEAN:
        print(report(name, folder_findings(name)))
