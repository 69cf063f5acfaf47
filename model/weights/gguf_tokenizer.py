"""The tokenizer of a GGUF file as transformers' files: transformers builds it from vocabulary and
merges; what it leaves out is added here, as llama.cpp reads it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cassandra_spec.golden.errors import FileError
from cassandra_spec.model.weights.gguf_forms import TOKENS
from cassandra_spec.model.weights.gguf_header import Header

_KEY = "tokenizer.ggml."
_BYTES, _PIECES = "gpt2", "llama"  # tokenizers that are read
_NONE = "none"  # a file of weights alone
_PIECE_TOKENS = {"bos": 1, "eos": 2, "unknown": 0}  # defaults of SentencePiece files

# Expressions that cut text before merges, by tokenizer.ggml.pre; several names mean the same.
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_CUTS: Mapping[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _WORDS, r"\p{N}+", "[0-9][0-9][0-9]"),
    "gpt-2": (_WORDS,),
    "smollm": (r"\p{N}", _WORDS),
}
_SAME = {
    **dict.fromkeys(("phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling"), "gpt-2"),
    **dict.fromkeys(("exaone4", "gigachat", "a.x-4.0", "mellum", "modern-bert"), "gpt-2"),
    **dict.fromkeys(("starcoder", "refact", "command-r", "codeshell", "exaone"), "smollm"),
    **dict.fromkeys(("minerva-7b", "mellum2"), "smollm"),
    **dict.fromkeys(("llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral"), "llama-bpe"),
    **dict.fromkeys(("midm-2.0", "lfm2", "jina-v5-nano"), "llama-bpe"),
    **dict.fromkeys(("deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"), "qwen2"),
    **dict.fromkeys(("llama4", "kanana2", "talkie"), "gpt-4o"),
}
_OF_TRANSFORMERS = ("llama-bpe", "dbrx", "smaug-bpe", "qwen2", "qwen35", "tekken", "gpt-4o")
"""Values whose expressions transformers has."""

_WHOLE_FIRST = ("llama-bpe", "tekken")
"""Values with which a token of the vocabulary is taken before merges, and texts begin with bos."""

_ENDS = frozenset(
    (
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>"),
        *("<|calls|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<EOT>"),
        *("_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>"),
        *("<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~["),
        *("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
        *("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"),
    )
)
"""Texts of tokens that end a reply in llama.cpp, whatever a file says of them. It has ``</s>``, as
well, a tag of HTML in Gemma's vocabulary: here it ends replies only if the file says so."""

_END_KEYS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")


def special_tokens(header: Header) -> dict[str, Any]:
    """Return the entries of a config for tokens: the first, those that end replies, and padding."""
    ends = [_token(header, name) for name in _END_KEYS]
    ends += [at for at, text in enumerate(header.get(TOKENS, ())) if text in _ENDS]
    listed = list(dict.fromkeys(end for end in ends if end is not None))
    return {
        "bos_token_id": _token(header, "bos"),
        "eos_token_id": listed[0] if len(listed) == 1 else listed or None,
        "pad_token_id": _token(header, "padding"),
    }


def _token(header: Header, name: str) -> int | None:
    """Return a special token; None if the file has none, or no vocabulary."""
    pieces = header.get(f"{_KEY}model") == _PIECES
    value: int | None = header.get(
        f"{_KEY}{name}_token_id", _PIECE_TOKENS.get(name) if pieces else None
    )
    return value if TOKENS in header.entries else None


def check_tokenizer(header: Header) -> None:
    """Raise :class:`FileError` for a tokenizer, or a way to cut text, that is not known."""
    model = header.get(f"{_KEY}model", _BYTES)
    if model == _NONE:
        return  # refused where a tokenizer is needed
    if model not in (_BYTES, _PIECES):
        raise _wrong(header, "model", f"one of {_BYTES} and {_PIECES}", model)
    cut = _cut(header)
    if model == _BYTES and cut not in (*_CUTS, *_OF_TRANSFORMERS):
        raise _wrong(header, "pre", f"one of {', '.join((*_CUTS, *_OF_TRANSFORMERS, *_SAME))}", cut)
    if model == _BYTES and TOKENS in header.entries:
        _check_merges(header)


