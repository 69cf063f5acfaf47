"""Building blocks of claims: several designs in one, rules of streams, counters of contents."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

from amaranth.asserts import AnySeq
from amaranth.hdl import (
    Assert,
    Assume,
    Fragment,
    Module,
    ResetSignal,
    Shape,
    Signal,
    Value,
    ValueLike,
)
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.verif.library.axi import held

Watch = Callable[[Module, wiring.Component], None]
"""Adds assertions about a component, from its ports, to its module."""


class Together(wiring.Component):
    """Several designs in one claim, each with its own ports: ``name__member``."""

    def __init__(self, parts: Mapping[str, wiring.Component]) -> None:
        self.parts = dict(parts)
        super().__init__({name: Out(part.signature) for name, part in self.parts.items()})

    def elaborate(self, platform: object) -> Module:
        """Build the designs and the wires to their ports."""
        m = Module()
        for name, part in self.parts.items():
            m.submodules[name] = part
            wiring.connect(m, wiring.flipped(getattr(self, name)), part)
        return m


class Stated(wiring.Component):
    """A claim about free inputs of these widths, which ``state`` asserts."""

    def __init__(self, state: Callable[[Module, Any], None], **inputs: int) -> None:
        self._state = state
        super().__init__({name: In(width) for name, width in inputs.items()})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._state(m, self)
        return m


def pass_on(m: Module, outer: Any, inner: Any) -> None:
    """Connect the ports of ``inner`` to those of the same names in ``outer``, around it."""
    ports = {path: port for path, _, port in outer.signature.flatten(outer)}
    for path, member, port in inner.signature.flatten(inner):
        if path in ports:
            driven, driver = (ports[path], port) if member.flow == Out else (port, ports[path])
            m.d.comb += Value.cast(driven).eq(driver)


class Around(wiring.Component):
    """A design between free ports; :meth:`claims` asserts its properties."""

    def __init__(self, part: wiring.Component) -> None:
        self.part = part
        super().__init__({"ports": Out(part.signature)})

    def elaborate(self, platform: object) -> Module:
        """Build the design and the claims about it."""
        m = Module()
        part = self.part
        m.submodules.part = self._inside = Fragment.get(part, platform)  # claims may look inside
        pass_on(m, self.ports, part)
        self.claims(m)
        return m

    def block(self, name: str) -> Any:
        """Return a submodule of the design; for :meth:`claims`."""
        return self._inside.find_subfragment(name).origins[0]

    def claims(self, m: Module) -> None:
        """Add assertions about ``self.part``, and assumptions about its inputs.

        The default adds none: then only blocks inside it are watched.
        """


def streams_of(part: wiring.Component, flow: wiring.Flow) -> dict[str, stream.Interface]:
    """Return a component's output or input streams; those of an array are numbered."""
    found: dict[str, stream.Interface] = {}
    for name, member in part.signature.members.items():
        if not (member.is_signature and isinstance(member.signature, stream.Signature)):
            continue
        ports = getattr(part, name)
        every = {f"{name}_{i}": port for i, port in enumerate(ports)} if member.dimensions else None
        if member.flow == flow:
            found |= every or {name: ports}
    return found


class Handshakes(Around):
    """Every output stream of a design obeys the rule if the input streams do.

    Without ``honest`` it does so whatever the inputs do.
    """

    def __init__(self, part: wiring.Component, *, honest: bool = True) -> None:
        super().__init__(part)
        self.honest = honest

    def claims(self, m: Module) -> None:
        """Assert that outputs hold their offers; assume it of inputs."""
        if self.honest:
            self.honest_inputs(m)
        for name, port in streams_of(self.part, Out).items():
            assert_holds(m, port.valid, port.ready, port.payload, name)

    def honest_inputs(self, m: Module) -> None:
        """Assume that input streams obey the rule."""
        for name, port in streams_of(self.part, In).items():
            assume_holds(m, port.valid, port.ready, port.payload, name)


def assert_holds(
    m: Module, valid: ValueLike, ready: ValueLike, payload: ValueLike, name: str
) -> None:
    """Assert the rule of streams: an offer stays, unchanged, until it is taken."""
    m.d.comb += Assert(held(m, valid, ready, payload, name))


def assume_holds(
    m: Module, valid: ValueLike, ready: ValueLike, payload: ValueLike, name: str
) -> None:
    """Assume that the environment obeys the rule of streams. A reset ends its obligation."""
    m.d.comb += Assume(held(m, valid, ready, payload, name))


def bits_set(value: ValueLike) -> Value:
    """Count the ones, bit by bit."""
    total: Value | int = 0
    for bit in Value.cast(value):
        total = bit + total
    return Value.cast(total)


def level_of(
    m: Module,
    name: str,
    *,
    room: int,
    put: ValueLike,
    taken: ValueLike,
    clear: ValueLike,
    when: ValueLike = 1,
) -> Signal:
    """Return the content of a buffer from its inputs and outputs; assert 0 to ``room``.

    ``put`` and ``taken`` are amounts in this cycle; an amount that is put can be taken from the
    next cycle on. Nothing is asserted in a cycle of ``clear``, which empties, in a reset, or unless
    ``when``.
    """
    put, taken, clear = Value.cast(put), Value.cast(taken), Value.cast(clear)
    level = Signal(range(room + 1), name=f"{name}_level")
    after = Signal(range(2 * room + (1 << len(put))), name=f"{name}_after")
    m.d.comb += after.eq(level - taken + put)
    m.d.sync += level.eq(after)
    with m.If(clear):
        m.d.sync += level.eq(0)
    with m.Elif(~ResetSignal() & Value.cast(when)):
        m.d.comb += [Assert(taken <= level), Assert(after <= room)]
    return level


@contextlib.contextmanager
def watching(watches: Mapping[type[wiring.Component], Watch]) -> Iterator[None]:
    """Give a watch to every component of these types that is elaborated in this context."""
    with contextlib.ExitStack() as stack:
        for kind, watch in watches.items():
            stack.enter_context(mock.patch.object(kind, "elaborate", _with(kind, watch)))
        yield


@contextlib.contextmanager
def freeing(outputs: Mapping[type[wiring.Component], Sequence[str]]) -> Iterator[None]:
    """Free some outputs of every component of these types that is elaborated in this context.

    They may have any value in each cycle, whatever drives them in the real design. A property that
    still holds then holds for the real component, too; logic that only drove these outputs is
    removed.
    """
    with contextlib.ExitStack() as stack:
        for kind, names in outputs.items():
            stack.enter_context(mock.patch.object(kind, "elaborate", _freed(kind, names)))
        yield


def _freed(kind: type[wiring.Component], names: Sequence[str]) -> Callable[..., Module]:
    original = kind.elaborate

    def elaborate(self: wiring.Component, platform: object) -> Module:
        inner = copy.copy(self)
        ports = self.signature.create()
        vars(inner).update({name: getattr(ports, name) for name in self.signature.members})
        m = Module()
        m.submodules.inner = original(inner, platform)
        for path, member, port in self.signature.flatten(self):
            value = inner
            for name in path:
                value = getattr(value, str(name))
            driven, driver = (port, value) if member.flow == Out else (value, port)
            if path[0] in names:
                driver = AnySeq(Shape.cast(member.shape))
            m.d.comb += Value.cast(driven).eq(driver)
        return m

    return elaborate


def _with(kind: type[wiring.Component], watch: Watch) -> Callable[..., Module]:
    original = kind.elaborate

    def elaborate(self: wiring.Component, platform: object) -> Module:
        m: Module = original(self, platform)
        watch(m, self)
        return m

    return elaborate
