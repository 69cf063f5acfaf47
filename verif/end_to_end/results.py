"""Tables of the main job."""

from __future__ import annotations

from collections.abc import Mapping

from cassandra_spec.model.packing.statistics import (
    entropy_bits,
    exponent_counts,
    frequent_exponents,
    mean_unary_length,
)
from cassandra_spec.model.weights.sources import Source, packed_tensors
from cassandra_spec.toolkit.tables import Table
from cassandra_spec.verif.end_to_end.weights import LOSSLESS, Checked

ENTROPY_PAPER, UNARY_PAPER = 2.6, 2.85  # bits per exponent, paper section IV.B and Figure 6
STREAMS = ("mask", "exponent", "sign_high", "low", "residue", "pruned")


def weight_tables(found: Mapping[str, Checked]) -> list[Table]:
    """Format cycles, differences and bits per weight by scheme."""
    return [_cycles(found), _differences(found), _bits(found)]


def _cycles(found: Mapping[str, Checked]) -> Table:
    rows = []
    for scheme, checked in found.items():
        check = checked.total
        for mode, cost in (("draft", check.draft), ("target", check.target)):
            counts = [f"{count:,}" for count in (check.values, cost.beats, cost.cycles)]
            rows.append((scheme, mode, *counts, f"{cost.values_per_cycle:.2f}"))
    return Table(
        title="Cycles of the decoder",
        header=("scheme", "mode", "values", "beats", "cycles", "values/cycle"),
        rows=tuple(rows),
    )


def _differences(found: Mapping[str, Checked]) -> Table:
    totals = {scheme: checked.total for scheme, checked in found.items()}
    rounded = {scheme: "" if scheme in LOSSLESS else " (rounded)" for scheme in found}
    return Table(
        title="Values that differ",
        header=("scheme", "gateware != golden", "target != original"),
        rows=tuple(
            (scheme, f"{total.mismatches:,}", f"{total.lost:,}{rounded[scheme]}")
            for scheme, total in totals.items()
        ),
    )


def _bits(found: Mapping[str, Checked]) -> Table:
    columns = (*STREAMS, "padding", "speculation", "total")
    return Table(
        title="Bits per weight",
        header=("bits/weight", *STREAMS, "padding", "draft reads", "whole"),
        rows=tuple(
            (scheme, *(f"{checked.mean_bits.get(name, 0):.2f}" for name in columns))
            for scheme, checked in found.items()
        ),
    )


def exponents(source: Source) -> str:
    """Format entropy and unary length of exponents, weighted by size, beside the paper's."""
    entropy = length = total = 0.0
    for tensor in packed_tensors(source):
        counts = exponent_counts(source.read(tensor.name))
        entropy += entropy_bits(counts) * tensor.count
        length += mean_unary_length(counts, frequent_exponents(counts, 256)) * tensor.count
        total += tensor.count
    return (
        f"exponents, all values, bits each: entropy {entropy / total:.2f}"
        f" (paper {ENTROPY_PAPER}), unary code {length / total:.2f} (paper {UNARY_PAPER})"
    )
