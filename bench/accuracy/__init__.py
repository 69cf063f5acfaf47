"""Measure the effect of compression on a model's predictions (the paper's Table III, scaled
down).
"""

from cassandra_spec.bench.accuracy.evaluation import (
    Accuracy,
    Evaluation,
    compare,
    evaluate,
    token_windows,
)
from cassandra_spec.bench.accuracy.lossy import rounded_to_8_bits, wanda_pruned
from cassandra_spec.bench.accuracy.study import (
    Candidate,
    Row,
    bf16_candidate,
    candidates,
    lossy_candidates,
    original,
    packed_candidates,
    table_rows,
)

__all__ = [
    "Accuracy",
    "Candidate",
    "Evaluation",
    "Row",
    "bf16_candidate",
    "candidates",
    "compare",
    "evaluate",
    "lossy_candidates",
    "original",
    "packed_candidates",
    "rounded_to_8_bits",
    "table_rows",
    "token_windows",
    "wanda_pruned",
]
