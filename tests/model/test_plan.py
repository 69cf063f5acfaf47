from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.golden.errors import FileError
from cassandra_spec.model.packing.packer import open_packed, pack_model, unpack_model
from cassandra_spec.model.packing.plan import Override, PackPlan, Recipe
from cassandra_spec.model.weights.sources import EMBEDDING, open_source
from tests.model.test_packing import norms_of
from tests.model.tiny import patterns, tensors_of, write_model

EXACT = Recipe(
    format=Format(scheme="exact", group=64, segment=256, fill="midpoint"),
    group_exponents="weighted",
)
PLAN = PackPlan(
    default=EXACT,
    overrides=(
        Override(tensors="model.layers.*.mlp.*", changes={"truncated": 5}),
        Override(tensors="*.1.mlp.down_proj.weight", changes={"truncated": 3, "prune": 0.25}),
        Override(
            tensors="model.layers.0.self_attn.q_proj.weight",
            changes={"scheme": "unary", "group_exponents": "largest"},
        ),
        Override(tensors="*.k_proj.weight", keep=True),
        Override(tensors="*.1.self_attn.k_proj.weight", keep=False),
        Override(tensors="lm_head.weight", keep=True),
    ),
)
TEXT = """\
version = 1

[default]
scheme = "exact"
group = 64
segment = 256
fill = "midpoint"
group_exponents = "weighted"

[[override]]
tensors = "model.layers.*.mlp.*"
truncated = 5

[[override]]
tensors = "*.1.mlp.down_proj.weight"
truncated = 3
prune = 0.25

[[override]]
tensors = "model.layers.0.self_attn.q_proj.weight"
scheme = "unary"
group_exponents = "largest"

[[override]]
tensors = "*.k_proj.weight"
keep = true

[[override]]
tensors = "*.1.self_attn.k_proj.weight"
keep = false

[[override]]
tensors = "lm_head.weight"
keep = true
"""


