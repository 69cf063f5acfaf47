"""Small models in Hugging Face's layout, written by transformers itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from cassandra_spec.golden.model_types import MODEL_TYPES as KNOWN

FOUR_TYPES = ("llama", "qwen2", "qwen3", "gemma3_text")
MODEL_TYPES = tuple(each.name for each in KNOWN)
WORDS = ("<end>", "<unknown>", *(f"word{number}" for number in range(94)))

SIZES: dict[str, int] = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "vocab_size": len(WORDS),
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}

OWN: dict[str, dict[str, float]] = {
    "granite": {
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.4,
        "embedding_multiplier": 3.0,
        "logits_scaling": 4.0,
    },
}
"""Entries of single model types: without them some have nothing of their own."""

LONGROPE: dict[str, Any] = {
    "max_position_embeddings": 128,
    "original_max_position_embeddings": 44,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 100.0,
        "short_factor": [1.0, 1.5, 2.0, 2.0, 2.5, 3.0],
        "long_factor": [2.0, 4.0, 8.0, 8.0, 9.0, 9.0],
    },
}
DYNAMIC: dict[str, Any] = {
    "max_position_embeddings": 44,
    "rope_parameters": {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 3.0},
}
BY_LENGTH: tuple[tuple[str, dict[str, Any]], ...] = (("phi3", LONGROPE), ("llama", DYNAMIC))
"""Models whose rotary angles go by the length: those of short sequences end at 44 positions."""


def with_long_angles(entries: Mapping[str, Any], context: int) -> dict[str, Any]:
    """Return a config with the angles for a context beyond 44, for any length of a sequence."""
    rope = entries["rope_parameters"]
    if entries is LONGROPE:
        return {**entries, "rope_parameters": {**rope, "short_factor": rope["long_factor"]}}
    growth = rope["factor"] * context / 44 - (rope["factor"] - 1)
    theta = rope["rope_theta"] * growth ** (SIZES["head_dim"] / (SIZES["head_dim"] - 2))
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta}}


def write_model(
    path: Path,
    *,
    model_type: str = "llama",
    dtype: torch.dtype = torch.bfloat16,
    tied: bool = False,
    shard: str = "1GB",
    **entries: object,
) -> Path:
    """Return a model of random weights with a tokenizer; about 60,000 values.

    ``entries`` go into the config.
    """
    own = {**SIZES, **OWN.get(model_type, {}), "tie_word_embeddings": tied}
    config = AutoConfig.for_model(model_type, **{**own, **entries})
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    with torch.no_grad():
        for parameter in model.parameters():  # norms of ones would hide mistakes
            parameter.copy_(torch.randn(parameter.shape) / 4)
    model.save_pretrained(path, max_shard_size=shard)
    _write_tokenizer(path)
    return path


def _write_tokenizer(path: Path) -> None:
    words = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=WORDS[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=WORDS[0], pad_token=WORDS[0], unk_token=WORDS[1]
    )
    fast.chat_template = "{% for m in messages %}{{ m['content'] }} word3{% endfor %}"
    fast.save_pretrained(path)


def patterns(tensor: torch.Tensor) -> NDArray[np.uint16]:
    """Return the bits of a BF16 tensor, flat."""
    return tensor.contiguous().view(torch.int16).numpy().view(np.uint16).reshape(-1)


def tensors_of(path: Path) -> dict[str, torch.Tensor]:
    """Return all tensors of a directory, as the safetensors library reads them."""
    found: dict[str, torch.Tensor] = {}
    for file in sorted(path.glob("*.safetensors")):
        found |= load_file(file)
    return found


def replace_tensors(path: Path, changes: Mapping[str, torch.Tensor | None]) -> Path:
    """Change, add or (None) remove tensors of a model in one file."""
    tensors: dict[str, torch.Tensor | None] = {**tensors_of(path), **changes}
    left = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file(left, path / "model.safetensors", metadata={"format": "pt"})
    return path


def change_config(path: Path, **entries: object) -> Path:
    """Set entries of config.json; None removes one."""
    config = json.loads((path / "config.json").read_text()) | entries
    left = {name: value for name, value in config.items() if value is not None}
    (path / "config.json").write_text(json.dumps(left))
    return path
