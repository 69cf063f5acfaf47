"""AXI models for the suites: a thin layer over cocotbext-axi, which no other file imports.

cocotbext-axi is not released for cocotb 2 and calls interfaces that cocotb deprecates. Another
model with these names can replace it without changes to memories, host and tests.
:mod:`cassandra_spec.verif.library.axi` checks the AXI rules, not this module.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiReadBus, AxiWriteBus
from cocotbext.axi.axi_channels import AxiARSink, AxiAWSink, AxiBSource, AxiRSource, AxiWSink

_QUEUED = 2  # items of a channel between wires and memory


class Response(enum.IntEnum):
    """A response code: RRESP or BRESP."""

    OKAY = 0
    SLVERR = 2
    DECERR = 3


class Channel:
    """One channel of a port: takes items from the design, or offers items, in order."""

    def __init__(self, model: Any) -> None:
        self._model = model

    async def take(self) -> Any:
        """Wait for the next item that the design offers; its fields have the names of the wires."""
        return await self._model.recv()

    async def offer(self, **fields: int) -> None:
        """Offer an item to the design; return when there is room for another."""
        await self._model.send(self._model._transaction_obj(**fields))

    def pace(self, active: Iterator[bool] | None) -> None:
        """Move in the ``active`` cycles; None: in every cycle."""
        self._model.clear_pause_generator()
        self._model.pause = False
        if active is not None:
            self._model.set_pause_generator(not moves for moves in active)

    def clear(self) -> None:
        """Drop all waiting items."""
        self._model.clear()


def _channel(dut: Any, kind: type[Any], bus: Any, *, queued: int = 0) -> Channel:
    model = kind(bus, dut.clk, dut.rst)
    if queued:
        model.queue_occupancy_limit = queued
    return Channel(model)


def read_channels(dut: Any) -> tuple[Channel, Channel]:
    """Return AR and R of the port ``m_axi``, from the memory's side."""
    bus = AxiReadBus.from_prefix(dut, "m_axi")
    return _channel(dut, AxiARSink, bus.ar), _channel(dut, AxiRSource, bus.r, queued=_QUEUED)


def write_channels(dut: Any) -> tuple[Channel, Channel, Channel]:
    """Return AW, W and B of the port ``m_axi``, from the memory's side."""
    bus = AxiWriteBus.from_prefix(dut, "m_axi")
    parts = ((AxiAWSink, bus.aw), (AxiWSink, bus.w), (AxiBSource, bus.b))
    aw, w, b = (_channel(dut, kind, wires, queued=_QUEUED) for kind, wires in parts)
    return aw, w, b


class Registers:
    """An AXI4-Lite register port from the host's side. Offsets are in bytes."""

    def __init__(self, dut: Any, prefix: str) -> None:
        self._port = AxiLiteMaster(AxiLiteBus.from_prefix(dut, prefix), dut.clk, dut.rst)
        for part in (self._port.write_if, self._port.read_if):  # two lines for each access
            part.log.setLevel(logging.WARNING)

    def pace(self, patterns: Iterable[Iterator[bool] | None]) -> None:
        """Move in the cycles that are active: AW, W, B, AR and R, each as :meth:`Channel.pace`."""
        write, read = self._port.write_if, self._port.read_if
        models = (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel)
        for model, active in zip((*models, read.r_channel), patterns, strict=True):
            Channel(model).pace(active)

    async def read(self, offset: int) -> tuple[int, Response]:
        """Read four bytes; return them with the response."""
        done = await self._port.read(offset, 4)
        return int.from_bytes(done.data, "little"), Response(done.resp)

    async def write(self, offset: int, data: bytes) -> Response:
        """Write bytes; byte strobes select them."""
        return Response((await self._port.write(offset, data)).resp)
