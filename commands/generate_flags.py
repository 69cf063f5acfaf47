"""Add the flags of ``casspec generate`` and ``chat``, and build the objects they describe."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from cassandra_spec.commands.grammar_flags import add_grammar, grammar_of, with_grammar
from cassandra_spec.drafting.settings import (
    ADAPTIVE,
    BEST_MARGIN,
    Acceptance,
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
from cassandra_spec.native.forms import TARGETS
from cassandra_spec.toolkit import flags

if TYPE_CHECKING:
    from cassandra_spec.golden import Codec, Encoder
    from cassandra_spec.model.backends import CheckedBackend, Opening
    from cassandra_spec.model.speculative import KeyValueFormat

AUTO, BF16 = "auto", "bf16"
_MB = 10**6

_SEGMENTS = {"golden": 1 << 16, "rtl": 1 << 14}
"""Segment length limit for keys and values, in values; the gateware's encoder is built for it."""


def add_generation(parser: argparse.ArgumentParser) -> None:
    """Add the flags of replies: length, stop strings, drafts, sampling, backend."""
    parser.add_argument("--system", metavar="TEXT", help="system message before each prompt")
    flags.add_count(parser, "max-tokens", "length limit of each reply", 128)
    flags.add_repeated(parser, "stop", "TEXT", "end a reply at TEXT, without printing it")
    text = (
        "check the weights in memory against their checksums after the last reply (the file is"
        " always checked)"
    )
    flags.add_switch(parser, "verify", text)
    add_drafts(parser)
    _add_sampling(parser)
    add_grammar(parser)
    add_backend(parser)


def add_drafts(parser: argparse.ArgumentParser) -> None:
    """Add the flags of drafting: source and length of drafts, cache and levels."""
    parser.add_argument(
        "--gamma",
        type=_gamma,
        metavar="N",
        help="draft length; `adaptive` (the default) adjusts it to acceptance and cost (measured"
        " times with the native backend, bytes with torch)",
    )
    text = (
        "draft source: `model` (the packed draft weights), `lookup` (n-gram copies and table),"
        " `hybrid` (both), `none`"
    )
    flags.add_choice(parser, "draft", get_args(DraftKind), text, "hybrid")
    text = "stop drafting after a token whose top logit exceeds the second by less than X"
    default = f"default {BEST_MARGIN}; 0 with a fixed --gamma"
    flags.add_number(parser, "min-margin", f"{text} ({default})")
    flags.add_switch(parser, "plain", "decode with the target only, as with --gamma 0")
    model_flags.add_draft_cache(parser)
    model_flags.add_levels(parser)


