"""Models that are opened from kept weights, beside those whose weights are encoded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.golden.file import PackedFile, SafetensorsFile
from cassandra_spec.native.arrays import pointer
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.models import kept, loaded, streaming
from cassandra_spec.native.models.kept import weights_cache
from tests.native.models import KINDS, packed_models

PROMPT = tuple(int(token) for token in np.random.default_rng(3).integers(0, 97, 19))
FORMATS = {
    "unary": Format(scheme="unary", truncated=4, segment=2048),
    "mx": Format(scheme="mx", truncated=4, group=32, segment=2048),
    "exact": Format(scheme="exact", truncated=4, fill="midpoint", group=32, segment=2048),
    "exact5": Format(scheme="exact", truncated=5, fill="midpoint", group=32, segment=2048),
}
MAIN = {"target": "bf16", "draft": True, "threads": 2}

Sources = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return packed_models(tmp_path_factory.mktemp("models"), FORMATS)


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep small models, too."""
    monkeypatch.setattr(kept, "LEAST", 0)


@pytest.fixture
def encodings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by the tensors that are decoded to be encoded again."""
    names: list[str] = []
    decode = Engine._decode

    def noted(self: Engine, name: str, *others: Any) -> Any:
        names.append(name)
        return decode(self, name, *others)

    monkeypatch.setattr(Engine, "_decode", noted)
    return names


def opened(source: Path, cache: Path | None, **options: Any) -> Engine:
    chosen: dict[str, Any] = {"pin": False, "context": 128, **MAIN, **options}
    return Engine.from_packed(source, cache=cache, **chosen)


def what_it_is(engine: Engine) -> tuple[Any, ...]:
    """Return forms, memory, all weights and logits of target and draft."""
    weights = {name: octets.tobytes() for name, octets in engine.weights()}
    views = (False, True) if engine.has_draft else (False,)
    logits = [engine.forward(PROMPT, draft=view).tobytes() for view in views]
    return engine.forms, engine.memory(), weights, logits


def only(cache: Path) -> Path:
    (path,) = cache.glob("*")
    return path


@pytest.mark.parametrize("draft", [True, False])
@pytest.mark.parametrize("target", ["bf16", "packed12", "planes"])
@pytest.mark.parametrize("scheme", FORMATS)
def test_kept_weights_are_those_encoded(
    saved: Sources, tmp_path: Path, encodings: list[str], scheme: str, target: str, draft: bool
) -> None:
    source, options = saved(scheme, "llama"), {"target": target, "draft": draft}
    with opened(source, None, **options) as engine:
        expected = what_it_is(engine)
    with opened(source, tmp_path / "kept", **options):
        encodings.clear()
    with opened(source, tmp_path / "kept", **options) as engine:
        assert what_it_is(engine) == expected
    assert not encodings


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"llama"}))
def test_kinds_of_models(saved: Sources, tmp_path: Path, encodings: list[str], kind: str) -> None:
    """Tied and untied heads, fused matrices, norms and biases; three threads."""
    source = saved("exact", kind)
    with opened(source, tmp_path, threads=3) as engine:
        expected = what_it_is(engine)
        encodings.clear()
    with opened(source, tmp_path, threads=3) as engine:
        assert what_it_is(engine) == expected
    assert not encodings


@pytest.mark.slow
@pytest.mark.parametrize("target", ["bf16", "packed12", "planes"])
def test_all_instruction_sets(saved: Sources, tmp_path: Path, every_isa: str, target: str) -> None:
    source = saved("exact", "llama")
    found = []
    for _ in range(2):
        with opened(source, tmp_path, target=target) as engine:
            found.append(what_it_is(engine))
    assert found[0] == found[1]


def test_a_model_without_drafts_reads_a_file_with_drafts(
    saved: Sources, tmp_path: Path, encodings: list[str]
) -> None:
    source = saved("exact", "llama")
    with opened(source, None, draft=False) as engine:
        expected = what_it_is(engine)
    opened(source, tmp_path).close()
    encodings.clear()
    with opened(source, tmp_path, draft=False) as engine:
        assert what_it_is(engine) == expected
    assert not encodings


@pytest.mark.parametrize("other", [{"threads": 1}, {"target": "planes"}, {"draft": True}])
def test_other_forms_replace_what_is_kept(
    saved: Sources, tmp_path: Path, encodings: list[str], other: dict[str, Any]
) -> None:
    """There is one file for each model."""
    source = saved("exact", "llama")
    opened(source, tmp_path, draft=False).close()
    for again in (False, True):
        encodings.clear()
        opened(source, tmp_path, **{"draft": False, **other}).close()
        assert bool(encodings) != again
    assert only(tmp_path)


def test_another_library_or_model_is_not_opened_with_them(
    saved: Sources, tmp_path: Path, encodings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(saved("exact", "llama"), tmp_path).close()
    encodings.clear()
    opened(saved("exact5", "llama"), tmp_path).close()
    assert encodings
    assert len(list(tmp_path.glob("*"))) == 2
    encodings.clear()
    monkeypatch.setattr(loaded, "library_digest", lambda: "0" * 64)
    opened(saved("exact", "llama"), tmp_path).close()
    assert encodings


@pytest.mark.parametrize("part", ["header", "state", "thread1", "embed_tokens", "end"])
def test_a_broken_file_is_made_again(
    saved: Sources, tmp_path: Path, encodings: list[str], part: str
) -> None:
    source = saved("exact", "llama")
    with opened(source, tmp_path) as engine:
        expected = what_it_is(engine)
    path = only(tmp_path)
    whole = path.read_bytes()
    names = [name for name in SafetensorsFile(path).tensors if part in name]
    place = SafetensorsFile(path).place(names[-1]) if names else {"header": 40, "end": -1}[part]
    broken = bytearray(whole)
    broken[place] ^= 1
    path.write_bytes(broken[:-1] if part == "end" else broken)
    encodings.clear()
    with opened(source, tmp_path) as engine:
        assert what_it_is(engine) == expected
    assert encodings
    assert path.read_bytes() == whole


def test_a_file_is_read_by_its_user_whatever_the_umask(
    saved: Sources, tmp_path: Path, encodings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(kept, "tell", said.append)
    before = os.umask(0)
    try:
        for _ in range(2):
            encodings.clear()
            opened(saved("exact", "llama"), tmp_path / "new").close()
    finally:
        os.umask(before)
    assert not encodings
    [line] = said
    assert str(only(tmp_path / "new")) in line


def test_a_file_that_others_can_write_is_made_again(
    saved: Sources, tmp_path: Path, encodings: list[str]
) -> None:
    source = saved("exact", "llama")
    opened(source, tmp_path).close()
    only(tmp_path).chmod(0o666)
    encodings.clear()
    opened(source, tmp_path).close()
    assert encodings
    assert only(tmp_path).stat().st_mode & 0o022 == 0


def test_what_a_killed_process_left_is_removed(saved: Sources, tmp_path: Path) -> None:
    source = saved("exact", "llama")
    digest = PackedFile(source / "model.safetensors").digest
    (tmp_path / f".{digest}.safetensors.0123abcd.partial").write_bytes(b"left")
    opened(source, tmp_path).close()
    assert only(tmp_path).name == f"{digest}.safetensors"


def test_small_models_and_full_disks_keep_nothing(
    saved: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = saved("exact", "llama")
    for name, value in (("LEAST", 1 << 40), ("OF_FREE", 1 << 40)):
        with monkeypatch.context() as patch:
            patch.setattr(kept, name, value)
            opened(source, tmp_path).close()
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    opened(source, blocked / "folder").close()
    assert only(tmp_path) == blocked


def test_streamed_weights_are_not_kept(saved: Sources, tmp_path: Path) -> None:
    source = saved("exact", "llama")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming.Needs, "whole", property(lambda self: 1 << 60))
        with opened(source, tmp_path, memory_limit=1 << 30) as engine:
            assert engine.streamed() is not None
    assert not list(tmp_path.glob("*"))


def test_checksums_in_memory_cover_kept_weights(saved: Sources, tmp_path: Path) -> None:
    for _ in range(2):
        with opened(saved("exact", "llama"), tmp_path, verify=True) as engine:
            engine.verify()
            *_, (name, octets) = engine.weights()
            octets[0] ^= 1
            with pytest.raises(CassandraError, match=name.split(" ")[0]):
                engine.verify()


def test_the_folder_lies_beside_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASSANDRA_NATIVE_CACHE", "/somewhere")
    assert weights_cache() is None  # in tests
    monkeypatch.delenv("CASSANDRA_WEIGHTS")
    assert weights_cache() == Path("/somewhere/weights")


# --- states ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engines(saved: Sources) -> Iterator[list[Engine]]:
    """Yield engines whose matrices have tables with escapes, codes, and patches."""
    kinds = (("unary", "packed12"), ("exact", "planes"), ("mx", "packed12"))
    made = [opened(saved(scheme, "llama"), None, target=target) for scheme, target in kinds]
    yield made
    for engine in made:
        engine.close()


def restore(engine: Engine, matrix: loaded.Matrix, draft: bool, state: bytes) -> bool:
    form: int = engine._library.cassandra_engine_restore_matrix(
        engine._handle,
        *loaded._place(matrix, draft),
        pointer("state", np.frombuffer(state, np.uint8), np.uint8, len(state)),
        len(state),
        *matrix.shape,
    )
    return form >= 0


@given(data=st.data())
def test_no_state_leads_out_of_a_matrix(engines: list[Engine], data: st.DataObject) -> None:
    """A broken state is refused, or makes a matrix whose products stay inside (sanitizers)."""
    engine = data.draw(st.sampled_from(engines))
    matrix, draft = data.draw(st.sampled_from(engine._matrices))
    whole = {
        view: engine._state(matrix, view).tobytes()
        for view in (True, False)  # a draft first, which may be a part of the target
        if (matrix, view) in engine._matrices
    }
    broken = bytearray(whole[draft])
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    shorter = data.draw(st.integers(0, len(broken) - 1))
    for length in (shorter, len(broken)):
        if restore(engine, matrix, draft, bytes(broken[:length])):
            engine.forward(PROMPT[:3], draft=draft)
    for view, state in whole.items():
        assert restore(engine, matrix, view, state)
    engine.forward(PROMPT[:3])
