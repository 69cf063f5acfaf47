"""Choose the form (linear.h) of a matrix by the format that it was packed in."""

from __future__ import annotations

from typing import Literal

from cassandra_spec.golden import Format

FormName = Literal["bf16", "packed12", "packed8", "draft5", "draft4", "mx9", "planes"]
FORMS: tuple[FormName, ...] = (
    *("bf16", "packed12", "packed8", "draft5", "draft4", "mx9"),
    "planes",
)
"""Names of the forms; the index is the number in linear.h."""

Target = Literal["bf16", "packed12", "planes"]
TARGETS: tuple[Target, ...] = ("bf16", "packed12", "planes")
"""Storage of target values: unchanged, in the lossless 12-bit form, or as what a draft lacks."""

TRIED_PLANES = ("portable", "avx2")
"""Instruction sets whose kernels of ``planes`` have been run. Those of others, all levels of
AVX-512 among them, have run under emulation at most: there, only a user chooses them."""


def draft_form(format: Format | None, columns: int) -> tuple[str, int]:
    """Return the form and group of a draft; format None means that the draft is the target.

    The form is the narrowest one that holds all draft values of the format in rows of ``columns``
    values; a tensor with other values falls back to BF16 when it is loaded. Groups that cross the
    ends of rows have no narrow form.
    """
    if format is None:
        return "bf16", 32
    group = min(format.group, 64)
    if format.scheme == "unary":
        return ("packed8" if format.truncated >= 4 else "packed12"), group
    if group < 32 or columns % group or format.truncated < 4:
        return "packed12", 32
    return ("draft5" if format.truncated == 4 else "draft4"), group


def target_form(format: Format | None, target: Target, columns: int) -> tuple[str, int]:
    """Return the form and group of a target: packed significands in mx, else ``target``'s.

    Planes need a draft of codes, of values that are filled with midpoints. Other targets are in
    BF16 then, which multiplies the same values in the same order.
    """
    if target == "planes":
        form, group = draft_form(format, columns)
        whole = form in ("draft5", "draft4") and format is not None and format.fill == "midpoint"
        return ("planes", group) if whole else ("bf16", 32)
    if format is not None and format.scheme == "mx" and target == "packed12":
        return ("mx9", min(format.group, 64)) if format.group >= 32 else ("packed12", 32)
    return target, 32
