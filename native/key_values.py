"""The engine's KV cache in the format: target and draft values of committed chunks.

The engine seals a chunk of positions by itself (native/src/attention/sealer.h). The codec encodes
it and decodes the values that a draft reads; planes of the engine's own (sealed.h) hold these and
the target's values bit for bit in the place of the BF16 originals.
"""

from __future__ import annotations

import dataclasses
from ctypes import c_int32
from typing import Literal, get_args

from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.golden.selection import check_prune
from cassandra_spec.native.arrays import CheckedStructure
from cassandra_spec.native.codec import Params, codec_params
from cassandra_spec.native.limits import CHUNK

GROUP_MIN = 16
"""Smallest group size that the engine's planes support."""

Order = Literal["channel", "token"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SealedFormat:
    """The format of sealed keys and values, and the order of values within it.

    In the order ``channel`` the values of one channel of a block follow each other, position by
    position: keys have channels that are large at every position, and a group of one channel has a
    fitting exponent. In the order ``token`` the vectors of a position follow each other as they are
    computed, head by head, and ``keep`` is the number of values of each vector in the draft. Raises
    :class:`CassandraError` that names the field.
    """

    format: Format = dataclasses.field(default_factory=Format)  # its segment is not used
    block: int = 32  # positions in a block, in the order channel a multiple of the format's group
    prune: float = 0.0  # smallest fraction of each position that the draft reads as 0
    order: Order = "channel"  # order of values within a block
    keep: int | None = None  # largest values of each vector (order token); None: all
    whole: bool = False  # the draft reads verification data, too: it sees what the target sees

    def __post_init__(self) -> None:
        check_prune(self.prune)
        if self.order not in get_args(Order):
            raise CassandraError(f"order must be channel or token, not {self.order!r}")
        unit = 1 if self.by_token else self.format.group
        if self.block < 1 or self.block % unit:
            raise CassandraError(
                f"block must be a multiple of {unit} (the group), not {self.block}"
            )
        self._check_keep()

    def _check_keep(self) -> None:
        if self.keep is None:
            return
        if self.keep < 0:
            raise CassandraError(f"keep must be at least 0, not {self.keep}")
        if not self.by_token:
            raise CassandraError(
                f"keep must be left out in the order {self.order}: a vector is not in one piece"
            )
        if self.prune:
            raise CassandraError(f"prune must be 0 beside keep, not {self.prune}")

    @property
    def lossless(self) -> bool:
        """True if the target reads the model's own keys and values, bit for bit."""
        return self.format.scheme != "mx"

    @property
    def by_token(self) -> bool:
        """True in the order ``token``."""
        return self.order == "token"

    # --- in the engine ---------------------------------------------------------------------------

    @property
    def plane_group(self) -> int:
        """Return the number of values that share an exponent in the engine's planes."""
        if self.format.scheme == "unary":  # has no groups: small ones fit heads of any size
            return GROUP_MIN if self.by_token else 32
        return self.format.group

    def check_engine(self, head_size: int) -> None:
        """Raise :class:`CassandraError` for what the engine cannot hold, with heads of a size."""
        if not self.lossless:
            raise CassandraError(
                "the scheme of keys and values must be unary or exact with the native backend,"
                f" not {self.format.scheme}, which rounds what the target reads"
            )
        if CHUNK % self.block:
            raise CassandraError(
                f"block must divide {CHUNK} (positions of a native chunk), not {self.block}"
            )
        group = self.plane_group
        if not GROUP_MIN <= group <= CHUNK:
            raise CassandraError(
                f"group must be a power of two from {GROUP_MIN} to {CHUNK}, not {group}"
            )
        grouped = self.format.scheme == "exact" and not self.whole
        if grouped and self.by_token and head_size % group:
            raise CassandraError(
                f"group must divide the head size {head_size} in the order token, not {group}"
            )

    def structure(self, heads: int, head_size: int) -> SealedFormatStructure:
        """Return the format as a C structure, for a model with these heads."""
        compared = heads if self.prune else 1
        values = compared * head_size
        kept = values - round(self.prune * values)
        return SealedFormatStructure(
            codec_params(self.format),
            by_token=int(self.by_token),
            whole=int(self.whole),
            group=self.plane_group,
            compared=compared,
            keep=kept if self.keep is None else min(self.keep, kept),
        )

    def read_bits(self, *, draft: bool) -> float:
        """Return the bits per value that a pass reads, without masks and unusual values."""
        low = 4 * (not draft or self.whole or self.format.truncated < 4)
        return 8 + low + 8 / self.plane_group


class SealedFormatStructure(CheckedStructure):
    """``SealedFormat`` of sealer.h."""

    _fields_ = (
        ("params", Params),
        *((name, c_int32) for name in ("by_token", "whole", "group", "compared", "keep")),
    )
