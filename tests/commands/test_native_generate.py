"""``casspec generate --backend native``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.model import backends
from cassandra_spec.native.forms import TARGETS
from cassandra_spec.native.library import ISAS
from cassandra_spec.native.models import streaming
from tests.commands.status import error_of
from tests.marks import slow

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = ["--prompt", "word5 word9", "--prompt", "word7"]
NATIVE = ["--backend", "native", "--threads", "1"]


def run_json(packed: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    command = ["generate", str(packed), *PROMPTS, "--max-tokens", "40", "--json", *NATIVE, *flags]
    assert main(command) == 0
    body: dict[str, Any] = json.loads(capsys.readouterr().out)
    return body


@pytest.mark.parametrize("draft", ["model", "lookup", "hybrid"])
def test_a_speculative_reply_is_the_plain_one(
    packed: Path, capsys: pytest.CaptureFixture[str], draft: str
) -> None:
    plain = run_json(packed, capsys, "--plain")
    assert plain["report"]["drafted"] == 0
    for gamma, target in (("1", "bf16"), ("5", "packed12"), ("adaptive", "planes")):
        flags = ("--gamma", gamma, "--draft", draft, "--native-target", target)
        found = run_json(packed, capsys, *flags)
        assert (found["tokens"], found["texts"]) == (plain["tokens"], plain["texts"])


@pytest.mark.parametrize("faster", ["bf16", "packed12", "planes"])
def test_the_targets_form_is_chosen_by_the_time_of_a_step(
    packed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, faster: str
) -> None:
    assert set(backends.target_seconds(packed, 1, rows=6)) == set(backends.timed_targets())
    seconds = {form: 0.002 if form == faster else 0.003 for form in TARGETS}
    monkeypatch.setattr(backends, "target_seconds", lambda source, threads, rows: seconds)
    plain = run_json(packed, capsys, "--plain")
    command = ["generate", str(packed), *PROMPTS, "--max-tokens", "40", "--json", *NATIVE]
    assert main([*command, "--native-target", "auto"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["tokens"] == plain["tokens"]
    held = "bf16" if faster == "planes" else faster  # the drafts have no midpoints
    assert set(found["report"]["native"]["forms"]["target"]) == {held}
    line = f"casspec: the native target {faster} was chosen: a pass over 6 rows takes "
    assert next(each for each in printed.err.splitlines() if "target" in each).startswith(line)


@pytest.mark.parametrize("isa", ISAS)
def test_planes_are_timed_only_where_their_kernels_have_been_run(
    monkeypatch: pytest.MonkeyPatch, isa: str
) -> None:
    monkeypatch.setattr(backends, "isa", lambda: isa)
    timed = ["bf16", "packed12", *(["planes"] if isa in ("portable", "avx2") else [])]
    assert list(backends.timed_targets()) == timed


def test_a_target_beyond_the_memory_limit_is_read_from_the_file(
    packed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run_json(packed, capsys, "--plain")
    inside = run_json(packed, capsys, "--memory-limit", "1000")
    assert inside["report"]["native"]["forms"]["target"].keys() == {"bf16"}
    monkeypatch.setattr(streaming.Needs, "whole", property(lambda self: 1 << 60))
    for flags in (("--native-target", "auto"), ("--draft", "none"), ("--temperature", "0")):
        found = run_json(packed, capsys, "--memory-limit", "30", *flags)
        assert found["tokens"] == plain["tokens"]
        assert found["report"]["native"]["forms"]["target"].keys() == {"streamed"}
    monkeypatch.setattr(streaming.Needs, "minimum", property(lambda self: 31_500_000))
    command = ["generate", str(packed), *PROMPTS, *NATIVE, "--memory-limit", "31"]
    assert "memory-limit must be at least 32 MB, " in error_of(capsys, *command)
    monkeypatch.setattr(streaming.Needs, "minimum", 0)
    assert "target must be bf16" in error_of(capsys, *command, "--native-target", "packed12")


def test_a_sample_is_repeated_by_its_seed_and_has_figures(
    packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--temperature", "1", "--top-p", "0.9", "--gamma", "3", "--seed")
    first, again, other = (run_json(packed, capsys, *flags, seed) for seed in ("5", "5", "6"))
    assert first["tokens"] == again["tokens"] != other["tokens"]
    report = first["report"]
    assert 0 < report["accepted"] < report["drafted"]
    assert report["traffic"]["all"]["speedup"] > 0
    assert report["native"]["tokens_per_second"] > 0


def test_prompts_side_by_side_have_the_replies_that_they_have_alone(
    packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = [word for n in range(5) for word in ("--prompt", " ".join(["word3"] * (40 - 9 * n)))]
    plain = run_json(packed, capsys, *more, "--plain")
    stop = plain["texts"][1].split()[5]
    for flags in ((), ("--stop", stop), ("--temperature", "1", "--seed", "5")):
        alone = run_json(packed, capsys, *more, "--plain", *flags)
        for drafts in (("--gamma", "4", "--draft", "hybrid"), (), ("--plain",)):
            found = run_json(packed, capsys, *more, "--batch", "3", *drafts, *flags)
            for name in ("prompts", "texts", "tokens", "stop_reasons"):
                assert found[name] == alone[name]
            assert found["report"]["tokens"] == alone["report"]["tokens"]
            if "--gamma" in drafts:
                assert found["report"]["accepted"] > 0
    command = ["generate", str(packed), *PROMPTS, *more, "--max-tokens", "40", *NATIVE]
    assert main([*command, "--batch", "16"]) == 0
    assert capsys.readouterr().out == "\n\n".join(plain["texts"]) + "\n"


def test_figures_have_the_names_of_the_other_backend(
    packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_json(packed, capsys, "--gamma", "3")["report"]
    assert (
        main(
            [
                "generate",
                str(packed),
                *PROMPTS,
                "--max-tokens",
                "40",
                "--json",
                "--backend",
                "torch",
            ]
        )
        == 0
    )
    torch = json.loads(capsys.readouterr().out)["report"]
    assert set(found) - {"native"} <= set(torch)
    assert found["tokens"] == torch["tokens"] == 80
    assert found["drafted"] > found["accepted"] > 0
    assert found["native"]["threads"] == 1
    assert found["native"]["tokens_per_second"] > 0


def test_replies_go_to_output_and_figures_beside_it(
    packed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_json(packed, capsys)
    texts = found["texts"]
    assert found["report"]["gamma"] == "adaptive"  # unless something else is asked for
    assert main(["generate", str(packed), *PROMPTS, "--max-tokens", "40", *NATIVE]) == 0
    printed = capsys.readouterr()
    assert printed.out == "\n\n".join(texts) + "\n"
    assert len(printed.err.strip().splitlines()) == 6
    for figure in ("tokens per second", "fewer than without drafts", "memory in MB: target "):
        assert figure in printed.err
    command = ["generate", str(packed), *PROMPTS, "--max-tokens", "40", *NATIVE, "--figures"]
    assert main(command) == 0
    printed = capsys.readouterr()
    for figure in ("acceptance rate", "tokens per second", "ms per draft", "rounds by plan"):
        assert figure in printed.err


def test_a_stop_string_ends_a_reply(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = run_json(packed, capsys)["texts"][0]
    word = first.split()[6]
    found = run_json(packed, capsys, "--stop", word, "--stop", "never this")
    assert found["texts"][0] == first[: first.index(word)]


@pytest.mark.parametrize(
    ("number", "code", "line"),
    [(signal.SIGINT, 130, "interrupted"), slow(signal.SIGTERM, 143, "terminated")],
)
def test_an_interrupt_ends_with_what_there_is(
    packed: Path, number: signal.Signals, code: int, line: str
) -> None:
    command = [
        sys.executable,
        "-m",
        "cassandra_spec.commands",
        "generate",
        str(packed),
        "--prompt",
        "word5",
    ]
    flags = ["--max-tokens", "30000", "--stop", "never this", *NATIVE, "--threads", "2"]
    with subprocess.Popen(
        [*command, *flags], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        begun = process.stdout.read(30).decode()
        process.send_signal(number)
        rest, errors = (stream.decode() for stream in process.communicate(timeout=300))
    assert process.returncode == code
    assert begun.startswith("word")
    assert rest.endswith("\n")
    assert errors.endswith(f"casspec: {line}\n")
    assert "tokens per verification" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--top-k", "3"], "--top-k must not be given without --temperature above 0"),
        (["--kv", "mx"], "the scheme of keys and values must be unary or exact with the native"),
        (["--kv", "exact", "--kv-block", "96"], "block must divide 128 (positions of a native"),
        (["--codec", "rtl"], "--codec must not be given with --backend native"),
        (
            ["--temperature", "1", "--acceptance", "rejection", "--batch", "2"],
            "acceptance must be noise in the engine's rounds, not rejection",
        ),
        (["--batch", "17"], "batch must be from 1 to 16, not 17"),
        (["--gamma", "16"], "gamma must be from 0 to 15, or 'adaptive', not 16 (the native"),
        (["--threads", "0"], "argument --threads: must be an integer from 1 to 2147483647, not 0"),
        (["--threads", "257"], "threads must be from 1 to 256, not 257"),
        (["--stop", ""], "stop_strings must not be empty strings"),
        (["--max-tokens", "40000"], "prompt and reply must fit the context of 32768 positions"),
    ],
)
def test_bad_input_is_one_line(
    packed: Path, capsys: pytest.CaptureFixture[str], flags: list[str], line: str
) -> None:
    assert error_of(capsys, "generate", str(packed), *PROMPTS, *NATIVE, *flags).startswith(line)


def test_a_model_that_is_not_packed_is_refused(
    llama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", str(llama), *PROMPTS, *NATIVE]) == 2
    assert "must be a packed model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("compiler", "line", "hint"),
    [
        ("no-such-compiler", "the native library needs a C++ compiler", "install g++"),
        ('"', "CXX must be a command, not", '"'),
    ],
)
def test_a_machine_without_a_compiler_says_so(
    packed: Path, compiler: str, line: str, hint: str
) -> None:
    command = [
        sys.executable,
        "-m",
        "cassandra_spec.commands",
        "generate",
        str(packed),
        *PROMPTS,
        *NATIVE,
    ]
    run = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"CXX": compiler},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert run.stderr.startswith(f"casspec: error: {line}")
    assert hint in run.stderr


@pytest.mark.parametrize("kv", [[], ["--kv", "exact"]])
def test_neither_torch_nor_transformers_is_imported(packed: Path, kv: list[str]) -> None:
    code = (
        "import sys; from cassandra_spec.commands.__main__ import main;"
        "code = main(sys.argv[1:]);"
        "sys.exit(code or len({'torch', 'transformers'} & {*sys.modules}))"
    )
    command = ["generate", str(packed), *PROMPTS, "--max-tokens", "4", *NATIVE, *kv]
    run = subprocess.run([sys.executable, "-c", code, *command], check=False)
    assert run.returncode == 0
