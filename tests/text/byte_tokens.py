"""A tokenizer of bytes and a few merges, which grammars can be compiled over."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

END = 0
MERGES = (("a", "b"), ("ab", "c"), ('"', "a"), ("Ġ", '"'), ("{", '"'), ('"', "}"), ("n", "a"))
"""Pairs of a byte-level vocabulary, the first one first."""


def byte_tokenizer(size: int = 272) -> PreTrainedTokenizerFast:
    """Return a tokenizer with ``<end>``, all bytes, merges, and unused words up to ``size``."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["<end>", *alphabet, *("".join(pair) for pair in MERGES)]
    vocabulary = {word: at for at, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocabulary, list(MERGES)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>")
    fast.chat_template = "{% for m in messages %}{{ m['role'][0] }}:{{ m['content'] }};{% endfor %}"
    fast.add_tokens([f"<unused{at}>" for at in range(size - len(words))])
    return fast


def ids(tokenizer: PreTrainedTokenizerFast, text: str) -> Sequence[int]:
    """Return the tokens of a text."""
    return list(tokenizer(text, add_special_tokens=False).input_ids)
