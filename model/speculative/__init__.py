"""Self-speculative decoding of packed models in torch (docs/software/lossless.md).

Settings, drafters and figures are those of :mod:`cassandra_spec.drafting`.
"""

from cassandra_spec.model.speculative.causal_lm import (
    CassandraForCausalLM,
    ModelSession,
    ReplyInterrupted,
)
from cassandra_spec.model.speculative.key_values import KeyValueCache, KeyValueFormat
from cassandra_spec.model.speculative.linear import (
    DecodedProducts,
    Mode,
    PackedLinear,
    Products,
    ProductsFactory,
    decoded,
)
from cassandra_spec.model.speculative.passes import run_pass

__all__ = [
    "CassandraForCausalLM",
    "DecodedProducts",
    "KeyValueCache",
    "KeyValueFormat",
    "Mode",
    "ModelSession",
    "PackedLinear",
    "Products",
    "ProductsFactory",
    "ReplyInterrupted",
    "decoded",
    "run_pass",
]
