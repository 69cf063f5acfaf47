"""``make native``: compile the native library now, and say where it is and what it will use."""

import sys

from cassandra_spec.native.build import NativeError, build_library
from cassandra_spec.native.library import available_isas, isa


def main() -> int:
    """Compile; 2 after a line about what was wrong."""
    try:
        print(build_library())
        print(f"instruction sets here: {', '.join(available_isas())}; in use: {isa()}")
    except NativeError as error:
        print(f"native: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
