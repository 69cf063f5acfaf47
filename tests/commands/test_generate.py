"""``casspec generate``."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.golden import GoldenCodec
from cassandra_spec.model.speculative import CassandraForCausalLM
from tests.commands.status import error_of
from tests.marks import slow
from tests.model.tiny import replace_tensors, tensors_of, write_model

UNARY = ("--scheme", "unary", "--quiet")
ROOT = Path(__file__).resolve().parents[2]
PROMPTS = ["--prompt", "word5 word9", "--prompt", "word7"]
TORCH = ["--backend", "torch"]


@pytest.fixture(scope="module")
def packed(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("generate") / "packed"
    flags = ["--scheme", "exact", "--fill", "midpoint", "--quiet", "--jobs", "1"]
    assert main(["pack", str(llama), str(place), *flags]) == 0
    return place


def run_json(packed: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    assert (
        main(["generate", str(packed), *PROMPTS, *TORCH, "--max-tokens", "30", "--json", *flags])
        == 0
    )
    body: dict[str, Any] = json.loads(capsys.readouterr().out)
    return body


def test_a_speculative_reply_is_the_plain_one(
    packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = run_json(packed, capsys, "--plain")
    assert plain["report"]["drafted"] == 0
    for gamma in ("1", "4"):
        found = run_json(packed, capsys, "--gamma", gamma)
        assert (found["tokens"], found["texts"]) == (plain["tokens"], plain["texts"])
        assert found["report"]["drafted"] != 0


def test_a_seed_repeats_a_sample(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--temperature", "1", "--top-k", "20", "--top-p", "0.9", "--seed")
    first, again, other = (run_json(packed, capsys, *flags, seed) for seed in "112")
    assert first == again
    assert first["tokens"] != other["tokens"]


def test_replies_go_to_output_and_figures_beside_it(
    packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = run_json(packed, capsys)["texts"]
    command = ["generate", str(packed), *PROMPTS, *TORCH, "--max-tokens", "30"]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert printed.out == "\n\n".join(texts) + "\n"
    lines = printed.err.strip().splitlines()
    assert 4 <= len(lines) <= 6
    assert lines[0].startswith("2 replies, ")
    assert any("x fewer than without drafts" in line for line in lines)
    assert lines[-1].strip() == "all figures: --figures; none: --quiet"
    assert main([*command, "--quiet"]) == 0
    assert capsys.readouterr() == (printed.out, "")
    assert main([*command, "--figures"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "\n\n".join(texts) + "\n"
    for figure in (
        "acceptance rate",
        "tokens per verification",
        "packed, plain",
        "speed-up",
        "keys and values",
    ):
        assert figure in printed.err


@pytest.mark.parametrize("scheme", ["unary", "exact", "mx"])
def test_keys_and_values_can_be_packed(
    packed: Path, capsys: pytest.CaptureFixture[str], scheme: str
) -> None:
    flags = ("--kv", scheme, "--kv-group", "16", "--kv-block", "16")
    plain = run_json(packed, capsys, *flags, "--plain")
    found = run_json(packed, capsys, *flags, "--gamma", "4")
    assert found["texts"] == plain["texts"]
    if scheme != "mx":
        assert found["texts"] == run_json(packed, capsys)["texts"]
    read = found["report"]["kv"]
    assert read["draft"] > 0 < read["target"]


def test_gamma_can_be_adaptive(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(packed, capsys, "--gamma", "adaptive")
    assert found["texts"] == run_json(packed, capsys)["texts"]
    assert found["report"]["gamma"] == "adaptive"


def test_unsure_drafts_end_rounds(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--draft", "model", "--min-margin", "100", "--gamma", "4")
    found = run_json(packed, capsys, *flags)
    assert found["texts"] == run_json(packed, capsys)["texts"]
    assert len(found["report"]["accepted_lengths"]) == 5
    assert found["report"]["drafted"] == found["report"]["rounds"]  # one in each round, at most


def test_a_stop_string_ends_a_reply(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = run_json(packed, capsys)["texts"]
    words = str(first).split()
    found = run_json(packed, capsys, "--stop", words[4], "--stop", "never this")
    expected = str(first)[: str(first).index(words[4])]
    assert found["texts"][0] == expected
    if words[4] not in str(second):
        assert found["texts"][1] == second


@pytest.mark.parametrize("backend", ["torch", "native"])
def test_a_stop_token_of_the_generation_config_ends_a_reply(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    flags = ("--backend", backend)
    first, _ = run_json(packed, capsys, *flags)["tokens"]
    stop = first[11]
    other = shutil.copytree(packed, tmp_path / "other")
    path = other / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": [stop]}))
    found, _ = run_json(other, capsys, *flags)["tokens"]
    assert found == first[: first.index(stop) + 1]
    path.write_text(json.dumps({"eos_token_id": "end"}))
    assert main(["generate", str(other), *PROMPTS, *TORCH, *flags]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"casspec: error: {path}: eos_token_id must be below vocab_size (96),")
    assert error.count("\n") == 1


def test_json_has_prompts_and_why_replies_ended(
    packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_json(packed, capsys)
    assert found["prompts"] == ["word5 word9", "word7"]
    for reply, reason in zip(found["tokens"], found["stop_reasons"], strict=True):
        assert reason == ("stop_token" if reply[-1] == 0 else "length")
    found = run_json(packed, capsys, "--stop", found["texts"][0].split()[4])
    assert found["stop_reasons"][0] == "stop_string"


def test_prompts_come_from_files_and_standard_input(
    packed: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = run_json(packed, capsys)
    command = ["generate", str(packed), *TORCH, "--max-tokens", "30", "--json"]
    (tmp_path / "one").write_text("word5 word9\n")
    for flags in (
        ["--prompt-file", str(tmp_path / "one"), "--prompt-file", "-"],
        ["--prompt", "word5 word9", "--prompt-file", "-"],
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b" word7\n")))
        assert main([*command, *flags]) == 0
        assert json.loads(capsys.readouterr().out) == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"word5 word9")))
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["texts"] == expected["texts"][:1]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "must be the text of a prompt, and is empty"),
        (b"\xff\xfe", "must be text in UTF-8 ("),
    ],
)
def test_a_prompt_that_is_no_text_is_one_line(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, line: str
) -> None:
    path = tmp_path / "prompt"
    path.write_bytes(content)
    assert main(["generate", str(packed), *TORCH, "--prompt-file", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"casspec: error: {path} {line}")


def test_a_system_prompt_goes_before_and_raw_has_no_template(
    packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = run_json(packed, capsys)["tokens"]
    # the template writes word3 behind each message
    system = run_json(packed, capsys, "--system", "word4")
    assert system["prompts"][0] == [
        {"role": "system", "content": "word4"},
        {"role": "user", "content": "word5 word9"},
    ]
    command = ["generate", str(packed), *TORCH, "--max-tokens", "30", "--json", "--raw"]
    for prompt, expected in (
        ("word5 word9 word3", plain[0]),
        ("word4 word3word5 word9 word3", system["tokens"][0]),
    ):
        assert main([*command, "--prompt", prompt]) == 0
        assert json.loads(capsys.readouterr().out)["tokens"] == [expected]


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a packed model that has room for a long reply, and nothing that ends it."""
    place = tmp_path_factory.mktemp("endless")
    size = {"max_position_embeddings": 1 << 16, "eos_token_id": None, "bos_token_id": None}
    source = write_model(place / "plain", **size)  # type: ignore[arg-type]
    assert main(["pack", str(source), str(place / "packed"), *UNARY, "--jobs", "1"]) == 0
    return place / "packed"


