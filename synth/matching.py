"""Register matching: finds the netlist register of each RTL register, by name or by behaviour.

Both designs are circuits of gates. Matching by behaviour is partition refinement on random patterns
(van Eijk). Its matches are guesses; a proof compares the inputs of matched registers
(:mod:`cassandra_spec.synth.equivalence`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set

import numpy as np

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.synth.aiger import Circuit, Words, literals

WORDS = 64
"""Words of 64 random patterns for guessing matches and finding differences."""

STEADY = 4
"""Draws in a row that must leave all classes unchanged before refinement ends."""

Classes = tuple[list[int], list[int]]
"""Classes of the RTL's latches and of the netlist's; -1 is the constant 0."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """An output or a register input of both circuits: its two literals."""

    name: str
    output: bool
    rtl: int
    netlist: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Matched:
    """Both circuits and the correspondence of their registers.

    If registers have the values of their classes in one cycle and all points are equal, they have
    them in the next. They do at first: a constant begins as 0, and the registers of one class begin
    alike. A register of the netlist has no initial value and is assumed to begin as in the RTL.

    Attributes:
        rtl, netlist: the circuits.
        classes: for each latch of the RTL, its latch of the netlist, -1 for the constant 0, or a
            number of its own, from the number of the netlist's latches on.
        matches: number of RTL registers by kind of match.
    """

    rtl: Circuit
    netlist: Circuit
    classes: Sequence[int]
    matches: Mapping[str, int]

    @property
    def points(self) -> list[Point]:
        """Return the points to compare."""
        outputs = [
            Point(name=name, output=True, rtl=one, netlist=self.netlist.outputs[name])
            for name, one in sorted(self.rtl.outputs.items())
        ]
        nexts = [*self.netlist.nexts, 0]
        registers = [
            Point(name=name_of(names), output=False, rtl=one, netlist=nexts[number])
            for names, one, number in zip(
                self.rtl.latches, self.rtl.nexts, self.classes, strict=True
            )
            if number < len(self.netlist.latches)
        ]
        return outputs + registers

    @property
    def loose(self) -> list[str]:
        """Return registers without counterpart that some point depends on."""
        points, first = self.points, 1 + len(self.rtl.inputs)
        ours = self.rtl.cone(point.rtl for point in points)
        theirs = self.netlist.cone(point.netlist for point in points)
        own = {p for p, number in enumerate(self.classes) if number >= len(self.netlist.latches)}
        alone = set(range(len(self.netlist.latches))) - set(self.classes)
        return [
            *(f"rtl: {name_of(self.rtl.latches[p])}" for p in sorted(own) if first + p in ours),
            *(
                f"netlist: {name_of(self.netlist.latches[p])}"
                for p in sorted(alone)
                if first + p in theirs
            ),
        ]


def name_of(names: frozenset[str]) -> str:
    """Return the shortest user-given name of a register."""
    return min(names, key=lambda name: ("$signal" in name, len(name), name), default="(no name)")


def match(rtl: Circuit, netlist: Circuit) -> Matched:
    """Match registers: by name, then by behaviour, then as constants.

    Raises CassandraError if inputs or outputs of the circuits differ.
    """
    for kind, odd in (
        ("inputs", set(rtl.inputs) ^ set(netlist.inputs)),
        ("outputs", set(rtl.outputs) ^ set(netlist.outputs)),
    ):
        if odd:
            raise CassandraError(f"{kind} of both must be the same, not {min(odd)} in one alone")
    drawn, matches = _Drawn(rtl, netlist), dict[int, int]()
    _add(rtl, matches, _by_name(rtl, netlist))
    names, owners = len(matches), len({*matches.values()})
    # Constants come last. Synthesis leaves some registers that stay 0, and they take 0 like any
    # constant; but only with them do the other registers show equal behaviour in both circuits. A
    # constant is no copy of a changing register, even if the patterns are too few to show the
    # change.
    _add(rtl, matches, _by_behaviour(drawn, matches, *_constants(drawn, matches)))
    free = {*range(len(netlist.latches))} - {*matches.values()}
    stuck = _by_behaviour(drawn, matches, set(), set())
    _add(rtl, matches, {place: number for place, number in stuck.items() if number in free})
    constants, _ = _constants(drawn, matches)
    behaviour = len({*matches.values()}) - owners
    return Matched(
        rtl=rtl,
        netlist=netlist,
        classes=_classes(drawn, matches, constants),
        matches={
            "name": names,
            "behaviour": behaviour,
            "constant": len(constants),
            "copy": len(matches) - names - behaviour,
        },
    )


def _add(rtl: Circuit, matches: dict[int, int], found: Mapping[int, int]) -> None:
    """Add matches, except for latches that share one but do not begin alike."""
    owner = {number: place for place, number in matches.items()}
    for place, number in found.items():
        first = rtl.initial[owner.setdefault(number, place)]
        if owner[number] == place or (first is not None and first == rtl.initial[place]):
            matches[place] = number


def _by_name(rtl: Circuit, netlist: Circuit) -> dict[int, int]:
    """Match latches of the RTL that share a name with exactly one latch of the netlist."""
    owner = {name: place for place, names in enumerate(netlist.latches) for name in names}
    shared = [{owner[name] for name in names if name in owner} for names in rtl.latches]
    return {place: hits.pop() for place, hits in enumerate(shared) if len(hits) == 1}


def _classes(drawn: _Drawn, matches: Mapping[int, int], constants: Set[int]) -> list[int]:
    """Return the classes of the RTL's latches as :class:`Matched` has them."""
    rtl, netlist = drawn.circuits
    loose = len(netlist.latches)
    return [
        -1 if place in constants else matches.get(place, loose + place)
        for place in range(len(rtl.latches))
    ]


