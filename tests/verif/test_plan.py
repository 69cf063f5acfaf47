"""The coverage plan, what is sampled from a segment, and the documents that repeat the plan."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import SCHEMES, Format
from cassandra_spec.toolkit.documents import block
from cassandra_spec.verif.decoder.jobs import Job
from cassandra_spec.verif.decoder.sampling import sample_job, sample_switch
from cassandra_spec.verif.library.coverage import (
    INTENTS,
    Coverage,
    Intent,
    legal_chunks,
    main,
    plan_table,
)
from cassandra_spec.verif.library.payloads import Payload

DOCUMENT = Path(__file__).parents[2] / "docs/results/verification.md"
SMALL = (
    Intent(name="a", prose="First.", bins=("x", "y")),
    Intent(name="b", prose="Z.", bins=("z",)),
)


def job_of(values: list[int], *, target: bool = True, **fields: object) -> Job:
    names = ("kept", "codebook", "group_exponents")
    arguments: Any = {name: fields.pop(name) for name in names if name in fields}
    fmt = Format.from_dict({"segment": 64, **fields})
    payload = Payload(name="test", format=fmt, values=np.array(values, np.uint16), **arguments)
    return Job(payload=payload, index=0, target=target)


def sampled(job: Job) -> dict[str, int]:
    coverage = Coverage()
    sample_job(coverage, job)
    return {name: count for name, count in coverage.hits.items() if count}


def test_the_document_repeats_the_plan() -> None:
    assert block(DOCUMENT.read_text(), "plan") == plan_table()


def test_bins_count_and_are_demanded() -> None:
    coverage = Coverage(SMALL)
    coverage.sample("a.x", 3)
    coverage.sample_if(False, "a.y")
    assert coverage.missing() == ("a.y", "b.z")
    assert coverage.missing("a.*") == ("a.y",)
    coverage.require("a.x")
    with pytest.raises(AssertionError, match=r"2 coverage bins were not hit: a\.y, b\.z"):
        coverage.require("a.*", "b.*")
    assert coverage.report().splitlines()[1:] == [
        "a                    1     2  y",
        "b                    0     1  z",
    ]


def test_names_that_are_not_in_the_plan_are_refused() -> None:
    coverage = Coverage(SMALL)
    with pytest.raises(CassandraError, match=r"coverage bin must be in the plan, not 'a\.w'"):
        coverage.sample("a.w")
    with pytest.raises(CassandraError, match="coverage pattern must match a bin"):
        coverage.require("c.*")
    with pytest.raises(CassandraError, match=r"bin must be in one intent, not several: 'a\.x'"):
        Coverage((*SMALL, SMALL[0]))


def test_saved_runs_add_up(tmp_path: Path) -> None:
    paths = [tmp_path / "one.json", tmp_path / "deep" / "two.json"]
    for path in paths:
        coverage = Coverage()
        coverage.sample("handshake.valid_first", 2)
        coverage.save(path)
    assert Coverage.load(paths).hits["handshake.valid_first"] == 4
    paths[0].write_text(json.dumps({"no.such.bin": 1}))
    with pytest.raises(CassandraError, match=r"not 'no\.such\.bin'"):
        Coverage.load(paths)


def test_the_report_leaves_out_runs_of_another_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cassandra_spec.verif.library.coverage.FOLDER", tmp_path)
    coverage = Coverage()
    coverage.sample("handshake.valid_first")
    coverage.save(tmp_path / "good.json")
    (tmp_path / "old.json").write_text(json.dumps({"no.such.bin": 1}))
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^handshake +1 +1$", printed, re.MULTILINE)
    assert "old.json is left out, its suite must run again" in printed


def test_the_command_prints_the_plan_or_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--plan"]) == 0
    assert capsys.readouterr().out == f"{plan_table()}\n"
    monkeypatch.setattr("cassandra_spec.verif.library.coverage.FOLDER", tmp_path)
    (tmp_path / "broken.json").write_text("{")
    assert main([]) == 2
    err = capsys.readouterr().err
    assert err.startswith("cassandra_spec.verif.library.coverage: error: ")
    assert err.count("\n") == 1


def test_every_intent_is_prose_and_every_bin_is_in_the_plan_once() -> None:
    names = [name for intent in INTENTS for name in intent.full_names]
    assert len(names) == len(set(names))
    assert all(intent.prose.endswith(".") or intent.prose.endswith(").") for intent in INTENTS)


def test_legal_chunks_by_counting_zeros() -> None:
    """The legal chunks equal those counted from the text of the bits."""
    legal = set(legal_chunks())
    for carry in range(16):
        for chunk in range(256):
            run = "0" * carry + f"{chunk:08b}"[::-1]
            longest = max(map(len, run.split("1")))
            assert ((carry, chunk) in legal) == (longest <= 15)


def test_codes_and_chunks_of_a_segment() -> None:
    """Ranks 0, 3, 5, 0, 1 are 10001000 00110100 with six padding bits that are not codes."""
    exponents = [100, 103, 105, 100, 101]
    job = job_of([e << 7 for e in exponents], codebook=tuple(range(100, 106)))
    hits = sampled(job)
    lengths = {name: n for name, n in hits.items() if name.startswith("code_length")}
    assert lengths == {
        "code_length.0": 2,
        "code_length.1": 1,
        "code_length.3": 1,
        "code_length.5": 1,
    }
    assert {name for name in hits if name.startswith("chunk")} == {"chunk.0.11"}
    assert "miss.pruned" not in hits
    assert "mask.no_stream" in hits


def test_misses_are_values_that_the_mask_keeps() -> None:
    values = [100 << 7, 101 << 7, 102 << 7, 100 << 7]
    kept = np.array([True, True, False, True])
    hits = sampled(job_of(values, kept=kept, codebook=(100,)))
    assert hits["miss.pruned"] == 1
    assert hits["miss.one_entry"] == 1
    assert hits["value.unary.pruned.normal"] == 2


def test_windows_and_escapes_of_a_segment() -> None:
    """Group exponent 120: a value at it, one two below, one too small, too large, 0xFF, zeros."""
    values = [120 << 7, 118 << 7 | 1, 100 << 7, 121 << 7, 120 << 7 | 127, 0x7FC1, 0, 0x8000]
    groups = np.array([120], np.uint8)
    hits = sampled(job_of(values, scheme="exact", group_exponents=groups))
    expected = {
        **{"residue.width.0": 1, "residue.width.2": 1, "escape.small": 1, "escape.large": 1},
        **{"escape.ordinary": 1, "escape.not_finite": 1, "escape.several": 1},
        **{"residue.zero_flag.plus": 1, "residue.zero_flag.minus": 1},
        "shared.saturated": 2,
    }
    assert {name: hits.get(name) for name in expected} == expected
    assert "escape.whole_beat" not in hits
    assert "escape.beside_pruned" not in hits


def extremes_in(job: Job) -> dict[str, int]:
    hits = sampled(job)
    return {name.removeprefix("extreme.16."): n for name, n in hits.items() if "extreme" in name}


def test_extremes_of_a_segment_by_hand() -> None:
    """16 values of the widest residue, one of 1 bit, 15 of none: 112, 1 and 15 bits left."""
    values = [113 << 7] * 16 + [119 << 7] + [120 << 7] * 15
    groups = np.array([120], np.uint8)
    job = job_of(values, scheme="exact", truncated=7, group=32, group_exponents=groups)
    assert extremes_in(job) == {
        **{"kept.most": 2, "fields.least": 2, "pruned.least": 2},
        **{"residue.most": 1, "left.least": 1, "left.most": 1, "rows.most": 1},
    }
    narrow = dataclasses.replace(job.payload, values=np.array([120 << 7] * 32, np.uint16))
    assert extremes_in(dataclasses.replace(job, payload=narrow)) == {
        **{"kept.most": 2, "fields.least": 2, "pruned.least": 2},
        **{"residue.least": 2, "left.least": 2, "rows.least": 1},
    }


def test_extremes_of_the_rank_queue_by_hand() -> None:
    """Codes of one bit, 32 in a window: beats leave 31, 15, 31 and 15, so 47 wait at most."""
    kept = np.arange(64) >= 15
    hits = extremes_in(job_of([100 << 7] * 64, kept=kept, codebook=(100,)))
    assert hits == {
        **{"kept.most": 3, "fields.most": 4, "pruned.least": 3},
        **{"codes.most": 1, "ranks.most": 1, "starved.least": 4},
    }


def test_shared_exponents_of_a_segment() -> None:
    values = [0] * 32 + [1] * 32
    hits = sampled(job_of(values, scheme="mx"))
    assert hits["shared.lowest"] == 2
    assert hits["shared.all_zero"] == 1
    assert hits["shared.subnormal_result"] == 32
    kept = np.arange(64) >= 32
    assert sampled(job_of(values, scheme="mx", kept=kept))["shared.none_kept"] == 1


def test_masks_of_a_segment() -> None:
    kept = np.repeat([True, False, True, True], 16)
    kept[50:] = False
    hits = sampled(job_of([100 << 7] * 64, kept=kept))
    names = ("full", "empty", "partial", "alternating")
    assert {name: hits.get(f"mask.{name}") for name in names} == {
        "full": 2,
        "empty": 1,
        "partial": 1,
        "alternating": 1,
    }
    assert "mask.no_stream" not in hits


@pytest.mark.parametrize(
    ("count", "names"),
    [
        (1, {"one", "short_group"}),
        (16, {"beat", "short_group"}),
        (17, {"beat_more_1", "short_group"}),
        (31, {"group_less_1", "short_group"}),
        (32, {"group"}),
        (64, {"full"}),
    ],
)
def test_sizes_of_a_segment(count: int, names: set[str]) -> None:
    hits = sampled(job_of([100 << 7] * count))
    assert {name.removeprefix("size.") for name in hits if name.startswith("size.")} == names
    assert f"last_beat.16.{(count - 1) % 16 + 1}" in hits


def test_switches_between_neighbours() -> None:
    coverage = Coverage()
    first = job_of([100 << 7] * 40, target=False)
    second = job_of([101 << 7] * 40, truncated=2)
    sample_switch(coverage, first, second)
    assert {name for name, count in coverage.hits.items() if count} == {
        "switch.draft_to_target",
        "switch.truncated",
        "switch.codebook",
    }
    third = dataclasses.replace(job_of([1] * 40, scheme="mx", truncated=2), target=True)
    sample_switch(coverage, second, third)
    assert coverage.hits["switch.unary_to_mx"] == 1


def test_settings_name_scheme_mode_and_fill() -> None:
    for scheme in SCHEMES:
        hits = sampled(job_of([100 << 7] * 8, target=False, scheme=scheme, fill="midpoint"))
        assert f"setting.{scheme}.draft.4" in hits
        assert f"setting.{scheme}.midpoint" in hits
        assert f"setting.{scheme}.target.4" not in hits
