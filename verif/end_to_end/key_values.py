"""The part of ``make sim`` about keys and values: a model replies with those of the gateware.

Keys and values are packed by the Verilated encoder and unpacked by the Verilated decoder while
the model generates; the tokens, and every packed byte, must be those of golden's path.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cassandra_spec.golden import Codec, Encoder, Format, GoldenCodec, GoldenEncoder, Packed
from cassandra_spec.golden.format import SCHEMES, Scheme
from cassandra_spec.toolkit.tables import Table

if TYPE_CHECKING:
    from cassandra_spec.model.speculative import CassandraForCausalLM, KeyValueFormat

TOKENS = 64
"""Minimum length of each reply in tokens."""

QUICK_TOKENS = 16
"""Length of the replies of a short run; with the prompt, they fill a block of ``mx``."""

QUICK_SCHEMES: tuple[Scheme, ...] = ("exact", "mx")
"""Schemes of a short run: blocks of one position, and of several."""

_GAMMA = 3
_SEGMENT = 1 << 14  # segment length for which the encoder is built


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Reply:
    """A reply, and what was packed while it was generated."""

    tokens: list[int]
    packed: list[Packed]
    vectors: int  # sealed vectors
    tail: int  # vectors that are not


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeyValueCheck:
    """Golden and gateware side by side."""

    scheme: Scheme
    layout: str
    tokens: int
    vectors: int  # through encoder and decoder
    tail: int
    same_tokens: bool
    different_regions: int  # packed tensors that differ in a byte

    @property
    def good(self) -> bool:
        """Return whether nothing differs."""
        return self.same_tokens and not self.different_regions


def _layouts(size: int) -> Iterator[tuple[str, KeyValueFormat]]:
    """Yield each scheme; lossless ones token by token, so that no vector is later read unpacked.

    ``size`` is that of a head; in two schemes a draft has three quarters of its values.
    """
    from cassandra_spec.model.speculative import KeyValueFormat

    choices: tuple[tuple[Scheme, int, int | None], ...] = (
        ("unary", 1, size * 3 // 4),
        ("exact", 1, size * 3 // 4),
        ("mx", 32, None),
    )
    for scheme, block, keep in choices:
        kv = KeyValueFormat(
            format=Format(scheme=scheme, truncated=4, fill="midpoint"),
            order="token",
            block=block,
            segment=_SEGMENT,
            keep=keep,
        )
        kept = "all" if keep is None else str(keep)
        yield f"blocks of {block}, {kept} kept", kv


def check_key_values(
    folder: Path, prompt: str, tokens: int = TOKENS, schemes: Sequence[Scheme] = SCHEMES
) -> list[KeyValueCheck]:
    """Reply to a prompt with a packed model (``folder``) in each scheme of keys and values."""
    from cassandra_spec.model.speculative import CassandraForCausalLM
    from cassandra_spec.native.codec import fastest_codec
    from cassandra_spec.verif.decoder.bulk import RtlCodec
    from cassandra_spec.verif.encoder.bulk import RtlEncoder

    print("keys and values: building the Verilated encoder and decoder ...", flush=True)
    gateware: tuple[Codec, Encoder] = (RtlCodec(), RtlEncoder())
    model = CassandraForCausalLM.from_pretrained(folder, codec=fastest_codec())
    golden: tuple[Codec, Encoder] = (GoldenCodec(), GoldenEncoder())
    checks = []
    for layout, kv in _layouts(model.network.config.head_dim):
        if kv.format.scheme not in schemes:
            continue
        start = time.monotonic()
        expected, found = (
            _reply(model, kv, prompt, tokens, codec, encoder)
            for codec, encoder in (golden, gateware)
        )
        checks.append(_compare(kv.format.scheme, layout, expected, found))
        print(f"  {kv.format.scheme} in {time.monotonic() - start:.0f} s", flush=True)
    return checks


def _reply(
    model: CassandraForCausalLM,
    kv: KeyValueFormat,
    prompt: str,
    tokens: int,
    codec: Codec,
    encoder: Encoder,
) -> _Reply:
    from cassandra_spec.drafting import Counters, Settings, decode

    asked = model.encode_prompt(prompt)
    session = model.session(len(asked) + tokens, kv=kv, codec=codec, encoder=encoder)
    settings = Settings(gamma=_GAMMA, max_tokens=tokens)
    found = [token for step in decode(session, asked, settings, Counters()) for token in step]
    config = model.network.config
    each = 2 * config.num_hidden_layers * config.num_key_value_heads
    cache = session.cache
    return _Reply(
        tokens=found,
        packed=[part for pair in cache.packed() for part in pair],
        vectors=cache.sealed * each,
        tail=(len(asked) + len(found) - 1 - cache.sealed) * each,
    )


def _compare(scheme: Scheme, layout: str, expected: _Reply, found: _Reply) -> KeyValueCheck:
    pairs = zip(expected.packed, found.packed, strict=False)
    different = sum(not _same(one, other) for one, other in pairs)
    return KeyValueCheck(
        scheme=scheme,
        layout=layout,
        tokens=len(found.tokens),
        vectors=found.vectors,
        tail=found.tail,
        same_tokens=expected.tokens == found.tokens,
        different_regions=different + abs(len(expected.packed) - len(found.packed)),
    )


def _same(one: Packed, other: Packed) -> bool:
    names = ("speculation", "verification", "directory")
    return one.codebook == other.codebook and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in names
    )


def key_value_table(checks: Sequence[KeyValueCheck]) -> Table:
    """Format the checks of each scheme as a table."""
    through = "vectors through the gateware"
    return Table(
        title="Keys and values through encoder and decoder",
        header=(
            *("keys and values", "layout", "tokens", through, "in the tail"),
            *("tokens as golden's", "tensors that differ"),
        ),
        rows=tuple(
            (
                check.scheme,
                check.layout,
                f"{check.tokens}",
                f"{check.vectors:,}",
                f"{check.tail:,}",
                "identical" if check.same_tokens else "DIFFERENT",
                f"{check.different_regions:,}",
            )
            for check in checks
        ),
    )
