"""Measure the padding of a sealed cache (kv.md): ``python -m cassandra_spec.lab.study.padding``.

Synthetic keys and values of one layer are normally distributed; those of keys have a scale for each
channel, spread over two octaves, since some channels of real keys are large at every position.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from cassandra_spec.golden import Format, GoldenCodec
from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.model.speculative.sealing import KeyValueFormat, Order, Sealer

TOKENS = 1024
HEAD = 64
WIDTHS = (192, 1024)
"""Values of a token: K or V of one layer and head group."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Padding:
    """Bytes of a sealed cache of :data:`TOKENS` tokens, K or V of one layer."""

    used: int  # of streams, the bits of each region rounded up to bytes
    stored: int  # of superblocks
    directory: int

    @property
    def overhead(self) -> float:
        """Bytes of padding for each byte that is used."""
        return (self.stored - self.used) / self.used


def settings(truncated: int = 4) -> Iterator[tuple[str, KeyValueFormat]]:
    """Yield the measured layouts, by name."""
    layouts: tuple[tuple[Order, int | None], ...] = (("channel", None), ("token", HEAD // 2))
    for scheme in SCHEMES:
        for order, keep in layouts:
            format = Format(scheme=scheme, truncated=truncated)
            kept = "all" if keep is None else f"{keep} of {HEAD}"
            yield (
                f"{scheme}, {kept} kept, by {order}",
                KeyValueFormat(format=format, order=order, keep=keep),
            )


def measure(kv: KeyValueFormat, width: int, kind: str, seed: int = 1) -> Padding:
    """Seal :data:`TOKENS` tokens of ``width`` values; ``kind`` is keys or values."""
    rng = np.random.default_rng(seed)
    shape = (1, TOKENS, width // HEAD, HEAD)
    values = rng.standard_normal(shape, np.float32)
    if kind == "keys":
        values *= np.exp2(rng.standard_normal(shape[2:], np.float32))
    packed = Sealer(kv, GoldenCodec()).seal(torch.from_numpy(values).to(torch.bfloat16)).packed
    return Padding(
        used=-(-sum(packed.stream_bits.values()) // 8),
        stored=packed.speculation.size + packed.verification.size,
        directory=packed.directory.nbytes,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of docs/results/kv.md."""
    argparse.ArgumentParser(
        prog="cassandra_spec.lab.study.padding", description=__doc__
    ).parse_args(argv)
    print("| values of a token | tokens of a segment | format | keys | values | directory |")
    print("|---|---|---|---|---|---|")
    for width in WIDTHS:
        for name, kv in settings():
            found = [measure(kv, width, kind) for kind in ("keys", "values")]
            shares = " | ".join(f"{100 * one.overhead:.2f} %" for one in found)
            entry = np.mean([one.directory / one.used for one in found])
            print(f"| {width} | {kv.block} | {name} | {shares} | {100 * entry:.2f} % |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
