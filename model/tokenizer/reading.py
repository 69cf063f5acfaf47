"""Read a model directory's tokenizer as transformers reads it, without transformers.

transformers takes ``tokenizer.json`` as it is, or makes a tokenizer of a known class from its
vocabulary and merges, whatever else the file has. Which one depends on the classes that
``tokenizer_config.json`` and the model's type name. Everything else it reads in a way of its own:
:class:`UnreadableError` then has the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers

from cassandra_spec.golden.model_config import read_json
from cassandra_spec.model.tokenizer.fast import Behaviour, FastTokenizer

Entries = dict[str, Any]
Token = str | AddedToken


class UnreadableError(Exception):
    """The tokenizer must be read by transformers; the text says why."""


_NAMED = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
_LLAMA = "LlamaTokenizer"
_AS_IS = "TokenizersBackend"  # tokenizer.json as it is
_SAME = (_AS_IS, "PreTrainedTokenizer", "PreTrainedTokenizerFast", "PythonBackend")
_OF_TYPE: Mapping[str, str | None] = {
    "llama": None,
    **dict.fromkeys(("qwen2", "qwen3"), "Qwen2Tokenizer"),
    **dict.fromkeys(("gemma2", "gemma3_text"), "GemmaTokenizer"),
    **dict.fromkeys(("phi3", "granite", "olmo2"), _AS_IS),
}
"""Classes that transformers has registered, by model type."""
_WRONGLY_NAMED = ("phi3", "qwen2")
"""Model types whose class in tokenizer_config.json is ignored by transformers."""

_QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


# --- the classes ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """A class that makes its tokenizer from vocabulary and merges."""

    tokens: Mapping[str, str | None]  # special tokens unless stated
    model: Mapping[str, Any]  # settings of the BPE model
    build: Callable[[Tokenizer, Entries], None]  # sets the steps around the model
    names_unknown: bool = False  # the model knows the unknown token
    adds_special: bool = False  # special tokens that are in the vocabulary are matched first


def _build_llama(tokenizer: Tokenizer, entries: Entries) -> None:
    prefix_space = entries.get("add_prefix_space")
    prefix = prefix_space is None or bool(prefix_space)
    scheme = "never" if not prefix else "always" if entries.get("legacy") else "first"
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefix:
        steps.append(decoders.Strip(content=" ", left=1))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement="▁", prepend_scheme=scheme, split=False
    )
    tokenizer.decoder = decoders.Sequence(steps)


def _build_qwen(tokenizer: Tokenizer, entries: Entries) -> None:
    words = pre_tokenizers.Split(Regex(_QWEN_WORDS), behavior="isolated", invert=False)
    octets = pre_tokenizers.ByteLevel(
        add_prefix_space=bool(entries.get("add_prefix_space")), use_regex=False
    )
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, octets])
    tokenizer.decoder = decoders.ByteLevel()


def _build_gemma(tokenizer: Tokenizer, entries: Entries) -> None:
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )


def _build_gpt2(tokenizer: Tokenizer, entries: Entries) -> None:
    prefix = bool(entries.get("add_prefix_space", False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    tokenizer.decoder = decoders.ByteLevel()


_PLAIN: Mapping[str, Any] = {
    "type": "BPE",
    **dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix")),
    **dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False),
}
_BYTES = {**_PLAIN, "continuing_subword_prefix": "", "end_of_word_suffix": ""}
_PIECES = {**_PLAIN, "fuse_unk": True, "byte_fallback": True}
_TEXT_END = "<|endoftext|>"

_KINDS = {
    _LLAMA: _Kind(
        tokens={"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
        model=_PIECES,
        build=_build_llama,
    ),
    "Qwen2Tokenizer": _Kind(
        tokens=dict.fromkeys(("eos_token", "unk_token", "pad_token"), _TEXT_END),
        model=_BYTES,
        build=_build_qwen,
        adds_special=True,
    ),
    "GemmaTokenizer": _Kind(
        tokens={
            **{"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"},
            **{"pad_token": "<pad>", "mask_token": "<mask>"},
        },
        model=_PIECES,
        build=_build_gemma,
        names_unknown=True,
    ),
    "GPT2Tokenizer": _Kind(
        tokens=dict.fromkeys(("bos_token", "eos_token", "unk_token"), _TEXT_END),
        model=_BYTES,
        build=_build_gpt2,
    ),
}


def _class_of(config: Entries, entries: Entries, text: str) -> str:
    """Return the class that transformers chooses, by name; ``text`` is tokenizer.json's."""
    model = config.get("model_type")
    if model not in _OF_TYPE:
        raise UnreadableError(f"its model type is {model!r}")
    registered, wrong = _OF_TYPE[str(model)], model in _WRONGLY_NAMED
    stated = (entries.get("tokenizer_class") or config.get("tokenizer_class") or "") or None
    named = stated.removesuffix("Fast") if isinstance(stated, str) else None
    if named == _LLAMA and not wrong and '"ByteLevel"' in text:
        return _AS_IS
    if registered is None or named is None or registered == named:
        return named or registered or _AS_IS
    if registered == _AS_IS:
        return _AS_IS
    return registered if wrong else named


