"""``casspec generate``: replies to prompts, with the figures beside them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from cassandra_spec.casspec import flags
from cassandra_spec.casspec.generate_backends import (
    AUTO,
    BACKENDS,
    BF16,
    choose_backend,
    refuse_ignored,
)
from cassandra_spec.casspec.generate_figures import TextPrinter, print_figures
from cassandra_spec.casspec.levels import add_levels, levels_of
from cassandra_spec.drafting.settings import ADAPTIVE, DraftKind, Gamma
from cassandra_spec.drafting.text import read_prompt
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.report.commands import integer

if TYPE_CHECKING:
    from cassandra_spec.drafting import Backend, Generation, Prompt, Settings

EPILOG = """\
examples:
  casspec generate packed --prompt "Why is the sky blue?"
  casspec generate packed --prompt "Hello." --prompt "And again?" --gamma 5 --max-tokens 64
  casspec generate packed --prompt-file question.txt --system "Answer in one sentence."
  casspec generate packed --prompt "Hello." --plain
  casspec generate packed --prompt "Hello." --gamma adaptive --kv exact --kv-truncated 3
  casspec generate packed --prompt "Hello." --gamma adaptive --draft hybrid --min-margin 0.75
  casspec generate packed --prompt "Hello." --draft hybrid --table packed/table.safetensors
  casspec generate packed --prompt "Count to ten." --stop "7"
  casspec generate packed --prompt "Tell a story." --temperature 0.8 --top-p 0.95 --seed 1
  casspec generate packed --prompt "Hello." --json | jq .report.acceptance_rate
  casspec generate packed --prompt "Hello." --max-tokens 64 --codec rtl --kv exact --kv-order token

Each prompt gets a reply of its own. Without --temperature decoding is greedy, and the reply is
token for token what --plain gives with the same --kv. The figures are over all replies;
docs/runtime.md defines them. Ctrl-C ends with the text and the figures so far.
"""

_GAMMAS: dict[str, Gamma] = {"torch": 3, "native": "adaptive"}


def register(subparsers: flags.Subparsers) -> None:
    """Add the command."""
    text = "reply to prompts by self-speculative decoding"
    parser = flags.add_command(subparsers, "generate", text, EPILOG, _generate)
    parser.add_argument("source", metavar="PACKED", type=Path, help="directory of a packed model")
    parser.add_argument(
        "--prompt", action="append", default=[], metavar="TEXT", help="can be given repeatedly"
    )
    parser.add_argument(
        "--prompt-file",
        action="append",
        default=[],
        metavar="FILE",
        help="a prompt that is the text of a file, or with - of standard input, which is read too"
        " if no prompt is given; can be given repeatedly",
    )
    flags.add_switch(parser, "raw", "no chat template: the model goes on with the text")
    flags.add_switch(parser, "json", "everything, for other programs")
    add_generation(parser)


def add_generation(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say how replies are made."""
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before prompts")
    parser.add_argument(
        "--gamma",
        type=_gamma,
        metavar="N",
        help="tokens drafted in a round, or `adaptive`: by what was accepted (default 3, and"
        " adaptive of the native backend, which goes by measured times, too, and drafts at most 7)",
    )
    text = (
        "who drafts: the model's draft view; low drafters alone (copies of earlier tokens, a table,"
        " what the target held likely before); both, as levels; or nobody"
    )
    flags.add_choice(parser, "draft", get_args(DraftKind), text)
    parser.add_argument(
        "--min-margin",
        type=float,
        default=0.0,
        metavar="X",
        help="stop drafting after a token whose top logit exceeds the second by less"
        " (default 0: never)",
    )
    parser.add_argument("--least-lead", type=float, action=_OldMargin, help=argparse.SUPPRESS)
    flags.add_switch(parser, "plain", "the target alone, as with --gamma 0")
    flags.add_count(parser, "max-tokens", "of each reply", 128)
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="ends a reply, and is not shown; can be given repeatedly",
    )
    text = (
        "keep checksums of the weights in memory, and check them after the last reply (regions of"
        " the file are always checked)"
    )
    flags.add_switch(parser, "verify", text)
    add_levels(parser)
    _add_backend(parser)
    _add_sampling(parser)
    _add_kv(parser)


