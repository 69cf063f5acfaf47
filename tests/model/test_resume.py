"""Packing that was interrupted resumes where it stopped."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.golden.errors import FileError
from cassandra_spec.model.output import resumable_directory
from cassandra_spec.model.packing.packer import (
    Outcome,
    PackPlan,
    Recipe,
    open_packed,
    pack_model,
    unpack_model,
)
from cassandra_spec.model.packing.parts import Parts
from cassandra_spec.model.weights.sources import Source, open_source
from tests.model.test_packing import LINEAR, Stops, names, norms_of, with_infinity

SMALL = Format(segment=256, pruned_exponent="coded")
RECIPE = Recipe(format=SMALL, prune=0.4)
FAILURES = [KeyboardInterrupt(), OSError(28, "No space left on device")]


def pack(source: Source, path: Path, recipe: Recipe = RECIPE, **options: Any) -> Outcome:
    return pack_model(source, path, recipe, norms=norms_of(source), jobs=1, **options)


class Counts(Stops):
    """A source that stops at one tensor's second reading, the first being for the codebook."""

    def __init__(self, source: Source, error: BaseException | None = None) -> None:
        super().__init__(source, error or KeyboardInterrupt())
        self.read_names: list[str] = []
        self._stops = error is not None

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Any:
        self.read_names.append(name)
        if self._stops and self.read_names.count(LINEAR) == 2:
            raise self._error
        return self._source.read(name, start, stop)


def interrupted(llama: Path, path: Path, error: BaseException = FAILURES[0]) -> list[str]:
    """Leave parts behind; the tensors that were done."""
    source = Counts(open_source(llama), error)
    with pytest.raises(type(error)):
        pack(source, path)
    done = list(Parts(path.with_name(f".{path.name}.partial") / "store").done)
    assert done
    assert LINEAR not in done
    assert not path.exists()
    return done


@pytest.mark.parametrize("error", FAILURES, ids=["interrupt", "full disk"])
def test_what_was_packed_is_not_packed_again(
    llama: Path, tmp_path: Path, error: BaseException
) -> None:
    done = interrupted(llama, tmp_path / "p", error)
    assert names(tmp_path) == {".p.partial"}
    again = Counts(open_source(llama))
    outcome = pack(again, tmp_path / "p")
    assert outcome.resumed == len(done)
    assert not set(done) & set(again.read_names)
    left = [name for name in outcome_names(tmp_path / "p") if name not in done]
    assert [again.read_names.count(name) for name in left] == [1] * len(left)  # codebooks are there
    assert names(tmp_path) == {"p"}
    whole = pack(open_source(llama), tmp_path / "whole")
    assert whole == dataclasses.replace(outcome, resumed=0)
    assert (tmp_path / "p/model.safetensors").read_bytes() == (
        tmp_path / "whole/model.safetensors"
    ).read_bytes()


def outcome_names(path: Path) -> list[str]:
    return list(open_packed(path).tensors)


