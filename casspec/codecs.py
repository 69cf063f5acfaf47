"""Which codec a command uses: the native one where it can be had."""

from __future__ import annotations

import argparse
import sys

from cassandra_spec.golden import GoldenCodec, Packer

__all__ = ["CODECS", "add_codec", "choose_codec"]

CODECS = ("native", "golden")


def add_codec(group: argparse._ArgumentGroup) -> None:
    """The flag ``--codec``."""
    group.add_argument(
        "--codec",
        choices=CODECS,
        help="native: compiled code (default where there is a compiler); golden: the reference,"
        " which gives the same bytes",
    )


def choose_codec(args: argparse.Namespace) -> Packer:
    """The codec of ``--codec``; without it the native one, or golden's where that cannot be had.

    Raises :class:`native.NativeError` if the native one is asked for and cannot be had.
    """
    if args.codec == "golden":
        return GoldenCodec()
    from cassandra_spec.native import NativeError
    from cassandra_spec.native.codec import NativeCodec

    try:
        return NativeCodec()
    except NativeError as error:
        if args.codec == "native":
            raise
        if not args.quiet:
            print(f"casspec: golden's codec is used: {error}", file=sys.stderr)
        return GoldenCodec()
