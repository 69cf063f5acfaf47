"""Patterns, the handshake's rules, and the drivers on a small design."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.library.patterns import PATTERNS, Kind, Pattern
from cassandra_spec.verif.library.streams import HandshakeChecker, ProtocolError
from cassandra_spec.verif.tools.runner import run_suite
from cassandra_spec.verif.tools.simulated import run_simulated
from tests.verif import streams_testbench
from tests.verif.stages import DROPS, Stage


def cycles(pattern: Pattern, rng: np.random.Generator, count: int) -> list[bool]:
    return list(itertools.islice(pattern.cycles(rng), count))


def runs(active: Sequence[bool]) -> list[tuple[bool, int]]:
    return [(value, len(list(group))) for value, group in itertools.groupby(active)]


def test_periodic_patterns_are_exact(rng: np.random.Generator) -> None:
    pattern = Pattern(kind=Kind.PERIODIC, on=2, off=3)
    assert cycles(pattern, rng, 10) == [False, False, False, True, True] * 2


def test_random_patterns_have_their_share(rng: np.random.Generator) -> None:
    """A quarter of 10,000: within six standard deviations."""
    active = cycles(Pattern(kind=Kind.RANDOM, on=1, off=3), rng, 10_000)
    assert abs(sum(active) - 2500) < 6 * (10_000 * 3 / 16) ** 0.5


def test_bursts_are_no_longer_than_asked(rng: np.random.Generator) -> None:
    active = runs(cycles(Pattern(kind=Kind.BURST, on=5, off=9), rng, 5000))
    longest = {value: max(n for v, n in active if v is value) for value in (False, True)}
    assert longest == {False: 9, True: 5}
    assert {n for value, n in active[:-1] if value} == set(range(1, 6))


@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_moves_in_the_end_and_replays(name: str) -> None:
    first, again = (cycles(PATTERNS[name], np.random.default_rng(5), 500) for _ in range(2))
    assert any(first)
    assert all(first) == (name == "always")
    assert first == again


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"on": 0}, "pattern must be at least one cycle on and none off, not 0, 0"),
        ({"off": -1}, "pattern must be at least one cycle on and none off, not 1, -1"),
        ({"kind": Kind.RANDOM}, "off must be at least 1 for random, not 0"),
    ],
)
def test_patterns_that_cannot_be_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(CassandraError, match=message):
        Pattern(**fields)  # type: ignore[arg-type]


def test_the_checker_knows_the_rules() -> None:
    checker = HandshakeChecker("port")
    one, two = {"data": 1}, {"data": 2}
    for valid, ready, item in [
        (False, True, None),
        (True, False, one),
        (True, False, one),
        (True, True, one),
        (True, True, two),
        (False, False, None),
    ]:
        checker.cycle(valid, ready, item)
    checker.cycle(True, False, one)
    with pytest.raises(ProtocolError, match="port: the payload changed while it waited"):
        checker.cycle(True, True, two)
    checker.cycle(True, False, one)
    with pytest.raises(ProtocolError, match="port: valid fell before ready"):
        checker.cycle(False, True, None)
    checker.cycle(True, False, one)
    checker.reset()
    checker.cycle(False, True, None)


def test_the_drivers_on_a_register_stage() -> None:
    build = Path(__file__).parents[2] / "build" / "cocotb" / "streams"
    result = run_suite(Stage(), "tests.verif.streams_testbench", "stage", build_dir=build)
    assert len(result.tests) == len(PATTERNS) ** 2 + 5


def test_the_same_tests_in_the_other_simulator() -> None:
    """Broken stages are found there, too, or the tests would fail; one that fails is named."""
    assert len(run_simulated(streams_testbench)) == len(PATTERNS) ** 2 + 5
    with (
        mock.patch.object(streams_testbench, "RIGHT", DROPS),
        pytest.raises(AssertionError, match="counts_of_waiting: m_axis: valid fell before ready"),
    ):
        run_simulated(streams_testbench, "counts_of_waiting")
    with pytest.raises(CassandraError, match=r"must select a test of .*, not 'no_such_test'"):
        run_simulated(streams_testbench, "no_such_test")
