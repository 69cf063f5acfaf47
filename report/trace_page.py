"""The page that shows what made each token of a reply: of a recorded run, or at a server.

The program (trace.js) is the same for both. What it reads has ``replies``, or says that it is
``live``, and then asks the server that the page came from (docs/software/serving.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.report.page import Page

_HERE = Path(__file__).parent


def live_page(*, keyed: bool, max_tokens: int) -> Page:
    """The page of a server: whether it has a key, and the most tokens of a reply."""
    return _page("Cassandra", {"live": True, "keyed": keyed, "tokens": max_tokens})


def recorded_page(title: str, replies: Sequence[Any]) -> Page:
    """The page of a run.

    A reply has its ``prompt`` (text, or messages with ``role`` and ``content``) and the rounds of
    ``reply`` and of ``plain``, the same decoded plainly, or None; each is as
    ``drafting.TraceText`` makes it.
    """
    return _page(title, {"replies": list(replies)})


def _page(title: str, data: object) -> Page:
    style, code = ((_HERE / f"trace.{kind}").read_text() for kind in ("css", "js"))
    page = Page(title, style)
    page.program(code, data)
    return page
