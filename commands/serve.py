"""Define ``casspec serve``, an OpenAI-compatible server of a packed model."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import functools
import os
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cassandra_spec.api.opening import choose_backend
from cassandra_spec.api.replies import Model
from cassandra_spec.commands import generate_flags
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.model_config import read_config
from cassandra_spec.model import flags as model_flags
from cassandra_spec.native.limits import MAX_ROWS
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.running import INTERRUPTED, integer

if TYPE_CHECKING:
    from cassandra_spec.serve.app import Served

KEY = "CASSPEC_API_KEY"
"""Environment variable for the API key; other users can see a command line."""

EPILOG = f"""\
examples:
  casspec serve packed
  casspec serve packed --port 8080 --slots 8 --draft hybrid --min-margin 0.75
  {KEY}=secret casspec serve packed --host 0.0.0.0
  curl http://127.0.0.1:8000/v1/chat/completions -H "Content-Type: application/json" \\
    -d '{{"model": "packed", "messages": [{{"role": "user", "content": "Why?"}}]}}'

Requests are decoded in batches; batching does not change replies. Ctrl-C or SIGTERM lets running
requests finish; a second signal stops the server at once. docs/software/serving.md describes the
API, its limits and its guarantees.
"""


def define(parser: flags.CommandParser) -> None:
    """Define the flags."""
    flags.describe(parser, EPILOG, _serve)
    model_flags.add_packed(parser)
    _add_server(parser)
    generate_flags.add_drafts(parser)
    generate_flags.add_backend(parser)
    generate_flags.set_greedy(parser)
    parser.show_first(
        *("--host", "--port", "--api-key", "--name", "--slots", "--max-tokens", "--context"),
        *("--default-temperature", "--draft", "--backend", "--native-target", "--threads"),
        *("--memory-limit", "--quiet"),
    )


def _add_server(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    text = "IP address to listen on (default 127.0.0.1: local clients only)"
    group.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help=text)
    text = "port to listen on; 0: any free port (default 8000)"
    group.add_argument("--port", metavar="N", type=integer(0, 65535), default=8000, help=text)
    text = f"API key that clients must send (default: ${KEY})"
    group.add_argument("--api-key", metavar="KEY", default=os.environ.get(KEY, ""), help=text)
    text = "also accept requests for this host name, or for all of a domain (*.example.org)"
    flags.add_repeated(group, "allowed-host", "NAME", text)
    text = "allow requests from web pages of this origin, such as https://example.org"
    flags.add_repeated(group, "cors-origin", "URL", text)
    text = "model name in the API (default: name of the directory)"
    group.add_argument("--name", metavar="NAME", help=text)
    flags.add_count(group, "slots", "requests decoded at once", 8)
    flags.add_count(group, "queue", "requests that may wait for a slot", 64, low=0)
    text = "length limit of a reply, in tokens (default: as many as fit the context)"
    flags.add_count(group, "max-tokens", text)
    flags.add_count(group, "max-body", "size limit of a request, in bytes", 1 << 20)
    text = "temperature of requests without one; 0: greedy (default 0)"
    flags.add_number(group, "default-temperature", text, 0.0, "T")
    flags.add_switch(group, "quiet", "print errors only, no line for each request")


def _serve(args: argparse.Namespace) -> int:
    """Run ``casspec serve``."""
    from cassandra_spec.serve.server import open_server

    begun = time.monotonic()
    if not args.api_key.isascii():
        raise CassandraError("--api-key must be of ASCII characters")
    args.batch = args.slots
    loading, settings = generate_flags.loading_of(args), generate_flags.drafting_of(args)
    args.backend, reason = choose_backend(args.source, loading, settings.gamma)
    generate_flags.refuse_ignored(args)
    if args.backend == "native" and args.slots > MAX_ROWS:
        raise CassandraError(f"slots must be from 1 to {MAX_ROWS}, not {args.slots}")
    say = functools.partial(_say, args)
    say(f"loading {args.source}")
    with Model(args.source, dataclasses.replace(loading, backend=args.backend), settings) as model:
        if model.target_reason:
            say(
                f"the native target {model.loading.native_target} was chosen: {model.target_reason}"
            )
        served, waiting = _served(args, model), args.queue
        with open_server(served, model.backend, args.host, args.port, waiting=waiting) as server:
            chosen = f": {reason}" if args.backend == "torch" and reason else ""
            limits = f"{served.context:,} positions, {args.slots} requests at once"
            say(
                f"{served.name} at {server.address} ({args.backend} backend{chosen}; {limits};"
                f" ready in {time.monotonic() - begun:.1f} s)"
            )
            return 0 if server.run_until_signal() else INTERRUPTED


def _say(args: argparse.Namespace, line: str) -> None:
    flags.say(args, f"casspec: {line}")


def _hosts(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the accepted host names besides those of localhost."""
    for name in args.allowed_host:
        if not re.fullmatch(r"(\*\.)?[A-Za-z0-9.:-]+", name):
            raise CassandraError(
                f"--allowed-host must be a host name or *. and a domain, not {name!r}"
            )
    wildcard = args.host in ("", "0.0.0.0", "::")  # no names of its own
    if wildcard and not args.allowed_host:
        line = "only requests for localhost are answered; name other hosts by --allowed-host"
        _say(args, line)
    own = f"[{args.host}]" if ":" in args.host else args.host
    return tuple(args.allowed_host) if wildcard else (own, *args.allowed_host)


def _origins(origins: Sequence[str]) -> tuple[str, ...]:
    for origin in origins:
        if not re.fullmatch(r"https?://[^/\s*]+", origin):
            raise CassandraError(f"--cors-origin must be a scheme and a host, not {origin!r}")
    return tuple(origins)


def _served(args: argparse.Namespace, model: Model) -> Served:
    from cassandra_spec.drafting import Sampling
    from cassandra_spec.model.packing.packer import open_packed
    from cassandra_spec.serve.app import Served

    backend, config, hosts = model.backend, read_config(args.source), _hosts(args)
    Sampling(temperature=args.default_temperature)  # refuses what is out of range
    return Served(
        name=args.name or args.source.resolve().name,
        fingerprint=open_packed(args.source).digest[:16],
        created=int(time.time()),
        tokenizer=copy.deepcopy(backend.tokenizer),
        vocabulary=int(config["vocab_size"]),
        context=backend.positions,
        settings=dataclasses.replace(model.settings, stop_tokens=backend.stop_tokens()),
        temperature=args.default_temperature,
        max_tokens=args.max_tokens or backend.positions,
        log=functools.partial(_say, args),
        max_body=args.max_body,
        api_key=args.api_key,
        hosts=hosts,
        origins=_origins(args.cors_origin),
    )
