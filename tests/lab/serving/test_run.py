"""Loads on servers that a small program plays: figures, differing replies, journal, interrupt."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.bench.answers import Answers
from cassandra_spec.bench.decode.results import Spread
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.serving.contenders import PLAIN, Contender
from cassandra_spec.lab.serving.report import Tail, draw, faults, summaries, table
from cassandra_spec.lab.serving.run import (
    CODE,
    Bench,
    Cell,
    Load,
    Streamed,
    make_cells,
    request,
)
from cassandra_spec.lab.serving.servers import PORT, LocalServer

FAKE = Path(__file__).with_name("fake_server.py")
PROMPTS = tuple(f"prompt {number}" for number in range(20))


def fake(name: str, *faults: str, **fields: Any) -> Contender:
    return Contender(name=name, command=[sys.executable, str(FAKE), PORT, *faults], **fields)


def cells(rounds: int = 2) -> list[Cell]:
    shape: dict[str, Any] = {"temperatures": (0.0, 0.7), "clients": (1, 3), "replies": 2}
    return make_cells(PROMPTS, rounds=rounds, **shape)


def measured(
    contenders: list[Contender], journal: Path | None = None, rounds: int = 2
) -> list[Load]:
    sizes: dict[str, Any] = {"max_tokens": 8, "answers": Answers(journal, CODE)}
    with Bench(contenders, cells(rounds), **sizes, say=lambda _: None) as bench:
        assert bench.run()
    return bench.loads


def test_every_load_has_prompts_of_its_own_until_all_were_used() -> None:
    found = cells()
    assert [(each.temperature, each.clients) for each in found[:4]] == [
        *((0.0, 1), (0.0, 3), (0.7, 1), (0.7, 3)),
    ]
    assert [len(each.prompts) for each in found[:4]] == [2, 3, 2, 3]  # one for each client
    used = [prompt for each in found for prompt in each.prompts]
    assert used == list(PROMPTS)


def test_contenders_are_measured_and_compared() -> None:
    contenders = [
        fake(PLAIN),
        fake("drafts", same_as=PLAIN),
        fake("broken", "drafts", same_as=PLAIN),
        fake("other", "drafts"),
        fake("other, drafts", same_as="other", peer=True),
    ]
    loads = measured(contenders)
    assert len(loads) == len(cells()) * len(contenders)
    found = summaries(loads, contenders)
    by_key = {(each.contender, each.temperature, each.clients): each for each in found}
    assert len(by_key) == len(found) == 4 * len(contenders)
    for (name, temperature, clients), each in by_key.items():
        replies = 2 * max(clients, 2)
        assert each.tokens == 8 * replies
        assert each.prompt_tokens == 5 * replies
        assert (each.drafted, each.accepted) == (3 * replies, 2 * replies)  # of /metrics
        compared = name in ("drafts", "broken") or (name == "other, drafts" and not temperature)
        assert each.compared == (replies if compared else 0)
        wrong = name in ("broken", "other, drafts") and not temperature
        assert each.differing == (replies if wrong else 0)
        assert (each.to_plain is None) == (name == PLAIN)
        assert each.first is not None
        assert each.first.median > 0
        assert each.resident > 1_000_000
    assert faults(found, contenders) == 2 * (2 + 3)
    text = table(found)
    assert text.count("greedy") == 1
    assert text.count("temperature 0.7") == 1
    svg = draw(found, title="servers").decode()
    assert "Tokens per second. plain, 1 clients, temperature 0:" in svg


def test_a_journal_has_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contenders, journal = [fake(PLAIN), fake("drafts", same_as=PLAIN)], tmp_path / "journal"
    before = measured(contenders, journal, rounds=1)
    asked: list[object] = []
    real = LocalServer.__init__

    def counted(self: LocalServer, *args: Any) -> None:
        asked.append(args[0])
        real(self, *args)

    monkeypatch.setattr(LocalServer, "__init__", counted)
    assert measured(contenders, journal, rounds=1) == before
    assert asked == []  # no server had to start
    longer = measured([*contenders, fake("third")], journal, rounds=1)
    known = [each for each in longer if each.contender != "third"]
    assert sorted(known, key=repr) == sorted(before, key=repr)  # in another order
    assert asked == ["third"]


def test_an_interrupt_keeps_loads_that_all_have_had(monkeypatch: pytest.MonkeyPatch) -> None:
    contenders = [fake(PLAIN), fake("drafts", same_as=PLAIN)]
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if sum(each.startswith("  ") for each in said) == 3:  # in the middle of the second load
            raise KeyboardInterrupt

    with Bench(contenders, cells(), max_tokens=8, answers=Answers(), say=say) as bench:
        assert not bench.run()
        servers = list(bench._servers.values())
    assert {each.contender for each in bench.loads} == {PLAIN, "drafts"}
    assert len(bench.loads) == 2
    assert [server._process.poll() is not None for server in servers] == [True, True]


def test_the_seed_is_of_the_prompt() -> None:
    one, other = request("m", "a", 0.7, 8), request("m", "b", 0.7, 8)
    assert one == request("m", "a", 0.7, 8)
    assert one["seed"] != other["seed"]


def test_figures_of_made_loads() -> None:
    reply = Streamed(
        text="a b c", finish_reason="stop", tokens=3, prompt_tokens=4, times=(0.5, 0.7, 1.5)
    )
    loads = [
        Load(
            contender=name,
            round=number,
            temperature=0.0,
            clients=1,
            seconds=seconds,
            replies=(reply, dataclasses.replace(reply, text=text)),
            drafted=4,
            accepted=3,
            resident=1,
        )
        for name, text, times in ((PLAIN, "x", (1.0, 2.0)), ("drafts", "y", (0.5, 0.5)))
        for number, seconds in enumerate(times)
    ]
    contenders = [fake(PLAIN), fake("drafts", same_as=PLAIN)]
    plain, drafts = summaries(loads, contenders)
    assert plain.rate == Spread.of([6.0, 3.0])
    assert drafts.to_plain == Spread.of([2.0, 4.0])
    assert (drafts.compared, drafts.differing) == (4, 2)
    assert drafts.first == Tail(median=0.5, high=0.5)
    assert drafts.per_token == Tail(median=0.5, high=0.5)  # two tokens in a second
    assert drafts.between == Tail.of([0.2, 0.8] * 4)
    assert Load.of(dataclasses.asdict(loads[0])) == loads[0]


def test_a_server_that_ends_says_why() -> None:
    program = "import sys; sys.exit('no such model')"
    with pytest.raises(CassandraError, match=r"mine has ended \(code 1\): no such model"):
        LocalServer("mine", [sys.executable, "-c", program, PORT])