def add_backend(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the backend and of the KV cache."""
    group = parser.add_argument_group("backend")
    text = (
        "`native`: C++ engine (needs a C++ compiler); `torch`: PyTorch, slower;"
        " `auto`: native if it supports the model and the flags"
    )
    flags.add_choice(group, "backend", (AUTO, "torch", "native"), text)
    text = (
        "codec of the torch backend's weights and KV cache: `auto` (native if a compiler is"
        " installed), `golden` (the reference), `rtl` (the gateware in Verilator); --kv-prune"
        " always uses the reference"
    )
    flags.add_choice(group, "codec", (AUTO, "golden", "rtl"), text)
    text = (
        "target weights in memory (native backend): BF16; 12 bits, also lossless; `planes`: what"
        " the draft lacks, in addition to it; `auto`: the fastest of them"
    )
    flags.add_choice(group, "native-target", (*TARGETS, AUTO), text)
    flags.add_count(group, "threads", "threads of the native backend (default: all processors)")
    text = (
        "length limit of prompt and reply together; selects rotary angles (docs/software/native.md)"
    )
    flags.add_count(group, "context", text)
    text = (
        "memory limit in MB (native backend); a larger target is streamed from disk (--context then"
        " defaults to 2,048)"
    )
    flags.add_count(group, "memory-limit", text)
    _add_kv(parser)


def set_greedy(parser: argparse.ArgumentParser) -> None:
    """Set the attributes of the sampling flags to greedy decoding, without adding the flags."""
    parser.set_defaults(stop=[], temperature=0.0, top_k=None, top_p=None, seed=None)
    parser.set_defaults(acceptance="noise")
    parser.set_defaults(raw=False, verify=False, batch=1)


def _gamma(text: str) -> Gamma:
    return ADAPTIVE if text == ADAPTIVE else int(text)


_gamma.__name__ = "gamma"  # the name in argparse's errors


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")
    flags.add_number(group, "temperature", "sampling temperature; 0: greedy (default 0)", 0.0, "T")
    flags.add_count(group, "top-k", "sample from the N most likely tokens")
    flags.add_number(
        group, "top-p", "sample from the most likely tokens with total probability P", metavar="P"
    )
    flags.add_seed(group, "seed of the sampler, for repeatable replies")
    text = (
        "acceptance of drafted tokens: `noise` that belongs to each place (replies do not depend on"
        " drafts), or `rejection` (the paper's Eq. 1)"
    )
    flags.add_choice(group, "acceptance", get_args(Acceptance), text)


def _add_kv(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("KV cache (docs/software/kv.md)")
    text = (
        "format of the KV cache: `unary` and `exact` are lossless (about 12 bits a value with the"
        " native backend), `mx` rounds the target's values and needs torch, `bf16` is unpacked"
    )
    flags.add_choice(group, "kv", (BF16, *SCHEMES), text)
    flags.add_count(
        group, "kv-truncated", "low bits of each value that the draft does not read", 4, low=0
    )
    text = "value of the low bits that the draft does not read"
    flags.add_choice(group, "kv-fill", ("zero", "midpoint"), text, "midpoint")
    flags.add_count(group, "kv-group", "values that share one exponent", 32)
    flags.add_count(group, "kv-block", "positions per block", 32)
    text = "order of the values in a block"
    flags.add_choice(group, "kv-order", ("channel", "token"), text)
    text = "read only the N largest values of each vector in drafts (order token; default: all)"
    flags.add_count(group, "kv-keep", text)
    text = "fraction of each position's values, the smallest, that the draft reads as 0 (default 0)"
    flags.add_number(group, "kv-prune", text, 0.0, "FRACTION")
    flags.add_switch(group, "kv-whole", "let the draft read all bits of keys and values")


# --- flags without effect -------------------------------------------------------------------------

_NATIVE = "with --backend native, which decodes weights itself"
_TORCH, _GREEDY = "with the torch backend", "without --temperature above 0"
_LOOKUP = "with --draft lookup"
_DRAFT = ("--min-margin", *DRAFT_CACHE_FLAGS)
_NATIVE_FLAGS = ("--threads", "--native-target", "--memory-limit")
_KV = ("truncated", "fill", "group", "block", "order", "keep", "prune", "whole")
_IGNORED: tuple[flags.Ignored, ...] = (
    (("--codec",), lambda args: args.backend == "native", _NATIVE),
    (_NATIVE_FLAGS, lambda args: args.backend == "torch", _TORCH),
    (("--top-k", "--top-p", "--seed", "--acceptance"), lambda args: args.temperature == 0, _GREEDY),
    (tuple(f"--kv-{name}" for name in _KV), lambda args: args.kv == BF16, "without --kv"),
    (("--gamma", "--draft", *_DRAFT), lambda args: args.plain, "with --plain"),
    (("--draft", *_DRAFT), lambda args: args.gamma == 0, "with --gamma 0"),
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


# --- objects that the flags describe --------------------------------------------------------------


def choose_backend(args: argparse.Namespace) -> str:
    """Replace ``auto`` by a backend; return the reason, or nothing if the flag names one."""
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
    """Replace ``auto`` by a native target; return the reason, or nothing if the flag names one."""
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
    """Return why the native backend cannot be used, or an empty string."""
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
    """Check a command's flags, then open the model; yield the backend and the settings."""
    from cassandra_spec.model.backends import BACKENDS

    reason = choose_backend(args)
    refuse_ignored(args)
    slow = bool(reason) and args.backend == "torch"
    args.reasons = {} if slow else {"the native backend": reason}
    args.reasons[f"the native target {args.native_target}"] = choose_target(args)
    settings, grammar = settings_of(args), grammar_of(args)
    with BACKENDS[args.backend](args.source, opening_of(args), settings) as backend:
        if slow and not getattr(args, "quiet", False):
            line = f"the torch backend was chosen, which is several times slower: {reason}"
            print(f"casspec: {line}", file=sys.stderr, flush=True)
        yield backend, with_grammar(settings, grammar, backend)
        if args.verify:
            backend.verify()


def identity_of(args: argparse.Namespace) -> list[object]:
    """Return, as JSON, all besides settings and prompts that replies and their times depend on."""
    from cassandra_spec.model.packing.packer import open_packed

    table = args.table and args.table.stat()
    found = [open_packed(args.source).digest, args.backend, args.native_target, args.threads]
    if args.kv != BF16:
        found += [args.kv, *(getattr(args, f"kv_{name}") for name in _KV)]
    return [*found, args.context, args.memory_limit, table and [table.st_size, table.st_mtime_ns]]


def settings_of(args: argparse.Namespace) -> Settings:
    """Return the settings of replies; the backend must have been chosen."""
    gamma = ADAPTIVE if args.gamma is None else args.gamma
    margin = default_margin(gamma) if args.min_margin is None else args.min_margin
    return Settings(
        gamma=0 if args.plain else gamma,
        draft=args.draft,
        min_margin=margin,
        levels=model_flags.levels_of(args),
        draft_cache=model_flags.draft_cache_of(args),
        max_tokens=args.max_tokens or 1,  # without a limit (serve) each request has its own
        stop_strings=tuple(args.stop),
        sampling=Sampling(temperature=args.temperature, top_k=args.top_k, top_p=args.top_p),
        acceptance=args.acceptance,
        seed=args.seed,
    )


def opening_of(args: argparse.Namespace) -> Opening:
    """Return the options with which the chosen backend opens the model."""
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
    """Return the format fields of a decoder for a packed model and its KV cache."""
    from cassandra_spec.model.packing.packer import open_packed

    names = ("codebook", "beat", "window", "superblock")
    for tensor in open_packed(source).tensors.values():
        return Format(**{name: getattr(tensor.format, name) for name in names})
    return Format()


def _key_values(args: argparse.Namespace) -> KeyValueFormat | None:
    if args.kv == BF16:
        return None
    from cassandra_spec.model.speculative import KeyValueFormat  # takes seconds: torch

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
    """Return the gateware's encoder for the format of the KV cache; None: golden's encoder."""
    if args.codec != "rtl" or kv is None or kv.prune:
        return None
    from cassandra_spec.rtl.encode.types import EncoderConfig
    from cassandra_spec.verif.encoder.bulk import RtlEncoder

    return RtlEncoder(EncoderConfig.of(kv.format, schemes=SCHEMES))


def _codec(args: argparse.Namespace) -> Codec | None:
    """Return the codec of ``--codec``; None: golden's."""
    if args.codec == "golden":
        return None
    if args.codec == AUTO:
        from cassandra_spec.native.codec import fastest_codec

        return fastest_codec()
    from cassandra_spec.rtl.common.command import DecoderConfig
    from cassandra_spec.verif.decoder.bulk import RtlCodec

    config = DecoderConfig.of(_hardware(args.source), schemes=SCHEMES)
    return RtlCodec(config, instances=2)
