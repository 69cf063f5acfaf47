"""The soak of a server: it passes where every reply is right, and finds each fault."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.lab.serving.requests import KINDS, draw_requests
from cassandra_spec.lab.serving.servers import PORT, LocalServer
from cassandra_spec.lab.serving.soak import SHARES, Soak, lines, replies_alone
from tests.lab.serving.fake_server import SLOTS
from tests.model.byte_model import pack_byte_model

FAKE = Path(__file__).with_name("fake_server.py")


def soaked(*faults: str, seconds: float = 1.5, said: list[str] | None = None) -> Soak:
    requests = draw_requests(list(KINDS), count=32, max_tokens=12, seed=3)
    command = [sys.executable, str(FAKE), PORT]
    with LocalServer("fake", command) as server:
        alone = replies_alone(server, requests, (said or []).append)
    with LocalServer("fake", [*command, *faults]) as server:
        soak = Soak(
            server, requests, alone, clients=6, slots=SLOTS, seed=1, say=(said or []).append
        )
        assert soak.run(seconds)
    return soak


def test_requests_are_of_every_kind_and_repeatable() -> None:
    found = draw_requests(list(KINDS), count=64, max_tokens=20, seed=5)
    assert found == draw_requests(list(KINDS), count=64, max_tokens=20, seed=5)
    assert found != draw_requests(list(KINDS), count=64, max_tokens=20, seed=6)
    assert set(Counter(each.kind for each in found).values()) == {8}
    for kind in KINDS:
        some = [each.body for each in found if each.kind == kind]
        assert [bool(body["temperature"]) for body in some] == [False, True] * 4
        assert all(("seed" in body) == bool(body["temperature"]) for body in some)
    starts = [e.body["messages"][0]["content"][:1000] for e in found if e.kind == "prefix"]
    assert 1 < len(set(starts)) < len(starts)  # prefixes are shared


def test_right_replies_pass() -> None:
    found = soaked().found
    assert [each.line() for each in found.differences] == []
    assert found.passed
    assert found.all.asked == found.all.compared + found.all.left
    assert found.all.left > 0
    assert found.most_running > 1
    assert list(found.memory) == list(SHARES)
    assert min(found.memory.values()) > 1_000_000
    text = lines(found)
    assert "slots lost: 0; requests without an end: 0; errors: 0" in text
    [row] = [line.split() for line in text.splitlines() if line.startswith("all ")]
    assert row == ["all", str(found.all.asked), str(found.all.compared), "0", str(found.all.left)]


@pytest.mark.parametrize("fault", ["wrong", "drafts"])
def test_a_reply_that_differs_is_found(fault: str) -> None:
    found = soaked(fault).found
    assert not found.passed
    assert 0 < found.all.differing < found.all.compared
    difference = found.differences[0]
    assert "'wrong'" in difference.line()
    assert json.loads(json.dumps(difference.body)) == difference.body
    if fault == "drafts":
        assert all("greedy" in each.name for each in found.differences)


def test_a_stream_that_breaks_is_a_fault() -> None:
    found = soaked("broken").found
    assert not found.passed
    assert any("must end with [DONE]" in each.line() for each in found.differences)


def test_a_slot_that_is_lost_is_counted() -> None:
    found = soaked("lost").found
    assert [each.line() for each in found.differences] == []
    assert found.slots_lost == 1
    assert not found.passed


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["soak-server", "--minutes", "0"], "minutes must be above 0, not 0"),
        (["soak-server", "--json", "no/such/folder/x"], "no/such/folder"),
        (["serving", "--clients", "17"], "clients must be from 1 to 16, not 17"),
        (["serving", "--temperatures", "3"], "temperatures must be from 0 to 2, not 3"),
        (["serving", "--max-tokens", "2048"], "context must be at least max-tokens and fill"),
        (["serving", "--fill", "2000"], "context must be at least max-tokens and fill together"),
        (["serving", "--llama-model", "a=b"], "must be given together"),
        (["serving", "--also", "lookup"], "also must be LABEL=..., not 'lookup'"),
        (["serving", "--also", "plain=--gamma 0"], "labels of their own, not plain"),
        (["serving", "--longest", "1"], "questions must have a prompt of at most 1 tokens"),
    ],
)
def test_bad_input_is_one_line(
    flags: list[str], message: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", flags[0], str(model), *flags[1:]]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_byte_model(tmp_path_factory.mktemp("bytes"))


@pytest.mark.slow
def test_the_server_gives_every_request_its_reply(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "soak.json"
    sizes = ["--clients", "6", "--slots", "3", "--requests", "48", "--max-tokens", "24"]
    more = ["--minutes", "0.3", "--threads", "1", "--json", str(report)]
    assert main(["bench", "soak-server", str(model), *sizes, *more]) == 0
    [found] = json.loads(report.read_text())["soak"]
    assert set(found["kinds"]) == set(KINDS)
    assert all(each["compared"] > 0 for each in found["kinds"].values())
    assert found["drafted"] > 0
    assert "PASS" in capsys.readouterr().out


@pytest.mark.slow
def test_our_servers_are_measured(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report: Any = tmp_path / "serving.json"
    sizes = ["--clients", "1", "3", "--max-tokens", "24", "--replies", "2", "--rounds", "1"]
    more = ["--threads", "1", "--also", "lookup=--draft lookup", "--json", str(report)]
    figure = tmp_path / "serving.svg"
    assert main(["bench", "serving", str(model), *sizes, *more, "--figure", str(figure)]) == 0
    found = json.loads(report.read_text())["figures"]
    assert len(found) == 2 * 2 * 3
    drafts = [each for each in found if each["contender"] == "drafts" and not each["temperature"]]
    assert sum(each["drafted"] for each in drafts) > 0
    assert all(each["compared"] for each in found if each["contender"] != "plain")
    assert "PASS: 0 replies differ" in capsys.readouterr().out
    assert figure.read_text().startswith("<?xml")
