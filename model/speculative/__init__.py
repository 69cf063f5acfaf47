"""Self-speculative decoding of packed models (docs/runtime.md)."""

from cassandra_spec.model.speculative.causal_lm import (
    CassandraForCausalLM,
    Generation,
    ReplyInterrupted,
)
from cassandra_spec.model.speculative.drafting import Drafted, Drafter, DraftKind
from cassandra_spec.model.speculative.key_values import KeyValueCache, KeyValueFormat, ReadBytes
from cassandra_spec.model.speculative.linear import (
    DecodedProducts,
    Mode,
    PackedLinear,
    Products,
    ProductsFactory,
    decoded,
)
from cassandra_spec.model.speculative.lookup import Lookup
from cassandra_spec.model.speculative.loop import Session, Settings, decode
from cassandra_spec.model.speculative.passes import run_pass
from cassandra_spec.model.speculative.report import (
    Costs,
    KeyValueTally,
    KeyValueTraffic,
    Report,
    Tally,
    Traffic,
    make_report,
)
from cassandra_spec.model.speculative.sampling import GREEDY, Sampling, probabilities, verify

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