# --- the files -----------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _Files:
    """Files of a directory that describe its tokenizer."""

    text: str  # contents of tokenizer.json
    body: Entries  # entries of tokenizer.json
    entries: Entries  # entries of tokenizer_config.json and of older files
    added: dict[int, AddedToken] = field(default_factory=dict)
    templates: dict[str, str] = field(
        default_factory=dict
    )  # chat templates with a file each, by name


def read_tokenizer(directory: Path) -> FastTokenizer:
    """Read the tokenizer of a directory, equal to the one that transformers makes.

    Raises :class:`UnreadableError` if only transformers can read it, or tell what is wrong.
    """
    try:
        files = _read_files(directory)
        kind = _class_of(read_json(directory / "config.json"), files.entries, files.text)
        return _tokenizer(files, kind)
    except UnreadableError:
        raise
    except Exception as error:  # tokenizers raises Exception itself
        raise UnreadableError(" ".join(str(error).split())[:200]) from error


def _read_files(directory: Path) -> _Files:
    path = directory / "tokenizer.json"
    if not path.is_file():
        raise UnreadableError("it has no tokenizer.json")
    text = path.read_text("utf-8")
    entries = _optional(directory / "tokenizer_config.json")
    if "auto_map" in entries or "fast_tokenizer_files" in entries:
        raise UnreadableError("tokenizer_config.json names code or files of its own")
    files = _Files(text=text, body=json.loads(text), entries=entries)
    _rename_extra(entries)
    files.added = _added(files, directory)
    files.templates = _templates(directory)
    return files


def _optional(path: Path) -> Entries:
    return read_json(path) if path.is_file() else {}


def _rename_extra(entries: Entries) -> None:
    """Bring the entry of further special tokens under its current name."""
    if "additional_special_tokens" in entries and not entries.get("extra_special_tokens"):
        entries["extra_special_tokens"] = entries.pop("additional_special_tokens")


def _added(files: _Files, directory: Path) -> dict[int, AddedToken]:
    """Return the added tokens that are stated, by number; take special ones from older files."""
    stated = files.entries.get("added_tokens_decoder")
    if stated is not None:
        return {int(number): AddedToken(**token) for number, token in stated.items()}
    if (directory / "added_tokens.json").is_file():
        raise UnreadableError("it has added_tokens.json, of an older transformers")
    for name, value in _optional(directory / "special_tokens_map.json").items():
        if not isinstance(value, str | dict) or name.startswith("extra"):
            raise UnreadableError(f"special_tokens_map.json has a list of {name}")
        if isinstance(value, dict):
            value = AddedToken(**{**value, "special": True})
        files.entries[name] = value
    tokens = [dict(token) for token in files.body["added_tokens"]]
    return {token.pop("id"): AddedToken(**token) for token in tokens}


def _templates(directory: Path) -> dict[str, str]:
    """Return the chat templates of files, by name."""
    named = sorted((directory / "additional_chat_templates").glob("*.jinja"))
    templates = {path.name.removesuffix(".jinja"): path for path in named}
    default = directory / "chat_template.jinja"
    if default.is_file():
        templates.setdefault("default", default)
    return {name: path.read_text("utf-8") for name, path in templates.items()}


def _chat_template(files: _Files) -> str | dict[str, str] | None:
    if list(files.templates) == ["default"]:
        return files.templates["default"]
    stated = files.templates or files.entries.get("chat_template")
    if isinstance(stated, list):
        return {each["name"]: each["template"] for each in stated}
    return stated


# --- the tokenizer -------------------------------------------------------------------------------


