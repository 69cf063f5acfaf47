"""The report of the encoder: every memory is counted."""

from __future__ import annotations

from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encode.vector_buffer import StoredBeat
from cassandra_spec.synth.report import design_of
from cassandra_spec.synth.synthesis import macros_of

CONFIG = EncoderConfig(lanes=8, schemes=("mx",), vector=64, group=64, segment=256)


def test_every_memory_is_counted() -> None:
    design = design_of(CONFIG)
    found = macros_of(design)
    assert sum(found.values()) > 0
    assert len(found) == design.rtlil.count("\n  cell \\cassandra_ram_")
    beats = 4 * CONFIG.vector // CONFIG.lanes  # four vectors
    assert found["encoder.front.vectors.held.store"] == beats * StoredBeat(CONFIG).size
