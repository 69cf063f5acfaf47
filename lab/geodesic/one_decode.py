"""OneDecode: tokens of the baked table where it is sure, without a pass (HyperTensor).

Nothing verifies a token of the table, so replies differ from the model's. The model runs where the
table is not sure, over all tokens that it has not seen: its keys and values are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cassandra_spec.drafting import Candidates
from cassandra_spec.golden import CassandraError
from cassandra_spec.model.speculative import CassandraForCausalLM, run_pass

THRESHOLD = 0.45
"""Default of the HyperTensor runtime."""


def generate(
    lm: CassandraForCausalLM,
    table: Candidates,
    prompt: Sequence[int],
    *,
    max_tokens: int,
    stop_tokens: frozenset[int],
    threshold: float = THRESHOLD,
) -> Iterator[tuple[int, bool]]:
    """Yield the tokens of a reply, and whether each is the table's. The first is the model's."""
    if not threshold > 0:
        raise CassandraError(f"threshold must be above 0, not {threshold}")
    cache = lm.session(len(prompt) + max_tokens).cache
    context, seen, token = list(prompt), 0, -1
    while len(context) < len(prompt) + max_tokens and token not in stop_tokens:
        found = max(table.candidates(context), key=lambda each: each[1], default=(0, 0.0))
        hit = found[1] >= threshold and len(context) > len(prompt)
        if hit:
            token = found[0]
        else:
            logits = run_pass(lm.network, cache, context[seen:], seen, last=1)
            token, seen = int(logits[0].argmax()), len(context)
        context.append(token)
        yield token, hit
