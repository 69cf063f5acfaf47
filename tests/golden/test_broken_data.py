"""Decoding data that break the format: an error with its cause, or values; never anything else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cassandra_spec.golden import (
    CassandraError,
    DecodeError,
    Format,
    Packed,
    decode_draft,
    decode_draft_segment,
    decode_target,
    decode_target_segment,
    encode,
    oracle,
)
from tests.golden.cases import Case, cases

Octets = NDArray[np.uint8]
Decoder = Callable[[Packed], NDArray[np.uint16]]
CAUSES = ("short", "long", "code", "rank", "group", "window")


def _flip(octets: Octets, rng: np.random.Generator) -> Octets:
    changed = octets.copy()
    for _ in range(int(rng.integers(1, 4)) if octets.size else 0):
        changed[rng.integers(0, octets.size)] ^= 1 << int(rng.integers(0, 8))
    return changed


def _truncate(octets: Octets, rng: np.random.Generator) -> Octets:
    return octets[: int(rng.integers(0, octets.size + 1))]


def _extend(octets: Octets, rng: np.random.Generator) -> Octets:
    return np.concatenate([octets, rng.integers(0, 256, int(rng.integers(0, 500)), dtype=np.uint8)])


def _random(octets: Octets, rng: np.random.Generator) -> Octets:
    return rng.integers(0, 256, octets.size, dtype=np.uint8)


def _sparse(octets: Octets, rng: np.random.Generator) -> Octets:
    return octets & _random(octets, rng) & _random(octets, rng) & _random(octets, rng)


def _zero(octets: Octets, rng: np.random.Generator) -> Octets:
    return np.zeros_like(octets)


def _ones(octets: Octets, rng: np.random.Generator) -> Octets:
    return np.full_like(octets, 255)


DAMAGES = [_flip, _truncate, _extend, _random, _sparse, _zero, _ones]


def outcome(decode: Decoder, packed: Packed) -> tuple[str, Any]:
    try:
        return "values", decode(packed).tolist()
    except DecodeError as error:
        broken = error
    except CassandraError as error:  # what comes beside the regions
        return "refused", str(error)
    assert broken.cause in CAUSES
    assert str(broken).startswith(f"segment {broken.segment}: ")
    assert str(broken).endswith(f"({broken.cause})")
    return "error", broken.segment


def assert_agree(packed: Packed) -> None:
    assert outcome(decode_draft, packed) == outcome(oracle.decode_draft, packed)
    assert outcome(decode_target, packed) == outcome(oracle.decode_target, packed)


@settings(max_examples=500)
@given(
    case=cases(),
    region=st.sampled_from(["speculation", "verification"]),
    damage=st.sampled_from(DAMAGES),
    seed=st.integers(0, 2**32 - 1),
)
def test_damaged_regions_are_judged_as_by_the_oracle(
    case: Case, region: str, damage: Callable[[Octets, np.random.Generator], Octets], seed: int
) -> None:
    packed = encode(case.values, case.format, **case.options)
    broken: dict[str, Any] = {region: damage(getattr(packed, region), np.random.default_rng(seed))}
    assert_agree(dataclasses.replace(packed, **broken))


@settings(max_examples=150)
@given(case=cases(), seed=st.integers(0, 2**32 - 1))
def test_damaged_directories_are_judged_as_by_the_oracle(case: Case, seed: int) -> None:
    packed = encode(case.values, case.format, **case.options)
    rng = np.random.default_rng(seed)
    directory = packed.directory.copy()
    if directory.size:
        entry = int(rng.integers(0, directory.size))
        directory.reshape(-1)[entry] ^= 1 << int(rng.integers(0, 32 if rng.random() < 0.5 else 2))
    assert_agree(dataclasses.replace(packed, directory=directory))


@settings(max_examples=150)
@given(case=cases("unary"), seed=st.integers(0, 2**32 - 1))
def test_shorter_codebooks_are_judged_as_by_the_oracle(case: Case, seed: int) -> None:
    packed = encode(case.values, case.format, **case.options)
    rng = np.random.default_rng(seed)
    books: dict[str, Any] = {
        "codebook": packed.codebook[: rng.integers(0, len(packed.codebook) + 1)],
        "pruned_codebook": packed.pruned_codebook[: rng.integers(0, 16)],
    }
    assert_agree(dataclasses.replace(packed, **books))


@settings(max_examples=150)
@given(case=cases(), data=st.data())
def test_a_region_that_lacks_a_superblock_is_short_and_one_more_is_long(
    case: Case, data: st.DataObject
) -> None:
    packed = encode(case.values, case.format, **case.options)
    for column, region in ((1, "speculation"), (3, "verification")):
        stored = np.flatnonzero(packed.directory[:, column])
        if not stored.size:
            continue
        segment = data.draw(st.sampled_from(stored.tolist()))
        for change, cause in ((-1, "short"), (1, "long")):
            directory = packed.directory.copy()
            directory[segment, column] = int(directory[segment, column]) + change
            room = np.zeros(packed.format.superblock, dtype=np.uint8)
            fields: dict[str, Any] = {region: np.concatenate([getattr(packed, region), room])}
            broken = dataclasses.replace(packed, **fields, directory=directory)
            for decode in (decode_target, oracle.decode_target):
                with pytest.raises(DecodeError) as raised:
                    decode(broken)
                assert (raised.value.cause, raised.value.segment) == (cause, segment)


def test_a_truncated_tensor_is_short_where_it_ends() -> None:
    values = np.full(2048, 0x3F80, dtype=np.uint16)
    packed = encode(values, Format(segment=1024))
    broken = dataclasses.replace(packed, speculation=packed.speculation[:-128])
    for decode in (decode_draft, decode_target):
        with pytest.raises(DecodeError, match=r"^segment 1: needs \d+ rows .*\(short\)$"):
            decode(broken)


@pytest.mark.parametrize("column", range(4))
@pytest.mark.parametrize("number", [1 << 31, (1 << 32) - 1])
def test_a_segment_beyond_its_region_is_short(column: int, number: int) -> None:
    values = np.arange(2048, dtype=np.uint16)
    packed = encode(values, Format(segment=1024))
    directory = packed.directory.copy()
    directory[1, column] = number
    broken = dataclasses.replace(packed, directory=directory)
    for decode in (decode_target, oracle.decode_target, lambda p: decode_target_segment(p, 1)):
        with pytest.raises(DecodeError, match=r"^segment 1: .*\(short\)$"):
            decode(broken)
    if column > 1:  # a draft does not look at the verification region
        assert_agree(broken)
        decode_draft(broken)


def _one_segment(format: Format, values: list[int], **options: Any) -> Packed:
    return encode(np.array(values, dtype=np.uint16), format, **options)


def _changed(packed: Packed, region: str, place: int, octet: int) -> Packed:
    octets = getattr(packed, region).copy()
    octets[place] = octet
    return dataclasses.replace(packed, **{region: octets})


def broken_of_each_cause() -> dict[str, Packed]:
    """Return one small tensor for each cause that is not a matter of length."""
    unary = _one_segment(Format(), [0x3F80] * 16)
    coded = _one_segment(
        Format(pruned_exponent="coded"), [0x3F80] * 16, kept=np.zeros(16, dtype=np.bool_)
    )
    exact = _one_segment(Format(scheme="exact"), [0x0A00] + [0x0680] * 15)  # E = 20, d = 7
    mx = _one_segment(Format(scheme="mx"), [0x3F80] * 16)
    zeros = unary.speculation.copy()
    zeros[:4] = 0
    return {
        "code": dataclasses.replace(unary, speculation=zeros),
        "code pruned": _changed(_changed(coded, "verification", 0, 0), "verification", 1, 0),
        "rank": _changed(unary, "speculation", 0, 0xFE),
        "rank pruned": dataclasses.replace(
            _changed(coded, "verification", 0, 0xFC), pruned_codebook=(127,)
        ),
        "group": _changed(exact, "speculation", 0, 0),
        "group mx": _changed(mx, "speculation", 0, 255),
        "window": _changed(exact, "speculation", 0, 7),
    }


@pytest.mark.parametrize("name", broken_of_each_cause())
def test_each_cause_is_found_and_named(name: str) -> None:
    packed = broken_of_each_cause()[name]
    cause = name.split()[0]
    for decode in (decode_target, oracle.decode_target, lambda p: decode_target_segment(p, 0)):
        with pytest.raises(DecodeError, match=rf"^segment 0: .*\({cause}\)$") as raised:
            decode(packed)
        assert raised.value.cause == cause
    if name in ("code", "rank", "group", "group mx"):
        for decode in (decode_draft, oracle.decode_draft, lambda p: decode_draft_segment(p, 0)):
            with pytest.raises(DecodeError, match=rf"\({cause}\)$"):
                decode(packed)
    else:
        decode_draft(packed)


def test_the_first_broken_segment_is_named_whatever_its_cause() -> None:
    values = np.full(4 * 64, 0x3F80, dtype=np.uint16)
    packed = encode(values, Format(scheme="exact", segment=64))
    octets = packed.speculation.copy()
    octets[2 * packed.speculation.size // 4] = 0  # the first group exponent of segment 2
    directory = packed.directory.copy()
    directory[3, 1] = 0  # segment 3 is short
    broken = dataclasses.replace(packed, speculation=octets, directory=directory)
    with pytest.raises(DecodeError) as raised:
        decode_draft(broken)
    assert (raised.value.cause, raised.value.segment) == ("group", 2)


def test_bits_of_positions_that_do_not_exist_are_ignored() -> None:
    values = np.full(20, 0x3F80, dtype=np.uint16)
    kept = np.arange(20) > 2
    packed = encode(values, Format(scheme="mx"), kept=kept)
    # Rows: mask of beat 0, then in slot 0 the mask of beat 1, whose last 12 bits do not exist.
    assert packed.speculation[2:4].tolist() == [0x0F, 0x00]
    changed = _changed(_changed(packed, "speculation", 2, 0xFF), "speculation", 3, 0xFF)
    np.testing.assert_array_equal(decode_target(changed), decode_target(packed))
    assert_agree(changed)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "directory",
            np.zeros((2, 5), np.uint32),
            r"directory must be \[1, 5\] of uint32 for 40 values, not uint32 \[2, 5\]",
        ),
        ("directory", np.zeros((1, 5), np.int64), r"directory must be .*, not int64 \[1, 5\]"),
        ("directory", np.array([[0, 1, 0, 0, 2]], np.uint32), "flags of a segment must be 0 or 1"),
        ("speculation", np.zeros(128, np.int8), "speculation must be a 1-D array of uint8"),
        ("verification", np.zeros((1, 128), np.uint8), "verification must be a 1-D array"),
        ("codebook", tuple(range(17)), "codebook must be at most 16 distinct exponents"),
        ("codebook", (1, 1), "codebook must be at most 16 distinct exponents"),
        ("pruned_codebook", (256,), "pruned_codebook must be at most 15 distinct exponents"),
    ],
)
def test_what_comes_beside_the_regions_is_checked(field: str, value: Any, message: str) -> None:
    packed = encode(np.full(40, 0x3F80, dtype=np.uint16), Format())
    broken = dataclasses.replace(packed, **{field: value})
    for decode in (decode_draft, decode_target, oracle.decode_draft, oracle.decode_target):
        with pytest.raises(CassandraError, match=message):
            decode(broken)
