"""Connections between parts, and between parts and the AXI channels of a top."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import stream
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import VALUE


def drive(m: Module, target: object, source: object, *names: str) -> None:
    """Drive the named ports of ``target`` from those of ``source``."""
    m.d.comb += [getattr(target, name).eq(getattr(source, name)) for name in names]


def axi_channel(name: str, flow: type[In] | type[Out], **fields: int) -> dict[str, object]:
    """Return the ports of an AXI channel in this direction: its fields, then ``valid`` and
    ``ready``.

    All begin with ``name``, which for an AXI4-Stream ends in ``_t``.
    """
    back = In if flow is Out else Out
    ports: dict[str, object] = {f"{name}{field}": flow(width) for field, width in fields.items()}
    return ports | {f"{name}valid": flow(1), f"{name}ready": back(1)}


def handshake(m: Module, top: Any, name: str, port: stream.Interface) -> None:
    """Connect valid and ready of :func:`axi_channel` to those of a stream."""
    valid, ready = getattr(top, f"{name}valid"), getattr(top, f"{name}ready")
    if top.signature.members[f"{name}valid"].flow is In:
        m.d.comb += [port.valid.eq(valid), ready.eq(port.ready)]
    else:
        m.d.comb += [valid.eq(port.valid), port.ready.eq(ready)]


def values_in(m: Module, top: Any, values: stream.Interface) -> None:
    """Connect ``s_axis_values`` to a TensorWord stream; ``tkeep`` has two equal bits per lane."""
    handshake(m, top, "s_axis_values_t", values)
    m.d.comb += [
        Value.cast(values.payload.values).eq(top.s_axis_values_tdata),
        values.payload.keep.eq(Cat(top.s_axis_values_tkeep[:: VALUE // 8])),
        values.payload.last.eq(top.s_axis_values_tlast),
    ]


def values_out(m: Module, top: Any, values: stream.Interface) -> None:
    """Connect a stream of ValueBeat to ``m_axis_values``."""
    handshake(m, top, "m_axis_values_t", values)
    beat = values.payload
    m.d.comb += [
        top.m_axis_values_tdata.eq(beat.values),
        top.m_axis_values_tkeep.eq(Cat(lane.replicate(VALUE // 8) for lane in beat.present)),
        top.m_axis_values_tlast.eq(beat.last),
        top.m_axis_values_tuser.eq(beat.error),
    ]
