"""The engine's sizes, which Python and C++ share (``engine_constants.h``)."""

from __future__ import annotations

from cassandra_spec.drafting.low import BRANCHES
from cassandra_spec.drafting.proposal import ROOT

CHUNK = 128
"""Positions per chunk of keys and values."""

MAX_ROWS = 16
"""Maximum rows of a tree, and of logits of a forward pass."""

PROMPT_ROWS = 128
"""Maximum rows of one pass."""

PANEL_ROWS = 16
"""Rows of a pass whose scales and sums are stored together."""

MAX_GAMMA = MAX_ROWS - 1
"""Maximum gamma: a round is verified in one pass."""

NOT_FINITE = -3
"""Status of a pass whose logits are NaN or infinite."""

SHARED = {
    **{"CHUNK": CHUNK, "MAX_ROWS": MAX_ROWS, "MAX_NODES": MAX_GAMMA, "PROMPT_ROWS": PROMPT_ROWS},
    **{"PANEL_ROWS": PANEL_ROWS, "NOT_FINITE": NOT_FINITE, "ROOT": ROOT, "BRANCHES": BRANCHES},
}
"""The constants of the header, by name."""
