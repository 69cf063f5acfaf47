"""Part of ``make wheel``: write a wheel of the project with the native library in it."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cassandra_spec.native.build import SOURCES, NativeError
from cassandra_spec.native.prebuilt import write_prebuilt


def write_wheel(out: Path) -> None:
    """Compile the library and write the wheel into the folder ``out``.

    Raises :class:`NativeError`, and ``CalledProcessError`` if hatchling fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        write_prebuilt(Path(folder))
        hook = {"HATCH_BUILD_HOOK_ENABLE_CUSTOM": "true", "CASSANDRA_PREBUILT": folder}
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
        checkout = SOURCES.parents[1]
        subprocess.run(command, cwd=checkout, env=os.environ | hook, check=True)


def main() -> int:
    """Write the wheel; print an error and return 2 if that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the wheel")
    out = parser.parse_args().out
    try:
        write_wheel(out.absolute())
    except NativeError as error:
        print(f"wheel: error: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        return error.returncode
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
