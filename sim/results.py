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
from cassandra_spec.report.tables import text_table
from cassandra_spec.sim.weights import LOSSLESS, Check

ENTROPY_PAPER, UNARY_PAPER = 2.6, 2.85  # bits per exponent, paper section IV.B and Figure 6
_STREAMS = ("mask", "exponent", "sign_high", "low", "residue", "pruned")


def print_results(checks: Mapping[str, Check], bits: Mapping[str, Mapping[str, float]]) -> None:
    """Print cycles, differences and bits per weight by scheme."""
    rows = []
    for scheme, check in checks.items():
        for mode, cost in (("draft", check.draft), ("target", check.target)):
            counts = [f"{count:,}" for count in (check.values, cost.beats, cost.cycles)]
            rows.append([scheme, mode, *counts, f"{cost.values_per_cycle:.2f}"])
    print("\n" + text_table(["scheme", "mode", "values", "beats", "cycles", "values/cycle"], rows))
    rows = [
        [
            scheme,
            f"{check.mismatches:,}",
            f"{check.lost:,}" if scheme in LOSSLESS else f"{check.lost:,} (rounded)",
        ]
        for scheme, check in checks.items()
    ]
    header = ["scheme", "gateware != golden", "target != original"]
    print("\n" + text_table(header, rows))
    rows = [
        [scheme]
        + [f"{own.get(name, 0):.2f}" for name in (*_STREAMS, "padding")]
        + [f"{own['speculation']:.2f}", f"{own['total']:.2f}"]
        for scheme, own in bits.items()
    ]
    header = ["bits/weight", *_STREAMS, "padding", "draft reads", "whole"]
    print("\n" + text_table(header, rows))


def print_exponents(source: Source) -> None:
    """Print entropy and unary length of exponents, weighted by size, beside the paper's."""
    entropy = length = total = 0.0
    for tensor in packed_tensors(source):
        counts = exponent_counts(source.read(tensor.name))
        entropy += entropy_bits(counts) * tensor.count
        length += mean_unary_length(counts, frequent_exponents(counts, 256)) * tensor.count
        total += tensor.count
    print(
        f"\nexponents, all values, bits each: entropy {entropy / total:.2f}"
        f" (paper {ENTROPY_PAPER}), unary code {length / total:.2f} (paper {UNARY_PAPER})"
    )
