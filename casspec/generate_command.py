"""``casspec generate``: replies to prompts, with the figures beside them."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cassandra_spec.casspec.native_generate import TextPrinter, generate_natively
from cassandra_spec.golden.format import SCHEMES, Format
from cassandra_spec.report.tables import text_table

if TYPE_CHECKING:
    from cassandra_spec.golden import Codec, Encoder
    from cassandra_spec.model.speculative import Generation, KeyValueFormat, Report

__all__ = ["EPILOG", "generate", "register"]

EPILOG = """\
examples:
  casspec generate packed --prompt "Why is the sky blue?"
  casspec generate packed --prompt "Hello." --prompt "And again?" --gamma 5 --max-tokens 64
  casspec generate packed --prompt "Hello." --plain
  casspec generate packed --prompt "Hello." --gamma adaptive --kv exact --kv-truncated 4
  casspec generate packed --prompt "Hello." --gamma adaptive --draft hybrid --min-margin 0.75
  casspec generate packed --prompt "Hello." --backend native --draft hybrid --min-margin 0.75
  casspec generate packed --prompt "Count to ten." --stop "7"
  casspec generate packed --prompt "Tell a story." --temperature 0.8 --top-p 0.95 --seed 1
  casspec generate packed --prompt "Hello." --json | jq .report.acceptance_rate
  casspec generate packed --prompt "Hello." --max-tokens 64 --codec rtl --kv exact --kv-order token

Each prompt gets a reply of its own. Without --temperature decoding is greedy, and the reply is
token for token what --plain gives with the same --kv. The figures are over all replies;
docs/runtime.md defines them. Ctrl-C ends with the text and the figures so far.
"""

_BF16: Literal["bf16"] = "bf16"

_GAMMAS: dict[str, int | str] = {"torch": 3, "native": "adaptive"}

_SEGMENTS = {"golden": 1 << 16, "rtl": 1 << 14}
"""Most values in a segment of keys and values; the gateware's encoder is built for that many."""

_TRAFFIC = (
    "MB read per token",
    "BF16",
    "packed, plain",
    "speculative",
    "by drafts",
    "by target",
    "KV",
    "plain speed-up",
    "speed-up",
)


def register(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.set_defaults(run=generate)
    parser.add_argument("source", metavar="PACKED", type=Path, help="directory of a packed model")
    parser.add_argument(
        "--prompt", action="append", required=True, metavar="TEXT", help="can be given repeatedly"
    )
    parser.add_argument(
        "--gamma",
        type=_gamma,
        metavar="N",
        help="tokens drafted in a round, or `adaptive`: by what was accepted (default 3, and"
        " adaptive of the native backend, which goes by measured times, too)",
    )
    parser.add_argument(
        "--draft",
        choices=("model", "lookup", "hybrid"),
        default="model",
        help="who drafts: the model; copies of what was there before; those where there are any "
        "(default model)",
    )
    parser.add_argument(
        "--min-margin",
        type=float,
        default=0.0,
        metavar="X",
        help="stop drafting after a token whose top logit exceeds the second by less"
        " (default 0: never)",
    )
    parser.add_argument("--least-lead", type=float, action=_OldMargin, help=argparse.SUPPRESS)
    parser.add_argument("--plain", action="store_true", help="the target alone, as with --gamma 0")
    parser.add_argument(
        "--max-tokens", type=int, default=128, metavar="N", help="of each reply (default 128)"
    )
    parser.add_argument(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="ends a reply, and is not shown; can be given repeatedly",
    )
    parser.add_argument("--json", action="store_true", help="everything, for other programs")
    parser.add_argument(
        "--codec",
        choices=("golden", "rtl"),
        default="golden",
        help="what decodes, and packs keys and values: the reference, or the Verilated gateware"
        " (default golden; --kv-prune is always the reference's)",
    )
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
    group.add_argument(
        "--backend",
        choices=("torch", "native"),
        default="torch",
        help="torch's kernels on decoded weights, or native code on packed ones: fast, greedy "
        "alone, for Llama-type models; needs a C++ compiler (default torch)",
    )
    group.add_argument(
        "--native-target",
        choices=("bf16", "packed12"),
        default="bf16",
        help="how the native target's weights are kept: 12 bits are as lossless (default bf16)",
    )
    group.add_argument(
        "--threads", type=int, metavar="N", help="of the native backend (default: all processors)"
    )


def _gamma(text: str) -> int | str:
    return text if text == "adaptive" else int(text)


_gamma.__name__ = "gamma"  # as argparse calls it in an error


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")
    group.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="default 0: greedy"
    )
    group.add_argument("--top-k", type=int, metavar="N", help="the N most likely tokens alone")
    group.add_argument("--top-p", type=float, metavar="P", help="the most likely of probability P")
    group.add_argument("--seed", type=int, metavar="N", help="makes sampling repeatable")


