"""Settings: one vocabulary, checked once."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassandra_spec.drafting import DraftCache, DraftKind, Levels, Settings
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
        ({"min_margin": True}, "min_margin must be a number from 0 on, not True"),
        ({"min_margin": "1"}, "min_margin must be a number from 0 on, not '1'"),
        *(
            ({"max_tokens": value}, f"max_tokens must be an integer of at least 1, not {value!r}")
            for value in (0, 2.5, True, float("nan"), float("inf"), "3")
        ),
        ({"stop_strings": ("a", "")}, "stop_strings must not be empty strings"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(CassandraError, match=f"^{line}$"):
        Settings(**settings)


@pytest.mark.parametrize(
    ("levels", "line"),
    [
        ({"low": -1}, "low must be an integer of at least 0, not -1"),
        ({"low": "3"}, "low must be an integer of at least 0, not '3'"),
        ({"branches": 0}, "branches must be an integer of at least 1, not 0"),
        ({"rows": 1.5}, "rows must be an integer of at least 0, not 1.5"),
        ({"rows": True}, "rows must be an integer of at least 0, not True"),
        ({"alternatives": -2}, "alternatives must be an integer of at least 0, not -2"),
        ({"tail": "yes"}, "tail must be True or False, not 'yes'"),
        ({"alternative_margin": -0.5}, "alternative_margin must be a number from 0 on, not -0.5"),
        ({"alternative_margin": float("nan")}, "alternative_margin must be .*, not nan"),
        ({"alternative_margin": None}, "alternative_margin must be a number from 0 on, not None"),
    ],
)
def test_bad_levels_are_named(levels: dict[str, Any], line: str) -> None:
    with pytest.raises(CassandraError, match=f"^{line}$"):
        Levels(**levels)


@pytest.mark.parametrize(
    ("cache", "line"),
    [
        ({"window": 0}, "window must be from 1 to 2147483647, or None, not 0"),
        ({"window": 2.5}, "window must be from 1 to 2147483647, or None, not 2.5"),
        ({"window": True}, "window must be from 1 to 2147483647, or None, not True"),
        ({"sinks": -1}, "sinks must be from 0 to 2147483647, not -1"),
        ({"sinks": None}, "sinks must be from 0 to 2147483647, not None"),
    ],
)
def test_a_bad_draft_cache_is_named(cache: dict[str, Any], line: str) -> None:
    with pytest.raises(CassandraError, match=f"^{line}$"):
        DraftCache(**cache)


@given(
    window=st.one_of(st.none(), st.integers(1, 300)),
    sinks=st.integers(0, 80),
    position=st.integers(0, 600),
    own=st.integers(0, 8),
    first=st.integers(0, 600),
)
def test_a_draft_sees_sinks_and_at_least_its_window(
    window: int | None, sinks: int, position: int, own: int, first: int
) -> None:
    cache = DraftCache(window=window, sinks=sinks)
    runs = cache.runs(position, first, position + own)
    seen = [place for run in runs for place in range(*run)]
    assert seen == sorted(set(seen))
    last = position if window is None else window
    needed = {place for place in range(first, position + own) if place >= position - last}
    needed |= set(range(first, min(sinks, position + own)))
    assert needed <= set(seen)
    assert len(set(seen) - needed) < DraftCache.STEP or sinks >= cache.start(position)


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
