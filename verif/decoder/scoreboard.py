"""A scoreboard for packets of decoded values, which compares them with golden's."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

import numpy as np

from cassandra_spec.verif.decoder.jobs import Job
from cassandra_spec.verif.library.streams import Agent, Item, Sink


class _Bench(Protocol):
    """The part of a bench that a scoreboard needs."""

    values: Sink
    lanes: int
    cycle: int


class Scoreboard(Agent):
    """Compares each packet with golden's values, or asks for the flag of a segment without values.

    ``expected`` are the segments to come, ``ended`` those that have arrived.
    """

    def __init__(self, bench: _Bench) -> None:
        self._bench = bench
        self._beats: list[Item] = []
        self.cycles: list[int] = []  # cycles in which beats left
        self.reset()

    def sample(self) -> None:
        """Collect beats; compare at the end of a packet."""
        received = self._bench.values.received
        while received:
            beat = received.popleft()
            self._beats.append(beat)
            self.cycles.append(self._bench.cycle)
            if beat["tlast"]:
                self._end(beat)
                self._beats.clear()

    def reset(self) -> None:
        """Forget everything."""
        self.expected: deque[Any] = deque()
        self.ended: list[Any] = []
        self.values = 0  # of all packets
        self.cycles.clear()
        self._beats.clear()

    def item(self, entry: Any) -> Any:
        """Return the segment of an entry: a job if it has values."""
        return entry

    def ends(self, entry: Any) -> None:
        """Record a packet that arrived as expected."""
        self.ended.append(entry)

    def check_flagged(self, item: Any) -> None:
        """Check the other conditions of a flagged packet."""

    def _end(self, last: Item) -> None:
        assert self.expected, "a packet that nothing asked for"
        entry = self.expected[0]
        item = self.item(entry)
        for beat in self._beats[:-1]:
            assert not beat["tuser"], "tuser before tlast"
            assert beat["tkeep"] == (1 << 2 * self._bench.lanes) - 1, "a short beat before tlast"
        if isinstance(item, Job):
            self._check_values(item, last)
        else:
            assert last["tuser"], f"{item}: not flagged"
            assert last["tkeep"] == 0, f"{item}: tkeep {last['tkeep']:#x}"
            self.check_flagged(item)
        self.values += sum(beat["tkeep"].bit_count() // 2 for beat in self._beats)
        self.expected.popleft()
        self.ends(entry)

    def _check_values(self, job: Job, last: Item) -> None:
        assert not last["tuser"], f"{job}: flagged"
        expected = job.expected
        lanes = (len(expected) - 1) % self._bench.lanes + 1
        assert last["tkeep"] == (1 << 2 * lanes) - 1, f"{job}: tkeep {last['tkeep']:#x}"
        size = 2 * self._bench.lanes
        data = b"".join(beat["tdata"].to_bytes(size, "little") for beat in self._beats)
        values = np.frombuffer(data, np.uint16)[: len(expected)]
        assert len(values) == len(expected), f"{job}: {len(self._beats)} beats"
        wrong = np.flatnonzero(values != expected)
        assert not wrong.size, f"{job}: {wrong.size} wrong values, the first at {wrong[0]}"
