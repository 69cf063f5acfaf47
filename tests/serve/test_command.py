"""``casspec serve`` as a process, and the end of a server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import openai
import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.commands.serve import KEY

ROOT = Path(__file__).resolve().parents[2]


def test_a_signal_finishes_what_runs(packed: Path) -> None:
    command = [sys.executable, "-m", "cassandra_spec.commands", "serve", str(packed)]
    flags = ["--port", "0", "--threads", "1", "--draft", "hybrid", "--slots", "2", "--name", "m"]
    variables = {**os.environ, KEY: "secret"}
    with subprocess.Popen(
        [*command, *flags], cwd=ROOT, stderr=subprocess.PIPE, text=True, env=variables
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"casspec: loading {packed}\n"
        lines = iter(process.stderr.readline, "")
        line = next(each for each in lines if " at http" in each)
        assert line.startswith("casspec: m at http://127.0.0.1:")
        assert "(native backend" in line
        address = f"{line.split()[3]}/v1"
        with openai.OpenAI(base_url=address, api_key="secret", max_retries=0) as client:
            ask = {"model": "m", "prompt": "word1", "max_tokens": 1000, "stream": True}
            stream = client.completions.create(**ask)  # type: ignore[call-overload]
            chunks = [next(stream)]
            process.send_signal(signal.SIGTERM)
            chunks += list(stream)
            assert chunks[-1].choices[0].finish_reason == "length"
            with pytest.raises(openai.APIConnectionError):
                client.models.list()
        assert process.wait(timeout=300) == 0
        line, *more = process.stderr.read().splitlines()
        assert line.startswith("casspec: POST /v1/completions 200 in ")
        assert "; reply 1000 tokens (" in line
        assert not more


def test_what_is_wrong_is_said_in_one_line(
    packed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for flags, message in (
        (["--host", "no such host"], "must be an address to listen on"),
        (["--port", "70000"], "must be an integer from 0 to 65535"),
        (["--slots", "17"], "slots must be from 1 to 16, not 17"),
        (["--api-key", "schlüssel"], "--api-key must be of ASCII characters"),
        (["--default-temperature", "-1"], "temperature must be a number from 0 on"),
        (["--plain", "--gamma", "3"], "--gamma must not be given with --plain"),
    ):
        try:
            status = main(["serve", str(packed), "--threads", "1", *flags])
        except SystemExit as end:
            status = end.code  # type: ignore[assignment]
        err = re.sub(r"^casspec: loading .*\n", "", capsys.readouterr().err)
        assert (status, err.count("\n")) == (2, 1)
        assert message in err
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "cassandra_spec.serve.server", raising=False)
    assert main(["serve", str(packed)]) == 2
    expected = "casspec: error: uvicorn is missing: pip install 'cassandra-spec[serve]'\n"
    assert capsys.readouterr().err == expected
