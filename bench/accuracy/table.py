"""Format the effect of compression on predictions."""

from __future__ import annotations

from collections.abc import Sequence

from cassandra_spec.bench.accuracy.study import Row
from cassandra_spec.toolkit.tables import text_table

_HEADER = ("model", "bits/weight", "perplexity", "agreement with BF16", "loss above BF16")


def accuracy_table(rows: Sequence[Row], length: int) -> str:
    """Format a table, one line per model, measured in windows of ``length`` tokens."""
    return (
        f"{text_table(_HEADER, map(_line, rows))}\n\n"
        f"{rows[0].accuracy.tokens:,} tokens predicted in windows of {length};"
        " +- is one standard error over windows"
    )


def _line(row: Row) -> list[str]:
    found = row.accuracy
    return [
        row.name,
        f"{row.bits:.2f}",
        f"{found.perplexity:.3f} +- {found.perplexity_error:.3f}",
        f"{found.agreement:.2%} +- {found.agreement_error:.2%}",
        f"{found.loss_increase:.4f} +- {found.loss_increase_error:.4f}",
    ]
