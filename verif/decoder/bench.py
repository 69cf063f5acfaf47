"""The decoder's top in cocotb: its ports, the order of commands, and a scoreboard."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.format import ERROR_CAUSES
from cassandra_spec.verif.decoder.bulk import Request
from cassandra_spec.verif.decoder.codebooks import LoadedBooks
from cassandra_spec.verif.decoder.faults import Fault
from cassandra_spec.verif.decoder.jobs import Job
from cassandra_spec.verif.library.patterns import Pattern
from cassandra_spec.verif.library.streams import Bench, Item, Port, Source

__all__ = ["DecoderBench", "Ended"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """A packet of values that came out as it must."""

    item: Job | Fault
    cycles: tuple[int, ...]  # in which its beats left


class DecoderBench(Bench):
    """Drives segments into the decoder and compares what comes out.

    Regions are offered as early as the patterns let them; a command follows the codebook that it
    needs, and the command before it. With ``serial`` it also waits for the packet of the segment
    before it, so that the causes of an error belong to one segment; they are then compared, and
    cleared.
    """

    def __init__(self, dut: Any, seed: int) -> None:
        super().__init__(dut, seed)
        self.lanes = len(dut.m_axis_values_tkeep) // 2
        self.serial = False
        dut.clear_error.value = 0
        self._control = _Control(self)
        self.agents.append(self._control)
        both = ("tdata", "tlast")
        user = ("tuser",) if hasattr(dut, "s_axis_codebook_tuser") else ()
        self.sources = {
            "command": self.source(Port.axis(dut, "s_axis_command")),
            "codebook": self.source(Port.axis(dut, "s_axis_codebook", (*both, *user))),
            "speculation": self.source(Port.axis(dut, "s_axis_speculation", both)),
            "verification": self.source(Port.axis(dut, "s_axis_verification", both)),
        }
        fields = ("tdata", "tkeep", "tlast", "tuser")
        self.values = self.sink(Port.axis(dut, "m_axis_values", fields))
        self._scoreboard = _Scoreboard(self)
        self.agents.append(self._scoreboard)

    @property
    def ended(self) -> list[Ended]:
        """Packets so far, all as they must be."""
        return self._scoreboard.ended

    @property
    def errors(self) -> tuple[str, ...]:
        """Causes on ``error``."""
        return _causes(int(self.dut.error.value))

    def use(self, patterns: dict[str, Pattern]) -> None:
        """Move the named ports as these patterns say from now on."""
        for name, pattern in patterns.items():
            (self.values if name == "values" else self.sources[name]).use(pattern)

    def submit(self, items: Sequence[Job | Fault]) -> None:
        """Queue segments, and what must come out."""
        for item in items:
            request, segment = item.request, item.request.segment
            self._control.pending.append(request)
            regions = {"speculation": segment.speculation}
            if request.target:
                regions["verification"] = segment.verification
            for name, region in regions.items():
                bus = getattr(self.dut, f"s_axis_{name}_tdata")
                self.sources[name].send(_words(region, len(bus) // 8))
            self._scoreboard.expected.append(item)

    async def finish(self, limit: int = 100_000) -> list[Ended]:
        """Run until every packet is out; nothing may follow, and every input must be used up."""
        if self._scoreboard.expected:
            await self.until(lambda: not self._scoreboard.expected, limit, "the last packet")
        await self.until(lambda: not int(self.dut.busy.value), 100, "the end of busy")
        await self.run(20)
        unused = [name for name, source in self.sources.items() if not source.idle]
        assert not unused, f"input that was not taken: {', '.join(unused)}"
        return self.ended

    async def clear_error(self) -> None:
        """Set ``clear_error`` for one cycle."""
        self._scoreboard.clear = True
        await self.run(3)

    @property
    def settled(self) -> int:
        """Packets that have ended."""
        return len(self.ended)


class _Control:
    """Offers codebooks and commands in their order."""

    def __init__(self, bench: DecoderBench) -> None:
        self._bench = bench
        self.reset()

    def drive(self) -> None:
        """Offer the next item when the one before it is taken."""
        sources = self._bench.sources
        if not sources["command"].idle or not sources["codebook"].idle:
            return
        if self._codebook_sent:
            self._send_command(sources["command"])
        elif self.pending and self._turn():
            self._start(sources)

    def sample(self) -> None:
        """Nothing to read."""

    def reset(self) -> None:
        """Forget what was to come; no codebook is loaded."""
        self.pending: deque[Request] = deque()
        self._books = LoadedBooks()
        self._codebook_sent = False
        self._commands = 0

    def _turn(self) -> bool:
        return not self._bench.serial or self._bench.settled == self._commands

    def _start(self, sources: dict[str, Source]) -> None:
        words = self._books.words(self.pending[0])
        if not words:
            self._send_command(sources["command"])
            return
        book = sources["codebook"]  # tuser is there only where pruned exponents may be coded
        book.send({name: word.fields[name] for name in book.port.payload} for word in words)
        self._codebook_sent = True

    def _send_command(self, command: Source) -> None:
        command.send([{"tdata": self.pending.popleft().word}])
        self._codebook_sent = False
        self._commands += 1


class _Scoreboard:
    """Compares packets with golden's values, or with the cause of a fault."""

    def __init__(self, bench: DecoderBench) -> None:
        self._bench = bench
        self.clear = self._clearing = False
        self.reset()

    def drive(self) -> None:
        """Set ``clear_error`` for the cycle after it was asked for."""
        if self.clear != self._clearing:
            self._bench.dut.clear_error.value = int(self.clear)
            self._clearing = self.clear
        self.clear = False

    def sample(self) -> None:
        """Take beats; compare at the end of a packet."""
        received = self._bench.values.received
        while received:
            beat = received.popleft()
            self._beats.append(beat)
            self._cycles.append(self._bench.cycle)
            if beat["tlast"]:
                self._end(beat)

    def reset(self) -> None:
        """Forget everything."""
        self.expected: deque[Job | Fault] = deque()
        self.ended: list[Ended] = []
        self._beats: list[Item] = []
        self._cycles: list[int] = []
        self.clear = self._clearing = False
        self._bench.dut.clear_error.value = 0

    def _end(self, last: Item) -> None:
        assert self.expected, "a packet that nothing asked for"
        item = self.expected[0]
        for beat in self._beats[:-1]:
            assert not beat["tuser"], "tuser before tlast"
            assert beat["tkeep"] == (1 << 2 * self._bench.lanes) - 1, "a short beat before tlast"
        if isinstance(item, Job):
            self._check_values(item, last)
        else:
            self._check_fault(item, last)
        self.ended.append(Ended(item=item, cycles=tuple(self._cycles)))
        self.expected.popleft()
        self._beats, self._cycles = [], []

    def _check_values(self, job: Job, last: Item) -> None:
        assert not last["tuser"], f"{job}: flagged, causes {self._bench.errors}"
        expected = job.expected
        lanes = (len(expected) - 1) % self._bench.lanes + 1
        assert last["tkeep"] == (1 << 2 * lanes) - 1, f"{job}: tkeep {last['tkeep']:#x}"
        size = 2 * self._bench.lanes
        data = b"".join(beat["tdata"].to_bytes(size, "little") for beat in self._beats)
        values = np.frombuffer(data, np.uint16)[: len(expected)]
        assert len(values) == len(expected), f"{job}: {len(self._beats)} beats"
        wrong = np.flatnonzero(values != expected)
        assert not wrong.size, f"{job}: {wrong.size} wrong values, the first at {wrong[0]}"

    def _check_fault(self, fault: Fault, last: Item) -> None:
        what = f"{fault.bin} in {fault.request.format}"
        assert last["tuser"], f"{what}: not flagged"
        assert last["tkeep"] == 0, f"{what}: tkeep {last['tkeep']:#x}"
        causes = self._bench.errors
        assert fault.cause in causes, f"{what}: causes {causes}"
        assert not self._bench.serial or causes == (fault.cause,), f"{what}: causes {causes}"
        self.clear = self._bench.serial


def _words(region: NDArray[np.uint8], size: int) -> Iterator[Item]:
    data = region.tobytes()
    for start in range(0, len(data), size):
        last = start + size >= len(data)
        yield {
            "tdata": int.from_bytes(data[start : start + size], "little"),
            "tlast": int(last),
        }


def _causes(bits: int) -> tuple[str, ...]:
    return tuple(cause for bit, cause in enumerate(ERROR_CAUSES) if bits >> bit & 1)
