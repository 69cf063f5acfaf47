"""Tokenizers and chat templates without transformers, whose import takes seconds."""

from cassandra_spec.model.tokenizer.fast import FastTokenizer
from cassandra_spec.model.tokenizer.reading import UnreadableError, read_tokenizer

__all__ = ["FastTokenizer", "UnreadableError", "read_tokenizer"]