def _tokenizer(files: _Files, name: str) -> FastTokenizer:
    kind = _KINDS.get(name)
    if kind is None and name not in _SAME:
        raise UnreadableError(f"its class is {name}")
    special = _special_tokens(files, kind)
    backend = _built(files, kind, special) if kind else Tokenizer.from_str(files.text)
    _add_tokens(backend, files, special)
    names = {key: str(token) for key, token in special.items()}
    if kind and kind.adds_special:
        every = dict.fromkeys([*names.values(), *map(str, _extra(files))])
        backend.add_tokens([AddedToken(token, special=True) for token in every])
    get = files.entries.get
    return FastTokenizer(
        backend,
        Behaviour(
            special_tokens=names,
            chat_template=_chat_template(files),
            split_special_tokens=bool(get("split_special_tokens", False)),
            clean_up_spaces=bool(get("clean_up_tokenization_spaces", False)),
            clean_up_bpe=bool(get(_CLEAN_UP_BPE, False)),
        ),
    )


_CLEAN_UP_BPE = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"


def _special_tokens(files: _Files, kind: _Kind | None) -> dict[str, Token]:
    """Return the special tokens by name, such as ``bos_token``; the usual names come first."""
    entries = {**(kind.tokens if kind else {}), **files.entries}
    extra = entries.get("extra_special_tokens")
    own = {name: value for name, value in entries.items() if name.endswith("_token")}
    known = {str(token): token for token in files.added.values()}
    stated = {name: _token(own.get(name), name) for name in _NAMED}
    named = {
        name: known.get(str(token), token) for name, token in stated.items() if token is not None
    }
    more = {name: value for name, value in own.items() if name not in _NAMED}
    more |= extra if isinstance(extra, dict) else {}
    for name, value in more.items():
        if isinstance(value, str | AddedToken | dict):
            named[name] = _required(_token(value, name), name)
    return named


def _token(value: Any, name: str) -> Token | None:
    """Return a token that is stated by its text or as an object."""
    if value is None or isinstance(value, str | AddedToken):
        return value
    if isinstance(value, dict) and value.get("__type") == "AddedToken":
        return AddedToken(**{key: item for key, item in value.items() if key != "__type"})
    raise UnreadableError(f"{name} is neither a text nor a token")


def _required(token: Token | None, name: str) -> Token:
    if token is None:
        raise UnreadableError(f"{name} is null")
    return token


def _extra(files: _Files) -> list[Token]:
    """Return further special tokens, without names."""
    name = "extra_special_tokens"
    stated = files.entries.get(name) or []
    if isinstance(stated, dict):
        return []
    return [_required(_token(each, name), name) for each in stated]


def _built(files: _Files, kind: _Kind, special: Mapping[str, Token]) -> Tokenizer:
    """Return a tokenizer of the file's vocabulary and merges, with the steps of a class."""
    model = files.body["model"]
    if model.get("type") != "BPE" or not isinstance(model.get("vocab"), dict):
        raise UnreadableError(f"its model is {model.get('type')}, not BPE")
    own = {"vocab": model["vocab"], "merges": model["merges"], **kind.model}
    if kind.names_unknown:
        own["unk_token"] = str(special.get("unk_token"))
    steps = dict.fromkeys(("normalizer", "pre_tokenizer", "decoder"))
    body = {**files.body, "added_tokens": [], "model": own, **steps}
    tokenizer = Tokenizer.from_str(json.dumps(body))
    kind.build(tokenizer, files.entries)
    return tokenizer


def _add_tokens(tokenizer: Tokenizer, files: _Files, special: Mapping[str, Token]) -> None:
    """Add the tokens that are stated; those that the tokenizer has already stay as they are."""
    tokens: list[Token] = [token for _, token in sorted(files.added.items(), key=_number)]
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    known |= set(map(str, tokens))
    for token in (*special.values(), *_extra(files)):
        if str(token) not in known and token not in tokens:
            tokens.append(token)
    named = set(map(str, special.values()))
    tokenizer.add_tokens([_as_added(token, named) for token in tokens])


def _number(item: tuple[int, AddedToken]) -> int:
    return item[0]


def _as_added(token: Token, named: Iterable[str]) -> AddedToken:
    if isinstance(token, str):
        return AddedToken(token, special=True)
    if str(token) in named:
        token.special = True
    return token
