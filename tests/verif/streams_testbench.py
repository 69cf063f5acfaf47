"""cocotb tests of the drivers and checks, on the register stage of test_streams.py."""

from __future__ import annotations

from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock

from cassandra_spec.verif.library.patterns import ALWAYS, PATTERNS, Kind, Pattern
from cassandra_spec.verif.library.streams import Bench, Port, ProtocolError, Sink, Source
from tests.verif.stages import CHANGES, DROPS, RIGHT, WAITS, Stage

NEVER = Pattern(kind=Kind.PERIODIC, on=1, off=1 << 30)


def design() -> Stage:
    """Return the design of every test."""
    return Stage()


async def start(dut: Any, fault: int) -> tuple[Bench, Source, Sink]:
    Clock(dut.clk, 2, unit="ns").start()
    dut.fault.value = fault
    bench = Bench(dut, cocotb.RANDOM_SEED)
    source = bench.source(Port.amaranth(dut, "i"))
    sink = bench.sink(Port.axis(dut, "m_axis", ("tdata", "tlast")))
    await bench.reset()
    return bench, source, sink


@cocotb.test()
@cocotb.parametrize(idle=list(PATTERNS), pressure=list(PATTERNS))
async def everything_arrives_in_order(dut: Any, idle: str, pressure: str) -> None:
    bench, source, sink = await start(dut, RIGHT)
    source.use(PATTERNS[idle])
    sink.use(PATTERNS[pressure])
    sent = bench.rng.integers(256, size=100).tolist()
    source.send({"payload": number} for number in sent)
    await bench.until(lambda: len(sink.received) == 100, 5000)
    assert [item["tdata"] for item in sink.received] == sent
    assert [item["tlast"] for item in sink.received] == [number & 1 for number in sent]
    assert source.idle
    assert (source.moved, sink.moved) == (100, 100)
    await bench.run(50)
    assert sink.moved == 100


@cocotb.test()
async def counts_of_waiting(dut: Any) -> None:
    bench, source, sink = await start(dut, RIGHT)
    sink.use(NEVER)
    source.send({"payload": number} for number in range(3))
    await bench.run(10)
    assert (source.moved, source.stalled) == (1, 9)
    assert (sink.moved, sink.stalled, sink.starved) == (0, 9, 0)
    sink.use(ALWAYS)
    await bench.run(10)
    assert (source.moved, sink.moved) == (3, 3)
    assert sink.starved == 7


@cocotb.test()
@cocotb.parametrize(fault=[DROPS, CHANGES])
async def a_broken_stage_is_caught(dut: Any, fault: int) -> None:
    bench, source, sink = await start(dut, fault)
    sink.use(PATTERNS["half"])
    source.send({"payload": number} for number in range(100))
    message = {DROPS: "m_axis: valid fell before ready", CHANGES: "m_axis: the payload changed"}
    with pytest.raises(ProtocolError, match=message[fault]):
        await bench.run(200)


@cocotb.test()
async def valid_that_waits_for_ready_is_seen(dut: Any) -> None:
    bench, source, sink = await start(dut, WAITS)
    source.send([{"payload": 1}])
    sink.use(NEVER)
    with pytest.raises(AssertionError, match="valid must come in 50 cycles"):
        await bench.until(lambda: sink.valid, 50, "valid")


@cocotb.test()
async def reset_drops_what_is_in_hand(dut: Any) -> None:
    bench, source, sink = await start(dut, RIGHT)
    sink.use(NEVER)
    source.send({"payload": number} for number in range(5))
    await bench.until(lambda: sink.valid, 10)
    await bench.reset()
    sink.use(ALWAYS)
    await bench.run(10)
    assert not sink.received
    source.send([{"payload": 77}])
    await bench.until(lambda: bool(sink.received), 10)
    assert sink.received[0]["tdata"] == 77
