"""``casspec chat``, and what all commands have."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cassandra_spec import __version__
from cassandra_spec.commands.__main__ import main
from tests.commands.status import error_of
from tests.model.tiny import write_model

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["--backend", "torch", "--max-tokens", "12"]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("chat")
    source = write_model(place / "plain", max_position_embeddings=256)
    flags = ["--scheme", "exact", "--quiet", "--jobs", "1"]
    assert main(["pack", str(source), str(place / "packed"), *flags]) == 0
    return place / "packed"


def reply_to(packed: Path, capsys: pytest.CaptureFixture[str], prompt: str) -> str:
    """Return the reply to the text that the chat template should make."""
    command = ["generate", str(packed), "--raw", "--json", "--prompt", prompt, *FLAGS]
    assert main(command) == 0
    text: str = json.loads(capsys.readouterr().out)["texts"][0]
    return text


def test_the_model_sees_the_whole_conversation(
    packed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = reply_to(packed, capsys, "word4 word3word5 word9 word3")
    history = f"word4 word3word5 word9 word3{first} word3word7 word3"  # as the template writes it
    second = reply_to(packed, capsys, history)
    monkeypatch.setattr(sys, "stdin", io.StringIO("word5 word9\n\nword7\n"))
    assert main(["chat", str(packed), "--system", "word4", *FLAGS]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{first}\n{second}\n\n"
    assert "2 replies, " in printed.err


def size(*messages: str) -> int:
    """Return the tokens of messages: words between spaces of the template's text."""
    return len("".join(f"{each} word3" for each in messages).split())


def test_the_oldest_turns_are_dropped_at_the_end_of_the_context(
    packed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    room, system, longest = 40 - 12, "word4", " ".join(["word6"] * 40)
    lines = ["word5 word9", "word7", "word11 word13", longest, "word8"]
    flags = ["--context", "40", "--system", system]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
    assert main(["chat", str(packed), *flags, *FLAGS]) == 0
    printed = capsys.readouterr()
    replies = printed.out.split("\n")[:-2]
    turns, dropped = list[str](), 0
    for line, reply in zip([each for each in lines if each != longest], replies, strict=True):
        turns.append(line)
        while size(system, *turns) > room:
            turns, dropped = turns[2:], dropped + 1
        prompt = "".join(f"{each} word3" for each in (system, *turns))
        assert reply_to(packed, capsys, prompt) == reply
        turns.append(reply)
    assert dropped > 1
    assert printed.err.count("the context is full: the oldest turns are left out") == 1
    tokens = f"at most {room} tokens with the system message, not {size(system, longest)}"
    assert f"the message must be {tokens}: it is left out" in printed.err


def test_a_reply_leaves_room_for_a_message(
    packed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("word5"))
    error = error_of(capsys, "chat", str(packed), "--context", "12", *FLAGS)
    assert error == "max_tokens must be below 12, the positions of the context, not 12"


def test_no_message_is_no_error(
    packed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert main(["chat", str(packed), *FLAGS]) == 0
    assert capsys.readouterr() == ("", "")


def test_an_interrupt_ends_a_conversation_cleanly(packed: Path) -> None:
    command = [sys.executable, "-m", "cassandra_spec.commands", "chat", str(packed), *FLAGS]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"word5 word9\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith(b"word")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 0
    assert b"tokens; " in errors
    assert b"Traceback" not in errors


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"casspec {__version__}\n"