# --- random patterns ----------------------------------------------------------------------------


class _Drawn:
    """Random values of inputs and registers, the same in both circuits."""

    def __init__(self, rtl: Circuit, netlist: Circuit) -> None:
        self.circuits = rtl, netlist
        self.rng = np.random.default_rng(1)
        self.orders = [[rtl.inputs.index(name) for name in one.inputs] for one in self.circuits]

    def nexts(self, ours: Sequence[int], theirs: Sequence[int]) -> tuple[Words, Words]:
        """Return the next values of latches; arguments as for :meth:`values`."""
        rtl, netlist = self.circuits
        mine, others = self.values(ours, theirs)
        return literals(mine, rtl.nexts), literals(others, netlist.nexts)

    def values(self, ours: Sequence[int], theirs: Sequence[int]) -> tuple[Words, Words]:
        """Return the values of all variables of both circuits.

        Latches of a class have the same value, those of class -1 are 0.
        """
        ends = [np.asarray(one, dtype=np.int64) for one in (ours, theirs)]
        values = self._words(2 + max(int(one.max(initial=-1)) for one in ends))
        values[-1] = 0
        drawn = self._words(len(self.circuits[0].inputs))
        mine, others = (
            circuit.simulated(np.concatenate([drawn[order], values[one]]))
            for circuit, order, one in zip(self.circuits, self.orders, ends, strict=True)
        )
        return mine, others

    def _words(self, count: int) -> Words:
        """Draw words with a bit set in a half, an eighth or seven eighths of the patterns."""
        dense, thin, more = (
            self.rng.integers(0, 1 << 64, (count, WORDS), np.uint64) for _ in range(3)
        )
        kind = self.rng.integers(0, 3, (count, WORDS))
        rare = dense & thin & more
        return np.asarray(np.where(kind == 0, dense, np.where(kind == 1, rare, ~rare)))


def differ(matched: Matched, points: Sequence[Point]) -> list[bool]:
    """Return for each point whether a random pattern distinguishes its two sides."""
    drawn = _Drawn(matched.rtl, matched.netlist)
    ours, theirs = drawn.values(matched.classes, range(len(matched.netlist.latches)))
    left = literals(ours, [point.rtl for point in points])
    right = literals(theirs, [point.netlist for point in points])
    return [bool(one) for one in (left != right).any(axis=1)]


# --- guesses ------------------------------------------------------------------------------------


def _constants(drawn: _Drawn, matches: Mapping[int, int]) -> tuple[set[int], set[int]]:
    """Return the unmatched latches of both circuits that stay 0 as long as all of them are 0."""
    rtl, netlist = drawn.circuits
    left = {p for p, one in enumerate(rtl.initial) if one == 0 and p not in matches}
    right = {*range(len(netlist.latches))} - {*matches.values()}
    steady = 0
    while steady < STEADY:
        mine, others = drawn.nexts(
            _classes(drawn, matches, left),
            [-1 if n in right else n for n in range(len(netlist.latches))],
        )
        odd = {p for p in left if mine[p].any()}, {n for n in right if others[n].any()}
        left, right = left - odd[0], right - odd[1]
        steady = 0 if any(odd) else steady + 1
    return left, right


