"""Drafting: settings, proposals, policies and figures, as both runtimes use them.

Nothing here needs torch. ``docs/development.md``, "Add a draft method", says how the parts fit.
"""

from cassandra_spec.drafting.counters import Counters, KeyValueCounters, ReadBytes
from cassandra_spec.drafting.lookup import CopyDrafter, Lookup
from cassandra_spec.drafting.policy import (
    AdaptivePolicy,
    FixedPolicy,
    MeasuredSeconds,
    PassCosts,
    Plan,
    Policy,
    PolicyDrafter,
    make_policy,
)
from cassandra_spec.drafting.proposal import (
    COPIES,
    DRAFT_VIEW,
    ROOT,
    Drafter,
    Node,
    Outcome,
    Proposal,
)
from cassandra_spec.drafting.replies import Backend, Generation, Replies, cut_at_end
from cassandra_spec.drafting.report import (
    Costs,
    NativeFigures,
    Report,
    Traffic,
    make_report,
    native_figures,
)
from cassandra_spec.drafting.sampling import draw, probabilities, verify
from cassandra_spec.drafting.settings import ADAPTIVE, GREEDY, DraftKind, Gamma, Sampling, Settings
from cassandra_spec.drafting.table import NgramTable, TableOrder
from cassandra_spec.drafting.text import (
    Prompt,
    ReplyText,
    encode_opening,
    encode_prompt,
    encode_text,
    stop_tokens,
)

__all__ = [
    "ADAPTIVE",
    "COPIES",
    "DRAFT_VIEW",
    "GREEDY",
    "ROOT",
    "AdaptivePolicy",
    "Backend",
    "CopyDrafter",
    "Costs",
    "Counters",
    "DraftKind",
    "Drafter",
    "FixedPolicy",
    "Gamma",
    "Generation",
    "KeyValueCounters",
    "Lookup",
    "MeasuredSeconds",
    "NativeFigures",
    "NgramTable",
    "Node",
    "Outcome",
    "PassCosts",
    "Plan",
    "Policy",
    "PolicyDrafter",
    "Prompt",
    "Proposal",
    "ReadBytes",
    "Replies",
    "ReplyText",
    "Report",
    "Sampling",
    "Settings",
    "TableOrder",
    "Traffic",
    "cut_at_end",
    "draw",
    "encode_opening",
    "encode_prompt",
    "encode_text",
    "make_policy",
    "make_report",
    "native_figures",
    "probabilities",
    "stop_tokens",
    "verify",
]
