"""Keys and tensors of GGUF files, each honoured, without influence, or refused.

The table has the keys and tensors that llama.cpp reads for the packed model types, and those that
its converter writes. A key of a model or of a tokenizer that is not in it is refused.
``python -m cassandra_spec.model.weights.gguf_inventory`` prints it for docs/software/inventory.md.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from gguf import GGMLQuantizationType as Kind
from gguf.quants import _type_traits as _quantised

from cassandra_spec.golden.errors import FileError
from cassandra_spec.golden.model_types import MODEL_TYPES, ModelType
from cassandra_spec.model.weights.gguf_forms import (
    ALIGNMENT,
    CAP,
    COUNT,
    EPSILON,
    FACTOR,
    FLAG,
    NUMBER,
    OF_EACH_TOKEN,
    PATTERN,
    SCALE,
    TEXT,
    TEXTS,
    THETA,
    TOKEN,
    Form,
    size,
)
from cassandra_spec.model.weights.gguf_header import Header

Treatment = Literal["honoured", "without influence", "refused"]

ARCH = "ARCH."
"""Stands for the prefix of a model's own keys, such as ``llama.``."""

KINDS = tuple(dict.fromkeys((Kind.F32, Kind.F16, Kind.BF16, *_quantised)))
"""Types of tensors that are read."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One key, or the name of a tensor, and its treatment.

    A refused key may have a value that changes nothing: one of ``neutral``, or the file's ``same``,
    a name in the standards of :func:`check_keys`. The value of an honoured key has a ``form``.
    """

    name: str  # a * at the end stands for any text
    treatment: Treatment
    why: str
    only: tuple[str, ...] = ()  # architectures; empty: all
    neutral: tuple[Any, ...] = ()
    same: str | None = None
    form: Form | None = None

    def matches(self, name: str, architecture: str) -> bool:
        """Return True if the row is about a key or a tensor of an architecture."""
        if self.only and architecture not in self.only:
            return False
        return name == self.name or (
            self.name.endswith("*") and name.startswith(self.name.removesuffix("*"))
        )

    def accepts(self, value: Any, standards: Mapping[str, Any]) -> bool:
        """Return True if a value of a refused key changes nothing."""
        several = value if isinstance(value, list) else [value]
        allowed = (*self.neutral, *([standards[self.same]] if self.same else []))
        return bool(allowed) and all(each in allowed for each in several)

    @property
    def expected(self) -> str:
        """Return what a refused key must be."""
        words = [repr(each).lower() for each in self.neutral] + ([self.same] if self.same else [])
        return f"{' or '.join(words)}, or absent" if words else "absent"


def _honoured(why: str, form: Form | None, *names: str, only: tuple[str, ...] = ()) -> list[Row]:
    return [Row(name=n, treatment="honoured", why=why, form=form, only=only) for n in names]


def _ignored(why: str, *names: str) -> list[Row]:
    return [Row(name=name, treatment="without influence", why=why) for name in names]


def _refused(why: str, *names: str, **more: Any) -> list[Row]:
    return [Row(name=name, treatment="refused", why=why, **more) for name in names]


def _named(prefix: str, words: str, suffix: str = "") -> list[str]:
    return [f"{prefix}{word}{suffix}" for word in words.split()]


_SCALED = ("granite",)
_FACTORS = ("llama", "granite")
_GEMMA = ("gemma2", "gemma3")
_ATTENTION, _ROPE, _SCALING = f"{ARCH}attention.", f"{ARCH}rope.", f"{ARCH}rope.scaling."
_TOKENS = "tokenizer.ggml."

_SIZES = {
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
}
_SCALES = {
    "attention_multiplier": "attention.scale",
    "residual_multiplier": "residual_scale",
    "embedding_multiplier": "embedding_scale",
    "logits_scaling": "logit_scale",
}
"""Entries of a config, and their keys."""