def _check_merges(header: Header) -> None:
    tokens = set(header.get(TOKENS))
    for merge in header.need(f"{_KEY}merges"):
        left, space, right = str(merge).partition(" ")
        if not space or not {left, right, left + right} <= tokens:
            raise _wrong(header, "merges", "pairs of tokens whose sum is a token", merge)


def _cut(header: Header) -> str:
    name = header.get(f"{_KEY}pre", "default")
    return _SAME.get(name, name)


def _wrong(header: Header, key: str, expected: str, value: object) -> FileError:
    where = f"{header.path}: {_KEY}{key}"
    return FileError(f"{where} must be {expected}, not {reprlib.repr(value)}")


def save_tokenizer(header: Header, config: Any, directory: Path) -> None:
    """Write the tokenizer's files into a directory; ``config`` is transformers' of the model.

    Raises :class:`FileError` if the file has no tokenizer.
    """
    if header.need(f"{_KEY}model") == _NONE:
        raise _wrong(header, "model", f"one of {_BYTES} and {_PIECES}", _NONE)
    header.need(TOKENS)
    from transformers import TOKENIZER_MAPPING, PreTrainedTokenizerFast  # slow to import

    # AutoTokenizer chooses the same class, after reading the config again in seconds.
    kind: Any = TOKENIZER_MAPPING.get(type(config), PreTrainedTokenizerFast)
    path = header.path
    tokenizer = kind.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    _adapt(tokenizer, header)
    tokenizer.save_pretrained(directory)


def _adapt(tokenizer: Any, header: Header) -> None:
    pieces = header.get(f"{_KEY}model", _BYTES) == _PIECES
    if pieces:
        _set_space(tokenizer.backend_tokenizer, header.get(f"{_KEY}add_space_prefix", True))
        _set_special(tokenizer, header)
    else:
        _set_cuts(tokenizer.backend_tokenizer, _cut(header))
    default = pieces or _cut(header) in _WHOLE_FIRST
    tokenizer.add_bos_token = bool(header.get(f"{_KEY}add_bos_token", default))
    tokenizer.add_eos_token = bool(header.get(f"{_KEY}add_eos_token", False))
    templates = _templates(header)
    if len(templates) > 1:
        tokenizer.chat_template = templates


def _templates(header: Header) -> dict[str, str]:
    """Return the chat templates by name; that without a name is the default."""
    key = "tokenizer.chat_template"
    default = {"default": header.get(key)} if key in header.entries else {}
    return default | {
        name.removeprefix(f"{key}."): header.get(name)
        for name in header.entries
        if name.startswith(f"{key}.")
    }


def _set_special(tokenizer: Any, header: Header) -> None:
    """Set the special tokens that a SentencePiece file has without saying so."""
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown"}
    for attribute, name in names.items():
        token = _token(header, name)
        if token is not None and getattr(tokenizer, attribute) is None:
            setattr(tokenizer, attribute, header.get(TOKENS)[token])


def _set_space(backend: Any, prefix: bool) -> None:
    """Put a space before each piece of text, as llama.cpp does, or before none."""
    from tokenizers import decoders, normalizers

    replace = normalizers.Replace(" ", "▁")
    before = [normalizers.Prepend("▁")] if prefix else []
    backend.normalizer = normalizers.Sequence([*before, replace])
    backend.pre_tokenizer = None
    strip = [decoders.Strip(content=" ", left=1)] if prefix else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )


def _set_cuts(backend: Any, cut: str) -> None:
    from tokenizers import Regex, pre_tokenizers

    if cut in _CUTS:
        steps = [pre_tokenizers.Split(Regex(each), behavior="isolated") for each in _CUTS[cut]]
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([*steps, last])
    if cut in _WHOLE_FIRST:
        model = backend.model
        model.ignore_merges = True
        backend.model = model
