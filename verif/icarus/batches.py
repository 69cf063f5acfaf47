"""Batches of decoder and encoder: the payloads, patterns and broken input of the suites.

A batch has segments and the patterns of the ports.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from cassandra_spec.golden.format import SCHEMES, Format
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.verif.decoder.bulk import PORTS, Request
from cassandra_spec.verif.decoder.faults import bad_ranks, cuts, faults, flip_bits, shortened
from cassandra_spec.verif.decoder.jobs import Job, jobs_of, mixed_jobs, with_long_book
from cassandra_spec.verif.encoder import bulk as encoding
from cassandra_spec.verif.encoder.bench import (
    Order,
    broken,
    cut_anywhere,
    refused_behind_a_window,
    wide_fields,
)
from cassandra_spec.verif.encoder.bulk import EncodeRequest
from cassandra_spec.verif.encoder.cases import KINDS as VALUE_KINDS
from cassandra_spec.verif.encoder.cases import (
    codes,
    crowded,
    directed,
    every_kind,
    extremes,
    filling,
    finite,
    halves,
    thresholds,
)
from cassandra_spec.verif.library.bulk import Traffic
from cassandra_spec.verif.library.patterns import PATTERNS, Kind, Pattern
from cassandra_spec.verif.library.payloads import KINDS
from cassandra_spec.verif.library.payloads import directed as directed_payloads

_LONG = Pattern(kind=Kind.PERIODIC, on=200, off=2001)  # long enough to fill every queue
_FROM_THE_START = Pattern(kind=Kind.PERIODIC, on=4, off=1001)  # stalls right after a segment begins
_HANG = 3000  # cycles without a transfer; no pattern stalls that long


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """Segments, back to back, and the patterns of the ports."""

    name: str
    requests: Sequence[Any]
    traffic: Traffic
    orders: Sequence[Order] = ()  # encoder: the expected output


def _traffic(rng: np.random.Generator, inputs: str, outputs: str, ports: Sequence[str]) -> Traffic:
    names = [outputs if port in _OUTPUTS else inputs for port in ports]
    patterns = {port: PATTERNS[name] for port, name in zip(ports, names, strict=True)}
    seed = int(rng.integers(1 << 62))
    return Traffic(patterns=patterns, seed=seed, go_on=True, hang_cycles=_HANG)


_OUTPUTS = ("values of a decoder", *encoding.OUTPUTS)


def decoder_batches(rng: np.random.Generator, config: DecoderConfig) -> Iterator[Batch]:
    """Yield broken segments; directed payloads at every t; random ones in all traffic; resets."""
    lanes = config.lanes
    batch = functools.partial(_decoder_batch, rng)
    mixed = functools.partial(mixed_jobs, rng, lanes=lanes, segment=256)
    yield batch("mixed", mixed(count=30), "always", "always")
    for serial in (False, True):
        wrong = [fault.request for fault in faults(rng, lanes=lanes, schemes=SCHEMES)]
        good = [job.request for job in mixed(count=len(wrong))]
        between = [r for pair in zip(wrong, good, strict=True) for r in pair]
        yield batch(f"broken {serial}", between, "half", "half", serial=serial)
    unary = mixed(count=20, schemes=("unary",))
    yield batch("long books", [with_long_book(rng, job) for job in unary], "half", "half")
    for t, scheme in itertools.product(range(8), SCHEMES):
        fmt = Format(scheme=scheme, beat=lanes, segment=256, truncated=t)
        jobs = [job for payload in directed_payloads(rng, fmt) for job in jobs_of(payload)]
        yield batch(f"directed {scheme} {t}", jobs, *rng.choice(list(PATTERNS), 2))
    for inputs, outputs in itertools.product(PATTERNS, PATTERNS):
        yield batch(f"{inputs} x {outputs}", mixed(count=20), inputs, outputs)
    for limit in rng.integers(10, 400, size=6).tolist():
        yield batch(f"reset at {limit}", mixed(count=20), "half", "half", limit_cycles=limit)
        yield batch("after it", mixed(count=5), "half", "half")
    for _ in range(2):
        flipped = [flip_bits(rng, job, int(rng.integers(1, 4))) for job in mixed(count=100)]
        yield batch("flipped", flipped, "half", "half", serial=True)
    long = Format(beat=lanes, segment=1 << 16, group=32)
    for kind, size in (("chunks", 0), ("totals", long.segment)):
        yield batch(kind, list(jobs_of(KINDS[kind](long, rng, size))), "always", "always")
    for outputs in ("always", "stall"):
        short = [fault.request for fault in cuts(rng, lanes)]
        yield batch(f"cut {outputs}", short, "always", outputs)
    found_late = ("code", "rank", "group")  # stages behind the schedule, which finds a short region
    late = [f.request for f in faults(rng, lanes=lanes, schemes=SCHEMES) if f.cause in found_late]
    both = [cut for request in late for cut in shortened(request)]
    yield batch("wrong and cut", both, "always", "always", serial=True)
    ranks = [fault.request for fault in bad_ranks(rng, lanes)]
    yield batch("bad ranks", ranks, "always", "always")
    few = mixed(count=3)
    for limit in range(4, 400, 4):
        yield batch(f"reset in {limit}", few, "half", "half", limit_cycles=limit)
        yield batch("after it", few[:1], "half", "half")


def _decoder_batch(
    rng: np.random.Generator,
    name: str,
    work: Sequence[Job | Request],
    inputs: str,
    outputs: str,
    **settings: Any,
) -> Batch:
    traffic = _traffic(rng, inputs, inputs, PORTS)
    patterns = {**traffic.patterns, "values": PATTERNS[outputs]}
    requests = [each.request if isinstance(each, Job) else each for each in work]
    return Batch(
        name=name,
        requests=requests,
        traffic=dataclasses.replace(traffic, patterns=patterns, **settings),
    )


def encoder_batches(rng: np.random.Generator, config: EncoderConfig) -> Iterator[Batch]:
    """Yield broken packets and commands, every kind of values and of k, all traffic, resets, codes
    that end everywhere, full queues.
    """
    kinds = map(Order.of, every_kind(rng, config))
    batch = functools.partial(_encoder_batch, rng)
    some = functools.partial(itertools.islice, kinds)
    yield batch("mixed", some(27), "always", "always")
    for pace in ("always", "half", "stall"):
        pairs = [(broken(rng, config, order.segment), order) for order in some(20)]
        yield batch(f"broken {pace}", itertools.chain(*pairs), pace, pace)
    for scheme, kind in itertools.product(SCHEMES, VALUE_KINDS):
        segments = directed(rng, config, scheme, kind)
        yield batch(f"directed {scheme} {kind}", map(Order.of, segments), "always", "half")
    for inputs, outputs in itertools.product(PATTERNS, PATTERNS):
        yield batch(f"{inputs} x {outputs}", some(9), inputs, outputs)
    for limit in rng.integers(10, 400, size=6).tolist():
        yield batch(f"reset at {limit}", some(6), "always", "half", limit_cycles=limit)
        yield batch("after it", some(3), "always", "half")
    for scheme, outputs in itertools.product(SCHEMES, ("always", "stall")):
        orders = map(Order.of, extremes(rng, config, scheme))
        yield batch(f"extremes {scheme} {outputs}", orders, "always", outputs)
    yield batch("wide fields", wide_fields(rng, config), "half", "half")
    pairs = [(broken(rng, config, order.segment), order) for order in some(20)]
    yield batch("alone", itertools.chain(*pairs), "always", "always", serial=True)
    yield batch("cut anywhere", cut_anywhere(rng, config), "always", "always")
    yield batch("thresholds", map(Order.of, thresholds(rng, config)), "always", "always")
    yield batch("halves", map(Order.of, halves(rng, config)), "always", "always")
    yield batch("finite", map(Order.of, finite(rng, config)), "half", "half")
    refused = batch("refused", refused_behind_a_window(rng, config), "always", "always")
    yield _with_held(refused, "speculation")
    yield batch("codes", map(Order.of, codes(rng, config)), "always", "always")
    for scheme, port in itertools.product(SCHEMES, encoding.OUTPUTS):
        crowd = map(Order.of, crowded(rng, config, scheme))
        yield _with_held(batch(f"crowded {scheme} {port}", crowd, "always", "always"), port)
    for port, segments in filling(rng, config).items():
        orders = map(Order.of, segments)
        yield _with_held(batch(f"full {port}", orders, "always", "always"), port, _FROM_THE_START)


def _with_held(batch: Batch, port: str, pattern: Pattern = _LONG) -> Batch:
    """Return the batch with a port that moves only after long stalls."""
    patterns = {**batch.traffic.patterns, port: pattern}
    return dataclasses.replace(batch, traffic=dataclasses.replace(batch.traffic, patterns=patterns))


def request_of(order: Order) -> EncodeRequest:
    """Return the request, correct or broken."""
    segment, values = order.segment, order.values
    return EncodeRequest(
        values=segment.values if values is None else np.array(values, np.uint16),
        command=segment.word if order.word is None else order.word,
        codebook=tuple(segment.codebook),
    )


def _encoder_batch(
    rng: np.random.Generator,
    name: str,
    orders: Iterable[Order],
    inputs: str,
    outputs: str,
    **settings: Any,
) -> Batch:
    traffic, orders = _traffic(rng, inputs, outputs, encoding.PORTS), list(orders)
    return Batch(
        name=name,
        requests=list(map(request_of, orders)),
        traffic=dataclasses.replace(traffic, **settings),
        orders=orders,
    )
