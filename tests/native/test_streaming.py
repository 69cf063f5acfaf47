"""An engine that reads its target from the file beside one that has everything in memory."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cassandra_spec.drafting import Counters, Settings
from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.golden.file import PackedFile
from cassandra_spec.native.build import NativeError
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.engine_binding import Row
from cassandra_spec.native.library import isa
from cassandra_spec.native.models import fitting, loaded, streaming
from cassandra_spec.native.models.reading import read_model_config
from tests.native.models import KINDS, packed_models, save_packed, small

ROOT = Path(__file__).resolve().parents[2]
PROMPT = tuple(int(token) for token in np.random.default_rng(3).integers(0, 97, 19))
SEGMENT = 2048  # rows begin and end anywhere in them
FORMATS = {
    "unary": Format(scheme="unary", truncated=4, segment=SEGMENT),
    "coded": Format(scheme="unary", truncated=4, segment=SEGMENT, pruned_exponent="coded"),
    "mx": Format(scheme="mx", truncated=4, group=32, segment=SEGMENT),
    "exact": Format(scheme="exact", truncated=4, fill="midpoint", group=32, segment=SEGMENT),
}

Sources = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """Packed models, by scheme and kind, of a vocabulary and a width that are no round numbers."""
    return packed_models(tmp_path_factory.mktemp("models"), FORMATS)


@pytest.fixture(autouse=True)
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few bytes at a time, so that matrices have several parts."""
    monkeypatch.setattr(streaming, "MIN_SLAB", 3000)
    monkeypatch.setattr(streaming, "SLAB", 6000)
    monkeypatch.setattr(streaming, "READ_AHEAD", 2)


def least(source: Path, **options: Any) -> int:
    """Return the minimum limit for a model."""
    chosen = {"target": "bf16", "draft": True, "slots": 1, "context": 128, "threads": 1, **options}
    config = read_model_config(json.loads((source / "config.json").read_text()))
    return streaming.needs(config, PackedFile(source / "model.safetensors"), **chosen).minimum


def both(source: Path, more: int = 0, **options: Any) -> Iterator[Engine]:
    """Yield an engine with everything in memory, and one that streams with ``more`` than needed."""
    chosen = {"threads": 1, "pin": False, "context": 128, **options}
    with Engine.from_packed(source, **chosen) as whole:
        assert whole.streamed() is None
        yield whole
    with streamed(source, more, **options) as engine:
        yield engine


def streamed(source: Path, more: int = 0, **options: Any) -> Engine:
    """Return an engine that streams even if everything fits, as buffers outweigh small models."""
    limit = least(source, **options) + more
    chosen = {"threads": 1, "pin": False, "context": 128, **options}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming.Needs, "whole", property(lambda self: 1 << 60))
        engine = Engine.from_packed(source, memory_limit=limit, **chosen)
    assert set(engine.forms["target"]) == {loaded.STREAMED}
    return engine


def reply(engine: Engine, counters: Counters | None = None, **settings: Any) -> list[int]:
    chosen = Settings(**{"max_tokens": 40, **settings})
    rounds = engine.rounds(PROMPT, chosen, counters or Counters())
    return list(itertools.chain.from_iterable(rounds))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("scheme", FORMATS)
def test_passes_over_any_rows_are_those_of_memory(
    saved: Sources, scheme: str, threads: int
) -> None:
    found = []
    for engine in both(saved(scheme, "llama"), threads=threads):
        found += [engine.forward(PROMPT, rows=rows) for rows in (3, 16)]
        engine.forward(PROMPT, rows=7, last=0)  # passes without the head
        found.append(engine.forward(PROMPT, rows=8))
    assert all((logits == found[0]).all() for logits in found)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", FORMATS)
def test_all_numbers_of_rows_and_all_instruction_sets(
    saved: Sources, scheme: str, every_isa: str
) -> None:
    found = []
    for engine in both(saved(scheme, "llama"), threads=2):
        found += [engine.forward(PROMPT, rows=rows) for rows in range(1, 17)]
    assert all((logits == found[0]).all() for logits in found)


@pytest.mark.parametrize("more", [0, -1])
def test_a_limit_that_planes_meet_streams_nothing(saved: Sources, more: int) -> None:
    """A larger model has its target in planes, with the replies of ``bf16``."""
    source, seen = saved("exact", "llama"), {"planes": 1000, "bf16": 2000}

    def needs(*_: Any, target: str, **__: Any) -> Any:
        return SimpleNamespace(whole=seen[target])

    chosen: dict[str, Any] = {"threads": 1, "pin": False, "context": 128}
    with Engine.from_packed(source, **chosen) as plain:
        expected = reply(plain)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "needs", needs)
        patch.setattr(fitting, "TRIED_PLANES", (isa(),))  # wherever the test runs
        with Engine.from_packed(source, memory_limit=2000 + more, **chosen) as engine:
            assert engine.streamed() is None
            assert ("planes" in engine.forms["target"]) == (more < 0)
            assert reply(engine) == expected


