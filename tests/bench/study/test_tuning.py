"""The search, on landscapes that are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cassandra_spec.bench.study.acceptance import count, count_best
from cassandra_spec.bench.study.chains import Sequences
from cassandra_spec.bench.study.drafts import KeyValueBytes, Measured, Setting
from cassandra_spec.bench.study.emulation import Drafts, Replies
from cassandra_spec.bench.study.figure import draw_front
from cassandra_spec.bench.study.summary import best_flags
from cassandra_spec.bench.study.tuning import (
    MARGINS,
    Candidate,
    Score,
    State,
    eq_2,
    front,
    score,
    tune,
    with_margin,
)
from cassandra_spec.commands.arguments import build_parser
from cassandra_spec.drafting import Costs, ReadBytes
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.errors import FileError
from cassandra_spec.model.packing.packer import PackPlan
from cassandra_spec.model.weights.sources import open_source
from tests.model.tiny import write_model

DEPTH = 4


class Landscape:
    """Drafts that are right more often the more bits they read; KV costs nothing."""

    def __init__(self, best: Candidate) -> None:
        self.best = best.setting().name
        self.right = {self.best: 4}  # drafted tokens that are right, by setting; 1 of others
        self.seen: list[str] = []

    def __call__(self, setting: Setting) -> Measured:
        self.seen.append(setting.name)
        right = self.right.get(setting.name, 1)
        reply = tuple(range(21))
        return Measured(
            setting=setting,
            replies=Replies(
                prompts=((1, 2),),
                replies=(reply,),
                max_tokens=21,
                stop_tokens=frozenset(),
                sequences=Sequences(1),
                likely=((),),
            ),
            drafts=(
                Drafts(
                    tokens=np.array(
                        [[k + 1 + s if s < right else -1 for s in range(DEPTH)] for k in range(20)]
                    ),
                    seconds=np.full((20, DEPTH), -2),
                    margins=np.ones((20, DEPTH), np.float32),
                ),
            ),
            costs=Costs(
                linear=ReadBytes(draft=300, target=700, bf16=1000),
                head=ReadBytes(draft=30, target=70, bf16=100),
                other=0,
                position=0,
            ),
            kv=KeyValueBytes(bf16=0),
        )


def search(landscape: Callable[[Setting], Measured], state: State, **options: Any) -> list[Score]:
    def measure(candidates: Sequence[Candidate]) -> Iterator[Score]:
        return (score(each, landscape(each.setting()), DEPTH) for each in candidates)

    return tune(measure, state, **options)


@pytest.mark.parametrize(
    "best",
    [
        Candidate(scheme="unary", prune=0.2, truncated=5),
        Candidate(scheme="exact", truncated=4, head=1),
        Candidate(scheme="exact", truncated=5, kv=None),
        Candidate(scheme="mx", truncated=4, kv=3),
    ],
    ids=lambda candidate: candidate.name,
)
def test_the_best_is_found(best: Candidate, tmp_path: Path) -> None:
    landscape = Landscape(best)
    if best.head or best.kv != 4:  # a treatment is looked at on the best of the grid
        start = Candidate(scheme=best.scheme, truncated=best.truncated)
        landscape = Landscape(start)
    state = State(tmp_path / "state.json", {})
    scores = search(landscape, state)
    assert scores[0].candidate.setting().name == landscape.best
    assert len(landscape.seen) == len(set(landscape.seen)) == len(scores)
    assert best in {found.candidate for found in scores}
    assert [found.speedup for found in scores] == sorted((s.speedup for s in scores), reverse=True)


def test_a_search_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    file, landscape = tmp_path / "state.json", Landscape(Candidate(scheme="exact", truncated=5))
    whole = search(landscape, State(tmp_path / "other.json", {"a": 1}))
    total = len(landscape.seen)

    class StoppedError(Exception):
        pass

    def stopping(setting: Setting) -> Measured:
        if len(landscape.seen) == 5:
            raise StoppedError
        return landscape(setting)

    landscape.seen.clear()
    with pytest.raises(StoppedError):
        search(stopping, State(file, {"a": 1}))
    assert search(landscape, State(file, {"a": 1})) == whole
    assert len(landscape.seen) == len(set(landscape.seen)) == total


def test_a_state_of_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    search(Landscape(Candidate(scheme="mx")), State(file, {"a": 1}), schemes=["mx"])
    with pytest.raises(FileError, match="must be of a search over the same model"):
        State(file, {"a": 2})
    file.write_text("{}")
    with pytest.raises(FileError, match="must be the state of a search"):
        State(file, {"a": 1})


def test_schemes_are_known(tmp_path: Path) -> None:
    state = State(tmp_path / "state.json", {})
    with pytest.raises(CassandraError, match="schemes must be of unary, mx, exact, not 'ternary'"):
        search(Landscape(Candidate(scheme="mx")), state, schemes=["ternary"])


@pytest.mark.parametrize("threshold", [0.5, 1.0])
def test_the_margin_that_tells_right_from_wrong_is_found(threshold: float) -> None:
    """Right drafts have this margin, wrong ones a smaller one; one minimum separates them best."""
    candidate = Candidate(scheme="exact")
    measured = Landscape(Candidate(scheme="mx"))(candidate.setting())
    right = np.array([[(k + s) % 5 != 0 for s in range(DEPTH)] for k in range(20)])
    truth = np.array([[k + 1 + s for s in range(DEPTH)] for k in range(20)])
    below = MARGINS[MARGINS.index(threshold) - 1]
    drafts = Drafts(
        tokens=np.where(right, truth, -1),
        seconds=np.full(truth.shape, -2),
        margins=np.where(right, threshold, below).astype(np.float32),
    )
    measured = dataclasses.replace(measured, drafts=(drafts,))
    found = score(candidate, measured, DEPTH)
    assert found.min_margin == threshold
    assert found.speedup > found.speedup_without
    assert found.speedup_without == count_best(measured, DEPTH).speedup
    assert found.speedup == count_best(with_margin(measured, threshold), DEPTH).speedup


def test_without_a_gain_there_is_no_min_margin() -> None:
    candidate = Candidate(scheme="exact")
    found = score(candidate, Landscape(candidate)(candidate.setting()), DEPTH)
    assert found.min_margin == 0
    assert found.speedup == found.speedup_without


@pytest.mark.parametrize("kv", [None, 3])
def test_the_command_of_the_best_has_its_keys_and_values(kv: int | None) -> None:
    candidate = Candidate(scheme="exact", kv=kv)
    given = score(candidate, Landscape(candidate)(candidate.setting()), DEPTH)
    line = f"generate packed {best_flags(given)} --prompt x"
    args = build_parser().parse_args(line.split())
    assert (args.kv, args.kv_truncated) == ("bf16", 4) if kv is None else ("unary", 3)


def test_eq_2_by_hand() -> None:
    candidate = Candidate(scheme="unary", prune=0.4, truncated=4)
    measured = Landscape(candidate)(candidate.setting())
    at = count(measured, DEPTH)
    # Acceptance 1 over (1 - 0.4)(16 - 4) bits of 16, no keys and values.
    assert eq_2(candidate, at) == pytest.approx(1 / (0.6 * 12 / 16))


def test_plans_pack(tmp_path: Path) -> None:
    source = open_source(write_model(tmp_path / "m"))
    head = "lm_head.weight"
    plain = Candidate(scheme="exact", truncated=4)
    assert plain.plan().recipes(source)[head].format.truncated == 4
    closer = Candidate(scheme="unary", truncated=4, prune=0.4, head=1).plan().recipes(source)[head]
    assert (closer.format.truncated, closer.prune) == (3, 0.0)
    assert head not in Candidate(scheme="mx", head=None).plan().recipes(source)
    file = tmp_path / "plan.toml"
    plain.plan().save(file)
    assert PackPlan.load(file).recipes(source) == plain.plan().recipes(source)


def test_layers_have_bits_of_their_own(tmp_path: Path) -> None:
    source = open_source(write_model(tmp_path / "m", num_hidden_layers=4))
    found = Candidate(scheme="exact", head=1, early=2, late=1, layers=4).plan().recipes(source)
    by_layer = [found[f"model.layers.{layer}.mlp.up_proj.weight"] for layer in range(4)]
    assert [recipe.format.truncated for recipe in by_layer] == [5, 5, 4, 3]
    assert found["lm_head.weight"].format.truncated == 3


def test_bits_by_layer_are_tried_on_the_best(tmp_path: Path) -> None:
    best = Candidate(scheme="exact", head=1, early=10, late=5, layers=30)
    start = dataclasses.replace(best, early=0, late=0, layers=0)
    grid = dataclasses.replace(start, head=0)
    landscape = Landscape(best)
    landscape.right |= {grid.setting().name: 2, start.setting().name: 3}
    scores = search(landscape, State(tmp_path / "state.json", {}), layers=30)
    assert scores[0].candidate == best
    tried = {(s.candidate.early, s.candidate.late) for s in scores if s.candidate.head == 1}
    assert tried == {(early, late) for early in (0, 5, 10, 15) for late in (0, 5)}


def _score(bits: float, speedup: float) -> Score:
    return Score(
        candidate=Candidate(scheme="unary"),
        gamma=1,
        min_margin=0.0,
        acceptance=0.5,
        speedup=speedup,
        speedup_without=speedup,
        plain_speedup=1.0,
        draft_bits=5,
        target_bits=bits,
        eq_2=1,
    )


def test_the_front_beats_all_others() -> None:
    some = [_score(12, 1.9), _score(11, 1.8), _score(13, 1.85), _score(11, 1.7), _score(14, 2.0)]
    assert front(some) == [some[1], some[0], some[4]]


def test_the_plot_names_the_points_of_the_front() -> None:
    some = [_score(11, 1.8), _score(13, 1.9)]
    some[1] = dataclasses.replace(some[1], candidate=Candidate(scheme="exact", group=32))
    other = dataclasses.replace(_score(12, 1.1), candidate=Candidate(scheme="mx"))
    text = draw_front([*some, other], title="tuning").decode()
    assert all(score.candidate.name in text for score in some)
    assert other.candidate.name not in text
