from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM

from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.errors import FileError
from cassandra_spec.model.packing import calibration
from cassandra_spec.model.packing.calibration import (
    Calibration,
    Norms,
    cache_directory,
    calibrate,
    load_or_calibrate,
    read_text,
)
from cassandra_spec.model.packing.layers import stream_layers
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.model.reply import build_model, empty_model
from cassandra_spec.model.weights.sources import EMBEDDING, HEAD, open_source, packed_tensors
from cassandra_spec.native import memory
from tests.model.tiny import MODEL_TYPES, replace_tensors, tensors_of, write_model

WORDS = " ".join(f"word{(number * 7) % 94}" for number in range(50))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(WORDS)
    return path


def settings(text: Path, **fields: Any) -> Calibration:
    return Calibration(text=text, **{"samples": 3, "length": 20, **fields})


def squares_by_matrix(
    path: Path, samples: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> dict[str, torch.Tensor]:
    """Return sums of squares of the inputs of every matrix product, by the matrix's name."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)
    found: dict[str, torch.Tensor] = {}
    names = {parameter.data_ptr(): name for name, parameter in model.named_parameters()}
    product = torch.nn.functional.linear

    def linear(x: torch.Tensor, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
        squares = (x.double() ** 2).reshape(-1, x.shape[-1]).sum(0)
        name = names[weight.data_ptr()]
        found[name] = found.get(name, 0) + squares
        return product(x, weight, *rest)

    with monkeypatch.context() as patch, torch.inference_mode():
        patch.setattr(torch.nn.functional, "linear", linear)
        model(torch.tensor(samples))
    return found


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_norms_are_those_of_the_inputs_of_every_product(
    model_type: str, tied: bool, tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_model(tmp_path / "m", model_type=model_type, tied=tied)
    source = open_source(path)
    samples = np.arange(2, 62).reshape(3, 20)
    monkeypatch.setattr(calibration, "spread", lambda *_: samples)
    norms = calibrate(source, settings(text))
    expected = squares_by_matrix(path, samples.tolist(), monkeypatch)
    assert set(norms.values) == {tensor.name for tensor in packed_tensors(source)} == set(expected)
    assert (EMBEDDING in norms.values, HEAD in norms.values) == (tied, not tied)
    assert norms.tokens == 60
    for name, found in norms.values.items():
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected[name].sqrt().numpy(), rtol=1e-5, err_msg=name)


def test_samples_are_spread_over_the_text(llama: Path, text: Path) -> None:
    words = [2 + (number * 7) % 94 for number in range(50)]
    found = calibration.spread(load_tokenizer(llama), WORDS, settings(text))
    assert found.tolist() == [words[:20], words[15:35], words[30:]]
    assert calibration.spread(load_tokenizer(llama), WORDS, settings(text, samples=1)).tolist() == [
        words[:20]
    ]


def test_passes_add_up(llama: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = calibrate(open_source(llama), settings(text))
    monkeypatch.setattr(calibration, "_BATCH", 1)
    alone = calibrate(open_source(llama), settings(text))
    for name, values in together.values.items():
        # products of another number of rows are rounded to other BF16 numbers now and then
        np.testing.assert_allclose(alone.values[name], values, rtol=0.02)


def test_a_file_brings_the_norms_back(llama: Path, text: Path, tmp_path: Path) -> None:
    norms = calibrate(open_source(llama), settings(text))
    norms.save(tmp_path / "norms.safetensors")
    found = load_or_calibrate(open_source(llama), Calibration(text=tmp_path / "norms.safetensors"))
    assert (found.tokens, found.origin) == (norms.tokens, norms.origin)
    assert found.digest() == norms.digest()
    assert norms.origin == {"model": "llama", "text": "text.txt", "samples": 3, "length": 20}
    for name, values in norms.values.items():
        np.testing.assert_array_equal(found.values[name], values)


def test_norms_are_gathered_once(
    own_llama: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    gather = calibration.calibrate

    def counted(*args: Any, **options: Any) -> Norms:
        runs.append(1)
        return gather(*args, **options)

    monkeypatch.setattr(calibration, "calibrate", counted)

    def load(**fields: Any) -> str:
        source = open_source(own_llama)
        return load_or_calibrate(source, settings(text, **fields), cache=tmp_path / "c").digest()

    first = load()
    assert (load(), len(runs)) == (first, 1)
    assert load(length=10) != first
    text.write_text(WORDS[::-1].replace("drow", "word"))
    load()
    head = tensors_of(own_llama)["lm_head.weight"]
    replace_tensors(own_llama, {"lm_head.weight": head + 1})
    load()
    assert len(runs) == 4


def test_the_cache_is_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_directory() == Path("/somewhere/cassandra")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_directory() == Path("/home/me/.cache/cassandra")


def test_the_bundled_texts_are_long_enough_and_share_nothing() -> None:
    texts = [read_text(None, name) for name in ("calibration.txt", "heldout.txt")]
    assert all(len(text) > 100_000 and text.isascii() for text in texts)
    paragraphs = [set(text.split("\n\n")) for text in texts]
    assert not paragraphs[0] & paragraphs[1]


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "must be a text file, and is missing"),
        (b"\xff\xfe", r"must be text in UTF-8 \("),
        (b" \n", "must have some text, and has none"),
        (b"word1 word2", "calibration text must have at least length = 20 tokens, not 2"),
    ],
)
def test_a_text_that_cannot_be_used(
    llama: Path, tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "t.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CassandraError, match=message):
        calibrate(open_source(llama), settings(path))


@pytest.mark.parametrize("field", ["samples", "length"])
def test_numbers_out_of_range(field: Any) -> None:
    with pytest.raises(CassandraError, match=f"{field} must be at least 1, not 0"):
        Calibration(**{field: 0})  # type: ignore[arg-type]


def test_a_model_whose_numbers_overflow(own_llama: Path, text: Path) -> None:
    norm = "model.layers.0.input_layernorm.weight"
    replace_tensors(own_llama, {norm: torch.full((48,), torch.nan, dtype=torch.bfloat16)})
    with pytest.raises(CassandraError, match="calibration must give finite norms, and model"):
        calibrate(open_source(own_llama), settings(text))


def test_a_model_that_does_not_fit(
    llama: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 10_000)
    with pytest.raises(CassandraError, match=r"llama needs 0\.1 MB of memory, and 0\.0 MB are"):
        calibrate(open_source(llama), settings(text))


ABOUT = {"version": 1, "tokens": 3, "origin": {}}


@pytest.mark.parametrize(
    ("values", "about", "message"),
    [
        ([1.0], None, "must be a file of norms: its metadata has no 'cassandra_norms'"),
        ([1.0], "[", "must be a file of norms"),
        ([1.0], {**ABOUT, "version": 2}, "version must be 1, not 2"),
        ([1.0], {**ABOUT, "tokens": "3"}, "tokens must be a number and origin an object"),
        ([[1.0]], ABOUT, r"a must be F32 \[inputs\], not F32 \[1, 1\]"),
        ([-1.0], ABOUT, "a must be finite and not negative"),
        ([np.nan], ABOUT, "a must be finite and not negative"),
    ],
)
def test_files_of_norms_that_are_wrong(
    tmp_path: Path, values: Any, about: Any, message: str
) -> None:
    metadata = {} if about is None else {"cassandra_norms": json.dumps(about)}
    if about == "[":
        metadata = {"cassandra_norms": "["}
    path = tmp_path / "norms.safetensors"
    save_file({"a": np.array(values, np.float32)}, path, metadata)
    with pytest.raises(FileError, match=message):
        Norms.load(path)


def whole_model_norms(path: Path, samples: NDArray[np.int64], step: int) -> dict[str, Any]:
    """Return the norms from passes of the whole model over each batch."""
    source = open_source(path)
    network = build_model(path, source)
    kinds = {tensor.name: tensor.kind for tensor in packed_tensors(source)}
    (head,) = (name for name, kind in kinds.items() if kind == "head")
    with torch.inference_mode(), calibration._watched(network, kinds) as sums:
        for start in range(0, len(samples), step):
            tokens = torch.from_numpy(samples[start : start + step])
            sums.add(head, network.model(input_ids=tokens, use_cache=False).last_hidden_state)
    return {name: np.sqrt(total).astype(np.float32) for name, total in sums.by_name.items()}


@pytest.mark.parametrize("samples", [1, 5, 20])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_layer_by_layer_gives_the_bits_of_the_whole_model(
    model_type: str, samples: int, tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_model(tmp_path / "m", model_type=model_type)
    tokens = np.random.default_rng(samples).integers(2, 90, (samples, 20))
    monkeypatch.setattr(calibration, "spread", lambda *_: tokens)
    monkeypatch.setattr(calibration, "_BATCH", 2 * 20)
    norms = calibrate(open_source(path), settings(text))
    expected = whole_model_norms(path, tokens, 2)
    assert norms.values.keys() == expected.keys()
    for name, found in norms.values.items():
        np.testing.assert_array_equal(found, expected[name], err_msg=name)


def test_one_layer_has_its_weights_at_a_time(llama: Path) -> None:
    source = open_source(llama)
    network = empty_model(llama, source)
    seen = []

    def filled(layer: Any) -> list[bool]:
        return [parameter.untyped_storage().nbytes() > 0 for parameter in layer.parameters()]

    def look(layer: Any, *_: Any) -> None:
        seen.append([other for other in network.model.layers if any(filled(other))])
        assert seen[-1][0] is layer

    with torch.inference_mode():
        stream_layers(network, source, step=2)
        for layer in network.model.layers:
            layer.self_attn.register_forward_pre_hook(partial(look, layer))
        network.model(input_ids=torch.ones(3, 4, dtype=torch.int64), use_cache=False)
    behind = len(network.model.layers)
    assert [len(layers) for layers in seen] == [
        behind - number for number in range(behind) for _ in range(2)
    ]
    assert not any(any(filled(layer)) for layer in network.model.layers)
