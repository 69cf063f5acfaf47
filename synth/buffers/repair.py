"""Buffers and sizes by timing: what the flow of a chip does after mapping, with OpenSTA.

abc buffers by fan-out, before it knows what registers add to a path. :func:`repair` shortens the
longest paths, until the period is kept or nothing helps: sinks that have time go behind a buffer,
one that has none goes in front of it, weak drivers grow. Then buffers go that no path needs, and
strong cells shrink, as long as the netlist stays as fast as it is, or the period is kept. A batch
of changes is timed as a whole, and taken back if it does not serve; so no estimate is trusted.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.synth.buffers.cells import Cells
from cassandra_spec.synth.buffers.netlist import Netlist, Pin, Undo
from cassandra_spec.synth.liberty import Drive
from cassandra_spec.synth.timing import LEAD, Library, constraints, run_tool

LATCH_SLOWER = 0.06
"""Additional delay of a clock gate's latch over the buffer that stands for it, in ns."""

GAIN = 0.02
"""Least time in ns that a change must win by its estimate to be tried."""

CLOSE = 0.05
"""Sinks are as urgent as the worst of their net up to this much time, in ns."""

GROWS = 0.12
"""Delay by its load, in ns, from which a cell is tried in its next size."""

BUFFER_DELAY = 0.1
"""Time in ns that a path wins at least when a buffer goes."""

TRIES = ((0.1, 0.3), (0.04, 0.2), (0.04, 0.5), (0.02, 0.3), (0.01, 0.2), (0.0, 0.3), (0.0, 0.2))
"""Pairs in ns, tried in order until one helps: the distance from the worst slack within which nets
are changed, and the additional slack that moves a sink behind a buffer."""

EQUAL = 1e-3
"""Slacks that differ by less are the same, in ns."""

RETRIES = 5
"""Number of times that a batch is timed while its late changes are taken out."""

