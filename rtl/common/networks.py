"""Combinational networks that the blocks share: prefix sums, rotation, expansion, compaction.

All functions take the module ``m`` that they add their nodes to, and return lists of signals. Depth
is logarithmic in the number of elements.

``expand`` and ``compact`` are butterflies. Elements are numbered by a running sequence number, and
element ``s`` is stored at place ``s mod 2^k`` of a circular store. In a half-block of ``h = 2^b``
places whose first lane wants number ``S``, place ``p`` must hold the number ``s`` with ``S <= s < S
+ h`` and ``s = p (mod h)``; its bit ``b`` is ``S[b]`` if ``p >= S mod h``, else the opposite. One
level therefore selects by ``S[b] xor (p < S[b-1:0])``, and rotation and expansion cost one network
of ``log2`` levels together.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence

from amaranth.hdl import Module, Mux, Shape, Signal, Value, ValueLike


def _signal(m: Module, value: ValueLike, name: str, width: int | None = None) -> Signal:
    cast = Value.cast(value)
    node = Signal(Shape(len(cast) if width is None else width), name=name)
    m.d.comb += node.eq(cast)
    return node


def popcount(bits: Value) -> Value:
    """Count the ones in ``bits`` with a balanced tree of adders."""
    terms: list[Value] = [bits[i] for i in range(len(bits))]
    while len(terms) > 1:
        paired = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = paired + ([terms[-1]] if len(terms) % 2 else [])
    return terms[0]


def prefix_sums(m: Module, terms: Sequence[Value], width: int, name: str) -> list[Signal]:
    """Return inclusive prefix sums modulo ``2^width`` (Sklansky: logarithmic depth)."""
    sums: list[Signal] = [_signal(m, term, f"{name}_{i}", width) for i, term in enumerate(terms)]
    span = 1
    while span < len(terms):
        level = list(sums)
        for i in range(len(terms)):
            if i & span:
                left = sums[(i // span) * span - 1]
                level[i] = _signal(m, left + sums[i], f"{name}_{span}_{i}", width)
        sums = level
        span *= 2
    return sums


def prefix_sums_from(
    m: Module, base: Value, terms: Sequence[Value], width: int, name: str
) -> list[Signal]:
    """Return :func:`prefix_sums` with ``base`` added to each sum.

    The base joins by carry-save where two sums meet in the last level, so it adds no carry chain.
    """
    half = 1 << max((len(terms) - 1).bit_length() - 1, 0)
    low = prefix_sums(m, terms[:half], width, f"{name}_low")
    high = prefix_sums(m, terms[half:], width, f"{name}_high")
    sums: list[Value] = [base + one for one in low]
    for one in high:
        three = Value.cast(base), low[-1], one
        parity, carry = three[0] ^ three[1] ^ three[2], _majority(*three)
        sums.append(parity + (carry << 1))
    return [_signal(m, total, f"{name}_{i}", width) for i, total in enumerate(sums)]


def _majority(a: Value, b: Value, c: Value) -> Value:
    return (a & b) | (a & c) | (b & c)


def choose(m: Module, items: Sequence[Value], index: Value, name: str) -> Value:
    """Return item ``index``; zero past the last item.

    Two bits of the index are decoded at a time: an AND-OR of four takes fewer gates than three
    multiplexers.
    """
    nodes, width = list(items), len(items[0])
    for low in range(0, len(index), 2):
        digit = index[low : low + 2]
        ways = [
            _signal(m, digit == way, f"{name}_{low}_is_{way}") for way in range(1 << len(digit))
        ]
        nodes = [
            _either(
                node & way.replicate(width) for node, way in zip(nodes[first:], ways, strict=False)
            )
            for first in range(0, len(nodes), len(ways))
        ]
    return nodes[0]


def one_of(choices: Iterable[tuple[Value, Value]]) -> Value:
    """Return the value whose flag (first of each pair) is set; zero if no flag is. An AND-OR."""
    return _either(value & flag.replicate(len(value)) for flag, value in choices)


def _either(terms: Iterable[Value]) -> Value:
    return functools.reduce(operator.or_, terms)


def select_bit(start: Value, bit: int, place: int) -> Value:
    """Return bit ``bit`` of the number at ``place`` of a half-block that starts at ``start``."""
    if place == (1 << bit) - 1:
        return start[bit]
    return start[bit] ^ (start[:bit] > place)


def rotate(m: Module, store: Sequence[Value], head: Value, outputs: int, name: str) -> list[Value]:
    """Return ``outputs`` elements of a circular store of ``2^k``, starting at ``head``."""
    nodes = list(store)
    for bit in reversed(range(len(head))):
        needed = min(len(store), outputs + (1 << bit) - 1)
        nodes = [
            _signal(
                m,
                Mux(head[bit], nodes[(i + (1 << bit)) % len(nodes)], nodes[i]),
                f"{name}_{bit}_{i}",
            )
            for i in range(needed)
        ]
    return nodes[:outputs]


def shift(
    m: Module,
    items: Sequence[Value],
    amount: Value,
    outputs: int,
    name: str,
    most: int | None = None,
) -> list[Value]:
    """Return ``outputs`` items starting at ``amount``; zero past the last item.

    Arbitrary if ``amount`` is above ``most``.
    """
    nodes = list(items)
    left = (1 << len(amount)) - 1 if most is None else most  # maximum of the remaining shift
    for bit in reversed(range(left.bit_length())):
        step = 1 << bit
        moved = outputs + left - step  # nodes that matter if this bit is set
        higher: list[ValueLike] = [*nodes[step:], *([0] * step)]
        chosen = [
            _signal(m, Mux(amount[bit], higher[i], nodes[i]), f"{name}_{bit}_{i}")
            for i in range(min(len(nodes), moved))
        ]
        left = min(left, step - 1)
        nodes = (chosen + nodes[len(chosen) :])[: outputs + left]
    return nodes[:outputs]


def expand(m: Module, store: Sequence[Value], starts: Sequence[Value], name: str) -> list[Value]:
    """Give lane ``i`` element ``starts[i]`` of a circular store.

    ``store`` has ``2^k`` places, at least as many as there are lanes. ``starts[i]`` has at least
    ``k`` bits and grows by at most one from lane to lane. A lane whose number equals that of the
    next lane takes no element and gets an arbitrary one.
    """
    return expand_by(m, store, choices(len(store), starts), name)


def choices(places: int, starts: Sequence[Value]) -> list[list[Value]]:
    """Return the selection bits of :func:`expand`, level by level, one bit per node."""
    levels = []
    half = places // 2
    while half:
        bit = half.bit_length() - 1
        blocks = starts[:: min(half, len(starts))]
        levels.append([select_bit(start, bit, i) for start in blocks for i in range(half)])
        half //= 2
    return levels


def expand_by(
    m: Module, store: Sequence[Value], levels: Sequence[Sequence[Value]], name: str
) -> list[Value]:
    """Expand by the selection bits of :func:`choices`; see :func:`expand`."""
    nodes = list(store)
    half = len(store) // 2
    for level, bits in enumerate(levels):
        chosen: list[Value] = []
        for node, high in enumerate(bits):
            low = node // (2 * half) * 2 * half + node % half
            value = Mux(high, nodes[low + half], nodes[low])
            chosen.append(_signal(m, value, f"{name}_x{half}_{level}_{node}"))
        nodes, half = chosen, half // 2
    return nodes


def compact(
    m: Module,
    inputs: Sequence[Value],
    starts: Sequence[Value],
    name: str,
    first: int = 1,
) -> list[Value]:
    """Move element ``i`` to place ``starts[i] mod n``; the mirror of :func:`expand`.

    ``inputs`` has ``n = 2^k`` elements. ``starts[i]`` grows by one after each element that counts
    and stays the same after one that does not. Places that receive no element hold arbitrary ones.

    ``first`` builds only some of the levels: in each block of ``first`` inputs the elements are at
    their places modulo ``first`` already, and only the starts of such blocks are used.
    """
    nodes = list(inputs)
    half = first
    while half < len(inputs):
        nodes = _compact_level(m, nodes, starts, half, name)
        half *= 2
    return nodes


def _compact_level(
    m: Module, nodes: Sequence[Value], starts: Sequence[Value], half: int, name: str
) -> list[Value]:
    bit = half.bit_length() - 1
    level: list[Value] = []
    for base in range(0, len(nodes), 2 * half):
        low, high = nodes[base : base + half], nodes[base + half : base + 2 * half]
        swaps = [select_bit(starts[base + half], bit, place) for place in range(half)]
        for out, (first, second) in enumerate(((low, high), (high, low))):
            for place, keep in enumerate(swaps):
                chosen = Mux(keep, first[place], second[place])
                level.append(_signal(m, chosen, f"{name}_c{half}_{base}_{out}_{place}"))
    return level
