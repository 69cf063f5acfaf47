"""Benchmarks of exits and of projections, on a small model with known replies."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.drafting import Counters, Settings
from cassandra_spec.lab.compare import exits as exits_bench
from cassandra_spec.lab.compare import projection as projection_bench
from cassandra_spec.lab.compare.known_replies import Chains, KnownReply
from cassandra_spec.model.speculative import CassandraForCausalLM
from tests.lab.baselines.replies import PROMPTS
from tests.lab.baselines.test_exits import exits, file

__all__ = ["exits", "file"]  # fixtures


@pytest.fixture
def replies(lm: CassandraForCausalLM, monkeypatch: pytest.MonkeyPatch) -> list[KnownReply]:
    """Known replies of torch instead of the native engine's."""
    asked, found = Settings(gamma=0, max_tokens=24), []
    for prompt in PROMPTS:
        reply = list(itertools.chain.from_iterable(lm.rounds(prompt, asked, Counters())))
        found.append(KnownReply(prompt=list(prompt), reply=reply))

    def known(*_: Any, **__: Any) -> list[KnownReply]:
        return found

    monkeypatch.setattr(exits_bench, "known_replies", known)
    monkeypatch.setattr(projection_bench, "known_replies", known)
    monkeypatch.setattr(projection_bench, "KEY_VALUE_RANKS", (8,))
    monkeypatch.setattr(projection_bench, "_VALUES", "model.layers.1.self_attn.v_proj")
    return found


def test_chains_are_rounds_of_known_places() -> None:
    right = [[True, True, False, True, True, True, True]]
    found = Chains.of(right, 3, 99)
    assert found.agreement == pytest.approx(6 / 7)
    assert found.per_verification == 7 / 2  # 2 + 1, then 3 + 1 of the last four
    assert found.acceptance == pytest.approx(5 / 6)


def test_exits_are_measured(six_layers: Path, file: Path, replies: list[KnownReply]) -> None:
    bench = exits_bench.Bench(six_layers, file, max_tokens=24, threads=1)
    found = bench.run(1)
    assert [each.layer for each in found.exits] == [2, 4]
    for each in found.exits:
        assert 0 <= each.chains[3].agreement <= 1
        assert each.depth < 1
        assert sum(b.tokens for b in each.reliability) == sum(len(r.reply) - 1 for r in replies)
    assert found.exits[0].share < found.exits[1].share < 1
    plain = found.cascades[0]
    assert plain.precision == 1
    for cascade in found.cascades[1:]:
        assert sum(cascade.left.values()) == pytest.approx(1)
        assert 0 <= cascade.precision <= 1
    text = exits_bench.cascade_lines(found.cascades)
    assert "largest F1" in text
    assert exits_bench.draw(found.exits, title="exits").startswith(b"<?xml")


def test_projections_are_measured(six_layers: Path, replies: list[KnownReply]) -> None:
    found = projection_bench.Bench(six_layers, (40, 20), max_tokens=24, threads=1).run()
    assert found.target.chains.agreement == 1
    assert [(each.rank, each.by) for each in found.attention] == [
        *((40, "weights"), (40, "activations"), (20, "weights"), (20, "activations"))
    ]
    assert all(each.share < 2 for each in found.attention)
    assert all(0 < each.shared <= 1 for each in found.attention)
    zero, drawn = found.residuals
    assert zero.forced == found.target
    assert drawn.forced != found.target
    assert found.caches[0].megabytes[32768] == 4 * found.caches[0].megabytes[8192]
    assert "block attention residuals" in projection_bench.lines(found)


def test_activations_may_be_of_conversations_of_its_own(six_layers: Path) -> None:
    options = {"max_tokens": 8, "threads": 1}
    bundled = projection_bench.Bench(six_layers, (20,), **options)
    own = projection_bench.Bench(six_layers, (20,), own_text=100, **options)
    again = projection_bench.Bench(six_layers, (20,), own_text=100, **options)
    for name, gram in own.grams.items():
        assert gram.shape == bundled.grams[name].shape
        assert not gram.equal(bundled.grams[name])
        assert gram.equal(again.grams[name])
