"""Measuring in rounds, so that what disturbs a machine disturbs everything alike.

Everything is measured once in each round. A figure is the median of the rounds; a ratio is the
median of the ratios within a round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

Task = Callable[[], object]
Seconds = dict[str, list[float]]
"""Seconds of each round, by task."""


def measure(
    tasks: Mapping[str, Task],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    *,
    warm_up: bool = False,
) -> Seconds:
    """Run every task once per round; ``warm_up`` adds a first round that is not counted."""
    seconds: Seconds = {name: [] for name in tasks}
    for task in tasks.values() if warm_up else ():
        task()
    for _ in range(rounds):
        for name, task in tasks.items():
            start = clock()
            task()
            seconds[name].append(clock() - start)
    return seconds


def spread(amount: float, seconds: Sequence[float], digits: int = 0) -> str:
    """``amount`` per second: the median, the least and the most."""
    return middle([amount / second for second in seconds], digits)


def middle(figures: Sequence[float], digits: int) -> str:
    """Format the median, the least and the most."""
    shown = (statistics.median(figures), min(figures), max(figures))
    return "{} ({}-{})".format(*(f"{each:.{digits}f}" for each in shown))


def ratio(seconds: Sequence[float], yardstick: Sequence[float]) -> str:
    """Format the speed-up over the yardstick."""
    return f"{statistics.median(y / s for s, y in zip(seconds, yardstick, strict=True)):.2f}"
