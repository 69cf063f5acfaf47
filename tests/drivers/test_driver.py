"""The C driver on a model of the registers, and through the compilers of other processors."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.rtl.dma.registers import ID, REGISTERS, VERSION
from cassandra_spec.verif.dma.firmware.driver import (
    FLAGS,
    Decode,
    Driver,
    Encode,
    Entry,
    Layout,
    Status,
    build,
)
from cassandra_spec.verif.dma.host import compose, names_of

SOURCE = Path(__file__).resolve().parents[2] / "drivers" / "cassandra.c"
BUS, SUPERBLOCK, QUEUE = 16, 128, 2
ENTRIES = [(0, 2, 0, 1, 1), (2, 1, 1, 0, 0), (3, 4, 1, 2, 0)]
SIZES = {"bus": BUS, "queue": QUEUE, "books": 4, "superblock": SUPERBLOCK // 128}


class Model:
    """Registers of a device whose segments end when the test says so."""

    def __init__(self, *, encodes: bool = False) -> None:
        engine = {"lanes": 8, "schemes": 0b111, "codebook": 16}
        major, minor, patch = VERSION
        version = compose("version", major=major, minor=minor, patch=patch, encodes=encodes)
        self.values = {register.name: 0 for register in REGISTERS}
        self.values |= {"id": ID, "version": version}
        if encodes:
            self.values |= {"encoder": compose("encoder", **engine, vector=127)}
            self.values |= {"store": compose("store", **SIZES)}
        else:
            self.values |= {"decoder": compose("decoder", **engine)}
            self.values |= {"fetch": compose("fetch", **SIZES)}
        self.encodes = encodes
        self.queue: list[dict[str, int]] = []
        self.results: list[dict[str, int]] = []
        self.codebook: list[int] = []
        self.enabled = False
        self.draining = 0  # reads of STATUS until a reset ends
        self.fresh = False
        self.after: dict[str, Callable[[], object]] = {}  # events after an access to a register
        self.log: list[str] = []

    def read(self, offset: int) -> int:
        """Return a register, as software sees it; KeyError for an address that the device lacks."""
        top = "encode" if self.encodes else "decode"
        [register] = [one for one in REGISTERS if one.offset == offset and top in one.tops]
        value = self._value(register.name)
        self.after.pop(register.name, lambda: None)()
        return value

    def _value(self, name: str) -> int:
        if name == "status":
            draining = self.draining > 0
            self.draining -= draining
            busy, full = bool(self.queue) or draining, len(self.queue) >= QUEUE or draining
            waiting = len(self.queue)
            return compose("status", busy=busy, full=full, waiting=waiting, draining=draining)
        if name == "control":
            return compose("control", enable=self.enabled)
        if name.startswith("result") and self.results:
            return self.results[0][name]
        return self.values[name]

    @property
    def irq(self) -> bool:
        """The interrupt's pin."""
        return bool(self.values["irq"] & self.values["irq_enable"])

    def reset(self) -> None:
        """Take on the state after a reset."""
        fresh = Model(encodes=self.encodes)
        self.values, self.queue, self.results = fresh.values, [], []
        self.enabled = False

    def write(self, offset: int, value: int) -> None:
        """Write a register: START queues a copy of all of them."""
        [name] = [one.name for one in REGISTERS if one.offset == offset]
        self.log.append(name)
        if name in ("error", "irq"):
            guard = compose("error", guard=1) if name == "error" else 0
            self.values[name] &= ~value | guard
        elif name == "start":
            assert len(self.queue) < QUEUE
            self.queue.append(self.values | {"start": value})
        elif name == "codebook":
            self.codebook.append(value)
        elif name == "result":
            assert value == compose("result", pop=1)
            self.results.pop(0)
        elif name == "control":
            drop = not self.enabled and value & compose("control", drop=1)
            self.queue = [] if drop else self.queue
            self.enabled = bool(value & compose("control", enable=1))
            if value & compose("control", clear=1):
                self.values["count_segments"] = 0
            if value & compose("control", reset=1):
                self.reset()
                self.draining, self.fresh = 3, bool(value & compose("control", fresh=1))
        else:
            self.values[name] = value

    def end(self, **error: int) -> dict[str, int]:
        """Let the oldest segment leave, perhaps with causes of an error."""
        self.values["error"] |= compose("error", **error)
        self.values["irq"] |= 7
        self.values["count_segments"] += 1
        return self.queue.pop(0)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(SOURCE, tmp_path_factory.mktemp("driver") / "driver.so")


