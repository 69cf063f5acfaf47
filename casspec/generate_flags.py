"""Flags of ``casspec generate`` and ``chat``, and what they describe."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from cassandra_spec.casspec.grammar_flags import add_grammar, grammar_of, with_grammar
from cassandra_spec.drafting.settings import (
    ADAPTIVE,
    BEST_MARGIN,
    DraftKind,
    Gamma,
    Sampling,
    Settings,
    default_margin,
)
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.format import SCHEMES, Format
from cassandra_spec.model import flags as model_flags
from cassandra_spec.model.flags import DRAFT_CACHE_FLAGS, LEVEL_FLAGS, VIEW_FLAGS
from cassandra_spec.report import flags

if TYPE_CHECKING:
    from cassandra_spec.golden import Codec, Encoder
    from cassandra_spec.model.backends import CheckedBackend, Opening
    from cassandra_spec.model.speculative import KeyValueFormat

AUTO, BF16 = "auto", "bf16"
_MB = 10**6

_SEGMENTS = {"golden": 1 << 16, "rtl": 1 << 14}
"""Most values in a segment of keys and values; the gateware's encoder is built for that many."""


def add_generation(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say how replies are made."""
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before prompts")
    flags.add_count(parser, "max-tokens", "of each reply", 128)
    flags.add_repeated(parser, "stop", "TEXT", "ends a reply, and is not shown")
    text = (
        "keep checksums of the weights in memory, and check them after the last reply (regions of"
        " the file are always checked)"
    )
    flags.add_switch(parser, "verify", text)
    add_drafts(parser)
    _add_sampling(parser)
    add_grammar(parser)
    add_backend(parser)


def add_drafts(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say who drafts, and how much."""
    parser.add_argument(
        "--gamma",
        type=_gamma,
        metavar="N",
        help="draft length; `adaptive` (the default) adjusts it to acceptance and cost: measured"
        " times with the native backend, bytes with torch",
    )
    text = (
        "draft source: `model` (the packed draft weights), `lookup` (n-gram copies and table),"
        " `hybrid` (both), `none`"
    )
    flags.add_choice(parser, "draft", get_args(DraftKind), text, "hybrid")
    text = "stop drafting after a token whose top logit exceeds the second by less than X"
    default = f"default {BEST_MARGIN}; 0 with a fixed --gamma"
    flags.add_number(parser, "min-margin", f"{text} ({default})")
    flags.add_switch(parser, "plain", "the target alone, as with --gamma 0")
    model_flags.add_draft_cache(parser)
    model_flags.add_levels(parser)


def add_backend(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say what decodes, and how keys and values are kept."""
    group = parser.add_argument_group("backend")
    text = (
        "torch's kernels on decoded weights, or native code on packed ones: fast; needs a C++"
        " compiler; auto: native where it can be"
    )
    flags.add_choice(group, "backend", (AUTO, "torch", "native"), text)
    text = (
        "what decodes for torch, and packs keys and values: native code where there is a compiler,"
        " the reference, or the Verilated gateware; --kv-prune is always the reference's"
    )
    flags.add_choice(group, "codec", (AUTO, "golden", "rtl"), text)
    text = "how the native target's weights are kept: 12 bits are lossless, too; auto: the faster"
    flags.add_choice(group, "native-target", ("bf16", "packed12", AUTO), text)
    flags.add_count(group, "threads", "of the native backend (default: all processors)")
    text = "positions of prompt and reply, at most: chooses rotary angles (docs/software/native.md)"
    flags.add_count(group, "context", text)
    text = (
        "MB for the native backend: a larger target is read from the file, for a --context of 2,048"
    )
    flags.add_count(group, "memory-limit", text)
    _add_kv(parser)


def set_greedy(parser: argparse.ArgumentParser) -> None:
    """In the place of the other flags of generation: greedy replies."""
    parser.set_defaults(stop=[], temperature=0.0, top_k=None, top_p=None, seed=None)
    parser.set_defaults(raw=False, verify=False, batch=1)


def _gamma(text: str) -> Gamma:
    return ADAPTIVE if text == ADAPTIVE else int(text)


_gamma.__name__ = "gamma"  # as argparse calls it in an error


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")
    flags.add_number(group, "temperature", "default 0: greedy", 0.0, "T")
    flags.add_count(group, "top-k", "the N most likely tokens alone")
    flags.add_number(group, "top-p", "the most likely of probability P", metavar="P")
    flags.add_seed(group, "makes sampling repeatable")


def _add_kv(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("keys and values")
    text = (
        "pack them in a scheme, losslessly with unary and exact (with the native backend, at about"
        " 12 bits a value); mx rounds what the target reads, and needs torch; bf16: not packed"
    )
    flags.add_choice(group, "kv", (BF16, *SCHEMES), text)
    flags.add_count(group, "kv-truncated", "low bits that the draft does not read", 4, low=0)
    text = "what a draft puts in their place"
    flags.add_choice(group, "kv-fill", ("zero", "midpoint"), text, "midpoint")
    flags.add_count(group, "kv-group", "values of an exponent", 32)
    flags.add_count(group, "kv-block", "positions in a block", 32)
    text = "of the values in a block (docs/software/kv.md)"
    flags.add_choice(group, "kv-order", ("channel", "token"), text)
    text = "largest values of each vector that the draft has (order token; default all)"
    flags.add_count(group, "kv-keep", text)
    text = "smallest part of each position that the draft does without (default 0)"
    flags.add_number(group, "kv-prune", text, 0.0, "FRACTION")
    flags.add_switch(group, "kv-whole", "the draft reads all bits of keys and values")


# --- flags without effect -------------------------------------------------------------------------

_NATIVE = "with --backend native, which decodes weights itself"
_TORCH, _GREEDY = "with the torch backend", "without --temperature above 0"
_LOOKUP = "with --draft lookup"
_BATCH = "with --batch above 1, which decodes plainly"
_DRAFT = ("--min-margin", *DRAFT_CACHE_FLAGS)
_NATIVE_FLAGS = ("--threads", "--native-target", "--memory-limit")
_KV = ("truncated", "fill", "group", "block", "order", "keep", "prune", "whole")
_IGNORED: tuple[flags.Ignored, ...] = (
    (("--codec",), lambda args: args.backend == "native", _NATIVE),
    (_NATIVE_FLAGS, lambda args: args.backend == "torch", _TORCH),
    (("--top-k", "--top-p", "--seed"), lambda args: args.temperature == 0, _GREEDY),
    (tuple(f"--kv-{name}" for name in _KV), lambda args: args.kv == BF16, "without --kv"),
    (("--gamma", "--draft", *_DRAFT), lambda args: args.plain, "with --plain"),
    (("--draft", *_DRAFT), lambda args: args.gamma == 0, "with --gamma 0"),
    (("--gamma", "--draft", *_DRAFT), lambda args: args.batch > 1, _BATCH),
    (("--trace",), lambda args: args.batch > 1, _BATCH),
    (("--batch",), lambda args: args.backend == "torch" and args.batch > 1, _TORCH),
    (("--gamma", *_DRAFT), lambda args: args.draft == "none", "with --draft none"),
    ((*_DRAFT, *VIEW_FLAGS), lambda args: args.draft == "lookup", _LOOKUP),
    (LEVEL_FLAGS, lambda args: args.draft in ("model", "none"), "without --draft lookup or hybrid"),
    (("--system",), lambda args: args.raw, "with --raw"),
)


def refuse_ignored(args: argparse.Namespace) -> None:
    """Raise :class:`CassandraError` if a flag is given that would have no effect."""
    if line := flags.ignored_flag(args, _IGNORED):
        raise CassandraError(line)


# --- what the flags describe ----------------------------------------------------------------------


def choose_backend(args: argparse.Namespace) -> str:
    """Put a backend in the place of ``auto``; why this one, if it was to be chosen."""
    from cassandra_spec.golden.model_config import read_config
    from cassandra_spec.model.packing.packer import open_packed

    read_config(args.source)
    open_packed(args.source)
    if args.backend != AUTO:
        return ""
    reason = _against_native(args)
    args.backend = "torch" if reason else "native"
    return reason or "the model, the machine and the flags allow it"


def choose_target(args: argparse.Namespace) -> str:
    """Put a form of the native target in the place of ``auto``; why it, if it was to be chosen."""
    if args.native_target != AUTO:
        return ""
    if args.memory_limit is not None:
        args.native_target = BF16
        return "with --memory-limit the target may be read from the file, as BF16"
    from cassandra_spec.model.backends import VERIFIED_ROWS, target_seconds

    plain = args.plain or args.gamma == 0 or args.draft == "none"
    rows = 1 if plain else VERIFIED_ROWS
    seconds = target_seconds(args.source, args.threads, rows)
    args.native_target = min(seconds, key=lambda form: seconds[form])
    return ", ".join(
        f"a pass over {rows} rows takes {1e3 * each:.1f} ms with {form}"
        for form, each in seconds.items()
    )


def _against_native(args: argparse.Namespace) -> str:
    """Why the native backend cannot be used; nothing if it can."""
    from cassandra_spec.model.backends import native_obstacle
    from cassandra_spec.native.engine_binding import MAX_GAMMA

    if "--codec" in args.given:
        return "--codec needs decoded weights"
    if args.kv == "mx":
        return "--kv mx rounds what the target reads"
    if isinstance(args.gamma, int) and args.gamma > MAX_GAMMA:
        return f"--gamma is above {MAX_GAMMA}"
    return native_obstacle(args.source)


@contextmanager
def open_backend(args: argparse.Namespace) -> Iterator[tuple[CheckedBackend, Settings]]:
    """The model and the settings of a command's flags, which are checked first."""
    from cassandra_spec.model.backends import BACKENDS

    reason = choose_backend(args)
    refuse_ignored(args)
    args.reasons = {f"the {args.backend} backend": reason}
    reason = choose_target(args)
    args.reasons[f"the native target {args.native_target}"] = reason
    settings, grammar = settings_of(args), grammar_of(args)
    with BACKENDS[args.backend](args.source, opening_of(args), settings) as backend:
        yield backend, with_grammar(settings, grammar, backend)
        if args.verify:
            backend.verify()


def identity_of(args: argparse.Namespace) -> list[object]:
    """What replies and their times depend on beside settings and prompts, as JSON."""
    from cassandra_spec.model.packing.packer import open_packed

    table = args.table and args.table.stat()
    found = [open_packed(args.source).digest, args.backend, args.native_target, args.threads]
    if args.kv != BF16:
        found += [args.kv, *(getattr(args, f"kv_{name}") for name in _KV)]
    return [*found, args.context, args.memory_limit, table and [table.st_size, table.st_mtime_ns]]


def settings_of(args: argparse.Namespace) -> Settings:
    """How replies are made, once the backend is chosen."""
    gamma = ADAPTIVE if args.gamma is None else args.gamma
    margin = default_margin(gamma) if args.min_margin is None else args.min_margin
    return Settings(
        gamma=0 if args.plain or args.batch > 1 else gamma,
        draft=args.draft,
        min_margin=margin,
        levels=model_flags.levels_of(args),
        draft_cache=model_flags.draft_cache_of(args),
        max_tokens=args.max_tokens,
        stop_strings=tuple(args.stop),
        sampling=Sampling(temperature=args.temperature, top_k=args.top_k, top_p=args.top_p),
        seed=args.seed,
    )


def opening_of(args: argparse.Namespace) -> Opening:
    """How the chosen backend opens the model."""
    from cassandra_spec.model.backends import Opening

    shared = {"table": args.table, "verify": args.verify, "context": args.context}
    kv = _key_values(args)
    if args.backend == "native":
        from cassandra_spec.native.engine_binding import MAX_ROWS

        if args.batch > MAX_ROWS:
            raise CassandraError(f"--batch must be from 1 to {MAX_ROWS}, not {args.batch}")
        limit = args.memory_limit and args.memory_limit * _MB
        native = {"threads": args.threads, "sequences": args.batch, "memory_limit": limit}
        return Opening(native_target=args.native_target, kv=kv, **native, **shared)
    return Opening(kv=kv, codec=_codec(args), encoder=_encoder(args, kv), **shared)


def _hardware(source: Path) -> Format:
    """What a decoder is built for that reads a packed model, keys and values included."""
    from cassandra_spec.model.packing.packer import open_packed

    names = ("codebook", "beat", "window", "superblock")
    for tensor in open_packed(source).tensors.values():
        return Format(**{name: getattr(tensor.format, name) for name in names})
    return Format()


def _key_values(args: argparse.Namespace) -> KeyValueFormat | None:
    from cassandra_spec.model.speculative import KeyValueFormat

    if args.kv == BF16:
        return None
    return KeyValueFormat(
        format=dataclasses.replace(
            _hardware(args.source),
            scheme=args.kv,
            truncated=args.kv_truncated,
            fill=args.kv_fill,
            group=args.kv_group,
        ),
        block=args.kv_block,
        segment=_SEGMENTS["rtl" if args.codec == "rtl" else "golden"],
        prune=args.kv_prune,
        order=args.kv_order,
        keep=args.kv_keep,
        whole=args.kv_whole,
    )


def _encoder(args: argparse.Namespace, kv: KeyValueFormat | None) -> Encoder | None:
    """The gateware, made for the format of keys and values; None: golden's encoder."""
    if args.codec != "rtl" or kv is None or kv.prune:
        return None
    from cassandra_spec.rtl.encode.types import EncoderConfig
    from cassandra_spec.verif.encoder.bulk import RtlEncoder

    return RtlEncoder(EncoderConfig.of(kv.format, schemes=SCHEMES))


def _codec(args: argparse.Namespace) -> Codec | None:
    """Native code where there is a compiler, golden's, or the gateware made for the format."""
    if args.codec == "golden":
        return None
    if args.codec == AUTO:
        from cassandra_spec.native.codec import fastest_codec

        return fastest_codec()
    from cassandra_spec.rtl.common.command import DecoderConfig
    from cassandra_spec.verif.decoder.bulk import RtlCodec

    config = DecoderConfig.of(_hardware(args.source), schemes=SCHEMES)
    return RtlCodec(config, instances=2)
