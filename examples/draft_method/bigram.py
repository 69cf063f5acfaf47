"""A draft method of another package: what followed the last token most often in a text.

``pip install examples/draft_method`` makes it known, by the entry point in pyproject.toml:

    casspec compare packed --methods bigram:text=book.txt cassandra

The loop verifies what it drafts, so replies are those of plain decoding, whatever the text.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from cassandra_spec.drafting import TABLE
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines import Method, PreparedLow
from cassandra_spec.model.speculative import CassandraForCausalLM

_LIKELIEST = 4


class Followers:
    """Tokens that followed each token (:class:`cassandra_spec.drafting.Candidates`)."""

    def __init__(self, tokens: Iterable[int]) -> None:
        self._after: defaultdict[int, Counter[int]] = defaultdict(Counter)
        for before, token in itertools.pairwise(tokens):
            self._after[before][token] += 1

    def candidates(self, tail: Sequence[int]) -> list[tuple[int, float]]:
        """Return the tokens that most often followed the last one of ``tail``, with shares."""
        found = self._after.get(tail[-1], Counter[int]())
        likeliest = found.most_common(_LIKELIEST)
        return [(token, count / found.total()) for token, count in likeliest]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bigram(Method, name="bigram"):
    """A chain of gamma tokens that cost no pass; its fields are the options."""

    text: Path = Path()

    def __post_init__(self) -> None:
        if not self.text.is_file():
            raise CassandraError(f"text must be a file, not {self.text}")

    def prepare(self, lm: CassandraForCausalLM) -> PreparedLow:
        """Count the pairs of tokens of the text."""
        tokens = lm.tokenizer.encode(self.text.read_text("utf-8"), add_special_tokens=False)
        return PreparedLow(lm, sources=(TABLE,), table=Followers(tokens))
