"""Build the page that shows the source of each token: of a recorded run, or at a server.

The program (trace.js) is the same for both. Its data has ``replies`` or is marked ``live``; then
the page sends requests to the server it came from (docs/software/serving.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.toolkit.page import Page

_HERE = Path(__file__).parent


def live_page(*, keyed: bool, max_tokens: int) -> Page:
    """Build the page of a server; ``keyed``: it needs an API key; ``max_tokens``: its reply
    limit.
    """
    return _page("Cassandra", {"live": True, "keyed": keyed, "tokens": max_tokens})


def recorded_page(title: str, replies: Sequence[Any]) -> Page:
    """Build the page of a recorded run.

    A reply has its ``prompt`` (text, or messages with ``role`` and ``content``), the rounds of
    ``reply`` and, or None, those of plain decoding (``plain``), each as ``drafting.TraceText``
    makes it.
    """
    return _page(title, {"replies": list(replies)})


def _page(title: str, data: object) -> Page:
    style, code = ((_HERE / f"trace.{kind}").read_text() for kind in ("css", "js"))
    page = Page(title, style)
    page.program(code, data)
    return page
