"""Self-speculative decoding of packed models (docs/runtime.md)."""

from model.speculative.causal_lm import CassandraForCausalLM, Generation
from model.speculative.linear import (
    DecodedProducts,
    Mode,
    PackedLinear,
    Products,
    ProductsFactory,
    decoded,
)
from model.speculative.loop import Session, Settings, decode
from model.speculative.passes import KeyValueCache, run_pass
from model.speculative.report import Costs, Report, Tally, Traffic, WeightBytes, make_report
from model.speculative.sampling import GREEDY, Sampling, probabilities, verify

__all__ = [
    "GREEDY",
    "CassandraForCausalLM",
    "Costs",
    "DecodedProducts",
    "Generation",
    "KeyValueCache",
    "Mode",
    "PackedLinear",
    "Products",
    "ProductsFactory",
    "Report",
    "Sampling",
    "Session",
    "Settings",
    "Tally",
    "Traffic",
    "WeightBytes",
    "decode",
    "decoded",
    "make_report",
    "probabilities",
    "run_pass",
    "verify",
]
