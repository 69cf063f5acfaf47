"""Add the flags of ``casspec generate`` and ``chat``, and build the objects they describe."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast, get_args

from cassandra_spec.api.opening import AUTO, KeyValues, Loading, choose_backend
from cassandra_spec.api.replies import Model, ReplyOptions, reply_settings
from cassandra_spec.drafting.settings import (
    ADAPTIVE,
    BEST_MARGIN,
    Acceptance,
    DraftKind,
    Gamma,
    Settings,
    default_margin,
)
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.model import flags as model_flags
from cassandra_spec.model.flags import DRAFT_CACHE_FLAGS, LEVEL_FLAGS, VIEW_FLAGS
from cassandra_spec.native.forms import TARGETS
from cassandra_spec.toolkit import flags

BF16 = "bf16"
_GRAMMARS = ("json_schema", "grammar", "regex")


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
    add_sampling(parser)
    _add_grammar(parser)
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
        "memory limit in MB (native backend); a larger target is in planes or on disk (--context"
        " then defaults to 2,048)"
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


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Add the flags of sampling."""
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


def _add_grammar(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("structured output (docs/software/serving.md)")
    flags.add_file(group, "json-schema", "restrict replies to JSON that matches the schema in FILE")
    flags.add_file(group, "grammar", "restrict replies to the grammar in FILE (.lark or .gbnf)")
    text = "restrict replies to matches of this regular expression"
    group.add_argument("--regex", metavar="TEXT", help=text)


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
    flags.add_count(group, "kv-group", "values that share one exponent", KeyValues.group)
    flags.add_count(group, "kv-block", "positions per block", KeyValues.block)
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


def loading_of(args: argparse.Namespace) -> Loading:
    """Return how the flags say that the model is loaded."""
    names = ("backend", "codec", "native_target", "threads", "context", "memory_limit", "batch")
    kv = None
    if args.kv != BF16:
        kv = KeyValues(scheme=args.kv, **{name: getattr(args, f"kv_{name}") for name in _KV})
    given = {name: getattr(args, name) for name in names}
    return Loading(table=args.table, kv=kv, verify=args.verify, **given)


def drafting_of(args: argparse.Namespace) -> Settings:
    """Return the settings of drafts."""
    gamma = ADAPTIVE if args.gamma is None else args.gamma
    margin = default_margin(gamma) if args.min_margin is None else args.min_margin
    return Settings(
        gamma=0 if args.plain else gamma,
        draft=args.draft,
        min_margin=margin,
        levels=model_flags.levels_of(args),
        draft_cache=model_flags.draft_cache_of(args),
    )


def reply_options(args: argparse.Namespace) -> ReplyOptions:
    """Return the options of replies that the flags give."""
    names = ("max_tokens", "stop", "temperature", "top_k", "top_p", "seed", "acceptance", "raw")
    given = {name: getattr(args, name, None) for name in (*names, *_GRAMMARS, "system")}
    options = {name: value for name, value in given.items() if value is not None}
    return cast("ReplyOptions", options)


@contextmanager
def open_model(args: argparse.Namespace) -> Iterator[Model]:
    """Check a command's flags, then open the model; replace ``auto`` among the flags."""
    settings, loading = drafting_of(args), loading_of(args)
    args.backend, reason = choose_backend(args.source, loading, settings.gamma)
    refuse_ignored(args)
    reply_settings(settings, **reply_options(args))  # refuses them before the model is read
    slow = bool(reason) and args.backend == "torch"
    with Model(args.source, dataclasses.replace(loading, backend=args.backend), settings) as model:
        args.native_target = model.loading.native_target
        args.reasons = {} if slow else {"the native backend": reason}
        args.reasons[f"the native target {args.native_target}"] = model.target_reason
        if slow and not getattr(args, "quiet", False):
            line = f"the torch backend was chosen, which is several times slower: {reason}"
            print(f"casspec: {line}", file=sys.stderr, flush=True)
        yield model
        if args.verify:
            model.verify()


def identity_of(model: Model) -> list[object]:
    """Return, as JSON, all besides settings and prompts that replies and their times depend on."""
    from cassandra_spec.model.packing.packer import open_packed

    options = dataclasses.asdict(model.loading)
    table = options.pop("table")
    stamp = table and [(found := table.stat()).st_size, found.st_mtime_ns]
    return [open_packed(model.packed).digest, options, stamp]
