"""Subjects of coverage runs: the modules that a run counts; others have their own run, or are
tests.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import re


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """The module ``root`` of some designs with its content, except engines that another suite
    counts.

    ``design`` is a shell pattern, ``root`` the path of an instance, ``engine`` a regular expression
    for such paths.
    """

    design: str
    root: str = ""
    engine: str | None = None
    suite: str | None = None  # suite that counts the engine

    def inside(self, module: str) -> str | None:
        """Return the path below the root of a counted module; None for others."""
        if self.engine_around(module) is not None:
            return None
        if module == self.root or not self.root:
            return module.removeprefix(self.root)
        within = module.startswith(f"{self.root}.")
        return module.removeprefix(f"{self.root}.") if within else None

    def engine_around(self, module: str) -> str | None:
        """Return the engine that a module is, or is in."""
        found = self.engine and re.match(rf"(?:{self.engine})(?=\.|$)", module)
        return found[0] if found else None


SUBJECTS = (
    *(
        Subject(
            design=design,
            root="top",
            engine=r"top\.engine\.channel_\d+\.decoder",
            suite="decoder_l8 (full_rate_l8, coded)",
        )
        for design in ("cassandra_dma_*", "cassandra_array_*")
    ),
    Subject(
        design="cassandra_encoder_dma_*",
        root="top",
        engine=r"top\.(engine\.encoder|store)",
        suite="encoder_l8, encoder_l16 or store",
    ),
    Subject(design="cassandra_store_*", root="top"),
)
"""Subjects of wrapped designs, where the bus rules stand beside the exported top."""


def subject_of(design: str) -> Subject:
    """Return the subject of a design: all of it, unless the table has an entry."""
    found = (subject for subject in SUBJECTS if fnmatch.fnmatchcase(design, subject.design))
    return next(found, Subject(design=design))
