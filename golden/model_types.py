"""The model types: one table that packing, the native engine and the tests read.

docs/development.md lists the steps to add one.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.model_config import HEAD as HEAD

Kind = Literal["linear", "head", "other"]
"""``linear`` and ``head`` are packed; ``other`` (norms, biases, untied embeddings) are not."""

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"

_LAYER = re.compile(r"model\.layers\.(\d+)\.")
_LINEAR = re.compile(
    r"model\.layers\.\d+\.(self_attn\.([qkvo]|qkv)_proj|mlp\.(gate|up|down|gate_up)_proj)\.weight"
)

# Hugging Face's names of tensors and of layer parts, mapped to GGUF's.
_GGUF_TOP = {
    "token_embd.weight": EMBEDDING,
    "output.weight": HEAD,
    "output_norm.weight": FINAL_NORM,
}
_GGUF_LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_GGUF_FUSED = {
    **{"attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj"},
    **{"ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"},
    **{"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"},
}
_GGUF_HEAD_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_GGUF_GEMMA = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


_GGUF_NORMS_AFTER = {
    **{name: part for name, part in _GGUF_LAYER.items() if not name.endswith("norm")},
    **{"post_attention_norm": "post_attention_layernorm"},
    **{"post_ffw_norm": "post_feedforward_layernorm"},
}

_BIASED = tuple(f"self_attn.{part}_proj.bias" for part in "qkvo")
_BIASED_MLP = tuple(f"mlp.{part}_proj.bias" for part in ("gate", "up", "down"))
_ATTENTION_BIAS: Mapping[str, tuple[str, ...]] = {"attention_bias": _BIASED}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelType:
    """A model type: Llama's names for its tensors, and the operations of its layers."""

    name: str  # model_type of a Hugging Face config
    title: str  # in help and documents
    class_name: str  # in transformers

    # GGUF files.
    gguf: str  # general.architecture
    gguf_layer: Mapping[str, str] = dataclasses.field(default_factory=lambda: _GGUF_LAYER)
    gguf_permuted: bool = False  # llama.cpp stores the rows of q and k in another order
    gguf_norm_offset: int = 0  # offset that llama.cpp adds to norm weights
    gguf_27b: int | None = None  # layers of the size whose scores have another scale in llama.cpp

    # Entries of config.json.
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # as in transformers
    used: tuple[str, ...] = ()  # supported entries that change the computation
    activation: str = "hidden_act"  # entry that names the activation
    query_size: str | None = None  # entry whose square root divides scores; None: head size
    rope_types: Mapping[str, str] = dataclasses.field(default_factory=dict)  # current by old

    own_biases: tuple[str, ...] = ()  # biases of each layer for every config
    switched_biases: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Biases of each layer by the config entry that enables them."""

    # Operations of a layer.
    norms: Literal["before", "after", "both"] = "before"  # around attention and feed-forward
    query_key_norms: Literal["head", "row"] | None = None  # norms over single heads, or over all
    norm_offset: float = 0.0  # added to norm weights
    root_embedding: bool = False  # scale embeddings by the square root of the hidden size
    fused: bool = False  # q, k and v are one tensor, and so are gate and up
    windows: Literal["none", "all", "late", "alternate", "pattern"] = "none"  # layers that have one
    two_ropes: bool = False  # layers with a window have separate rotary angles

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of the weights of each layer."""
        return tuple(f"{part}.weight" for part in self.gguf_layer.values())

    @property
    def all_biases(self) -> tuple[str, ...]:
        """Names of the biases that each layer can have."""
        return self.biases(dict.fromkeys(self.switched_biases, True))

    def biases(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the biases of each layer for this config."""
        switched = (
            name
            for entry, names in self.switched_biases.items()
            if config.get(entry)
            for name in names
        )
        return (*self.own_biases, *switched)

    def kind(self, name: str, *, tied: bool) -> Kind:
        """Return how to treat tensor ``name``; ``tied``: the embedding is also the head."""
        if name == HEAD or (tied and name == EMBEDDING):
            return "head"
        return "linear" if _LINEAR.fullmatch(name) else "other"

    def from_gguf_name(self, name: str) -> str:
        """Return Hugging Face's name of a GGUF tensor."""
        if name in _GGUF_TOP:
            return _GGUF_TOP[name]
        match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
        if match is None or match[2] not in self.gguf_layer:
            raise CassandraError(f"{name} must be a tensor of a {self.gguf} model, and is unknown")
        return f"model.layers.{match[1]}.{self.gguf_layer[match[2]]}.{match[3]}"


_GEMMA: Mapping[str, Any] = {
    "head_dim": 256,
    "num_key_value_heads": 4,
    "tie_word_embeddings": True,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
}

MODEL_TYPES = (
    ModelType(
        name="llama",
        title="Llama",
        class_name="LlamaForCausalLM",
        gguf="llama",
        gguf_permuted=True,
        switched_biases={**_ATTENTION_BIAS, "mlp_bias": _BIASED_MLP},
    ),
    ModelType(
        name="qwen2",
        title="Qwen2",
        class_name="Qwen2ForCausalLM",
        gguf="qwen2",
        own_biases=_BIASED[:3],
        defaults={"max_window_layers": 28},
        windows="late",
    ),
    ModelType(
        name="qwen3",
        title="Qwen3",
        class_name="Qwen3ForCausalLM",
        gguf="qwen3",
        gguf_layer={**_GGUF_LAYER, **_GGUF_HEAD_NORMS},
        defaults={"max_window_layers": 28},
        switched_biases=_ATTENTION_BIAS,
        query_key_norms="head",
        windows="late",
    ),
    ModelType(
        name="phi3",
        title="Phi-3",
        class_name="Phi3ForCausalLM",
        gguf="phi3",
        gguf_layer=_GGUF_FUSED,
        defaults={"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
        used=("partial_rotary_factor",),
        rope_types={"su": "longrope", "yarn": "longrope"},
        fused=True,
        windows="all",
    ),
    ModelType(
        name="gemma2",
        title="Gemma 2",
        class_name="Gemma2ForCausalLM",
        gguf="gemma2",
        gguf_27b=46,
        gguf_layer={**_GGUF_LAYER, **_GGUF_GEMMA},
        gguf_norm_offset=1,
        switched_biases=_ATTENTION_BIAS,
        defaults={**_GEMMA, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        used=("attn_logit_softcapping", "final_logit_softcapping"),
        activation="hidden_activation",
        query_size="query_pre_attn_scalar",
        norms="both",
        norm_offset=1.0,
        root_embedding=True,
        windows="alternate",
    ),
    ModelType(
        name="gemma3_text",
        title="Gemma 3 (text)",
        class_name="Gemma3ForCausalLM",
        gguf="gemma3",
        gguf_27b=62,
        gguf_layer={**_GGUF_LAYER, **_GGUF_HEAD_NORMS, **_GGUF_GEMMA},
        gguf_norm_offset=1,
        switched_biases=_ATTENTION_BIAS,
        defaults={**_GEMMA, "sliding_window_pattern": 6},
        used=("final_logit_softcapping",),
        activation="hidden_activation",
        query_size="query_pre_attn_scalar",
        norms="both",
        query_key_norms="head",
        norm_offset=1.0,
        root_embedding=True,
        windows="pattern",
        two_ropes=True,
    ),
    ModelType(
        name="granite",
        title="Granite",
        class_name="GraniteForCausalLM",
        gguf="granite",
        gguf_permuted=True,
        switched_biases={**_ATTENTION_BIAS, "mlp_bias": _BIASED_MLP},
        used=(
            *("attention_multiplier", "residual_multiplier", "embedding_multiplier"),
            "logits_scaling",
        ),
    ),
    ModelType(
        name="olmo2",
        title="OLMo 2",
        class_name="Olmo2ForCausalLM",
        gguf="olmo2",
        gguf_layer={**_GGUF_NORMS_AFTER, **_GGUF_HEAD_NORMS},
        switched_biases=_ATTENTION_BIAS,
        defaults={"rms_norm_eps": 1e-5},
        norms="after",
        query_key_norms="row",
    ),
)


def titles() -> str:
    """Return the titles of model types, as ``A, B or C``."""
    *first, last = (each.title for each in MODEL_TYPES)
    return f"{', '.join(first)} or {last}"


def find_model_type(value: Any, *, field: Literal["name", "gguf"], where: object) -> ModelType:
    """Return the model type whose ``field`` is ``value``; ``where`` appears in the error."""
    for found in MODEL_TYPES:
        if getattr(found, field) == value:
            return found
    names = ", ".join(getattr(each, field) for each in MODEL_TYPES)
    entry = {"name": "model_type", "gguf": "general.architecture"}[field]
    raise CassandraError(f"{where}: {entry} must be one of {names}, not {value!r}")


def layer_numbers(tensors: Iterable[str]) -> set[int]:
    """Return the numbers of the layers that have tensors."""
    return {int(match[1]) for match in map(_LAYER.match, tensors) if match}
