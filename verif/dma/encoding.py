"""Suite of the encoder behind its registers and its write master."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import cocotb
import numpy as np

from cassandra_spec.golden import Format, decode_target, encode
from cassandra_spec.golden.format import ENCODE_ERROR_CAUSES, SCHEMES
from cassandra_spec.golden.packed import Packed
from cassandra_spec.rtl.dma.config import IN_FLIGHT, LENGTH_BITS, REGIONS, StoreConfig
from cassandra_spec.rtl.dma.registers import ID, VERSION, field_of, registers_for
from cassandra_spec.rtl.encode.types import EncodeCommandLayout, EncoderConfig
from cassandra_spec.verif.dma.axi_models import Response
from cassandra_spec.verif.dma.bench import PeripheralBench
from cassandra_spec.verif.dma.host import compose
from cassandra_spec.verif.dma.memory import WriteMemory, WriteTiming
from cassandra_spec.verif.encoder.bench import Order
from cassandra_spec.verif.encoder.cases import draw_segment, every_kind
from cassandra_spec.verif.encoder.model import Segment
from cassandra_spec.verif.library.models import names_of_bits
from cassandra_spec.verif.library.packets import values_packet
from cassandra_spec.verif.library.patterns import PATTERNS
from cassandra_spec.verif.library.streams import Port

SIZE = 1 << 10
"""Maximum number of values in a segment of the suite's encoders."""

_SUPERBLOCK = 128
_LARGEST = 1 << 14  # bytes of the largest region in the suite
_COMMAND = EncodeCommandLayout.size
_FIRST = 27  # bits of the command word in ENCODE_COMMAND


