"""The encoder's top against golden.encode, byte for byte, at every pace.

``CASSANDRA_COVERAGE`` names the file for the coverage counts.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from pathlib import Path
from typing import Any

import cocotb
import numpy as np

from cassandra_spec.golden.format import SCHEMES, Scheme
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.verif.encoder.bench import PACES, EncoderBench, Ended, Order, broken
from cassandra_spec.verif.encoder.cases import (
    KINDS,
    directed,
    draw_segment,
    every_kind,
    extremes,
    values_of,
)
from cassandra_spec.verif.encoder.sampling import sample_extremes, sample_segment, share_of
from cassandra_spec.verif.library.coverage import Coverage
from cassandra_spec.verif.library.patterns import PATTERNS

COVERAGE = Coverage()

CONFIGS = {
    "l8": EncoderConfig(lanes=8, codebook=32, window=3, group=64, segment=2048),
    "l16": EncoderConfig(segment=2048),
    "l16_c4": EncoderConfig(segment=2048, values_per_cycle=4),
    "l32": EncoderConfig(lanes=32, window=1, vector=64, segment=2048, superblock=256),
    "l32_c8": EncoderConfig(lanes=32, vector=64, segment=2048, values_per_cycle=8),
}
"""Encoders under test, by name."""


async def _start(dut: Any) -> EncoderBench:
    config = CONFIGS[os.environ["CASSANDRA_ENCODER"]]
    return await EncoderBench(dut, cocotb.RANDOM_SEED, config).started()


async def encode(bench: EncoderBench, orders: list[Order]) -> None:
    """Send everything, compare and sample everything."""
    bench.submit(orders)
    await bench.finish()
    ended, bench.scoreboard.ended = bench.scoreboard.ended, []
    for one in ended:
        _sample(one, bench.config)
    for before, after in itertools.pairwise(one.order for one in ended):
        for cause in before.causes if not after.causes else ():
            COVERAGE.sample(f"encode_recovery.{cause}")
    for name, agent in (*bench.sources.items(), *bench.sinks.items()):
        COVERAGE.sample_if(agent.stalled > 0, f"encode_stall.{name}.held")
        COVERAGE.sample_if(agent.starved > 0, f"encode_stall.{name}.starved")


def _sample(ended: Ended, config: EncoderConfig) -> None:
    """Sample the bins of a segment; one with a cause shows only that cause."""
    segment, causes = ended.order.segment, ended.order.causes
    for cause in causes:
        COVERAGE.sample(f"encode_error.{cause}")
    if not causes:
        sample_segment(COVERAGE, segment)
        sample_extremes(COVERAGE, segment, config)
        share = share_of(segment.chosen)
        for port in ended.held:
            COVERAGE.sample(f"encode_held.{segment.format.scheme}.{share}.{port}")


@cocotb.test()
async def segments_of_every_kind(dut: Any) -> None:
    """Idle x back-pressure x values of all kinds in all schemes and settings."""
    bench = await _start(dut)
    segments = every_kind(bench.rng, bench.config)
    for idle, pressure in itertools.product(PACES, PACES):
        dut._log.info("idle %s, back-pressure %s", idle, pressure)
        bench.use(dict.fromkeys(bench.sources, PATTERNS[idle]))
        bench.use(dict.fromkeys(bench.sinks, PATTERNS[pressure]))
        await encode(bench, [Order.of(next(segments)) for _ in range(8)])


@cocotb.test()
async def each_output_waits_alone(dut: Any) -> None:
    """A region or the results stall while the others are taken."""
    bench = await _start(dut)
    segments = every_kind(bench.rng, bench.config)
    for name in bench.sinks:
        bench.use(dict.fromkeys(bench.sinks, PATTERNS["always"]))
        bench.use({name: PATTERNS["stall"]})
        await encode(bench, [Order.of(next(segments)) for _ in range(12)])


@cocotb.test()
@cocotb.parametrize(scheme=list(SCHEMES))
async def k_of_every_kind(dut: Any, scheme: Scheme) -> None:
    """None, one, half, all but one and all are kept; the last vector is cut short.

    Outputs stall in every second kind.
    """
    bench = await _start(dut)
    free = dict.fromkeys(bench.sinks, PATTERNS["always"])
    slow = dict.fromkeys(bench.sinks, PATTERNS["half"]) | {"result": PATTERNS["rare"]}
    for number, kind in enumerate(KINDS):
        bench.use(slow if number % 2 else free)
        await encode(
            bench,
            [Order.of(segment) for segment in directed(bench.rng, bench.config, scheme, kind)],
        )


@cocotb.test()
@cocotb.parametrize(scheme=list(SCHEMES))
async def whole_segments(dut: Any, scheme: Scheme) -> None:
    """The maximum number of values: all, none, half and all but one are kept."""
    bench = await _start(dut)
    count, vector = bench.config.segment, 64
    for kind in ("normal", "wide", "any"):
        base = draw_segment(bench.rng, bench.config, scheme, kind)
        values = values_of(bench.rng, kind, count)
        base = dataclasses.replace(base, values=values, vector=vector, mask=True)
        keeps = (None, 0, vector // 2, vector - 1)
        await encode(bench, [Order.of(dataclasses.replace(base, keep=keep)) for keep in keeps])


@cocotb.test()
@cocotb.parametrize(scheme=list(SCHEMES))
async def extremes_of_sums_and_queues(dut: Any, scheme: Scheme) -> None:
    """Each quantity may have its minimum and its maximum."""
    bench = await _start(dut)
    await encode(bench, [Order.of(one) for one in extremes(bench.rng, bench.config, scheme)])


@cocotb.test()
async def a_segment_without_a_mask(dut: Any) -> None:
    """All values are kept; unary reports an exponent that is not in the codebook."""
    bench = await _start(dut)
    orders = []
    for segment in itertools.islice(every_kind(bench.rng, bench.config), 60):
        plain = dataclasses.replace(segment, keep=None, mask=False)
        missed = plain.errors() != 0
        if missed:
            values = np.full_like(plain.values, plain.codebook[0] << 7)
            plain = dataclasses.replace(plain, values=values)
        orders.append(Order.of(plain))
    await encode(bench, orders)


@cocotb.test()
async def after_an_error_the_next_segment_is_right(dut: Any) -> None:
    """Broken packets and commands between good ones."""
    bench = await _start(dut)
    segments = every_kind(bench.rng, bench.config)
    for pace in PACES:
        bench.use(dict.fromkeys(bench.sources, PATTERNS[pace]))
        orders = []
        for _ in range(12):
            wrong = broken(bench.rng, bench.config, next(segments))
            orders += [wrong, Order.of(next(segments))]
        await encode(bench, orders)


@cocotb.test()
async def reset_in_the_middle(dut: Any) -> None:
    """Reset at any state; the next segment is right."""
    bench = await _start(dut)
    segments = every_kind(bench.rng, bench.config)
    for cycles in (1, 5, 20, 33, 60, 100, 200):
        bench.submit([Order.of(next(segments)) for _ in range(6)])
        await bench.run(cycles)
        busy = bool(dut.busy.value)
        await bench.reset()
        await encode(bench, [Order.of(next(segments)) for _ in range(2)])
        COVERAGE.sample_if(busy, "encode_reset.busy")


@cocotb.test()
async def the_coverage_is_saved(dut: Any) -> None:
    """Last of the module."""
    path = os.environ.get("CASSANDRA_COVERAGE")
    if path:
        COVERAGE.save(Path(path))
    assert any(COVERAGE.hits.values())
