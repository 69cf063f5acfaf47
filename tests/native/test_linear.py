"""Linear kernels: the layouts hold golden's values, the products are right and batch-invariant."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from cassandra_spec import native
from cassandra_spec.golden import (
    CassandraError,
    Format,
    choose_group_exponents,
    decode_draft,
    decode_target,
    encode,
)
from cassandra_spec.native.library import available_isas
from cassandra_spec.native.linear import FORMS, FormName, NativeLinear

Values = NDArray[np.uint16]
Floats = NDArray[np.float32]

GROUPED = ("draft5", "draft4", "mx9")
# Rows that fill no tile, features that fill no group, one of each, and a layer's real shape.
SHAPES = ((16, 64), (37, 200), (1, 1), (5, 33), (80, 576))


def weights(shape: tuple[int, int], seed: int = 1) -> Values:
    rng = np.random.default_rng(seed)
    bits = rng.normal(scale=0.03, size=shape).astype(np.float32).view(np.uint32)
    return (bits >> 16).astype(np.uint16)


def inputs(rows: int, features: int, seed: int = 2) -> Floats:
    rng = np.random.default_rng(seed)
    scale = np.exp(rng.normal(size=features))  # some features are far larger than others
    return (rng.normal(size=(rows, features)) * scale).astype(np.float32)


def floats(values: Values) -> Floats:
    return (values.astype(np.uint32) << 16).view(np.float32)


def decoded(form: FormName, shape: tuple[int, int], group: int, fill: str = "midpoint") -> Values:
    """Return values that a form is made for: golden's drafts or targets of weights."""
    return _decoded(form, shape, group, fill).copy()


@cache
def _decoded(form: FormName, shape: tuple[int, int], group: int, fill: str) -> Values:
    values = weights(shape).reshape(-1)
    if form in ("bf16", "packed12", "planes"):
        return values.reshape(shape)
    scheme, truncated = {
        "packed8": ("unary", 4),
        "draft5": ("exact", 4),
        "draft4": ("exact", 5),
        "mx9": ("mx", 4),
    }[form]
    # Rows whose end is no group's end: pack them one by one, as their groups then are.
    format = Format(scheme=scheme, truncated=truncated, fill=fill, group=group, segment=1024)  # type: ignore[arg-type]
    decode = decode_target if form == "mx9" else decode_draft
    rows = [decode(encode(row, format)) for row in values.reshape(shape)]
    return np.stack(rows)


def made(form: FormName, shape: tuple[int, int], group: int = 32, threads: int = 1) -> NativeLinear:
    layer = NativeLinear(decoded(form, shape, group), form, group=group, threads=threads)
    assert layer.form == form
    return layer


BY_GROUP = (*GROUPED, "planes")
CASES = [(form, group) for form in FORMS for group in ((32, 64) if form in BY_GROUP else (32,))]


