"""The page of a traced run: hostile text stays text, and all can be read without colours."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.toolkit.trace_page import live_page, recorded_page
from tests.browser import browser

HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>"
SOURCES = ("target", "model", "second best", "lookup", "table", "recycled")


def rounds(*texts: str) -> list[dict[str, Any]]:
    """Return a round of one token for each text, by each source in turn."""
    made = []
    for place, text in enumerate(texts):
        token = {"id": place, "text": text, "source": SOURCES[place % len(SOURCES)]}
        sums = {"read": 70 * place, "bf16": 100 * place}
        made.append({"tokens": [token], "rounds": place, "drafted": 2, "accepted": 1, **sums})
    return made


def example(*, same: bool = True) -> str:
    texts = ("1 < 2\n", HOSTILE, "<!--", "", "\u2028 &amp;", "\udc80")
    reply, plain = rounds(*texts), rounds(*texts)
    plain[-1]["tokens"][0]["id"] += not same
    prompt = [{"role": HOSTILE, "content": HOSTILE}]
    bodies = [
        {"prompt": prompt, "reply": reply, "plain": plain},
        {"prompt": "Hello?", "reply": reply, "plain": None},
    ]
    return recorded_page(HOSTILE, bodies).html()


def test_hostile_text_does_not_leave_the_data() -> None:
    page = example()
    page.encode()  # half a surrogate, too, can be written
    data, *rest = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    assert len(rest) == 1  # the program
    assert json.loads(data)["replies"][0]["prompt"][0]["content"] == HOSTILE
    assert "taken" not in rest[0]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", rest[0])


def test_a_page_names_no_other_resource() -> None:
    for page in (live_page(keyed=True, max_tokens=9).html(), recorded_page("t", []).html()):
        assert re.findall(r"https?:|//[a-z]|@import|url\(|<link|<img|\bsrc=|\bhref=", page) == []
        assert "default-src 'none'" in page


@pytest.mark.slow
def test_a_browser_shows_everything_as_text(tmp_path: Path) -> None:
    file = tmp_path / "trace.html"
    with browser() as tab:
        for dark, same in ((False, True), (True, False)):
            file.write_text(example(same=same), errors="surrogatepass")
            tab.open(file.as_uri(), dark=dark)
            assert tab.value("document.title") == HOSTILE
            assert tab.value("document.scripts.length") == 2
            assert tab.value("document.images.length") == 0
            texts = tab.value("[...document.querySelectorAll('.reply')].map((e) => e.textContent)")
            assert len(texts) == 3
            assert texts[0].startswith(f"1 < 2\n{HOSTILE}<!--\u2028 &amp;")
            status = tab.value("document.querySelector('[role=status]').textContent")
            assert (
                "6 tokens, 1.00 per verification, 70\N{NO-BREAK SPACE}% of the bytes of BF16"
                in status
            )
            assert ("identical, token for token" in status) == same
            assert ("DIFFER" in status) != same
            assert min(tab.value(CONTRASTS)) >= 4.5
            styles = tab.value(STYLES)
            assert len({tuple(each) for each in styles}) == len(SOURCES)  # without colours, too
            assert ("columnheader", "tokens and what made them") in opened_names(tab)


def opened_names(tab: Any) -> set[tuple[str, str]]:
    """Return the names for assistive technology, with the rounds unfolded by the keyboard."""
    tab.value("document.querySelector('summary').focus()")
    tab.press("Enter")
    tab.wait_for("document.querySelector('details').open")
    found: set[tuple[str, str]] = tab.names()
    return found


STYLES = """
[...document.querySelectorAll('.legend')[0].querySelectorAll('.token')].map((each) => {
  const style = getComputedStyle(each);
  return [style.textDecorationStyle, style.textDecorationColor === "rgba(0, 0, 0, 0)"];
})
"""
"""Style of each source's underline."""

CONTRASTS = """
(() => {
  const canvas = document.createElement("canvas").getContext("2d");
  const luminance = (...colours) => {
    canvas.fillStyle = "Canvas";
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    const parts = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((byte) => {
      const part = byte / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  return [...document.querySelectorAll(".token, .note, [role=status], h1, th")].map((each) => {
    const style = getComputedStyle(each);
    const back = luminance(dark ? "#121212" : "#ffffff", style.backgroundColor);
    const front = luminance(style.color);
    return (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05);
  });
})()
"""
"""Contrast of texts to what is behind them, as WCAG defines it."""