class _OldMargin(argparse.Action):
    """``--least-lead``, the name of ``--min-margin`` in version 0.1."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        print("casspec: --least-lead is now --min-margin", file=sys.stderr)
        namespace.min_margin = values


def _add_backend(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("backend")
    text = (
        "torch's kernels on decoded weights, or native code on packed ones: fast, greedy alone, for"
        " Llama-type models; needs a C++ compiler; auto: native where it can be"
    )
    flags.add_choice(group, "backend", (AUTO, "torch", "native"), text)
    text = (
        "what decodes for torch, and packs keys and values: native code where there is a compiler,"
        " the reference, or the Verilated gateware; --kv-prune is always the reference's"
    )
    flags.add_choice(group, "codec", (AUTO, "golden", "rtl"), text)
    text = "how the native target's weights are kept: 12 bits are as lossless"
    flags.add_choice(group, "native-target", ("bf16", "packed12"), text)
    flags.add_count(group, "threads", "of the native backend (default: all processors)")


def _gamma(text: str) -> Gamma:
    return ADAPTIVE if text == ADAPTIVE else int(text)


_gamma.__name__ = "gamma"  # as argparse calls it in an error


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")
    group.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="default 0: greedy"
    )
    flags.add_count(group, "top-k", "the N most likely tokens alone")
    group.add_argument("--top-p", type=float, metavar="P", help="the most likely of probability P")
    group.add_argument(
        "--seed", type=integer(0, 2**63 - 1), metavar="N", help="makes sampling repeatable"
    )


def _add_kv(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("keys and values")
    text = "their scheme; mx rounds what the target sees; bf16: not packed"
    flags.add_choice(group, "kv", (BF16, *SCHEMES), text)
    flags.add_count(group, "kv-truncated", "low bits that the draft does not read", 4, low=0)
    text = "what a draft puts in their place"
    flags.add_choice(group, "kv-fill", ("zero", "midpoint"), text, "midpoint")
    flags.add_count(group, "kv-group", "values of an exponent", 32)
    flags.add_count(group, "kv-block", "positions in a block", 32)
    text = "of the values in a block (docs/kv.md)"
    flags.add_choice(group, "kv-order", ("channel", "token"), text)
    text = "largest values of each vector that the draft has (order token; default all)"
    flags.add_count(group, "kv-keep", text)
    group.add_argument(
        "--kv-prune",
        type=float,
        default=0.0,
        metavar="FRACTION",
        help="smallest part of each position that the draft does without (default 0)",
    )
    flags.add_switch(group, "kv-whole", "the draft reads all bits of keys and values")


def _generate(args: argparse.Namespace) -> int:
    """``casspec generate``."""
    from cassandra_spec.drafting import Replies

    prompts = [with_system(args, prompt) for prompt in _prompts(args)]
    with open_backend(args) as (backend, settings):
        replies = Replies(backend, settings, raw=args.raw)
        try:
            replies.run(prompts, (lambda *_: None) if args.json else TextPrinter())
        finally:
            if replies or sys.exc_info()[0] is KeyboardInterrupt:
                print_outcome(replies.generation(), args)
    return 0


def _prompts(args: argparse.Namespace) -> list[str]:
    """The texts of ``--prompt``, then those of files; else standard input."""
    files = args.prompt_file
    if not args.prompt and not files:
        if sys.stdin.isatty():
            raise CassandraError("--prompt must be given, or text on standard input")
        files = ["-"]
    return [*args.prompt, *map(read_prompt, files)]


def with_system(args: argparse.Namespace, prompt: str) -> Prompt:
    """A prompt after the text of ``--system``."""
    if args.system is None:
        return prompt
    return [{"role": "system", "content": args.system}, {"role": "user", "content": prompt}]


@contextmanager
def open_backend(args: argparse.Namespace) -> Iterator[tuple[Backend, Settings]]:
    """The model and the settings of a command's flags."""
    from cassandra_spec.drafting import Sampling, Settings

    args.reason = choose_backend(args)
    refuse_ignored(args)
    gamma = _GAMMAS[args.backend] if args.gamma is None else args.gamma
    settings = Settings(
        gamma=0 if args.plain else gamma,
        draft=args.draft,
        min_margin=args.min_margin,
        levels=levels_of(args),
        max_tokens=args.max_tokens,
        stop_strings=tuple(args.stop),
        sampling=Sampling(temperature=args.temperature, top_k=args.top_k, top_p=args.top_p),
        seed=args.seed,
    )
    with BACKENDS[args.backend](args, settings) as backend:
        yield backend, settings
        if args.verify:
            backend.verify()


def print_outcome(outcome: Generation, args: argparse.Namespace) -> None:
    """The end of a reply's line and the figures, or all as JSON; and which backend it was."""
    print(json.dumps(outcome.to_dict()) if args.json else "", flush=True)
    if args.reason:
        print(f"casspec: the {args.backend} backend was chosen: {args.reason}", file=sys.stderr)
    if not args.json:
        print_figures(outcome.report, _kv_text(args))


def _kv_text(args: argparse.Namespace) -> str:
    if args.kv == BF16:
        return "BF16"
    read = "whole" if args.kv_whole else f"without {args.kv_truncated} bits"
    return f"{args.kv}, drafts {read}, blocks of {args.kv_block}"