@pytest.mark.parametrize(("form", "group"), CASES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_layout_holds_its_values(form: FormName, group: int, shape: tuple[int, int]) -> None:
    values = decoded(form, shape, group)
    with NativeLinear(values, form, group=group, threads=2) as layer:
        assert layer.form == form
        np.testing.assert_array_equal(layer.values(), values)


@pytest.mark.parametrize("form", ["draft5", "draft4"])
def test_drafts_filled_with_zeros_are_held_as_numbers(form: FormName) -> None:
    values = decoded(form, (20, 96), 32, fill="zero")
    with NativeLinear(values, form, group=32) as layer:
        assert layer.form == form
        np.testing.assert_array_equal(floats(layer.values()), floats(values))  # -0 may be +0


@pytest.mark.parametrize("scheme", ["mx", "exact"])
@pytest.mark.parametrize("truncated", [4, 5])
@pytest.mark.parametrize("fill", ["zero", "midpoint"])
@pytest.mark.parametrize("group", [32, 64])
def test_all_fields_of_a_draft(scheme: str, truncated: int, fill: str, group: int) -> None:
    """Every sign and window, in groups of exponents over all of a weight's range."""
    format = Format(scheme=scheme, truncated=truncated, fill=fill, group=group, segment=1024)  # type: ignore[arg-type]
    significands = np.arange(256, dtype=np.uint16)
    exponents = np.arange(20, 250, 7)
    rows = []
    for exponent in exponents:
        low = np.array([exponent - d for d in range(9)], dtype=np.uint16)[:, None]
        values = low << 7 | (significands & 0x7F) | (significands >> 7) << 15
        rows.append(values.astype(np.uint16).reshape(-1))
    matrix = np.stack(rows)
    groups = np.repeat(exponents, matrix.shape[1] // group).astype(np.uint8)
    drafts = decode_draft(encode(matrix.reshape(-1), format, group_exponents=groups))
    form: FormName = "draft5" if truncated == 4 else "draft4"
    drafts = drafts.reshape(matrix.shape)
    with NativeLinear(drafts, form, group=group) as layer:
        assert layer.form == form
        np.testing.assert_array_equal(floats(layer.values()), floats(drafts))


def test_packed12_holds_every_pattern_whose_exponents_are_few() -> None:
    values = np.arange(1 << 16, dtype=np.uint16)
    exponents = values >> 7 & 0xFF
    for first in (0, 1, 100, 241):
        chosen = values[((exponents >= first) & (exponents < first + 14)) | (values & 0x7FFF == 0)]
        chosen = chosen[: len(chosen) // 16 * 16].reshape(16, -1)
        with NativeLinear(chosen, "packed12") as layer:
            np.testing.assert_array_equal(layer.values(), chosen)
            assert layer.form == ("bf16" if first == 0 else "packed12")


def test_rare_exponents_are_escapes() -> None:
    values = weights((64, 512))
    rng = np.random.default_rng(3)
    places = rng.choice(values.size, 200, replace=False)
    values.reshape(-1)[places] = rng.integers(0x0001, 0x7F00, 200).astype(np.uint16)
    with NativeLinear(values, "packed12", threads=2) as layer:
        assert layer.form == "packed12"
        assert 0 < layer.escapes < 400
        np.testing.assert_array_equal(layer.values(), values)


@pytest.mark.parametrize("form", FORMS[1:])
def test_what_a_form_cannot_hold_falls_back_to_bf16(form: FormName) -> None:
    values = np.random.default_rng(4).permutation(1 << 16).astype(np.uint16).reshape(256, 256)
    with NativeLinear(values, form) as layer:
        assert layer.form == "bf16"
        np.testing.assert_array_equal(layer.values(), values)


def prepared(layer: NativeLinear, row: Floats) -> NDArray[np.float64]:
    """Return a row of input as multiplied: rounded to BF16, or quantised group by group."""
    if layer.form not in GROUPED:
        bits = row.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32).astype(np.float64)
    limit = np.float32(32767 if layer.form == "mx9" else 127)
    groups = np.pad(row, (0, -len(row) % layer.group)).reshape(-1, layer.group)
    most = np.abs(groups).max(axis=1, keepdims=True)
    integers = np.rint(groups * (limit / most))
    return (integers * (most / limit)).astype(np.float64).reshape(-1)[: len(row)]


def product(layer: NativeLinear, x: Floats) -> NDArray[np.float64]:
    """Return the oracle: values as held times the input as prepared, in double precision."""
    matrix = floats(layer.values()).astype(np.float64)
    return np.stack([matrix @ prepared(layer, row) for row in x])


def bound(layer: NativeLinear, x: Floats) -> NDArray[np.float64]:
    """Bound the rounding error of a sum of products in single precision, in any order."""
    matrix = np.abs(floats(layer.values()).astype(np.float64))
    sums = np.stack([matrix @ np.abs(prepared(layer, row)) for row in x])
    return sums * (layer.shape[1] + 4) * 2.0**-24


@pytest.mark.parametrize(("form", "group"), CASES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products(form: FormName, group: int, shape: tuple[int, int], every_isa: str) -> None:
    x = inputs(3, shape[1])
    with made(form, shape, group) as layer:
        error = np.abs(layer.multiply(x) - product(layer, x))
        assert (error <= bound(layer, x)).all()


@pytest.mark.parametrize(("form", "group"), CASES)
@pytest.mark.parametrize("shape", [(37, 200), (80, 576)], ids=str)
def test_a_row_does_not_depend_on_the_others(
    form: FormName, group: int, shape: tuple[int, int], every_isa: str
) -> None:
    """Nor on the threads, which decide what tiles lie side by side."""
    x = inputs(16, shape[1])
    with made(form, shape, group) as layer:
        alone = np.concatenate([layer.multiply(row[None]) for row in x])
    for threads in (1, 2, 3):
        with made(form, shape, group, threads=threads) as layer:
            for rows in range(1, 17):
                np.testing.assert_array_equal(layer.multiply(x[:rows]), alone[:rows])
                np.testing.assert_array_equal(layer.multiply(x[-rows:]), alone[-rows:])


@pytest.mark.parametrize(("form", "group"), CASES)
def test_a_row_does_not_depend_on_the_others_of_a_prompt(
    form: FormName, group: int, every_isa: str
) -> None:
    x = inputs(128, 200)
    with made(form, (85, 200), group, threads=2) as layer:
        parts = [layer.multiply(part) for part in np.split(x, range(1, 128))]
        for rows in (17, 40, 128):
            np.testing.assert_array_equal(layer.multiply(x[:rows]), np.concatenate(parts)[:rows])


@pytest.mark.parametrize(("form", "group"), CASES)
def test_instruction_sets_agree_bit_for_bit(form: FormName, group: int) -> None:
    shape = (37, 600)
    x = inputs(13, shape[1])
    results = {}
    with made(form, shape, group) as layer:
        for isa in available_isas():
            native.set_isa(isa)
            results[isa] = layer.multiply(x)
    native.set_isa(None)
    if form not in GROUPED:
        results.pop("avx512bf16", None)  # the next test has its orders
    for result in results.values():
        np.testing.assert_array_equal(result, results["portable"])


def added_in_halves(products: Floats) -> Floats:
    """Return products [..., features], a multiple of 32: even and odd ones of each 32 apart."""
    total = np.zeros(products.shape[:-1], dtype=np.float32)
    for first in range(0, products.shape[-1], 32):
        halves = np.zeros((2, *total.shape), dtype=np.float32)
        for k in range(32):
            halves[k % 2] += products[..., first + k]
        total += halves[0] + halves[1]
    return total


def added_in_pairs(products: Floats) -> Floats:
    """Return products [..., features]: the odd feature of each pair before the even one."""
    total = np.zeros(products.shape[:-1], dtype=np.float32)
    for k in range(0, products.shape[-1], 2):
        total += products[..., k + 1]
        total += products[..., k]
    return total


@pytest.mark.parametrize("form", [form for form in FORMS if form not in BY_GROUP])
def test_words_add_up_in_the_documented_order(form: FormName, every_isa: str) -> None:
    """A product of BF16 is exact; processors with vdpbf16ps may take either order."""
    values = decoded(form, (37, 608), 32)
    values[(values >> 7 & 0xFF) < 110] = 0  # escapes would be added afterwards
    x = inputs(13, 608)
    with NativeLinear(values, form, threads=2) as layer:
        assert (layer.form, layer.escapes) == (form, 0)
        result = layer.multiply(x)
        rows = np.stack([prepared(layer, row) for row in x]).astype(np.float32)
    products = rows[:, None, :] * floats(values)
    orders = [added_in_halves(products)]
    if every_isa == "avx512bf16":
        orders.append(added_in_pairs(products))
    assert any(np.array_equal(result, order) for order in orders)


def test_packed12_without_escapes_is_bf16_bit_for_bit(every_isa: str) -> None:
    values = weights((64, 512))
    values[(values >> 7 & 0xFF) < 110] = 0
    x = inputs(4, 512)
    with NativeLinear(values, "bf16") as plain, NativeLinear(values, "packed12") as packed:
        assert packed.form == "packed12"
        assert packed.escapes == 0
        np.testing.assert_array_equal(packed.multiply(x), plain.multiply(x))


# --- two planes ----------------------------------------------------------------------------------


def patched(values: Values, drafts: Values, truncated: int, exponent: int) -> NDArray[np.bool_]:
    """Return which values need a patch, naively, in groups of an exponent.

    Two exponents, from the group's or the one below on, share a high byte. That of the draft value
    is predicted; of the largest draft of four truncated bits, which stands for larger values, too,
    the next.
    """
    start = exponent - (truncated == 4)
    low = values - start % 2 * 0x80 & 0xFF
    steps = (drafts >> 7 & 0xFF).astype(np.int64) - start >> 1
    steps += (drafts & 0x7F == 0x78) & (truncated == 4)
    high = np.clip(start // 2, 2, 125) + steps
    return (drafts & 0x8000) + (high << 8) + low + start % 2 * 0x80 != values


def drafts_of(values: Values, truncated: int, group: int, exponents: int | None) -> Values:
    """Return golden's drafts of rows of whole groups."""
    format = Format(scheme="exact", truncated=truncated, fill="midpoint", group=group)
    shared = None
    if exponents is not None:
        shared = np.full(values.size // group, exponents, dtype=np.uint8)
    coded = encode(values.reshape(-1), format, group_exponents=shared)
    assert (decode_target(coded) == values.reshape(-1)).all()
    return decode_draft(coded).reshape(values.shape)


@pytest.mark.parametrize("truncated", [4, 5])
@pytest.mark.parametrize("exponent", [9, 10, 11, 12, 127, 252, 253, 254])
@pytest.mark.parametrize("shift", [0, 17])
def test_planes_hold_every_pattern(truncated: int, exponent: int, shift: int) -> None:
    """All 65,536 at each exponent of a group, among values that need no patch."""
    group = 64 if shift else 32
    every = np.roll(np.arange(1 << 16, dtype=np.uint16), shift).reshape(1024, 64)
    easy = drafts_of(every, truncated, group, exponent)
    easy = np.where(easy & 0x7F == 0x78, easy - 16, easy)  # not the largest
    start = exponent - (truncated == 4)
    if start > 251:  # beyond the bytes that are predicted: only small values need no patch
        easy[:] = 246 + start % 2 << 7
    values = np.concatenate([every, *[easy] * 9], axis=1)
    drafts = drafts_of(values, truncated, group, exponent)
    with (
        NativeLinear(drafts, "draft5" if truncated == 4 else "draft4", group=group) as draft,
        NativeLinear(values, "planes", group=group, draft=draft) as layer,
    ):
        assert layer.form == "planes"
        assert layer.escapes == patched(values, drafts, truncated, exponent).sum()
        np.testing.assert_array_equal(layer.values(), values)


@pytest.mark.parametrize("place", range(64))
def test_planes_hold_every_exponent_at_every_place(place: int, every_isa: str) -> None:
    values = weights((40, 640), seed=place)
    patterns = np.arange(40 * 4, dtype=np.uint16).reshape(40, 4)
    values[:, place : place + 256 : 64] = patterns << 7 | patterns % 3 << 15 | 0x55
    drafts = drafts_of(values, 4, 64, 123)  # of the weights: the planted values reach far beyond
    x = inputs(2, 640)
    with (
        NativeLinear(drafts, "draft5", group=64) as draft,
        NativeLinear(values, "planes", group=64, draft=draft) as layer,
        NativeLinear(values, "bf16") as plain,
    ):
        assert layer.form == "planes"
        assert layer.escapes == patched(values, drafts, 4, 123).sum()
        np.testing.assert_array_equal(layer.values(), values)
        np.testing.assert_array_equal(layer.multiply(x), plain.multiply(x))


@pytest.mark.parametrize("shape", [*SHAPES, (49, 1536)], ids=str)
@pytest.mark.parametrize("threads", [1, 3])
def test_planes_multiply_as_bf16_bit_for_bit(
    shape: tuple[int, int], threads: int, every_isa: str
) -> None:
    values = weights(shape)
    values[-1, ::50], values[-1, 7::50] = 0x7F80, 0x8000
    x = inputs(128, shape[1])
    with (
        NativeLinear(values, "planes", group=64, threads=threads) as layer,
        NativeLinear(values, "bf16", threads=threads) as plain,
    ):
        assert (layer.form == "planes") == (shape != (1, 1))
        for rows in (*range(1, 18), 31, 32, 40, 128):
            found, expected = layer.multiply(x[:rows]), plain.multiply(x[:rows])
            np.testing.assert_array_equal(found, expected)


def test_planes_whose_draft_has_no_midpoints_are_bf16() -> None:
    values = weights((16, 128))
    format = Format(scheme="exact", truncated=4, group=64)
    drafts = decode_draft(encode(values.reshape(-1), format)).reshape(values.shape)
    with (
        NativeLinear(drafts, "draft5", group=64) as draft,
        NativeLinear(values, "planes", group=64, draft=draft) as layer,
    ):
        assert (draft.form, layer.form) == ("draft5", "bf16")
        np.testing.assert_array_equal(layer.values(), values)


def test_planes_take_a_draft_of_their_shape() -> None:
    values = weights((16, 128))
    with (
        NativeLinear(values, "bf16") as draft,
        pytest.raises(CassandraError, match="draft must be of the same outputs, inputs and"),
    ):
        NativeLinear(values[:, :64], "planes", group=64, draft=draft)


def test_infinite_and_nan_weights_are_multiplied(every_isa: str) -> None:
    values = weights((16, 64))
    values[3, 5], values[4, 6] = 0x7F80, 0x7FC0
    with NativeLinear(values, "bf16") as layer:
        result = layer.multiply(np.ones((1, 64), dtype=np.float32))[0]
    assert result[3] == np.inf
    assert np.isnan(result[4])
    assert np.isfinite(np.delete(result, [3, 4])).all()


@pytest.mark.parametrize("group", [32, 64])
def test_the_draft_is_close_with_8_bit_inputs(group: int, every_isa: str) -> None:
    """Cosine of the product with the one of inputs that are not quantised."""
    shape = (256, 576)
    values = weights(shape).reshape(-1)
    format = Format(scheme="exact", truncated=4, fill="midpoint", group=group)
    exponents = choose_group_exponents(values, format)
    draft = decode_draft(encode(values, format, group_exponents=exponents)).reshape(shape)
    x = inputs(8, shape[1])
    with NativeLinear(draft, "draft5", group=group) as layer:
        assert layer.form == "draft5"
        result = layer.multiply(x)
    wanted = x @ floats(draft).T
    cosines = (
        (result * wanted).sum(1) / np.linalg.norm(result, axis=1) / np.linalg.norm(wanted, axis=1)
    )
    assert cosines.min() > 0.9998


@pytest.mark.parametrize(
    ("shape", "form", "group", "threads", "text"),
    [
        ((4,), "bf16", 32, 1, "values must be uint16"),
        ((4, 0), "bf16", 32, 1, "in must be at least 1, not 0"),
        ((4, 4), "draft5", 16, 1, "group must be 32 or 64, not 16"),
        ((4, 4), "other", 32, 1, "form must be bf16"),
        ((4, 4), "bf16", 32, 0, "threads must be from 1 to 256, not 0"),
    ],
)
def test_wrong_arguments(
    shape: tuple[int, ...], form: FormName, group: int, threads: int, text: str
) -> None:
    with pytest.raises(CassandraError, match=text):
        NativeLinear(np.zeros(shape, dtype=np.uint16), form, group=group, threads=threads)


def test_wrong_inputs_and_closed_layers() -> None:
    layer = NativeLinear(np.zeros((4, 4), dtype=np.uint16), "bf16")
    for wrong in (np.zeros((129, 4)), np.zeros((1, 5)), np.zeros((0, 4)), np.zeros(4)):
        with pytest.raises(native.NativeError, match="x must be"):
            layer.multiply(wrong.astype(np.float32))
    layer.close()
    layer.close()
    with pytest.raises(native.NativeError, match="must be open"):
        layer.values()
