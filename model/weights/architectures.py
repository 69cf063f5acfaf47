"""What is known of model architectures: which tensors are packed, and their names in GGUF files."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.model_config import HEAD as HEAD

Kind = Literal["linear", "head", "other"]
"""``linear`` and ``head`` are packed; ``other`` (norms, biases, untied embeddings) are not."""

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"

_LAYER = re.compile(r"model\.layers\.(\d+)\.")
_LINEAR = re.compile(
    r"model\.layers\.\d+\.(self_attn\.([qkvo]|qkv)_proj|mlp\.(gate|up|down|gate_up)_proj)\.weight"
)

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

_BIASED = tuple(f"self_attn.{part}_proj.bias" for part in "qkvo")
_BIASED_MLP = tuple(f"mlp.{part}_proj.bias" for part in ("gate", "up", "down"))
_ATTENTION_BIAS: Mapping[str, tuple[str, ...]] = {"attention_bias": _BIASED}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture:
    """One family of models with the names that Llama gave its tensors."""

    model_type: str  # in a Hugging Face config
    class_name: str  # in transformers
    gguf: str  # general.architecture of a GGUF file
    gguf_layer: Mapping[str, str]  # GGUF's name of a part of a layer to Hugging Face's
    gguf_permuted: bool = False  # llama.cpp keeps the rows of q and k in another order
    gguf_norm_offset: int = 0  # what llama.cpp has added to the weights of norms
    own_biases: tuple[str, ...] = ()  # of each layer, whatever the config says
    switched_biases: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Biases of each layer by the entry of the config that says whether the model has them."""

    def kind(self, name: str, *, tied: bool) -> Kind:
        """How to treat the tensor called ``name``; ``tied``: the embedding is the head too."""
        if name == HEAD or (tied and name == EMBEDDING):
            return "head"
        return "linear" if _LINEAR.fullmatch(name) else "other"

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of the weights of each layer."""
        return tuple(f"{part}.weight" for part in self.gguf_layer.values())

    def biases(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Names of the biases of each layer of a config's model."""
        switched = (
            name
            for entry, names in self.switched_biases.items()
            if config.get(entry)
            for name in names
        )
        return (*self.own_biases, *switched)

    def from_gguf_name(self, name: str) -> str:
        """Hugging Face's name of a tensor of a GGUF file."""
        if name in _GGUF_TOP:
            return _GGUF_TOP[name]
        match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
        if match is None or match[2] not in self.gguf_layer:
            raise CassandraError(f"{name} must be a tensor of a {self.gguf} model, and is unknown")
        return f"model.layers.{match[1]}.{self.gguf_layer[match[2]]}.{match[3]}"


ARCHITECTURES = (
    Architecture(
        model_type="llama",
        class_name="LlamaForCausalLM",
        gguf="llama",
        gguf_layer=_GGUF_LAYER,
        gguf_permuted=True,
        switched_biases={**_ATTENTION_BIAS, "mlp_bias": _BIASED_MLP},
    ),
    Architecture(
        model_type="qwen2",
        class_name="Qwen2ForCausalLM",
        gguf="qwen2",
        gguf_layer=_GGUF_LAYER,
        own_biases=_BIASED[:3],
    ),
    Architecture(
        model_type="qwen3",
        class_name="Qwen3ForCausalLM",
        gguf="qwen3",
        gguf_layer={**_GGUF_LAYER, **_GGUF_HEAD_NORMS},
        switched_biases=_ATTENTION_BIAS,
    ),
    Architecture(
        model_type="phi3",
        class_name="Phi3ForCausalLM",
        gguf="phi3",
        gguf_layer=_GGUF_FUSED,
    ),
    Architecture(
        model_type="gemma2",
        class_name="Gemma2ForCausalLM",
        gguf="gemma2",
        gguf_layer={**_GGUF_LAYER, **_GGUF_GEMMA},
        gguf_norm_offset=1,
        switched_biases=_ATTENTION_BIAS,
    ),
    Architecture(
        model_type="gemma3_text",
        class_name="Gemma3ForCausalLM",
        gguf="gemma3",
        gguf_layer={**_GGUF_LAYER, **_GGUF_HEAD_NORMS, **_GGUF_GEMMA},
        gguf_norm_offset=1,
        switched_biases=_ATTENTION_BIAS,
    ),
)


def find_architecture(
    value: Any, *, field: Literal["model_type", "gguf"], where: object
) -> Architecture:
    """The architecture whose ``field`` is ``value``; ``where`` is named in the error."""
    for architecture in ARCHITECTURES:
        if getattr(architecture, field) == value:
            return architecture
    known = ", ".join(getattr(architecture, field) for architecture in ARCHITECTURES)
    raise CassandraError(f"{where}: the architecture must be one of {known}, not {value!r}")


def layer_numbers(tensors: Iterable[str]) -> set[int]:
    """Numbers of the layers that have tensors."""
    return {int(found[1]) for found in map(_LAYER.match, tensors) if found}
