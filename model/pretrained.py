"""Load configs and tokenizers of a model directory as data, without running its code.

Configs and tokenizers come from local files, code that they name is never loaded, and a config is
checked against its ranges and the tensors of the model before it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.model_config import is_tied, read_config
from cassandra_spec.golden.model_types import find_model_type, layer_numbers

DATA_ONLY = {"local_files_only": True, "trust_remote_code": False}
"""Arguments of every ``from_pretrained`` of this project."""


def load_config(directory: Path, tensors: Collection[str]) -> Any:
    """Load the config of a model whose weights have the names ``tensors``.

    An implementation of attention that the file names is dropped: it may be the name of a kernel to
    download. The head is tied if there is no tensor of its own. Raises :class:`CassandraError` if
    the architecture is unknown, a size is out of its range, or the layers are not those of the
    tensors.
    """
    from transformers import AutoConfig  # slow to import

    body, path = read_config(directory), directory / "config.json"
    find_model_type(body.get("model_type"), field="name", where=path)
    config = AutoConfig.from_pretrained(directory, **DATA_ONLY)
    config._attn_implementation = None
    config.tie_word_embeddings = is_tied(body, tensors, path)
    stored = layer_numbers(tensors)
    if stored != set(range(config.num_hidden_layers)):
        raise CassandraError(
            f"{path}: num_hidden_layers must be {len(stored)}, as many as there are tensors of, "
            f"not {config.num_hidden_layers}"
        )
    return config


def load_tokenizer(directory: str | Path) -> Any:
    """Load the tokenizer of a directory, without transformers where that is possible.

    A line on standard error says why transformers reads it, if it does.
    """
    from cassandra_spec.model.tokenizer import UnreadableError, read_tokenizer

    try:
        return read_tokenizer(Path(directory))
    except UnreadableError as reason:
        tokenizer = load_transformers_tokenizer(directory)
        line = f"casspec: transformers reads the tokenizer of {directory}: {reason}"
        print(line, file=sys.stderr, flush=True)
        return tokenizer


def load_transformers_tokenizer(directory: str | Path) -> Any:
    """Load the tokenizer of a directory as an object of transformers."""
    from transformers import AutoTokenizer  # slow to import

    return AutoTokenizer.from_pretrained(directory, **DATA_ONLY)
