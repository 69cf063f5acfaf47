"""Configs of models: types and ranges, before anything is made of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.golden.errors import FileError
from cassandra_spec.golden.model_config import check_config, read_config, read_stop_tokens

GOOD: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "vocab_size": 100,
    "head_dim": None,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000,
    "rope_scaling": None,
    "eos_token_id": [3, 99],
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"eos_token_id": None},
        {"eos_token_id": 0},
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_parameters": {"full_attention": {"rope_theta": 1e6}}},
    ],
)
def test_good_configs_are_taken(changes: dict[str, Any]) -> None:
    check_config(GOOD | changes, "here")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"hidden_size": "64"}, "hidden_size must be an integer from 1 to 1048576, not '64'"),
        ({"hidden_size": True}, "hidden_size must be an integer from 1 to 1048576, not True"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers must be an integer from 1 to 4096"),
        ({"num_labels": 10**12}, "num_labels must be an integer from 1 to 65536"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps must be a number above 0 and at most 1"),
        ({"rms_norm_eps": 0}, "rms_norm_eps must be a number above 0 and at most 1, not 0"),
        ({"rope_theta": None}, "rope_theta must be a number above 0 and at most 1e.15, not None"),
        ({"rope_theta": [1]}, "rope_theta must be a number above 0"),
        ({"rope_scaling": [1]}, r"rope_scaling must be an object, not \[1\]"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling must have an entry factor for type"),
        ({"rope_scaling": {"rope_type": "no"}}, "rope_scaling: rope_type must be one of default"),
        ({"rope_parameters": {"factor": "2"}}, "rope_parameters: factor must be a number above 0"),
        (
            {"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}},
            "rope_parameters must have an entry high_freq_factor for type llama3",
        ),
        (
            {"eos_token_id": 2**40},
            r"eos_token_id must be below vocab_size \(100\), not 1099511627776",
        ),
        ({"eos_token_id": [3, -1]}, r"eos_token_id must be below vocab_size \(100\), not -1"),
        ({"eos_token_id": "3"}, "eos_token_id must be below vocab_size"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings must be true or false, not 'no'"),
    ],
)
def test_a_wrong_entry_is_one_line(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(FileError, match=f"^here: {line}"):
        check_config(GOOD | changes, "here")


@pytest.mark.parametrize(
    ("stated", "found"), [(None, [3, 99]), (7, [3, 99, 7]), ([7, 8], [3, 99, 7, 8])]
)
def test_stop_tokens_stand_in_two_files(tmp_path: Path, stated: object, found: list[int]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GOOD))
    assert read_stop_tokens(tmp_path) == [3, 99]
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": stated}))
    assert read_stop_tokens(tmp_path) == found


@pytest.mark.parametrize("stated", ["7", 100, -1, [5, True], 2.5, {"7": 7}])
def test_a_stop_token_that_is_none_is_one_line(tmp_path: Path, stated: object) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GOOD))
    path = tmp_path / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": stated}))
    with pytest.raises(FileError, match=f"^{path}: eos_token_id must be below vocab_size"):
        read_stop_tokens(tmp_path)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"{", "must be JSON"),
        (b"\xff\xfe{}", "must be JSON"),
        (b"[" * 100_000, "must be JSON"),
        (b"[1]", "must hold a JSON object, not list"),
    ],
)
def test_what_is_no_object_is_refused(content: bytes, line: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(FileError, match=line):
        read_config(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(FileError, match="must be a file"):
        read_config(tmp_path)


def test_a_directory_is_needed(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="must be a directory of a model, and is missing"):
        read_config(tmp_path / "none")
    (tmp_path / "config.json").write_text(json.dumps(GOOD))
    assert read_config(tmp_path) == GOOD
    with pytest.raises(FileError, match="must be a directory of a model, and is a file"):
        read_config(tmp_path / "config.json")
