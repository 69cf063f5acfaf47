"""Memory that the system has left, before anything large is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from cassandra_spec.golden import CassandraError


def require_memory(needed: int, what: str) -> None:
    """Raise if an allocation exceeds the memory that is available now."""
    available = available_memory()
    if available is not None and needed > available:
        raise CassandraError(
            f"{what} needs {size_text(needed)} of memory, and {size_text(available)} are available"
        )


def size_text(size: int) -> str:
    """Return a size in GB or MB."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process may still allocate; None if the system does not tell.

    The result is the minimum of the kernel's available memory and the limits of control groups.
    ``root`` is the parent of ``/proc`` and ``/sys``.
    """
    limits = [*_of_kernel(root / "proc/meminfo"), *_of_groups(root / "sys/fs/cgroup")]
    if not limits and "SC_AVPHYS_PAGES" in os.sysconf_names:
        limits = [os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    return min(limits, default=None)


def _of_kernel(path: Path) -> Iterator[int]:
    for line in _lines(path):
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024


def _of_groups(folder: Path) -> Iterator[int]:
    """Yield the unused memory within the limits of control groups, version 2 or 1."""
    for limit, usage, statistics in (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    ):
        most, used = _number(folder / limit), _number(folder / usage)
        if most is not None and used is not None:
            yield max(most - used + _reclaimable(folder / statistics), 0)


def _reclaimable(path: Path) -> int:
    """Cached files count as used, and are given up when memory is short."""
    pairs = (line.split() for line in _lines(path))
    return sum(int(size) for name, size in pairs if name in ("inactive_file", "active_file"))


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []  # another system, or another version of control groups
