"""Pack a model once, then talk with it.

    python examples/chat.py MODEL PACKED

MODEL is a Hugging Face directory, a GGUF file or ``smollm2``. PACKED is the packed model, which is
made if it is not there yet. Each line of standard input is a message; the model sees the whole
conversation. Needs ``cassandra-spec[runtime]``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from cassandra_spec.drafting import ADAPTIVE, Prompt, Replies, Settings
from cassandra_spec.golden import Format
from cassandra_spec.model.backends import BACKENDS, Opening, native_obstacle
from cassandra_spec.model.packing.packer import Recipe, pack_model
from cassandra_spec.model.weights.sources import open_source
from cassandra_spec.native.codec import fastest_codec

RECIPE = Recipe(format=Format(scheme="exact", group=64, fill="midpoint"), group_exponents="chosen")
SETTINGS = Settings(gamma=ADAPTIVE, max_tokens=128)


def conversation(replies: Replies) -> Iterator[Prompt]:
    """Yield the conversation up to each message."""
    history: list[dict[str, str]] = []
    for line in sys.stdin:
        history.append({"role": "user", "content": line.strip()})
        yield list(history)
        history.append({"role": "assistant", "content": replies.last_text})
        print()


def main(model: str, packed: Path) -> None:
    """Pack, open, talk, and say what speculation brought."""
    if not packed.exists():
        pack_model(open_source(model), packed, RECIPE, codec=fastest_codec())
    backend = "torch" if native_obstacle(packed) else "native"
    with BACKENDS[backend](packed, Opening(), SETTINGS) as opened:
        replies = Replies(opened, SETTINGS)
        replies.run(conversation(replies), lambda _, text: print(text, end="", flush=True))
        report = replies.generation().report
    print(f"{backend}: {report.tokens} tokens in {report.rounds} verifications", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
