"""Agreement of drafts by what they read of the cache, held to engines that seal from the start."""

from __future__ import annotations

from cassandra_spec.drafting import DraftCache
from cassandra_spec.lab.drafts.draft_cache import (
    Agreement,
    Reading,
    _agreements,
    lines,
    readings,
)
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.passes import WHOLE_CACHE
from tests.native.test_key_values import make, tokens

TOKENS = 12


def agreed(engine: Engine, prompt: list[int], cache: DraftCache) -> int:
    """Count agreements along the target's greedy reply, one draft pass for each of its tokens."""
    token, found = int(engine.forward(prompt, last=1)[0].argmax()), 0
    for position in range(len(prompt), len(prompt) + TOKENS):
        [draft] = engine.forward([token], position, draft=True, draft_cache=cache)
        [target] = engine.forward([token], position)
        token = int(target.argmax())
        found += int(draft.argmax()) == token
    return found


def test_every_reading_is_counted_as_by_an_engine_of_its_own() -> None:
    prompt, window = tokens(300), DraftCache(window=64, sinks=4)
    views = [
        Reading(),
        Reading(cache=window),
        *(Reading(bits=bits, cache=cache) for bits in (6, 3) for cache in (WHOLE_CACHE, window)),
        Reading(keep=20),
    ]
    with make(head_dim=64, context=512, slots=1) as engine:
        found = _agreements(engine, prompt, views, TOKENS)
        assert found == _agreements(engine, prompt, views, TOKENS)  # nothing is left over
    assert list(found) == views
    for view in views:
        with make(view.format, head_dim=64, context=512) as alone:
            assert found[view] == agreed(alone, prompt, view.cache), view.name


def test_readings_are_named_and_read_the_bits_that_they_name() -> None:
    found = readings([256], [16], [5], [48])
    assert [each.name for each in found] == [
        "everything",
        "window 256, 16 sinks",
        "everything, 5 bits",
        "window 1,024, 16 sinks, 5 bits",
        "everything, 48 values kept",
        "window 1,024, 16 sinks, 48 values kept",
    ]
    assert found[0].format is None
    five, kept = found[2].format, found[4].format
    assert five is not None
    assert kept is not None
    assert five.format.truncated == 4  # sign and four bits of the significand
    assert (kept.keep, kept.format.truncated) == (48, 0)


def test_a_table_has_a_row_for_each_reading() -> None:
    table = lines(
        [
            Agreement(context=context, reading=name, agreed=agreed, positions=100)
            for context, name, agreed in ((10, "a", 80), (20, "a", 50), (10, "b", 0), (20, "b", 7))
        ]
    )
    rows = [line.split() for line in table.splitlines()[2:]]
    assert rows[0] == ["a", "0.800", "+-", "0.040", "(80/100)", "0.500", "+-", "0.050", "(50/100)"]
    assert rows[1][:4] == ["b", "0.000", "+-", "0.000"]
