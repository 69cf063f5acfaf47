"""The encoder's top against golden.encode, byte for byte, at every pace."""

from __future__ import annotations

import dataclasses
import itertools
import os
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock

from golden.format import SCHEMES, Scheme
from rtl.encoder_types import EncoderConfig
from verif.encoder_bench import EncoderBench, Order
from verif.encoder_cases import KINDS, draw_segment, every_kind, values_of
from verif.encoder_model import Segment
from verif.patterns import PATTERNS

PACES = ("always", "half", "burst", "stall")

CONFIGS = {
    8: EncoderConfig(lanes=8, codebook=32, window=3, group=64, segment=2048),
    16: EncoderConfig(segment=2048),
    32: EncoderConfig(lanes=32, window=1, vector=64, segment=2048, superblock=256),
}
"""Encoders under test, by lanes."""


async def _start(dut: Any) -> EncoderBench:
    bench = EncoderBench(dut, cocotb.RANDOM_SEED, CONFIGS[int(os.environ["CASSANDRA_LANES"])])
    Clock(dut.clk, 2, unit="ns").start()
    await bench.reset()
    return bench


@cocotb.test()
async def segments_of_every_kind(dut: Any) -> None:
    """Idle x back-pressure x values of all kinds in all schemes and settings."""
    bench = await _start(dut)
    segments = every_kind(bench.rng, bench.config)
    for idle, pressure in itertools.product(PACES, PACES):
        dut._log.info("idle %s, back-pressure %s", idle, pressure)
        bench.use(dict.fromkeys(bench.sources, PATTERNS[idle]))
        bench.use(dict.fromkeys(bench.sinks, PATTERNS[pressure]))
        bench.submit([Order.of(next(segments)) for _ in range(8)])
        await bench.finish()


@cocotb.test()
async def each_output_waits_alone(dut: Any) -> None:
    """A region, or the results, are held while the others are taken."""
    bench = await _start(dut)
    segments = every_kind(bench.rng, bench.config)
    for name in bench.sinks:
        bench.use(dict.fromkeys(bench.sinks, PATTERNS["always"]))
        bench.use({name: PATTERNS["stall"]})
        bench.submit([Order.of(next(segments)) for _ in range(12)])
        await bench.finish()


def _directed(bench: EncoderBench, scheme: Scheme, kind: str) -> list[Segment]:
    """Every kind of k over vectors of 64 values and of the longest length."""
    config = bench.config
    found = []
    for vector in (64, config.vector):
        base = draw_segment(bench.rng, config, scheme, kind, whole_vectors=True)
        values = values_of(bench.rng, kind, 2 * vector + int(bench.rng.integers(vector)))
        for keep in (0, 1, vector // 2, vector - 1, vector, None):
            found.append(
                dataclasses.replace(base, values=values, vector=vector, keep=keep, mask=True)
            )
    return found


@cocotb.test()
@cocotb.parametrize(scheme=list(SCHEMES))
async def k_of_every_kind(dut: Any, scheme: Scheme) -> None:
    """None, one, half, all but one and all are kept; the last vector is cut short."""
    bench = await _start(dut)
    for kind in KINDS:
        bench.submit([Order.of(segment) for segment in _directed(bench, scheme, kind)])
        await bench.finish()


@cocotb.test()
@cocotb.parametrize(scheme=list(SCHEMES))
async def whole_segments(dut: Any, scheme: Scheme) -> None:
    """As many values as the encoder takes: all, none, half and all but one are kept."""
    bench = await _start(dut)
    count, vector = bench.config.segment, 64
    for kind in ("normal", "wide", "any"):
        base = draw_segment(bench.rng, bench.config, scheme, kind)
        values = values_of(bench.rng, kind, count)
        for keep in (None, 0, vector // 2, vector - 1):
            segment = dataclasses.replace(base, values=values, vector=vector, keep=keep, mask=True)
            bench.submit([Order.of(segment)])
        await bench.finish()


@cocotb.test()
async def a_segment_without_a_mask(dut: Any) -> None:
    """Everything is kept; in unary every exponent is in the codebook, or the miss is named."""
    bench = await _start(dut)
    orders = []
    for segment in itertools.islice(every_kind(bench.rng, bench.config), 60):
        plain = dataclasses.replace(segment, keep=None, mask=False)
        missed = plain.errors() != 0
        if missed:
            values = np.full_like(plain.values, plain.codebook[0] << 7)
            plain = dataclasses.replace(plain, values=values)
        orders.append(Order.of(plain))
    bench.submit(orders)
    await bench.finish()


def _broken(bench: EncoderBench, segment: Segment) -> Order:
    """A packet of another length, a command that cannot be obeyed, or values that are refused."""
    count = segment.values.size
    given = tuple(segment.values.tolist())
    kind = int(bench.rng.integers(3))
    if kind == 0 and count > 1:
        short = dataclasses.replace(segment, values=segment.values[: count // 2])
        return Order(
            segment=segment,
            values=given[: count // 2],
            expected=short,
            causes=frozenset({"short"}),
        )
    if kind == 1:
        longer = given + given[:1] * int(bench.rng.integers(1, 60))
        return Order(segment=segment, values=longer, expected=segment, causes=frozenset({"long"}))
    return Order(
        segment=segment,
        word=segment.word | 3 << 16,
        expected=None,
        causes=frozenset({"command"}),
    )


@cocotb.test()
async def after_an_error_the_next_segment_is_right(dut: Any) -> None:
    """Broken packets and commands between good ones."""
    bench = await _start(dut)
    segments = every_kind(bench.rng, bench.config)
    for pace in PACES:
        bench.use(dict.fromkeys(bench.sources, PATTERNS[pace]))
        orders = []
        for _ in range(12):
            orders += [_broken(bench, next(segments)), Order.of(next(segments))]
        bench.submit(orders)
        await bench.finish()


@cocotb.test()
async def reset_in_the_middle(dut: Any) -> None:
    """Whatever was inside, what comes after a reset is right."""
    bench = await _start(dut)
    segments = every_kind(bench.rng, bench.config)
    for cycles in (1, 5, 20, 33, 60, 100, 200):
        bench.submit([Order.of(next(segments)) for _ in range(6)])
        await bench.run(cycles)
        await bench.reset()
        bench.submit([Order.of(next(segments)) for _ in range(2)])
        await bench.finish()