Make = Callable[[Model], Driver]


@pytest.fixture
def attach(library: Path) -> Make:
    def made(model: Model) -> Driver:
        driver = Driver(library, model.read, model.write)
        assert driver.probe() == Status.OK
        return driver

    return made


def layout(**changed: int) -> Layout:
    fields = {"values": 2 * 64 + 10, "segment_values": 64, "scheme": 1, "truncated": 4}
    return Layout(**(fields | {"log2_group": 5, "slot": 0} | changed))


def decode_job(*, target: bool = True, base: int = 0x1_FFFF_FF80, **changed: int) -> Decode:
    return Decode(
        layout=layout(**changed),
        speculation=base,
        verification=0x2000,
        directory=(Entry * 3)(*(Entry(*row) for row in ENTRIES)),
        segments=3,
        target=target,
        midpoint=True,
    )


def encode_job(**changed: int) -> Encode:
    fields = {"speculation_room": 1 << 16, "verification_room": 1 << 16, "vector": 64, "keep": 32}
    return Encode(
        layout=layout(),
        speculation=0x1000,
        verification=0x2000,
        directory=(Entry * 3)(),
        segments=3,
        **(fields | changed),
    )


@pytest.mark.parametrize("encodes", [False, True])
def test_probe_reads_what_was_built(attach: Make, encodes: bool) -> None:
    device = attach(Model(encodes=encodes)).device
    found = (device.word, device.queue, device.books, device.entries, device.superblock)
    assert found == (BUS, QUEUE, 4, 16, SUPERBLOCK)
    assert (device.schemes, device.encodes, device.coded) == (7, encodes, False)


def test_probe_refuses_another_device_and_another_major_version(library: Path) -> None:
    model = Model()
    driver = Driver(library, model.read, model.write)
    model.values["version"] = compose("version", major=VERSION[0] + 1)
    assert driver.probe() == Status.VERSION_BAD
    model.values["id"] ^= 1
    assert driver.probe() == Status.NOT_FOUND


def test_a_codebook_is_written_by_rank_and_ends(attach: Make) -> None:
    model = Model()
    driver = attach(model)
    assert driver.load_codebook(2, [126, 127]) == Status.OK
    assert driver.load_codebook(1, []) == Status.OK
    assert model.codebook == [
        compose("codebook", slot=2, exponent=126),
        compose("codebook", slot=2, exponent=127, entry=1, last=1),
        compose("codebook", slot=1, last=1, empty=1),
    ]
    assert driver.load_codebook(4, [1]) == Status.ARGUMENT
    assert driver.load_codebook(0, range(17)) == Status.ARGUMENT
    assert len(model.codebook) == 3


@pytest.mark.parametrize("target", [False, True])
def test_descriptors_are_those_of_the_directory(attach: Make, target: bool) -> None:
    model, job = Model(), decode_job(target=target)
    driver = attach(model)
    assert driver.start(job) == Status.OK
    seen = []
    while driver.step(job) == Status.BUSY:
        seen.append(model.end())
    assert len(seen) == 3
    for number, (segment, row) in enumerate(zip(seen, ENTRIES, strict=True)):
        assert segment["command"] == compose(
            "command",
            count=(64, 64, 10)[number] - 1,
            scheme=1,
            truncated=4,
            target=target,
            midpoint=1,
            mask=row[4],
            verification=bool(row[3]),
            log2_group=5,
        )
        base = segment["speculation_base_low"] | segment["speculation_base_high"] << 32
        assert base == 0x1_FFFF_FF80 + SUPERBLOCK * row[0]
        assert segment["speculation_length"] == SUPERBLOCK * row[1]
        if target and row[3]:
            assert segment["verification_base_low"] == 0x2000 + SUPERBLOCK * row[2]
            assert segment["verification_length"] == SUPERBLOCK * row[3]


def test_the_queue_is_kept_full(attach: Make) -> None:
    model, job = Model(), decode_job()
    driver = attach(model)
    driver.start(job)
    lengths = []
    while driver.step(job) == Status.BUSY:
        lengths.append(len(model.queue))
        model.end()
    assert lengths == [2, 2, 1]


@pytest.mark.parametrize("interrupt", [False, True])
def test_interrupts_are_enabled_on_request_and_cleared_by_a_step(
    attach: Make, interrupt: bool
) -> None:
    model, job = Model(), decode_job()
    driver = attach(model)
    driver.start(job, interrupt=interrupt)
    assert bool(model.values["irq_enable"]) == interrupt
    driver.step(job)
    model.end()
    driver.step(job)
    assert model.values["irq"] == 0


