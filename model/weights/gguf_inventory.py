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


def _rows(treatment: Treatment, why: str, *names: str, **more: Any) -> tuple[Row, ...]:
    return tuple(Row(name=name, treatment=treatment, why=why, **more) for name in names)


_SCALED = ("granite",)
_CAPPED = ("gemma2",)
_FACTORS = ("llama", "granite")
_ONE_TOKEN = "a token of prompts for infilling, which are not made"
_SCALING = f"{ARCH}rope.scaling."

KEYS: tuple[Row, ...] = (
    # The file.
    *_rows("honoured", "the model type", "general.architecture", form=TEXT),
    *_rows("refused", "adapters and projectors are no models", "general.type", neutral=("model",)),
    *_rows("honoured", "where tensors begin", "general.alignment", form=ALIGNMENT),
    *_rows("without influence", "each tensor states its own type", "general.file_type"),
    *_rows("without influence", "a type states its blocks", "general.quantization_version"),
    *_rows("without influence", "options and requests set samplers", "general.sampling.*"),
    *_rows("without influence", "precision on some devices", "general.tensor_extra.*"),
    *_rows("without influence", "describes the file", "general.*"),
    *_rows("honoured", "shards are read as one", "split.no", "split.count", "split.tensors.count"),
    *_rows("refused", "an adapter is no model", "adapter.*"),
    # Sizes.
    *_rows(
        "honoured",
        "vocab_size; it must be that of the tensors",
        f"{ARCH}vocab_size",
        form=size("vocab_size"),
    ),
    *(
        row
        for entry, name in {
            "max_position_embeddings": "context_length",
            "hidden_size": "embedding_length",
            "num_hidden_layers": "block_count",
            "intermediate_size": "feed_forward_length",
            "num_attention_heads": "attention.head_count",
            "num_key_value_heads": "attention.head_count_kv",
            "head_dim": "attention.key_length",
        }.items()
        for row in _rows("honoured", entry, f"{ARCH}{name}", form=size(entry))
    ),
    *_rows(
        "refused",
        "heads have one size",
        *(f"{ARCH}attention.{name}" for name in ("value_length", "key_length_swa")),
        f"{ARCH}attention.value_length_swa",
        same="head size",
    ),
    *_rows(
        "refused", "embeddings have one size", f"{ARCH}embedding_length_out", same="hidden size"
    ),
    # Layers.
    *_rows("honoured", "rms_norm_eps", f"{ARCH}attention.layer_norm_rms_epsilon", form=EPSILON),
    *_rows("without influence", "all norms are RMS norms", f"{ARCH}attention.layer_norm_epsilon"),
    *(
        row
        for entry, name in {
            "attention_multiplier": "attention.scale",
            "residual_multiplier": "residual_scale",
            "embedding_multiplier": "embedding_scale",
            "logits_scaling": "logit_scale",
        }.items()
        for row in _rows("honoured", entry, f"{ARCH}{name}", only=_SCALED, form=NUMBER)
    ),
    *_rows(
        "honoured",
        "attn_logit_softcapping; 50 without it",
        f"{ARCH}attn_logit_softcapping",
        only=_CAPPED,
        form=CAP,
    ),
    *_rows(
        "honoured",
        "final_logit_softcapping; without it 30 in gemma2, none in gemma3",
        f"{ARCH}final_logit_softcapping",
        only=("gemma2", "gemma3"),
        form=CAP,
    ),
    *_rows(
        "honoured",
        "sliding_window; without it 4,096 in gemma2, none in gemma3",
        f"{ARCH}attention.sliding_window",
        only=("gemma2", "gemma3"),
        form=COUNT,
    ),
    *_rows(
        "honoured",
        "sliding_window, as in transformers; llama.cpp switches it off",
        f"{ARCH}attention.sliding_window",
        only=("phi3",),
        form=COUNT,
    ),
    *_rows(
        "honoured",
        "layer_types: a number or a list; without it every second layer of gemma2, every sixth of "
        "gemma3 sees all",
        f"{ARCH}attention.sliding_window_pattern",
        only=("gemma2", "gemma3"),
        form=PATTERN,
    ),
    *_rows(
        "refused",
        "scales, caps and windows that the type does not have",
        *(f"{ARCH}{name}_scale" for name in ("residual", "embedding", "logit")),
        *(f"{ARCH}attention.{name}" for name in ("scale", "sliding_window", "max_alibi_bias")),
        *(f"{ARCH}attention.{name}" for name in ("clamp_kqv", "sliding_window_pattern")),
        *(f"{ARCH}{name}_logit_softcapping" for name in ("attn", "final", "router")),
        neutral=(0,),
    ),
    *_rows("refused", "attention is causal", f"{ARCH}attention.causal", neutral=(True,)),
    *_rows(
        "refused",
        "experts and layers of predictors are not computed",
        *(f"{ARCH}expert_{name}" for name in ("count", "used_count", "group_count")),
        *(f"{ARCH}expert_{name}" for name in ("group_used_count", "shared_feed_forward_length")),
        f"{ARCH}nextn_predict_layers",
        neutral=(0,),
    ),
    *_rows("without influence", "of embeddings, not of logits", f"{ARCH}pooling_type"),
    *_rows("refused", "classifiers have no logits of tokens", f"{ARCH}classifier.*"),
    *_rows("refused", "one residual", f"{ARCH}use_parallel_residual", neutral=(False,)),
    *_rows(
        "refused",
        "one order of rows is known",
        f"{ARCH}tensor_data_layout",
        neutral=("Meta AI original pth",),
    ),
    # Rotary embeddings.
    *_rows("honoured", "rope_theta; 10,000 without it", f"{ARCH}rope.freq_base", form=THETA),
    *_rows(
        "honoured",
        "rope_theta of layers with a window; 10,000 without it",
        f"{ARCH}rope.freq_base_swa",
        only=("gemma3",),
        form=THETA,
    ),
    *_rows("refused", "all layers have the same", f"{ARCH}rope.freq_base_swa", same="theta"),
    *_rows(
        "honoured",
        "partial_rotary_factor",
        f"{ARCH}rope.dimension_count",
        only=("phi3",),
        form=size("head_dim"),
    ),
    *_rows(
        "refused",
        "whole heads are rotated",
        f"{ARCH}rope.dimension_count",
        f"{ARCH}rope.dimension_count_swa",
        same="head size",
    ),
    *_rows("refused", "positions are numbers", f"{ARCH}rope.dimension_sections", neutral=(0,)),
    *_rows("honoured", "rope_type: none, linear, yarn or longrope", f"{_SCALING}type", form=TEXT),
    *_rows("honoured", "factor", f"{_SCALING}factor", form=FACTOR),
    *_rows(
        "honoured",
        f"factor, unless there is {_SCALING}factor",
        f"{ARCH}rope.scale_linear",
        form=FACTOR,
    ),
    *_rows("honoured", "attention_factor", f"{_SCALING}attn_factor", form=SCALE),
    *_rows(
        "honoured",
        "original_max_position_embeddings of yarn and longrope",
        f"{_SCALING}original_context_length",
        form=COUNT,
    ),
    *_rows(
        "refused",
        "false means no rotary embedding",
        f"{_SCALING}finetuned",
        only=_SCALED,
        neutral=(True,),
    ),
    *_rows("without influence", "describes the training", f"{_SCALING}finetuned"),
    *_rows("refused", "of another model type", f"{_SCALING}alpha", neutral=(0,)),
    *_rows("refused", "llama.cpp computes with 1", f"{_SCALING}yarn_ext_factor", neutral=(1, -1)),
    *_rows("refused", "llama.cpp computes with 1", f"{_SCALING}yarn_attn_factor", neutral=(1,)),
    *_rows("refused", "llama.cpp computes with 32", f"{_SCALING}yarn_beta_fast", neutral=(32,)),
    *_rows("refused", "llama.cpp computes with 1", f"{_SCALING}yarn_beta_slow", neutral=(1,)),
    *_rows("refused", "of another model type", f"{_SCALING}yarn_log_multiplier", neutral=(0,)),
    *_rows("refused", "unknown: it may change what the model computes", f"{ARCH}*"),
    # Tokenizers.
    *_rows("honoured", "gpt2 (bytes) or llama (SentencePiece)", "tokenizer.ggml.model", form=TEXT),
    *_rows("honoured", "how text is cut before merges", "tokenizer.ggml.pre", form=TEXT),
    *_rows(
        "honoured",
        "the vocabulary",
        *(f"tokenizer.ggml.{name}" for name in ("tokens", "merges")),
        form=TEXTS,
    ),
    *_rows(
        "honoured",
        "the vocabulary",
        *(f"tokenizer.ggml.{name}" for name in ("scores", "token_type")),
        form=OF_EACH_TOKEN,
    ),
    *_rows(
        "honoured",
        "special tokens",
        *(f"tokenizer.ggml.{name}_token_id" for name in ("bos", "unknown", "padding")),
        form=TOKEN,
    ),
    *_rows(
        "honoured",
        "end replies, as do tokens whose text llama.cpp knows as an end",
        *(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom")),
        *(f"tokenizer.ggml.fim_{name}_token_id" for name in ("pad", "rep", "sep")),
        form=TOKEN,
    ),
    *_rows(
        "honoured",
        "around prompts",
        "tokenizer.ggml.add_bos_token",
        "tokenizer.ggml.add_eos_token",
        form=FLAG,
    ),
    *_rows("honoured", "a space before text (llama)", "tokenizer.ggml.add_space_prefix", form=FLAG),
    *_rows(
        "honoured", "the chat template, and others by name", "tokenizer.chat_template", form=TEXT
    ),
    *_rows(
        "honoured",
        "the template NAME; tool_use: with tools",
        "tokenizer.chat_template.*",
        form=TEXT,
    ),
    *_rows("without influence", "lists the names of templates", "tokenizer.chat_templates"),
    *_rows(
        "without influence",
        _ONE_TOKEN,
        *(f"tokenizer.ggml.fim_{name}_token_id" for name in ("pre", "suf", "mid")),
        *(f"tokenizer.ggml.{name}_token_id" for name in ("prefix", "suffix", "middle")),
    ),
    *_rows(
        "without influence",
        "of tokenizers for encoders",
        *(f"tokenizer.ggml.{name}_token_id" for name in ("seperator", "cls", "mask")),
        *(f"tokenizer.ggml.{name}" for name in ("add_sep_token", "token_type_count")),
        *(f"tokenizer.ggml.{name}" for name in ("remove_extra_whitespaces", "normalizer.*")),
        "tokenizer.ggml.precompiled_charsmap",
    ),
    *_rows(
        "without influence",
        "the same tokenizer in another form, which llama.cpp does not read",
        "tokenizer.huggingface.json",
        "tokenizer.rwkv.world",
    ),
    *_rows("refused", "unknown: it may change tokens or replies", "tokenizer.*"),
    *_rows("without influence", "llama.cpp reads no such key", "*"),
)

_EXAMPLES = "output.bias, experts, adapters, scales of tensors, tensors of other layers"

TENSORS: tuple[Row, ...] = (
    *_rows("honoured", "the embedding", "token_embd.weight"),
    *_rows("honoured", "the head; without it the embedding is the head", "output.weight"),
    *_rows("honoured", "the last norm", "output_norm.weight"),
    *_rows("honoured", "matrices and norms of the model type", "blk.N.PART.weight"),
    *_rows("honoured", "biases that the model type can have", "blk.N.PART.bias"),
    *_rows(
        "honoured",
        "rope_type llama3 if it gives these factors, else longrope with one list",
        "rope_freqs.weight",
        only=_FACTORS,
    ),
    *_rows(
        "honoured",
        "long_factor and short_factor; in llama and granite only with type longrope",
        "rope_factors_long.weight",
        "rope_factors_short.weight",
        only=(*_FACTORS, "phi3"),
    ),
    *_rows("refused", _EXAMPLES, "*"),
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