def interrupted(endless: Path, number: signal.Signals, *flags: str) -> tuple[int, str, str]:
    """Code, output and errors of a command that gets a signal when it has begun to reply."""
    command = [
        sys.executable,
        "-m",
        "cassandra_spec.commands",
        "generate",
        str(endless),
        "--prompt",
        "word5",
        *TORCH,
    ]
    with subprocess.Popen(
        [*command, "--max-tokens", "60000", "--stop", "never this", *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        begun = process.stdout.read(30).decode()
        process.send_signal(number)
        rest, errors = process.communicate(timeout=300)
    return process.returncode, begun + rest.decode(), errors.decode()


@pytest.mark.parametrize(
    ("number", "code", "line"),
    [(signal.SIGINT, 130, "interrupted"), slow(signal.SIGTERM, 143, "terminated")],
)
def test_an_interrupt_ends_with_what_there_is(
    endless: Path, number: signal.Signals, code: int, line: str
) -> None:
    found, text, errors = interrupted(endless, number)
    assert found == code
    assert text.startswith("word")
    assert text.endswith("\n")
    assert errors.endswith(f"casspec: {line}\n")
    assert "tokens per verification" in errors
    assert "Traceback" not in errors


def test_an_interrupt_prints_json_of_what_there_is(
    packed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run_json(packed, capsys)["tokens"]
    rounds = CassandraForCausalLM.rounds

    def begun(*args: Any, **flags: Any) -> Iterator[list[int]]:
        yield from itertools.islice(rounds(*args, **flags), 3)
        raise KeyboardInterrupt

    monkeypatch.setattr(CassandraForCausalLM, "rounds", begun)
    assert main(["generate", str(packed), *PROMPTS, *TORCH, "--max-tokens", "30", "--json"]) == 130
    body = json.loads(capsys.readouterr().out)
    (tokens,) = body["tokens"]
    assert len(tokens) >= 3
    assert tokens == expected[0][: len(tokens)]
    assert (body["report"]["replies"], body["report"]["rounds"]) == (1, 2)


@pytest.mark.slow
def test_tokens_are_the_same_through_the_gateware(
    packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--kv", "exact", "--kv-group", "16", "--kv-block", "16")
    expected = run_json(packed, capsys, *flags)
    assert run_json(packed, capsys, *flags, "--codec", "rtl") == expected


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("--top-k 3", "--top-k must not be given without --temperature above 0"),
        ("--top-p 0.5", "--top-p must not be given without --temperature above 0"),
        ("--seed 1", "--seed must not be given without --temperature above 0"),
        ("--temperature 1 --threads 2", "--threads must not be given with the torch backend"),
        ("--native-target bf16", "--native-target must not be given with the torch backend"),
        ("--memory-limit 9", "--memory-limit must not be given with the torch backend"),
        ("--kv-truncated 4", "--kv-truncated must not be given without --kv"),
        ("--kv-whole", "--kv-whole must not be given without --kv"),
        ("--plain --gamma 3", "--gamma must not be given with --plain"),
        ("--plain --draft lookup", "--draft must not be given with --plain"),
        ("--gamma 0 --min-margin 1", "--min-margin must not be given with --gamma 0"),
        ("--draft lookup --min-margin 1", "--min-margin must not be given with --draft lookup"),
        ("--draft none --gamma 3", "--gamma must not be given with --draft none"),
        ("--raw --system word1", "--system must not be given with --raw"),
    ],
)
def test_a_flag_that_would_be_ignored_is_refused_by_name(
    packed: Path, capsys: pytest.CaptureFixture[str], flags: str, line: str
) -> None:
    assert main(["generate", str(packed), *PROMPTS, *TORCH, *flags.split()]) == 2
    assert capsys.readouterr().err == f"casspec: error: {line}\n"


@pytest.mark.parametrize(
    ("flags", "backend", "why"),
    [
        ("", "native", "the model, the machine and the options allow it"),
        ("--gamma 7 --threads 1", "native", "the model"),
        ("--temperature 1", "native", "the model"),
        ("--kv exact --kv-group 16 --kv-block 16", "native", "the model"),
        ("--kv mx", "torch", "keys and values in mx round what the target reads"),
        ("--codec golden", "torch", "the codec golden needs decoded weights"),
        ("--gamma 16", "torch", "gamma is above 15"),
    ],
)
def test_the_backend_is_chosen_and_named(
    packed: Path, capsys: pytest.CaptureFixture[str], flags: str, backend: str, why: str
) -> None:
    command = ["generate", str(packed), *PROMPTS, "--max-tokens", "5", "--json", *flags.split()]
    assert main(command) == 0
    found = capsys.readouterr()
    assert ("native" in json.loads(found.out)["report"]) == (backend == "native")
    cost = ", which is several times slower" if backend == "torch" else ""
    assert found.err.startswith(f"casspec: the {backend} backend was chosen{cost}: {why}")
    assert found.err.count("\n") == 1


def test_torch_is_chosen_for_a_model_that_native_code_does_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_model(tmp_path / "plain", hidden_act="gelu")
    flags = ["--scheme", "exact", "--quiet", "--jobs", "1"]
    assert main(["pack", str(source), str(tmp_path / "packed"), *flags]) == 0
    capsys.readouterr()
    assert main(["generate", str(tmp_path / "packed"), *PROMPTS, "--max-tokens", "5"]) == 0
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith(
        "casspec: the torch backend was chosen, which is several times slower: hidden_act"
    )


def test_torch_is_chosen_where_there_is_no_compiler(packed: Path) -> None:
    command = [sys.executable, "-m", "cassandra_spec.commands", "generate", str(packed), *PROMPTS]
    run = subprocess.run(
        [*command, "--max-tokens", "5"],
        cwd=ROOT,
        env=os.environ | {"CXX": "no-such-compiler"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0
    line = run.stderr.splitlines()[0]
    assert line == (
        "casspec: the torch backend was chosen, which is several times slower: the native library"
        " needs a C++ compiler, and no-such-compiler is not on PATH: install g++, or set CXX"
    )


def test_native_code_decodes_for_torch(
    packed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run_json(packed, capsys, "--codec", "golden")
    monkeypatch.setattr(GoldenCodec, "decode_target", lambda *_: pytest.fail("golden decoded"))
    assert run_json(packed, capsys) == expected


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--gamma", "-1"], "gamma must be from 0 to 4096, or 'adaptive', not -1"),
        (["--max-tokens", "0"], "argument --max-tokens: must be an integer from 1 to"),
        (
            ["--max-tokens", "900"],
            "prompt and reply must fit the context of 64 positions, not ",
        ),
        (["--gamma", "fast"], "argument --gamma: invalid gamma value: 'fast'"),
        (["--stop", ""], "stop_strings must not be empty strings"),
        (
            ["--kv", "mx", "--gamma", "9"],
            "gamma and rows must be at most 8 (the lag of the keys and",
        ),
        (["--kv", "exact", "--kv-block", "16"], "block must be a multiple of 32 (the group),"),
        (["--kv", "exact", "--kv-truncated", "8"], "truncated must be an integer from 0 to 7"),
        (["--temperature", "nan"], "temperature must be a number from 0 on, not nan"),
    ],
)
def test_bad_input_is_one_line(
    packed: Path, capsys: pytest.CaptureFixture[str], flags: list[str], line: str
) -> None:
    assert error_of(capsys, "generate", str(packed), *PROMPTS, *TORCH, *flags).startswith(line)


def test_a_model_that_is_not_packed_is_refused(
    llama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", str(llama), *PROMPTS, *TORCH]) == 2
    line = f"{llama} must be a packed model: make one with `casspec pack {llama} PACKED`"
    assert capsys.readouterr().err == f"casspec: error: {line}\n"


@pytest.mark.parametrize("command", ["generate", "pack"])
def test_a_name_of_the_hub_gets_a_hint(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rest = PROMPTS if command == "generate" else [str(tmp_path / "p"), "--quiet"]
    assert main([command, "HuggingFaceTB/SmolLM2-135M-Instruct", *rest]) == 2
    error = capsys.readouterr().err
    assert error == (
        "casspec: error: HuggingFaceTB/SmolLM2-135M-Instruct must be a directory of a model, and is"
        " missing (a model of the Hub is downloaded first, with `hf download NAME --local-dir DIR`)"
        "\n"
    )


@pytest.mark.parametrize(
    "flags",
    [["--plain"], ["--temperature", "1"], ["--backend", "native", "--threads", "1"]],
)
def test_a_model_whose_logits_are_not_finite_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    source = write_model(tmp_path / "plain")
    norm = tensors_of(source)["model.norm.weight"]
    replace_tensors(source, {"model.norm.weight": norm * float("nan")})
    assert main(["pack", str(source), str(tmp_path / "packed"), *UNARY, "--jobs", "1"]) == 0
    capsys.readouterr()
    command = ["generate", str(tmp_path / "packed"), *PROMPTS, *TORCH, "--max-tokens", "9", *flags]
    assert main(command) == 2
    found = capsys.readouterr()
    line = "casspec: error: logits must be finite, not NaN or infinite: check the weights\n"
    assert (found.out, found.err) == ("", line)