def _add_kv(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("keys and values")
    group.add_argument(
        "--kv",
        choices=(_BF16, *SCHEMES),
        default=_BF16,
        help="their scheme; mx rounds what the target sees (default bf16: not packed)",
    )
    group.add_argument(
        "--kv-truncated",
        type=int,
        default=4,
        metavar="N",
        help="low bits that the draft does not read (default 4)",
    )
    group.add_argument(
        "--kv-fill",
        choices=("zero", "midpoint"),
        default="midpoint",
        help="what a draft puts in their place (default midpoint)",
    )
    group.add_argument(
        "--kv-group", type=int, default=32, metavar="N", help="values of an exponent (default 32)"
    )
    group.add_argument(
        "--kv-block", type=int, default=32, metavar="N", help="positions in a block (default 32)"
    )
    group.add_argument(
        "--kv-order",
        choices=("channel", "token"),
        default="channel",
        help="of the values in a block (docs/kv.md; default channel)",
    )
    group.add_argument(
        "--kv-keep",
        type=int,
        metavar="N",
        help="largest values of each vector that the draft has (order token; default all)",
    )
    group.add_argument(
        "--kv-prune",
        type=float,
        default=0.0,
        metavar="FRACTION",
        help="smallest part of each position that the draft does without (default 0)",
    )
    group.add_argument(
        "--kv-whole", action="store_true", help="the draft reads all bits of keys and values"
    )


def generate(args: argparse.Namespace) -> int:
    """``casspec generate``."""
    if args.gamma is None:
        args.gamma = _GAMMAS[args.backend]
    if args.backend == "native":
        return generate_natively(args)
    from cassandra_spec.model.speculative import (
        CassandraForCausalLM,
        ReplyInterrupted,
        Sampling,
        Settings,
    )

    settings = Settings(
        gamma=0 if args.plain else args.gamma,
        draft=args.draft,
        min_margin=args.min_margin,
        max_tokens=args.max_tokens,
        stop_strings=tuple(args.stop),
        sampling=Sampling(temperature=args.temperature, top_k=args.top_k, top_p=args.top_p),
        seed=args.seed,
    )
    kv = _key_values(args)
    model = CassandraForCausalLM.from_pretrained(
        args.source, codec=_codec(args.codec, args.source), encoder=_encoder(args, kv), kv=kv
    )
    show = (lambda reply, text: None) if args.json else TextPrinter()
    try:
        _print_outcome(model.reply(args.prompt, settings, on_text=show), kv, args.json)
    except ReplyInterrupted as interrupt:
        _print_outcome(interrupt.generation, kv, args.json)
        raise (interrupt.__cause__ or interrupt) from None
    return 0


def _format_of(source: Path) -> Format:
    """The format of the first packed tensor: one decoder serves all, keys and values included."""
    from cassandra_spec.model.packing.packer import open_packed

    formats = [tensor.format for tensor in open_packed(source).tensors.values()]
    return formats[0] if formats else Format()


def _key_values(args: argparse.Namespace) -> KeyValueFormat | None:
    from cassandra_spec.model.speculative import KeyValueFormat

    if args.kv == _BF16:
        return None
    like = _format_of(args.source)
    format = Format(
        scheme=args.kv,
        truncated=args.kv_truncated,
        fill=args.kv_fill,
        group=args.kv_group,
        codebook=like.codebook,
        beat=like.beat,
        window=like.window,
        superblock=like.superblock,
    )
    return KeyValueFormat(
        format=format,
        block=args.kv_block,
        segment=_SEGMENTS[args.codec],
        prune=args.kv_prune,
        order=args.kv_order,
        keep=args.kv_keep,
        whole=args.kv_whole,
    )


def _encoder(args: argparse.Namespace, kv: KeyValueFormat | None) -> Encoder | None:
    """The gateware, made for the format of keys and values; None: golden's encoder."""
    if args.codec == "golden" or kv is None or kv.prune:
        return None
    from cassandra_spec.rtl.encode.types import EncoderConfig
    from cassandra_spec.verif.encoder.bulk import RtlEncoder

    return RtlEncoder(EncoderConfig.of(kv.format, schemes=SCHEMES))


def _codec(name: str, source: Path) -> Codec | None:
    """The gateware, made for the model's format; None: golden's codec."""
    if name == "golden":
        return None
    from cassandra_spec.verif.decoder.bulk import RtlCodec

    format = _format_of(source)
    return RtlCodec(
        lanes=format.beat,
        codebook=format.codebook,
        window=format.window,
        superblock=format.superblock,
        instances=2,
    )


def _print_outcome(outcome: Generation, kv: KeyValueFormat | None, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**dataclasses.asdict(outcome), "report": outcome.report.to_dict()}))
        return
    print(flush=True)
    _print_figures(outcome.report, _kv_text(kv))


def _kv_text(kv: KeyValueFormat | None) -> str:
    if kv is None:
        return "BF16"
    read = "whole" if kv.whole else f"without {kv.format.truncated} bits"
    return f"{kv.format.scheme}, drafts {read}, blocks of {kv.block}"


def _print_figures(report: Report, kv_format: str) -> None:
    """The figures, on standard error, so that the reply can be piped on."""
    kv = report.kv
    rows = [
        ["replies, tokens", f"{report.replies:,}, {report.tokens:,}"],
        ["gamma", str(report.gamma)],
        ["accepted / drafted", f"{report.accepted:,} / {report.drafted:,}"],
        ["of these copied", f"{report.copied_accepted:,} / {report.copied:,}"],
        ["acceptance rate", _decimal(report.acceptance_rate)],
        ["the same, predecessors accepted", _decimal(report.conditional_rate)],
        ["tokens per verification", _decimal(report.tokens_per_verification)],
        ["rounds by accepted tokens", " ".join(map(str, report.accepted_lengths))],
        ["keys and values", kv_format],
        ["their memory, of BF16", _decimal(kv.memory)],
    ]
    print("\n" + text_table(["figure", "value"], rows), file=sys.stderr)
    traffic = [
        [
            scope,
            *(_megabytes(size) for size in (of.bf16, of.plain, of.speculative)),
            *(_megabytes(size) for size in (of.draft, of.target, of.kv)),
            _decimal(of.plain_speedup),
            _decimal(of.speedup),
        ]
        for scope, of in report.traffic.items()
    ]
    both = kv.draft + kv.target
    sizes = (kv.bf16, kv.plain, both, kv.draft, kv.target, both)
    alone = ["keys and values", *map(_megabytes, sizes), "", ""]
    print("\n" + text_table(_TRAFFIC, [*traffic, alone]), file=sys.stderr)


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.2f}"


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
