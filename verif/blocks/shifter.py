"""The dynamic shifter: every group exponent with every magnitude."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cocotb

from cassandra_spec.rtl.common.shifter import DynamicShifter
from cassandra_spec.verif.library.bank import Bank, Case, play
from cassandra_spec.verif.library.models import shared_to_bf16

COPIES = 16  # each takes a share of the exponents


def design() -> Bank:
    """Build copies of the shifter, so that all inputs take fewer steps."""
    return Bank({f"copy_{i}": DynamicShifter() for i in range(COPIES)})


def every_magnitude(first: int) -> Iterator[Case]:
    """Drive all magnitudes under the exponents ``first``, ``first + COPIES``, ...; 0 is illegal."""
    for shared in range(first or COPIES, 256, COPIES):
        for magnitude in range(256):
            exponent, mantissa = shared_to_bf16(shared, magnitude)
            outputs = {
                "exponent": exponent,
                "mantissa": mantissa,
                "subnormal": int(exponent == 0 and magnitude > 0),
            }
            if magnitude:
                outputs["shift"] = min(8 - magnitude.bit_length(), shared - 1)
            yield Case({"shared": shared, "own": shared, "magnitude": magnitude}, outputs)


@cocotb.test()
async def every_exponent_and_magnitude(dut: Any) -> None:
    """Exhaustive over legal inputs."""
    steps = await play(
        dut, design(), {f"copy_{i}": every_magnitude(i) for i in range(COPIES)}, clocked=False
    )
    assert steps == 256 // COPIES * 256
