"""Models of GGUF files beside llama.cpp: logits, ends of replies and tokens.

llama.cpp is that of an environment of other programs (docs/software/inventory.md). Without it these
tests are skipped.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModelForCausalLM

from cassandra_spec.drafting import stop_tokens
from cassandra_spec.golden import bf16
from cassandra_spec.golden.model_types import MODEL_TYPES
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.model.weights.gguf import GgufSource, bundled_path
from cassandra_spec.model.weights.gguf_header import Header
from tests.model.gguf_files import (
    BYTES,
    bytes_model,
    piece_keys,
    write_file,
    write_gguf,
    write_shards,
)
from tests.native.test_engine import ONE_ROUNDING, errors, make

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("CASSPEC_LLAMA", ROOT / "build/llama")) / "bin/python"
GEMMA = Path(os.environ.get("CASSPEC_GEMMA3", ROOT / "build/gemma-3-270m-q4_k_m.gguf"))
TOKENS = [int(token) for token in np.random.default_rng(5).integers(2, BYTES, 24)]
CONTEXT = 256
"""Positions of a context; llama.cpp rounds smaller ones up to it."""

needs_llama = pytest.mark.skipif(not PYTHON.exists(), reason=f"{PYTHON} is not there (llama.cpp)")
needs_gemma = pytest.mark.skipif(not GEMMA.exists(), reason=f"{GEMMA} is not there")
pytestmark = needs_llama


class LlamaCpp:
    """llama.cpp in a process."""

    def __init__(self) -> None:
        program = Path(__file__).with_name("llama_cpp_program.py")
        self._process = subprocess.Popen(
            [PYTHON, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, model: Path, **request: Any) -> dict[str, Any]:
        """Return an answer of the program."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = json.dumps({"model": str(model), "context": CONTEXT, **request})
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def logits(self, model: Path, tokens: list[int]) -> NDArray[np.float32]:
        """Return the logits of each token."""
        found = self.ask(model, tokens=tokens)
        return np.frombuffer(base64.b64decode(found["logits"]), "<f4").reshape(len(tokens), -1)

    def copy(self, model: Path, path: Path, file_type: str) -> Path:
        """Write a model in another type, and return its path."""
        assert not self.ask(model, copy=str(path), file_type=file_type)["error"]
        return path

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait() == 0
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def llama() -> Iterator[LlamaCpp]:
    program = LlamaCpp()
    yield program
    program.close()


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, and the keys of its file beside the sizes."""

    architecture: str
    keys: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tensors: Mapping[str, list[float]] = dataclasses.field(default_factory=dict)
    entries: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def write(self, folder: Path, **own: Any) -> Path:
        """Return the file, with keys named by the architecture."""
        (kind,) = (each for each in MODEL_TYPES if each.gguf == self.architecture)
        entries = {"tied": False, **self.entries} if kind.gguf == "olmo2" else self.entries
        model = bytes_model(folder / "model", model_type=kind.name, **entries)
        keys = {f"{self.architecture}.{name}": value for name, value in self.keys.items()}
        arrays = {name: np.array(each, np.float32) for name, each in self.tensors.items()}
        return write_gguf(folder / "m.gguf", model, keys=keys, tensors=arrays, **own)


def _scaling(kind: str | None, **keys: Any) -> dict[str, Any]:
    return {"rope.scaling.type": kind} | {f"rope.scaling.{k}": v for k, v in keys.items()}


LINEAR = _scaling(None, factor=4.0)
ONE_WHOLE = {"attention.sliding_window_pattern": 2}  # one of two layers sees all positions
YARN = _scaling("yarn", factor=4.0, original_context_length=16)
LISTS = {
    "rope_factors_short.weight": [1.0, 1.5, 2.0, 2.0, 2.5, 3.0],
    "rope_factors_long.weight": [2.0, 4.0, 8.0, 8.0, 9.0, 9.0],
}
SHORT = {name: values[:3] for name, values in LISTS.items()}
LONGROPE = _scaling("longrope", original_context_length=16, attn_factor=1.19)
DIVISORS = {"rope_freqs.weight": [1.0, 1.0, 1.5, 3.0, 8.0, 8.0]}
# Llama 3.1's factor 8 for six pairs of theta 500,000, as its converter computes them
LLAMA3 = {"rope_freqs.weight": [1.0, 1.0, 1.0, 2.7169, 8.0, 8.0]}
BIASES = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "granite": {"attention_bias": True, "mlp_bias": True},
}

PLAIN = [Case(each.gguf) for each in MODEL_TYPES]
CASES = [
    Case("llama", {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    Case("llama", {"rope.scale_linear": 4.0}),
    *(Case(a, YARN) for a in ("llama", "qwen2", "qwen3", "gemma2", "granite", "olmo2")),
    *(Case(a, LINEAR) for a in ("qwen2", "qwen3", "gemma2", "phi3", "granite", "olmo2")),
    *(Case("gemma3", keys | ONE_WHOLE) for keys in (YARN, LINEAR)),
    Case("llama", YARN | {"rope.scaling.attn_factor": 1.3}),
    *(Case(a, {"rope.scaling.attn_factor": 1.5}) for a in ("llama", "gemma3")),
    *(Case(a, LONGROPE, LISTS) for a in ("llama", "granite", "phi3")),
    Case("llama", LONGROPE | {"rope.scaling.original_context_length": 512}, LISTS),
    Case("phi3", {"rope.dimension_count": 6}),
    Case("phi3", {**LONGROPE, "rope.dimension_count": 6}, SHORT),
    *(Case(a, {}, DIVISORS) for a in ("llama", "granite")),
    Case("llama", {"rope.scaling.factor": 2.0}, DIVISORS),
    Case("llama", {"rope.freq_base": None}, {}, {"rope_theta": 50.0}),
    Case("llama", {"attention.head_count_kv": None}, {}, {"num_key_value_heads": 4}),
    *(Case(a, {}, {}, {"head_dim": 16}) for a in ("llama", "qwen3", "gemma2", "gemma3")),
    *(Case(a, {}, {}, entries) for a, entries in BIASES.items()),
    Case("llama", {}, {}, {"tied": False}),
    Case("llama", {"attention.layer_norm_rms_epsilon": 0.125}),
    Case("gemma2", {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}),
    Case("gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": None}),
    *(Case(a, {"attention.sliding_window": 7}) for a in ("gemma2", "gemma3")),
    *(
        Case(
            a,
            {"attention.sliding_window": 7, "attention.sliding_window_pattern": pattern},
            {},
            {"num_hidden_layers": 4},
        )
        for a in ("gemma2", "gemma3")
        for pattern in (3, [True, False, False, True])
    ),
    Case("gemma2", {"attention.sliding_window": 7}, {}, {"num_hidden_layers": 46}),
    Case("gemma3", {}, {}, {"num_hidden_layers": 62, "head_dim": 16}),
    Case("gemma3", {"attention.sliding_window": None}),
    Case("gemma3", {"attention.sliding_window": 7, "rope.freq_base_swa": 100.0}),
    Case("gemma3", {"final_logit_softcapping": 3.0}),
    Case("granite", dict.fromkeys(("attention.scale", "residual_scale", "embedding_scale"))),
    Case("granite", {"logit_scale": 0.5, "embedding_scale": 2.0, "residual_scale": 0.75}),
]


def float_network(source: GgufSource, folder: Path) -> Any:
    """Return the model in transformers in float32, with a source's weights."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    network = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    values = {
        name: torch.from_numpy((source.read(name).astype(np.uint32) << 16).view(np.float32))
        for name in source.tensors
    }
    shaped = {name: each.reshape(source.tensors[name].shape) for name, each in values.items()}
    left = network.load_state_dict(shaped, strict=False)
    assert not left.unexpected_keys
    assert set(left.missing_keys) <= {"lm_head.weight"}
    return network.eval()


