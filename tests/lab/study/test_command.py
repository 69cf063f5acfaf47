"""``casspec bench`` and ``casspec tune`` on a small model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.drafting import NgramTable
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.study.settings import SETTINGS, choose, figure_settings
from cassandra_spec.model.packing.calibration import Calibration, calibrate
from cassandra_spec.model.packing.plan import PackPlan
from cassandra_spec.model.weights.sources import open_source
from tests.commands.status import status_of
from tests.model.tiny import write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small model with prompts and norms."""
    folder = tmp_path_factory.mktemp("bench")
    source = write_model(folder / "model", max_position_embeddings=256)
    (folder / "prompts.txt").write_text("word3 word4 word5\n\n word9\nword7 word80\n")
    norms = calibrate(open_source(source), Calibration(samples=4, length=32))
    norms.save(folder / "norms.safetensors")
    return folder


def test_acceptance_prints_a_line_for_each_setting(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rows.json"
    settings = ["exact-4-kv", "unary-40", "mx-4*"]
    code = main(
        [
            *("bench", "acceptance", str(folder / "model"), "--quiet", "--jobs", "1"),
            *("--prompts", str(folder / "prompts.txt"), "--max-tokens", "48"),
            *("--calibration", str(folder / "norms.safetensors")),
            *("--settings", *settings, "--gamma", "2", "4", "--json", str(out)),
        ]
    )
    assert code == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["unary-40", "mx-4", "mx-4-kv", "exact-4-kv"]
    body = json.loads(out.read_text())
    assert {row["gamma"] for row in body["rows"]} >= {2, 4}
    for row in body["rows"]:
        assert row["prompts"] == 3
        assert 0 <= row["acceptance"]["low"] <= row["acceptance_rate"] <= row["acceptance"]["high"]
        rate = f"{row['acceptance_rate']:.3f}"
        if row["gamma"] in (2, 4):
            assert any(line.startswith(row["label"] + " ") and rate in line for line in lines)


def test_levels_are_measured_with_a_table(folder: Path, tmp_path: Path) -> None:
    table = NgramTable.count([list(range(96)) * 2], vocabulary=96, order=2)
    table.save(tmp_path / "table", {})
    rows = []
    for levels in ([], ["--draft", "hybrid", "--table", str(tmp_path / "table"), "--low", "5"]):
        out = tmp_path / "rows.json"
        command = [
            *("bench", "acceptance", str(folder / "model"), "--quiet", "--jobs", "1"),
            *("--prompts", str(folder / "prompts.txt"), "--max-tokens", "48"),
            *("--calibration", str(folder / "norms.safetensors")),
            *("--settings", "exact-4-kv", "--gamma", "4", "--json", str(out), *levels),
        ]
        assert main(command) == 0
        rows.append(json.loads(out.read_text())["rows"][0])
    alone, levels_on = (row["report"] for row in rows)
    assert set(alone["sources"]) == {"model"}
    assert {"model", "lookup", "table", "recycled"} <= set(levels_on["sources"])
    assert levels_on["draft"] == "hybrid"
    assert levels_on["tokens"] == alone["tokens"]
    assert levels_on["rounds"] < alone["rounds"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--draft", "hybrid", "--alternative-margin", "-1"], "alternative_margin must be a numb"),
        (["--table", "/missing"], "/missing"),
        (["--settings", "exact-9"], "settings must be among unary-40, .* not 'exact-9'"),
        (["--gamma", "9"], "gamma must be from 1 to 8, not 9"),
        (["--prompts", "/missing"], "/missing must be a text file, and is missing"),
    ],
)
def test_bad_flags_are_one_line(
    folder: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    norms = ["--calibration", str(folder / "norms.safetensors")]
    assert main(["bench", "acceptance", str(folder / "model"), "--quiet", *norms, *flags]) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    assert re.search(message, error)


@pytest.mark.slow
def test_tune_writes_what_pack_takes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, plot = tmp_path / "tuned.toml", tmp_path / "front.svg"
    flags = [
        *("--prompts", str(folder / "prompts.txt"), "--max-tokens", "48", "--jobs", "1"),
        *("--calibration", str(folder / "norms.safetensors"), "--quiet"),
        *("--schemes", "exact", "--plot", str(plot)),
    ]
    assert main(["tune", str(folder / "model"), str(out), *flags]) == 0
    text = capsys.readouterr().out
    assert "Eq. 2" in text
    assert str(out) in text
    root = ElementTree.parse(plot).getroot()
    assert [
        root.find(f"{{http://www.w3.org/2000/svg}}{tag}") is not None for tag in ("title", "desc")
    ]
    plan = PackPlan.load(out)
    assert plan.default.format.scheme == "exact"
    packed = [str(tmp_path / "packed"), "--recipe", str(out), "--quiet", "--jobs", "1"]
    norms = ["--calibration", str(folder / "norms.safetensors")]
    assert main(["pack", str(folder / "model"), *packed, *norms]) == 0


def test_settings_fit_the_format_and_have_names_of_their_own() -> None:
    every = [*SETTINGS, *(setting for _, setting in figure_settings())]
    assert len({setting.name for setting in every}) == len(every)
    assert choose([]) == list(SETTINGS)
    with pytest.raises(CassandraError, match="settings must be among"):
        choose(["exact-*", "ternary"])


@pytest.mark.slow
def test_a_small_model_is_trained_and_can_be_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = tmp_path / "small"
    assert main(["bench", "small-model", str(small), "--steps", "3", "--quiet"]) == 0
    (tmp_path / "prompts.txt").write_text("The fire\nIn the morning\n")
    flags = ["--prompts", str(tmp_path / "prompts.txt"), "--max-tokens", "40", "--jobs", "1"]
    flags += ["--settings", "exact-4-kv", "--quiet", "--calibration", str(tmp_path / "n.txt")]
    (tmp_path / "n.txt").write_text("Some words about nothing. " * 100)
    assert main(["bench", "acceptance", str(small), *flags]) == 0
    assert "exact-4-kv" in capsys.readouterr().out


def test_a_small_model_has_a_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = tmp_path / "small"
    assert status_of("bench", "small-model", str(small), "--steps", "0") == 2
    assert "--steps: must be an integer from 1 to 2147483647, not 0" in capsys.readouterr().err
    assert not small.exists()