def small(lanes: int, bus: int = 0, pace: int | None = None) -> StoreConfig:
    """Return the configuration of the suite."""
    encoder = EncoderConfig(lanes=lanes, vector=64, group=64, segment=SIZE, values_per_cycle=pace)
    return StoreConfig(encoder=encoder, bus=bus, results=4)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a segment as software reads it."""

    mask: int
    failed: int
    room: int
    causes: frozenset[str]
    offsets: tuple[int, int]
    lengths: tuple[int, int]
    saturated: int


class EncoderDmaBench(PeripheralBench[WriteMemory]):
    """An encoder with its host, its values and its memory."""

    def __init__(self, dut: Any, seed: int) -> None:
        super().__init__(dut, seed, WriteMemory)
        pace = len(dut.s_axis_values_tkeep) // 2
        lanes = int(os.environ.get("CASSANDRA_LANES", pace))
        self.config = small(lanes, self.memory.word, pace)
        self.values = self.source(Port.axis(dut, "s_axis_values", ("tdata", "tkeep", "tlast")))

    def offer(self, values: np.ndarray[Any, Any]) -> None:
        """Offer a packet of values."""
        self.values.send(values_packet(values.tolist(), self.config.encoder.pace))

    async def describe(
        self,
        segment: Segment,
        bases: Sequence[int],
        rooms: Sequence[int],
        slot: int = 0,
        *,
        word: int | None = None,
    ) -> None:
        """Write the registers of a descriptor; ``word`` replaces the segment's own command."""
        commands = commands_of(segment.word if word is None else word)
        await self.host.describe(commands, slot, bases, rooms)

    def place(self, region: bytes, *, useless: bool, spare: bool) -> Place:
        """Choose a place for a region: exactly the room that it needs, or with ``spare`` more.

        A ``useless`` region may have any bytes, up to the largest size.
        """
        size = _LARGEST if useless else len(region)
        base, bus = self.memory.allocate(size), self.config.bus
        most = min((1 << LENGTH_BITS) - bus, (1 << self.config.address) - base)
        room = most - int(self.rng.integers((most - size) // bus + 1)) * bus if spare else size
        return Place(base=base, room=room, region=region)

    async def describe_places(self, order: Order, places: Sequence[Place], slot: int = 0) -> None:
        """Write the registers of a descriptor."""
        bases, rooms = ([getattr(place, name) for place in places] for name in ("base", "room"))
        await self.describe(order.segment, bases, rooms, slot, word=order.word)

    async def slot_of(self, segment: Segment) -> int:
        """Return the slot of a segment's codebook."""
        if segment.format.scheme != "unary":
            return 0
        return (await self.slots([segment.codebook], self.config.books))[0]

    async def result(self) -> Result | None:
        """Read and pop the oldest result; return None if no result waits."""
        word = await self.host.read("result")
        if not _field("result", "valid", word):
            return None
        numbers = [
            [await self.host.read(f"result_{name}_{what}") for name in REGIONS]
            for what in ("offset", "length")
        ]
        saturated = await self.host.read("result_saturated")
        await self.host.write("result", compose("result", pop=1))
        errors = _field("result", "errors", word)
        return Result(
            mask=_field("result", "mask", word),
            failed=_field("result", "failed", word),
            room=_field("result", "room", word),
            causes=frozenset(names_of_bits(errors, ENCODE_ERROR_CAUSES)),
            offsets=(numbers[0][0], numbers[0][1]),
            lengths=(numbers[1][0], numbers[1][1]),
            saturated=saturated,
        )

    async def start(self, *, follow: bool = False) -> list[Result]:
        """Queue the segment that the registers describe; collect results meanwhile."""
        found = []
        while await self.host.field("status", "full"):
            result = await self.result()
            found += [result] if result else []
        await self.host.write("start", compose("start", push=1, follow=int(follow)))
        return found

    async def collect(self, count: int) -> list[Result]:
        """Wait for ``count`` results."""
        found: list[Result] = []
        while len(found) < count:
            result = await self.result()
            found += [result] if result else []
        return found

    async def drain(self) -> list[Result]:
        """Collect results until nothing is in flight."""
        found: list[Result] = []
        while True:
            busy = await self.host.field("status", "busy")
            result = await self.result()
            found += [result] if result else []
            if not busy and result is None:
                return found


def _field(register: str, name: str, word: int) -> int:
    field, low = field_of(register, name)
    return word >> low & ((1 << field.width) - 1)


async def start(dut: Any) -> EncoderDmaBench:
    """Return a bench with a running clock and an enabled queue, after a reset."""
    bench = await EncoderDmaBench(dut, cocotb.RANDOM_SEED).started()
    await bench.enable()
    return bench


def commands_of(word: int) -> dict[str, int]:
    """Return the registers that hold a command word, with its fields."""
    low, high = word & ((1 << _FIRST) - 1), (word & (1 << _COMMAND) - 1) >> _FIRST
    return {"encode_command": low, "encode_vector": high}


def _regions(packed: Packed) -> tuple[bytes, bytes]:
    return packed.speculation.tobytes(), packed.verification.tobytes()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """The place of a region, and its expected content."""

    base: int
    room: int  # bytes
    region: bytes


async def encode_all(bench: EncoderDmaBench, segments: Sequence[Segment]) -> list[Result]:
    """Encode segments to places of their own, and compare the memory with golden's regions."""
    return await encode_orders(bench, [Order.of(segment) for segment in segments])


async def encode_orders(
    bench: EncoderDmaBench, orders: Sequence[Order], *, spare: bool = False
) -> list[Result]:
    """Encode segments that may be refused; with ``spare`` they have more room than needed."""
    placed = [offered(bench, order, spare=spare) for order in orders]

    async def work() -> list[Result]:
        found: list[Result] = []
        for order, places in zip(orders, placed, strict=True):
            book = order.segment.codebook
            if book and book not in bench.codebooks and len(bench.codebooks) == bench.config.books:
                found += await bench.drain()
            slot = await bench.slot_of(order.segment)
            await bench.describe_places(order, places, slot)
            found += await bench.start()
        return [*found, *await bench.collect(len(orders) - len(found))]

    found: list[Result] = await bench.do(work(), 400_000)
    for order, places, result in zip(orders, placed, found, strict=True):
        check_result(bench, order, places, result)
    return found


def offered(bench: EncoderDmaBench, order: Order, *, spare: bool = False) -> list[Place]:
    """Offer the values of a segment; return places for its regions."""
    given = order.segment.values if order.values is None else np.array(order.values, np.uint16)
    bench.offer(given)
    regions = _regions(order.expected.packed) if order.expected else (b"", b"")
    return [bench.place(region, useless=order.useless, spare=spare) for region in regions]


async def queued(bench: EncoderDmaBench, orders: Sequence[Order]) -> list[list[Place]]:
    """Offer values and queue segments without codebooks; return the places of their regions."""
    placed = [offered(bench, order) for order in orders]

    async def work() -> None:
        for order, places in zip(orders, placed, strict=True):
            await bench.describe_places(order, places)
            await bench.host.write("start", compose("start", push=1))

    await bench.do(work())
    return placed


def check_result(
    bench: EncoderDmaBench, order: Order, places: Sequence[Place], result: Result
) -> None:
    """Compare a segment's result and regions."""
    assert (result.failed, result.room, result.causes) == (0, 0, order.causes), order
    if order.useless:
        return
    assert result.lengths == tuple(len(place.region) // _SUPERBLOCK for place in places), order
    for place in places:
        assert bench.memory.read(place.base, len(place.region)) == place.region, order
    if order.expected:
        assert result.mask == order.expected.packed.directory[0, 4], order
        assert result.saturated == order.expected.replaced(), order


def some(bench: EncoderDmaBench, count: int) -> list[Segment]:
    """Return random segments that cycle through schemes and kinds of values."""
    drawn = every_kind(bench.rng, bench.config.encoder)
    return [next(drawn) for _ in range(count)]


@cocotb.test()
async def what_was_built(dut: Any) -> None:
    """Read-only constants are right; all other registers are zero after a reset."""
    bench = await start(dut)
    config = bench.config
    expected = {
        "id": ID,
        "version": compose(
            "version", major=VERSION[0], minor=VERSION[1], patch=VERSION[2], encodes=1
        ),
        "control": compose("control", enable=1),
        "encoder": compose(
            "encoder",
            lanes=config.encoder.lanes,
            schemes=(1 << len(SCHEMES)) - 1,
            window=config.encoder.window,
            codebook=config.encoder.codebook,
            vector=config.encoder.vector - 1,
        ),
        "store": compose(
            "store", bus=config.bus, queue=config.queue, books=config.books, superblock=1
        ),
    }
    for register in registers_for("encode"):
        value = await bench.do(bench.host.read(register.name))
        assert value == expected.get(register.name, 0), register.name
    missing = {register.offset for register in registers_for("decode")}
    missing -= {register.offset for register in registers_for("encode")}
    for offset in missing:
        _, response = await bench.do(bench.host.raw_read(offset))
        assert response == Response.SLVERR


@cocotb.test()
@cocotb.parametrize(idle=["always", "half", "burst"], pressure=["always", "rare", "stall"])
async def idle_by_back_pressure_by_payload(dut: Any, idle: str, pressure: str) -> None:
    """Values use one pattern, the memory another; every scheme and kind."""
    bench = await start(dut)
    bench.values.use(PATTERNS[idle])
    pattern = PATTERNS[pressure]
    bench.memory.use(
        WriteTiming(longest=40, shuffled=True, addresses=pattern, words=pattern, responses=pattern)
    )
    await encode_all(bench, some(bench, 9))


@cocotb.test()
@cocotb.parametrize(scheme=list(SCHEMES))
async def segments_that_follow_make_a_tensor(dut: Any, scheme: Any) -> None:
    """A tensor, segment after segment: arrays and directory equal golden's, and decode."""
    bench = await start(dut)
    bench.memory.use(WriteTiming(longest=30, shuffled=True))
    lanes = bench.config.encoder.lanes
    fmt = Format(scheme=scheme, beat=lanes, group=32, segment=256, truncated=3)
    values = bench.rng.normal(size=256 * 7 + 100).astype(np.float32)
    patterns = (values.view(np.uint32) >> 16).astype(np.uint16)
    packed = encode(patterns, fmt, always_mask=scheme == "unary")
    arrays = _regions(packed)
    rooms = [len(array) + _SUPERBLOCK for array in arrays]
    bases = [bench.memory.allocate(size) for size in rooms]

    async def work() -> list[Result]:
        found: list[Result] = []
        for index in range(len(packed.directory)):
            part = patterns[index * 256 : (index + 1) * 256]
            segment = Segment(
                format=fmt,
                values=part,
                vector=64,
                keep=None,
                mask=scheme == "unary",
                codebook=packed.codebook,
            )
            slot = await bench.slot_of(segment) if index == 0 else 0
            if index == 0:
                await bench.describe(segment, bases, rooms, slot)
            else:
                await bench.host.keep("encode_command", segment.word & ((1 << _FIRST) - 1))
            bench.offer(part)
            found += await bench.start(follow=index > 0)
        return [*found, *await bench.collect(len(packed.directory) - len(found))]

    found = await bench.do(work(), 400_000)
    directory = np.array(
        [
            [one.offsets[0], one.lengths[0], one.offsets[1], one.lengths[1], one.mask]
            for one in found
        ],
        np.uint32,
    )
    assert np.array_equal(directory, packed.directory)
    written = [
        np.frombuffer(bench.memory.read(base, len(array)), np.uint8)
        for base, array in zip(bases, arrays, strict=True)
    ]
    stored = dataclasses.replace(packed, speculation=written[0], verification=written[1])
    assert [part.tobytes() for part in written] == list(arrays)
    assert np.array_equal(decode_target(stored), decode_target(packed))


@cocotb.test()
async def the_queue(dut: Any) -> None:
    """The queue waits for enable, reports its length, and drops on request."""
    bench = await start(dut)
    host, room = bench.host, bench.config.queue
    [segment] = some(bench, 1)
    rooms = [len(region) for region in _regions(segment.packed)]
    slot = await bench.do(bench.slot_of(segment))
    await bench.enable(False)
    await bench.do(
        bench.describe(segment, [bench.memory.allocate(size) for size in rooms], rooms, slot)
    )
    for number in range(room + 1):
        assert await bench.do(host.field("status", "waiting")) == number
        assert await bench.do(host.field("status", "full")) == (number == room)
        await bench.do(host.write("start", compose("start", push=1)))
    assert await bench.do(host.causes()) == {"overflow"}
    await bench.do(host.write("error", 0xFFFF_FFFF))
    await bench.do(host.write("control", compose("control", drop=1)))
    await bench.run(room)
    assert not await bench.do(host.read("status"))
    await bench.enable()
    await encode_all(bench, some(bench, 3))
    assert not await bench.do(host.field("status", "busy"))


@cocotb.test()
async def results_that_nobody_pops(dut: Any) -> None:
    """While results wait, everything stops; it resumes when they are popped."""
    bench = await start(dut)
    segments = some(bench, 12)
    segments = [one for one in segments if one.format.scheme != "unary"]
    most = bench.config.results + IN_FLIGHT + bench.config.queue
    segments = segments[:most]
    orders = [Order.of(segment) for segment in segments]
    placed = await queued(bench, orders)
    await bench.run(4000)
    assert await bench.do(bench.host.field("result", "waiting")) == min(
        bench.config.results, len(segments)
    )
    found = await bench.do(bench.collect(len(segments)))
    for order, places, result in zip(orders, placed, found, strict=True):
        check_result(bench, order, places, result)
    assert not await bench.do(bench.host.read("error"))


@cocotb.test()
async def errors_and_interrupts(dut: Any) -> None:
    """Each cause is reported where documented, and the next segment is right."""
    bench = await start(dut)
    host = bench.host
    await bench.do(host.write("irq_enable", compose("irq_enable", segment=1)))
    [good] = some(bench, 1)
    assert not int(dut.irq.value)
    await encode_all(bench, [good])
    assert int(dut.irq.value)
    await bench.do(host.write("irq", 7))
    await bench.run(3)
    assert not int(dut.irq.value)
    assert not await bench.do(host.causes())
    values = np.full(200, 0x7F80, np.uint16)
    fmt = Format(scheme="mx", beat=bench.config.encoder.lanes, group=32, segment=SIZE)
    bad = Segment(format=fmt, values=values, vector=64, keep=None, mask=False, saturate=False)
    clean = dataclasses.replace(bad, values=np.full(200, 0x3F80, np.uint16))
    result = await one_result(bench, bad, like=clean)
    assert result.causes == {"nonfinite"}
    assert await bench.do(host.causes()) == {"encode_nonfinite"}
    assert await bench.do(host.read("error_segment")) == 1
    await bench.do(host.write("error", 0xFFFF_FFFF))
    result = await one_result(bench, clean, spare=-_SUPERBLOCK)
    assert result.room
    assert await bench.do(host.causes()) == {"room"}
    await bench.do(host.write("error", 0xFFFF_FFFF))
    for response, cause in ((Response.SLVERR, "slave"), (Response.DECERR, "decode")):
        result = await one_result(bench, clean, response=response)
        assert result.failed
        assert await bench.do(host.causes()) == {cause}
        address = await bench.do(host.read_pair("error_address"))
        assert address in bench.memory.failed
        await bench.do(host.write("error", 0xFFFF_FFFF))
    last = (1 << len(dut.m_axi_awaddr)) - bench.memory.word  # the next address is 0
    for base in (0x1001, last):
        for bases in ([base, 0x2000], [0x2000, base]):
            await bench.do(bench.describe(clean, bases, [128, 128]))
            await bench.do(host.write("start", compose("start", push=1)))
            assert await bench.do(host.causes()) == {"descriptor"}
            assert not await bench.do(host.field("status", "busy"))
            await bench.do(host.write("error", 0xFFFF_FFFF))
    await encode_all(bench, some(bench, 3))
    assert not await bench.do(host.causes())


async def one_result(
    bench: EncoderDmaBench,
    segment: Segment,
    *,
    like: Segment | None = None,
    spare: int = 0,
    response: Response | None = None,
    region: int | None = None,
) -> Result:
    """Encode one segment with the room that it needs, or one ``like`` it, with ``spare`` room.

    The first burst of ``region`` (of any) is answered with ``response``.
    """
    rooms = [len(region) + spare for region in _regions((like or segment).packed)]
    bases = [bench.memory.allocate(size) for size in rooms]
    slot = await bench.do(bench.slot_of(segment))
    if response is not None:
        place = int(bench.rng.integers(2)) if region is None else region
        bench.memory.fail(bases[place], response)
    bench.offer(segment.values)

    async def work() -> Result:
        await bench.describe(segment, bases, rooms, slot)
        await bench.start()
        return (await bench.collect(1))[0]

    result: Result = await bench.do(work())
    return result


@cocotb.test()
async def reset_at_any_time(dut: Any) -> None:
    """Reset while segments are in flight; the next segments are right."""
    bench = await start(dut)
    for _ in range(6):
        bench.memory.use(WriteTiming(longest=30, shuffled=True))
        segment = draw_segment(bench.rng, bench.config.encoder, "exact", "normal")
        rooms = [len(region) for region in _regions(segment.packed)]
        bases = [bench.memory.allocate(size) for size in rooms]
        for _ in range(3):
            bench.offer(segment.values)
        await bench.enable()
        await bench.do(bench.describe(segment, bases, rooms))
        await bench.do(bench.start())
        await bench.run(int(bench.rng.integers(1, 200)))
        await bench.reset()
        await bench.enable()
        await encode_all(bench, some(bench, 2))
