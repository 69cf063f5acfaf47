"""Keys and values in the format for the native engine, a chunk of positions at a time."""

from __future__ import annotations

import dataclasses

from cassandra_spec.golden import CassandraError, Encoder, GoldenEncoder
from cassandra_spec.golden.packed import Packer, Values
from cassandra_spec.model.speculative.sealing import KeyValueFormat, Sealer
from cassandra_spec.native.key_values import GROUP_MIN, SealedForm
from cassandra_spec.native.limits import CHUNK


@dataclasses.dataclass(frozen=True, kw_only=True)
class FormatSealer:
    """Pack chunks in the given format (:class:`~cassandra_spec.native.key_values.ChunkSealer`).

    Each chunk is a tensor of its own: in scheme unary it has its own codebook.
    Raises :class:`CassandraError` that names the field for what the engine cannot hold.
    """

    kv: KeyValueFormat
    codec: Packer
    encoder: Encoder | None = None  # None: the codec encodes

    def __post_init__(self) -> None:
        if CHUNK % self.kv.block:
            raise CassandraError(
                f"block must divide {CHUNK} (positions of a native chunk), not {self.kv.block}"
            )
        self.form  # noqa: B018  # checks the group

    @property
    def form(self) -> SealedForm:
        """Return the engine's form of a chunk."""
        format, by_token = self.kv.format, self.kv.order == "token"
        unary = format.scheme == "unary"  # has no groups: small ones fit heads of any size
        group = (GROUP_MIN if by_token else 32) if unary else format.group
        if self.kv.whole:
            return SealedForm(rule="same", by_token=by_token, group=group)
        return SealedForm(
            rule="truncated" if unary else "aligned",
            dropped=format.truncated,
            midpoint=format.fill == "midpoint",
            by_token=by_token,
            group=group,
        )

    def seal(self, patterns: Values) -> tuple[Values, Values]:
        """Return what target and draft read of patterns [layers, CHUNK, heads, head size]."""
        encoder = self.encoder
        if encoder is None and not self.kv.prune:
            encoder = GoldenEncoder(self.codec)
        _, target, draft = Sealer(self.kv, self.codec, encoder).read_back(patterns)
        return target, draft
