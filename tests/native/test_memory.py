"""Memory that the system and its control groups have left."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.golden import CassandraError
from cassandra_spec.native import memory
from cassandra_spec.native.memory import available_memory


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = "MemTotal:  900 kB\nMemFree: 100 kB\nMemAvailable:     400 kB\n"


def test_the_kernel_says_what_is_available(tmp_path: Path) -> None:
    assert available_memory(write(tmp_path, proc__meminfo=MEMINFO)) == 400 * 1024


@pytest.mark.parametrize(
    ("limit", "usage", "stat"),
    [
        (
            "sys__fs__cgroup__memory_dot_max",
            "sys__fs__cgroup__memory_dot_current",
            "sys__fs__cgroup__memory_dot_stat",
        ),
        (
            "sys__fs__cgroup__memory__memory_dot_limit_in_bytes",
            "sys__fs__cgroup__memory__memory_dot_usage_in_bytes",
            "sys__fs__cgroup__memory__memory_dot_stat",
        ),
    ],
    ids=["version 2", "version 1"],
)
def test_a_control_group_may_leave_less(tmp_path: Path, limit: str, usage: str, stat: str) -> None:
    files = {"proc__meminfo": MEMINFO, limit: "300000\n", usage: "250000\n"}
    root = write(tmp_path, **files, **{stat: "anon 9\ninactive_file 1000\nactive_file 500\n"})
    assert available_memory(root) == 51_500
    assert available_memory(write(root, **{usage: "400000\n"})) == 0


def test_a_control_group_without_a_limit_changes_nothing(tmp_path: Path) -> None:
    root = write(tmp_path, proc__meminfo=MEMINFO, sys__fs__cgroup__memory_dot_max="max\n")
    assert available_memory(root) == 400 * 1024


def test_this_system_says_something() -> None:
    assert (available_memory() or 0) > 1 << 20


def test_large_sizes_are_in_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 3_000_000_000)
    with pytest.raises(CassandraError, match=r"x needs 16\.0 GB of memory, and 3\.0 GB are"):
        memory.require_memory(16_000_000_000, "x")
