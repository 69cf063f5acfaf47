"""The help of the commands: what stands first, and what --help-all adds."""

from __future__ import annotations

import re

import pytest

from cassandra_spec.commands.__main__ import main

OPTION = re.compile(r"^  (?:-h, )?(--[a-z-]+)", re.MULTILINE)


def helped(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the text of a help flag, which exits with 0."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 0
    return capsys.readouterr().out


def test_the_commands_of_a_user_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(r"^    ([a-z-]+)", helped(capsys, "--help"), re.MULTILINE)
    assert commands[:6] == ["pack", "generate", "chat", "serve", "inspect", "rtl"]


@pytest.mark.parametrize("command", ["generate", "chat", "serve"])
def test_the_short_help_is_a_part_of_the_whole(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    few = OPTION.findall(helped(capsys, command, "--help"))
    whole = OPTION.findall(helped(capsys, command, "--help-all"))
    assert len(few) <= 16
    assert {"--help", "--help-all"} < set(few) < set(whole)
    assert {"--kv-truncated", "--gamma", "--debug"} <= set(whole) - set(few)
    assert OPTION.findall(helped(capsys, command, "--help")) == few  # the same after the whole


def test_flags_that_are_not_shown_work(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["generate", "packed", "--kv-truncated", "x"])
    assert caught.value.code == 2
    assert "--kv-truncated" in capsys.readouterr().err
