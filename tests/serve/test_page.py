"""The page of the server, and the traces that it asks for."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest

from cassandra_spec.drafting import TARGET, Counters, Trace
from cassandra_spec.model.backends import BACKENDS, Opening
from cassandra_spec.serve.scheduler import Scheduler
from cassandra_spec.serve.server import running
from tests.browser import Tab, browser
from tests.model.byte_model import pack_byte_model
from tests.serve.conftest import SPECULATION, opened
from tests.serve.test_api import WORDS
from tests.serve.test_scheduler import Reader
from tests.serve.test_structured import PERSON, is_person, served

ROOT = Path(__file__).resolve().parents[2]

KEY = "secret"


@pytest.fixture(scope="module")
def address(packed: Path) -> Iterator[str]:
    with opened(packed, slots=2, waiting=4, api_key=KEY) as server, running(server) as found:
        yield found


@pytest.fixture
def client(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as made:
        yield made


def tokens_of(rounds: Sequence[Any]) -> list[dict[str, Any]]:
    return list(itertools.chain(*(each["tokens"] for each in rounds)))


def test_a_stream_has_its_rounds_if_asked(client: openai.OpenAI) -> None:
    texts, ids = [], []
    chat = [{"role": "user", "content": "word3 word4 word3"}]
    for plain in (False, True, False):  # at last a prompt that is in the cache
        ask: Any = {"model": "tiny", "messages": chat, "max_tokens": 40, "stream": True}
        options = {"include_trace": True, "include_usage": plain}
        fields: Any = {"stream_options": options, "extra_body": {"plain": plain}}
        chunks = list(client.chat.completions.create(**ask, **fields))
        rounds: list[Any] = [found for each in chunks if (found := getattr(each, "trace", None))]
        choices = itertools.chain(*(each.choices for each in chunks))
        texts.append("".join(choice.delta.content or "" for choice in choices))
        assert "".join(token["text"] for token in tokens_of(rounds)) == texts[-1]
        ids.append([token["id"] for token in tokens_of(rounds)])
        sources = Counter(token["source"] for token in tokens_of(rounds))
        assert sources[TARGET] == len(rounds)
        assert [each["rounds"] for each in rounds] == list(range(len(rounds)))
        assert (sum(each["drafted"] for each in rounds) == 0) == plain
        assert sources.total() - len(rounds) == sum(each["accepted"] for each in rounds)
        assert rounds[0]["read"] == 0
        assert rounds[0]["read"] < rounds[1]["read"] < rounds[-1]["read"]
        assert rounds[-1]["bf16"] > 0
        untraced = list(client.chat.completions.create(**ask, extra_body={"plain": plain}))
        assert all(each.choices for each in untraced)
        assert not any("trace" in each.model_dump() for each in untraced)
    assert len(set(texts)) == 1
    assert ids[0] == ids[1] == ids[2]
    assert len(ids[0]) == 40


def test_a_stop_string_ends_the_rounds_too(client: openai.OpenAI) -> None:
    ask: Any = {"model": "tiny", "prompt": WORDS, "max_tokens": 40}
    whole = client.completions.create(**ask).choices[0].text
    stop = whole.split()[5]
    options = {"include_trace": True}
    chunks = list(
        client.completions.create(**ask, stop=stop, stream=True, stream_options=options)  # type: ignore[call-overload]
    )
    rounds: list[Any] = [found for each in chunks if (found := getattr(each, "trace", None))]
    texts = "".join(token["text"] for token in tokens_of(rounds))
    assert texts == whole.partition(stop)[0]


def test_a_backend_that_runs_one_at_a_time_has_traces_too(packed: Path) -> None:
    counters = Counters()
    with BACKENDS["torch"](packed, Opening(), SPECULATION) as backend:
        sequences = backend.sequences(counters)

        def trace() -> Trace:
            return Trace(costs=backend.costs, total=counters)

        with Scheduler(sequences, backend.tokenizer, waiting=1, make_trace=trace) as scheduler:
            reader = Reader(scheduler, [5, 9, 5], SPECULATION, traced=True)
            text, tokens = reader.reply()
    assert "".join(each["text"] for each in tokens_of(reader.rounds)) == text
    assert len(tokens_of(reader.rounds)) == tokens
    assert sum(each["accepted"] for each in reader.rounds) == counters.accepted > 0


def test_the_page_needs_no_key_and_no_other_resource(address: str) -> None:
    connection = HTTPConnection(urlsplit(address).netloc, timeout=300)
    connection.request("GET", "/")
    answer = connection.getresponse()
    page = answer.read().decode()
    connection.close()
    assert answer.status == 200
    assert answer.headers.get_content_type() == "text/html"
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert policy.endswith("frame-ancestors 'none'")
    assert "tiny" not in page  # what is served is told with the key alone
    assert json.loads(page.partition('id="data">')[2].partition("<")[0])["keyed"] is True


# --- without a browser ---------------------------------------------------------------------------

ASK = """
const [, address, schema] = process.argv;
const ask = fetch;
globalThis.fetch = (path, options) => ask(new URL(path, address), options);
const asker = Object.assign(Object.create(Asker.prototype), {
  messages: [], key: { value: "none" }, going: new AbortController(),
  schema: { value: schema }, prompt: { value: "abc" },
  tokens: { valueAsNumber: 200 }, temperature: { valueAsNumber: 0 },
});
let text = "";
const take = (round) => { for (const token of round.tokens) text += token.text; };
const asked = { ...asker.request(), model: "tiny", plain: false };
asker.stream(asked, take).then(() => console.log(text), (error) => console.log(error.message));
"""


@pytest.mark.skipif(not shutil.which("node"), reason="node must be installed")
def test_the_page_asks_for_a_reply_that_matches_its_schema(tmp_path: Path) -> None:
    script = (ROOT / "toolkit/trace.js").read_text().partition("const found =")[0]
    with served(pack_byte_model(tmp_path), "native") as asked:
        command = ["node", "--eval", script + ASK, str(asked.base_url.join("/"))]

        def reply(schema: str) -> str:
            return subprocess.check_output([*command, schema], text=True)

        assert is_person(json.loads(reply(json.dumps(PERSON))))
        assert "Invalid type: x" in reply('{"type": "x"}')
        assert "Invalid type" not in reply(" ")


# --- in a browser --------------------------------------------------------------------------------


def status(tab: Tab) -> str:
    return str(tab.value("document.querySelector('[role=status]')?.textContent"))


def fill(tab: Tab, field: str, value: str) -> None:
    tab.value(f"document.querySelector({json.dumps(field)}).value = {json.dumps(value)}")


@pytest.mark.slow
def test_a_reply_is_asked_for_and_watched_by_the_keyboard(address: str) -> None:
    with browser() as tab:
        tab.open(f"{address}/")
        names = tab.names()
        for each in (
            ("textbox", "Prompt (Ctrl+Enter sends it)"),
            ("spinbutton", "Most tokens"),
            ("spinbutton", "Temperature (0: always the likeliest token)"),
            ("textbox", "API key"),
            ("button", "Reply"),
            ("button", "Stop"),
            ("button", "New conversation"),
        ):
            assert each in names
        fill(tab, "textarea", WORDS)
        fill(tab, "input[type=number]", "30")
        fill(tab, "input[type=password]", "wrong")
        tab.value("document.querySelector('textarea').focus()")
        tab.press("Enter", control=True)
        tab.wait_for("document.querySelector('[role=alert]').textContent")
        assert "API key" in tab.value("document.querySelector('[role=alert]').textContent")
        fill(tab, "input[type=password]", KEY)
        tab.press("Tab")
        assert tab.value("document.activeElement.type") == "number"
        tab.press("Enter")
        tab.wait_for("document.querySelector('[role=status]').textContent.startsWith('Done.')")
        assert "identical, token for token" in status(tab)
        assert tab.value("document.querySelector('[role=alert]').textContent") == ""
        texts = tab.value("[...document.querySelectorAll('.reply')].map((e) => e.textContent)")
        assert texts[0] == texts[1] != ""
        drafted = "document.querySelectorAll('.beside section:first-child .token:not(.target)')"
        assert tab.value(f"{drafted}.length") > 0
        live = "[...document.querySelectorAll('[aria-live], [role=status], [role=alert]')]"
        assert tab.value(f"{live}.some((e) => e.querySelector('.token'))") is False
        assert tab.value("document.querySelector('textarea').value") == ""
        fill(tab, "textarea", WORDS)
        fill(tab, "input[type=number]", "20000")
        tab.value("document.querySelector('textarea').focus()")
        tab.press("Enter", control=True)
        tab.wait_for("document.querySelectorAll('.token').length > 100")
        tab.value("document.querySelector('button[type=button]').click()")
        tab.wait_for("document.querySelector('[role=alert]').textContent === 'Stopped.'")


TURNS = "[...document.querySelectorAll('main > section')].map((e) => e.ariaLabel)"
REPLY = "document.querySelector('main > section:last-child .reply').textContent"
DONE = "document.querySelector('[role=status]').textContent.startsWith('Done.')"


def send(tab: Tab, prompt: str) -> None:
    """Ask for the next reply by the keyboard, and wait for it."""
    fill(tab, "textarea", prompt)
    tab.value("document.querySelector('textarea').focus()")
    tab.press("Enter", control=True)
    tab.wait_for(f"{DONE} && document.querySelector('textarea').value === ''")


@pytest.mark.slow
def test_turns_make_a_conversation(address: str, client: openai.OpenAI) -> None:
    messages: list[Any] = []
    with browser() as tab:
        tab.open(f"{address}/")
        fill(tab, "input[type=password]", KEY)
        fill(tab, "input[type=number]", "12")
        for number, prompt in enumerate(("word3 word4", "word9", "word5 word7"), 1):
            fill(tab, "[step=any]", "0" if number < 3 else "1")
            send(tab, prompt)
            assert tab.value(TURNS) == [f"Turn {each}" for each in range(1, number + 1)]
            messages.append({"role": "user", "content": prompt})
            found = tab.value(REPLY)
            if number < 3:
                asked = client.chat.completions.create(
                    model="tiny", messages=messages, max_tokens=12, temperature=0
                )
                assert found == asked.choices[0].message.content
            messages.append({"role": "assistant", "content": found})
        assert tab.value("document.querySelectorAll('.reply').length") == 6
        assert "identical, token for token" in status(tab)
        tab.value("[...document.querySelectorAll('button')].at(-1).click()")
        assert tab.value(TURNS) == []
        assert tab.value("document.activeElement.tagName") == "TEXTAREA"
        fill(tab, "details textarea", "{")
        fill(tab, "textarea", "word3")
        tab.value("document.querySelector('form').requestSubmit()")
        tab.wait_for("document.querySelector('[role=alert]').textContent.includes('JSON')")
