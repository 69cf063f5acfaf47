"""Pack a model once, then talk with it.

    python examples/chat.py MODEL PACKED

MODEL is a Hugging Face directory, a GGUF file or ``smollm2``. PACKED is the packed model, which is
made if it is not there yet. Each line of standard input is a message; the model sees the whole
conversation. Needs ``cassandra-spec[runtime]``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cassandra_spec as cassandra


def main(model: str, packed: Path) -> None:
    """Pack, open, talk, and say what speculation brought."""
    if not packed.exists():
        cassandra.pack(model, packed, group_exponents="chosen")
    with cassandra.open(packed) as opened:
        chat = opened.chat(max_tokens=128)
        for line in sys.stdin:
            for piece in chat.stream(line.strip()):
                print(piece, end="", flush=True)
            print()
        figures = chat.figures
        said = f"{figures.tokens} tokens in {figures.rounds} verifications"
        print(f"{opened.loading.backend}: {said}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
