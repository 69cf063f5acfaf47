"""The regression's own logic: which replies it asks for, and that it sees one that differs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cassandra_spec.lab.soak import native_replies, torch_replies
from cassandra_spec.lab.soak.__main__ import compare, main
from cassandra_spec.lab.soak.cases import RECIPES, Answer, with_plain
from cassandra_spec.lab.soak.native_replies import (
    COMPANY,
    CONTEXTS,
    DRAFTS,
    LEVELS,
    TEMPERATURES,
)
from cassandra_spec.lab.soak.torch_replies import BF16, GAMMAS, PACKED
from cassandra_spec.native.limits import MAX_GAMMA


def test_every_scheme_meets_every_gamma_with_both_kinds_of_cache() -> None:
    pairs = list(torch_replies.pairs(list(RECIPES), 64))
    todo = list(with_plain(pairs))
    assert len(set(todo)) == len(todo)
    assert len({case.key for case in todo}) == len(todo)
    for scheme in ("unary", "exact"):
        for variant in (BF16, PACKED):
            some = [case for case, _ in pairs if (case.scheme, case.variant) == (scheme, variant)]
            assert len(some) == 64
            assert {case.gamma for case in some} == set(GAMMAS)


def test_every_setting_of_the_native_engine_takes_part() -> None:
    pairs = list(native_replies.pairs(list(RECIPES), 60))
    assert len(pairs) == 60 * 3 * len(native_replies.TARGETS)
    some = [case for case, _ in pairs if (case.scheme, case.variant) == ("exact", "packed12")]
    assert {case.gamma for case in some} == {*range(1, MAX_GAMMA + 1), "adaptive"}
    assert {(case.temperature, case.beside) for case in some} == {
        (temperature, beside) for temperature in TEMPERATURES for beside in COMPANY
    }
    for context in set(CONTEXTS):
        assert {case.draft for case in some if case.context == context} == set(DRAFTS)
    for draft in DRAFTS:
        own = [case for case in some if case.draft == draft]
        assert {case.min_margin for case in own} == {0.0, 0.75}
        assert {case.levels for case in own} == set(LEVELS)
        assert {case.temperature for case in own} == set(TEMPERATURES)
        long = [case for case in own if (case.context or 0) >= 1900]
        assert len({case.levels for case in long}) >= 3


@pytest.mark.parametrize("backend", [torch_replies, native_replies])
def test_plain_replies_come_first_and_are_shared_by_lossless_schemes(backend: Any) -> None:
    pairs = list(backend.pairs(["unary", "exact", "mx"], 3))
    todo = list(with_plain(pairs))
    plain = [case for case in todo if case.draft == "none"]
    assert todo[: len(plain)] == plain
    assert {case.scheme for case in plain} == {"exact", "mx"}
    for case, other in pairs:
        for name in ("prompt", "context", "temperature"):
            assert getattr(case, name) == getattr(other, name)
        assert other.beside == 0
        assert (other.gamma, other.draft, other.min_margin) == (0, "none", 0.0)


def test_a_reply_that_differs_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = list(torch_replies.pairs(["unary"], 2))
    same = Answer(tokens=(1, 2, 3), accepted=2, drafted=4, copied=0)
    answers = dict.fromkeys(with_plain(pairs), same)
    assert compare(pairs, answers, "KV") == 0
    assert "2/2" in capsys.readouterr().out
    wrong = pairs[0][0]
    answers[wrong] = dataclasses.replace(same, tokens=(1, 2, 4))
    assert compare(pairs, answers, "KV") == 1
    printed = capsys.readouterr()
    assert "1/2" in printed.out
    assert printed.err == f"differs at token 2: {wrong}\n"


def test_bad_flags_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--prompts", "75"]) == 2
    assert "prompts must be from 1 to 74, not 75" in capsys.readouterr().err
    assert main(["--table", "rows.safetensors"]) == 2
    assert "table must be left out with torch, not 'rows" in capsys.readouterr().err
