"""Exported tops in other tools: Verilator's -Wall, Yosys, Icarus Verilog."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.format import Format, Scheme
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import DmaConfig, StoreConfig
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.synth.export import export
from cassandra_spec.verif import icarus
from cassandra_spec.verif.decoder.jobs import Job, jobs_of
from cassandra_spec.verif.encoder.cases import draw_segment
from cassandra_spec.verif.icarus.simulation import require_icarus
from cassandra_spec.verif.library.payloads import draw
from cassandra_spec.verif.tools.lint import lint

DECODER = DecoderConfig(lanes=8)
FULL = DecoderConfig(lanes=8, target_rate="full")
CODED = DecoderConfig(lanes=8, schemes=("unary",), coded=True)
ENCODER = EncoderConfig(lanes=8, vector=64, group=64, segment=1024)
CONFIGS: dict[str, DecoderConfig | DmaConfig | EncoderConfig | StoreConfig] = {
    "decoder": DECODER,
    "full rate": FULL,
    "coded": CODED,
    "dma": DmaConfig(decoder=DECODER),
    "array": DmaConfig(decoder=DECODER, decoders=2, bus=32, reorder=1024),
    "dma, full rate": DmaConfig(decoder=FULL),
    "dma, coded": DmaConfig(decoder=CODED),
    "one scheme": DmaConfig(decoder=DecoderConfig(lanes=8, schemes=("mx",)), books=1, address=32),
    "encoder": ENCODER,
    "encoder-dma": StoreConfig(encoder=ENCODER, bus=32, address=40),
    "one scheme, encoder": StoreConfig(
        encoder=EncoderConfig(lanes=8, schemes=("mx",), vector=64, group=64, segment=1024), books=1
    ),
}
SCHEMES: tuple[Scheme, ...] = ("unary", "mx", "exact")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("rtl")
    return {name: export(out, config) for name, config in CONFIGS.items()}


def need(program: str, package: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not there: apt install {package}")


def jobs(scheme: Scheme, target: bool, lead: int = 1) -> list[Job]:
    rng = np.random.default_rng(1)
    fmt = Format(scheme=scheme, beat=8, segment=96, lead=lead)
    return list(jobs_of(draw(rng, fmt, 250, "weights"), [target]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["coded", "one scheme", "one scheme, encoder"])
def test_verilator_has_no_warning(name: str, exported: dict[str, Path]) -> None:
    """The other shapes are among the tops of `make lint`."""
    assert lint(exported[name].with_suffix(".f")) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_yosys_has_no_warning(name: str, exported: dict[str, Path]) -> None:
    need("yosys", "yosys")
    path = exported[name]
    # The encoder's memories stay memories: as flip-flops they would be most of it.
    memory = "memory -nomap" if "encoder" in name else "memory"
    sources = " ".join(
        str(path.with_name(name)) for name in path.with_suffix(".f").read_text().split()
    )
    script = (
        f"read_verilog {sources}; hierarchy -check -top {path.stem}; proc; {memory}; check -assert"
    )
    run = subprocess.run(["yosys", "-q", "-p", script], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout + run.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["decoder", "full rate"])
def test_icarus_decodes_as_golden_does(
    name: str, exported: dict[str, Path], tmp_path: Path
) -> None:
    need("iverilog", "iverilog")
    config = CONFIGS[name]
    assert isinstance(config, DecoderConfig)
    modes = (False, True) if name == "decoder" else (True,)
    work = [job for scheme in SCHEMES for mode in modes for job in jobs(scheme, mode, config.lead)]
    values = icarus.decode(exported[name], config, work, tmp_path)
    assert np.array_equal(values, np.concatenate([job.expected for job in work]))


@pytest.mark.slow
def test_icarus_decodes_coded_exponents_as_golden_does(
    exported: dict[str, Path], tmp_path: Path
) -> None:
    need("iverilog", "iverilog")
    fmt = Format(beat=8, segment=96, pruned_exponent="coded")
    work = list(jobs_of(draw(np.random.default_rng(1), fmt, 90, "rare")))
    values = icarus.decode(exported["coded"], CODED, work, tmp_path)
    assert np.array_equal(values, np.concatenate([job.expected for job in work]))


@pytest.mark.slow
@pytest.mark.parametrize("target", [False, True])
@pytest.mark.parametrize("name", ["dma", "array"])
def test_icarus_decodes_by_dma_as_golden_does(
    name: str, target: bool, exported: dict[str, Path], tmp_path: Path
) -> None:
    need("iverilog", "iverilog")
    config = CONFIGS[name]
    assert isinstance(config, DmaConfig)
    for scheme in SCHEMES:
        work = jobs(scheme, target)
        values = icarus.decode_by_dma(exported[name], config, work, tmp_path)
        assert np.array_equal(values, np.concatenate([job.expected for job in work]))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_icarus_encodes_as_golden_does(
    scheme: Scheme, exported: dict[str, Path], tmp_path: Path
) -> None:
    need("iverilog", "iverilog")
    segment = draw_segment(np.random.default_rng(1), ENCODER, scheme, "normal")
    found = icarus.encode(exported["encoder"], ENCODER, segment, tmp_path)
    packed = segment.packed
    assert found == (packed.speculation.tobytes(), packed.verification.tobytes())


def test_icarus_that_is_absent_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CassandraError, match="no iverilog: apt install iverilog"):
        require_icarus()


def test_what_does_not_elaborate_is_said(tmp_path: Path) -> None:
    need("iverilog", "iverilog")
    (tmp_path / "bad.v").write_text("module bad(; endmodule\n")
    (tmp_path / "bad.f").write_text("bad.v\n")
    with pytest.raises(CassandraError, match="iverilog failed:"):
        icarus.decode(tmp_path / "bad.v", DECODER, jobs("mx", False), tmp_path)
