from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from safetensors import safe_open

from cassandra_spec.golden import (
    CassandraError,
    Format,
    choose_group_exponents,
    decode_draft,
    decode_target,
    encode,
)
from cassandra_spec.golden.file import Writer
from cassandra_spec.model.packing import pieces
from cassandra_spec.model.packing.calibration import Norms
from cassandra_spec.model.packing.masks import importance, kept_by_magnitude, kept_by_wanda
from cassandra_spec.model.packing.packer import (
    Recipe,
    open_packed,
    pack_model,
    unpack_model,
)
from cassandra_spec.model.packing.statistics import codebook_exponents, exponent_counts
from cassandra_spec.model.weights.sources import (
    EMBEDDING,
    Source,
    open_source,
    packed_tensors,
    weights,
)
from tests.model.tiny import change_config, patterns, replace_tensors, tensors_of, write_model

SMALL = Format(segment=256)
RECIPES = {
    "unary": Recipe(format=SMALL),
    "unary pruned": Recipe(format=SMALL, prune=0.4, prune_scores="magnitude"),
    "unary coded": Recipe(
        format=dataclasses.replace(SMALL, pruned_exponent="coded"),
        prune=0.3,
        prune_scores="magnitude",
    ),
    "mx": Recipe(format=dataclasses.replace(SMALL, scheme="mx")),
    "mx narrow": Recipe(format=dataclasses.replace(SMALL, scheme="mx", significand=7)),
    "mx pruned": Recipe(
        format=dataclasses.replace(SMALL, scheme="mx"), prune=0.25, prune_scores="magnitude"
    ),
    "exact": Recipe(format=dataclasses.replace(SMALL, scheme="exact")),
    "exact chosen": Recipe(
        format=dataclasses.replace(SMALL, scheme="exact", truncated=5, fill="midpoint"),
        prune=0.1,
        prune_scores="magnitude",
        group_exponents="chosen",
    ),
    "unary by wanda": Recipe(format=SMALL, prune=0.4),
    "exact weighted": Recipe(
        format=dataclasses.replace(SMALL, scheme="exact", truncated=5, fill="midpoint"),
        prune=0.1,
        group_exponents="weighted",
    ),
}
LINEAR = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several pieces for each tensor, the last of them short, none of them whole rows."""
    monkeypatch.setattr(pieces, "_PIECE", 768)


def norms_of(source: Source) -> Norms:
    """Return norms that differ widely, one of them zero in each tensor."""
    rng = np.random.default_rng(3)
    values = {}
    for tensor in packed_tensors(source):
        found = np.exp(2 * rng.standard_normal(tensor.shape[1])).astype(np.float32)
        found[rng.integers(found.size)] = 0
        values[tensor.name] = found
    return Norms(values=values, tokens=1, origin={})


def encode_whole(rows: np.ndarray, recipe: Recipe, norms: np.ndarray) -> Any:
    """Return the tensor through the codec at once."""
    kept = None
    if recipe.prune and recipe.prune_scores == "magnitude":
        kept = kept_by_magnitude(rows, recipe.prune).reshape(-1)
    elif recipe.prune:
        kept = kept_by_wanda(rows, norms, recipe.prune).reshape(-1)
    values = rows.reshape(-1)
    chosen = None
    if recipe.group_exponents != "largest":
        weighted = recipe.group_exponents == "weighted"
        weights = np.tile(importance(norms), len(rows)) if weighted else None
        chosen = choose_group_exponents(values, recipe.format, kept=kept, importance=weights)
    book = None
    if recipe.format.scheme == "unary":
        book = codebook_exponents(exponent_counts(values, kept), recipe.format.codebook)
    return encode(values, recipe.format, kept=kept, group_exponents=chosen, codebook=book)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES.keys())
def test_a_packed_model_holds_what_the_codec_makes_of_each_tensor(
    llama: Path, tmp_path: Path, recipe: Recipe
) -> None:
    source = open_source(llama)
    norms = norms_of(source)
    outcome = pack_model(source, tmp_path / "p", recipe, norms=norms, jobs=1)
    packed = open_packed(tmp_path / "p")
    assert set(packed.tensors) | set(packed.others) == set(source.tensors)
    count = 0
    for tensor, values in weights(source):
        expected = encode_whole(values.reshape(tensor.shape), recipe, norms.values[tensor.name])
        found = packed.read_packed(tensor.name)
        for part in ("speculation", "verification", "directory"):
            np.testing.assert_array_equal(getattr(found, part), getattr(expected, part))
        assert (found.codebook, found.pruned_codebook) == (
            expected.codebook,
            expected.pruned_codebook,
        )
        assert dict(found.stream_bits) == dict(expected.stream_bits)
        count += tensor.count
    assert outcome.values == count
    assert outcome.bytes == (tmp_path / "p/model.safetensors").stat().st_size
    for name in packed.others:
        np.testing.assert_array_equal(packed.read_raw(name), source.read_raw(name))


def test_workers_change_nothing(llama: Path, tmp_path: Path) -> None:
    source = open_source(llama)
    for jobs in (1, 2):
        pack_model(
            source,
            tmp_path / f"p{jobs}",
            RECIPES["unary by wanda"],
            norms=norms_of(source),
            jobs=jobs,
        )
        unpack_model(tmp_path / "p1", tmp_path / f"u{jobs}", jobs=jobs)
    for kind in "pu":
        one, two = (tmp_path / f"{kind}{jobs}/model.safetensors" for jobs in (1, 2))
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("name", [name for name in RECIPES if not name.startswith("mx")])
def test_unpacking_gives_the_original_back(llama: Path, tmp_path: Path, name: str) -> None:
    source = open_source(llama)
    pack_model(source, tmp_path / "p", RECIPES[name], norms=norms_of(source), jobs=1)
    unpack_model(tmp_path / "p", tmp_path / "u", jobs=1)
    expected, found = tensors_of(llama), tensors_of(tmp_path / "u")
    assert set(found) == set(expected)
    for key, tensor in expected.items():
        assert found[key].dtype == tensor.dtype
        assert found[key].shape == tensor.shape
        np.testing.assert_array_equal(patterns(found[key]), patterns(tensor), err_msg=key)
    for file in ("config.json", "tokenizer.json"):
        assert (tmp_path / "u" / file).read_bytes() == (llama / file).read_bytes()


@pytest.mark.parametrize("draft", [False, True])
@pytest.mark.parametrize("name", ["mx", "exact chosen", "unary pruned"])
def test_unpacking_gives_the_values_of_the_codec(
    llama: Path, tmp_path: Path, name: str, draft: bool
) -> None:
    pack_model(open_source(llama), tmp_path / "p", RECIPES[name], jobs=1)
    unpack_model(tmp_path / "p", tmp_path / "u", draft=draft, jobs=1)
    packed, found = open_packed(tmp_path / "p"), tensors_of(tmp_path / "u")
    for key in packed.tensors:
        expected = (decode_draft if draft else decode_target)(packed.read_packed(key))
        np.testing.assert_array_equal(patterns(found[key]), expected)


def test_patterns_that_no_number_has_survive(own_llama: Path, tmp_path: Path) -> None:
    """NaN payloads, infinities, zeros of both signs and subnormals, kept and pruned."""
    bits = np.arange(48 * 80, dtype=np.uint16) * 17
    special = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).reshape(48, 80)
    replace_tensors(own_llama, {LINEAR: special})
    for name in ("unary pruned", "exact", "exact chosen"):
        pack_model(open_source(own_llama), tmp_path / name, RECIPES[name], jobs=1)
        unpack_model(tmp_path / name, tmp_path / f"u {name}", jobs=1)
        found = tensors_of(tmp_path / f"u {name}")[LINEAR]
        np.testing.assert_array_equal(patterns(found), bits)


def test_a_tied_head_is_packed_once(tmp_path: Path) -> None:
    source = open_source(write_model(tmp_path / "m", tied=True))
    pack_model(source, tmp_path / "p", RECIPES["unary"], jobs=1)
    packed = open_packed(tmp_path / "p")
    assert EMBEDDING in packed.tensors
    assert not any("lm_head" in name for name in (*packed.tensors, *packed.others))


def test_f32_weights_come_back_rounded_and_norms_as_they_were(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", dtype=torch.float32)
    pack_model(open_source(model), tmp_path / "p", RECIPES["exact"], jobs=1)
    unpack_model(tmp_path / "p", tmp_path / "u", jobs=1)
    expected, found = tensors_of(model), tensors_of(tmp_path / "u")
    norm = "model.norm.weight"
    assert torch.equal(found[norm], expected[norm])
    np.testing.assert_array_equal(
        patterns(found[LINEAR]), patterns(expected[LINEAR].to(torch.bfloat16))
    )
    assert json.loads((tmp_path / "u/config.json").read_text())["dtype"] == "bfloat16"


def test_every_reader_finds_tensors_aligned(own_llama: Path, tmp_path: Path) -> None:
    """Tensors of odd sizes and dtypes do not push others off their alignment."""
    extra = {
        "a.rotary_emb.inv_freq": torch.tensor([True, False, True]),
        "b.rotary_emb.inv_freq": torch.arange(3),
        "c.rotary_emb.inv_freq": torch.zeros(3, dtype=torch.float16),
        "d.rotary_emb.inv_freq": torch.ones(1, dtype=torch.float64),
        "e.rotary_emb.inv_freq": torch.zeros(0, dtype=torch.float32),
    }
    replace_tensors(own_llama, extra)
    pack_model(open_source(own_llama), tmp_path / "p", RECIPES["unary"], jobs=1)
    unpack_model(tmp_path / "p", tmp_path / "u", jobs=1)
    for folder in ("p", "u"):
        with safe_open(tmp_path / folder / "model.safetensors", framework="pt") as file:
            for name, tensor in extra.items():
                assert torch.equal(file.get_tensor(name), tensor)


def test_an_empty_weight(own_llama: Path, tmp_path: Path) -> None:
    change_config(own_llama, vocab_size=None)
    replace_tensors(own_llama, {"lm_head.weight": torch.zeros(0, 48, dtype=torch.bfloat16)})
    pack_model(open_source(own_llama), tmp_path / "p", RECIPES["unary"], jobs=1)
    unpack_model(tmp_path / "p", tmp_path / "u", jobs=1)
    assert tensors_of(tmp_path / "u")["lm_head.weight"].shape == (0, 48)


def test_transformers_loads_what_is_unpacked(llama: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    pack_model(open_source(llama), tmp_path / "p", RECIPES["exact"], jobs=1)
    unpack_model(tmp_path / "p", tmp_path / "u", jobs=1)
    tokens = torch.arange(12)[None]
    logits = [
        AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)(tokens).logits
        for path in (llama, tmp_path / "u")
    ]
    assert torch.equal(*logits)


# --- values that are not finite -----------------------------------------------------------------


def with_infinity(own_llama: Path) -> Source:
    tensor = tensors_of(own_llama)[LINEAR]
    tensor[40, 3] = -torch.inf
    tensor[47, 79] = torch.nan
    return open_source(replace_tensors(own_llama, {LINEAR: tensor}))


def test_mx_refuses_them_and_names_the_tensor(own_llama: Path, tmp_path: Path) -> None:
    source = with_infinity(own_llama)
    with pytest.raises(
        CassandraError, match=f"^{LINEAR}, from value 3072 on: values must be finite in scheme mx"
    ):
        pack_model(source, tmp_path / "p", RECIPES["mx"], jobs=1)
    assert not list(tmp_path.glob("*p*artial")) + list(tmp_path.glob("p"))


@pytest.mark.parametrize("prune", [0.0, 0.5])
def test_mx_saturates_them_on_request_and_counts(
    own_llama: Path, tmp_path: Path, prune: float
) -> None:
    recipe = dataclasses.replace(RECIPES["mx"], nonfinite="saturate", prune=prune)
    recipe = dataclasses.replace(recipe, prune_scores="magnitude")
    assert pack_model(with_infinity(own_llama), tmp_path / "p", recipe, jobs=1).saturated == 2
    unpack_model(tmp_path / "p", tmp_path / "u", jobs=1)
    largest = torch.finfo(torch.bfloat16).max
    assert tensors_of(tmp_path / "u")[LINEAR][40, 3] == -largest


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Recipe(prune=1.0), "prune must be a fraction from 0 to below 1, not 1.0"),
        (
            lambda: Recipe(group_exponents="chosen"),
            "group_exponents must be 'largest' in scheme unary, not 'chosen'",
        ),
        (lambda: Recipe(nonfinite="saturate"), "nonfinite must be 'error' in scheme unary"),
        (
            lambda: Recipe(prune_scores="random"),  # type: ignore[arg-type]
            "prune_scores must be 'wanda' or 'magnitude', not 'random'",
        ),
    ],
)
def test_a_recipe_that_contradicts_itself(make: Callable[[], Recipe], message: str) -> None:
    with pytest.raises(CassandraError, match=message):
        make()


@pytest.mark.parametrize("name", ["unary by wanda", "exact weighted"])
def test_norms_that_are_missing_or_of_another_model(llama: Path, tmp_path: Path, name: str) -> None:
    source = open_source(llama)
    with pytest.raises(CassandraError, match="calibration must be there for prune_scores 'wanda'"):
        pack_model(source, tmp_path / "p", RECIPES[name], jobs=1)
    norms = norms_of(source)
    short = dataclasses.replace(norms, values={**norms.values, LINEAR: np.ones(3, np.float32)})
    with pytest.raises(CassandraError, match=f"norms of {LINEAR} must be 80, not 3"):
        pack_model(source, tmp_path / "p", RECIPES[name], norms=short, jobs=1)
    none = dataclasses.replace(norms, values={})
    with pytest.raises(CassandraError, match=r"calibration must have norms of .*, and has none"):
        pack_model(source, tmp_path / "p", RECIPES[name], norms=none, jobs=1)
    assert names(tmp_path) == set()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("direction", ["pack", "unpack"])
def test_an_output_that_exists_is_not_touched(
    llama: Path, tmp_path: Path, direction: Literal["pack", "unpack"]
) -> None:
    packed = tmp_path / "packed"
    pack_model(open_source(llama), packed, RECIPES["mx"], jobs=1)

    def run(destination: Path) -> None:
        if direction == "pack":
            pack_model(open_source(llama), destination, RECIPES["mx"], jobs=1)
        else:
            unpack_model(packed, destination, jobs=1)

    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("full", "file"):
        with pytest.raises(CassandraError, match="must be a new or empty directory"):
            run(tmp_path / name)
    with pytest.raises(CassandraError, match="must be a directory to write x into"):
        run(tmp_path / "nowhere/x")
    assert names(tmp_path) == {"packed", "full", "file"}
    (tmp_path / "empty").mkdir()
    run(tmp_path / "empty")
    assert (tmp_path / "empty/model.safetensors").is_file()


class Stops:
    """A source that fails in the middle of the work."""

    def __init__(self, source: Source, error: BaseException) -> None:
        self.label, self.tensors, self.notes = source.label, source.tensors, source.notes
        self.files = source.files
        self._source, self._error = source, error
        self.save_companions = source.save_companions
        self.read_raw = source.read_raw

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Any:
        if name == LINEAR:
            raise self._error
        return self._source.read(name, start, stop)


@pytest.mark.parametrize("jobs", [1, 2])
def test_bad_input_leaves_nothing_behind(llama: Path, tmp_path: Path, jobs: int) -> None:
    (tmp_path / "out").mkdir()
    source = Stops(open_source(llama), CassandraError("bad"))
    with pytest.raises(CassandraError, match="bad"):
        pack_model(source, tmp_path / "out/p", RECIPES["mx"], jobs=jobs)
    assert names(tmp_path / "out") == set()


def test_only_packed_models_are_unpacked(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(CassandraError, match="must be a packed model"):
        unpack_model(llama, tmp_path / "u", jobs=1)
    with pytest.raises(CassandraError, match="must be a directory of a model, and is missing"):
        unpack_model(tmp_path / "nothing", tmp_path / "u", jobs=1)


def test_a_packed_model_is_not_packed_again(llama: Path, tmp_path: Path) -> None:
    pack_model(open_source(llama), tmp_path / "p", RECIPES["mx"], jobs=1)
    with pytest.raises(CassandraError, match="must be a model that is not packed yet"):
        open_source(tmp_path / "p")


@pytest.mark.parametrize("draft", [False, True])
def test_data_that_break_the_format_name_the_tensor(
    llama: Path, tmp_path: Path, draft: bool
) -> None:
    """Right checksums over wrong data: the decoder finds it."""
    pack_model(open_source(llama), tmp_path / "p", RECIPES["unary"], jobs=1)
    file = open_packed(tmp_path / "p")
    packed = file.read_packed(LINEAR)
    zeros = np.zeros_like(packed.speculation)  # a unary code has a one
    with Writer(tmp_path / "p/model.safetensors", {LINEAR: file.tensors[LINEAR]}) as writer:
        writer.write_packed(LINEAR, dataclasses.replace(packed, speculation=zeros))
    with pytest.raises(CassandraError, match=f"^{LINEAR}, from segment 0 on: segment 0: "):
        unpack_model(tmp_path / "p", tmp_path / "u", draft=draft, jobs=1)
    assert names(tmp_path) == {"p"}
