"""Every draft method behind one contract, verified by one lossless loop (drafters.md).

A method is a file of :mod:`cassandra_spec.model.drafters.methods`: a frozen dataclass of options
that prepares drafters for a loaded model.
"""

from cassandra_spec.model.drafters.costs import NetworkSize, PassCost
from cassandra_spec.model.drafters.low import PreparedLow
from cassandra_spec.model.drafters.method import Method, Prepared
from cassandra_spec.model.drafters.networks import PreparedNetwork, clone
from cassandra_spec.model.drafters.registry import known_methods, parse_method

__all__ = [
    "Method",
    "NetworkSize",
    "PassCost",
    "Prepared",
    "PreparedLow",
    "PreparedNetwork",
    "clone",
    "known_methods",
    "parse_method",
]
