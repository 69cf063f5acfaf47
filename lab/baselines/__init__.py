"""Draft methods of papers and projects behind one contract, verified by one lossless loop.

A method is a file of :mod:`cassandra_spec.lab.baselines.methods`: a frozen dataclass of options
that prepares drafters for a loaded model.
"""

from cassandra_spec.lab.baselines.costs import NetworkSize, PassCost
from cassandra_spec.lab.baselines.low import PreparedLow
from cassandra_spec.lab.baselines.method import Method, Prepared
from cassandra_spec.lab.baselines.networks import PreparedNetwork, clone
from cassandra_spec.lab.baselines.registry import known_methods, parse_method

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
