"""Figure 14: how many tokens fit."""

from __future__ import annotations

import dataclasses

from cassandra_spec.lab.system.costs import FormatCost, load_format
from cassandra_spec.lab.system.decoding import cache_tokens, weight_bytes
from cassandra_spec.lab.system.device import Device, load_device
from cassandra_spec.lab.system.figures.figure_13 import eagle_weights
from cassandra_spec.lab.system.figures.paper_file import claim
from cassandra_spec.lab.system.workload import Model, load_model
from cassandra_spec.toolkit.tables import Table, difference


@dataclasses.dataclass(frozen=True, kw_only=True)
class Capacity:
    """Tokens whose cache fits on a device, by method."""

    bf16: int
    cassandra: int
    eagle: int
    llama: int

    @property
    def over_eagle(self) -> float:
        """The paper's 1.81."""
        return self.cassandra / self.eagle

    @property
    def over_llama(self) -> float:
        """The paper's 11.59."""
        return self.cassandra / self.llama if self.llama else float("inf")


def whole_model(cost: FormatCost, model: Model) -> float:
    """Return the bytes of a model with every matrix, embedding included, in the format."""
    return model.weights * cost.weight.whole / 8


def capacity(
    device: Device,
    *,
    drafter: str = "llama-3.2-3b",
    packed_embedding: bool = True,
    scheme: str = "cassandra-1",
    eagle_layers: int = 1,
) -> Capacity:
    """Figure 14: tokens on a device, for Llama3-8B with each drafter beside it.

    The defaults were searched for: they give both of the paper's ratios.
    """
    model, cost, bf16 = load_model("llama3-8b"), load_format(scheme), load_format("bf16")
    small = load_model(drafter)
    token = model.layers * model.kv_values * 2
    left = device.usable - weight_bytes(model, bf16)
    packed = whole_model(cost, model) if packed_embedding else weight_bytes(model, cost)
    drafter_bytes = small.weights * 2
    return Capacity(
        bf16=cache_tokens(device, model, bf16),
        cassandra=int((device.usable - packed) / (token * cost.kv.whole / 16)),
        eagle=int((left - eagle_weights(model) * 2) / (token + eagle_layers * model.kv_values * 2)),
        llama=max(0, int((left - drafter_bytes) / (token + small.layers * small.kv_values * 2))),
    )


def figure_14() -> Table:
    """Figure 14: tokens in a fixed memory, under the assumptions found and under others."""
    device = load_device("rtx4090")
    whole = dataclasses.replace(device, reserved=0.0)
    decimal = dataclasses.replace(whole, memory=24e9)
    variants = {
        "23 GiB, every matrix packed, Llama-3.2-3B": capacity(device),
        "the first, embedding in BF16": capacity(device, packed_embedding=False),
        "the first, all 24 GiB": capacity(whole),
        "the first, 24e9 bytes": capacity(decimal),
        "the first, Llama-3.2-1B as drafter": capacity(device, drafter="llama-3.2-1b"),
        "the first, cache not pruned (11.1 bits)": capacity(device, scheme="unary"),
        "the first, pruned exponents coded": capacity(device, scheme="unary-coded"),
        "the first, 30 % pruned, midpoint fill": capacity(device, scheme="unary-midpoint"),
        "the first, mx (target rounded)": capacity(device, scheme="mx"),
        "the first, exact": capacity(device, scheme="exact"),
    }
    eagle, llama = claim("tokens_eagle"), claim("tokens_llama")
    rows = []
    for name, found in variants.items():
        figures = [f"{tokens:,}" for tokens in dataclasses.astuple(found)]
        over = (found.over_eagle, eagle), (found.over_llama, llama)
        ratios = [text for a, b in over for text in (f"{a:.2f}", difference(a, b))]
        rows.append((name, *figures, *ratios))
    return Table(
        title="Figure 14: tokens of Llama3-8B that fit on an RTX 4090",
        header=(
            "assumption",
            "BF16",
            "Cassandra",
            "EAGLE-3",
            "Llama draft",
            f"paper {eagle}",
            "difference",
            f"paper {llama}",
            "difference",
        ),
        rows=tuple(rows),
        notes=(
            "The first row is the set of assumptions that gives both of the paper's ratios: 1 GiB",
            "kept for context and work space, weights and cache at 13.31 bits (pruned values raw),",
            "EAGLE-3 with one layer of cache and its own head, a drafter of 3.2 billion weights.",
        ),
    )
