"""The exported assertions find faults in a user's wrapper, and pass a good one."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cassandra_spec.golden.format import Format
from cassandra_spec.rtl.common.command import COMMAND_WIDTH, DecoderConfig
from cassandra_spec.synth.export import export
from cassandra_spec.verif.decoder.jobs import jobs_of
from cassandra_spec.verif.library.packets import region_packet
from cassandra_spec.verif.library.payloads import draw

CONFIG = DecoderConfig(lanes=8, schemes=("mx",))
WRAPPER = Path(__file__).with_name("assertions_wrapper.v")
FAULTS = {
    1: "s_axis_speculation.payload_stays",
    2: "s_axis_speculation.valid_stays",
}
UNKNOWN = {
    3: "s_axis_speculation.valid_known",
    4: "s_axis_speculation.payload_known",
    5: "clear_error_known",
}
"""Faults that a simulator with two states cannot see."""

Simulation = Callable[[int], str]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the exported decoder."""
    return export(tmp_path_factory.mktemp("exported"), CONFIG).parent


def prepare(out: Path) -> list[str]:
    """Write a segment's words beside the decoder, and return the definitions of the wrapper."""
    fmt = Format(scheme="mx", beat=8, segment=1024)
    job = next(iter(jobs_of(draw(np.random.default_rng(1), fmt, 1024, "weights"), [False])))
    words = list(region_packet(job.request.segment.speculation.tobytes(), 8))
    lines = [f"{word['tdata'] | word['tlast'] << 64:x}\n" for word in words]
    (out / "words.hex").write_text("".join((*lines, "0\n")))
    name = CONFIG.module_name
    command = f"{COMMAND_WIDTH}'d{job.request.word}"
    defined = {"TOP": name, "CHECKER": f"{name}_assertions", "WORDS": len(words)}
    return [f"-D{key}={value}" for key, value in (defined | {"COMMAND": command}).items()]


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def icarus(exported: Path) -> Simulation:
    if shutil.which("iverilog") is None:
        pytest.skip("iverilog is not there: apt install iverilog")
    sources = [f"{CONFIG.module_name}.v", f"{CONFIG.module_name}_assertions.sv", str(WRAPPER)]
    options = ["-g2012", "-s", "wrapper", "-o", "wrapper", *prepare(exported)]
    run(["iverilog", *options, *sources], exported)
    return lambda fault: run(["vvp", "-n", "wrapper", f"+fault={fault}"], exported)


def failed(printed: str) -> list[str]:
    """Return the names of the assertions that failed, in order."""
    return [name.strip(".") for name in re.findall(r"\.assertions\.([\w.]+)", printed)]


def test_icarus_passes_a_good_wrapper(icarus: Simulation) -> None:
    printed = icarus(0)
    assert printed.split()[:2] == ["decoded", "0"]
    assert failed(printed) == []


@pytest.mark.parametrize("fault", FAULTS | UNKNOWN)
def test_icarus_finds_a_fault(fault: int, icarus: Simulation) -> None:
    assert failed(icarus(fault))[0] == (FAULTS | UNKNOWN)[fault]


def test_yosys_reads_the_assertions(exported: Path) -> None:
    if shutil.which("yosys") is None:
        pytest.skip("yosys is not there: apt install yosys")
    name = CONFIG.module_name
    script = f"read_verilog -sv -formal {name}_assertions.sv; hierarchy -check -top {name}_"
    script += "assertions; proc; flatten; check -assert; select -assert-min 20 t:$check t:$assert"
    done = subprocess.run(["yosys", "-q", "-p", script], cwd=exported, check=False)
    assert done.returncode == 0
