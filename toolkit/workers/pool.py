"""A function over many items in worker processes, or on a cluster: in order, some at a time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from multiprocessing import connection, resource_tracker
from typing import TypeVar

from cassandra_spec.golden import CassandraError
from cassandra_spec.toolkit.workers.cluster import open_cluster

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
_AHEAD = 2  # items in flight for each worker: one at work, one waiting


class Workers:
    """``jobs`` processes (``default``: the machine's cores); one job works in this process.

    With ``cluster``, the address of a Dask scheduler, its workers do the work and ``jobs`` is their
    number; files must have the same paths on all machines. A worker that dies there is replaced.

    A context manager: leaving it, by an exception too, ends the workers after their current item.
    Workers do not see interrupts from the keyboard, and end by themselves if this process dies.
    """

    def __init__(
        self,
        jobs: int | None = None,
        *,
        cluster: str | None = None,
        default: int | None = None,
    ) -> None:
        if cluster is not None and jobs is not None:
            raise CassandraError(f"jobs must be left out with a cluster, not {jobs}")
        self.jobs = (default or os.cpu_count() or 1) if jobs is None else jobs
        if self.jobs < 1:
            raise CassandraError(f"jobs must be at least 1, not {jobs}")
        self.cluster = cluster
        self._stack = ExitStack()
        self._pool: Executor | None = None

    def __enter__(self) -> Workers:
        """Prepare the processes; they start with the first items."""
        if self.cluster is not None:
            self._pool, self.jobs = self._stack.enter_context(open_cluster(self.cluster))
        elif self.jobs > 1:
            resource_tracker.ensure_running()  # it would unblock signals when it starts
            context = multiprocessing.get_context("spawn")
            pool = ProcessPoolExecutor(self.jobs, context, _end_with_parent)
            self._stack.callback(pool.shutdown, cancel_futures=True)
            self._pool = pool
        return self

    def __exit__(self, *error: object) -> None:
        """Drop what has not begun and wait for the rest."""
        self._stack.close()

    def map(
        self, function: Callable[[_Item], _Result], items: Iterable[_Item]
    ) -> Iterator[_Result]:
        """Yield ``function(item)`` in the order of ``items``, which are taken as workers free up.

        Function, items and results must be picklable. What the function raises is raised here.
        """
        if self._pool is None:
            yield from map(function, items)
            return
        pending: deque[Future[_Result]] = deque()
        for item in items:
            pending.append(_submit(self._pool, function, item))
            if len(pending) >= _AHEAD * self.jobs:
                yield _result(pending.popleft())
        while pending:
            yield _result(pending.popleft())


_KILLED = "a worker process was killed (is there enough memory?)"


def _submit(pool: Executor, function: Callable[[_Item], _Result], item: _Item) -> Future[_Result]:
    try:
        with _interrupts_deferred(), _main_hidden():  # workers that start now inherit this
            return pool.submit(function, item)
    except BrokenProcessPool as error:
        raise CassandraError(_KILLED) from error
    except OSError as error:
        if error.errno is not None:
            raise
        # the pool breaks right now, and its pipe is closed
        raise CassandraError(_KILLED) from error


def _result(future: Future[_Result]) -> _Result:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise CassandraError(_KILLED) from error


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Let interrupts wait until the block ends; processes that start in it do not get them at all.

    A process that is half started must not be left. Blocking the signals of this thread does not
    keep Python from handling them here: another thread may receive them, such as that of tqdm.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []
    before = {number: signal.getsignal(number) for number in _INTERRUPTS}
    for number in _INTERRUPTS:
        signal.signal(number, lambda number, frame: caught.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in caught:
            signal.raise_signal(late)


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Keep processes that start in the block from running the program's own file again.

    They need nothing of it, and a script without a guard for its name would begin anew in each.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _end_with_parent() -> None:
    """Watch the process that started this worker, which cannot tell it of a sudden death."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch(sentinel: int) -> None:
        connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, args=(parent.sentinel,), daemon=True).start()
