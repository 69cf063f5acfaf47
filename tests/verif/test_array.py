"""Arrays of decoders behind one read master: the suites of the DMA, and their rate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cassandra_spec.golden.format import Format, Scheme
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import DmaConfig
from cassandra_spec.rtl.dma.decoder_dma import CassandraDma
from cassandra_spec.verif.dma.rate import measure
from cassandra_spec.verif.library.axi import Ruled
from cassandra_spec.verif.library.payloads import Payload, gaussian
from cassandra_spec.verif.tools.runner import run_suite
from tests.marks import exhaustive, slow
from tests.verif.test_dma import MODULES, described

BUILD = Path(__file__).parents[2] / "build" / "cocotb"
SHARE = 0.97  # of the values in a cycle that as many decoders could give

CONFIGS = {
    "n2": DmaConfig(decoders=2, reorder=2048),
    "n4": DmaConfig(
        decoder=DecoderConfig(lanes=8), decoders=4, bus=16, burst=128, buffer=512, reorder=512
    ),
}


@pytest.mark.parametrize("name", [slow("n2"), exhaustive("n4")])
def test_array(name: str) -> None:
    top = CassandraDma(CONFIGS[name])
    build = BUILD / f"array_{name}"
    environment = described(top, build)
    run_suite(Ruled(top), MODULES, top.module_name, build_dir=build, extra_env=environment)


def weights(scheme: Scheme, segments: int, size: int = Format().segment) -> Payload:
    """Normally distributed weights in segments of a size; 40 % pruned in unary, as in the paper."""
    rng = np.random.default_rng(1)
    fmt = Format(scheme=scheme, segment=size)
    values = gaussian(rng, segments * fmt.segment)
    threshold = np.quantile(np.abs((values & 0x7FFF).astype(int)), 0.4)
    kept = (values & 0x7FFF) > threshold if scheme == "unary" else None
    return Payload(name="weights", format=fmt, values=values, kept=kept)


@pytest.mark.slow
def test_decoders_that_share_the_fetch_keep_their_rate() -> None:
    """Two decoders; for four: ``python -m cassandra_spec.lab.gateware.array_rate``."""
    config = CONFIGS["n2"]
    build = BUILD / "array_n2"  # that of test_array, which has the same design
    for scheme in ("unary", "mx", "exact"):
        # A decoder may be half of a segment ahead: the least with which neither waits.
        payload = weights(scheme, 16, 2 * config.reorder)
        rate = measure(config, payload, target=False, build=build)
        assert rate.steady >= SHARE * config.beat_values, (scheme, rate)


@pytest.mark.exhaustive
def test_the_buffer_hides_the_latency_that_the_guide_says() -> None:
    config = DmaConfig()
    payload = weights("mx", 4)
    bits = 8 * payload.packed.speculation.size / len(payload.values)
    lanes = config.decoder.lanes
    hidden = int((config.buffer - config.burst) / (lanes * bits / 8))

    def steady(latency: int) -> float:
        both = (latency, latency)
        build = BUILD / "dma_l16"  # that of test_dma.py, which has the same design
        return measure(config, payload, target=False, build=build, latency=both).steady

    assert steady(hidden) >= SHARE * config.beat_values
    assert steady(3 * hidden) < SHARE * config.beat_values
