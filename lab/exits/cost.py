"""Compute the speed-up of self-speculation with an exit, in passes of the whole model.

A draft pass reads ``share`` of the bytes of a pass of the whole model: e/L for an exit behind e of
L layers, more with the head. A round drafts K tokens and verifies them in one pass, so it emits
accepted + 1 tokens for K share + 1. That is a gain if and only if accepted / K > share.

CascadeExit, B.2, has alpha > K share / (K - 1) instead, which no acceptance rate reaches for the
paper's exits. Its alpha is accepted / K in Table 5, and the probability that one more token is
accepted in the sums of 5.4 and B.1: two different rates.
"""

from __future__ import annotations


def speed_up(accepted: float, length: int, share: float) -> float:
    """Return the speed-up of rounds of ``length`` drafts with a mean of ``accepted`` ones."""
    return (accepted + 1) / (length * share + 1)


def geometric_tokens(alpha: float, length: int) -> float:
    """Return tokens per verification if each is accepted with ``alpha``: (1-a^(K+1)) / (1-a)."""
    return length + 1.0 if alpha == 1 else (1 - alpha ** (length + 1)) / (1 - alpha)
