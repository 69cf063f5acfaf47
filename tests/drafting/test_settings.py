"""Settings: one vocabulary, checked once."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cassandra_spec.drafting import DraftKind, Levels, Settings
from cassandra_spec.golden import CassandraError


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"gamma": -1}, "gamma must be from 0 to 4096, or 'adaptive', not -1"),
        ({"gamma": 10**40}, f"gamma must be from 0 to 4096, or 'adaptive', not {10**40}"),
        ({"gamma": "fast"}, "gamma must be from 0 to 4096, or 'adaptive', not 'fast'"),
        ({"draft": "guess"}, "draft must be one of model, lookup, hybrid, none, not 'guess'"),
        ({"min_margin": -0.1}, "min_margin must be a number from 0 on, not -0.1"),
        ({"min_margin": float("nan")}, "min_margin must be a number from 0 on, not nan"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, not 0"),
        ({"stop_strings": ("a", "")}, "stop_strings must not be empty strings"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(CassandraError, match=f"^{line}$"):
        Settings(**settings)


@pytest.mark.parametrize(
    ("levels", "line"),
    [
        ({"low": -1}, "low must be at least 0, not -1"),
        ({"low": "3"}, "low must be at least 0, not '3'"),
        ({"branches": 0}, "branches must be at least 1, not 0"),
        ({"rows": 1.5}, "rows must be at least 0, not 1.5"),
        ({"alternatives": -2}, "alternatives must be at least 0, not -2"),
        ({"tail": "yes"}, "tail must be True or False, not 'yes'"),
        ({"alternative_margin": -0.5}, "alternative_margin must be a number from 0 on, not -0.5"),
        ({"alternative_margin": None}, "alternative_margin must be a number from 0 on, not None"),
    ],
)
def test_bad_levels_are_named(levels: dict[str, Any], line: str) -> None:
    with pytest.raises(CassandraError, match=f"^{line}$"):
        Levels(**levels)


def test_the_old_name_of_the_minimum_margin_is_taken_with_a_notice() -> None:
    with pytest.warns(FutureWarning, match="least_lead is now min_margin"):
        settings = Settings(least_lead=0.5, gamma=2)
    assert settings == Settings(min_margin=0.5, gamma=2)
    assert dataclasses.replace(settings, gamma=3) == Settings(min_margin=0.5, gamma=3)


@pytest.mark.parametrize(
    ("draft", "view", "low"),
    [
        ("model", True, False),
        ("lookup", False, True),
        ("hybrid", True, True),
        ("none", False, False),
    ],
)
def test_kinds_of_drafts_use_levels(draft: DraftKind, view: bool, low: bool) -> None:
    asked = Settings(draft=draft)
    assert (asked.uses_draft_view, asked.uses_low_drafter) == (view, low)
    plain = dataclasses.replace(asked, gamma=0)
    assert not plain.uses_draft_view
    assert not plain.uses_low_drafter
