"""Mantissa concatenation: every legal combination of planes, truncation, mode and fill."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import cocotb

from cassandra_spec.rtl.common.mantissa import LOW_PLANES, MantissaConcat
from cassandra_spec.verif.library.bank import Bank, Case, play, rng_of
from cassandra_spec.verif.library.models import bits_of, concatenate, number_of_bits

KINDS = [(unary, target) for unary in (0, 1) for target in (0, 1)]


def design() -> Bank:
    """Build a copy for each format of the number in each mode."""
    return Bank({_name(*kind): MantissaConcat() for kind in KINDS})


def _name(unary: int, target: int) -> str:
    return f"{'unary' if unary else 'aligned'}_{'target' if target else 'draft'}"


def every_field(rng: random.Random, unary: int, target: int) -> Iterator[Case]:
    """Drive all planes of all truncations, with noise on unused low planes.

    A target must ignore ``midpoint``.
    """
    for truncated in range(8):
        planes = (8 if unary else 9) - truncated
        for high in range(1 << planes):
            lows = range(1 << truncated) if target else [rng.randrange(1 << LOW_PLANES)] * 2
            for i, low in enumerate(lows):
                midpoint = rng.randrange(2) if target else i
                low |= rng.randrange(1 << LOW_PLANES) >> truncated << truncated
                yield case_of(unary, target, midpoint, truncated, high, low)


def case_of(unary: int, target: int, midpoint: int, truncated: int, high: int, low: int) -> Case:
    """Return one field and its expected number."""
    settings = {"unary": unary, "target": target, "midpoint": midpoint, "truncated": truncated}
    own = low & ((1 << truncated) - 1)
    sign, magnitude = concatenate(**settings, high=bits_of(high, 9), low=own)
    outputs = {"sign": sign, "magnitude": unary << 7 | magnitude}
    return Case({**settings, "high": high, "low": low}, outputs)


@cocotb.test()
async def every_combination(dut: Any) -> None:
    """Exhaustive over all outputs of the speculation path."""
    scripts = {_name(*kind): every_field(rng_of("mantissa", *kind), *kind) for kind in KINDS}
    await play(dut, design(), scripts, clocked=False)


@cocotb.test()
async def planes_join_to_the_number_they_were_cut_from(dut: Any) -> None:
    """Cut every number at every t as section 3 defines: the target is the number again."""
    scripts = {_name(unary, 1): cut_numbers(unary) for unary in (0, 1)}
    await play(dut, design(), scripts, clocked=False)


def cut_numbers(unary: int) -> Iterator[Case]:
    """Yield sign and magnitude of every number as planes: sign, then most significant first."""
    top = 7 if unary else 8
    for truncated in range(8):
        for number in range(1 << top):
            sign = number & 1
            bits = bits_of(number, top)
            high = number_of_bits([sign, *reversed(bits[truncated:])])
            inputs = {"unary": unary, "target": 1, "truncated": truncated, "high": high}
            low = number_of_bits(bits[:truncated])
            yield Case({**inputs, "low": low}, {"sign": sign, "magnitude": unary << 7 | number})
