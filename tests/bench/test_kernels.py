"""``casspec bench kernels``: what it measures and prints; no figure is asserted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cassandra_spec.bench.kernels import (
    KernelTime,
    Measurement,
    measure_kernels,
    sample_values,
)
from cassandra_spec.commands.__main__ import main
from cassandra_spec.native.linear import FORMS, FormName, NativeLinear
from tests.commands.status import status_of


@pytest.mark.parametrize("form", FORMS)
def test_samples_are_held_by_their_form(form: FormName) -> None:
    values = sample_values(form, (32, 128), np.random.default_rng(1))
    with NativeLinear(values, form, group=64) as layer:
        assert layer.form == form
        # of planes: the patches, of values some six binades below the largest of their group
        assert layer.escapes <= (values.size // 16 if form == "planes" else 40)
        np.testing.assert_array_equal(layer.values(), values)


def test_every_form_is_measured_in_every_round() -> None:
    shapes = ((32, 64), (16, 128))
    plan = Measurement(forms=("bf16", "draft5"), rows=(3,), layers=2, rounds=2, shapes=shapes)
    results = measure_kernels(plan)
    assert [(result.form, result.threads) for result in results] == [
        (form, threads) for threads in (1, 2) for form in ("bf16", "draft5")
    ]
    for result in results:
        assert list(result.seconds) == [1, 3]
        assert all(len(times) == 2 and min(times) > 0 for times in result.seconds.values())
        assert len(result.reading) == 2
    assert results[0].bits == 16
    assert results[0].nbytes == 2 * 2 * 2 * (32 * 64)


def test_a_cached_matrix_is_read_many_times() -> None:
    plan = Measurement.cached(forms=("bf16",), rows=(1,), threads=(1,), rounds=1)
    (result,) = measure_kernels(plan)
    assert result.nbytes == 10 * 320 * 576 * 2
    assert result.bits == 16


def test_figures_are_taken_round_by_round() -> None:
    seconds = {1: [1.0, 2.0], 4: [2.0, 3.0]}
    time = KernelTime(
        form="bf16", threads=1, bits=16.0, nbytes=6, seconds=seconds, reading=[12.0, 3.0]
    )
    assert time.rate(4) == [3.0, 2.0]
    assert time.share(1) == [0.5, 1.0]
    assert time.relative(4) == [2.0, 1.5]


def test_the_command_prints_a_line_for_each_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "kernels.json"
    flags = ["--forms", "draft4", "--rows", "2", "--threads", "1", "--layers", "1", "--rounds", "2"]
    assert main(["bench", "kernels", *flags, "--json", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["form", "threads", "bits/weight"]
    assert lines[2].split()[:3] == ["draft4", "1", "4.16"]
    assert json.loads(out.read_text())[0]["form"] == "draft4"


def test_wrong_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("bench", "kernels", "--rounds", "0") == 2
    assert "--rounds: must be an integer from 1 to" in capsys.readouterr().err
