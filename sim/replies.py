"""Replies of a model with its own weights and with those that came out of the gateware."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.model.weights.sources import Source
from cassandra_spec.sim.weights import REPLY_SCHEME, DecodedWeights

__all__ = ["compare_replies"]


def compare_replies(
    source: Source, decoded: DecodedWeights, folder: Path, prompt: str, tokens: int
) -> bool:
    """Print both replies; whether they have the same tokens.

    Args:
        source: the original model.
        decoded: weights that replace its own in the second reply.
        folder: where its tokenizer and configuration are put; must not exist.
        prompt: what is asked.
        tokens: longest reply.
    """
    # transformers takes seconds to import
    from cassandra_spec.model.reply import ReadWeights, build_model, reply

    def read(name: str) -> NDArray[np.uint16]:
        return decoded.read(name) if name in decoded else source.read(name)

    folder.mkdir()
    source.save_companions(folder)
    replies = []
    for weights in (source, ReadWeights(source.tensors, read)):
        model = build_model(folder, weights)
        replies.append(reply(model, folder, prompt, tokens=tokens))
        del model
    print(f"\nprompt: {prompt}\nreply, original weights: {replies[0].text}")
    tensors = f"{len(decoded)} tensors, scheme {REPLY_SCHEME}"
    print(f"reply, gateware weights ({tensors}): {replies[1].text}")
    same = replies[0].tokens == replies[1].tokens
    print(f"{len(replies[0].tokens)} tokens, {'identical' if same else 'DIFFERENT'}")
    return same
