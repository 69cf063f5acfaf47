"""Encoders of KV cache vectors, as the runtime uses them: vectors in, packed tensors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cassandra_spec.golden.codec import encode
from cassandra_spec.golden.format import Format
from cassandra_spec.golden.packed import Packed, Packer, Values
from cassandra_spec.golden.selection import keep_largest


class Encoder(Protocol):
    """The runtime's interface to an encoder, implemented by golden and by the gateware.

    Segments have a mask stream where values may be pruned: with ``keep``, and in unary.
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
            vector: number of values per vector; the last vector may be shorter.
            keep: number of largest values per vector that a draft reads; None: all.
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