def test_a_fault_stops_the_job_and_has_its_causes(attach: Make) -> None:
    model, job = Model(), decode_job()
    driver = attach(model)
    driver.start(job)
    driver.step(job)
    model.end(slave=1, short=1)
    model.values |= {"error_segment": 7, "error_address_low": 5, "error_address_high": 1}
    assert driver.step(job) == Status.FAULT
    fault = driver.device.fault
    assert names_of("error", fault.causes) == {"slave", "short"}
    assert (fault.segment, fault.address) == (7, 1 << 32 | 5)
    assert not model.queue
    assert driver.recover() == Status.OK
    assert model.values["error"] == 0
    assert driver.start(job) == Status.OK


def test_only_an_abort_helps_after_guard(attach: Make) -> None:
    model, job = Model(), decode_job()
    driver = attach(model)
    driver.start(job)
    driver.step(job)
    model.end(guard=1)
    assert driver.step(job) == Status.NEEDS_RESET
    assert driver.recover() == Status.NEEDS_RESET
    assert driver.start(job, interrupt=True) == Status.NEEDS_RESET
    model.values["irq"] = 4  # the guard sets it in every cycle
    assert not model.irq
    assert finish_abort(driver) == 3
    assert driver.start(job) == Status.OK


def finish_abort(driver: Driver, *, fresh: bool = False) -> int:
    """Abort to the end; return the number of calls that found the device busy."""
    for calls in range(100):
        status = driver.abort(fresh=fresh)
        if status != Status.BUSY:
            assert status == Status.OK
            return calls
        assert driver.start(decode_job()) in (Status.BUSY, Status.ARGUMENT)
    raise AssertionError("the abort must end")


def test_a_job_does_not_begin_while_another_is_at_work(attach: Make) -> None:
    model, job = Model(), decode_job()
    driver = attach(model)
    driver.start(job)
    driver.step(job)
    assert driver.start(decode_job()) == Status.BUSY


@pytest.mark.parametrize(
    "changed",
    [
        *({"segment_values": value} for value in (0, 1 << 17, 16, 200)),
        *({"truncated": 8}, {"log2_group": 16}, {"slot": 4}, {"values": 0}, {"base": 8}),
    ],
)
def test_a_job_that_the_device_cannot_do_is_refused(attach: Make, changed: dict[str, Any]) -> None:
    model = Model()
    driver = attach(model)
    assert driver.start(decode_job(**changed)) == Status.ARGUMENT
    assert not model.queue
    assert not model.enabled


def test_kinds_and_options_that_the_device_lacks_are_refused(attach: Make) -> None:
    assert attach(Model(encodes=True)).start(decode_job()) == Status.ARGUMENT
    assert attach(Model()).start(encode_job()) == Status.ARGUMENT
    coded = decode_job()
    coded.coded = True
    assert attach(Model()).start(coded) == Status.UNSUPPORTED
    for scheme in (3, 32):
        assert attach(Model()).start(decode_job(scheme=scheme)) == Status.UNSUPPORTED
    for vector in (13, 136, 256):
        job = encode_job(vector=vector, keep=8)
        assert attach(Model(encodes=True)).start(job) == Status.UNSUPPORTED


@pytest.mark.parametrize(
    "changed",
    [
        {"speculation_room": 1 << 24},
        {"verification_room": 8},
        {"vector": 0},
        {"keep": 65},
    ],
)
def test_an_encoder_refuses(attach: Make, changed: dict[str, int]) -> None:
    driver = attach(Model(encodes=True))
    assert driver.start(encode_job(**changed)) == Status.ARGUMENT


def test_results_fill_the_directory(attach: Make) -> None:
    model, job = Model(encodes=True), encode_job(mask=True)
    driver = attach(model)
    assert driver.start(job) == Status.OK
    names = [name for name in model.values if name.startswith("result_")]
    segments = []
    for number in range(3):
        assert driver.step(job) == Status.BUSY
        segments.append(model.end())
        words = dict(zip(names, range(10 * number, 10 * number + 5), strict=True))
        model.results.append({"result": compose("result", valid=1, mask=number & 1)} | words)
    assert driver.step(job) == Status.OK
    assert job.saturated == 4 + 14 + 24
    assert [(row.speculation_offset, row.verification_length) for row in job.directory[:3]] == [
        (0, 3),
        (10, 13),
        (20, 23),
    ]
    assert [row.flags for row in job.directory[:3]] == [0, 1, 0]
    follows = [compose("start", push=1, follow=min(number, 1)) for number in range(3)]
    assert [segment["start"] for segment in segments] == follows
    vector = compose("encode_vector", vector=63, keep=32)
    assert {segment["encode_vector"] for segment in segments} == {vector}
    assert segments[2]["encode_command"] == compose(
        "encode_command", count=9, scheme=1, truncated=4, mask=1, log2_group=5
    )


