"""Build self-contained HTML pages: tables, plots, texts and a program, no external resources.

Pages follow the reader's choice of light or dark; each part has a heading or a caption.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: bold; padding: .3em 0; }
th, td { padding: .2em .8em; border-bottom: 1px solid #8886; text-align: right; }
th:first-child, td:first-child { text-align: left; }
pre { padding: 1em; border: 1px solid #8886; white-space: pre-wrap; overflow-x: auto; }
figure { margin: 1em 0; padding: .5em; background: white; color: black; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; }
.beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(20em, 1fr)); gap: 1em; }
"""
_BEFORE_SVG = re.compile(r"^.*?(?=<svg\b)", re.DOTALL)  # the prolog, which names a file elsewhere


class Page:
    """A page, built part by part. All texts are escaped; ``style`` is further CSS."""

    def __init__(self, title: str, style: str = "") -> None:
        self._title = title
        self._style = _STYLE + style
        self._code = ""
        self._parts = [f"<h1>{escape(title)}</h1>"]

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def paragraph(self, text: str) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p>{escape(text)}</p>")

    def table(
        self, caption: str, header: Sequence[object], rows: Iterable[Sequence[object]]
    ) -> None:
        """Add a table whose first column names the rows."""
        head = "".join(f'<th scope="col">{escape(str(cell))}</th>' for cell in header)
        lines = [f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>"]
        for first, *others in rows:
            cells = "".join(f"<td>{escape(str(cell))}</td>" for cell in others)
            lines.append(f'<tr><th scope="row">{escape(str(first))}</th>{cells}</tr>')
        self._parts.append("<table>" + "\n".join(lines) + "</tbody></table>")

    def plot(self, caption: str, svg: str) -> None:
        """Embed an SVG picture."""
        picture = _BEFORE_SVG.sub("", svg)
        caption = f"<figcaption>{escape(caption)}</figcaption>"
        self._parts.append(f"<figure>{picture}{caption}</figure>")

    def text(self, text: str) -> None:
        """Add preformatted lines."""
        self._parts.append(f"<pre>{escape(text)}</pre>")

    def beside(self, texts: Mapping[str, str]) -> None:
        """Add texts with a heading each, side by side if the window is wide enough."""
        parts = [
            f"<section><h3>{escape(head)}</h3><pre>{escape(text)}</pre></section>"
            for head, text in texts.items()
        ]
        self._parts.append('<div class="beside">' + "".join(parts) + "</div>")

    def program(self, code: str, data: object) -> None:
        """Add the page's JavaScript program and its data, as JSON in the element ``data``."""
        text = json.dumps(data).replace("<", r"\u003c")  # the text never ends its element
        self._parts.append(f'<script type="application/json" id="data">{text}</script>')
        self._parts.append("<noscript><p>This page needs JavaScript.</p></noscript>")
        self._parts.append(f"<script>{code}</script>")
        self._code = code

    @property
    def policy(self) -> str:
        """The Content-Security-Policy: only the page's own style, program and server."""
        style, code = (_hash(text) for text in (self._style, self._code))
        return (
            f"default-src 'none'; style-src '{style}'; script-src '{code}'; connect-src 'self'; "
            "base-uri 'none'; form-action 'none'"
        )

    def html(self) -> str:
        """Return the whole page."""
        policy = f'<meta http-equiv="Content-Security-Policy" content="{self.policy}">'
        head = (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width">'
            f"{policy if self._code else ''}"
            f"<title>{escape(self._title)}</title><style>{self._style}</style></head><body>"
        )
        return "\n".join([head, *self._parts, "</body></html>\n"])


def _hash(text: str) -> str:
    """Return the hash by which a policy allows an inline element."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
