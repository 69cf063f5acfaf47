"""Wires between parts, and between parts and the AXI4-Stream ports of a top."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import VALUE

__all__ = ["axi_stream", "drive", "handshake", "values_in", "values_out"]


def drive(m: Module, target: object, source: object, *names: str) -> None:
    """Drive the ports of these names of ``target`` by those of ``source``."""
    m.d.comb += [getattr(target, name).eq(getattr(source, name)) for name in names]


def axi_stream(name: str, flow: type[In] | type[Out], **fields: int) -> dict[str, object]:
    """Ports of an AXI4-Stream that flows this way: ``name_tvalid``, ``name_tready``, and fields."""
    back = In if flow is Out else Out
    ports: dict[str, object] = {f"{name}_{field}": flow(width) for field, width in fields.items()}
    ports[f"{name}_tvalid"] = flow(1)
    ports[f"{name}_tready"] = back(1)
    return ports


def handshake(m: Module, top: wiring.Component, name: str, port: stream.Interface) -> None:
    """Valid and ready of a stream from ``s_axis_...`` or to ``m_axis_...``, as ``name`` begins."""
    valid, ready = getattr(top, f"{name}_tvalid"), getattr(top, f"{name}_tready")
    if name.startswith("s_"):
        m.d.comb += [port.valid.eq(valid), ready.eq(port.ready)]
    else:
        m.d.comb += [valid.eq(port.valid), port.ready.eq(ready)]


def values_in(m: Module, top: wiring.Component, values: stream.Interface) -> None:
    """``s_axis_values`` to a stream of TensorWord; ``tkeep`` has two equal bits for each lane."""
    handshake(m, top, "s_axis_values", values)
    m.d.comb += [
        Value.cast(values.payload.values).eq(top.s_axis_values_tdata),
        values.payload.keep.eq(Cat(top.s_axis_values_tkeep[:: VALUE // 8])),
        values.payload.last.eq(top.s_axis_values_tlast),
    ]


def values_out(m: Module, top: wiring.Component, values: stream.Interface) -> None:
    """A stream of ValueBeat to ``m_axis_values``."""
    handshake(m, top, "m_axis_values", values)
    beat = values.payload
    m.d.comb += [
        top.m_axis_values_tdata.eq(beat.values),
        top.m_axis_values_tkeep.eq(Cat(lane.replicate(VALUE // 8) for lane in beat.present)),
        top.m_axis_values_tlast.eq(beat.last),
        top.m_axis_values_tuser.eq(beat.error),
    ]