@pytest.mark.parametrize(("room", "held"), [(3000, "bf16"), (1500, "planes"), (500, "bf16")])
def test_what_the_system_has_left_is_the_limit(
    saved: Sources, room: int, held: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model is not made smaller in vain: what cannot fit is loaded as always."""
    source = saved("exact", "llama")

    def needs(*_: Any, target: str, **__: Any) -> Any:
        return SimpleNamespace(whole={"planes": 1000, "bf16": 2000}[target], minimum=800)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "needs", needs)
        patch.setattr(fitting, "TRIED_PLANES", (isa(),))  # wherever the test runs
        patch.setattr(fitting, "available_memory", lambda: room)
        with Engine.from_packed(source, threads=1, pin=False, context=128) as engine:
            assert held in engine.forms["target"]
    line = capsys.readouterr().err
    assert line.endswith("so its target is held in planes\n") == (held == "planes") == bool(line)


def test_what_never_fits_is_read_from_the_file(
    saved: Sources, capsys: pytest.CaptureFixture[str]
) -> None:
    source = saved("exact", "llama")
    chosen: dict[str, Any] = {"threads": 1, "pin": False, "context": 128}
    with Engine.from_packed(source, **chosen) as plain:
        expected = reply(plain)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming.Needs, "whole", property(lambda self: 1 << 60))
        patch.setattr(fitting, "available_memory", lambda: 2 * least(source))
        with Engine.from_packed(source, **chosen) as engine:
            assert set(engine.forms["target"]) == {loaded.STREAMED}
            assert reply(engine) == expected
    assert capsys.readouterr().err.endswith("so its target is read from the file\n")


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"llama"}))
def test_kinds_of_models(saved: Sources, kind: str) -> None:
    """Tied and untied heads, fused matrices, norms and windows."""
    plain, other = (engine.forward(PROMPT) for engine in both(saved("exact", kind), threads=2))
    assert (plain == other).all()


def test_trees_and_slots(saved: Sources) -> None:
    """One pass over branches of two sequences."""
    prompts = PROMPT[:5], PROMPT[5:9]
    rows = [
        Row(slot, len(prompt) + depth, token, parent)
        for slot, prompt in enumerate(prompts)
        for depth, token, parent in (
            (0, 7, -1),
            (1, 8, 5 * slot),
            (1, 9, 5 * slot),
            (2, 1, 5 * slot + 2),
            (1, 3, 5 * slot),
        )
    ]
    found = []
    for engine in both(saved("exact", "llama")):
        for slot, prompt in enumerate(prompts):
            chain = [Row(slot, at, token, at - 1) for at, token in enumerate(prompt)]
            engine.run_rows(chain, last=0)
        found.append(engine.run_rows(rows, drawn=len(rows)))
    assert found[0][0] == found[1][0]
    assert (found[0][1] == found[1][1]).all()


@pytest.mark.parametrize("draft", ["model", "hybrid", "none"])
def test_replies_are_those_of_memory(saved: Sources, draft: str) -> None:
    plain, *found = (
        reply(engine, gamma=gamma if draft != "none" else 0, draft=draft)
        for engine in both(saved("exact", "llama"), threads=2, draft=draft != "none")
        for gamma in (3, 15, "adaptive")
    )
    assert all(each == plain for each in found)


def test_more_memory_is_used_and_reads_less(saved: Sources) -> None:
    """From everything read to nothing read, and beyond it everything in the kernels' form."""
    source = saved("exact", "llama")
    with Engine.from_packed(source, threads=1, context=128) as whole:
        expected = whole.forward(PROMPT)
    file = PackedFile(source / "model.safetensors")
    arrays = sum(sum(file.stored_bytes(name).values()) for name in file.tensors)
    most = arrays + 2 * len(file.tensors) * (1 << 15)  # with what surrounds each of them
    read = []
    for more in (0, most // 3, 2 * most // 3, most + streaming.READ_AHEAD * streaming.SLAB):
        with streamed(source, more) as engine:
            assert (engine.forward(PROMPT) == expected).all()
            figures, held = engine.streamed(), engine.memory()
            assert figures is not None
            positions = 128 * held["position"]
            assert held["target"] + held["draft"] + positions < least(source) + more
            assert figures.kept + figures.rooms == held["target"]
            assert figures.read >= 2 * figures.whole_pass
            read.append(figures.whole_pass)
    assert read == sorted(read, reverse=True)
    assert read[0] > arrays // 2
    assert read[-1] == 0
    with Engine.from_packed(source, threads=1, context=128, memory_limit=10**8) as engine:
        assert engine.streamed() is None


def test_a_limit_that_is_too_low_is_refused_before_anything_is_read(saved: Sources) -> None:
    source = saved("exact", "llama")
    message = r"memory-limit must be at least 2 MB, .* not 0\.01 MB"
    with pytest.raises(CassandraError, match=message):
        Engine.from_packed(source, memory_limit=10_000, threads=1, context=128)
    with pytest.raises(CassandraError, match="target must be bf16 or planes where it is"):
        streamed(source, target="packed12")


def test_a_streamed_target_of_planes_holds_no_draft_that_nothing_reads(tmp_path: Path) -> None:
    config, tensors = small(hidden_size=128, intermediate_size=128, head_dim=64)
    source = save_packed(tmp_path / "packed", config, tensors, FORMATS["exact"])
    with Engine.from_packed(source, threads=1, context=128, target="planes") as whole:
        assert set(whole.forms["target"]) == {"planes"}
    with streamed(source, target="planes", draft=False) as engine:
        assert engine.forms["draft"] == {}


# --- a real limit --------------------------------------------------------------------------------

LIMITED = """
import json, re, resource, sys
from pathlib import Path
from cassandra_spec.drafting import Counters, Settings
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.models.streaming import _library

source, room, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) or None
_library()
used = int(re.search(r"VmData:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10
resource.setrlimit(resource.RLIMIT_DATA, (used + room, used + room))
with Engine.from_packed(source, memory_limit=limit, threads=1, context=64, slots=0) as engine:
    settings = Settings(gamma=4, max_tokens=8, draft="model")
    print(json.dumps([*engine.rounds(range(20), settings, Counters())]))
"""
"""A reply of an engine in a process whose data may grow by a number of bytes."""


def run_limited(source: Path, room: int, limit: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LIMITED, str(source), str(room), str(limit)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_model_larger_than_the_memory_of_the_process(tmp_path: Path) -> None:
    """Its weights are 130 MB, and the process has 110: the engine with all of them fails."""
    shape: dict[str, Any] = {"hidden_size": 1024, "intermediate_size": 5120, "head_dim": 64}
    config, tensors = small(**shape, vocab_size=300, num_hidden_layers=4)
    assert sum(values.nbytes for values in tensors.values()) > 130 * 10**6
    source = save_packed(tmp_path / "model", config, tensors, Format(scheme="exact", group=64))
    with Engine.from_packed(source, threads=1, context=64) as engine:
        settings = Settings(gamma=4, max_tokens=8, draft="model")
        expected = [*engine.rounds(range(20), settings, Counters())]
    room = 110 * 10**6
    done = run_limited(source, room)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("not enough memory")
    done = run_limited(source, room, 70 * 10**6)
    assert done.stderr == ""
    assert json.loads(done.stdout) == expected


# --- what goes wrong -----------------------------------------------------------------------------


def copied(source: Path, folder: Path) -> Path:
    return Path(shutil.copytree(source, folder / "model"))


def cut_off(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def overwrite(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(-100, os.SEEK_END)
        opened.write(bytes(100))


@pytest.mark.parametrize("damage", [cut_off, overwrite])
def test_a_file_that_changes_ends_a_reply(
    saved: Sources, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    source = copied(saved("exact", "llama"), tmp_path)
    with streamed(source, threads=2) as engine:
        rounds = engine.rounds(PROMPT, Settings(max_tokens=60), Counters())
        next(rounds)
        next(rounds)
        damage(source / "model.safetensors")
        with pytest.raises(NativeError, match=r"model.safetensors must not (shrink|be writ)"):
            list(rounds)
        with pytest.raises(NativeError, match="must not"):
            engine.forward(PROMPT)


def test_a_file_that_is_deleted_is_still_read(saved: Sources, tmp_path: Path) -> None:
    source = copied(saved("exact", "llama"), tmp_path)
    with streamed(source) as engine:
        expected = reply(engine)
        shutil.rmtree(source)
        assert reply(engine) == expected


@pytest.mark.parametrize("array", ["speculation", "verification"])
def test_checksums_are_those_of_the_file(saved: Sources, tmp_path: Path, array: str) -> None:
    source = copied(saved("exact", "llama"), tmp_path)
    name = "model.layers.1.mlp.up_proj.weight"
    file = source / "model.safetensors"
    with file.open("r+b") as opened:
        opened.seek(PackedFile(file).place(f"{name}.{array}") + 70)
        byte = opened.read(1)[0]
        opened.seek(-1, os.SEEK_CUR)
        opened.write(bytes([byte ^ 1]))
    with pytest.raises(CassandraError, match=rf"{name}.{array} must have the CRC-32"):
        streamed(source)


def test_a_read_error_and_a_broken_segment_end_a_pass(
    saved: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Places that are not in the file, and places of other data."""
    source = saved("exact", "llama")
    size = (source / "model.safetensors").stat().st_size
    for place, message in ((size, "must not shrink"), (0, r"segment \d+ must be one that can be")):
        monkeypatch.setattr(PackedFile, "place", lambda self, key, place=place: place)
        with streamed(source, threads=2) as engine, pytest.raises(NativeError, match=message):
            engine.forward(PROMPT)
        monkeypatch.undo()
