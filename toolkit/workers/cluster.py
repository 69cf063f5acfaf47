"""Run tasks on several machines by the executor of a Dask cluster (docs/software/packing.md).

Dask pickles functions and items for its workers, and runs an item again if its worker has
died. Items name files, and workers write files: the scheduler carries no arrays.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from cassandra_spec.golden import CassandraError

_PACKAGE = "cassandra-spec"
_SECONDS = 5  # until a scheduler must have answered


@contextmanager
def open_cluster(address: str) -> Iterator[tuple[Executor, int]]:
    """Return the executor of the scheduler at an address, and its number of workers.

    Raises :class:`CassandraError` if no scheduler answers, or if its workers cannot do this work.
    """
    from distributed import Client  # of the extra `cluster`

    try:
        client = Client(address, timeout=_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CassandraError(
            f"cluster must be the address of a Dask scheduler that runs, not {address!r} ({line})"
        ) from error
    with client:
        _check_threads(client.nthreads())
        _check_versions(client.run(version))
        executor = client.get_executor(pure=False)
        try:
            yield executor, len(client.nthreads())
        finally:
            executor.shutdown(wait=False)


def version() -> str:
    """Return the version of this package here."""
    return importlib.metadata.version(_PACKAGE)


def _check_threads(threads: dict[str, int]) -> None:
    if not threads:
        raise CassandraError("cluster must have workers (dask worker ADDRESS --nthreads 1)")
    for worker, number in threads.items():
        if number != 1:
            raise CassandraError(
                f"cluster must have workers of 1 thread (--nthreads 1), not {number} as {worker}"
            )


def _check_versions(versions: dict[str, str]) -> None:
    for worker, found in versions.items():
        if found != version():
            raise CassandraError(
                f"cluster must have {_PACKAGE} {version()} on every worker, not {found} as {worker}"
            )
