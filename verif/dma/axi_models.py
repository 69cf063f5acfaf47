"""What the suites use of cocotbext-axi, behind names of their own; no other file imports it.

It is not released for the interfaces of cocotb 2 and calls what cocotb deprecates. Another model
that offers these names can take its place: the memories, the host and their tests stay as they are.
Whether a port keeps the rules of AXI is not checked here, but by
:mod:`cassandra_spec.verif.library.axi`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import Any

from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiReadBus, AxiWriteBus
from cocotbext.axi.axi_channels import AxiARSink, AxiAWSink, AxiBSource, AxiRSource, AxiWSink

_QUEUED = 2  # items that a channel may hold between the wires and the memory


class Response(enum.IntEnum):
    """RRESP or BRESP."""

    OKAY = 0
    SLVERR = 2
    DECERR = 3


class Channel:
    """One channel of a port: items are taken from it, or offered on it, in order."""

    def __init__(self, model: Any) -> None:
        self._model = model

    async def take(self) -> Any:
        """The next item that the design offers; its fields have the names of the wires."""
        return await self._model.recv()

    async def offer(self, **fields: int) -> None:
        """Offer an item to the design; returns when there is room for another."""
        await self._model.send(self._model._transaction_obj(**fields))

    def pace(self, active: Iterator[bool] | None) -> None:
        """Move in the cycles that are ``active``; None: in every cycle."""
        self._model.clear_pause_generator()
        self._model.pause = False
        if active is not None:
            self._model.set_pause_generator(not moves for moves in active)

    def clear(self) -> None:
        """Forget what waits."""
        self._model.clear()


def _channel(dut: Any, kind: type[Any], bus: Any, *, queued: int = 0) -> Channel:
    model = kind(bus, dut.clk, dut.rst)
    if queued:
        model.queue_occupancy_limit = queued
    return Channel(model)


def read_channels(dut: Any) -> tuple[Channel, Channel]:
    """AR and R of the port ``m_axi``, as its memory sees them."""
    bus = AxiReadBus.from_prefix(dut, "m_axi")
    return _channel(dut, AxiARSink, bus.ar), _channel(dut, AxiRSource, bus.r, queued=_QUEUED)


def write_channels(dut: Any) -> tuple[Channel, Channel, Channel]:
    """AW, W and B of the port ``m_axi``, as its memory sees them."""
    bus = AxiWriteBus.from_prefix(dut, "m_axi")
    parts = ((AxiAWSink, bus.aw), (AxiWSink, bus.w), (AxiBSource, bus.b))
    aw, w, b = (_channel(dut, kind, wires, queued=_QUEUED) for kind, wires in parts)
    return aw, w, b


class Registers:
    """A register port, AXI4-Lite, as its host sees it. Offsets are in bytes."""

    def __init__(self, dut: Any, prefix: str) -> None:
        self._port = AxiLiteMaster(AxiLiteBus.from_prefix(dut, prefix), dut.clk, dut.rst)

    def pace(self, patterns: Iterable[Iterator[bool] | None]) -> None:
        """Move in the cycles that are active: AW, W, B, AR and R, each as :meth:`Channel.pace`."""
        write, read = self._port.write_if, self._port.read_if
        models = (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel)
        for model, active in zip((*models, read.r_channel), patterns, strict=True):
            Channel(model).pace(active)

    async def read(self, offset: int) -> tuple[int, Response]:
        """Four bytes, and the response."""
        done = await self._port.read(offset, 4)
        return int.from_bytes(done.data, "little"), Response(done.resp)

    async def write(self, offset: int, data: bytes) -> Response:
        """Write bytes; byte strobes select them."""
        return Response((await self._port.write(offset, data)).resp)
