"""pack with calibration and recipe files, calibrate, accuracy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cassandra_spec.golden import Format
from cassandra_spec.model.packing.calibration import Calibration, Norms, calibrate
from cassandra_spec.model.packing.packer import Override, PackPlan, Recipe, open_packed, pack_model
from cassandra_spec.model.weights.sources import EMBEDDING, open_source
from tests.commands.test_command import LINEAR, Output, error_of, run

WORDS = " ".join(f"word{(number * 7) % 94}" for number in range(50))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(" ".join([WORDS] * 8))
    return path


def same(one: Path, two: Path) -> bool:
    first, second = (np.fromfile(path / "model.safetensors", np.uint8) for path in (one, two))
    return np.array_equal(first, second)


def test_pruning_is_by_wanda_unless_the_flag_says_otherwise(llama: Path, tmp_path: Path) -> None:
    source = open_source(llama)
    format = Format(truncated=5)
    for name, scores in (("wanda", ()), ("magnitude", ("--prune-scores", "magnitude"))):
        flags = ["--prune", "0.4", "--truncated", "5", *scores]
        assert run("pack", llama, tmp_path / name, *flags, "--quiet") == 0
    norms = calibrate(source)
    recipe = Recipe(format=format, prune=0.4)
    pack_model(source, tmp_path / "a", recipe, norms=norms, jobs=1)
    pack_model(source, tmp_path / "b", recipe.without_norms(), jobs=1)
    assert same(tmp_path / "wanda", tmp_path / "a")
    assert same(tmp_path / "magnitude", tmp_path / "b")
    assert not same(tmp_path / "a", tmp_path / "b")


def test_norms_from_a_text_and_from_a_file(
    llama: Path, tmp_path: Path, text: Path, output: Output
) -> None:
    norms = tmp_path / "norms.safetensors"
    assert run("calibrate", llama, norms, "--calibration", text) == 0
    assert "norms of 15 tensors over 32,768 tokens" in output.readouterr().err
    assert Norms.load(norms).digest() == (
        calibrate(open_source(llama), Calibration(text=text)).digest()
    )
    flags = ["--scheme", "exact", "--group-exponents", "weighted", "--calibration"]
    for file in (text, norms):
        assert run("pack", llama, tmp_path / file.stem, *flags, file, "--quiet") == 0
    assert same(tmp_path / "text", tmp_path / "norms")


def test_calibration_that_nothing_needs_is_mentioned(
    llama: Path, tmp_path: Path, text: Path, output: Output
) -> None:
    assert run("pack", llama, tmp_path / "p", "--calibration", text) == 0
    assert "text.txt is not used: nothing is pruned or weighted by it" in output.readouterr().err


def test_a_recipe_file(llama: Path, tmp_path: Path) -> None:
    plan = PackPlan(
        default=Recipe(format=Format(scheme="mx", fill="midpoint")),
        overrides=(Override(tensors=LINEAR, changes={"truncated": 2}),),
    )
    plan.save(tmp_path / "plan.toml")
    flags = ["--recipe", tmp_path / "plan.toml", "--keep", "lm_head.weight", "--pack-embedding"]
    assert run("pack", llama, tmp_path / "p", *flags, "--quiet") == 0
    packed = open_packed(tmp_path / "p")
    assert packed.tensors[LINEAR].format == Format(scheme="mx", fill="midpoint", truncated=2)
    assert packed.tensors[EMBEDDING].format == Format(scheme="mx", fill="midpoint")
    assert "lm_head.weight" in packed.others


def test_flags_beside_a_recipe_file(llama: Path, tmp_path: Path, output: Output) -> None:
    file = tmp_path / "plan.toml"
    PackPlan().save(file)
    message = error_of(output, "pack", llama, tmp_path / "p", "--recipe", file, "--truncated", "3")
    assert message == f"truncated must be in {file} or given, not both"
    message = error_of(output, "pack", llama, tmp_path / "p", "--recipe", tmp_path / "none")
    assert message == f"{tmp_path / 'none'} must be a plan file, and is missing"
    message = error_of(output, "pack", llama, tmp_path / "p", "--keep", "lm_haed*")
    assert message == "override 1: tensors must match a name, and 'lm_haed*' matches none"


def test_where_norms_cannot_be_written(llama: Path, tmp_path: Path, output: Output) -> None:
    for place in (tmp_path, tmp_path / "nowhere/norms"):
        message = error_of(output, "calibrate", llama, place)
        assert message == f"{place} must be a file in a directory that exists"


# --- accuracy -----------------------------------------------------------------------------------


@pytest.fixture
def exact(llama: Path, tmp_path: Path) -> Path:
    assert run("pack", llama, tmp_path / "exact", "--scheme", "exact", "--quiet") == 0
    return tmp_path / "exact"


@pytest.mark.parametrize("given", [True, False])
def test_accuracy_for_programs(
    llama: Path, exact: Path, text: Path, output: Output, given: bool
) -> None:
    source = ["--source", llama] if given else []
    flags = ["--text", text, "--length", "16", "--drafts", "--json", "--calibration", text]
    assert run("accuracy", exact, *source, *flags) == 0
    report = json.loads(output.readouterr().out)
    assert report["source"] == str(llama if given else exact)
    assert report["length"] == 16
    rows = {row["name"]: row for row in report["rows"]}
    assert list(rows) == [
        "BF16",
        "RTN 8 bits",
        "Wanda 50 %",
        "Wanda 2:4",
        "exact (exact) target",
        "exact (exact) draft",
    ]
    assert rows["exact (exact) target"]["accuracy"] == rows["BF16"]["accuracy"]
    assert rows["BF16"]["accuracy"]["tokens"] == 400 // 16 * 15 == 375


def test_accuracy_for_people(exact: Path, text: Path, output: Output) -> None:
    flags = ["--text", text, "--length", "8", "--tokens", "100", "--no-lossy", "--quiet"]
    assert run("accuracy", exact, *flags) == 0
    lines = output.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["model", "bits/weight", "perplexity"]
    assert [line.split()[0] for line in lines[2:4]] == ["BF16", "exact"]
    assert "100.00% +- 0.00%" in lines[3]
    assert lines[-1].startswith("84 tokens predicted in windows of 8;")


def test_accuracy_without_an_original(llama: Path, tmp_path: Path, output: Output) -> None:
    assert run("pack", llama, tmp_path / "mx", "--scheme", "mx", "--quiet") == 0
    message = error_of(output, "accuracy", tmp_path / "mx", "--quiet")
    assert message.startswith("source must be given: no packed model is lossless")
    message = error_of(output, "accuracy", llama)
    assert "must be a packed model" in message


@pytest.fixture
def output(capsys: Output) -> Output:
    return capsys
