"""Rotary angles that stay: those for a context, whatever the length of a sequence is.

transformers goes by the last position of each pass instead: where ``longrope`` and ``dynamic``
become others, keys in the cache keep the angles that they had.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from cassandra_spec.golden import CassandraError
from cassandra_spec.native.models.rope import ROPES_BY_LENGTH, Reach, rope_reach

Attributes = tuple[object, dict[str, Any]]
"""An object, and attributes to set on it during passes."""


def fix_angles(network: Any, context: int | None) -> Reach:
    """Choose the angles of a transformers model's layers for our passes, by a context.

    None: those for short sequences. Passes that are not ours choose as before. Raises
    :class:`CassandraError` if ``context`` is not from 1 to the positions that the model can have.
    """
    stated: Any = network.config.rope_parameters
    ropes = {"": stated} if "rope_type" in stated else stated  # by layer type; "": all layers
    positions = network.config.max_position_embeddings
    reaches = {
        name: rope_reach(entries, positions=positions, context=context)
        for name, entries in ropes.items()
    }
    shortest = min(reaches.values(), key=lambda reach: reach.positions)
    if context is not None and not 1 <= context <= shortest.positions:
        raise CassandraError(
            f"context must be from 1 to the model's {shortest.positions} positions, not {context}"
        )
    angles = {
        f"{name}_inv_freq" if name else "inv_freq": _angles(network.config, name, kind, reach)
        for name, reach in reaches.items()
        if (kind := ropes[name]["rope_type"]) in ROPES_BY_LENGTH
    }
    network.cassandra_angles = _attributes(network, angles) if angles else []
    return shortest if context is None else dataclasses.replace(shortest, positions=context)


def fixed_angles(network: Any) -> list[Attributes]:
    """Return the choices of :func:`fix_angles`; empty for other networks."""
    angles: list[Attributes] = getattr(network, "cassandra_angles", [])
    return angles


def _angles(config: Any, layer_type: str, kind: str, reach: Reach) -> torch.Tensor:
    make = ROPE_INIT_FUNCTIONS[kind]
    return make(config, seq_len=reach.context, layer_type=layer_type or None)[0]


def _attributes(network: Any, angles: dict[str, torch.Tensor]) -> list[Attributes]:
    """List the layers with such angles; those of the type ``default`` never change."""
    attributes: list[Attributes] = []
    for layer in network.modules():
        if hasattr(layer, "rope_type") and all(hasattr(layer, name) for name in angles):
            kind = layer.rope_type
            fixed = dict.fromkeys(kind, "default") if isinstance(kind, dict) else "default"
            attributes.append((layer, {**angles, "rope_type": fixed}))
    return attributes
