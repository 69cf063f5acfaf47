"""``make sanitize``: run the native tests with AddressSanitizer and UndefinedBehaviorSanitizer.

Python itself is not built with sanitizers, so their runtimes are loaded before it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cassandra_spec.native.build import NativeError, build_library, find_toolchain

# libstdc++ too: the sanitizer looks up its functions at startup.
_RUNTIMES = ("libasan.so", "libubsan.so", "libstdc++.so.6")


def _runtime(name: str) -> str:
    command = [*find_toolchain().command, f"-print-file-name={name}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(found).is_absolute():
        raise NativeError(f"{name} must come with the compiler, and does not")
    return str(Path(found).resolve())


def environment() -> dict[str, str]:
    """Return the environment for a Python process that loads the sanitized library."""
    return {
        "LD_PRELOAD": " ".join(map(_runtime, _RUNTIMES)),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",  # ignore Python's own leaks
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "CASSANDRA_NATIVE_SANITIZE": "1",
    }


def main() -> int:
    """Build with sanitizers and run ``pytest tests/native`` (or the given arguments)."""
    build_library(sanitize=True)
    arguments = sys.argv[1:] or ["tests/native"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--capture=sys",
        *("-n", "2", "--dist", "loadfile"),
        *arguments,
    ]
    return subprocess.run(command, env=os.environ | environment(), check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
