"""Entries of a Hugging Face config, each honoured, without influence, or refused.

The table has every field of transformers' config classes of the packed model types, and entries of
other model types that would change what a model computes. transformers ignores an entry that a
class does not have, and so does everything here.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Mapping
from typing import Any, Literal

from cassandra_spec.golden.errors import FileError
from cassandra_spec.golden.model_types import ModelType

Treatment = Literal["honoured", "without influence", "refused"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """One entry and its treatment; a refused one may be missing, null or one of ``neutral``."""

    name: str
    treatment: Treatment
    why: str
    only: tuple[str, ...] = ()  # model types; empty: all
    neutral: tuple[Any, ...] = ()

    @property
    def expected(self) -> str:
        """Return what a refused entry must be."""
        return " or ".join([*(repr(each).lower() for each in self.neutral), "null"])


def _fields(treatment: Treatment, why: str, *names: str, **more: Any) -> tuple[Field, ...]:
    return tuple(Field(name=name, treatment=treatment, why=why, **more) for name in names)


PACKED_MARK = {"quant_method": "cassandra", "version": 1}
"""``quantization_config`` of packed directories."""

_GEMMA = ("gemma2", "gemma3_text")
_OFF = (False, 0)

FIELDS: tuple[Field, ...] = (
    *_fields("honoured", "the model type", "model_type"),
    *_fields(
        "honoured",
        "sizes, which must be those of the tensors",
        *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "head_dim"),
        *("num_attention_heads", "num_key_value_heads"),
    ),
    *_fields("honoured", "positions", "max_position_embeddings"),
    *_fields("honoured", "of norms", "rms_norm_eps"),
    *_fields(
        "honoured",
        "the native engine knows silu and gelu_pytorch_tanh, torch all",
        "hidden_act",
        "hidden_activation",
    ),
    *_fields("honoured", "biases; missing ones are zero", "attention_bias", "mlp_bias"),
    *_fields("honoured", "unless the tensors contradict", "tie_word_embeddings"),
    *_fields("honoured", "ends of replies: one token or several", "eos_token_id"),
    *_fields("honoured", "rotary embeddings", "rope_parameters", "rope_scaling", "rope_theta"),
    *_fields("honoured", "of layers with a window", "rope_local_base_freq", only=("gemma3_text",)),
    *_fields(
        "honoured",
        "rotary embeddings",
        *("original_max_position_embeddings", "partial_rotary_factor"),
        only=("phi3",),
    ),
    *_fields(
        "honoured",
        "windows",
        *("sliding_window", "layer_types"),
        only=("qwen2", "qwen3", *_GEMMA),
    ),
    *_fields("honoured", "windows", "sliding_window", only=("phi3",)),
    *_fields(
        "honoured", "windows", *("use_sliding_window", "max_window_layers"), only=("qwen2", "qwen3")
    ),
    *_fields("honoured", "windows", "sliding_window_pattern", only=("gemma3_text",)),
    *_fields("honoured", "the scale of scores", "query_pre_attn_scalar", only=_GEMMA),
    *_fields("honoured", "a soft cap", "attn_logit_softcapping", only=("gemma2",)),
    *_fields("honoured", "a soft cap", "final_logit_softcapping", only=_GEMMA),
    *_fields(
        "honoured",
        "scales",
        *("attention_multiplier", "residual_multiplier", "embedding_multiplier", "logits_scaling"),
        only=("granite",),
    ),
    *_fields("without influence", "weights are BF16 when packed", "dtype", "torch_dtype"),
    *_fields("without influence", "of training", "initializer_range", "pretraining_tp"),
    *_fields("without influence", "of training", "attention_dropout", "embd_pdrop", "resid_pdrop"),
    *_fields(
        "without influence",
        "the tokenizer's files have them",
        *("bos_token_id", "pad_token_id", "unk_token_id"),
    ),
    *_fields(
        "without influence",
        "how transformers calls a model",
        *("use_cache", "chunk_size_feed_forward", "return_dict"),
        *("output_hidden_states", "output_attentions"),
    ),
    *_fields("without influence", "of classifiers", "id2label", "label2id", "problem_type"),
    *_fields(
        "without influence",
        "describes the file",
        *("architectures", "transformers_version", "_name_or_path"),
    ),
    *_fields("without influence", "layer_types says it", "_sliding_window_pattern"),
    *_fields("refused", "decoders only", "is_encoder_decoder", neutral=_OFF),
    *_fields(
        "refused",
        "tensors must be in BF16, F16 or F32, or packed by this project",
        "quantization_config",
        neutral=(PACKED_MARK,),
    ),
    *_fields(
        "refused",
        "parts of layers that the type does not have",
        *("use_bidirectional_attention", "rope_interleaved", "use_qk_norm", "qk_layernorm"),
        *("no_rope_layers", "num_experts", "num_local_experts", "clip_qkv"),
        *("attention_chunk_size", "kv_lora_rank", "use_mrope"),
        neutral=_OFF,
    ),
    *_fields("refused", "positions are rotated", "position_embedding_type", neutral=("rope",)),
    *_fields(
        "refused",
        "scales that the type does not have",
        *("attention_multiplier", "residual_multiplier", "embedding_multiplier", "logits_scaling"),
        *("logit_scale", "partial_rotary_factor"),
        neutral=(1,),
    ),
    *_fields(
        "refused",
        "soft caps that the type does not have",
        *("attn_logit_softcapping", "final_logit_softcapping"),
    ),
)


def find_field(name: str, model_type: str) -> Field | None:
    """Return the row of an entry for a model type; None: transformers ignores it."""
    rows = [each for each in FIELDS if each.name == name]
    own = [each for each in rows if model_type in each.only]
    return next(iter(own or [each for each in rows if not each.only]), None)


def check_fields(config: Mapping[str, Any], kind: ModelType, where: object) -> None:
    """Raise :class:`FileError` for the first refused entry whose value is not neutral."""
    for name, value in config.items():
        field = find_field(name, kind.name)
        if field is None or field.treatment != "refused":
            continue
        if value is not None and value not in field.neutral:
            raise FileError(
                f"{where}: {name} must be {field.expected} for {kind.name}, "
                f"not {reprlib.repr(value)} ({field.why})"
            )


def document() -> str:
    """Return the table in Markdown."""
    grouped: dict[tuple[Any, ...], list[str]] = {}
    for each in FIELDS:
        grouped.setdefault((each.treatment, each.why, each.only, _unless(each)), []).append(
            each.name
        )
    lines = ["| entry | in | treatment | what it is, or why |", "|---|---|---|---|"]
    for (treatment, why, only, unless), names in grouped.items():
        listed = ", ".join(f"`{name}`" for name in names)
        lines.append(f"| {listed} | {', '.join(only) or 'all'} | {treatment}{unless} | {why} |")
    return "\n".join(lines)


def _unless(field: Field) -> str:
    return f" unless {field.expected}" if field.treatment == "refused" else ""


if __name__ == "__main__":
    print(document())
