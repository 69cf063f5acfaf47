"""``make native``: compile the native library and print its path and instruction set."""

import sys

from cassandra_spec.native.build import NativeError, build_library
from cassandra_spec.native.library import available_isas, isa


def main() -> int:
    """Compile the library; print an error and return 2 if that fails."""
    try:
        print(build_library())
        print(f"instruction sets here: {', '.join(available_isas())}; in use: {isa()}")
    except NativeError as error:
        print(f"native: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
