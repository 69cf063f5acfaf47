"""Generate replies of drafts without a verifier, and score them with the target.

A low-rank network by itself (HyperTensor's ``--no-verifier``, section 2.1), OneDecode, the lossy
cascade of CascadeExit, and any other network that drafts. Replies are not those of the target.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from cassandra_spec.bench.questions import Question
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines import PreparedNetwork, clone
from cassandra_spec.lab.baselines.method import Speaker
from cassandra_spec.lab.compare.contenders import Ready
from cassandra_spec.lab.compare.known_replies import distinct_share, surprise
from cassandra_spec.model.speculative import CassandraForCausalLM, KeyValueCache, run_pass
from cassandra_spec.model.speculative.tiles import ROWS
from cassandra_spec.toolkit.tables import Table

PLAIN = "plain decoding"


@dataclasses.dataclass
class Alone:
    """Sums over the replies of one method without a verifier."""

    label: str
    replies: int = 0
    identical: int = 0  # replies that are those of plain decoding
    tokens: int = 0
    passes: int = 0
    places: int = 0  # tokens behind the first of each reply
    right: int = 0  # tokens that are the target's best after the tokens before
    surprise: float = 0.0  # of the target, in nats
    distinct: float = 0.0  # shares of four-grams that occur once
    sample: str = ""  # the first reply

    def add(
        self, lm: CassandraForCausalLM, prompt: Sequence[int], made: tuple[list[int], int]
    ) -> None:
        """Count a reply and what the target thinks of it."""
        reply, passes = made
        known, last = [*prompt, *reply[:-1]], len(reply) - 1
        logits = run_pass(lm.network, KeyValueCache(len(known)), known, 0, rows=ROWS, last=last)
        best: list[int] = logits.argmax(-1).tolist()
        self.replies += 1
        self.tokens += len(reply)
        self.passes += passes
        self.places += len(best)
        self.right += sum(ours == theirs for ours, theirs in zip(best, reply[1:], strict=True))
        self.surprise += surprise(logits, reply[1:])
        self.distinct += distinct_share(reply)
        self.sample = self.sample or lm.tokenizer.decode(reply)


def run_alone(
    ready: Sequence[Ready],
    questions: Sequence[Question],
    say: Callable[[str], object],
    *,
    max_tokens: int,
) -> list[Alone]:
    """Generate replies to the first turns of all questions, first by plain decoding.

    Raises :class:`CassandraError` before anything is generated if a method has no such replies.
    """
    speakers = [(each.label, each.lm, _speaker(each)) for each in ready]
    target = ready[0].lm
    plain = PreparedNetwork(target, clone(target)).alone()
    assert plain is not None, "a network replies"
    found, expected = list[Alone](), list[list[int]]()
    for label, lm, speak in [(PLAIN, target, plain), *speakers]:
        sums = Alone(label)
        for number, question in enumerate(questions):
            prompt = lm.encode_prompt(question.turns[0])
            made = speak(prompt, max_tokens, lm.stop_tokens())
            if label == PLAIN:
                expected.append(made[0])
            sums.identical += made[0] == expected[number]
            sums.add(lm, prompt, made)
        found.append(sums)
        say(f"  {label}")
    return found


def _speaker(ready: Ready) -> Speaker:
    speak = ready.prepared.alone()
    if speak is None:
        raise CassandraError(
            f"methods must be networks, a cascade or ott-od without a verifier, not {ready.label}"
        )
    return speak


def table(found: Sequence[Alone]) -> Table:
    """Format a table, one line per method, with the beginning of its first reply."""
    header = ("method", "identical", "passes / token", "as the target", "perplexity", "distinct")
    rows = tuple(
        (
            each.label,
            f"{each.identical}/{each.replies}",
            f"{each.passes / each.tokens:.2f}",
            f"{each.right / max(each.places, 1):.3f}",
            f"{math.exp(each.surprise / max(each.places, 1)):.2f}",
            f"{each.distinct / each.replies:.2f}",
        )
        for each in found
    )
    notes = [f"{each.label}: {' '.join(each.sample.split())[:160]}" for each in found]
    title = f"Without a verifier, {found[0].replies} replies"
    return Table(title=title, header=header, rows=rows, notes=tuple(notes))
