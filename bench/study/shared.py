"""A study on several machines: what a worker needs, by the paths of files."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cassandra_spec.bench.study.drafts import Study
from cassandra_spec.bench.study.tuning import Candidate, Score, score
from cassandra_spec.drafting import NgramTable, Settings
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.model_types import EMBEDDING
from cassandra_spec.model.packing.calibration import Norms
from cassandra_spec.model.weights.sources import Shared


class SharedStudy:
    """A study that other processes open by its files, once each.

    ``norms`` and ``table`` are files of what the study has, for processes that open it.
    """

    def __init__(
        self, study: Study, *, norms: Path | None = None, table: Path | None = None
    ) -> None:
        self.study = study
        self._files = norms, table
        self._sent = Shared(study.source)

    def score(self, candidate: Candidate) -> Score:
        """Measure a candidate, where the work is done."""
        return score(candidate, self.study.measure(candidate.setting()), self.study.depth)

    def __reduce__(self) -> tuple[Any, ...]:
        """Reduce to a key, by which :func:`_reopen` finds an open study again."""
        study = self.study
        asked = tuple(study.prompts), study.max_tokens, study.depth, study.asked
        return _reopen, (self._sent, *asked, *self._files, self._digest)

    @functools.cached_property
    def _digest(self) -> str:
        return _digest(self.study, self._files[1])


def _digest(study: Study, table: Path | None) -> str:
    body = [study.about(), table and table.stat().st_size]
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


@functools.lru_cache(maxsize=1)
def _reopen(
    source: Shared,
    prompts: tuple[str, ...],
    max_tokens: int,
    depth: int,
    asked: Settings,
    norms: Path,
    table: Path | None,
    digest: str,
) -> SharedStudy:
    vocabulary = source.source.tensors[EMBEDDING].shape[0]
    study = Study(
        source.source,
        prompts,
        norms=Norms.load(norms),
        max_tokens=max_tokens,
        depth=depth,
        jobs=1,
        asked=asked,
        table=None if table is None else NgramTable.load(table, vocabulary=vocabulary),
    )
    if _digest(study, table) != digest:
        raise CassandraError(f"{norms} and the model must be the same everywhere, and are not")
    return SharedStudy(study, norms=norms, table=table)


@contextmanager
def shared(study: Study, *, beside: Path | None, table: Path | None) -> Iterator[SharedStudy]:
    """Share a study with the workers of a cluster, with its norms in a file next to ``beside``.

    None: for this process alone.
    """
    if beside is None or study.norms is None:
        yield SharedStudy(study)
        return
    norms = beside.absolute().with_name(f".{beside.name}.norms.safetensors")
    study.norms.save(norms)
    try:
        yield SharedStudy(study, norms=norms, table=table and table.absolute())
    finally:
        norms.unlink(missing_ok=True)
