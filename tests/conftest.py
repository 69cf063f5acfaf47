"""Settings of the whole test run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Tests build small models themselves or take the packaged one: nothing is fetched.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Measurements of earlier runs must not change the plans of tests.
os.environ["CASSANDRA_HINTS"] = "0"
# Nor are models read from what earlier runs kept of them.
os.environ["CASSANDRA_WEIGHTS"] = "0"
# Two test processes share the cores; threads of torch on top of that wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A failure prints a line that replays it. There is no deadline: two test processes and the
# compiler share the machine.
settings.register_profile(
    "cassandra",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("cassandra")


# A shell that puts the tests into its background lets them ignore SIGINT, and so would every
# program that they start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files of the gateware first: they take longest, and the others fill the end of a run.

    An exhaustive test is also slow.
    """
    for item in items:
        if item.get_closest_marker("exhaustive"):
            item.add_marker("slow")
    gateware = Path(__file__).parent / "verif"
    items.sort(key=lambda item: gateware not in item.path.parents)
