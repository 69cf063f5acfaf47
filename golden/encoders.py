"""Encoders as the runtime sees them: vectors of keys and values in, packed tensors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cassandra_spec.golden.codec import encode
from cassandra_spec.golden.format import Format
from cassandra_spec.golden.packed import Packed, Packer, Values
from cassandra_spec.golden.selection import keep_largest


class Encoder(Protocol):
    """What the runtime needs of an encoder; golden's and the gateware both offer it.

    Segments have a mask stream where something may be pruned: with ``keep``, and in unary.
    """

    def encode(
        self,
        values: Values,
        format: Format,
        *,
        vector: int,
        keep: int | None = None,
        codebook: Sequence[int] | None = None,
    ) -> Packed:
        """Pack whole segments of vectors.

        Args:
            values: BF16 patterns, uint16 [count], vector after vector.
            format: the parameters; in mx, values that are not finite are saturated and counted.
            vector: values of a vector; those of the last one may be fewer.
            keep: the largest values of each vector that a draft sees; None: all.
            codebook: exponents by rank (unary).
        """


class GoldenEncoder:
    """A codec behind the interface :class:`Encoder`; golden's by default."""

    def __init__(self, codec: Packer | None = None) -> None:
        self._encode = encode if codec is None else codec.encode

    def encode(
        self,
        values: Values,
        format: Format,
        *,
        vector: int,
        keep: int | None = None,
        codebook: Sequence[int] | None = None,
    ) -> Packed:
        """Pack whole segments of vectors (see :class:`Encoder`)."""
        return self._encode(
            values,
            format,
            kept=None if keep is None else keep_largest(values, vector, keep),
            codebook=codebook,
            nonfinite="saturate" if format.scheme == "mx" else "error",
            always_mask=keep is not None or format.scheme == "unary",
        )
