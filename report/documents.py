"""Generated blocks of documents.

A block stands between the lines ``<!-- NAME -->`` and ``<!-- /NAME -->``, with an empty line after
the first and before the second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path


class DocumentError(ValueError):
    """A document lacks the markers of a block; the text is one line."""


def block_names(document: str) -> list[str]:
    """Names of the blocks of a document, in their order."""
    return re.findall(r"^<!-- /(.+) -->$", document, re.MULTILINE)


def block(document: str, name: str) -> str:
    """The text of a block, without the empty lines around it.

    Raises:
        DocumentError: the document does not have each of its markers once, in order.
    """
    return _parts(document, name)[1].strip("\n")


def fill(document: str, blocks: Mapping[str, str]) -> str:
    """The document with new texts in blocks, given by name.

    Raises:
        DocumentError: as :func:`block`.
    """
    for name, text in blocks.items():
        before, _, after = _parts(document, name)
        body = text.strip("\n")
        document = f"{before}<!-- {name} -->\n\n{body}\n\n<!-- /{name} -->{after}"
    return document


def fill_file(path: Path, blocks: Mapping[str, str]) -> None:
    """Replace the texts of blocks in a file, as :func:`fill` does.

    Raises:
        DocumentError: as :func:`block`.
        OSError: the file cannot be read or written.
    """
    path.write_text(fill(path.read_text(encoding="utf-8"), blocks), encoding="utf-8")


def publish(text: str, path: Path | None, name: str) -> None:
    """Print a text, and make it the block ``name`` of a document where one is named."""
    print(text)
    if path:
        fill_file(path, {name: text})


def _parts(document: str, name: str) -> tuple[str, str, str]:
    """What stands before, in and after a block."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, *rest = document.split(begin)
    inside, *after = rest[0].split(end) if len(rest) == 1 else ("",)
    if len(after) != 1 or end in before:
        raise DocumentError(f"document must have the markers {begin} and {end} once, in this order")
    return before, inside, after[0]