KEYS: tuple[Row, ...] = (
    # The file.
    *_honoured("the model type", TEXT, "general.architecture"),
    *_refused("adapters and projectors are no models", "general.type", neutral=("model",)),
    *_honoured("where tensors begin", ALIGNMENT, "general.alignment"),
    *_ignored("each tensor states its own type", "general.file_type"),
    *_ignored("a type states its blocks", "general.quantization_version"),
    *_ignored("options and requests set samplers", "general.sampling.*"),
    *_ignored("precision on some devices", "general.tensor_extra.*"),
    *_ignored("describes the file", "general.*"),
    *_honoured("shards are read as one", None, *_named("split.", "no count tensors.count")),
    *_refused("an adapter is no model", "adapter.*"),
    # Sizes.
    *_honoured(
        "vocab_size; it must be that of the tensors", size("vocab_size"), f"{ARCH}vocab_size"
    ),
    *(row for entry, key in _SIZES.items() for row in _honoured(entry, size(entry), ARCH + key)),
    *_refused(
        "heads have one size",
        *_named(_ATTENTION, "value_length key_length_swa value_length_swa"),
        same="head size",
    ),
    *_refused("embeddings have one size", f"{ARCH}embedding_length_out", same="hidden size"),
    # Layers.
    *_honoured("rms_norm_eps", EPSILON, f"{_ATTENTION}layer_norm_rms_epsilon"),
    *_ignored("all norms are RMS norms", f"{_ATTENTION}layer_norm_epsilon"),
    *(
        row
        for entry, key in _SCALES.items()
        for row in _honoured(entry, NUMBER, ARCH + key, only=_SCALED)
    ),
    *_honoured(
        "attn_logit_softcapping; 50 without it",
        CAP,
        f"{ARCH}attn_logit_softcapping",
        only=("gemma2",),
    ),
    *_honoured(
        "final_logit_softcapping; without it 30 in gemma2, none in gemma3",
        CAP,
        f"{ARCH}final_logit_softcapping",
        only=_GEMMA,
    ),
    *_honoured(
        "sliding_window; without it 4,096 in gemma2, none in gemma3",
        COUNT,
        f"{_ATTENTION}sliding_window",
        only=_GEMMA,
    ),
    *_honoured(
        "sliding_window, as in transformers; llama.cpp switches it off",
        COUNT,
        f"{_ATTENTION}sliding_window",
        only=("phi3",),
    ),
    *_honoured(
        "layer_types: a number or a list; without it every second layer of gemma2, every sixth of "
        "gemma3 sees all",
        PATTERN,
        f"{_ATTENTION}sliding_window_pattern",
        only=_GEMMA,
    ),
    *_refused(
        "scales, caps and windows that the type does not have",
        *_named(ARCH, "residual embedding logit", "_scale"),
        *_named(_ATTENTION, "scale sliding_window max_alibi_bias clamp_kqv sliding_window_pattern"),
        *_named(ARCH, "attn final router", "_logit_softcapping"),
        neutral=(0,),
    ),
    *_refused("attention is causal", f"{_ATTENTION}causal", neutral=(True,)),
    *_refused(
        "experts and layers of predictors are not computed",
        *_named(f"{ARCH}expert_", "count used_count group_count group_used_count"),
        *_named(ARCH, "expert_shared_feed_forward_length nextn_predict_layers"),
        neutral=(0,),
    ),
    *_ignored("of embeddings, not of logits", f"{ARCH}pooling_type"),
    *_refused("classifiers have no logits of tokens", f"{ARCH}classifier.*"),
    *_refused("one residual", f"{ARCH}use_parallel_residual", neutral=(False,)),
    *_refused(
        "one order of rows is known", f"{ARCH}tensor_data_layout", neutral=("Meta AI original pth",)
    ),
    # Rotary embeddings.
    *_honoured("rope_theta; 10,000 without it", THETA, f"{_ROPE}freq_base"),
    *_honoured(
        "rope_theta of layers with a window; 10,000 without it",
        THETA,
        f"{_ROPE}freq_base_swa",
        only=("gemma3",),
    ),
    *_refused("all layers have the same", f"{_ROPE}freq_base_swa", same="theta"),
    *_honoured(
        "partial_rotary_factor", size("head_dim"), f"{_ROPE}dimension_count", only=("phi3",)
    ),
    *_refused(
        "whole heads are rotated",
        *_named(_ROPE, "dimension_count dimension_count_swa"),
        same="head size",
    ),
    *_refused("positions are numbers", f"{_ROPE}dimension_sections", neutral=(0,)),
    *_honoured("rope_type: none, linear, yarn or longrope", TEXT, f"{_SCALING}type"),
    *_honoured("factor", FACTOR, f"{_SCALING}factor"),
    *_honoured(f"factor, unless there is {_SCALING}factor", FACTOR, f"{_ROPE}scale_linear"),
    *_honoured("attention_factor", SCALE, f"{_SCALING}attn_factor"),
    *_honoured(
        "original_max_position_embeddings of yarn and longrope",
        COUNT,
        f"{_SCALING}original_context_length",
    ),
    *_refused(
        "false means no rotary embedding", f"{_SCALING}finetuned", only=_SCALED, neutral=(True,)
    ),
    *_ignored("describes the training", f"{_SCALING}finetuned"),
    *_refused("of another model type", f"{_SCALING}alpha", neutral=(0,)),
    *_refused("llama.cpp computes with 1", f"{_SCALING}yarn_ext_factor", neutral=(1, -1)),
    *_refused("llama.cpp computes with 1", f"{_SCALING}yarn_attn_factor", neutral=(1,)),
    *_refused("llama.cpp computes with 32", f"{_SCALING}yarn_beta_fast", neutral=(32,)),
    *_refused("llama.cpp computes with 1", f"{_SCALING}yarn_beta_slow", neutral=(1,)),
    *_refused("of another model type", f"{_SCALING}yarn_log_multiplier", neutral=(0,)),
    *_refused("unknown: it may change what the model computes", f"{ARCH}*"),
    # Tokenizers.
    *_honoured("gpt2 (bytes) or llama (SentencePiece)", TEXT, f"{_TOKENS}model"),
    *_honoured("how text is cut before merges", TEXT, f"{_TOKENS}pre"),
    *_honoured("the vocabulary", TEXTS, *_named(_TOKENS, "tokens merges")),
    *_honoured("the vocabulary", OF_EACH_TOKEN, *_named(_TOKENS, "scores token_type")),
    *_honoured("special tokens", TOKEN, *_named(_TOKENS, "bos unknown padding", "_token_id")),
    *_honoured(
        "end replies, as do tokens whose text llama.cpp knows as an end",
        TOKEN,
        *_named(_TOKENS, "eos eot eom fim_pad fim_rep fim_sep", "_token_id"),
    ),
    *_honoured("around prompts", FLAG, *_named(_TOKENS, "add_bos_token add_eos_token")),
    *_honoured("a space before text (llama)", FLAG, f"{_TOKENS}add_space_prefix"),
    *_honoured("the chat template, and others by name", TEXT, "tokenizer.chat_template"),
    *_honoured("the template NAME; tool_use: with tools", TEXT, "tokenizer.chat_template.*"),
    *_ignored("lists the names of templates", "tokenizer.chat_templates"),
    *_ignored(
        "a token of prompts for infilling, which are not made",
        *_named(_TOKENS, "fim_pre fim_suf fim_mid prefix suffix middle", "_token_id"),
    ),
    *_ignored(
        "of tokenizers for encoders",
        *_named(_TOKENS, "seperator cls mask", "_token_id"),
        *_named(_TOKENS, "add_sep_token token_type_count remove_extra_whitespaces normalizer.*"),
        f"{_TOKENS}precompiled_charsmap",
    ),
    *_ignored(
        "the same tokenizer in another form, which llama.cpp does not read",
        *_named("tokenizer.", "huggingface.json rwkv.world"),
    ),
    *_refused("unknown: it may change tokens or replies", "tokenizer.*"),
    *_ignored("llama.cpp reads no such key", "*"),
)

