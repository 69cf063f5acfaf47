"""The event model of decoder buffers: by hand, by its bounds, and against the closed form."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassandra_spec.lab.system.costs import load_formats
from cassandra_spec.lab.system.device import known_devices
from cassandra_spec.lab.system.errors import SystemModelError
from cassandra_spec.lab.system.events import Buffers, closed_form, events, stretch


def buffers(**changes: float) -> Buffers:
    base = Buffers(blocks=10, decoders=1, rooms=1, transfer=2.0, decode=3.0)
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({}, 10 * (2 + 3)),  # one room: receiving and decoding take turns
        ({"rooms": 2}, 2 + 10 * 3),  # decoding sets the pace after the first arrival
        ({"rooms": 2, "decode": 1.0}, 10 * 2 + 1),  # the memory does; the last one is decoded
        ({"decoders": 2, "rooms": 2}, 10 * 2 + 3),  # two decoders keep up
        ({"decoders": 2, "decode": 4.0}, 28 + 4),  # sent at 2 4, 8 10, 14 16, 20 22, 26 28
        ({"blocks": 1}, 2 + 3),
    ],
)
def test_runs_by_hand(changes: dict[str, float], seconds: float) -> None:
    assert events(buffers(**changes)) == pytest.approx(seconds)


@given(
    blocks=st.integers(1, 60),
    decoders=st.integers(1, 5),
    rooms=st.integers(1, 4),
    decode=st.floats(0.1, 20),
    jitter=st.floats(0, 1),
)
def test_nothing_is_faster_than_its_slowest_part(
    blocks: int, decoders: int, rooms: int, decode: float, jitter: float
) -> None:
    run = buffers(blocks=blocks, decoders=decoders, rooms=rooms, decode=decode, jitter=jitter)
    assert events(run) >= blocks * run.transfer
    steady = dataclasses.replace(run, jitter=0.0)
    assert events(steady) >= closed_form(steady) * (1 - 1e-12)
    assert events(steady) <= blocks * (run.transfer + decode) * (1 + 1e-12)
    more = dataclasses.replace(run, rooms=rooms + 1)
    assert events(more) <= events(run)


@pytest.mark.parametrize("name", known_devices())
@pytest.mark.parametrize("scheme", [cost.name for cost in load_formats().values() if cost.coded])
@pytest.mark.parametrize("draft", [True, False])
@pytest.mark.parametrize("cache", [True, False])
def test_events_and_closed_form_agree_within_three_percent(
    name: str, scheme: str, draft: bool, cache: bool
) -> None:
    run = stretch(name, scheme=scheme, draft=draft, cache=cache, rooms=2)
    assert run.decode / run.decoders < run.transfer  # the closed form: buffers are no bottleneck
    assert events(run) == pytest.approx(closed_form(run), rel=0.03)


def test_slow_decoders_set_the_pace_in_both() -> None:
    run = dataclasses.replace(stretch("npu", draft=True, rooms=2), decoders=20)
    assert closed_form(run) > run.blocks * run.transfer
    assert events(run) == pytest.approx(closed_form(run), rel=0.03)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rooms": 0}, "rooms must be an integer, at least 1, not 0"),
        ({"decode": 0.0}, "decode must be a number above 0, not 0.0"),
        ({"jitter": 1.5}, "1 - jitter must be a number at least 0, not -0.5"),
    ],
)
def test_wrong_buffers(changes: dict[str, float], message: str) -> None:
    with pytest.raises(SystemModelError) as error:
        buffers(**changes)
    assert str(error.value) == message
