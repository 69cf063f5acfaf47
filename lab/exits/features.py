"""States of a frozen model behind some of its layers, over a text: what exits are trained on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from tqdm import tqdm

from cassandra_spec.golden import CassandraError
from cassandra_spec.model.output import write_file

_PIECE = 25  # sequences of a file


@dataclasses.dataclass(frozen=True, kw_only=True)
class Features:
    """States and best tokens of a model at the tokens of a text."""

    states: torch.Tensor  # [tokens, exits, width]: behind the layers of the exits
    final: torch.Tensor  # [tokens, width]: what the head gets
    labels: torch.Tensor  # int64 [tokens]: the next token of the text

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.labels)

    def chosen(self, tokens: torch.Tensor) -> Features:
        """Some of the tokens, by their numbers."""
        return Features(**{name: each[tokens] for name, each in self.tensors().items()})

    def split(self, tokens: int) -> Iterator[Features]:
        """Split the features into pieces of ``tokens`` tokens."""
        for parts in zip(*(each.split(tokens) for each in self.tensors().values()), strict=True):
            yield Features(**dict(zip(self.tensors(), parts, strict=True)))

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the three tensors by name."""
        return {"states": self.states, "final": self.final, "labels": self.labels}

    @classmethod
    def joined(cls, parts: Sequence[Features]) -> Features:
        """Join features."""
        names = ("states", "final", "labels")
        return cls(**{name: torch.cat([getattr(part, name) for part in parts]) for name in names})


def gather(
    network: Any,
    sequences: Sequence[Sequence[int]],
    layers: Sequence[int],
    store: Path,
    *,
    progress: bool = False,
) -> list[Features]:
    """Gather the features of each sequence, without the common prefix of all sequences.

    ``layers`` counts the layers before each exit. What an interrupted run has put into ``store`` is
    taken over.
    """
    if not sequences or min(map(len, sequences)) < 2:
        raise CassandraError("a text must have sequences of at least two tokens each")
    first = _common_prefix(sequences)
    found: list[Features] = []
    pieces = range(0, len(sequences), _PIECE)
    for start in tqdm(pieces, "states", unit=" pieces", disable=None if progress else True):
        piece = sequences[start : start + _PIECE]
        path = store / f"states-{_digest([layers, first, piece])}.safetensors"
        stored = _read(path)
        if len(stored) != len(piece) * 3:
            computed = [features_of(network, tokens, layers, first) for tokens in piece]
            stored = {
                f"{number}.{name}": tensor
                for number, each in enumerate(computed)
                for name, tensor in each.tensors().items()
            }
            write_file(path, save(stored))
        found += [_numbered(stored, number) for number in range(len(piece))]
    return found


def features_of(
    network: Any, tokens: Sequence[int], layers: Sequence[int], first: int = 0
) -> Features:
    """Return the features of a sequence's tokens from ``first`` to the last but one."""
    with torch.inference_mode():
        out = network.model(
            input_ids=torch.tensor([tokens]), output_hidden_states=True, use_cache=False
        )
    states = torch.stack([out.hidden_states[layer][0, first:-1] for layer in layers], 1)
    return Features(
        states=states.clone(),
        final=out.last_hidden_state[0, first:-1].clone(),
        labels=torch.tensor(tokens[first + 1 :], dtype=torch.int64),
    )


def _common_prefix(sequences: Sequence[Sequence[int]]) -> int:
    """Return the length of the common prefix, less than the shortest sequence."""
    most = min(map(len, sequences)) - 2
    if len(sequences) == 1:
        return 0
    columns = zip(*(sequence[:most] for sequence in sequences), strict=True)
    return next((n for n, column in enumerate(columns) if len(set(column)) > 1), most)


def _digest(body: object) -> str:
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()[:16]


def _read(path: Path) -> Mapping[str, torch.Tensor]:
    """Read the tensors of a file; an empty mapping if it is missing or damaged."""
    try:
        return load_file(path)
    except (OSError, SafetensorError):
        return {}


def _numbered(stored: Mapping[str, torch.Tensor], number: int) -> Features:
    names = ("states", "final", "labels")
    return Features(**{name: stored[f"{number}.{name}"] for name in names})
