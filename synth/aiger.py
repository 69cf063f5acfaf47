"""And-inverter graphs: reads Yosys's binary AIGER files with their name maps, simulates and cuts
them.

A literal is ``2 * variable``, plus one if inverted; variable 0 is the constant 0. Inputs come
first, then latches, then gates in topological order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.errors import CassandraError

Words = NDArray[np.uint64]
"""64 patterns in a word."""

_ONES = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Circuit:
    """An and-inverter graph with named ports and latches.

    Attributes:
        inputs: names, in the order of their variables.
        latches: names of the wires that show each latch.
        nexts: next-state literal of each latch.
        initial: initial value of each latch, None if unknown.
        outputs: literals by name.
        gates: the two literals of each gate.
    """

    inputs: Sequence[str]
    latches: Sequence[frozenset[str]]
    nexts: Sequence[int]
    initial: Sequence[int | None]
    outputs: Mapping[str, int]
    gates: Sequence[tuple[int, int]]

    @property
    def sources(self) -> int:
        """Number of inputs and latches."""
        return len(self.inputs) + len(self.latches)

    def with_inputs(self, names: Sequence[str]) -> Circuit:
        """Return the circuit with more inputs, which it does not use."""
        first = 2 * (1 + len(self.inputs))

        def moved(literal: int) -> int:
            return literal + 2 * len(names) * (literal >= first)

        return dataclasses.replace(
            self,
            inputs=[*self.inputs, *names],
            nexts=list(map(moved, self.nexts)),
            outputs={name: moved(one) for name, one in self.outputs.items()},
            gates=[(moved(a), moved(b)) for a, b in self.gates],
        )

    def with_ands(self, pairs: Mapping[str, tuple[int, int]]) -> Circuit:
        """Return the circuit with other outputs, each the AND of two literals."""
        first = 1 + self.sources + len(self.gates)
        made = {name: 2 * place for place, name in enumerate(pairs, first)}
        gates, outputs = [*self.gates, *pairs.values()], {**self.outputs, **made}
        return dataclasses.replace(self, gates=gates, outputs=outputs)

    def simulated(self, sources: Words) -> Words:
        """Compute the values of all variables, [variables, words], from inputs and latches."""
        values = np.zeros((1 + self.sources + len(self.gates), sources.shape[1]), np.uint64)
        values[1 : 1 + self.sources] = sources
        for place, (a, b) in enumerate(self.gates, 1 + self.sources):
            left, right = values[a >> 1], values[b >> 1]
            values[place] = (~left if a & 1 else left) & (~right if b & 1 else right)
        return values

    def cone(self, roots: Iterable[int]) -> list[int]:
        """Return the variables that these literals depend on, including their own, in order."""
        seen = bytearray(1 + self.sources + len(self.gates))
        for literal in roots:
            seen[literal >> 1] = 1
        first = 1 + self.sources
        for place in range(len(seen) - 1, first - 1, -1):
            if seen[place]:
                a, b = self.gates[place - first]
                seen[a >> 1] = seen[b >> 1] = 1
        return [place for place in range(1, len(seen)) if seen[place]]


def literals(values: Words, chosen: Sequence[int]) -> Words:
    """Return values of literals, [literals, words]."""
    places = np.asarray(chosen, dtype=np.int64)
    inverted = np.where(places & 1, _ONES, np.uint64(0))
    return np.asarray(values[places >> 1] ^ inverted[:, None])


def read_circuit(path: Path) -> Circuit:
    """Read what ``write_aiger -map`` wrote: an ``.aig`` file and a ``.map`` beside it.

    Raises CassandraError if the file is not of this kind.
    """
    data = path.read_bytes()
    head, _, rest = data.partition(b"\n")
    words = head.split()
    if len(words) != 6 or words[0] != b"aig":
        raise CassandraError(f"{path} must be a binary AIGER file, not {head[:40]!r}")
    inputs, latches, outputs, gates = map(int, words[2:])
    lines = rest.split(b"\n", latches + outputs)
    names = _names(path.with_suffix(".map").read_text())
    first = {kind: dict(found) for kind, found in names.items()}
    held: list[set[str]] = [set() for _ in range(latches)]
    for place, name in names["latch"]:
        held[place].add(name)
    states = [[int(word) for word in line.split()] for line in lines[:latches]]
    literals_out = [int(line) for line in lines[latches : latches + outputs]]
    return Circuit(
        inputs=[first["input"][place] for place in range(inputs)],
        latches=[frozenset(one) for one in held],
        nexts=[state[0] for state in states],
        initial=[_initial(state) for state in states],
        outputs={name: literals_out[place] for place, name in names["output"]},
        gates=list(_gates(lines[-1], 1 + inputs + latches, gates)),
    )


def _initial(state: Sequence[int]) -> int | None:
    """Return a latch's initial value: 0 by default, None if it names the latch itself."""
    said = state[1] if len(state) > 1 else 0
    return said if said in (0, 1) else None


def _names(text: str) -> dict[str, list[tuple[int, str]]]:
    """Return indices and names by kind; a bit of a vector has its number in the name."""
    lines = [line.split(maxsplit=3) for line in text.splitlines()]
    vectors = {name for _, _, bit, name in lines if bit != "0"}
    found: dict[str, list[tuple[int, str]]] = {"input": [], "latch": [], "output": []}
    for kind, place, bit, name in lines:
        if kind in found:
            found[kind].append((int(place), f"{name}[{bit}]" if name in vectors else name))
    return found


def _gates(data: bytes, first: int, count: int) -> Iterator[tuple[int, int]]:
    numbers = _numbers(data)
    for place in range(first, first + count):
        a = 2 * place - next(numbers)
        yield a, a - next(numbers)


def _numbers(data: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value
            value = shift = 0


def write_cone(
    path: Path, circuit: Circuit, sources: Sequence[int], roots: Sequence[int], count: int
) -> None:
    """Write a circuit without state, whose outputs are the literals ``roots``.

    It has ``count`` inputs. ``sources`` maps each input and latch of ``circuit`` to the literal of
    one of them (input ``n`` has the literal ``2 * n + 2``), or to 0 for the constant.
    """
    new = [0, *sources] + [0] * len(circuit.gates)
    first, place, body = 1 + circuit.sources, count, bytearray()
    for old in circuit.cone(roots):
        if old < first:
            continue
        a, b = (new[one >> 1] ^ (one & 1) for one in circuit.gates[old - first])
        place += 1
        new[old] = 2 * place
        body += _encoded(2 * place - max(a, b)) + _encoded(abs(a - b))
    head = f"aig {place} {count} 0 {len(roots)} {place - count}\n"
    ends = "".join(f"{new[one >> 1] ^ (one & 1)}\n" for one in roots)
    path.write_bytes(head.encode() + ends.encode() + bytes(body))


def _encoded(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
