"""Check that replies are equal, token by token, and report the verdict."""

from __future__ import annotations

from collections.abc import Sequence


def first_difference(one: Sequence[object], other: Sequence[object]) -> int | None:
    """Return the place of the first difference of two replies; None if they are equal."""
    pairs = enumerate(zip(one, other, strict=False))
    shorter = min(len(one), len(other))
    place = next((place for place, (mine, theirs) in pairs if mine != theirs), shorter)
    return place if place < max(len(one), len(other)) else None


def report(differing: int, compared: int | None = None, *, whole: bool = True) -> int:
    """Print PASS, or FAIL if replies differ; return the exit code.

    ``compared`` is the number of replies, if a part of all was compared. Without differences, a
    run that was not ``whole`` was interrupted.
    """
    count = f"{differing}" if compared is None else f"{differing} of {compared}"
    plain = " from the plain ones" if compared is None else ""
    print(f"\n{'FAIL' if differing else 'PASS'}: {count} replies differ{plain}")
    return 1 if differing else 0 if whole else 130
