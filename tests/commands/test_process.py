"""The command as a process: full disks, interrupts and readers that go away."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.model.tiny import change_config, replace_tensors, tensors_of

COMMAND = [sys.executable, "-m", "cassandra_spec.commands"]
UNARY = ("--scheme", "unary", "--quiet")
ROOT = Path(__file__).resolve().parents[2]
LARGE = 1 << 18  # tokens, whose head takes seconds to pack


@pytest.fixture
def large(own_llama: Path) -> Path:
    """Return a model whose head takes long enough to be interrupted."""
    size = tensors_of(own_llama)["lm_head.weight"].shape[1]
    generator = torch.Generator().manual_seed(1)
    head = torch.randn((LARGE, size), generator=generator).to(torch.bfloat16)
    change_config(own_llama, vocab_size=LARGE)
    names = ("lm_head.weight", "model.embed_tokens.weight")
    return replace_tensors(own_llama, {name: head.clone() for name in names})


def assert_one_error(err: str, message: str) -> None:
    assert err.startswith("casspec: error: ")
    assert err.count("\n") == 1
    assert message in err


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_full_disk(large: Path, tmp_path: Path, jobs: int) -> None:
    """A limit on file sizes stands for a full disk: writing fails in the middle."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    done = subprocess.run(
        [*COMMAND, "pack", large, tmp_path / "p", *UNARY, "--jobs", str(jobs)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=limit,
        check=False,
    )
    assert done.returncode == 2
    assert_one_error(done.stderr, f"{tmp_path / 'p'}: File too large; run it again to go on; ")
    assert names(tmp_path) == {"own-llama", ".p.partial"}
    again = [*COMMAND, "pack", str(large), str(tmp_path / "p"), *UNARY, "--jobs", str(jobs)]
    subprocess.run(again, cwd=ROOT, check=True)
    assert names(tmp_path) == {"own-llama", "p"}


def test_output_that_cannot_be_printed(llama: Path, tmp_path: Path) -> None:
    subprocess.run([*COMMAND, "pack", llama, tmp_path / "p", *UNARY], cwd=ROOT, check=True)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "inspect", tmp_path / "p"],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert_one_error(done.stderr, "standard output: No space left on device")


def test_a_reader_that_goes_away(llama: Path, tmp_path: Path) -> None:
    subprocess.run([*COMMAND, "pack", llama, tmp_path / "p", *UNARY], cwd=ROOT, check=True)
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "inspect", tmp_path / "p", "--json"],
        cwd=ROOT,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def wait_for_parts(folder: Path, process: subprocess.Popen[str]) -> None:
    """Wait until the command has begun to pack tensors."""
    deadline = time.monotonic() + 300
    while not (folder / ".p.partial/store/codebooks").exists():
        assert process.poll() is None, "the command must not end before it is interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(
    ("number", "code", "line"),
    [
        (signal.SIGINT, 130, "casspec: interrupted"),
        (signal.SIGTERM, 143, "casspec: terminated"),
    ],
)
def test_an_interrupt(
    large: Path, tmp_path: Path, number: int, code: int, line: str, jobs: int
) -> None:
    """An interrupt from a terminal reaches the workers, too."""
    command = [*COMMAND, "pack", str(large), str(tmp_path / "p"), *UNARY, "--jobs", str(jobs)]
    with subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        wait_for_parts(tmp_path, process)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (code, f"{line}; {note(tmp_path)}\n")
    assert names(tmp_path) == {"own-llama", ".p.partial"}


def note(folder: Path) -> str:
    return f"run it again to go on; what is done is in {folder / '.p.partial'}"


ANNOUNCED = """
from cassandra_spec.commands.__main__ import main
print("ready", flush=True)
raise SystemExit(main())
"""


@pytest.mark.parametrize("delay", [0.1, 0.2, 0.3, 0.5, 0.7, 1.0])
def test_an_interrupt_at_any_time_leaves_one_line(
    large: Path, tmp_path: Path, delay: float
) -> None:
    """While modules are loaded, while workers start, while they work."""
    command = [sys.executable, "-c", ANNOUNCED, "pack", str(large), str(tmp_path / "p"), *UNARY]
    with subprocess.Popen(
        [*command, "--jobs", "2"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=300)
    left = names(tmp_path) - {"own-llama"}
    rest = f"; {note(tmp_path)}" if left else ""
    assert (process.returncode, err) == (130, f"casspec: interrupted{rest}\n")
    assert left <= {".p.partial"}
