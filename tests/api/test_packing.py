"""Packing, the codec and the export, as Python calls them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cassandra_spec as cassandra
from cassandra_spec.commands.__main__ import main
from tests.model.tiny import write_model

ROOT = Path(__file__).resolve().parents[2]


def test_a_model_is_packed_as_the_command_packs_it(tmp_path: Path) -> None:
    source, said = write_model(tmp_path / "plain"), list[str]()
    work = cassandra.Work(jobs=1, say=said.append)
    outcome = cassandra.pack(
        source, tmp_path / "a", work=work, group_exponents="chosen", truncated=3
    )
    flags = ["--group-exponents", "chosen", "--truncated", "3", "--jobs", "1", "--quiet"]
    assert main(["pack", str(source), str(tmp_path / "b"), *flags]) == 0
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in "ab")
    assert one == other
    assert outcome.bytes == len(one)


def test_a_script_without_a_guard_packs_in_processes(tmp_path: Path) -> None:
    write_model(tmp_path / "plain")
    (tmp_path / "script.py").write_text(
        "import cassandra_spec as cassandra\n"
        "print('begun', flush=True)\n"
        "work = cassandra.Work(jobs=2)\n"
        "cassandra.pack('plain', 'packed', group_exponents='chosen', work=work)\n"
    )
    command = [sys.executable, "script.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout == "begun\n"
    assert (tmp_path / "packed" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"preset": "best"}, "preset must be one of fast, paper, small, not 'best'"),
        ({"truncatd": 3}, "a field must be one of .* not 'truncatd'"),
        ({"recipe": "r.toml", "group": 32}, "group must be in r.toml or given, not both"),
    ],
)
def test_a_bad_argument_is_one_line(tmp_path: Path, options: dict[str, object], line: str) -> None:
    source = write_model(tmp_path / "plain")
    with pytest.raises(cassandra.CassandraError, match=line):
        cassandra.pack(source, tmp_path / "packed", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "packed").exists()


def test_the_codec_returns_what_it_got() -> None:
    values = np.random.default_rng(1).normal(size=1000).astype(np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    packed = cassandra.encode(bits, cassandra.Format(scheme="exact", group=64))
    assert isinstance(packed, cassandra.Packed)
    np.testing.assert_array_equal(cassandra.decode_target(packed), bits)
    assert (cassandra.decode_draft(packed) != bits).any()


def test_gateware_is_exported_as_the_command_exports_it(tmp_path: Path) -> None:
    made = cassandra.export_gateware(tmp_path / "a", "dma", lanes=8, schemes=["mx"], bus=128)
    flags = ["--top", "dma", "--lanes", "8", "--schemes", "mx", "--bus", "128"]
    assert main(["rtl", "--out", str(tmp_path / "b"), *flags]) == 0
    assert [path.read_bytes() for path in made] == [
        (tmp_path / "b" / path.name).read_bytes() for path in made
    ]
    with pytest.raises(cassandra.CassandraError, match="bus must be left out"):
        cassandra.export_gateware(tmp_path / "c", bus=128)
