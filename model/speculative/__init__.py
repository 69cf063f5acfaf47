"""Self-speculative decoding of packed models (docs/runtime.md)."""

from model.speculative.causal_lm import CassandraForCausalLM, Generation, ReplyInterrupted
from model.speculative.drafting import Drafted, Drafter, DraftKind
from model.speculative.key_values import KeyValueCache, KeyValueFormat, ReadBytes
from model.speculative.linear import (
    DecodedProducts,
    Mode,
    PackedLinear,
    Products,
    ProductsFactory,
    decoded,
)
from model.speculative.lookup import Lookup
from model.speculative.loop import Session, Settings, decode
from model.speculative.passes import run_pass
from model.speculative.report import (
    Costs,
    KeyValueTally,
    KeyValueTraffic,
    Report,
    Tally,
    Traffic,
    make_report,
)
from model.speculative.sampling import GREEDY, Sampling, probabilities, verify

__all__ = [
    "GREEDY",
    "CassandraForCausalLM",
    "Costs",
    "DecodedProducts",
    "DraftKind",
    "Drafted",
    "Drafter",
    "Generation",
    "KeyValueCache",
    "KeyValueFormat",
    "KeyValueTally",
    "KeyValueTraffic",
    "Lookup",
    "Mode",
    "PackedLinear",
    "Products",
    "ProductsFactory",
    "ReadBytes",
    "ReplyInterrupted",
    "Report",
    "Sampling",
    "Session",
    "Settings",
    "Tally",
    "Traffic",
    "decode",
    "decoded",
    "make_report",
    "probabilities",
    "run_pass",
    "verify",
]