def test_recovery_pops_results(attach: Make) -> None:
    model = Model(encodes=True)
    driver = attach(model)
    model.results += [{"result": compose("result", valid=1)}] * 5
    assert driver.recover() == Status.OK
    assert not model.results


@pytest.mark.parametrize("encodes", [False, True])
@pytest.mark.parametrize("sooner", ["status", "error"])
def test_the_interrupt_is_low_after_every_job(attach: Make, encodes: bool, sooner: str) -> None:
    model = Model(encodes=encodes)
    driver, job = attach(model), encode_job() if encodes else decode_job()
    job.segments, job.layout.values = 1, 64
    assert driver.start(job, interrupt=True) == Status.OK
    assert driver.step(job) == Status.BUSY
    model.end()
    model.results += [dict.fromkeys(model.values, 0) | {"result": 1}] * encodes
    # Events set IRQ again after the step has cleared it, as behind a slow bus.
    model.after[sooner] = lambda: model.values.update(irq=7)
    assert driver.step(job) == Status.OK
    assert not model.irq
    assert model.values["irq"] == model.values["irq_enable"] == 0


def test_the_interrupt_is_low_after_a_fault(attach: Make) -> None:
    model, job = Model(), decode_job()
    driver = attach(model)
    driver.start(job, interrupt=True)
    driver.step(job)
    model.end(short=1)
    assert driver.step(job) == Status.FAULT
    model.values["irq"] = 7  # a segment that was on its way
    assert not model.irq


def test_results_of_another_job_are_not_taken(attach: Make) -> None:
    model = Model(encodes=True)
    driver, job = attach(model), encode_job()
    model.results += [dict.fromkeys(model.values, 0) | {"result": compose("result", valid=1)}] * 2
    assert driver.start(job) == Status.STALE
    assert not model.enabled
    assert finish_abort(driver, fresh=True) == 3
    assert model.fresh
    assert driver.start(job) == Status.OK


def bad_entry(**changed: int) -> Decode:
    job = decode_job(base=0xFFFF_FFFF_FFFF_F000)
    for name, value in changed.items():
        setattr(job.directory[1], name, value)
    return job


