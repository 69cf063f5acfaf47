"""The lm-evaluation-harness with packed models: ``python -m cassandra_spec.bench.accuracy run
...``.
"""

from __future__ import annotations

import sys

from cassandra_spec.golden import CassandraError


def main() -> int:
    """Run the harness's command; return 2 after an error, printed in one line."""
    try:
        from cassandra_spec.bench.accuracy.harness import main as harness

        harness()
    except CassandraError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
