"""Small tokenizers as the directories of models have them: vocabularies, files and classes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from cassandra_spec.golden.model_types import MODEL_TYPES
from tests.model.tokenizer.templates import TEMPLATES

TEXT = (
    "The quick brown fox isn't here. Élan, naïve 数字 123 😀!  Two  spaces\n\tand\r\n lines. " * 3
)
SPECIAL = ("<unk>", "<s>", "</s>", "<|endoftext|>", "<bos>", "<eos>", "<pad>", "<|im_end|>")
TYPES = tuple(kind.name for kind in MODEL_TYPES)
CLASSES = (
    *("LlamaTokenizer", "LlamaTokenizerFast", "Qwen2Tokenizer", "GemmaTokenizer", "GPT2Tokenizer"),
    *("PreTrainedTokenizerFast", "TokenizersBackend", None),
)


@cache
def bytes_json() -> str:
    """Return a byte-level BPE tokenizer (GPT-2, Llama 3, Qwen), as JSON."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    _train(tokenizer, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 1)]
    )
    return str(tokenizer.to_str())


@cache
def pieces_json() -> str:
    """Return a BPE tokenizer over pieces with a fallback to bytes (Llama 2, Gemma), as JSON."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    _train(tokenizer, special=[f"<0x{octet:02X}>" for octet in range(256)])
    body = json.loads(tokenizer.to_str())
    body["added_tokens"] = [each for each in body["added_tokens"] if each["id"] < len(SPECIAL)]
    return json.dumps(body)


def words_json() -> str:
    """Return a tokenizer of whole words, whose decoding cleans up spaces, as JSON."""
    words = {word: number for number, word in enumerate([*SPECIAL, *TEXT.split(), ".", "n't"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(SPECIAL))
    return str(tokenizer.to_str())


def _train(tokenizer: Tokenizer, *, special: list[str] | None = None, **options: Any) -> None:
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=[*SPECIAL, *(special or [])], show_progress=False, **options
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.add_tokens([AddedToken("<tool>", special=False, normalized=False)])


def token(content: str, **flags: bool) -> dict[str, Any]:
    """Return a token as ``tokenizer_config.json`` has it."""
    usual = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
    return {"content": content, "special": True, **usual, **flags}


def write(
    path: Path, model_type: str, text: str, entries: Mapping[str, Any], **files: Mapping[str, Any]
) -> Path:
    """Write a directory with a tokenizer; ``files`` are further JSON files by name."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "tokenizer.json").write_text(text, encoding="utf-8")
    bodies = {"config": {"model_type": model_type}, "tokenizer_config": entries, **files}
    for name, body in bodies.items():
        (path / f"{name}.json").write_text(json.dumps(body), encoding="utf-8")
    return path


CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {"bos_token": "<s>", "eos_token": "</s>"},
    "stated": {
        "added_tokens_decoder": {
            "0": token("<unk>"),
            "1": token("<s>", rstrip=True),
            "2": token("</s>", lstrip=True),
            "9000": token("<late>", special=False, normalized=True),
            "9001": token("<later>", single_word=True),
        },
        "bos_token": "<s>",
        "eos_token": {"__type": "AddedToken", **token("</s>")},
        "unk_token": None,
        "image_token": "<image>",
        "additional_special_tokens": ["<|im_end|>", "<new>"],
        "add_prefix_space": True,
        "legacy": True,
        "clean_up_tokenization_spaces": True,
    },
    "split": {
        "eos_token": "<|im_end|>",
        "extra_special_tokens": {"audio_token": "<audio>"},
        "split_special_tokens": True,
        "add_bos_token": True,
        "add_prefix_space": False,
        "chat_template": [
            {"name": "default", "template": TEMPLATES["qwen"]},
            {"name": "tool_use", "template": "{{ tools | tojson(indent=2) }}"},
        ],
    },
}
