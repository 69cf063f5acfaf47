"""The decoder's top in cocotb: its ports, the order of commands, and a scoreboard."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from typing import Any

from cassandra_spec.golden.format import ERROR_CAUSES
from cassandra_spec.verif.decoder.bulk import Request
from cassandra_spec.verif.decoder.codebooks import LoadedBooks
from cassandra_spec.verif.decoder.faults import Fault
from cassandra_spec.verif.decoder.jobs import Job
from cassandra_spec.verif.decoder.scoreboard import Scoreboard
from cassandra_spec.verif.library.models import names_of_bits
from cassandra_spec.verif.library.packets import region_packet
from cassandra_spec.verif.library.patterns import Pattern
from cassandra_spec.verif.library.streams import Agent, Bench, Port, Source


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """A packet of values that arrived as expected."""

    item: Job | Fault
    cycles: tuple[int, ...]  # cycles in which its beats left


class DecoderBench(Bench):
    """Drives segments into the decoder and compares its output.

    Regions are offered as early as the patterns allow. A command follows the codebook that it
    needs, and the previous command. With ``serial`` it also waits for the packet of the previous
    segment, so that the causes of an error belong to one segment; they are then compared, and
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
        self.scoreboard = _Scoreboard(self)
        self.agents.append(self.scoreboard)

    @property
    def errors(self) -> tuple[str, ...]:
        """The causes on ``error``."""
        return names_of_bits(int(self.dut.error.value), ERROR_CAUSES)

    def use(self, patterns: dict[str, Pattern]) -> None:
        """Drive the named ports by these patterns from now on."""
        for name, pattern in patterns.items():
            (self.values if name == "values" else self.sources[name]).use(pattern)

    def submit(self, items: Sequence[Job | Fault]) -> None:
        """Queue segments with their expected output."""
        for item in items:
            request, segment = item.request, item.request.segment
            self._control.pending.append(request)
            regions = {"speculation": segment.speculation}
            if request.target:
                regions["verification"] = segment.verification
            for name, region in regions.items():
                bus = getattr(self.dut, f"s_axis_{name}_tdata")
                self.sources[name].send(region_packet(region.tobytes(), len(bus) // 8))
            self.scoreboard.expected.append(item)

    async def finish(self, limit: int = 100_000) -> list[Ended]:
        """Run until every packet has arrived; nothing may follow, all input must be consumed."""
        if self.scoreboard.expected:
            await self.until(lambda: not self.scoreboard.expected, limit, "the last packet")
        await self.until(lambda: not int(self.dut.busy.value), 100, "the end of busy")
        await self.run(20)
        unused = [name for name, source in self.sources.items() if not source.idle]
        assert not unused, f"input that was not taken: {', '.join(unused)}"
        return self.scoreboard.ended

    async def clear_error(self) -> None:
        """Set ``clear_error`` for one cycle."""
        self.scoreboard.clear = True
        await self.run(3)


class _Control(Agent):
    """Offers codebooks and commands in order."""

    def __init__(self, bench: DecoderBench) -> None:
        self._bench = bench
        self.reset()

    def drive(self) -> None:
        """Offer the next item when the previous one has been taken."""
        sources = self._bench.sources
        if not sources["command"].idle or not sources["codebook"].idle:
            return
        if self._codebook_sent:
            self._send_command(sources["command"])
        elif self.pending and self._turn():
            self._start(sources)

    def reset(self) -> None:
        """Forget all queued items; no codebook is loaded."""
        self.pending: deque[Request] = deque()
        self._books = LoadedBooks()
        self._codebook_sent = False
        self._commands = 0

    def _turn(self) -> bool:
        return not self._bench.serial or len(self._bench.scoreboard.ended) == self._commands

    def _start(self, sources: dict[str, Source]) -> None:
        words = self._books.words(self.pending[0])
        if not words:
            self._send_command(sources["command"])
            return
        book = sources["codebook"]  # only decoders of coded pruned exponents have tuser
        book.send({name: word.fields[name] for name in book.port.payload} for word in words)
        self._codebook_sent = True

    def _send_command(self, command: Source) -> None:
        command.send([{"tdata": self.pending.popleft().word}])
        self._codebook_sent = False
        self._commands += 1


class _Scoreboard(Scoreboard):
    """Also compares the causes of faults, and clears them if segments are serial."""

    def __init__(self, bench: DecoderBench) -> None:
        self._decoder = bench
        self.clear = self._clearing = False
        super().__init__(bench)

    def drive(self) -> None:
        """Set ``clear_error`` in the cycle after a request."""
        if self.clear != self._clearing:
            self._decoder.dut.clear_error.value = int(self.clear)
            self._clearing = self.clear
        self.clear = False

    def reset(self) -> None:
        super().reset()
        self.clear = self._clearing = False
        self._decoder.dut.clear_error.value = 0

    def ends(self, entry: Job | Fault) -> None:
        """Record a packet and the cycles of its beats."""
        self.ended.append(Ended(item=entry, cycles=tuple(self.cycles)))
        self.cycles.clear()

    def check_flagged(self, item: Fault) -> None:
        """Compare the causes."""
        causes, serial = self._decoder.errors, self._decoder.serial
        assert item.cause in causes, f"{item}: causes {causes}"
        assert not serial or causes == (item.cause,), f"{item}: causes {causes}"
        self.clear = serial
