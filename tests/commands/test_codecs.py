"""``--codec``: the same files from both codecs, and golden's where there is no compiler."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

import pytest

from cassandra_spec.commands.__main__ import main
from cassandra_spec.commands.pack import choose_codec
from cassandra_spec.golden import GoldenCodec
from cassandra_spec.model.weights.sources import MODEL_FILE
from cassandra_spec.native import NativeError
from cassandra_spec.native.codec import NativeCodec


def namespace(codec: str | None) -> argparse.Namespace:
    return argparse.Namespace(codec=codec, quiet=False)


@pytest.mark.parametrize(
    "flags",
    [
        "--scheme unary --prune 0.3 --pruned-exponent coded",
        "--scheme exact --group-exponents weighted",
        "--scheme mx --truncated 5 --prune 0.5 --prune-scores magnitude",
    ],
)
def test_both_codecs_write_the_same_files(llama: Path, tmp_path: Path, flags: str) -> None:
    for codec in ("golden", "native"):
        work = ["--jobs", "1", "--quiet", "--codec", codec]
        packed, plain = tmp_path / codec, tmp_path / f"{codec} plain"
        assert main(["pack", str(llama), str(packed), *shlex.split(flags), *work]) == 0
        assert main(["unpack", str(packed), str(plain), "--draft", *work]) == 0
    for end in ("", " plain"):
        ours, goldens = (tmp_path / f"{name}{end}" / MODEL_FILE for name in ("native", "golden"))
        assert ours.read_bytes() == goldens.read_bytes()


def test_the_native_codec_works_in_worker_processes(llama: Path, tmp_path: Path) -> None:
    for codec in ("golden", "native"):
        work = ["--jobs", "2", "--quiet", "--codec", codec]
        assert main(["pack", str(llama), str(tmp_path / codec), "--scheme", "exact", *work]) == 0
    files = [(tmp_path / name / MODEL_FILE).read_bytes() for name in ("golden", "native")]
    assert files[0] == files[1]


def test_native_is_the_default() -> None:
    assert isinstance(choose_codec(namespace(None)), NativeCodec)
    assert isinstance(choose_codec(namespace("golden")), GoldenCodec)


def test_without_a_compiler_golden_is_used_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise NativeError("the native library needs a C++ compiler")

    monkeypatch.setattr("cassandra_spec.native.codec._library", refuse)
    assert isinstance(choose_codec(namespace(None)), GoldenCodec)
    assert "many times slower: the native library needs a C++ comp" in capsys.readouterr().err
    with pytest.raises(NativeError, match="needs a C"):
        choose_codec(namespace("native"))
