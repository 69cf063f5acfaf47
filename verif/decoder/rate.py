"""Values per cycle of the decoder's top, counted in Verilator with inputs always ready.

:func:`rate` decodes payloads in one mode, compares every value with golden and counts cycles.
:data:`WORST` makes the payloads that are hardest for it; :func:`losses` counts the cycles without a
beat at the ends of segments and superblocks, after back-pressure, and at changes of mode.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from cassandra_spec.golden.format import SCHEMES, Format, Scheme
from cassandra_spec.verif.decoder.bulk import GatewareError, RtlCodec, Statistics, Traffic
from cassandra_spec.verif.decoder.jobs import Job, jobs_of
from cassandra_spec.verif.library.patterns import Kind, Pattern
from cassandra_spec.verif.library.payloads import KINDS, Payload, gaussian


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rate:
    """The cycles of a run, and the minimum that its data allow."""

    values: int
    cycles: int
    lanes_cycles: int  # a beat per cycle, or per two cycles
    bus_cycles: int  # a word of each region per cycle

    @property
    def measured(self) -> float:
        """Values per cycle."""
        return self.values / self.cycles

    @property
    def bound(self) -> float:
        """Values per cycle if only lanes and bus limited them."""
        return self.values / max(self.lanes_cycles, self.bus_cycles)


def decode(codec: RtlCodec, jobs: Sequence[Job], traffic: Traffic | None = None) -> Statistics:
    """Decode segments back to back; raise GatewareError if a value differs from golden's."""
    result = codec.run([job.request for job in jobs], traffic)
    if not np.array_equal(result.values, np.concatenate([job.expected for job in jobs])):
        raise GatewareError("a value differs from golden's")
    return result.statistics


def rate(codec: RtlCodec, payloads: Iterable[Payload], *, target: bool) -> Rate:
    """Decode all segments of some payloads, back to back, at full speed."""
    jobs = [job for payload in payloads for job in jobs_of(payload, [target])]
    counts = decode(codec, jobs)
    ports = counts.ports
    return Rate(
        values=counts.values,
        cycles=counts.cycles,
        lanes_cycles=counts.beats * _beat_cycles(codec, target),
        bus_cycles=max(ports[name].moved for name in ("speculation", "verification")),
    )


def _beat_cycles(codec: RtlCodec, target: bool) -> int:
    return 2 if target and codec.config.target_rate == "half" else 1


# ---- worst cases --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A kind of tensor that is hard for the decoder."""

    what: str
    make: Callable[[Format, np.random.Generator, int], Payload]
    schemes: tuple[Scheme, ...] = SCHEMES
    short: bool = False  # segments of a single beat


def _clipped(exponent: int) -> Callable[[Format, np.random.Generator, int], Payload]:
    """Return a maker of weights near 1, in groups whose exponent fits none of them."""

    def make(fmt: Format, rng: np.random.Generator, count: int) -> Payload:
        values = rng.integers(0x3F80, 0x4080, size=count, dtype=np.uint16)
        groups = np.full(-(-count // fmt.group), exponent, np.uint8)
        return Payload(name="clipped", format=fmt, values=values, group_exponents=groups)

    return make


WORST = (
    Case(what="every code as long as can be", make=KINDS["longest"], schemes=("unary",)),
    Case(what="full and empty beats in turn", make=KINDS["alternating"]),
    Case(what="one kept value in a beat", make=KINDS["single"]),
    Case(what="everything pruned", make=KINDS["pruned"]),
    Case(what="every value an escape, too large", make=_clipped(100), schemes=("exact",)),
    Case(what="every value an escape, too small", make=_clipped(150), schemes=("exact",)),
    Case(what="segments of one beat", make=KINDS["weights"], short=True),
)


def worst_payload(case: Case, fmt: Format, count: int) -> Payload:
    """Return a payload of this case with ``count`` values, always the same."""
    if case.short:
        fmt = dataclasses.replace(fmt, group=fmt.beat, segment=fmt.beat)
    return case.make(fmt, np.random.default_rng(1), count)


# ---- borders ------------------------------------------------------------------------------------


def losses(codec: RtlCodec, scheme: Scheme, *, target: bool) -> Mapping[str, float]:
    """Return the cycles without a beat for each kind of event, on weights of one tensor."""
    config = codec.config
    fmt = Format(scheme=scheme, beat=config.lanes, segment=4096, lead=config.lead)
    jobs = _weights(fmt, target)
    one, all_ = (_lost(codec, part, target) for part in (jobs[:1], jobs))
    border = (all_ - one) / (len(jobs) - 1)
    return {
        "a segment ends": border,
        "a superblock ends": _superblock(codec, fmt, target),
        "back-pressure of 50 cycles ends": _stall(codec, jobs, target),
        "the mode changes, beside the end of the segment": _switch(codec, fmt),
    }


def _weights(fmt: Format, target: bool, segments: int = 8) -> list[Job]:
    values = gaussian(np.random.default_rng(2), segments * fmt.segment)
    kept = np.random.default_rng(3).random(values.size) < 0.6 if fmt.scheme == "unary" else None
    payload = Payload(name="weights", format=fmt, values=values, kept=kept)
    return list(jobs_of(payload, [target]))


def _lost(codec: RtlCodec, jobs: Sequence[Job], target: bool) -> int:
    counts = decode(codec, jobs)
    return counts.cycles - counts.beats * _beat_cycles(codec, target)


def _superblock(codec: RtlCodec, fmt: Format, target: bool) -> float:
    """Return the additional loss per superblock of a longer segment."""
    lost, blocks = [], []
    for segment in (fmt.segment, 4 * fmt.segment):
        job = _weights(dataclasses.replace(fmt, segment=segment), target, 1)[0]
        data = job.request.segment
        lost.append(_lost(codec, [job], target))
        size = data.speculation.size + (data.verification.size if target else 0)
        blocks.append(size // fmt.superblock)
    return (lost[1] - lost[0]) / (blocks[1] - blocks[0])


def _stall(codec: RtlCodec, jobs: Sequence[Job], target: bool) -> float:
    """Return the loss by stalls: cycles with a ready taker and no values, beyond a run without.

    The loss is negative if the decoder works on while its values wait.
    """
    stalls = Traffic(patterns={"values": Pattern(kind=Kind.PERIODIC, on=50, off=50)})
    free, stalled = (decode(codec, jobs, traffic) for traffic in (Traffic(), stalls))
    more = stalled.ports["values"].starved - free.ports["values"].starved
    return more / (stalled.cycles / 100)


def _switch(codec: RtlCodec, fmt: Format) -> float:
    """Compare alternating draft and target segments with all drafts, then all targets."""
    drafts, targets = _weights(fmt, False), _weights(fmt, True)
    turns = [job for pair in zip(drafts, targets, strict=True) for job in pair]
    more = decode(codec, turns).cycles - decode(codec, [*drafts, *targets]).cycles
    return more / (len(turns) - 2)
