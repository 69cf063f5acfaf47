"""The command in this process: what it does, and its line for every error."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cassandra_spec.commands import rtl
from cassandra_spec.commands.__main__ import main
from cassandra_spec.commands.arguments import build_parser
from cassandra_spec.commands.pack import FORMAT_FLAGS
from cassandra_spec.golden import Format
from cassandra_spec.golden.model_types import MODEL_TYPES
from cassandra_spec.model.packing.packer import open_packed
from cassandra_spec.synth import export
from tests.commands import status
from tests.commands.status import Output
from tests.model.gguf_files import write_gguf
from tests.model.tiny import change_config, patterns, replace_tensors, tensors_of

LINEAR = "model.layers.1.mlp.down_proj.weight"


def _words(*arguments: object) -> list[str]:
    """Return a command with ``--jobs 1`` where it takes it; packs in unary unless it says how."""
    words = [str(argument) for argument in arguments]
    if words[0] == "pack" and not {"--scheme", "--preset", "--recipe"} & set(words):
        words += ["--scheme", "unary"]
    return [*words, *(["--jobs", "1"] if words[0] in ("pack", "unpack") else [])]


def run(*arguments: object) -> int:
    return status.status_of(*_words(*arguments))


def error_of(output: Output, *arguments: object) -> str:
    """Return the error of a command that must fail in the way that bad input does."""
    quiet = ["--quiet"] if arguments[0] in ("pack", "unpack") else []
    return status.error_of(output, *_words(*arguments, *quiet))


@pytest.fixture
def packed(llama: Path, tmp_path: Path) -> Path:
    assert run("pack", llama, tmp_path / "packed", "--quiet") == 0
    return tmp_path / "packed"


# --- what it does -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--prune 0.4 --truncated 5",
        "--prune 0.3 --pruned-exponent coded --codebook 32",
        "--scheme exact --group 64 --fill midpoint --group-exponents chosen",
        "--scheme exact --beat 32 --segment 1024 --superblock 256 --lead 2 --window 1",
    ],
)
def test_packed_and_unpacked_is_the_original(llama: Path, tmp_path: Path, flags: str) -> None:
    assert run("pack", llama, tmp_path / "p", *shlex.split(flags)) == 0
    assert run("unpack", tmp_path / "p", tmp_path / "u") == 0
    found = tensors_of(tmp_path / "u")
    for name, tensor in tensors_of(llama).items():
        np.testing.assert_array_equal(patterns(found[name]), patterns(tensor))


def test_every_field_of_the_format_has_a_flag_that_sets_it(llama: Path, tmp_path: Path) -> None:
    flags: dict[str, Any] = {
        "scheme": "unary",
        "truncated": 3,
        "significand": 8,  # fewer in mx alone: see test_packing
        "fill": "midpoint",
        "group": 64,
        "segment": 2048,
        "codebook": 32,
        "pruned_exponent": "coded",
        "beat": 32,
        "window": 3,
        "lead": 2,
        "superblock": 256,
    }
    assert set(flags) == set(FORMAT_FLAGS) == {field.name for field in dataclasses.fields(Format)}
    words = [word for key, value in flags.items() for word in (f"--{key.replace('_', '-')}", value)]
    assert run("pack", llama, tmp_path / "p", "--quiet", *words) == 0
    for spec in open_packed(tmp_path / "p").tensors.values():
        assert spec.format == Format(**flags)


def test_the_draft_can_be_unpacked(llama: Path, tmp_path: Path) -> None:
    assert run("pack", llama, tmp_path / "p", "--prune", "0.5", "--truncated", 7) == 0
    assert run("unpack", tmp_path / "p", tmp_path / "u", "--draft") == 0
    draft = patterns(tensors_of(tmp_path / "u")[LINEAR])
    assert np.count_nonzero(draft == 0) >= draft.size / 2
    assert not (draft & 0x7F).any()


def test_it_says_what_it_has_done(own_llama: Path, tmp_path: Path, capsys: Output) -> None:
    replace_tensors(own_llama, {LINEAR: torch.full((48, 80), torch.inf, dtype=torch.float32)})
    assert (
        run("pack", own_llama, tmp_path / "p", "--scheme", "mx", "--group", 16, "--saturate") == 0
    )
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if line and "|" not in line]  # no progress bars
    size = (tmp_path / "p/model.safetensors").stat().st_size
    assert lines[0].endswith(": 1 tensors of F32 are rounded to BF16 (to nearest, ties to even)")
    assert lines[1] == "3,840 values were not finite and are saturated"
    assert lines[2].startswith(f"{tmp_path / 'p'}: ")
    assert f"{size:,} bytes" in lines[2]


def test_quiet_is_silent(packed: Path, tmp_path: Path, capsys: Output) -> None:
    assert run("unpack", packed, tmp_path / "u", "--quiet") == 0
    assert capsys.readouterr() == ("", "")


def test_inspect_prints_formats_streams_and_tensors(packed: Path, capsys: Output) -> None:
    assert run("inspect", packed) == 0
    out = capsys.readouterr().out
    report = open_packed(packed)
    bits = report.read_packed("lm_head.weight").bits()
    assert f"{(packed / 'model.safetensors').stat().st_size:,} bytes" in out
    assert "format: scheme unary, truncated 4" in out
    (row,) = (line.split() for line in out.splitlines() if line.startswith("lm_head"))
    assert row[-1] == f"{bits['total']:.3f}"
    assert row[-3] == f"{bits['speculation']:.3f}"
    rows = [line.split() for line in out.splitlines() if line.startswith("model.layers.")]
    assert [row[1] for row in rows] == ["2"] * 7  # one for each kind, of two layers


def test_inspect_can_print_every_tensor(packed: Path, capsys: Output) -> None:
    assert run("inspect", packed, "--tensors") == 0
    out = capsys.readouterr().out
    names = {line.split()[0] for line in out.splitlines() if ".weight" in line}
    assert names == set(open_packed(packed).tensors)


def test_inspect_prints_json_for_other_programs(packed: Path, capsys: Output) -> None:
    assert run("inspect", packed / "model.safetensors", "--json", "--verify") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verified"] == 3 * len(report["tensors"]) + len(report["others"])
    assert report["tensors"][LINEAR]["shape"] == [48, 80]


def test_inspect_verifies(packed: Path, capsys: Output) -> None:
    assert run("inspect", packed, "--verify") == 0
    assert "checksums are right" in capsys.readouterr().out
    path = packed / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert run("inspect", packed) == 0  # reads the header alone
    capsys.readouterr()
    assert "must have the CRC-32" in error_of(capsys, "inspect", packed, "--verify")


def test_rtl_exports_the_configurations_that_the_flags_name(tmp_path: Path, capsys: Output) -> None:
    flags = ["--lanes", 8, "--schemes", "exact", "mx", "--codebook", 32]
    assert run("rtl", "--out", tmp_path / "rtl", *flags) == 0
    name = "cassandra_decoder_l8_mx_exact_b32"
    assert capsys.readouterr().out.strip() == str(tmp_path / "rtl" / f"{name}.v")
    assert {f"{name}.v", f"{name}.f", f"{name}.core"} <= {
        path.name for path in (tmp_path / "rtl").iterdir()
    }


def test_rtl_exports_an_array_with_its_registers(tmp_path: Path, capsys: Output) -> None:
    flags = ["--top", "array", "--decoders", 2, "--lanes", 8, "--schemes", "mx", "--bus", 128]
    assert run("rtl", "--out", tmp_path, *flags) == 0
    name = "cassandra_array_n2_l8_mx_b16_d128"
    assert capsys.readouterr().out.strip() == str(tmp_path / f"{name}.v")
    assert (tmp_path / f"{name}.h").is_file()
    assert (tmp_path / "regs" / f"{name}.rdl").is_file()


DECODER_FLAGS = ("target_rate", "coded", "truncated")


def test_rtl_has_a_flag_for_every_field_of_every_top() -> None:
    flags = {flag for flags in export._FLAGS.values() for flag in flags}
    assert {*rtl.DMA_FLAGS, *rtl.ENCODER_FLAGS, *DECODER_FLAGS, "attributes"} == flags


def test_rtl_refuses_flags_that_the_top_does_not_have(capsys: Output) -> None:
    assert "bus must be left out for the top 'decoder'" in error_of(capsys, "rtl", "--bus", 128)


def test_rtl_names_a_bad_range_of_t(capsys: Output) -> None:
    found = error_of(capsys, "rtl", "--truncated", 5, 4)
    assert "truncated must be two integers from 0 to 7, the least and the most, not (5, 4)" in found


# --- help ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        *("", "pack", "unpack", "inspect", "rtl"),
        *("system", "system estimate", "system reproduce"),
    ],
)
def test_the_examples_of_the_help_are_commands(command: str, capsys: Output) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*command.split(), "--help"])
    assert caught.value.code == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    examples = [line for line in lines if line.startswith("casspec ")]
    assert examples
    for example in examples:
        words = example.split("  ")[0].split(" | ")[0]
        build_parser().parse_args(shlex.split(words)[1:])


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("pakc", "invalid choice: 'pakc'"),
        ("pack", "the following arguments are required: SOURCE, DEST (see casspec pack --help)"),
        ("pack a b --scheme zip", "argument --scheme: invalid choice: 'zip'"),
        ("pack a b --truncated many", "argument --truncated: invalid int value: 'many'"),
        ("pack a b --trunc 3", "unrecognized arguments: --trunc 3"),
        ("pack a b --beat 12", "argument --beat: invalid choice: 12"),
        ("inspect", "the following arguments are required: PATH"),
        ("rtl --lanes 12", "argument --lanes: invalid choice: 12"),
    ],
)
def test_wrong_flags(line: str, message: str, capsys: Output) -> None:
    with pytest.raises(SystemExit) as caught:
        main(shlex.split(line))
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("casspec: error: ")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--truncated 8", "truncated must be an integer from 0 to 7, not 8"),
        ("--group 48", "group must be a power of two, not 48"),
        ("--segment 100", "segment must be a multiple of 32"),
        ("--superblock 100", "superblock must be a multiple of 128"),
        ("--scheme mx --pruned-exponent coded", "pruned_exponent must be 'raw' in scheme mx"),
        ("--prune 1.0", "prune must be a fraction from 0 to below 1, not 1.0"),
        ("--prune nan", "prune must be a fraction from 0 to below 1, not nan"),
        ("--saturate", "nonfinite must be 'error' in scheme unary"),
        ("--group-exponents chosen", "group_exponents must be 'largest' in scheme unary"),
    ],
)
def test_wrong_values(
    llama: Path, tmp_path: Path, flags: str, message: str, capsys: Output
) -> None:
    assert message in error_of(capsys, "pack", llama, tmp_path / "p", *shlex.split(flags))
    assert list(tmp_path.iterdir()) == []


def test_jobs_must_be_positive(llama: Path, tmp_path: Path, capsys: Output) -> None:
    assert status.status_of("pack", str(llama), str(tmp_path / "p"), "--jobs", "0") == 2
    assert "argument --jobs: must be an integer from 1 to" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_missing_input(tmp_path: Path, capsys: Output) -> None:
    for command in (["pack", "nowhere", tmp_path / "o"], ["unpack", "nowhere", tmp_path / "o"]):
        assert error_of(capsys, *command).startswith("nowhere must be a directory of a model")
    assert error_of(capsys, "inspect", "nowhere") == "nowhere must be a file, and is missing"
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_architecture(own_llama: Path, tmp_path: Path, capsys: Output) -> None:
    change_config(own_llama, model_type="mamba")
    message = error_of(capsys, "pack", own_llama, tmp_path / "p")
    names = ", ".join(each.name for each in MODEL_TYPES)
    assert message.endswith(f"must be one of {names}, not 'mamba'")


def test_an_unsupported_dtype(own_llama: Path, tmp_path: Path, capsys: Output) -> None:
    replace_tensors(own_llama, {LINEAR: torch.zeros(48, 80, dtype=torch.float64)})
    message = error_of(capsys, "pack", own_llama, tmp_path / "p")
    assert message.endswith(f"{LINEAR} must have a dtype of BF16, F16, F32, not F64")


@pytest.mark.parametrize("command", ["unpack", "inspect"])
def test_a_truncated_file(packed: Path, tmp_path: Path, command: str, capsys: Output) -> None:
    path = packed / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    destination = [tmp_path / "u"] if command == "unpack" else []
    message = error_of(capsys, command, packed, *destination)
    assert message.startswith(f"{path} must be a whole safetensors file, not one truncated")
    assert {file.name for file in tmp_path.iterdir()} == {"packed"}


def test_a_corrupted_file(packed: Path, tmp_path: Path, capsys: Output) -> None:
    path = packed / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-20_000] ^= 0x10
    path.write_bytes(content)
    message = error_of(capsys, "unpack", packed, tmp_path / "u")
    assert message.startswith(f"{path}: ")
    assert "must have the CRC-32" in message
    assert {file.name for file in tmp_path.iterdir()} == {"packed"}


@pytest.mark.parametrize("name", ["model", "tokens"])
def test_a_gguf_file_without_a_part_of_its_tokenizer(
    name: str, llama: Path, tmp_path: Path, capsys: Output
) -> None:
    path = write_gguf(tmp_path / "m.gguf", llama, keys={f"tokenizer.ggml.{name}": None})
    message = error_of(capsys, "pack", path, tmp_path / "p")
    assert message.startswith(str(path))
    assert f"tokenizer.ggml.{name}" in message
    assert {file.name for file in tmp_path.iterdir()} == {"m.gguf"}


def test_nan_in_mx(own_llama: Path, tmp_path: Path, capsys: Output) -> None:
    replace_tensors(own_llama, {LINEAR: torch.full((48, 80), torch.nan, dtype=torch.bfloat16)})
    message = error_of(capsys, "pack", own_llama, tmp_path / "p", "--scheme", "mx")
    assert message.startswith(f"{LINEAR}, from value 0 on: values must be finite in scheme mx")
    assert {file.name for file in tmp_path.iterdir()} == {"own-llama"}


def test_a_directory_that_is_there(llama: Path, packed: Path, capsys: Output) -> None:
    message = error_of(capsys, "pack", llama, packed)
    assert message == f"{packed} must be a new or empty directory, not a full one"


def test_memory_that_is_not_there(
    packed: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    def fail(packed: object) -> None:
        raise MemoryError

    monkeypatch.setattr("cassandra_spec.model.packing.inspection.inspect_file", fail)
    assert error_of(capsys, "inspect", packed) == "there is not enough memory"
