"""The backends of ``casspec generate``: how each is opened, and what it refuses."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.format import SCHEMES, Format

if TYPE_CHECKING:
    from cassandra_spec.drafting import Backend, Counters, Settings
    from cassandra_spec.golden import Codec, Encoder
    from cassandra_spec.model.speculative import KeyValueFormat
    from cassandra_spec.native.engine import Engine

    class CheckedBackend(Backend, Protocol):
        """A backend that can check its weights."""

        def verify(self) -> None:
            """Raise :class:`CassandraError` if the weights in memory have changed."""


BF16 = "bf16"

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
        verify=args.verify,
    )


@contextmanager
def _open_native(args: argparse.Namespace, settings: Settings) -> Iterator[CheckedBackend]:
    """Native code on packed weights."""
    _refuse_flags_of_torch(args)
    from cassandra_spec.drafting import stop_tokens
    from cassandra_spec.model.packing.packer import open_packed
    from cassandra_spec.model.pretrained import load_tokenizer
    from cassandra_spec.native.engine import Engine

    open_packed(args.source)
    draft = settings.uses_draft_view
    options = {"target": args.native_target, "threads": args.threads, "draft": draft}
    tokenizer = load_tokenizer(args.source)
    stops = stop_tokens(tokenizer, args.source)
    with Engine.from_packed(args.source, **options, verify=args.verify) as engine:
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


def _refuse_flags_of_torch(args: argparse.Namespace) -> None:
    given = {
        "--temperature": args.temperature != 0,
        "--top-k": args.top_k is not None,
        "--top-p": args.top_p is not None,
        "--kv": args.kv != BF16,
        "--codec": args.codec != "golden",
    }
    for flag in (flag for flag, stated in given.items() if stated):
        raise CassandraError(
            f"{flag} must not be given with --backend native, which decodes greedily from "
            "BF16 keys and values: use --backend torch"
        )


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
