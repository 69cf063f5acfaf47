"""``casspec pack --preset``, and the command's notes about shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.commands.pack import _PRESETS
from cassandra_spec.golden import Format
from cassandra_spec.golden.model_types import MODEL_TYPES
from cassandra_spec.model.packing.calibration import calibrate
from cassandra_spec.model.packing.packer import Recipe, open_packed, pack_model
from cassandra_spec.model.packing.plan import PRESETS
from cassandra_spec.model.weights.sources import MODEL_FILE, open_source

Output = pytest.CaptureFixture[str]
FAST = Format(scheme="exact", group=64, fill="midpoint")
RECIPES = {
    "fast": Recipe(format=FAST, group_exponents="weighted"),
    "paper": Recipe(format=Format(scheme="unary"), prune=0.4),
    "small": Recipe(format=Format(scheme="unary", fill="midpoint")),
}


def pack(source: Path, destination: Path, *flags: str) -> int:
    return main(["pack", str(source), str(destination), "--jobs", "1", *flags])


@pytest.mark.parametrize("preset", RECIPES)
def test_a_preset_is_a_recipe_and_fast_the_default(
    llama: Path, tmp_path: Path, preset: str
) -> None:
    assert set(PRESETS) == set(_PRESETS) == set(RECIPES)
    flags = [] if preset == "fast" else ["--preset", preset]
    assert pack(llama, tmp_path / "found", "--quiet", *flags) == 0
    source, recipe = open_source(llama), RECIPES[preset]
    norms = calibrate(source) if recipe.needs_norms else None
    pack_model(source, tmp_path / "expected", recipe, norms=norms, jobs=1)
    found, expected = (tmp_path / name / MODEL_FILE for name in ("found", "expected"))
    assert found.read_bytes() == expected.read_bytes()
    assert "lm_head.weight" in open_packed(found).tensors


@pytest.mark.parametrize(
    ("flags", "format"),
    [
        (["--preset", "small", "--truncated", "3"], Format(fill="midpoint", truncated=3)),
        (["--scheme", "exact"], Format(scheme="exact")),
    ],
)
def test_flags_go_before_a_preset_and_a_scheme_alone_has_none(
    llama: Path, tmp_path: Path, flags: list[str], format: Format
) -> None:
    assert pack(llama, tmp_path / "p", "--quiet", *flags) == 0
    assert {spec.format for spec in open_packed(tmp_path / "p").tensors.values()} == {format}


def test_a_preset_beside_a_recipe_file_is_refused(
    llama: Path, tmp_path: Path, capsys: Output
) -> None:
    file = str(tmp_path / "plan.toml")
    assert pack(llama, tmp_path / "p", "--preset", "fast", "--recipe", file) == 2
    line = f"casspec: error: preset must be in {file} or given, not both\n"
    assert capsys.readouterr().err == line


def test_rows_that_groups_do_not_divide_are_named(
    llama: Path, tmp_path: Path, capsys: Output
) -> None:
    flags = ["--scheme", "exact", "--group", "32"]
    assert pack(llama, tmp_path / "p", *flags) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "no multiple" in line]
    tail = "no multiple of the group (32): their drafts take 12 bits or more for each weight in the"
    assert [line.partition(" native")[0] for line in lines] == [
        f"13 matrices have rows of 48 values, {tail}",
        f"2 matrices have rows of 80 values, {tail}",
    ]
    assert pack(llama, tmp_path / "q", "--scheme", "exact", "--group", "16") == 0
    assert "no multiple" not in capsys.readouterr().err


def test_the_help_names_all_architectures_and_hardware_last(capsys: Output) -> None:
    with pytest.raises(SystemExit):
        main(["pack", "--help"])
    text = capsys.readouterr().out
    source = " ".join(text.split()).partition("SOURCE is ")[2].partition(", or `smollm2`")[0]
    readme = " ".join((Path(__file__).parents[2] / "README.md").read_text("utf-8").split())
    for each in MODEL_TYPES:
        assert each.title in source
        assert each.title in readme
    places = [text.index(f"\n{word}") for word in ("format:", "encoder:", "work:", "hardware (")]
    assert places == sorted(places)
    assert text.index("  --superblock N") > places[-1] > text.index("  --fill {")
