"""The regression's own logic: which replies it asks for, and that it sees one that differs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from cassandra_spec.golden import CassandraError
from tests.soak.__main__ import Answers, main, report
from tests.soak.replies import GAMMAS, RECIPES, Answer, Case, cases


def test_every_scheme_meets_every_gamma_with_both_kinds_of_cache() -> None:
    todo = list(cases(list(RECIPES), 64))
    assert len(set(todo)) == len(todo)
    for scheme in ("unary", "exact"):
        for kv in (False, True):
            some = [case for case in todo if (case.scheme, case.kv) == (scheme, kv) and case.gamma]
            assert len(some) == 64
            assert {case.gamma for case in some} == set(GAMMAS)
    assert all(case.plain in todo for case in todo)


def test_plain_replies_come_first_and_are_shared_by_lossless_schemes() -> None:
    todo = list(cases(["unary", "exact", "mx"], 2))
    plain = [case for case in todo if not case.gamma]
    assert todo[: len(plain)] == plain
    assert {case.scheme for case in plain} == {"exact", "mx"}
    assert Case(scheme="unary", kv=True, gamma=3, prompt=1).plain == plain[1]


def test_a_reply_that_differs_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    todo = list(cases(["unary"], 2))
    answers = Answers(tmp_path / "answers.json")
    for case in todo:
        answers.add(case, Answer(tokens=(1, 2, 3), accepted=2, drafted=4))
    assert report(todo, answers) == 0
    wrong = next(case for case in todo if case.gamma)
    answers.add(wrong, dataclasses.replace(answers[wrong], tokens=(1, 2, 4)))
    assert report(todo, Answers(tmp_path / "answers.json")) == 1  # as read from the file again
    assert "1/2" in capsys.readouterr().out


def test_the_number_of_prompts_is_known() -> None:
    with pytest.raises(CassandraError, match="prompts must be from 1 to 74, not 75"):
        main(["--prompts", "75"])
