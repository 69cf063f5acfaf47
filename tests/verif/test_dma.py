"""The cocotb suite of a decoder behind its DMA."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.common.conversion import verilog_of
from cassandra_spec.rtl.dma.config import DmaConfig, StoreConfig
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.rtl.dma.encoder_dma import CassandraEncoderDma
from cassandra_spec.synth.export import describe, ports_of
from cassandra_spec.synth.interface.assertions import assertions
from cassandra_spec.verif.dma.decoding import SMALL
from cassandra_spec.verif.dma.firmware import driver
from cassandra_spec.verif.dma.resets.decoding import ABORTS
from cassandra_spec.verif.library.axi import Ruled
from cassandra_spec.verif.tools.runner import SuiteError, run_suite, write_if_changed
from tests.marks import exhaustive, slow

BUILD = Path(__file__).parents[2] / "build" / "cocotb"

DRIVER = Path(__file__).parents[2] / "drivers" / "cassandra.c"

MODULES = ",".join(
    f"cassandra_spec.verif.dma.{name}"
    for name in (
        "decoding",
        "failures",
        "software",
        "described",
        "firmware.decoding",
    )
)
CONFIGS = {
    "l16": DmaConfig(),
    "l8": SMALL,
    "l32": DmaConfig(decoder=DecoderConfig(lanes=32), burst=128, buffer=512, queue=2, address=48),
    "l8_full": dataclasses.replace(SMALL, decoder=DecoderConfig(lanes=8, target_rate="full")),
    "l8_coded": dataclasses.replace(SMALL, decoder=DecoderConfig(lanes=8, coded=True)),
}


@pytest.mark.parametrize("name", ["l8", *map(exhaustive, ("l16", "l32", "l8_full", "l8_coded"))])
def test_dma(name: str) -> None:
    top = CassandraDma(CONFIGS[name])
    build = BUILD / f"dma_{name}"
    environment = formats(top.config) | described(top, build)
    run_checked(top, MODULES, build, environment)


@pytest.mark.parametrize(
    ("name", "aborts"),
    [("l8", "few"), slow("l8", "shared"), *(exhaustive(name, "each") for name in CONFIGS)],
)
def test_resets(name: str, aborts: str) -> None:
    top = CassandraDma(CONFIGS[name])
    build = BUILD / f"dma_{name}"
    environment = formats(top.config) | described(top, build) | sweep(aborts)
    run_checked(top, "cassandra_spec.verif.dma.resets.decoding", build, environment)
    run_strays(top, "cassandra_spec.verif.dma.resets.stray_reads", build, environment)


def sweep(aborts: str) -> dict[str, str]:
    """Return the variables by which the suites of resets know in which cycles jobs are aborted."""
    return {} if aborts == "few" else {ABORTS: aborts}


@functools.cache
def ruled(config: DmaConfig | StoreConfig, build: Path) -> Path:
    """Write the Verilog of a top beside its rules, once for all suites that run in a folder."""
    top = CassandraDma(config) if isinstance(config, DmaConfig) else CassandraEncoderDma(config)
    path = build / f"{top.module_name}.v"
    build.mkdir(parents=True, exist_ok=True)
    write_if_changed(path, verilog_of(Ruled(top), top.module_name))
    return path


def run_checked(
    top: CassandraDma | CassandraEncoderDma,
    modules: str,
    build: Path,
    environment: dict[str, str],
    *,
    rules: str | None = None,
    plusargs: Sequence[str] = (),
) -> None:
    """Run suites of a top with the exported assertions bound to it, or with other ``rules``."""
    name = top.module_name
    run_suite(
        [ruled(top.config, build)],
        modules,
        name,
        build_dir=build,
        extra_env=environment,
        assertions=assertions(name, ports_of(top)) if rules is None else rules,
        plusargs=plusargs,
    )


def run_strays(
    top: CassandraDma | CassandraEncoderDma, module: str, build: Path, environment: dict[str, str]
) -> None:
    """Run the tests whose memory breaks AXI's rules, which the assertions would find."""
    run_checked(
        top,
        module,
        build,
        environment,
        plusargs=["+verilator+noassert"],
    )


@pytest.mark.exhaustive
def test_a_broken_assertion_ends_the_suite(tmp_path: Path) -> None:
    top = CassandraDma(CONFIGS["l8"])
    rules = assertions(top.module_name, ports_of(top))
    wrong = rules.replace("assert (irq || !irq_before)", "assert (!irq)")
    assert wrong != rules
    build = tmp_path / "dma"
    environment = formats(top.config) | described(top, build)
    with pytest.raises(SuiteError):
        run_checked(top, "cassandra_spec.verif.dma.software", build, environment, rules=wrong)
    [log] = build.rglob("log.txt")
    assert "assertions.irq_stays: 'assert' failed" in log.read_text()


def described(top: CassandraDma | CassandraEncoderDma, build: Path) -> dict[str, str]:
    """Write what the suites read of a top, its registers and the C driver; tell them where."""
    path = build.with_suffix(".rdl")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(describe(top), encoding="utf-8")
    library = driver.build(DRIVER, build.with_suffix(".so"))
    return {"CASSANDRA_REGISTERS": str(path), "CASSANDRA_DRIVER": str(library)}


def formats(config: DmaConfig) -> dict[str, str]:
    """Return the variables by which the suites know the formats of a design."""
    decoder = config.decoder
    fields = {"lead": decoder.lead, **({"coded": True} if decoder.coded else {})}
    return {"CASSANDRA_FORMATS": json.dumps(fields)}
