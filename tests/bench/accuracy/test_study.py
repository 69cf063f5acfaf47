from __future__ import annotations

import dataclasses
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from cassandra_spec.bench.accuracy.lossy import rounded_to_8_bits, wanda_pruned
from cassandra_spec.bench.accuracy.study import (
    bf16_candidate,
    lossy_candidates,
    original,
    packed_candidates,
    table_rows,
)
from cassandra_spec.golden import CassandraError, Format, decode_draft
from cassandra_spec.model.packing.calibration import Norms
from cassandra_spec.model.packing.packer import Override, PackPlan, Recipe, open_packed, pack_model
from cassandra_spec.model.weights.packed import PackedSource
from cassandra_spec.model.weights.sources import EMBEDDING, Source, open_source
from tests.golden.rationals import rational
from tests.model.test_packing import LINEAR, norms_of
from tests.model.tiny import MODEL_TYPES, replace_tensors, write_model

RECIPES = {
    "unary": Recipe(format=Format(segment=256), prune=0.4),
    "mx": Recipe(format=Format(scheme="mx", segment=256)),
    "exact": Recipe(format=Format(scheme="exact", segment=256), group_exponents="weighted"),
}
TEXT = " ".join(f"word{(number * 7) % 94}" for number in range(70))


@pytest.fixture(scope="module")
def packed(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("packed")
    source = open_source(llama)
    for name, recipe in RECIPES.items():
        pack_model(source, folder / name, recipe, norms=norms_of(source), jobs=1)
    return {name: folder / name for name in RECIPES}


def test_the_table(llama: Path, packed: dict[str, Path]) -> None:
    source = open_source(llama)
    candidates = [bf16_candidate(source), *lossy_candidates(source, norms_of(source))]
    for path in packed.values():
        candidates += packed_candidates(path, drafts=True)
    rows = {row.name: row for row in table_rows(source, candidates, TEXT, length=10)}
    assert list(rows) == [
        "BF16",
        "RTN 8 bits",
        "Wanda 50 %",
        "Wanda 2:4",
        *(f"{name} ({name}) {view}" for name in RECIPES for view in ("target", "draft")),
    ]
    assert {row.accuracy.tokens for row in rows.values()} == {63}
    for name in ("BF16", "unary (unary) target", "exact (exact) target"):
        accuracy = rows[name].accuracy
        assert dataclasses.replace(accuracy) == rows["BF16"].accuracy
        assert (accuracy.agreement, accuracy.loss_increase) == (1, 0)
    for name in ("Wanda 50 %", "Wanda 2:4", "unary (unary) draft"):
        assert rows[name].accuracy.agreement < 1
    assert rows["mx (mx) target"].accuracy.loss_increase != 0


def test_bits_are_those_of_the_linear_weights(llama: Path, tmp_path: Path) -> None:
    source = open_source(llama)
    plan = PackPlan(default=RECIPES["mx"], overrides=(Override(tensors=LINEAR, keep=True),))
    pack_model(source, tmp_path / "p", plan, jobs=1)
    file = open_packed(tmp_path / "p")
    target, draft = packed_candidates(tmp_path / "p", drafts=True)
    linear = [tensor for tensor in source.tensors.values() if tensor.kind == "linear"]
    stored = [file.stored_bytes(tensor.name) for tensor in linear if tensor.name != LINEAR]
    kept = 2 * source.tensors[LINEAR].count
    count = sum(tensor.count for tensor in linear)
    assert target.bits == 8 * (kept + sum(sum(one.values()) for one in stored)) / count
    assert (
        draft.bits
        == 8 * (kept + sum(one["speculation"] + one["directory"] for one in stored)) / count
    )


def test_the_original_is_in_a_lossless_one(packed: dict[str, Path]) -> None:
    assert original([packed["mx"], packed["exact"], packed["unary"]]).label.endswith("exact")
    with pytest.raises(CassandraError, match="source must be given: no packed model is lossless"):
        original([packed["mx"]])


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_packed_model_is_a_source(model_type: str, tied: bool, tmp_path: Path) -> None:
    source = open_source(write_model(tmp_path / "m", model_type=model_type, tied=tied))
    pack_model(source, tmp_path / "p", RECIPES["unary"], norms=norms_of(source), jobs=1)
    found = PackedSource(tmp_path / "p")
    assert set(found.tensors.values()) == set(source.tensors.values())
    for name in source.tensors:
        np.testing.assert_array_equal(found.read(name), source.read(name))
        np.testing.assert_array_equal(found.read(name, 3, 11), source.read(name, 3, 11))
        np.testing.assert_array_equal(found.read_raw(name), source.read_raw(name))
    found.save_companions(tmp_path)
    assert (tmp_path / "config.json").read_bytes() == (tmp_path / "m/config.json").read_bytes()
    assert {path.name for path in found.files} >= {"model.safetensors", "tokenizer.json"}


def test_drafts_are_those_of_the_codec(packed: dict[str, Path]) -> None:
    _, draft = packed_candidates(packed["unary"], drafts=True)
    expected = decode_draft(open_packed(packed["unary"]).read_packed(LINEAR))
    np.testing.assert_array_equal(draft.weights.read(LINEAR), expected)


# --- lossy compression --------------------------------------------------------------------------


def small_source(own_llama: Path) -> tuple[Source, np.ndarray]:
    rows = torch.randn(48, 80, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16)
    rows[3] = 0
    rows[4] = 1
    source = open_source(replace_tensors(own_llama, {LINEAR: rows}))
    return source, source.read(LINEAR).reshape(48, 80)


def test_rounding_is_to_the_nearest_multiple(own_llama: Path) -> None:
    source, rows = small_source(own_llama)
    found = rounded_to_8_bits(source).read(LINEAR).reshape(rows.shape)
    for row, rounded in zip(list(rows), list(found), strict=True):
        exact = [Fraction(rational(int(value))) for value in row]
        results = [Fraction(rational(int(value))) for value in rounded]
        scale = max(map(abs, exact)) / 127
        if not scale:
            assert set(rounded.tolist()) <= {0, 0x8000}
            continue
        for value, result in zip(exact, results, strict=True):
            near = round(value / scale) * scale
            # a result is the multiple, rounded to BF16 (2^-8), after float32 has rounded
            allowed = abs(near) * Fraction(129, 1 << 15)
            tie = abs(value / scale % 1 - Fraction(1, 2)) < Fraction(1, 1000)
            assert abs(result - near) <= allowed + (scale if tie else 0)


def test_half_is_gone(own_llama: Path) -> None:
    source, rows = small_source(own_llama)
    norms = norms_of(source)
    half = wanda_pruned(source, norms).read(LINEAR).reshape(rows.shape)
    fours = wanda_pruned(source, norms, fours=True).read(LINEAR).reshape(rows.shape)
    for found in (half, fours):
        assert set(np.unique(found[found != rows])) <= {0}
    full = [row for row in range(48) if rows[row].all()]
    assert (np.count_nonzero(half[full], axis=1) == 40).all()
    assert (np.count_nonzero(fours[full].reshape(-1, 4), axis=1) == 2).all()


def test_nothing_but_linear_weights_changes(llama: Path) -> None:
    source = open_source(llama)
    norms = Norms(values=norms_of(source).values, tokens=1, origin={})
    for weights in (rounded_to_8_bits(source), wanda_pruned(source, norms)):
        for name in (EMBEDDING, "lm_head.weight", "model.norm.weight"):
            np.testing.assert_array_equal(weights.read(name), source.read(name))
        assert (weights.read(LINEAR) != source.read(LINEAR)).any()


def test_wanda_needs_norms_of_the_model(llama: Path) -> None:
    weights = wanda_pruned(open_source(llama), Norms(values={}, tokens=1, origin={}))
    with pytest.raises(CassandraError, match=re.escape(f"norms of {LINEAR}")):
        weights.read(LINEAR)