_EXAMPLES = "output.bias, experts, adapters, scales of tensors, tensors of other layers"

TENSORS: tuple[Row, ...] = (
    *_honoured("the embedding", None, "token_embd.weight"),
    *_honoured("the head; without it the embedding is the head", None, "output.weight"),
    *_honoured("the last norm", None, "output_norm.weight"),
    *_honoured("matrices and norms of the model type", None, "blk.N.PART.weight"),
    *_honoured("biases that the model type can have", None, "blk.N.PART.bias"),
    *_honoured(
        "rope_type llama3 if it gives these factors, else longrope with one list",
        None,
        "rope_freqs.weight",
        only=_FACTORS,
    ),
    *_honoured(
        "long_factor and short_factor; in llama and granite only with type longrope",
        None,
        *_named("rope_factors_", "long short", ".weight"),
        only=(*_FACTORS, "phi3"),
    ),
    *_refused(_EXAMPLES, "*"),
)


def find_row(key: str, architecture: str) -> Row:
    """Return the row of a key: the first that matches, exact names before others."""
    own = f"{architecture}."
    name = ARCH + key.removeprefix(own) if key.startswith(own) else key
    matching = [row for row in KEYS if row.matches(name, architecture)]
    exact = [row for row in matching if row.name == name]
    return max(exact or matching, key=lambda row: (len(row.name), bool(row.only)))


