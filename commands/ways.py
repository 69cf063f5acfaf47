"""Parse and open ways to decode, such as ``packed draft=hybrid gamma=7``."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from cassandra_spec.commands import generate_flags
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.model_config import read_config
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.running import CommandParser

if TYPE_CHECKING:
    from cassandra_spec.bench.conform.local import Vocabulary
    from cassandra_spec.bench.conform.replies import Way

_POSITIONS = 1 << 13  # limit of llama.cpp's context


def open_ways(
    stack: contextlib.ExitStack, texts: tuple[str, str], *, max_tokens: int, raw: bool
) -> tuple[Way, Way]:
    """Parse both ways, then open them until the stack closes.

    Raises :class:`CassandraError`, or exits with a parser's error line.
    """
    one, other = (_read(text, max_tokens=max_tokens, raw=raw) for text in texts)
    return one.open(stack, one, other), other.open(stack, other, one)


def _read(text: str, **shared: object) -> argparse.Namespace:
    """Parse a way; its options are the flags of its kind, without the dashes."""
    try:
        what, *options = shlex.split(text)
    except ValueError as error:
        raise CassandraError(f"a way must be a word with options, not {text!r}") from error
    parser = CommandParser(prog="casspec conform", usage=argparse.SUPPRESS)
    if what.partition("://")[1]:
        parser.add_argument("--model")
        parser.add_argument("--key", default="")
        parser.set_defaults(address=what, open=_open_address)
    elif what.endswith(".gguf"):
        parser.add_argument("--python", type=Path, required=True)
        flags.add_count(parser, "threads", "", 1)
        parser.set_defaults(file=Path(what), open=_open_gguf)
    else:
        generate_flags.add_drafts(parser)
        generate_flags.add_backend(parser)
        generate_flags.set_greedy(parser)
        generate_flags.add_sampling(parser)
        parser.set_defaults(source=Path(what), open=_open_packed)
    found: argparse.Namespace = parser.parse_args([f"--{option}" for option in options])
    for name, value in {"text": text, **shared}.items():
        setattr(found, name, value)
    return found


def _open_address(
    stack: contextlib.ExitStack, args: argparse.Namespace, other: argparse.Namespace
) -> Way:
    from cassandra_spec.bench.conform.address import Address, Server

    if args.key and args.key not in os.environ:
        raise CassandraError(
            f"key must be a variable of the environment, and {args.key} is not set"
        )
    server = Server(args.address, key=os.environ.get(args.key, ""))
    model = args.model or server.model()
    return Address(args.text, server, model, max_tokens=args.max_tokens, raw=args.raw)


def _open_packed(
    stack: contextlib.ExitStack, args: argparse.Namespace, other: argparse.Namespace
) -> Way:
    from cassandra_spec.bench.conform.local import Packed

    model = stack.enter_context(generate_flags.open_model(args))
    settings = model.settings_of(**generate_flags.reply_options(args))
    about = [args.raw, *generate_flags.identity_of(model)]
    return Packed(args.text, model.backend, settings, _vocabulary(args), about)


def _open_gguf(
    stack: contextlib.ExitStack, args: argparse.Namespace, other: argparse.Namespace
) -> Way:
    from cassandra_spec.bench.conform.local import Gguf
    from cassandra_spec.bench.decode.workers import Worker, llama_program
    from cassandra_spec.drafting import stop_tokens
    from cassandra_spec.model.pretrained import load_tokenizer

    if "source" not in other:
        raise CassandraError(f"{args.file} must be beside a packed model, whose tokens it takes")
    positions = min(int(read_config(other.source)["max_position_embeddings"]), _POSITIONS)
    file = args.file.stat()
    command = [*llama_program(args.python), "serve", str(args.file)]
    worker = Worker(str(args.file), [*command, str(positions), str(args.threads)])
    return Gguf(
        args.text,
        stack.enter_context(worker),
        _vocabulary(other),
        max_tokens=args.max_tokens,
        stops=stop_tokens(load_tokenizer(other.source), other.source),
        about=[args.raw, file.st_size, file.st_mtime_ns],
    )


def _vocabulary(args: argparse.Namespace) -> Vocabulary:
    from cassandra_spec.bench.conform.local import Vocabulary
    from cassandra_spec.model.pretrained import load_tokenizer

    return Vocabulary(load_tokenizer(args.source), args.source, raw=args.raw)
