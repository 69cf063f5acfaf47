"""``make native``: compile the native library and print its path and instruction set."""

import sys

from cassandra_spec.native.build import NativeError
from cassandra_spec.native.library import available_isas, isa, library_path


def main() -> int:
    """Compile the library; print an error and return 2 if that fails."""
    try:
        print(library_path())
        print(f"instruction sets here: {', '.join(available_isas())}; in use: {isa()}")
    except NativeError as error:
        print(f"native: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