def test_the_file_says_what_the_plan_is(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(TEXT)
    assert PackPlan.load(tmp_path / "plan.toml") == PLAN


@pytest.mark.parametrize("plan", [PLAN, PackPlan(), PackPlan(default=Recipe(prune=1 / 3))])
def test_a_plan_survives_its_file(tmp_path: Path, plan: PackPlan) -> None:
    plan.save(tmp_path / "plan.toml")
    assert PackPlan.load(tmp_path / "plan.toml") == plan


def test_later_overrides_win(llama: Path) -> None:
    recipes = PLAN.recipes(open_source(llama))
    assert set(recipes) == {
        f"model.layers.{layer}.{part}.weight"
        for layer in (0, 1)
        for part in (
            *(f"self_attn.{name}_proj" for name in "qkvo"),
            *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
        )
    } - {"model.layers.0.self_attn.k_proj.weight"}
    assert recipes["model.layers.0.mlp.down_proj.weight"].format.truncated == 5
    down = recipes["model.layers.1.mlp.down_proj.weight"]
    assert (down.format.truncated, down.prune, down.format.scheme) == (3, 0.25, "exact")
    query = recipes["model.layers.0.self_attn.q_proj.weight"]
    assert (query.format.scheme, query.group_exponents) == ("unary", "largest")
    assert recipes["model.layers.1.self_attn.k_proj.weight"] == EXACT


def test_a_model_is_packed_by_tensor(llama: Path, tmp_path: Path) -> None:
    source = open_source(llama)
    pack_model(source, tmp_path / "p", PLAN, norms=norms_of(source), jobs=1)
    packed = open_packed(tmp_path / "p")
    recipes = PLAN.recipes(source)
    assert {name: spec.format for name, spec in packed.tensors.items()} == {
        name: recipe.format for name, recipe in recipes.items()
    }
    assert {"lm_head.weight", "model.layers.0.self_attn.k_proj.weight"} <= set(packed.others)
    unpack_model(tmp_path / "p", tmp_path / "u", jobs=1)
    expected, found = tensors_of(llama), tensors_of(tmp_path / "u")
    for name, tensor in expected.items():
        assert (patterns(found[name]) == patterns(tensor)).all(), name


def test_a_tied_head_is_known_by_both_names(tmp_path: Path) -> None:
    source = open_source(write_model(tmp_path / "m", tied=True))
    for name in ("lm_head.weight", EMBEDDING, "model.embed_*"):
        plan = PackPlan(overrides=(Override(tensors=name, changes={"truncated": 1}),))
        assert plan.recipes(source)[EMBEDDING].format.truncated == 1
        assert EMBEDDING not in PackPlan(overrides=(Override(tensors=name, keep=True),)).recipes(
            source
        )


def test_an_embedding_is_packed_on_request_without_norms(llama: Path, tmp_path: Path) -> None:
    source = open_source(llama)
    default = dataclasses.replace(EXACT, prune=0.25)
    assert EMBEDDING not in PackPlan(default=default).recipes(source)
    plan = PackPlan(default=default, overrides=(Override(tensors=EMBEDDING, keep=False),))
    recipe = plan.recipes(source)[EMBEDDING]
    assert recipe == dataclasses.replace(
        default, prune_scores="magnitude", group_exponents="chosen"
    )
    pack_model(source, tmp_path / "p", plan, norms=norms_of(source), jobs=1)
    unpack_model(tmp_path / "p", tmp_path / "u", jobs=1)
    found = tensors_of(tmp_path / "u")[EMBEDDING]
    assert (patterns(found) == patterns(tensors_of(llama)[EMBEDDING])).all()


def test_norms_are_never_packed(llama: Path) -> None:
    everything = PackPlan(overrides=(Override(tensors="*", keep=False),))
    assert not any("norm" in name for name in everything.recipes(open_source(llama)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "version must be 1, not None"),
        ("version = 2", "version must be 1, not 2"),
        ("version = ", "must be TOML"),
        ("version = 1\nscheme = 'mx'", "an entry must be 'version' or 'default' or 'override'"),
        ("version = 1\ndefault = 3", "default must be a table"),
        ("version = 1\noverride = 3", "override must be tables"),
        (
            "version = 1\n[default]\ntruncate = 4",
            "default: recipe: a field must be one of scheme, .*, not 'truncate'",
        ),
        (
            "version = 1\n[default]\ntruncated = 9",
            "truncated must be an integer from 0 to 7, not 9",
        ),
        ("version = 1\n[default]\nscheme = 'max'", "scheme must be .*, not 'max'"),
        ("version = 1\n[default]\nprune = '4'", "prune must be a fraction .*, not '4'"),
        ("version = 1\n[default]\nprune_scores = 'x'", "prune_scores must be .*, not 'x'"),
        ("version = 1\n[default]\nkeep = true", "default: keep must be in an override"),
        (
            "version = 1\n[[override]]\ntruncated = 3",
            "override 1: tensors must be a glob of names, not ''",
        ),
        (
            "version = 1\n[[override]]\ntensors = 'x'\nkeep = 1",
            r"override 1 \(x\): keep must be true or false, not 1",
        ),
        (
            "version = 1\n[[override]]\ntensors = 'x'\nt = 1",
            r"override 1 \(x\): a field must be one of scheme, .*, not 't'",
        ),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(FileError, match=message) as error:
        PackPlan.load(path)
    assert str(error.value).startswith(str(path))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="must be a plan file, and is missing"):
        PackPlan.load(tmp_path / "plan.toml")
    (tmp_path / "plan.toml").write_bytes(b"\xff")
    with pytest.raises(FileError, match="must be TOML"):
        PackPlan.load(tmp_path / "plan.toml")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            Override(tensors="lm_haed.weight", keep=True),
            "override 1: tensors must match a name, and 'lm_haed.weight' matches none",
        ),
        (
            Override(tensors="*down*", changes={"scheme": "mx"}),
            "override 1 (*down*) on model.layers.0.mlp.down_proj.weight: group_exponents must be "
            "'largest' in scheme mx, not 'weighted'",
        ),
    ],
)
def test_an_override_that_does_not_fit_the_model(
    llama: Path, override: Override, message: str
) -> None:
    plan = PackPlan(default=EXACT, overrides=(override,))
    with pytest.raises(CassandraError, match=re.escape(message)):
        plan.recipes(open_source(llama))


def test_the_example_in_the_documentation(llama: Path, tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs/software/packing.md").read_text(
        encoding="utf-8"
    )
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "plan.toml").write_text(example)
    plan = PackPlan.load(tmp_path / "plan.toml")
    recipes = plan.recipes(open_source(llama))
    assert recipes["model.layers.1.mlp.down_proj.weight"].format.truncated == 3
    assert recipes["model.layers.1.mlp.up_proj.weight"].format.truncated == 4
    assert "lm_head.weight" not in recipes
