"""A short run of each backend on small models, and that a reply that differs is seen."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import pytest

from cassandra_spec.lab.soak import native_replies, torch_replies
from cassandra_spec.lab.soak.__main__ import compare, main
from cassandra_spec.lab.soak.cases import Case, Prompts, Run, with_plain
from cassandra_spec.lab.soak.native_replies import DRAFTS, POSITIONS
from cassandra_spec.model.packing.packer import pack_model
from cassandra_spec.model.weights.sources import open_source
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.limits import MAX_GAMMA
from tests.model.speculative.conftest import RECIPE
from tests.model.tiny import write_model
from tests.toolkit.workers.on_cluster import killing, local_cluster


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a packed model that has room for whole contexts."""
    folder = tmp_path_factory.mktemp("engine")
    source = write_model(folder / "plain", max_position_embeddings=POSITIONS)
    pack_model(open_source(source), folder / "exact", RECIPE, jobs=1)
    return folder


@pytest.mark.slow
def test_the_native_engine_with_whole_contexts(small: Path) -> None:
    pairs = list(native_replies.pairs(["exact"], 12))
    run = Run(folder=small, max_tokens=48, threads=2)
    answers = {case: native_replies.answer(run, case) for case in with_plain(pairs)}
    assert compare(pairs, answers, "target") == 0
    prompts = Prompts.of(small / "exact")
    assert max(len(prompts(case)) for case, _ in pairs) > 1890
    found = [answers[case] for case, _ in pairs]
    assert 0 < sum(each.accepted for each in found) < sum(each.drafted for each in found)
    assert sum(each.copied for each in found) > 0
    plain = pairs[3][1]
    tokens = answers[plain].tokens
    answers[plain] = dataclasses.replace(answers[plain], tokens=(*tokens[:-1], tokens[-1] ^ 1))
    assert compare(pairs, answers, "target") == 1


def test_the_torch_runtime_with_both_kinds_of_cache(small: Path) -> None:
    pairs = list(torch_replies.pairs(["exact"], 2))
    run = Run(folder=small, max_tokens=16, threads=1)
    answers = {case: torch_replies.answer(run, case) for case in with_plain(pairs)}
    assert compare(pairs, answers, "KV") == 0


@pytest.mark.slow
def test_a_cluster_gives_the_same_replies_though_a_worker_is_killed(
    small: Path, tmp_path: Path
) -> None:
    def soak(name: str, *flags: str) -> dict[str, bytes]:
        out = tmp_path / name
        out.mkdir()
        (out / "exact").symlink_to(small / "exact")
        command = ["--out", str(out), "--schemes", "exact", "--prompts", "3", *flags]
        assert main([*command, "--max-tokens", "16"]) == 0
        return {file.name: file.read_bytes() for file in out.glob("answers-*.journal")}

    def begun() -> bool:
        """Return whether the journal has an answer."""
        return any(file.stat().st_size for file in (tmp_path / "there").glob("*.journal"))

    with local_cluster() as address, killing(address, begun):
        there = soak("there", "--cluster", address)
    assert len(there) == 1
    assert there == soak("here", "--jobs", "1")


@pytest.mark.slow
def test_smollm2_on_some_prompts(tmp_path: Path) -> None:
    pack_model(open_source("smollm2"), tmp_path / "exact", RECIPE)
    prompts = Prompts(tmp_path / "exact")
    with Engine.from_packed(tmp_path / "exact", threads=2, context=512) as engine:
        answer = partial(native_replies.reply, engine, prompts, max_tokens=32)
        accepted = 0
        for prompt, gamma, margin in ((0, 3, 0.0), (1, MAX_GAMMA, 0.75), (2, 5, 0.0)):
            case = Case(
                scheme="exact",
                variant="bf16",
                prompt=prompt,
                draft=DRAFTS[prompt],
                gamma=gamma,
                min_margin=margin,
            )
            found = answer(case)
            assert found.tokens == answer(case.plain("bf16")).tokens
            accepted += found.accepted
    assert accepted > 10
