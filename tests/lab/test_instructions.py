"""Counts of instructions: exact, and in proportion to the matrix; projections by hand."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cassandra_spec.lab.instructions import __main__ as command
from cassandra_spec.lab.instructions import counting, projection
from cassandra_spec.lab.instructions.counting import ARM, COUNTED, X86, Counter
from cassandra_spec.lab.instructions.projection import Device, Pass
from cassandra_spec.native.build import NativeError
from cassandra_spec.native.forms import FORMS
from cassandra_spec.native.library import available_isas
from cassandra_spec.native.linear import NativeLinear
from tests.marks import slow

MACHINES = (slow(X86), slow(ARM))  # each compiles the whole library
COUNTS = {
    (form, isa, rows): rows / 8.0
    for isa in ("neon", "neonbf16")
    for form in FORMS
    for rows in projection.ROWS
}
BOARD = Device(name="board", isa="neon", cores=2, clock=1e9, bandwidth=1e9, per_cycle=(1, 2))

NOPS = """
#include <csignal>
int main(int, char** arguments) {
    std::signal(SIGUSR1, SIG_IGN);
    for (char left = *arguments[1]; left != '0'; --left) {
        std::raise(SIGUSR1);
        __asm__ volatile(".rept 1000\\n nop\\n .endr");
        std::raise(SIGUSR1);
    }
}
"""


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> str:
    """Provide the name of a machine whose instructions can be counted here."""
    name: str = request.param
    if name == X86 and platform.machine() != X86:
        pytest.skip("this machine is not x86-64")
    if name == ARM:
        try:
            counting.find_cross_toolchain(ARM)
            counting.runner(ARM, Path())
        except NativeError as error:
            pytest.skip(str(error))
    return name


@pytest.fixture
def counter(machine: str) -> Iterator[Counter]:
    """Provide the counter of a machine."""
    with counting.open_counter(machine) as opened:
        yield opened


@pytest.mark.parametrize("machine", MACHINES, indirect=True)
def test_every_instruction_is_counted_once(machine: str, tmp_path: Path) -> None:
    source = tmp_path / "nops.cpp"
    source.write_text(NOPS)
    program = counting.compile_for(machine, str(source), tmp_path)
    run = (*counting.runner(machine, tmp_path), program)
    with source.open() as file:
        lines = [counting.count_lines([*run, count], file.fileno()) for count in "123"]
    assert 1000 < lines[1] - lines[0] < 1200
    assert lines[2] - lines[1] == lines[1] - lines[0]


@pytest.mark.parametrize("machine", MACHINES, indirect=True)
def test_counts_repeat_and_grow_with_the_matrix(machine: str, counter: Counter) -> None:
    for form in ("bf16", "draft5"):
        runs = available_isas() if machine == X86 else COUNTED[machine]  # Arm is emulated
        for isa in (each for each in COUNTED[machine] if each in runs):
            found = [
                outputs * 64 * counter.per_weight(form, isa, 2, (outputs, 64))
                for outputs in (32, 64, 96, 32)
            ]
            assert found[0] == found[3] > 0
            assert found[2] - found[1] == found[1] - found[0] > found[0] / 2


def test_a_program_that_fails_is_an_error(tmp_path: Path) -> None:
    with (tmp_path / "none").open("w+") as file, pytest.raises(NativeError, match="not end with 1"):
        counting.count_lines(["false"], file.fileno())


def test_a_missing_cross_compiler_is_named() -> None:
    with pytest.raises(NativeError, match="needs pdp11-linux-gnu-g\\+\\+, which is not on PATH"):
        counting.find_cross_toolchain("pdp11")


@pytest.mark.parametrize("form", FORMS)
def test_bytes_are_those_of_a_layer(form: projection.FormName) -> None:
    values = counting.sample_values(form, (48, 128), np.random.default_rng(1))
    with NativeLinear(values, form, group=counting.GROUP) as layer:
        assert layer.form == form
        escapes = layer.nbytes - projection.matrix_bytes(form, (48, 128))
    bounds = {"packed12": 64, "packed8": 64, "planes": 48 * 128 // 4}
    assert 0 < escapes < bounds[form] if form in bounds else escapes == 0


def test_the_longer_time_is_that_of_a_pass() -> None:
    one = Pass(nbytes=10**9, instructions=4e9)
    assert (one.seconds(BOARD, 1), one.waits(BOARD, 1)) == (2.0, False)
    assert (one.seconds(BOARD, 4), one.waits(BOARD, 4)) == (1.0, True)


def test_a_pass_reads_every_matrix_once() -> None:
    one = projection.model_pass("135m", "bf16", "neon", 8, COUNTS)
    assert one.instructions == pytest.approx(134.5e6, rel=1e-3)
    assert one.nbytes == 2 * one.instructions


def test_the_command_fills_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "arm.md"
    blocks = ("counts", "projection")
    page.write_text("\n".join(f"<!-- {name} -->\n\n<!-- /{name} -->\n" for name in blocks))
    monkeypatch.setattr(command, "count_all", lambda say: COUNTS)
    assert command.main(["--document", str(page)]) == 0
    lines = page.read_text().splitlines()
    assert "| `packed12` | 1.50 | 0.12, 1.00 | 0.12, 1.00 |" in lines
    (pi,) = (line for line in lines if "SmolLM2-135M | Raspberry Pi 5 | 1 |" in line)
    assert "| 40.9 (m) | 54.5 (m) |" in pi