def check_keys(header: Header, architecture: str, standards: Mapping[str, Any]) -> None:
    """Raise :class:`FileError` for the first refused key whose value is not neutral.

    ``standards`` are the values that :attr:`Row.same` names.
    """
    for key in header.entries:
        row = find_row(key, architecture)
        if row.treatment == "refused" and not row.accepts(header.get(key), standards):
            value = reprlib.repr(header.get(key))
            raise FileError(f"{header.path}: {key} must be {row.expected}, not {value} ({row.why})")


def check_forms(header: Header, architecture: str) -> None:
    """Raise :class:`FileError` for the first honoured key whose value has another form."""
    for key in header.entries:
        if form := find_row(key, architecture).form:
            form.check(header, key)


def takes_factors(name: str, architecture: str) -> bool:
    """Return True if an architecture has a tensor that divides rotary frequencies."""
    return any(row.name == name and row.matches(name, architecture) for row in TENSORS)


def refused_tensor(name: str, where: Path) -> FileError:
    """Return the error for a tensor that the model would not use."""
    return FileError(f"{where}: the model has no tensor {name}, and would compute without it")


def check_kind(name: str, kind: Kind, where: Path) -> None:
    """Raise :class:`FileError` for a tensor of a type that is not read."""
    if kind not in KINDS:
        known = ", ".join(each.name for each in KINDS)
        raise FileError(f"{where}: {name} must have a type of {known}, not {kind.name}")


# --- as a document --------------------------------------------------------------------------------


def document() -> str:
    """Return the tables of the inventory in Markdown."""
    kinds = ", ".join(sorted(kind.name for kind in KINDS))
    types = ", ".join(f"`{each.gguf}`" for each in MODEL_TYPES)
    return "\n\n".join(
        (
            f"`ARCH` is the architecture: {types}.",
            _table("key", KEYS),
            _table("tensor", TENSORS),
            "`blk.N.PART`, by architecture:",
            _parts(each for each in MODEL_TYPES),
            f"Types of tensors: {kinds}. All others are refused.",
        )
    )


def _table(title: str, rows: Iterable[Row]) -> str:
    grouped: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        grouped.setdefault((row.treatment, row.why, row.only, _unless(row)), []).append(row.name)
    lines = [f"| {title} | in | treatment | what it is, or why |", "|---|---|---|---|"]
    for (treatment, why, only, unless), names in grouped.items():
        listed = ", ".join(f"`{name}`" for name in names)
        lines.append(f"| {listed} | {', '.join(only) or 'all'} | {treatment}{unless} | {why} |")
    return "\n".join(lines)


def _unless(row: Row) -> str:
    value = row.expected.removesuffix(", or absent")
    return "" if row.treatment != "refused" or value == "absent" else f" unless {value}"


def _parts(types: Iterable[ModelType]) -> str:
    lines = ["| architecture | weights | biases |", "|---|---|---|"]
    for each in types:
        biases = {name.removesuffix(".bias") for name in each.all_biases}
        weights = ", ".join(each.gguf_layer)
        also = ", ".join(part for part, name in each.gguf_layer.items() if name in biases)
        lines.append(f"| {each.gguf} | {weights} | {also or '-'} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(document())