def companions(source: GgufSource, folder: Path) -> Path:
    """Return the folder with a source's companions."""
    folder.mkdir()
    source.save_companions(folder)
    return folder


def float_bound(architecture: str, layers: int) -> float:
    """Return how far logits in float32 may lie apart.

    Roundings amount to 2 ** -24 times the root of some hundred terms in each product, which norms
    and softmax enlarge. llama.cpp's gelu is a table of values with 11 bits.
    """
    return layers * (2.0**-11 if architecture.startswith("gemma") else 2.0**-19)


@pytest.mark.parametrize("case", [*PLAIN, *CASES], ids=str)
def test_logits_are_those_of_llama_cpp(case: Case, llama: LlamaCpp, tmp_path: Path) -> None:
    path = case.write(tmp_path)
    expected = llama.logits(path, TOKENS)
    source = GgufSource(path)
    folder = companions(source, tmp_path / "made")
    with torch.no_grad():
        found = float_network(source, folder)(torch.tensor([TOKENS])).logits[0].numpy()
    config = json.loads((folder / "config.json").read_text())
    layers = config["num_hidden_layers"]
    assert errors(found, expected).max() < float_bound(case.architecture, layers)
    require_close_engine(source, config, TOKENS, expected)


def require_close_engine(
    source: GgufSource, config: dict[str, Any], tokens: list[int], expected: NDArray[np.float32]
) -> None:
    """Require the engine's logits to differ by its roundings to BF16 alone.

    They are six a layer and that of the head's input, as in tests/native/test_models.py; the factor
    of Gemma's embedding is rounded, too.
    """
    tensors = {name: source.read(name) for name in source.tensors}
    steps = 6 * config["num_hidden_layers"] + 2
    with make(config, tensors, context=len(tokens)) as engine:
        assert errors(engine.forward(tokens), expected).max() < steps * ONE_ROUNDING


