"""Model directories that want code to run, memory to be taken or another model to reply."""

from __future__ import annotations

import builtins
import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.model.packing.packer import Recipe, pack_model, unpack_model
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.model.reply import build_model
from cassandra_spec.model.weights.mark import write_code
from cassandra_spec.model.weights.sources import open_source
from tests.model.tiny import change_config, replace_tensors, write_model

RECIPE = Recipe(format=Format(scheme="mx"))
LAYER = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


@pytest.fixture
def armed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return a model whose configs name code, and the file which that code would write."""
    path, trace = write_model(tmp_path / "m"), tmp_path / "ran"
    code = f"open({str(trace)!r}, 'w')\nclass Evil:\n    pass\n"
    for name in ("tokenizer_evil", "modeling_evil", "configuration_evil"):
        (path / f"{name}.py").write_text(code)
    change_config(
        path,
        auto_map={
            "AutoConfig": "configuration_evil.Evil",
            "AutoModelForCausalLM": "modeling_evil.Evil",
            "AutoTokenizer": ["tokenizer_evil.Evil", "tokenizer_evil.Evil"],
        },
    )
    file = path / "tokenizer_config.json"
    body = json.loads(file.read_text()) | {
        "tokenizer_class": "Evil",
        "auto_map": {"AutoTokenizer": ["tokenizer_evil.Evil", "tokenizer_evil.Evil"]},
    }
    file.write_text(json.dumps(body))
    monkeypatch.setattr(builtins, "input", lambda *_: "y")  # as `yes |` does
    return path, trace


def test_code_of_a_model_is_neither_run_nor_copied(
    armed: tuple[Path, Path], tmp_path: Path
) -> None:
    path, trace = armed
    pack_model(open_source(path), tmp_path / "p", RECIPE, jobs=1)
    unpack_model(tmp_path / "p", tmp_path / "u", jobs=1)
    for folder in (path, tmp_path / "p", tmp_path / "u"):
        build_model(folder, open_source(path))
        with contextlib.suppress(ValueError):  # transformers may refuse the class
            load_tokenizer(folder)
    assert not trace.exists()
    (tmp_path / "ours").mkdir()
    write_code(tmp_path / "ours")
    assert code_in(tmp_path / "p") == code_in(tmp_path / "ours")  # what pack writes itself
    assert code_in(tmp_path / "u") == {}


def code_in(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.py")}


@pytest.mark.parametrize("name", ["kernels-community/flash-attn", "flash_attention_2", "paged|x/y"])
def test_a_kernel_that_a_config_names_is_not_used(name: str, model: Path) -> None:
    change_config(model, _attn_implementation=name, attn_implementation=name)
    built = build_model(model, open_source(model))
    assert built.config._attn_implementation in ("sdpa", "eager")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"num_hidden_layers": 10**6}, "num_hidden_layers must be an integer from 1 to 4096"),
        ({"num_hidden_layers": 4096}, "num_hidden_layers must be 2, as many as"),
        ({"num_hidden_layers": 1}, "num_hidden_layers must be 2, as many as"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be an integer from 1 to 4096, not 0"),
        ({"num_hidden_layers": -1}, "num_hidden_layers must be an integer from 1 to 4096, not -1"),
        ({"num_labels": 10**12}, "num_labels must be an integer from 1 to 65536"),
        ({"hidden_size": "48"}, "hidden_size must be an integer from 1 to 1048576, not '48'"),
        ({"vocab_size": 10**400}, r"vocab_size must be an integer .*, not 1000+\.\.\.0+$"),
        ({"vocab_size": 1 << 26}, r"model.embed_tokens.weight must have the shape \[67108864, 48"),
        ({"intermediate_size": 96}, r"proj.weight must have the shape \[96, 48\], as the config"),
    ],
)
def test_a_config_is_held_to_its_ranges_and_to_the_tensors(
    entries: dict[str, object], message: str, model: Path
) -> None:
    source = open_source(model)
    change_config(model, **entries)
    with pytest.raises(CassandraError, match=message) as caught:
        build_model(model, source)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: replace_tensors(path, {LAYER: None}), f"{LAYER} must be a tensor"),
        (
            lambda path: replace_tensors(path, {LAYER: torch.zeros(48, 80)}),
            rf"{LAYER} must have the shape \[80, 48\], as the config says, not \[48, 80\]",
        ),
    ],
)
def test_tensors_are_held_to_the_config(
    change: Callable[[Path], Path], message: str, model: Path
) -> None:
    change(model)
    with pytest.raises(CassandraError, match=message):
        build_model(model, open_source(model))


def test_what_models_compute_by_themselves_is_not_unused(model: Path) -> None:
    replace_tensors(model, {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(6)})
    build_model(model, open_source(model))
