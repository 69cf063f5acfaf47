"""Other programs, run for what they print, and Python environments of their own for some."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import venv
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

TICK = 1.0
"""Seconds between two looks at a program that has a title."""


def run_program(
    command: Sequence[object],
    folder: Path,
    *,
    error: type[Exception],
    variables: Mapping[str, str] | None = None,
    log: Path | None = None,
    title: str | None = None,
    limit: float | None = None,
    statuses: Collection[int] = (0,),
) -> str:
    """Run a program in ``folder``, without input; returns what it prints, errors included.

    ``variables`` are its environment, ours by default; ``log`` is a file for what it prints; with a
    ``title`` a line on stderr says how long it has run, each second on a terminal, else at its end.
    A program without a title is ended after ``limit`` seconds, and what it has printed is returned.
    Raises ``error``, with the last line that it printed, if it is missing or ends with a status
    that is not among ``statuses``.
    """
    words = [str(word) for word in command]
    name = Path(words[0]).name
    try:
        status, printed = _run(words, folder, variables, title, limit)
    except OSError as failed:
        raise error(f"{name} must be a program that runs: {failed.strerror}") from failed
    if log is not None:
        log.write_text(printed, encoding="utf-8")
    if status not in statuses:
        last = (printed.strip().splitlines() or ["no output"])[-1]
        where = "" if log is None else f" (all of it: {log})"
        raise error(f"{name} must end without an error, not with {last!r}{where}")
    return printed


def _run(
    words: Sequence[str],
    folder: Path,
    variables: Mapping[str, str] | None,
    title: str | None,
    limit: float | None,
) -> tuple[int, str]:
    """Status of a program and what it prints; it does not outlive an exception, as an interrupt."""
    with subprocess.Popen(
        words,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=variables,
    ) as process:
        try:
            if title is not None:
                printed = _watched(process, title)
            else:
                printed = process.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return 0, process.communicate()[0]
        except BaseException:
            process.kill()
            raise
    return process.returncode, printed


def _watched(process: subprocess.Popen[str], title: str) -> str:
    """What a program prints, while a line says how long it has run."""
    start, live = time.monotonic(), sys.stderr.isatty()
    while True:
        try:
            printed = process.communicate(timeout=TICK)[0]
        except subprocess.TimeoutExpired:
            printed = None
        if live or printed is not None:
            line = f"{time.monotonic() - start:7.0f} s  {title}"
            end = "" if printed is None else "\n"
            print(f"\r{line}" if live else line, end=end, file=sys.stderr, flush=True)
        if printed is not None:
            return printed


def python_environment(folder: Path, requirements: Path, *, error: type[Exception]) -> Path:
    """The folder of programs of a virtual environment, made if it is not as ``requirements`` say.

    Raises ``error`` if the packages cannot be installed, ``OSError`` if the folder cannot be
    written.
    """
    folder = folder.absolute()  # programs run in folders of their own
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    ready, wanted = folder / "ready", requirements.read_text(encoding="utf-8")
    if not ready.is_file() or ready.read_text(encoding="utf-8") != wanted:
        venv.create(folder, clear=True, with_pip=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]
        plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        command = [programs / "python", *install, requirements.absolute()]
        run_program(command, folder, error=error, variables=plain)
        ready.write_text(wanted, encoding="utf-8")
    return programs