ROUNDS = 12
"""Most batches of each kind that are kept."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slacks:
    """The slacks of a netlist's pins, in ns.

    ``worst`` is the least of all, ``total`` the sum of negative ones of flip-flops and clock gates.
    """

    pins: Mapping[Pin, float]
    worst: float
    total: float

    def of(self, pin: Pin | None) -> float:
        """Return the slack of a pin; infinite if it is on no path."""
        return self.pins.get(pin, float("inf")) if pin else float("inf")


class Timer:
    """Times a netlist in a folder.

    Arguments:
        top, library, period: as of :func:`~cassandra_spec.synth.timing.constraints`.
        out: the folder.
    """

    def __init__(self, top: str, library: Library, period: float, out: Path) -> None:
        self._out, self._name = out, f"{top}.repair"
        lead = LEAD + LATCH_SLOWER
        script = constraints(f"{self._name}.v", top, library, period, lead=lead)
        self._script = script + _PRINT

    def slacks(self, netlist: Netlist) -> Slacks:
        """Time a netlist; raise CassandraError if OpenSTA is missing or fails."""
        (self._out / f"{self._name}.v").write_text(netlist.text(open_latches=True))
        (self._out / f"{self._name}.tcl").write_text(self._script)
        return _slacks(run_tool("sta", ["-exit", f"{self._name}.tcl"], self._out))


_PRINT = """\
foreach pin [get_pins */*] {
  puts "slack [get_full_name $pin] [get_property $pin max_rise_slack]\\
    [get_property $pin max_fall_slack]"
}
exit
"""
_CLOCKED = re.compile(r"clock_gate_\d+_(inverter/|nand/[AY]|driver/)|\S+/CLK")


def _slacks(printed: str) -> Slacks:
    """Parse slacks that OpenSTA printed, except those of clock pins, which are of no path."""
    pins = {}
    for name, *edges in re.findall(r"^slack (\S+) (\S+)\s+(\S+)$", printed, re.M):
        known = [float(edge) for edge in edges if "INF" not in edge]
        if known and not _CLOCKED.match(name):
            instance, _, pin = name.rpartition("/")
            pins[instance, pin] = min(known)
    if not pins:
        last = (printed.strip().splitlines() or ["nothing"])[-1]
        raise CassandraError(f"sta must print slacks, not {last!r}")
    ends = [pins[one] for one in pins if one[1] == "D" or one[0].endswith("_nand")]
    total = sum(min(slack, 0.0) for slack in ends)
    return Slacks(pins=pins, worst=min(pins.values()), total=total)


def repair(text: str, timer: Timer, cells: Cells) -> str:
    """Return the netlist with buffers and sizes that its timing needs.

    No output drives more than its cell may, if that was so before. Raises CassandraError if
    OpenSTA is missing or fails.
    """
    netlist = Netlist(text, cells)
    work = _Repair(netlist, timer, cells)
    for _ in range(2):
        work.faster()
        work.smaller()
    return netlist.text()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Saving:
    """A change that takes less area.

    Attributes:
        left: what the paths through it have left by an estimate, in ns.
        driver: the output pin that drives more, or is weaker.
        around: instances whose delays change.
        make: makes it.
    """

    left: float
    driver: Pin
    around: set[str]
    make: Callable[[], Undo]


class _Repair:
    """Changes of a netlist, batch by batch; ``now`` are its slacks."""

    def __init__(self, netlist: Netlist, timer: Timer, cells: Cells) -> None:
        self._netlist, self._timer, self._cells = netlist, timer, cells
        self._now = timer.slacks(netlist)

    def faster(self) -> None:
        """Shorten the longest paths, until they keep the period or no try helps."""
        for _ in range(ROUNDS):
            if self._now.worst >= 0 or not any(self._shorten(*one) for one in TRIES):
                return

    def smaller(self) -> None:
        """Make every saving that no path needs: as many at once as goes well."""
        most, refused = len(self._netlist.instances), set[Pin]()
        for _ in range(ROUNDS):
            savings = [one for one in self._savings() if one.driver not in refused][:most]
            if not savings:
                return
            kept, late = self._save(savings)
            refused |= late if kept or len(savings) > 1 else {savings[0].driver}
            most = 2 * len(savings) if kept else -(-len(savings) // 3)

    def _shorten(self, window: float, away: float) -> bool:
        before = self._now
        undo = self._on_worst(window, away)
        if not undo:
            return False
        after = self._timer.slacks(self._netlist)
        same = abs(after.worst - before.worst) < EQUAL
        better = after.total > before.total + EQUAL if same else after.worst > before.worst
        return self._kept(after, better, undo)

    def _save(self, savings: Sequence[_Saving]) -> tuple[bool, set[Pin]]:
        """Make some savings; those are taken back behind which a path is too long then.

        That is repeated, since a path behind a buffer that has come back is longer again. Returns
        whether the others stay, and the drivers of those.
        """
        floor, busy = min(self._now.worst, 0.0) - 1e-6, set[str]()
        made: list[tuple[_Saving, Undo]] = []
        for saving in savings:
            if busy.isdisjoint(saving.around):
                busy |= saving.around
                made.append((saving, saving.make()))
        refused = set[Pin]()
        for _ in range(RETRIES):
            after = self._timer.slacks(self._netlist)
            late = [one for one in made if self._least(after, one[0].around) < floor]
            if not late:
                break
            refused |= {saving.driver for saving, _ in late}
            for one in late:
                made.remove(one)
                one[1]()
        good = bool(made) and after.worst >= floor
        return self._kept(after, good, [undo for _, undo in made]), refused

    def _least(self, slacks: Slacks, names: set[str]) -> float:
        """Return the smallest slack of instances: a slow input makes the others slow, too."""
        there = names & self._netlist.instances.keys()  # the buffer itself is not
        return min(slacks.of((name, pin)) for name in there for pin in self._netlist.pins(name))

    def _kept(self, after: Slacks, good: bool, undo: Sequence[Undo]) -> bool:
        if good:
            self._now = after
        else:
            for one in reversed(undo):
                one()
        return good

    # --- savings ----------------------------------------------------------------------------------

    def _savings(self) -> list[_Saving]:
        """Return the savings that an estimate allows, those with the largest slack first."""
        smaller = [name for name in self._netlist.instances if not name.startswith("clock_gate")]
        found = [*map(self._without, self._netlist.buffers()), *map(self._shrunk, smaller)]
        possible = (saving for saving in found if saving and saving.left >= min(self._now.worst, 0))
        return sorted(possible, key=lambda saving: -saving.left)

    def _without(self, buffer: str) -> _Saving | None:
        """Return the saving of removing a buffer and moving its sinks to its input net."""
        netlist, now = self._netlist, self._now
        before, behind = netlist.ends(buffer)
        drive, moved = self._drive(before), netlist.sinks.get(behind, set())
        beside = {pin for pin in netlist.sinks[before] if pin[0] != buffer}
        if drive is None or netlist.load(beside | moved) > drive.max_load:
            return None
        own = netlist.load(netlist.sinks[before] - beside)
        slacks = [now.of(pin) for pin in beside] + [now.of(pin) + BUFFER_DELAY for pin in moved]
        slower = drive.slope * (netlist.load(moved) - own)
        driver = netlist.drivers[before]
        return _Saving(
            left=min(slacks, default=0.0) - slower,
            driver=driver,
            around={driver[0], buffer, *(name for name, _ in beside | moved)},
            make=lambda: netlist.remove(buffer),
        )

    def _shrunk(self, name: str) -> _Saving | None:
        """Return the saving of the next smaller size of a cell, if that has less area."""
        netlist, (cell, pins) = self._netlist, self._netlist.instances[name]
        smaller = self._cells.smaller.get(cell)
        if smaller is None:
            return None
        [output] = [pin for pin in pins if (cell, pin) not in self._cells.loads]
        sinks = netlist.sinks.get(pins[output], set())
        old, new = (self._cells.drives.get((kind, output)) for kind in (cell, smaller))
        if old is None or new is None or netlist.load(sinks) > new.max_load:
            return None
        return _Saving(
            left=self._now.of((name, output)) - (new.slope - old.slope) * netlist.load(sinks),
            driver=(name, output),
            around={name, *(name for name, _ in sinks)},
            make=lambda: netlist.resize(name, smaller),
        )

    def _drive(self, net: str) -> Drive | None:
        """Return the drive of a net's driver; None for ports and pins unknown to the library."""
        if net not in self._netlist.drivers:
            return None
        name, pin = self._netlist.drivers[net]
        return self._cells.drives.get((self._netlist.cell(name), pin))

    # --- longest paths ----------------------------------------------------------------------------

    def _on_worst(self, window: float, away: float) -> list[Undo]:
        """Change nets on the longest paths, but never two that touch, and none inside a gate."""
        netlist, now, undo, busy = self._netlist, self._now, list[Undo](), set[str]()
        near = [net for net, pin in netlist.drivers.items() if now.of(pin) <= now.worst + window]
        for net in sorted(near, key=lambda net: now.of(netlist.drivers[net])):
            driver, sinks = netlist.drivers[net][0], sorted(netlist.sinks.get(net, ()))
            if driver not in busy and sinks and not driver.startswith("clock_gate"):
                changes = self._change(net, driver, sinks, away)
                if changes:
                    busy |= {driver, *(name for name, _ in sinks)}
                undo += changes
        return undo

    def _change(self, net: str, driver: str, sinks: Sequence[Pin], away: float) -> list[Undo]:
        """Move sinks before the buffer, or behind a new one, or take a stronger driver."""
        netlist, now = self._netlist, self._now
        worst = min(now.of(pin) for pin in sinks)
        urgent = [pin for pin in sinks if now.of(pin) < worst + CLOSE]
        later = [pin for pin in sinks if now.of(pin) > worst + away]
        if netlist.is_buffer(driver) and len(urgent) < min(3, len(sinks)):
            before = netlist.ends(driver)[0]
            if self._fits(before, netlist.load(urgent)):
                return [netlist.move(pin, before) for pin in urgent]
        drive = self._drive(net)
        own = self._cells.loads[self._cells.smallest[:2]]
        if drive and later and drive.slope * (netlist.load(later) - own) > GAIN:
            return [netlist.insert(net, later)]
        return self._grown(driver, drive.slope * netlist.load(sinks) if drive else 0.0)

    def _grown(self, driver: str, delay: float) -> list[Undo]:
        """Replace a cell by the next larger one if its load causes a long delay."""
        netlist, loads = self._netlist, self._cells.loads
        cell, pins = netlist.instances[driver]
        larger = self._cells.larger.get(cell)
        if larger is None or delay < GROWS:
            return []
        more = {
            net: loads[larger, pin] - loads[cell, pin]
            for pin, net in pins.items()
            if (cell, pin) in loads
        }
        fits = all(self._fits(net, load) for net, load in more.items())
        return [netlist.resize(driver, larger)] if fits else []

    def _fits(self, net: str, load: float) -> bool:
        """Return whether the driver of a net may drive an additional load, in pF."""
        drive = self._drive(net)
        return (
            drive is not None
            and self._netlist.load(self._netlist.sinks[net]) + load <= drive.max_load
        )
