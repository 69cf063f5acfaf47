"""The report of the encoder: every memory is counted."""

from __future__ import annotations

from cassandra_spec.rtl.decode.top import to_rtlil
from cassandra_spec.rtl.encode.types import EncoderConfig
from cassandra_spec.rtl.encode.vector_buffer import StoredBeat
from cassandra_spec.rtl.encoder import EncoderTop
from cassandra_spec.synth.synthesis import memories_of

CONFIG = EncoderConfig(lanes=8, schemes=("mx",), vector=64, group=64, segment=256)


def test_every_memory_is_counted() -> None:
    text = to_rtlil(EncoderTop(CONFIG))
    found = {name.rpartition(".encoder.")[2]: bits for name, bits in memories_of(text).items()}
    assert sum(found.values()) > 0
    assert len(found) == text.count("\n  memory width ")
    beats = 4 * CONFIG.vector // CONFIG.lanes  # four vectors
    assert found["front.vectors.held"] == beats * StoredBeat(CONFIG).size
