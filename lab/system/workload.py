"""Workloads: the sizes of a language model, and how many tokens go in and come out."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from cassandra_spec.lab.system.errors import SystemModelError, check_count, unknown
from cassandra_spec.lab.system.files import HERE, read_json

_FIELDS = {
    "hidden": "hidden_size",
    "intermediate": "intermediate_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "vocabulary": "vocab_size",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """A decoder-only transformer with gated feed-forward layers (Llama, Qwen, SmolLM)."""

    name: str  # for people
    hidden: int  # width of the residual stream
    intermediate: int  # width of the feed-forward layers
    layers: int  # number of them
    heads: int  # attention heads
    kv_heads: int  # heads of keys and values; divides ``heads``
    head_size: int  # values in a head
    vocabulary: int  # rows of embedding and head
    tied: bool  # whether embedding and head are one matrix

    def __post_init__(self) -> None:
        for name in (*_FIELDS, "head_size"):
            check_count(name, getattr(self, name), 1)
        if self.heads % self.kv_heads:
            raise SystemModelError(f"kv_heads must divide heads {self.heads}, not {self.kv_heads}")

    @property
    def attention_weights(self) -> int:
        """Weights of the query, key, value and output matrices of one layer."""
        return 2 * self.hidden * self.head_size * (self.heads + self.kv_heads)

    @property
    def mlp_weights(self) -> int:
        """Weights of the gate, up and down matrices of one layer."""
        return 3 * self.hidden * self.intermediate

    @property
    def layer_weights(self) -> int:
        """Weights of all linear matrices of one layer."""
        return self.attention_weights + self.mlp_weights

    @property
    def head_weights(self) -> int:
        """Weights of the language-model head."""
        return self.hidden * self.vocabulary

    @property
    def weights(self) -> int:
        """Linear weights, head, and embedding where it is a matrix of its own; no norms."""
        embedding = 0 if self.tied else self.head_weights
        return self.layers * self.layer_weights + self.head_weights + embedding

    @property
    def kv_values(self) -> int:
        """Keys and values that one token adds to the cache of one layer."""
        return 2 * self.kv_heads * self.head_size

    @property
    def layer_activations(self) -> int:
        """Values that go into and out of the linear matrices of one layer, for one token."""
        attention = 2 * self.hidden + 2 * self.heads * self.head_size + self.kv_values
        return attention + 2 * self.hidden + 3 * self.intermediate


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """A batch of equal requests."""

    prompt: int  # tokens of the prompt of each request
    output: int  # tokens that each request generates
    batch: int = 1  # requests at once, 1 to 16 (the paper is about few)

    def __post_init__(self) -> None:
        check_count("prompt", self.prompt, 1)
        check_count("output", self.output, 1)
        check_count("batch", self.batch, 1, 16)

    @property
    def context(self) -> float:
        """Mean number of cached tokens that a decoding step sees."""
        return self.prompt + (self.output - 1) / 2


def known_models() -> dict[str, Path]:
    """Return the bundled models, by name."""
    return {path.stem: path for path in sorted((HERE / "models").glob("*.json"))}


def load_model(name: str | Path) -> Model:
    """Load a model by name (see :func:`known_models`), or from a ``config.json`` or its directory.

    Raises:
        SystemModelError: the name is unknown, or the file does not describe such a model.
        OSError: the file cannot be read.
    """
    known = known_models()
    path = known.get(str(name), Path(name))
    if path.is_dir():
        path = path / "config.json"
    if path.suffix != ".json":
        unknown("model", str(name), [*known, "a config.json", "its directory"])
    return _from_config(path, read_json(path))


def _from_config(path: Path, config: dict[str, Any]) -> Model:
    config = {**config, **config.get("text_config", {})}
    config.setdefault("num_key_value_heads", config.get("num_attention_heads"))
    missing = [key for key in _FIELDS.values() if config.get(key) is None]
    if missing:
        raise SystemModelError(f"{path} must have {', '.join(missing)}")
    if any("expert" in key and value for key, value in config.items()):
        raise SystemModelError(f"{path} must be a dense model, not a mixture of experts")
    sizes = {name: config[key] for name, key in _FIELDS.items()}
    try:
        for name, value in sizes.items():
            check_count(name, value, 1)
        size = config.get("head_dim") or sizes["hidden"] // sizes["heads"]
        tied = config.get("tie_word_embeddings", False)
        label = config.get("_name_or_path") or path.parent.name or path.stem
        return Model(name=label, head_size=size, tied=bool(tied), **sizes)
    except SystemModelError as error:
        raise SystemModelError(f"{path}: {error}") from None
