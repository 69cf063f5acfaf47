"""Which form of linear.h a matrix takes, by the format that it was packed in."""

from __future__ import annotations

from typing import Literal

from cassandra_spec.golden import Format

FormName = Literal["bf16", "packed12", "packed8", "draft5", "draft4", "mx9"]
FORMS: tuple[FormName, ...] = ("bf16", "packed12", "packed8", "draft5", "draft4", "mx9")
"""Names of the forms, by their number in linear.h."""

Target = Literal["bf16", "packed12"]
TARGETS: tuple[Target, ...] = ("bf16", "packed12")
"""How the values of targets are kept: as they are, or in the lossless form of 12 bits."""


def draft_form(format: Format | None, columns: int) -> tuple[str, int]:
    """Form and group of a draft; None is a matrix that is not packed, whose draft is the target.

    The form is the narrowest that holds all draft values of the format in rows of ``columns``
    values; what a tensor has beyond that falls back to BF16 when it is made. Groups that run over
    the ends of rows have no narrow form.
    """
    if format is None:
        return "bf16", 32
    group = min(format.group, 64)
    if format.scheme == "unary":
        return ("packed8" if format.truncated >= 4 else "packed12"), group
    if group < 32 or columns % group or format.truncated < 4:
        return "packed12", 32
    return ("draft5" if format.truncated == 4 else "draft4"), group


def target_form(format: Format | None, target: Target) -> tuple[str, int]:
    """Form and group of a target: in mx the packed significands, else as ``target`` says."""
    if format is not None and format.scheme == "mx" and target == "packed12":
        return ("mx9", min(format.group, 64)) if format.group >= 32 else ("packed12", 32)
    return target, 32
