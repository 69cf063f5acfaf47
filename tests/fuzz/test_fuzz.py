"""The campaign runs its cases, and tells broken promises, crashes and hangs from refusals."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cassandra_spec.golden import CassandraError
from tests.fuzz import __main__ as fuzz
from tests.fuzz.cases import CAMPAIGNS, checked, prepare


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    prepare(folder)
    return folder


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_some_cases_of_each_campaign(name: str, base: Path) -> None:
    for number in range(3):
        outcome, trace = fuzz.run_case(name, number, base)
        assert outcome in ("refused", "accepted"), trace


def test_a_case_is_the_same_again(base: Path) -> None:
    name = "packed files"
    assert [fuzz.run_case(name, n, base) for n in range(9)] == [
        fuzz.run_case(name, n, base) for n in range(9)
    ]


def crash() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang() -> None:
    time.sleep(60)


def break_a_promise() -> None:
    raise KeyError("a trace")


def refuse() -> None:
    raise CassandraError("no")


@pytest.mark.parametrize(
    ("action", "outcome"),
    [(crash, "crashed"), (hang, "hung"), (break_a_promise, "broken"), (refuse, "refused")],
)
def test_what_happens_is_counted(
    action: Callable[[], None], outcome: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def case(rng: random.Random, base: Path, room: Path) -> str:
        return checked(action)

    monkeypatch.setattr(fuzz, "SLOW", 1)
    monkeypatch.setitem(CAMPAIGNS, "one", (case, 1.0))
    counts, wrong = fuzz.campaign("one", 7, 0.5, tmp_path)
    assert set(counts) == {outcome}
    assert bool(wrong) == (outcome != "refused")
    assert all(line.startswith("--case 'one' ") for line in wrong)
