"""What Cassandra buys on a device: a closed-form model, from figures that are read from files.

Imports no other package of the project. docs/system.md explains the model and its assumptions.
"""

from system.acceptance import Acceptance
from system.costs import FormatCost, load_formats
from system.decoding import Estimate, Setup, estimate
from system.device import Device, load_device
from system.errors import SystemModelError
from system.workload import Model, Workload, load_model

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
