"""README and docs: links lead somewhere, what they name exists, code runs."""

from __future__ import annotations

import argparse
import functools
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from cassandra_spec.commands.arguments import build_parser

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SOURCES = ("py", "cpp", "h", "v", "vlt", "toml", "txt", "json", "md")
_WRITTEN = re.compile(
    r"^<!-- ([\w ]+?)(?:: begin.*)? -->$(.*?)^<!-- (?:/\1|\1: end) -->$", re.M | re.S
)
LINKS = {link.name for link in (ROOT / "cassandra_spec").iterdir() if link.is_symlink()}
ROOMS = sorted(LINKS - {"model", "text"})  # these are also variables and fields in documents
FOLDERS = sorted(path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "build")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_lead_to_files(document: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", document.read_text(encoding="utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


def heading_anchor(heading: str) -> str:
    """Return the anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """Return anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return set(map(heading_anchor, headings))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_anchors_lead_to_headings(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?://)([^)#\s]*)#([^)\s]+)\)", text)
    pages = ((document.parent / file if file else document, anchor) for file, anchor in links)
    missing = [f"{page}#{anchor}" for page, anchor in pages if anchor not in anchors(page)]
    assert missing == []


def test_pages_that_sources_name_exist() -> None:
    """Docstrings, comments and help texts name pages by their path from the root."""
    suffixes = (".py", ".h", ".cpp", ".toml", "Makefile")
    texts = [ROOT / name for name in tracked_files() if name.endswith(suffixes)]
    named = {
        page
        for path in texts
        for page in re.findall(r"\bdocs/[\w/-]+\.(?:md|svg)", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert [page for page in sorted(named) if not (ROOT / page).is_file()] == []


@functools.cache
def tracked_files() -> list[str]:
    """Return the paths that git knows or would add."""
    listed = ["git", "ls-files", "-co", "--exclude-standard"]
    run = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in run.stdout.splitlines() if (ROOT / name).is_file()]


def code(document: Path) -> Iterator[str]:
    """Yield every piece of inline code and every line of an indented or fenced block."""
    text = document.read_text(encoding="utf-8")
    yield from re.findall(r"`([^`\n]+)`", text)
    yield from (line.strip() for line in text.splitlines() if line.startswith("    "))
    for block in re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL):
        yield from block.splitlines()


def missing_files(document: Path) -> Iterator[str]:
    """Yield paths that no file has; a path may leave out the folders in front."""
    known = tracked_files()
    for piece in code(document):
        if re.fullmatch(rf"[\w./-]+/[\w.-]+\.({'|'.join(SOURCES)})|[\w-]+\.(py|cpp|vlt)", piece):
            outside = piece.startswith(("build/", "PACKED/", "/", "~"))
            if not outside and not any(f"/{name}".endswith(f"/{piece}") for name in known):
                yield piece
        elif (folder := re.match(rf"({'|'.join(FOLDERS)})/[\w/-]*$", piece)) and not (
            ROOT / folder[0]
        ).exists():
            yield piece


def modules(document: Path) -> Iterator[str]:
    """Yield names in the package; code may leave out its name in front of a room's.

    The changelog has former names of these, and of options.
    """
    yield from re.findall(r"\bcassandra_spec\.[\w.]*\w", document.read_text(encoding="utf-8"))
    for piece in code(document) if document.name != "CHANGELOG.md" else ():
        for name in re.findall(rf"(?<![\w./-])(?:{'|'.join(ROOMS)})(?:\.\w+)+", piece):
            if not name.endswith(SOURCES):
                yield f"cassandra_spec.{name}"


def missing_modules(document: Path) -> Iterator[str]:
    """Yield modules, and names in them, that the package does not have."""
    for name in modules(document):
        place, rest = ROOT / "cassandra_spec", name.split(".")[1:]
        while rest and (place / rest[0]).is_dir():
            place /= rest.pop(0)
        if rest and (place / f"{rest[0]}.py").is_file():
            source = place / f"{rest.pop(0)}.py"
        else:
            source = place / "__init__.py"
        text = source.read_text(encoding="utf-8") if source.is_file() else ""
        if rest and not re.search(rf"\b{rest[0]}\b", text):
            yield name


def parser_of(words: list[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """Return the parser of the subcommand that these words name, and the words after it."""
    parser, rest = build_parser(), list(words)
    while True:
        actions = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        if not actions or not rest or rest[0] not in actions[0].choices:
            return parser, rest
        parser = actions[0].choices[rest.pop(0)].defined()


def wrong_commands(document: Path) -> Iterator[str]:
    """Yield subcommands and options of ``casspec`` that do not exist."""
    for piece in code(document):
        for call in re.findall(r"(?:^|[ /])casspec ([^#|;`]+)", piece):
            parser, rest = parser_of(call.split())
            options = {option for action in parser._actions for option in action.option_strings}
            given = set(re.findall(r"(?<!\S)--[a-z-]+", " ".join(rest)))
            nameless = parser.prog == "casspec" and rest and re.match("[a-z]", rest[0])
            if nameless or not given <= options:
                yield f"casspec {call}"


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the options of a parser and of its subcommands."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from options(subparser.defined())


@functools.cache
def known_options() -> set[str]:
    """Return the options of ``casspec``, and all that modules and the Makefile write or add."""
    known = set(options(build_parser()))
    for name in tracked_files():
        if name.endswith((".py", "Makefile")) and not name.startswith("tests/house/"):
            text = (ROOT / name).read_text(encoding="utf-8")
            known.update(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
            known.update(f"--{word}" for word in re.findall(r'add_\w+\(\w+, "([a-z-]+)"', text))
    return known


def wrong_options(document: Path) -> Iterator[str]:
    """Yield options that no command has, where a module, ``ARGS`` or nothing stands before them."""
    for piece in code(document):
        if re.match(rf"--|.*cassandra_spec\.|.*ARGS=|({'|'.join(ROOMS)})\.", piece):
            found = re.findall(r"(?<![\w-])--[a-z][a-z-]+", piece)
            yield from (option for option in found if option not in known_options())


def wrong_targets(document: Path) -> Iterator[str]:
    """Yield targets of ``make`` that do not exist."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for piece in code(document):
        for words in re.findall(r"(?:^|[ /])make ((?:[a-z-]+ ?)+)", piece):
            yield from (f"make {word}" for word in words.split() if word not in targets)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_a_document_names_exists(document: Path) -> None:
    assert [*missing_files(document)] == []
    assert [*missing_modules(document)] == []
    assert [*wrong_commands(document)] == []
    assert [*wrong_targets(document)] == []
    assert document.name == "CHANGELOG.md" or [*wrong_options(document)] == []


def test_tests_that_documents_select_exist() -> None:
    """Pytest finds the tests that ``make test ARGS="..."`` of a document names."""
    calls = {
        (match[1], match[2])
        for document in DOCUMENTS
        for piece in code(document)
        for match in re.finditer(r'make (test|test-all|waves) ARGS="?([^"]*)', piece)
    }
    assert len(calls) > 3
    for target, given in sorted(calls):
        words = shlex.split(given)
        assert all((ROOT / word).exists() for word in words if word.startswith("tests/")), given
        if "-k" in words:
            words += ["tests/verif/test_decoder.py"] if target == "waves" else []
            marks = ["-m", "not slow"] if target == "test" else []
            command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *marks, *words]
            run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            assert run.returncode == 0, f"make {target} {given}"


def test_wrong_names_in_a_document_are_found(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text(
        "`rtl/nothing.py` `nothing.cpp` `golden/format.py` `format.py`\n"
        "`verif/nowhere/` `verif/tools/`\n"
        "cassandra_spec.rtl.nothing, cassandra_spec.golden.format.Format,\n"
        "cassandra_spec.__version__, cassandra_spec.golden.Wrong\n"
        "`casspec pack A B --scheme mx` `casspec pack A B --wrong 1` `casspec wrong`\n"
        "`casspec bench decode --wrong`\n\n    make test\n    make wrong\n"
        "`verif.nothing` `golden.Format` `golden.Wrong` `golden.md` `--top` `--absent`\n"
        "`python -m cassandra_spec.verif.formal --out X --lost` `gcc --foreign`\n",
        encoding="utf-8",
    )
    assert [*missing_files(document)] == ["rtl/nothing.py", "nothing.cpp", "verif/nowhere/"]
    assert [*missing_modules(document)] == [
        "cassandra_spec.rtl.nothing",
        "cassandra_spec.golden.Wrong",
        "cassandra_spec.verif.nothing",
        "cassandra_spec.golden.Wrong",
    ]
    assert [*wrong_options(document)] == ["--absent", "--lost"]
    assert [*wrong_commands(document)] == [
        "casspec pack A B --wrong 1",
        "casspec wrong",
        "casspec bench decode --wrong",
    ]
    assert [*wrong_targets(document)] == ["make wrong"]


def test_the_example_of_the_codec_runs() -> None:
    page = (ROOT / "docs/software/runtime.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert blocks
    for block in blocks:
        run = subprocess.run(
            [sys.executable, "-c", block], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr


def test_the_transcript_of_the_main_job_has_one_place() -> None:
    text = (ROOT / "docs/results/simulation.md").read_text(encoding="utf-8")
    assert len(re.findall(r"<!-- transcript: begin .*?<!-- transcript: end -->", text, re.S)) == 1


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 700


def section(page: Path, anchor: str) -> str:
    """Return a page's text from the heading of an anchor to the next one; all without an anchor."""
    text = page.read_text(encoding="utf-8")
    parts = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", text, re.MULTILINE))
    found = {heading_anchor(heading): body for heading, body in parts.items()}
    return found[anchor] if anchor else text


def wrong_figures(readme: str) -> Iterator[str]:
    """Yield rows of the figures' table whose numbers or command the linked section lacks.

    Numbers count where a command wrote them: in a block of the section.
    """
    for row in re.findall(r"^\|(.+)\|$", readme.split("| what | figure |")[1], re.MULTILINE)[1:]:
        _, figure, against, _, command = (cell.strip() for cell in row.split("|"))
        link = re.fullmatch(r"\[`(.+)`\]\((docs/results/[\w-]+\.md)#?([\w-]*)\)", command)
        text = section(ROOT / link[2], link[3]) if link else ""
        blocks = " ".join(match[2] for match in _WRITTEN.finditer(text))
        written = re.sub(r"\[[^]]*\]", "", blocks)  # without quartiles
        numbers = re.findall(r"\d+(?:\.\d+)+", f"{figure} {against}")
        missing = [n for n in numbers if not re.search(rf"(?<![\d.]){n}(?![\d.]*\d)", written)]
        if not numbers or missing or not link or link[1] not in text:
            yield row


def test_figures_of_the_readme_are_those_of_the_linked_results() -> None:
    assert [*wrong_figures((ROOT / "README.md").read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("given", "wrong"),
    [("2.19 ×", "2.29 ×"), ("by-context", "larger-shapes"), ("`make sim`", "`make test`")],
)
def test_a_wrong_figure_of_the_readme_is_found(given: str, wrong: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert given in readme
    rows = [*wrong_figures(readme.replace(given, wrong))]
    assert rows
    assert all(wrong in row for row in rows)


@pytest.mark.parametrize("picture", sorted(ROOT.glob("docs/**/*.svg")), ids=lambda path: path.name)
def test_pictures_are_well_formed_and_described(picture: Path) -> None:
    root = ET.parse(picture).getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    assert root.find(f"{space}title") is not None
    assert root.find(f"{space}desc") is not None
