"""Read and replace generated blocks of documents.

A block stands between the lines ``<!-- NAME -->`` and ``<!-- /NAME -->``, with an empty line after
the first and before the second. Where a page has several runs of one command, ``FILE#LABEL`` names
the blocks ``NAME LABEL`` of ``FILE``.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path


class DocumentError(ValueError):
    """A document lacks the markers of a block; the text is one line."""


def block_names(document: str) -> list[str]:
    """Return the names of the blocks of a document, in order."""
    return re.findall(r"^<!-- /(.+) -->$", document, re.MULTILINE)


def block(document: str, name: str) -> str:
    """Return the text of a block, without the empty lines around it.

    Raises:
        DocumentError: the document does not have each of its markers once, in order.
    """
    return _parts(document, name)[1].strip("\n")


def fill(document: str, blocks: Mapping[str, str]) -> str:
    """Return the document with the blocks' texts replaced, by name.

    Raises:
        DocumentError: as :func:`block`.
    """
    for name, text in blocks.items():
        before, _, after = _parts(document, name)
        body = text.strip("\n")
        document = f"{before}<!-- {name} -->\n\n{body}\n\n<!-- /{name} -->{after}"
    return document


def labelled(path: Path, name: str) -> tuple[Path, str]:
    """Split ``FILE#LABEL`` into the file and the full name of its block ``name``."""
    file, _, label = str(path).partition("#")
    return Path(file), f"{name} {label}".strip()


def provenance() -> str:
    """Return one line with the command that runs, the machine and the date."""
    given = sys.orig_argv
    module = ["python", *given[given.index("-m") :]] if "-m" in given else None
    command = shlex.join(module or ["casspec", *sys.argv[1:]])
    machine = f"{_processor()}, {os.cpu_count()} processors"
    return f"`{command}` ({machine}; {datetime.date.today()})"


def _processor() -> str:
    """Return the processor's name, or its architecture where the system does not give one."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.is_file() else ""
    names = re.findall(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return names[0] if names else platform.machine()


def fill_file(path: Path, blocks: Mapping[str, str]) -> None:
    """Replace the texts of blocks in a file, as :func:`fill` does; ``path`` may have a label.

    Raises:
        DocumentError: as :func:`block`.
        OSError: the file cannot be read or written.
    """
    file, _ = labelled(path, "")
    named = {labelled(path, name)[1]: text for name, text in blocks.items()}
    file.write_text(fill(file.read_text(encoding="utf-8"), named), encoding="utf-8")


def require_block(path: Path, name: str) -> None:
    """Require the block ``name`` of the document at ``path``, before long work fills it.

    Raises:
        DocumentError, OSError: as :func:`fill_file`.
    """
    file, full = labelled(path, name)
    block(file.read_text(encoding="utf-8"), full)


def publish(text: str, path: Path | None, name: str) -> None:
    """Print a text, and write it to the block ``name`` of the document at ``path``, if given."""
    print(text)
    if path:
        fill_file(path, {name: text})


def _parts(document: str, name: str) -> tuple[str, str, str]:
    """Split a document into the text before, in and after a block."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, *rest = document.split(begin)
    inside, *after = rest[0].split(end) if len(rest) == 1 else ("",)
    if len(after) != 1 or end in before:
        raise DocumentError(f"document must have the markers {begin} and {end} once, in this order")
    return before, inside, after[0]
