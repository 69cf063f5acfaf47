"""Choose things by globs of their names."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import Protocol, TypeVar

from cassandra_spec.golden import CassandraError


class Named(Protocol):
    """A thing with a name."""

    @property
    def name(self) -> str:
        """The name."""


T = TypeVar("T", bound=Named)


def choose(what: str, globs: Sequence[str], things: Sequence[T]) -> list[T]:
    """Return the things whose names match a glob; all without globs.

    Raises:
        CassandraError: no name matches a glob; ``what`` are the things in its text.
    """

    def matches(glob: str) -> list[str]:
        return [each.name for each in things if fnmatch.fnmatchcase(each.name, glob)]

    for glob in globs:
        if not matches(glob):
            names = [each.name for each in things]
            known = ("; " if "," in "".join(names) else ", ").join(names)
            raise CassandraError(f"{what} must be among {known}, not {glob!r}")
    found = {name for glob in globs or ["*"] for name in matches(glob)}
    return [each for each in things if each.name in found]
