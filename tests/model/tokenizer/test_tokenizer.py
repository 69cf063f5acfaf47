"""Tokenizers without transformers equal those of transformers, which are the oracle."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES as MAPPING

from cassandra_spec.model.pretrained import load_tokenizer, load_transformers_tokenizer
from cassandra_spec.model.tokenizer import FastTokenizer, UnreadableError, read_tokenizer
from tests.model.tokenizer.directories import (
    CLASSES,
    CONFIGS,
    SPECIAL,
    TEXT,
    TYPES,
    bytes_json,
    pieces_json,
    token,
    words_json,
    write,
)

BPE_CLASSES = ("LlamaTokenizer", "Qwen2Tokenizer", "GemmaTokenizer", "GPT2Tokenizer")
BODIES: dict[str, Callable[[], str]] = {
    "bytes": bytes_json,
    "pieces": pieces_json,
    "words": words_json,
}
CASES = [
    (model_type, name, body, config)
    for model_type in TYPES
    for name in CLASSES
    for body in BODIES
    for config in (CONFIGS if model_type == "llama" else ["plain"])
]
PIECES = (
    *SPECIAL,
    "<late>",
    "<new>",
    "<tool>",
    "<image>",
    "<audio>",
    " ",
    "  ",
    "\n",
    " n't",
    " .",
)
TEXTS = (
    "",
    TEXT,
    " leading and trailing ",
    "<s>a </s> b<|im_end|>\n<tool><late> x<later>y<new>",
    "e\N{COMBINING ACUTE ACCENT} ﬁ 𝒳 \0 ▁ ▁▁x",
    "<0x41> Ġ isn 't , ? ! ' 's",
)
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=8).map("".join)


def entries_of(name: str | None, config: str) -> dict[str, Any]:
    return {**CONFIGS[config], **({"tokenizer_class": name} if name else {})}


def require_equal(ours: Any, theirs: Any, text: str) -> None:
    """Compare tokens of a text, and its text again."""
    for special in (False, True):
        try:
            wanted = theirs.encode(text, add_special_tokens=special)
        except Exception as error:  # a text needs the unknown token, which is missing
            with pytest.raises(type(error), match=re.escape(str(error))):
                ours.encode(text, add_special_tokens=special)
            continue
        tokens = ours.encode(text, add_special_tokens=special)
        assert tokens == wanted
        assert ours(text, add_special_tokens=special).input_ids == tokens
        for skip in (False, True):
            decoded = ours.decode(tokens, skip_special_tokens=skip)
            assert decoded == theirs.decode(tokens, skip_special_tokens=skip)


def require_same_tables(ours: Any, theirs: Any) -> None:
    """Compare names and numbers of all tokens."""
    assert ours.get_vocab() == theirs.get_vocab()
    assert len(ours) == len(theirs)
    assert ours.special_tokens_map == theirs.special_tokens_map
    assert ours.chat_template == theirs.chat_template
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert [repr(each) for each in ours.backend_tokenizer.get_added_tokens_decoder().items()] == [
        repr(each) for each in theirs.backend_tokenizer.get_added_tokens_decoder().items()
    ]


def is_bpe_class(model_type: str, name: str | None) -> bool:
    """Return True if transformers takes the tokenizer's class for the type as one of BPE."""
    registered = MAPPING.get(model_type)
    if registered == "TokenizersBackend":
        return False
    if name is None or model_type == "qwen2":
        return registered is not None
    return name.removesuffix("Fast") in BPE_CLASSES


@pytest.mark.parametrize(("model_type", "name", "body", "config"), CASES)
def test_every_type_class_and_vocabulary(
    tmp_path: Path, model_type: str, name: str | None, body: str, config: str
) -> None:
    folder = write(tmp_path, model_type, BODIES[body](), entries_of(name, config))
    if body == "words" and is_bpe_class(model_type, name):
        with pytest.raises(UnreadableError, match="not BPE"):
            read_tokenizer(folder)
        return
    ours = read_tokenizer(folder)
    theirs = load_transformers_tokenizer(folder)
    require_same_tables(ours, theirs)
    for text in TEXTS:
        require_equal(ours, theirs, text)


@cache
def pair(
    folder: Path, model_type: str, name: str | None, body: str, config: str
) -> tuple[Any, Any]:
    write(folder, model_type, BODIES[body](), entries_of(name, config))
    return read_tokenizer(folder), load_transformers_tokenizer(folder)


HYPOTHESIS_CASES = [
    ("llama", "LlamaTokenizer", "pieces", "plain"),
    ("llama", "LlamaTokenizer", "pieces", "stated"),
    ("llama", "PreTrainedTokenizerFast", "bytes", "plain"),
    ("llama", "GPT2Tokenizer", "bytes", "stated"),
    ("qwen3", "Qwen2Tokenizer", "bytes", "split"),
    ("gemma3_text", "GemmaTokenizer", "pieces", "stated"),
    ("granite", None, "words", "stated"),
    ("phi3", "LlamaTokenizer", "pieces", "plain"),
]


