"""Run the command ``casspec``, as a script or as ``python -m cassandra_spec.commands``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from cassandra_spec.toolkit.running import run_command


def _parser() -> argparse.ArgumentParser:
    from cassandra_spec.commands.arguments import build_parser  # takes a moment

    return build_parser()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 2 after bad input or a full disk, 130 or 143 if interrupted."""
    return run_command(_parser, lambda args: args.run(args), argv, name="casspec")


if __name__ == "__main__":
    raise SystemExit(main())
