"""Estimate decoding speed on a device by a closed-form model, from figures read from files.

Imports no other package of the project. system.md explains the model and its assumptions.
"""

from cassandra_spec.lab.system.acceptance import Acceptance
from cassandra_spec.lab.system.costs import FormatCost, load_formats
from cassandra_spec.lab.system.decoding import Estimate, Setup, estimate
from cassandra_spec.lab.system.device import Device, load_device
from cassandra_spec.lab.system.errors import SystemModelError
from cassandra_spec.lab.system.workload import Model, Workload, load_model

__all__ = [
    "Acceptance",
    "Device",
    "Estimate",
    "FormatCost",
    "Model",
    "Setup",
    "SystemModelError",
    "Workload",
    "estimate",
    "load_device",
    "load_formats",
    "load_model",
]
