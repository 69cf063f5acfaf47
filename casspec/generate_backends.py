"""The backends of ``casspec generate`` and ``chat``: which one it is, and how each is opened."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cassandra_spec.casspec.levels import LEVEL_FLAGS, VIEW_FLAGS
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.format import SCHEMES, Format

if TYPE_CHECKING:
    from cassandra_spec.drafting import Backend, Counters, NgramTable, Settings
    from cassandra_spec.golden import Codec, Encoder
    from cassandra_spec.model.speculative import KeyValueFormat
    from cassandra_spec.native.engine import Engine

    class CheckedBackend(Backend, Protocol):
        """A backend that can check its weights."""

        def verify(self) -> None:
            """Raise :class:`CassandraError` if the weights in memory have changed."""


BF16 = "bf16"
AUTO = "auto"

_SEGMENTS = {"golden": 1 << 16, "rtl": 1 << 14}
"""Most values in a segment of keys and values; the gateware's encoder is built for that many."""


@contextmanager
def _open_torch(args: argparse.Namespace, settings: Settings) -> Iterator[CheckedBackend]:
    """Torch's kernels on decoded weights."""
    from cassandra_spec.model.speculative import CassandraForCausalLM

    kv = _key_values(args)
    yield CassandraForCausalLM.from_pretrained(
        args.source,
        codec=_codec(args.codec, args.source),
        encoder=_encoder(args, kv),
        kv=kv,
        table=_table(args),
        verify=args.verify,
    )


@contextmanager
def _open_native(args: argparse.Namespace, settings: Settings) -> Iterator[CheckedBackend]:
    """Native code on packed weights."""
    from cassandra_spec.drafting import stop_tokens
    from cassandra_spec.model.packing.packer import open_packed
    from cassandra_spec.model.pretrained import load_tokenizer
    from cassandra_spec.native.engine import Engine

    open_packed(args.source)
    draft = settings.uses_draft_view
    options = {"target": args.native_target, "threads": args.threads, "draft": draft}
    with Engine.from_packed(args.source, **options, verify=args.verify) as engine:
        engine.use_table(_table(args))
        tokenizer = load_tokenizer(args.source)
        stops = stop_tokens(tokenizer, args.source)
        yield _Native(engine, tokenizer, stops)


class _Native:
    """An engine with its tokenizer."""

    def __init__(self, engine: Engine, tokenizer: Any, stops: frozenset[int]) -> None:
        self.tokenizer = tokenizer
        self._engine = engine
        self.make_report = engine.make_report
        self.verify = engine.verify
        self._stops = stops

    def rounds(
        self, prompt: Sequence[int], settings: Settings, counters: Counters, **ends: Any
    ) -> Iterator[list[int]]:
        """Rounds of the engine; plain sampling is done beside it."""
        from cassandra_spec.native.sampling import sampled_rounds

        if settings.sampling.temperature and settings.gamma == 0:
            return sampled_rounds(self._engine, prompt, settings, counters, **ends)
        return self._engine.rounds(prompt, settings, counters, **ends)

    def stop_tokens(self) -> frozenset[int]:
        """Tokens that end a reply, by the tokenizer and by the model's files."""
        return self._stops


BACKENDS: dict[
    str, Callable[[argparse.Namespace, Settings], AbstractContextManager[CheckedBackend]]
] = {
    "torch": _open_torch,
    "native": _open_native,
}
"""Each opens the model of a command's arguments."""


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
    return reason or "replies are greedy, and the model and the machine allow it"


def _against_native(args: argparse.Namespace) -> str:
    """Why the native backend cannot be used; nothing if it can."""
    from cassandra_spec.golden.model_config import read_config
    from cassandra_spec.native import NativeError
    from cassandra_spec.native.engine_binding import MOST, engine_library
    from cassandra_spec.native.llama import read_llama_config

    for flag, why in _TORCH_ALONE.items():
        if flag in args.given:
            return f"{flag} {why}"
    if isinstance(args.gamma, int) and args.gamma > MOST:
        return f"--gamma is above {MOST}"
    config = read_config(args.source)
    try:
        read_llama_config(config)
        engine_library()
    except NativeError as error:
        return str(error)
    except CassandraError as error:
        return str(error)
    return ""


# --- flags without effect -------------------------------------------------------------------------

_TORCH_ALONE = {
    "--temperature": "needs sampling",
    "--kv": "needs packed keys and values",
    "--codec": "needs decoded weights",
}
_NATIVE = "with --backend native, which decodes greedily from BF16 keys and values"
_LOOKUP = "with --draft lookup"
_KV = ("truncated", "fill", "group", "block", "order", "keep", "prune", "whole")
_IGNORED: tuple[tuple[tuple[str, ...], Callable[[argparse.Namespace], bool], str], ...] = (
    (("--temperature",), lambda args: args.backend == "native" and args.temperature != 0, _NATIVE),
    (("--kv",), lambda args: args.backend == "native" and args.kv != BF16, _NATIVE),
    (("--top-k", "--top-p", "--codec"), lambda args: args.backend == "native", _NATIVE),
    (
        ("--threads", "--native-target"),
        lambda args: args.backend == "torch",
        "with the torch backend",
    ),
    (
        ("--top-k", "--top-p", "--seed"),
        lambda args: args.temperature == 0,
        "without --temperature above 0",
    ),
    (tuple(f"--kv-{name}" for name in _KV), lambda args: args.kv == BF16, "without --kv"),
    (("--gamma", "--draft", "--min-margin"), lambda args: args.plain, "with --plain"),
    (("--draft", "--min-margin"), lambda args: args.gamma == 0, "with --gamma 0"),
    (("--gamma", "--min-margin"), lambda args: args.draft == "none", "with --draft none"),
    (("--min-margin", *VIEW_FLAGS), lambda args: args.draft == "lookup", _LOOKUP),
    (LEVEL_FLAGS, lambda args: args.draft in ("model", "none"), "without --draft lookup or hybrid"),
    (("--system",), lambda args: args.raw, "with --raw"),
)
"""Flags, when they would be ignored, and how that is said."""


def refuse_ignored(args: argparse.Namespace) -> None:
    """Refuse flags that would have no effect, by name."""
    for names, ignored, how in _IGNORED:
        for name in names:
            if name in args.given and ignored(args):
                raise CassandraError(f"{name} must not be given {how}")


def _table(args: argparse.Namespace) -> NgramTable | None:
    from cassandra_spec.model.baking import open_table

    return open_table(args.table, args.source) if args.table else None


def _format_of(source: Path) -> Format:
    """The format of the first packed tensor: one decoder serves all, keys and values included."""
    from cassandra_spec.model.packing.packer import open_packed

    formats = [tensor.format for tensor in open_packed(source).tensors.values()]
    return formats[0] if formats else Format()


def _key_values(args: argparse.Namespace) -> KeyValueFormat | None:
    from cassandra_spec.model.speculative import KeyValueFormat

    if args.kv == BF16:
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


def _codec(name: str, source: Path) -> Codec | None:
    """Native code where there is a compiler, golden's, or the gateware made for the format."""
    if name == "golden":
        return None
    if name == AUTO:
        from cassandra_spec.native.codec import fastest_codec

        return fastest_codec()
    from cassandra_spec.rtl.common.command import DecoderConfig
    from cassandra_spec.verif.decoder.bulk import RtlCodec

    format = _format_of(source)
    config = DecoderConfig(
        lanes=format.beat,
        codebook=format.codebook,
        window=format.window,
        superblock=format.superblock,
    )
    return RtlCodec(config, instances=2)