@pytest.mark.parametrize("case", HYPOTHESIS_CASES)
@given(text=texts)
def test_any_text(shared: Path, case: tuple[str, str | None, str, str], text: str) -> None:
    require_equal(*pair(shared / "-".join(map(str, case)), *case), text)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokenizers")


@pytest.mark.parametrize("case", HYPOTHESIS_CASES[:5])
@given(data=st.data())
def test_any_tokens(shared: Path, case: tuple[str, str | None, str, str], data: Any) -> None:
    ours, theirs = pair(shared / "-".join(map(str, case)), *case)
    tokens = data.draw(st.lists(st.integers(0, len(ours) + 3), max_size=12))
    for skip in (False, True):
        assert ours.decode(tokens, skip_special_tokens=skip) == theirs.decode(
            tokens, skip_special_tokens=skip
        )


def test_special_tokens_of_an_older_file(tmp_path: Path) -> None:
    stated: dict[str, Any] = {"eos_token": token("<eos>", lstrip=True), "bos_token": "<bos>"}
    stated["eos_token"].pop("special")
    entries = {"eos_token": "</s>", "tokenizer_class": "LlamaTokenizer"}
    folder = write(tmp_path, "llama", pieces_json(), entries, special_tokens_map=stated)
    ours, theirs = read_tokenizer(folder), load_transformers_tokenizer(folder)
    require_same_tables(ours, theirs)
    require_equal(ours, theirs, TEXTS[3] + " a <eos> <bos>")


def test_templates_of_files_come_before_those_of_the_config(tmp_path: Path) -> None:
    folder = write(tmp_path, "llama", bytes_json(), {"chat_template": "{{ 1 }}"})
    (folder / "chat_template.jinja").write_text("{{ 2 }}")
    assert read_tokenizer(folder).chat_template == "{{ 2 }}"
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("{{ 3 }}")
    require_same_tables(read_tokenizer(folder), load_transformers_tokenizer(folder))


def test_truncation_and_padding_of_the_file_have_no_effect(tmp_path: Path) -> None:
    body = json.loads(bytes_json())
    body["truncation"] = {
        **{"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    }
    body["padding"] = {
        **{"strategy": {"Fixed": 9}, "direction": "Left", "pad_to_multiple_of": None},
        **{"pad_id": 6, "pad_type_id": 0, "pad_token": "<pad>"},
    }
    folder = write(tmp_path, "llama", json.dumps(body), CONFIGS["plain"])
    require_equal(read_tokenizer(folder), load_transformers_tokenizer(folder), TEXT)


def test_a_copy_shares_nothing(tmp_path: Path) -> None:
    folder = write(tmp_path, "llama", bytes_json(), CONFIGS["split"])
    ours = read_tokenizer(folder)
    other = copy.deepcopy(ours)
    require_equal(other, ours, TEXTS[3])
    other.backend_tokenizer.add_tokens(["fox"])
    assert len(other) == len(ours) + 1


def remove_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def add_code(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({"auto_map": {"AutoTokenizer": ["a.A", None]}}))


def add_older_file(folder: Path) -> None:
    (folder / "added_tokens.json").write_text('{"<x>": 9000}')


def break_file(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"model": ')


def other_class(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "CodeLlamaTokenizer"}')


def other_type(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "mistral"}')


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (remove_tokenizer, "no tokenizer.json"),
        (add_code, "names code"),
        (add_older_file, "added_tokens.json"),
        (break_file, "Expecting value"),
        (other_class, "CodeLlamaTokenizer"),
        (other_type, "'mistral'"),
    ],
)
def test_what_only_transformers_reads_is_left_to_it(
    tmp_path: Path, change: Callable[[Path], None], reason: str
) -> None:
    folder = write(tmp_path, "llama", bytes_json(), CONFIGS["plain"])
    change(folder)
    with pytest.raises(UnreadableError, match=reason):
        read_tokenizer(folder)


def test_a_line_says_that_transformers_reads_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, "llama", bytes_json(), CONFIGS["plain"])
    assert isinstance(load_tokenizer(folder), FastTokenizer)
    assert capfd.readouterr().err == ""
    add_older_file(folder)
    tokenizer = load_tokenizer(folder)
    assert tokenizer.encode("<x>", add_special_tokens=False)
    (line,) = [each for each in capfd.readouterr().err.splitlines() if "casspec:" in each]
    assert line.startswith("casspec: transformers reads the tokenizer of ")
    assert "added_tokens.json" in line
