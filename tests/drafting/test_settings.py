"""Settings: one vocabulary, checked once."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cassandra_spec.drafting import Settings
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
        ({"shortest": 5}, "shortest must be from 1 to 4 .longest., not 5"),
        ({"shortest": 0}, "shortest must be from 1 to 4 .longest., not 0"),
        ({"stop_strings": ("a", "")}, "stop_strings must not be empty strings"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(CassandraError, match=f"^{line}$"):
        Settings(**settings)


def test_the_old_name_of_the_minimum_margin_is_taken_with_a_notice() -> None:
    with pytest.warns(FutureWarning, match="least_lead is now min_margin"):
        settings = Settings(least_lead=0.5, gamma=2)
    assert settings == Settings(min_margin=0.5, gamma=2)
    assert dataclasses.replace(settings, gamma=3) == Settings(min_margin=0.5, gamma=3)


def test_gamma_0_uses_no_draft() -> None:
    hybrid = Settings(draft="hybrid")
    assert hybrid.uses_draft_view
    assert hybrid.uses_copies
    plain = dataclasses.replace(hybrid, gamma=0)
    assert not plain.uses_draft_view
    assert not plain.uses_copies
