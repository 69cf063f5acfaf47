"""Print a benchmark's tables, and write them where its flags say."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from textwrap import indent
from typing import Any

from cassandra_spec.model.output import file_place, write_file, write_json


def check_outputs(args: argparse.Namespace, block: str = "") -> None:
    """Refuse what :func:`finish` could not write, before long work begins.

    Raises :class:`CassandraError` for a file that cannot be there, and
    :class:`~cassandra_spec.toolkit.documents.DocumentError` for a document without the block.
    """
    given = vars(args)
    for file in filter(None, map(given.get, ("json", "figure", "page"))):
        file_place(file)
    if document := given.get("document"):
        from cassandra_spec.toolkit.documents import require_block

        require_block(document, block)


def finish(
    args: argparse.Namespace,
    body: Mapping[str, Sequence[Any]],
    blocks: Mapping[str, str],
    draw: Callable[[], bytes] = bytes,
) -> None:
    """Print tables, and write what the flags of ``flags.add_results`` ask for.

    The dataclasses of ``body`` go to JSON, the tables with their origin into a document's blocks,
    and what ``draw`` returns is the figure.
    """
    print("\n\n".join(blocks.values()))
    if args.json:
        plain = {name: list(map(dataclasses.asdict, some)) for name, some in body.items()}
        write_json(args.json, plain, indent=None)
    if document := vars(args).get("document"):
        from cassandra_spec.toolkit.documents import fill_file, provenance  # not in the wheel

        texts = {name: f"{provenance()}\n\n{indent(t, '    ')}" for name, t in blocks.items()}
        fill_file(document, texts)
    if figure := vars(args).get("figure"):
        write_file(figure, draw())
