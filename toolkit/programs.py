"""Run other programs for their output, some in Python environments of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import venv
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

TICK = 1.0
"""Seconds between checks of a program with a title."""


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
    """Run a program in ``folder``, without input; return its output, stderr included.

    ``variables`` is its environment, by default ours; ``log`` is a file for the output. With a
    ``title``, a line on stderr shows the elapsed time: each second on a terminal, else at the end.
    Without one, the program is killed after ``limit`` seconds, and its output so far is returned.
    Raises ``error``, with the last line of output, if the program is missing or ends with a status
    that is not in ``statuses``.
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
    """Run a program, return its status and output; kill it on an exception or interrupt."""
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
    """Collect the output of a program, and show how long it has run."""
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
    """Return the ``bin`` folder of a virtual environment; create it if ``requirements`` changed.

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
