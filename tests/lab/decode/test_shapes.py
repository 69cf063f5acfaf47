"""Projections by hand, and a measurement of a model that is small enough."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cassandra_spec.bench.decode.results import Spread
from cassandra_spec.commands.__main__ import main
from cassandra_spec.lab.decode import shapes

TINY = {
    **shapes.SHAPES["135m"],
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
}


def exactly(value: float) -> Spread:
    return Spread(median=value, low=value, high=value)


def costs(draft: float, rows: list[float]) -> shapes.Costs:
    return shapes.Costs(
        shape="135m",
        context=32,
        target="bf16",
        target_bytes=1,
        draft_bytes=1,
        kv_bytes=1,
        draft=exactly(draft),
        rows=tuple(map(exactly, rows)),
        beside=exactly(0.04),
        probe=1e9,
    )


def test_a_projection_by_hand() -> None:
    found = costs(1.0, [4.0, 4.4, 4.8])
    # gamma 1: 1.5 tokens in 1 + 4.4; gamma 2: 1.75 in 2 + 4.8; plain: 1 in 4.
    assert shapes.projected(found, 0.5) == (1, pytest.approx(1.5 * 4 / 5.4))
    assert shapes.projected(found, 1.0) == (2, pytest.approx(3 * 4 / 6.8))
    assert shapes.projected(found, 0.0) == (0, 1.0)


def test_drafts_that_cost_as_much_are_not_made() -> None:
    assert shapes.projected(costs(1.0, [1.0] * 8), 0.9)[0] == 0


def test_known_shapes_have_the_sizes_of_their_names() -> None:
    from cassandra_spec.native.models.reading import read_model_config

    counts = {}
    for name, config in shapes.SHAPES.items():
        sizes = read_model_config(config)
        layer = sum(rows * columns for rows, columns in sizes.shapes.values())
        counts[name] = sizes.layers * layer + sizes.vocabulary * sizes.hidden
    assert counts == {
        "135m": 134_479_872,
        "1b": 1_235_746_816,
        "3b": 3_212_574_720,
        "gemma3-270m": 268_042_240,
    }


def test_steps_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shapes, "SHAPES", {"tiny": TINY})
    document = tmp_path / "d.md"
    document.write_text("<!-- shapes -->\n<!-- /shapes -->\n")
    flags = ["--threads", "1", "--document", str(document), "--acceptance", "0.5"]
    flags += ["--context", "300"]
    assert main(["bench", "decode", "--shape", "tiny", *flags]) == 0
    printed = capsys.readouterr()
    assert "gain at 0.5" in printed.out
    [part] = re.findall(r"([0-9.]+)%", printed.out)  # beside weights
    assert 0 < float(part) < 100
    assert "tiny: measured" in printed.err
    assert "300" in printed.out
    assert "gain at 0.5" in document.read_text()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--shape", "70b"], "shape must be one of 135m, 1b, 3b, gemma3-270m, not '70b'"),
        (
            ["--shape", "135m", "gemma3-270m", "--context", "32769"],
            "context must be at most 32368 for gemma3-270m, not 32769",
        ),
        (["--shape", "1b", "--acceptance", "1.5"], "acceptance must be from 0 to 1, not 1.5"),
    ],
)
def test_what_is_asked_for_is_checked(
    flags: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "decode", *flags]) == 2
    assert text in capsys.readouterr().err
