"""Depths of the encoder's memories, in units (docs/hardware/encoder-microarchitecture.md)."""

from __future__ import annotations

import dataclasses

from cassandra_spec.rtl.common.residue import FIELD_MAX
from cassandra_spec.rtl.common.superblock_reader import BUS_ROWS
from cassandra_spec.rtl.encode.types import EncoderConfig

_SLACK = 4  # units in queue outputs, packers and schedules


@dataclasses.dataclass(frozen=True, kw_only=True)
class Depths:
    """Depths of the memories between packers and schedules.

    With these depths, a segment always ends although one of its units stays incomplete: no memory
    that the waiting schedule must empty first can stop the packers.
    ``encoder-microarchitecture.md`` has the argument, ``tests/verif/test_encoder_regions.py`` runs
    the worst cases.
    """

    beats: int  # beats of a segment
    exponents: int  # windows, or rows of shared exponents
    high: int  # blocks of sign and high bits
    low: int  # blocks of low bits
    pruned: int  # blocks of pruned values and escapes
    residue: int  # words of ``BUS_ROWS`` rows

    @classmethod
    def of(cls, config: EncoderConfig) -> Depths:
        """Return the depths for a configuration."""
        lanes, window = config.lanes, config.window
        beats = -(-config.segment // lanes)
        grouped = config.has("mx") or config.has("exact")
        # Windows of incomplete codes, and up to two that wait with their slot.
        windows = config.codebook // window + 2 if config.has("unary") else 0
        shared = beats * 8 // lanes if grouped else 0
        neighbours = (lanes // 8 - 1) * config.group // lanes if grouped else 0
        halves = lanes > 16  # with 32 lanes a row of pruned values can be half full
        words = -(-beats * FIELD_MAX // BUS_ROWS) if halves else 3
        return cls(
            beats=beats + _SLACK,
            exponents=max(windows, shared) + _SLACK,
            high=max(window, neighbours) + _SLACK,
            low=(beats if halves or config.has("exact") else 0) + _SLACK,
            pruned=beats + _SLACK,
            residue=words + _SLACK if config.has("exact") else 0,
        )
