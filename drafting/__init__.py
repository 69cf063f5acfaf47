"""Drafting: settings, proposals, policies and figures, as both runtimes use them.

Nothing here needs torch. ``docs/development.md``, "Add a draft method", says how the parts fit.
"""

from cassandra_spec.drafting.costs import pass_costs
from cassandra_spec.drafting.counters import Counters, KeyValueCounters, ReadBytes
from cassandra_spec.drafting.levels import Choice, LevelDrafter, View, accept_greedy
from cassandra_spec.drafting.low import Candidates, Copies, LowDrafter, Recycled
from cassandra_spec.drafting.policy import (
    AdaptivePolicy,
    FixedPolicy,
    MeasuredSeconds,
    PassCosts,
    Plan,
    Policy,
    fixed_plan,
    make_policy,
)
from cassandra_spec.drafting.proposal import (
    ALTERNATIVES,
    COPIES,
    DRAFT_VIEW,
    LOW,
    RECYCLED,
    ROOT,
    TABLE,
    Count,
    Drafter,
    DraftPass,
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
from cassandra_spec.drafting.settings import (
    ADAPTIVE,
    GREEDY,
    DraftKind,
    Gamma,
    Levels,
    Sampling,
    Settings,
)
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
    "ALTERNATIVES",
    "COPIES",
    "DRAFT_VIEW",
    "GREEDY",
    "LOW",
    "RECYCLED",
    "ROOT",
    "TABLE",
    "AdaptivePolicy",
    "Backend",
    "Candidates",
    "Choice",
    "Copies",
    "Costs",
    "Count",
    "Counters",
    "DraftKind",
    "DraftPass",
    "Drafter",
    "FixedPolicy",
    "Gamma",
    "Generation",
    "KeyValueCounters",
    "LevelDrafter",
    "Levels",
    "LowDrafter",
    "MeasuredSeconds",
    "NativeFigures",
    "NgramTable",
    "Node",
    "Outcome",
    "PassCosts",
    "Plan",
    "Policy",
    "Prompt",
    "Proposal",
    "ReadBytes",
    "Recycled",
    "Replies",
    "ReplyText",
    "Report",
    "Sampling",
    "Settings",
    "TableOrder",
    "Traffic",
    "View",
    "accept_greedy",
    "cut_at_end",
    "draw",
    "encode_opening",
    "encode_prompt",
    "encode_text",
    "fixed_plan",
    "make_policy",
    "make_report",
    "native_figures",
    "pass_costs",
    "probabilities",
    "stop_tokens",
    "verify",
]