def says_something(case: Case) -> bool:
    """Return True if a case has keys or tensors, and not only defaults that it leaves out.

    Only Granite's factors differ from their defaults in plain files.
    """
    stated = [*case.tensors, *(each for each in case.keys.values() if each is not None)]
    return bool(stated) or (case.architecture == "granite" and bool(case.keys))


@pytest.mark.parametrize("case", [*filter(says_something, CASES)], ids=str)
def test_cases_differ_from_plain_files(case: Case, llama: LlamaCpp, tmp_path: Path) -> None:
    """A case that llama.cpp computes as a plain file would show nothing."""
    (tmp_path / "plain").mkdir()
    plain = dataclasses.replace(case, keys={}, tensors={}).write(tmp_path / "plain")
    path = case.write(tmp_path)
    layers = case.entries.get("num_hidden_layers", 2)
    gap = errors(llama.logits(path, TOKENS), llama.logits(plain, TOKENS)).max()
    assert gap > 4 * float_bound(case.architecture, layers)


def test_shards_have_the_logits_of_llama_cpp(llama: LlamaCpp, tmp_path: Path) -> None:
    model = bytes_model(tmp_path / "model", tied=False)
    names = {"output.weight": 1, "blk.1.attn_q.weight": 1}
    first, second = write_shards(tmp_path, model, 2, names)
    expected = llama.logits(first, TOKENS)
    source = GgufSource(second)
    with torch.no_grad():
        network = float_network(source, companions(source, tmp_path / "made"))
        found = network(torch.tensor([TOKENS])).logits[0].numpy()
    assert errors(found, expected).max() < float_bound("llama", 2)


# --- tokens ---------------------------------------------------------------------------------------

TEXTS = (
    "abba 12345 isn't it? I'LL say: x+=1;\n\n  two  spaces\ttab",
    " leading, trailing ",
    "café 你好 🙂 ½ ²",
    "<s>a<end> b<end>ab",
    "",
)


def _tokens(path: Path, folder: Path) -> tuple[list[list[int]], set[int]]:
    source = GgufSource(path)
    tokenizer = load_tokenizer(companions(source, folder))
    return [tokenizer(text).input_ids for text in TEXTS], set(stop_tokens(tokenizer, folder))


TOKENIZERS: list[dict[str, Any]] = [
    *({"tokenizer.ggml.pre": each} for each in ("gpt-2", "smollm", "llama-bpe", "qwen2", None)),
    *({"tokenizer.ggml.pre": each} for each in ("tekken", "gpt-4o", "qwen35", "starcoder")),
    *({"tokenizer.ggml.pre": each} for each in ("dbrx", "deepseek-r1-qwen", "default")),
    *({"tokenizer.ggml.add_bos_token": bos} for bos in (True, False)),
    {"tokenizer.ggml.add_eos_token": True, "tokenizer.ggml.add_bos_token": True},
    {f"tokenizer.ggml.{name}_token_id": 9 for name in ("eot", "fim_pad")}
    | {f"tokenizer.ggml.{name}_token_id": 11 for name in ("eom", "fim_rep")},
    piece_keys(),
    piece_keys() | {"tokenizer.ggml.add_space_prefix": False},
    piece_keys() | {"tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_eos_token": True},
]


