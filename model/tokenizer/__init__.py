"""Tokenizers and chat templates without transformers, whose import takes seconds."""

from cassandra_spec.model.tokenizer.fast import FastTokenizer
from cassandra_spec.model.tokenizer.reading import UnreadableTokenizer, read_tokenizer

__all__ = ["FastTokenizer", "UnreadableTokenizer", "read_tokenizer"]
