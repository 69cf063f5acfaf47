"""Run tests of the native library, or save its answers, with 64-bit Arm under emulation.

The machine's name decides what ``native`` compiles, so nothing of it is imported before.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import sys
from pathlib import Path
from typing import Any

MACHINE = "aarch64"


def use_emulation() -> None:
    """Compile for 64-bit Arm, and load what is compiled in an emulated process."""
    platform.machine = lambda: MACHINE
    from tests.native.emulated.library import COMPILER, EmulatedLibrary, remember_arrays

    os.environ["CXX"] = COMPILER
    remember_arrays()
    load = ctypes.CDLL

    def load_either(name: Any, *arguments: Any, **options: Any) -> Any:
        own = isinstance(name, str) and Path(name).name == "libcassandra.so"
        return EmulatedLibrary(name) if own else load(name, *arguments, **options)

    ctypes.CDLL = load_either  # type: ignore[assignment,misc]


def save_answers(path: Path) -> int:
    """Save the answers for a comparison with those of another processor."""
    import numpy as np

    from tests.native.emulated.answers import answers

    np.savez(path, **answers())  # type: ignore[arg-type]
    return 0


def main() -> int:
    """Run pytest with the given arguments, or save answers; return the status."""
    parser = argparse.ArgumentParser(prog="emulated", description=__doc__)
    parser.add_argument("--answers", type=Path, help="save answers to this file, run no tests")
    options, rest = parser.parse_known_args()
    use_emulation()
    if options.answers:
        return save_answers(options.answers)
    import pytest

    return pytest.main(["-p", "no:cacheprovider", *rest])


if __name__ == "__main__":
    sys.exit(main())