@pytest.mark.parametrize("change", ["recipe", "norms", "source", "fresh"])
def test_parts_of_something_else_are_not_used(
    own_llama: Path, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(own_llama, tmp_path / "p")
    recipe, source = RECIPE, open_source(own_llama)
    norms = norms_of(source)
    if change == "recipe":
        recipe = dataclasses.replace(recipe, prune=0.3)
    elif change == "norms":
        norms = dataclasses.replace(norms, values={k: v + 1 for k, v in norms.values.items()})
    elif change == "source":
        (own_llama / "generation_config.json").write_text('{"note": "changed"}')
        source = open_source(own_llama)
    fresh = change == "fresh"
    outcome = pack_model(source, tmp_path / "p", recipe, norms=norms, jobs=1, fresh=fresh)
    assert outcome.resumed == 0
    assert not (tmp_path / ".p.partial").exists()


def test_a_plan_that_comes_to_the_same_goes_on(llama: Path, tmp_path: Path) -> None:
    done = interrupted(llama, tmp_path / "p")
    source = open_source(llama)
    plan = PackPlan(default=RECIPE)
    outcome = pack_model(source, tmp_path / "p", plan, norms=norms_of(source), jobs=1)
    assert outcome.resumed == len(done)


def test_a_line_that_was_cut_off_is_not_believed(llama: Path, tmp_path: Path) -> None:
    done = interrupted(llama, tmp_path / "p")
    journal = tmp_path / ".p.partial/store/journal"
    text = journal.read_text()
    journal.write_text(text[:-3])
    assert pack(open_source(llama), tmp_path / "p").resumed == len(done) - 1


def test_a_part_that_has_changed_is_found(llama: Path, tmp_path: Path) -> None:
    interrupted(llama, tmp_path / "p")
    part = tmp_path / ".p.partial/store/0.safetensors"
    data = bytearray(part.read_bytes())
    data[-1] ^= 1
    part.write_bytes(data)
    with pytest.raises(FileError, match=r"0.safetensors: .* must have the CRC-32"):
        pack(open_source(llama), tmp_path / "p")
    assert names(tmp_path) == set()  # so that the next run starts over
    assert pack(open_source(llama), tmp_path / "p").resumed == 0


@pytest.mark.parametrize("damage", ["nul", "digit", "binary", "list", "missing"])
@pytest.mark.parametrize("file", ["journal", "codebooks"])
def test_damaged_parts_are_packed_again(
    llama: Path, tmp_path: Path, file: str, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupted(llama, tmp_path / "p")
    path = tmp_path / ".p.partial/store" / file
    data = path.read_bytes()
    changes = {"nul": bytes(len(data)), "digit": data.replace(b"1", b"2"), "list": b"[]\n"}
    if damage == "missing":
        path.with_name("0.safetensors").unlink()
    else:
        path.write_bytes(changes.get(damage, bytes(range(128, 256)) + b"\n"))
    outcome = pack(open_source(llama), tmp_path / "p")
    assert outcome.resumed == 0
    assert "earlier parts are damaged: packing begins again" in capsys.readouterr().err
    pack(open_source(llama), tmp_path / "whole")
    assert (tmp_path / "p/model.safetensors").read_bytes() == (
        tmp_path / "whole/model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("key", [bytes(64), bytes(range(128, 256)), b""])
def test_a_damaged_key_is_that_of_something_else(llama: Path, tmp_path: Path, key: bytes) -> None:
    interrupted(llama, tmp_path / "p")
    (tmp_path / ".p.partial/key").write_bytes(key)
    assert pack(open_source(llama), tmp_path / "p").resumed == 0


def test_what_a_killed_unpack_has_left_is_removed(llama: Path, tmp_path: Path) -> None:
    pack(open_source(llama), tmp_path / "p")
    code = (
        "import os, sys; from pathlib import Path\n"
        "from cassandra_spec.model.output import staged_directory\n"
        "with staged_directory(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'model.safetensors').write_bytes(bytes(9)); os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "u")], check=False)
    assert names(tmp_path) == {"p", ".u.partial"}
    unpack_model(tmp_path / "p", tmp_path / "u", jobs=1)
    assert names(tmp_path) == {"p", "u"}


def test_a_loop_of_links_is_no_destination(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with (
        pytest.raises(CassandraError, match="a must be a new or empty directory, not"),
        resumable_directory(tmp_path / "a", key=""),
    ):
        pytest.fail("it was written")


def test_all_is_on_the_disk_before_the_name_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def fsync(handle: int) -> None:
        assert not (tmp_path / "p").exists() or synced[-1] == "replaced"
        synced.append(str(Path(f"/proc/self/fd/{handle}").readlink()))

    def replace(path: Path, target: Path) -> Path:
        path.rename(target)
        if target == tmp_path / "p":
            synced.append("replaced")
        return target

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    with resumable_directory(tmp_path / "p", key="") as (output, _):
        (output / "inner").mkdir()
        for name in ("config.json", "inner/tokenizer.json"):
            (output / name).write_text("{}")
        written = {str(output), *(str(path) for path in output.rglob("*"))}
    place = synced.index("replaced")
    assert written <= set(synced[:place])
    assert synced[place + 1 :] == [str(tmp_path)]


def test_saturated_values_are_counted_over_both_runs(own_llama: Path, tmp_path: Path) -> None:
    recipe = Recipe(format=Format(scheme="mx", segment=256), nonfinite="saturate")
    source = with_infinity(own_llama)
    with pytest.raises(KeyboardInterrupt):
        pack(StopsInTheEnd(source), tmp_path / "p", recipe)
    outcome = pack(source, tmp_path / "p", recipe)
    assert outcome.resumed == len(outcome_names(tmp_path / "p"))
    assert outcome.saturated == 2


class StopsInTheEnd(Stops):
    """A source that stops when the model is written from the parts."""

    def __init__(self, source: Source) -> None:
        super().__init__(source, KeyboardInterrupt())
        self.read_raw = self._stop

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Any:
        return self._source.read(name, start, stop)

    def _stop(self, name: str) -> Any:
        raise self._error


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with resumable_directory(tmp_path / "p", key="a") as (output, store):
        assert output.is_dir()
        assert store.is_dir()
        with (
            pytest.raises(CassandraError, match="must be written by one process at a time"),
            resumable_directory(tmp_path / "p", key="a"),
        ):
            pytest.fail("two are at it")
    assert names(tmp_path) == {"p"}


PROGRAM = """
import sys, time
from pathlib import Path
from cassandra_spec.golden import Format
from cassandra_spec.model.journal import Journal
from cassandra_spec.model.packing.packer import Recipe, pack_model
from cassandra_spec.model.weights.sources import open_source
from tests.model.test_packing import norms_of

add = Journal.add

def add_and_wait(journal, body):
    add(journal, body)
    print("added", flush=True)
    time.sleep(3600)

if __name__ == "__main__":
    Journal.add = add_and_wait
    source = open_source(sys.argv[1])
    recipe = Recipe(format=Format(segment=256, pruned_exponent="coded"), prune=0.4)
    pack_model(source, Path(sys.argv[2]), recipe, norms=norms_of(source), jobs=2)
"""


@pytest.mark.slow
def test_a_kill_in_the_middle(llama: Path, tmp_path: Path) -> None:
    """SIGKILL, with workers: no handler runs, and nothing but what is on the disk is left."""
    script = tmp_path / "pack.py"
    script.write_text(PROGRAM)
    out = tmp_path / "out"
    out.mkdir()
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, str(script), str(llama), str(out / "p")]
    variables = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        added = process.stdout.readline()
        os.killpg(process.pid, signal.SIGKILL)
    assert added == "added\n"
    assert not (out / "p").exists()
    outcome = pack(open_source(llama), out / "p")
    assert 0 < outcome.resumed < len(outcome_names(out / "p"))
    pack(open_source(llama), out / "whole")
    np.testing.assert_array_equal(
        np.fromfile(out / "p/model.safetensors", np.uint8),
        np.fromfile(out / "whole/model.safetensors", np.uint8),
    )
    assert names(out) == {"p", "whole"}
