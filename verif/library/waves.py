"""Timing diagrams: selects parts of a trace and writes them as WaveDrom source."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

Trace = list[dict[str, int]]
"""Values of signals before each rising edge."""

_COLOURS = "3456789"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Channel:
    """A stream in a diagram: payload names and some of its signals."""

    valid: str
    ready: str
    data: str  # the bus whose transfers are named
    label: str  # of a transfer, with its number
    bits: tuple[str, ...] = ()  # further signals of the payload


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagram:
    """A part of a trace."""

    name: str
    title: str
    note: str
    channels: tuple[Channel, ...]
    extra: tuple[str, ...] = ()  # single bits
    around: str = ""  # the diagram begins two cycles before this signal is first 1
    cycles: int = 24


def _bits(values: Sequence[int | None]) -> str:
    """Return a wave of single bits; None is unknown."""
    marks = ["x" if value is None else str(value) for value in values]
    return "".join(
        mark if place == 0 or mark != marks[place - 1] else "." for place, mark in enumerate(marks)
    )


def _transfers(trace: Trace, channel: Channel, label: str) -> tuple[str, list[str]]:
    """Return the wave of a bus, with a new colour and label for each transfer."""
    wave, labels, held = "", list[str](), False
    numbers = itertools.count()
    for place, cycle in enumerate(trace):
        if not cycle[channel.valid]:
            idle = place == 0 or trace[place - 1][channel.valid]
            wave, held = wave + ("x" if idle else "."), False
            continue
        if held:
            wave += "."
        else:
            wave += _COLOURS[len(labels) % len(_COLOURS)]
            labels.append(f"{label}{next(numbers)}")
        held = not cycle[channel.ready]
    return wave, labels


def _lines(trace: Trace, diagram: Diagram) -> Iterator[dict[str, Any]]:
    yield {"name": "clk", "wave": "p" + "." * (len(trace) - 1)}
    for channel in diagram.channels:
        yield {}
        for name in (channel.valid, channel.ready):
            yield {"name": name, "wave": _bits([cycle[name] for cycle in trace])}
        wave, labels = _transfers(trace, channel, channel.label)
        yield {"name": channel.data, "wave": wave, "data": labels}
        for name in channel.bits:
            seen = [cycle[name] if cycle[channel.valid] else None for cycle in trace]
            yield {"name": name, "wave": _bits(seen)}
    if diagram.extra:
        yield {}
    for name in diagram.extra:
        yield {"name": name, "wave": _bits([cycle[name] for cycle in trace])}


def source(trace: Trace, diagram: Diagram) -> str:
    """Return the WaveDrom source of a diagram, one signal per line."""
    first = next(place for place, cycle in enumerate(trace) if cycle[diagram.around])
    part = trace[max(0, first - 2) :][: diagram.cycles]
    signals = ",\n".join("  " + json.dumps(line) for line in _lines(part, diagram))
    head, foot = json.dumps({"text": diagram.title}), json.dumps({"text": diagram.note})
    return f'{{"signal": [\n{signals}\n],\n"head": {head},\n"foot": {foot}}}\n'


def axi_stream(name: str, label: str, *bits: str, prefix: str = "s_axis") -> Channel:
    """Return an AXI4-Stream with these bits beside its data."""
    return Channel(
        valid=f"{prefix}_{name}_tvalid",
        ready=f"{prefix}_{name}_tready",
        data=f"{prefix}_{name}_tdata",
        label=label,
        bits=tuple(f"{prefix}_{name}_{bit}" for bit in bits),
    )


def axi(prefix: str, data: str, label: str, *bits: str) -> Channel:
    """Return a channel of AXI4 or AXI4-Lite, named by the bus ``data``."""
    return Channel(
        valid=f"{prefix}valid",
        ready=f"{prefix}ready",
        data=f"{prefix}{data}",
        label=label,
        bits=tuple(f"{prefix}{bit}" for bit in bits),
    )