def _by_behaviour(
    drawn: _Drawn, matches: Mapping[int, int], ours: Set[int], theirs: Set[int]
) -> dict[int, int]:
    """Match RTL latches to the netlist latch with the same behaviour.

    Several RTL latches may match one netlist latch, because synthesis merges copies. Copies stay
    alike only as long as all of them do, so refinement starts with all latches in one class,
    matched ones included. ``ours`` and ``theirs`` are latches that are taken for 0 and stay
    unmatched.
    """
    rtl, netlist = drawn.circuits
    left = [-1 if p in ours else 0 for p in range(len(rtl.latches))]
    right = [-1 if n in theirs else 0 for n in range(len(netlist.latches))]
    alike = _parted(drawn, matches, (left, right), set())
    apart = _copied(matches, alike)
    return _paired(drawn, matches, _parted(drawn, matches, apart, {*matches.values()}))


def _parted(drawn: _Drawn, matches: Mapping[int, int], classes: Classes, kept: Set[int]) -> Classes:
    """Refine classes of latches until all latches in a class take the same values.

    A match is in the class of its netlist latch. Netlist latches in ``kept``, and those that are 0,
    stay in theirs; new classes get numbers beyond the netlist's latches.
    """
    left, right = ([*one] for one in classes)
    free = [p for p, one in enumerate(left) if p not in matches and one >= 0]
    others = [n for n, one in enumerate(right) if n not in kept and one >= 0]
    steady = number = 0
    while steady < STEADY:
        for p, n in matches.items():
            left[p] = right[n]
        mine, taken = drawn.nexts(left, right)
        colours = {(n, taken[n].tobytes()): n for n in kept}
        for side, places, nexts in ((right, others, taken), (left, free, mine)):
            for p in places:
                key = side[p], nexts[p].tobytes()
                side[p] = colours.setdefault(key, len(right) + len(colours))
        steady = steady + 1 if len(colours) == number else 0
        number = len(colours)
    return left, right


def _copied(matches: Mapping[int, int], classes: Classes) -> Classes:
    """Separate matches within classes.

    A latch of the RTL stays with a match if its class has no unmatched netlist latch.
    """
    left, right = classes
    taken = {*matches.values()}
    moved = {one: one + len(right) * (one >= 0) for one in (*left, *right)}
    free = {one for n, one in enumerate(right) if n not in taken}
    owned = {right[n]: n for n in taken if right[n] not in free}
    return (
        [owned.get(one, moved[one]) for one in left],
        [n if n in taken else moved[one] for n, one in enumerate(right)],
    )


def _paired(drawn: _Drawn, matches: Mapping[int, int], classes: Classes) -> dict[int, int]:
    """Pair latches within classes; of several, take the one that fewest outputs distinguish."""
    left, right = classes
    members: dict[int, list[int]] = {}
    for n, one in enumerate(right):
        members.setdefault(one, []).append(n)
    found: dict[int, int] = {}
    for p, one in enumerate(left):
        same = members.get(one, [])
        if p in matches or one < 0 or not same:
            continue
        found[p] = same[0]  # several latches may share it
        if len(same) > 1:
            found[p] = _chosen(drawn, matches, classes, p, same)
            same.remove(found[p])
            left[p] = right[found[p]] = 1 + max([*left, *right])
    return found


def _chosen(
    drawn: _Drawn, matches: Mapping[int, int], classes: Classes, own: int, same: Sequence[int]
) -> int:
    """Return the netlist latch whose pairing with an RTL latch changes the fewest values."""
    fresh = 1 + max([*classes[0], *classes[1]])

    def odd(candidate: int) -> int:
        left, right = ([*one] for one in classes)
        left[own] = right[candidate] = fresh
        return _told_apart(drawn, matches, (left, right))

    return min(same, key=odd)


def _told_apart(drawn: _Drawn, matches: Mapping[int, int], classes: Classes) -> int:
    """Count outputs and matched registers whose values differ, always for the same patterns."""
    rtl, netlist = drawn.circuits
    left = [*rtl.outputs.values(), *(rtl.nexts[p] for p in matches)]
    right = [
        *(netlist.outputs[name] for name in rtl.outputs),
        *(netlist.nexts[n] for n in matches.values()),
    ]
    ours, theirs = _Drawn(rtl, netlist).values(*classes)
    return int((literals(ours, left) != literals(theirs, right)).any(axis=1).sum())