@pytest.mark.parametrize(
    "changed",
    [
        {"speculation_length": 0x0200_0001},  # 128 bytes in 32 bits
        {"speculation_length": (1 << 24) // SUPERBLOCK},
        {"verification_length": 1 << 31},
        {"speculation_offset": 0x1000 // SUPERBLOCK},
        {"speculation_offset": 0x1000 // SUPERBLOCK - 1, "speculation_length": 2},
        {"speculation_offset": (1 << 32) - 1},
    ],
)
def test_a_region_that_is_too_long_is_refused(attach: Make, changed: dict[str, int]) -> None:
    model, job = Model(), bad_entry(**changed)
    driver = attach(model)
    assert driver.start(job, interrupt=True) == Status.OK
    assert driver.step(job) == Status.LENGTH
    assert model.log.count("start") == 1  # the entry before it
    assert not model.queue
    assert not model.enabled
    model.values["irq"] = 7
    assert not model.irq


def test_a_region_may_end_with_the_addresses(attach: Make) -> None:
    job = bad_entry(speculation_offset=0x1000 // SUPERBLOCK - 1, speculation_length=1)
    model = Model()
    driver = attach(model)
    driver.start(job)
    assert driver.step(job) == Status.BUSY
    assert model.queue[1]["speculation_length"] == SUPERBLOCK


@pytest.mark.parametrize("encodes", [False, True])
@pytest.mark.parametrize("early", [False, True])
def test_a_device_that_was_reset_is_noticed(attach: Make, encodes: bool, early: bool) -> None:
    model = Model(encodes=encodes)
    driver, job = attach(model), encode_job() if encodes else decode_job()
    driver.start(job, interrupt=True)
    if not early:
        assert driver.step(job) == Status.BUSY
    model.reset()
    assert driver.step(job) == Status.LOST
    assert not model.enabled
    assert not model.values["irq_enable"]


def test_a_device_that_another_driver_has_taken_over_is_noticed(attach: Make) -> None:
    model, job = Model(), decode_job()
    driver = attach(model)
    driver.start(job)
    while len(model.queue) < 1 or job.next < 3:
        driver.step(job)
        model.end()
    model.reset()
    model.enabled = True
    assert driver.step(job) == Status.LOST


@pytest.mark.parametrize("register", ["decoder", "fetch"])
def test_a_device_without_capabilities_is_refused(library: Path, register: str) -> None:
    model = Model()
    model.values[register] = 0
    assert Driver(library, model.read, model.write).probe() == Status.NOT_FOUND


HOOK = "#define CASSANDRA_BARRIER() cassandra_test_barrier()\nvoid cassandra_test_barrier(void);\n"


def test_a_barrier_comes_before_each_start_and_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "hook.h").write_text(HOOK)
    source = tmp_path / "hooked.c"
    counter = "unsigned cassandra_test_barriers; void cassandra_test_barrier(void) {"
    source.write_text(f'#include "{SOURCE}"\n{counter} cassandra_test_barriers++; }}\n')
    include = f"-I{SOURCE.parent}"
    path = build(source, tmp_path / "hooked.so", f"-include{tmp_path / 'hook.h'}", include)
    count = ctypes.c_uint.in_dll(ctypes.CDLL(str(path)), "cassandra_test_barriers")
    model, job, seen = Model(), decode_job(), []
    write = model.write

    def watched(offset: int, value: int) -> None:
        write(offset, value)
        seen.extend([count.value] * (model.log[-1] == "start"))

    driver = Driver(path, model.read, watched)
    assert driver.probe() == Status.OK
    driver.start(job)
    while driver.step(job) == Status.BUSY:
        model.end()
    assert seen == [1, 2, 3]
    assert count.value == 4


CALLER = """\
#include "cassandra.h"
namespace {
uint32_t read(void*, uint32_t) { return 0; }
void write(void*, uint32_t, uint32_t) {}
}
int main() {
    const cassandra_bus bus = {read, write, nullptr};
    cassandra_device device = {};
    CASSANDRA_BARRIER();
    return cassandra_probe(&device, &bus) == CASSANDRA_NOT_FOUND ? 0 : 1;
}
"""


@pytest.mark.parametrize("dialect", ["c++11", "c++20"])
def test_a_caller_in_cpp_links_with_the_driver(dialect: str, tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(CALLER)
    subprocess.run(["gcc", *FLAGS, "-c", str(SOURCE), "-o", tmp_path / "driver.o"], check=True)
    flags = [f"-std={dialect}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{SOURCE.parent}"]
    files = [tmp_path / "main.cpp", tmp_path / "driver.o"]
    subprocess.run(["g++", *flags, *files, "-o", tmp_path / "main"], check=True)
    subprocess.run([tmp_path / "main"], check=True)


RISCV = "riscv64-unknown-elf-gcc"
TARGETS = {
    "riscv32": (RISCV, "-march=rv32imc", "-mabi=ilp32"),
    "riscv64": (RISCV, "-march=rv64imac", "-mabi=lp64"),
    "x86-64": ("gcc",),
}
CHECKS = "-*,clang-diagnostic-*,clang-analyzer-*,bugprone-*,misc-no-recursion"
CHECKS += ",-bugprone-easily-swappable-parameters"  # offsets and values are both uint32_t


@pytest.mark.parametrize("target", TARGETS)
def test_the_driver_compiles_and_needs_no_library(target: str, tmp_path: Path) -> None:
    compiler, *machine = TARGETS[target]
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} must be installed to compile for {target}")
    out = tmp_path / "driver.o"
    command = [compiler, *machine, *FLAGS, "-c", str(SOURCE), "-o", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    nm = compiler.replace("gcc", "nm")
    listed = subprocess.run([nm, "-u", str(out)], check=True, capture_output=True, text=True)
    assert listed.stdout == ""


@pytest.mark.parametrize("target", ["riscv32", "riscv64", "x86_64"])
def test_clang_finds_nothing(target: str) -> None:
    clang = Path(sys.executable).with_name("clang-tidy")
    command = [str(clang), "--quiet", "--warnings-as-errors=*", f"--checks={CHECKS}", str(SOURCE)]
    command += ["--", f"--target={target}", *FLAGS]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-2000:]