@pytest.mark.parametrize("keys", TOKENIZERS, ids=lambda keys: str(keys)[:80])
def test_tokens_and_ends_are_those_of_llama_cpp(
    keys: dict[str, Any], llama: LlamaCpp, tmp_path: Path
) -> None:
    tokens = len(keys.get("tokenizer.ggml.tokens", range(BYTES)))
    model = bytes_model(tmp_path / "model", vocab_size=tokens)
    path = write_gguf(tmp_path / "m.gguf", model, keys=keys)
    expected = llama.ask(path, texts=TEXTS)
    assert _tokens(path, tmp_path / "made") == (expected["texts"], set(expected["ends"]))


# --- weights --------------------------------------------------------------------------------------

FILE_TYPES = (
    *("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M"),
    *("Q6_K", "IQ3_S", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0"),
)
"""Types of files that llama.cpp writes without statistics of activations."""


def require_weights_of_llama_cpp(path: Path, copy: Path, llama: LlamaCpp) -> None:
    """Require weights to be those of a copy whose matrices llama.cpp has made BF16."""
    found = GgufSource(path)
    expected = GgufSource(llama.copy(path, copy, "MOSTLY_BF16"))
    assert found.tensors.keys() == expected.tensors.keys()
    for name in found.tensors:
        assert np.array_equal(found.read(name), expected.read(name)), name


@pytest.mark.parametrize("kind", FILE_TYPES)
def test_weights_are_those_of_llama_cpp(kind: str, llama: LlamaCpp, tmp_path: Path) -> None:
    sizes = {"hidden_size": 256, "intermediate_size": 512}  # whole blocks of all types
    path = write_gguf(tmp_path / "m.gguf", bytes_model(tmp_path / "model", **sizes))
    made = llama.copy(path, tmp_path / "made.gguf", f"MOSTLY_{kind}")
    require_weights_of_llama_cpp(made, tmp_path / "copy.gguf", llama)


# --- real models ----------------------------------------------------------------------------------


def in_floats(path: Path, copy: Path) -> Path:
    """Write a file with the weights that packing makes of another, in float32.

    llama.cpp rounds what goes into a quantised matrix to 8 bits, which hides smaller faults.
    """
    header, offset = Header(path), GgufSource(path)._architecture.gguf_norm_offset
    arrays = {}
    for tensor in gguf.GGUFReader(path).tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        own = np.float32(offset if tensor.name.endswith("norm.weight") else 0)
        patterns = bf16.from_f32(np.ascontiguousarray(values - own).view(np.uint32))
        rounded = (patterns.astype(np.uint32) << 16).view(np.float32).reshape(values.shape) + own
        arrays[str(tensor.name)] = (rounded, gguf.GGMLQuantizationType.F32)
    return write_file(copy, {key: header.get(key) for key in header.entries}, arrays)


REAL = pytest.mark.parametrize(
    "path",
    [pytest.param(None, id="smollm2"), pytest.param(GEMMA, id="gemma3-270m", marks=needs_gemma)],
)


@pytest.mark.slow
@REAL
def test_weights_of_a_real_model(path: Path | None, llama: LlamaCpp, tmp_path: Path) -> None:
    require_weights_of_llama_cpp(path or bundled_path(), tmp_path / "copy.gguf", llama)


@pytest.mark.slow
@REAL
def test_a_real_model_is_that_of_llama_cpp(
    path: Path | None, llama: LlamaCpp, tmp_path: Path
) -> None:
    path = path or bundled_path()
    asked = llama.ask(path, texts=["Why is the sky blue at 12:30?"])
    tokens = asked["texts"][0]
    source = GgufSource(path)
    folder = companions(source, tmp_path / "made")
    tokenizer = load_tokenizer(folder)
    assert tokenizer("Why is the sky blue at 12:30?").input_ids == tokens
    tags = {tokenizer.get_vocab().get("</s>")}  # in Gemma's vocabulary, a tag of HTML
    assert set(stop_tokens(tokenizer, folder)) - tags == set(asked["ends"]) - tags
    expected = llama.logits(in_floats(path, tmp_path / "floats.gguf"), tokens)
    with torch.no_grad():
        found = float_network(source, folder)(torch.tensor([tokens])).logits[0].numpy()
    config = json.loads((folder / "config.json").read_text())
    bound = float_bound(source._architecture.gguf, config["num_hidden_layers"])
    assert errors(found, expected).max() < bound
    require_close_engine(source, config, tokens, expected)
