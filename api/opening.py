"""Choose how a packed model is opened: backend, codec, form of the target, keys and values."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from cassandra_spec.drafting.settings import ADAPTIVE, Gamma
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.format import SCHEMES, Fill, Format, Scheme
from cassandra_spec.native.forms import TARGETS, Target

if TYPE_CHECKING:
    from cassandra_spec.golden import Codec, Encoder
    from cassandra_spec.model.backends import Opening
    from cassandra_spec.model.speculative import KeyValueFormat
    from cassandra_spec.native.key_values import SealedFormat

AUTO: Literal["auto"] = "auto"

BackendName = Literal["auto", "torch", "native"]
"""PyTorch on decoded weights; the C++ engine; the engine if it supports the model and options."""

CodecName = Literal["auto", "golden", "rtl"]
"""Codec of torch's weights and KV cache: the fastest, the reference, the gateware in Verilator."""

TargetName = Target | Literal["auto"]

_MB = 10**6

_SEGMENTS = {"golden": 1 << 16, "rtl": 1 << 14}
"""Segment length limit for keys and values, in values; the gateware's encoder is built for it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeyValues:
    """A packed format of the KV cache (docs/software/kv.md)."""

    scheme: Scheme  # unary and exact are lossless; mx rounds the target's values and needs torch
    truncated: int = 4  # low bits of each value that the draft does not read
    fill: Fill = "midpoint"  # value of these bits in the draft
    group: int = 32  # values that share one exponent
    block: int = 32  # positions per block
    order: Literal["channel", "token"] = "channel"  # of the values in a block
    keep: int | None = None  # values of each vector that drafts read (order token)
    prune: float = 0.0  # fraction of each position's values that the draft reads as 0
    whole: bool = False  # let the draft read all bits

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            known = ", ".join(SCHEMES)
            raise CassandraError(f"kv must be None or one of {known}, not {self.scheme!r}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loading:
    """Options of :func:`cassandra_spec.open` that say how a model is loaded."""

    backend: BackendName = "auto"
    codec: CodecName = "auto"
    native_target: TargetName = "bf16"  # form of the target's weights in the engine's memory
    threads: int | None = None  # of the engine; None: all processors
    context: int | None = None  # limit of prompt and reply together; None: the model's
    memory_limit: int | None = None  # MB of the engine; a larger target is streamed from disk
    batch: int = 1  # prompts that are decoded at once (native backend)
    table: Path | None = None  # n-gram table from `casspec bake-table`
    kv: KeyValues | None = None  # None: BF16
    verify: bool = False  # keep checksums of the weights in memory

    def __post_init__(self) -> None:
        names = {"backend": BackendName, "codec": CodecName}
        choices = {name: get_args(kind) for name, kind in names.items()}
        for name, known in {**choices, "native_target": (*TARGETS, AUTO)}.items():
            if getattr(self, name) not in known:
                listed = ", ".join(known)
                raise CassandraError(f"{name} must be one of {listed}, not {getattr(self, name)!r}")
        if self.codec == "rtl" and importlib.util.find_spec("cassandra_spec.verif") is None:
            raise CassandraError(
                "codec must be auto or golden where there is no checkout, which has the gateware's"
                " simulation, not 'rtl'"
            )


def choose_backend(packed: Path, loading: Loading, gamma: Gamma) -> tuple[BackendName, str]:
    """Return the name of a backend for a packed model, and why; no reason if it was named.

    Raises :class:`CassandraError` if ``packed`` is no packed model.
    """
    from cassandra_spec.golden.model_config import read_config
    from cassandra_spec.model.packing.packer import open_packed

    read_config(packed)
    open_packed(packed)
    if loading.backend != AUTO:
        return loading.backend, ""
    if obstacle := _against_native(packed, loading, gamma):
        return "torch", obstacle
    return "native", "the model, the machine and the options allow it"


def _against_native(packed: Path, loading: Loading, gamma: Gamma) -> str:
    """Return why the native backend cannot be used, or an empty string."""
    from cassandra_spec.model.backends import native_obstacle
    from cassandra_spec.native.limits import MAX_GAMMA

    if loading.codec != AUTO:
        return f"the codec {loading.codec} needs decoded weights"
    if loading.kv and loading.kv.scheme == "mx":
        return "keys and values in mx round what the target reads"
    if gamma != ADAPTIVE and gamma > MAX_GAMMA:
        return f"gamma is above {MAX_GAMMA}"
    return native_obstacle(packed)


def choose_target(packed: Path, loading: Loading, *, drafts: bool) -> tuple[Target, str]:
    """Return the form of the engine's target, and why; no reason if it was named.

    ``drafts`` says whether replies draft: then passes of several rows are compared.
    """
    if loading.native_target != AUTO:
        return loading.native_target, ""
    if loading.memory_limit is not None:
        return "bf16", "with a memory limit the target may be read from the file, as BF16"
    from cassandra_spec.model.backends import VERIFIED_ROWS, target_seconds

    rows = VERIFIED_ROWS if drafts else 1
    seconds = target_seconds(packed, loading.threads, rows)
    times = (f"{1e3 * each:.1f} ms with {form}" for form, each in seconds.items())
    reason = f"a pass over {rows} rows takes {', '.join(times)}"
    return min(seconds, key=lambda form: seconds[form]), reason


def opening_of(packed: Path, loading: Loading) -> Opening:
    """Return what the backend of ``loading``, chosen by now, opens the model with."""
    from cassandra_spec.model.backends import Opening

    sealed = _sealed_format(packed, loading.kv) if loading.kv else None
    shared: dict[str, Any] = {
        "table": loading.table,
        "verify": loading.verify,
        "context": loading.context,
    }
    if loading.backend == "torch":
        kv = sealed and _torch_format(sealed, loading.codec)
        return Opening(
            kv=kv, codec=_codec(packed, loading), encoder=_encoder(loading, kv), **shared
        )
    from cassandra_spec.native.limits import MAX_ROWS

    if not 1 <= loading.batch <= MAX_ROWS:
        raise CassandraError(f"batch must be from 1 to {MAX_ROWS}, not {loading.batch}")
    limit = loading.memory_limit and loading.memory_limit * _MB
    native: dict[str, Any] = {"threads": loading.threads, "memory_limit": limit}
    target = cast("Target", loading.native_target)
    return Opening(native_target=target, sequences=loading.batch, kv=sealed, **native, **shared)


def _hardware(packed: Path) -> dict[str, Any]:
    """Return the format fields of a decoder for a packed model and its KV cache."""
    from cassandra_spec.model.packing.packer import open_packed

    names = ("codebook", "beat", "window", "superblock")
    tensors = open_packed(packed).tensors.values()
    format = next((tensor.format for tensor in tensors), Format())
    return {name: getattr(format, name) for name in names}


def _sealed_format(packed: Path, kv: KeyValues) -> SealedFormat:
    from cassandra_spec.native.key_values import SealedFormat

    format = Format(
        **_hardware(packed),
        scheme=kv.scheme,
        truncated=kv.truncated,
        fill=kv.fill,
        group=kv.group,
    )
    names = ("block", "prune", "order", "keep", "whole")
    return SealedFormat(format=format, **{name: getattr(kv, name) for name in names})


def _torch_format(sealed: SealedFormat, codec: CodecName) -> KeyValueFormat:
    from cassandra_spec.model.speculative import KeyValueFormat  # takes seconds: torch

    fields = {field.name: getattr(sealed, field.name) for field in dataclasses.fields(sealed)}
    return KeyValueFormat(segment=_SEGMENTS["rtl" if codec == "rtl" else "golden"], **fields)


def _encoder(loading: Loading, kv: SealedFormat | None) -> Encoder | None:
    """Return the gateware's encoder for the format of the KV cache; None: golden's encoder."""
    if loading.codec != "rtl" or kv is None or kv.prune:
        return None
    from cassandra_spec.rtl.encode.types import EncoderConfig
    from cassandra_spec.verif.encoder.bulk import RtlEncoder

    return RtlEncoder(EncoderConfig.of(kv.format, schemes=SCHEMES))


def _codec(packed: Path, loading: Loading) -> Codec | None:
    """Return the codec of torch's weights; None: golden's."""
    if loading.codec == "golden":
        return None
    if loading.codec == AUTO:
        from cassandra_spec.native.codec import fastest_codec

        return fastest_codec()
    from cassandra_spec.rtl.common.command import DecoderConfig
    from cassandra_spec.verif.decoder.bulk import RtlCodec

    config = DecoderConfig.of(Format(**_hardware(packed)), schemes=SCHEMES)
    return RtlCodec(config, instances=2)
