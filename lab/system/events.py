"""An event model of decoder buffers, to check that the closed form may treat decoders as a rate.

The memory sends one superblock after the other, to the decoders in turn; each decoder has room for
some superblocks, and a superblock keeps its room until it is decoded. When the next decoder has no
room the memory waits, and everything behind it.
"""

from __future__ import annotations

import dataclasses
import random
from collections import deque

from cassandra_spec.lab.system.costs import load_format
from cassandra_spec.lab.system.device import load_device
from cassandra_spec.lab.system.errors import check_count, check_number
from cassandra_spec.toolkit.tables import Table

SUPERBLOCK = 128
"""Bytes in a transfer: a cache block, the format's own superblock unless it is told another."""

STRETCH = 20_000
"""Superblocks that :func:`events_table` follows: enough for the ends not to matter."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Buffers:
    """A stream of superblocks through parallel decoders."""

    blocks: int  # superblocks in the stream
    decoders: int  # decoders, which take superblocks in turn
    rooms: int  # superblocks that each decoder has room for, the one in work included
    transfer: float  # seconds of the memory for each superblock
    decode: float  # mean seconds of a decoder for each superblock
    jitter: float = 0.0  # 0 to 1: decoding takes `decode` times 1 - jitter to 1 + jitter, at random
    seed: int = 1  # of the random numbers

    def __post_init__(self) -> None:
        for name in ("blocks", "decoders", "rooms"):
            check_count(name, getattr(self, name), 1)
        check_number("transfer", self.transfer)
        check_number("decode", self.decode)
        check_number("jitter", self.jitter, zero=True)
        check_number("1 - jitter", 1 - self.jitter, zero=True)


def events(buffers: Buffers) -> float:
    """Return the seconds until the last superblock is decoded."""
    draw = random.Random(buffers.seed)
    work = [deque([0.0] * buffers.rooms, buffers.rooms) for _ in range(buffers.decoders)]
    sent = 0.0
    for block in range(buffers.blocks):
        done = work[block % buffers.decoders]  # when its latest superblocks leave, oldest first
        sent = max(sent, done[0]) + buffers.transfer
        takes = buffers.decode * draw.uniform(1 - buffers.jitter, 1 + buffers.jitter)
        done.append(max(sent, done[-1]) + takes)
    return max(done[-1] for done in work)


def closed_form(buffers: Buffers) -> float:
    """Return the time of the slower of memory and decoders, as in
    :mod:`cassandra_spec.lab.system.passes`.
    """
    return buffers.blocks * max(buffers.transfer, buffers.decode / buffers.decoders)


def stretch(
    name: str, *, draft: bool, rooms: int, scheme: str = "cassandra-1", cache: bool = False
) -> Buffers:
    """Some weights, or keys and values, of a scheme, streamed on a device of the package."""
    device, cost = load_device(name), load_format(scheme)
    bits = cost.kv if cache else cost.weight
    values = SUPERBLOCK * 8 / bits.read(draft=draft)
    return Buffers(
        blocks=STRETCH,
        decoders=int(device.decoders),
        rooms=rooms,
        transfer=SUPERBLOCK / (device.bandwidth * device.bandwidth_efficiency),
        decode=values * device.decoders / device.decoded(draft=draft),
        jitter=0.2,
    )


def events_table() -> Table:
    """Closed form and events on every device, by the room of a decoder."""
    rows = []
    for name in ("rtx4090", "agx-orin", "npu"):
        for draft in (True, False):
            runs = [stretch(name, draft=draft, rooms=rooms) for rooms in (1, 2, 4)]
            closed = closed_form(runs[0])
            load = runs[0].decode / runs[0].decoders / runs[0].transfer
            cells = [f"{events(run) / closed - 1:+.1%}" for run in runs]
            mode = "draft" if draft else "target"
            rows.append((name, mode, f"{load:.2f}", f"{closed * 1e6:.0f}", *cells))
    return Table(
        title="Decoder buffers: weights in Cassandra-1, events against the closed form",
        header=("device", "mode", "load", "closed, us", "1 room", "2 rooms", "4 rooms"),
        rows=tuple(rows),
        notes=(
            f"load: of the decoders, against the memory. {STRETCH:,} superblocks of {SUPERBLOCK}"
            " bytes; decoding takes 0.8 to 1.2 times the mean.",
        ),
    )
