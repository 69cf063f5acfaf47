"""Measure the norms of each linear layer's inputs on a text, as Wanda does (paper, IV.A).

For a matrix with inputs X [tokens, inputs] the norm of input channel j is ||X_j||_2 over all tokens
of the calibration text. Wanda prunes by |W_ij| ||X_j||, and the error of a draft is weighted by
||X_j||^2 (packing.md). The norms are gathered with the model's own BF16 weights, in one pass.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save
from tqdm import tqdm

from cassandra_spec.golden.errors import CassandraError, FileError
from cassandra_spec.golden.file import SafetensorsFile
from cassandra_spec.golden.model_types import EMBEDDING
from cassandra_spec.model.output import write_file
from cassandra_spec.model.pretrained import load_tokenizer
from cassandra_spec.model.weights.sources import Source, fingerprint, packed_tensors

DEFAULT = "calibration.txt"
"""The bundled text (for its source see model/data/README.md)."""

HELD_OUT = "heldout.txt"
"""The bundled text for evaluation."""

Told = Callable[[float], object]
"""Called with the fraction of work done, 0 to 1."""

_KEY = "cassandra_norms"
_VERSION = 1
_BATCH = 2048  # tokens in a pass, at least one sample


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """Text and samples over which norms are gathered."""

    text: str | Path | None = None  # a file; the bundled text by default
    samples: int = 128  # pieces of the text, spread evenly over it
    length: int = 256  # tokens of each sample

    def __post_init__(self) -> None:
        for field in ("samples", "length"):
            value = getattr(self, field)
            if value < 1:
                raise CassandraError(f"{field} must be at least 1, not {value}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Norms:
    """Norms of the input channels of every packed matrix, float32 [inputs], by tensor name."""

    values: Mapping[str, NDArray[np.float32]]
    tokens: int  # tokens of the calibration text
    origin: Mapping[str, str | int]  # model, text, samples and length; for information

    def digest(self) -> str:
        """Return a hash of names and values."""
        digest = hashlib.sha256()
        for name, values in sorted(self.values.items()):
            digest.update(name.encode() + b"\0" + values.astype("<f4").tobytes())
        return digest.hexdigest()

    def of(self, name: str, inputs: int) -> NDArray[np.float32]:
        """Return the norms of one tensor with ``inputs`` columns."""
        if name not in self.values:
            raise CassandraError(f"calibration must have norms of {name}, and has none")
        norms = self.values[name]
        if norms.shape != (inputs,):
            raise CassandraError(
                f"norms of {name} must be {inputs}, not {norms.size} (another model's?)"
            )
        return norms

    def save(self, path: Path) -> None:
        """Write a safetensors file: F32 [inputs] for each tensor. Whole or not at all."""
        about = {"version": _VERSION, "tokens": self.tokens, "origin": dict(self.origin)}
        write_file(path, save(dict(self.values), {_KEY: json.dumps(about)}))

    @classmethod
    def load(cls, path: Path) -> Norms:
        """Read what :meth:`save` wrote. Raises :class:`FileError`."""
        file = SafetensorsFile(path)
        about = _about(file)
        values = {name: _read_norms(file, name) for name in file.tensors}
        return cls(values=values, tokens=about["tokens"], origin=about["origin"])


def _about(file: SafetensorsFile) -> dict[str, Any]:
    try:
        about = json.loads(file.metadata.get(_KEY, "null"))
    except (ValueError, RecursionError):
        about = None
    if not isinstance(about, dict):
        raise FileError(f"{file.path} must be a file of norms: its metadata has no '{_KEY}'")
    if about.get("version") != _VERSION:
        raise FileError(f"{file.path}: version must be {_VERSION}, not {about.get('version')!r}")
    if not isinstance(about.get("tokens"), int) or not isinstance(about.get("origin"), dict):
        raise FileError(f"{file.path}: tokens must be a number and origin an object")
    return about


def _read_norms(file: SafetensorsFile, name: str) -> NDArray[np.float32]:
    raw = file.tensors[name]
    if raw.dtype != "F32" or len(raw.shape) != 1:
        raise FileError(
            f"{file.path}: {name} must be F32 [inputs], not {raw.dtype} {list(raw.shape)}"
        )
    values = file.read(name).view("<f4").astype(np.float32)
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise FileError(f"{file.path}: {name} must be finite and not negative")
    return values


def read_text(path: str | Path | None, default: str = DEFAULT) -> str:
    """Read the text of a file, or a bundled one; it must be UTF-8 and not empty."""
    if path is None:
        bundled = resources.files("cassandra_spec.model") / "data" / default
        return bundled.read_text(encoding="utf-8")
    file = Path(path)
    if not file.is_file():
        raise FileError(f"{file} must be a text file, and is missing")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{file} must be text in UTF-8 ({error.reason})") from error
    if not text.strip():
        raise FileError(f"{file} must have some text, and has none")
    return text


def calibrate(
    source: Source,
    settings: Calibration | None = None,
    *,
    progress: bool = False,
    told: Told = lambda share: None,
) -> Norms:
    """Run the model over the text and gather the norms of every matrix that can be packed.

    One layer, the embedding and what goes between layers are in memory while it runs. ``told`` is
    called with the share that is done: 0, then each quarter. Raises :class:`CassandraError`, also
    if there is not enough memory.
    """
    settings = Calibration() if settings is None else settings
    text = read_text(settings.text)
    with tempfile.TemporaryDirectory() as folder:
        source.save_companions(Path(folder))
        samples = spread(load_tokenizer(folder), text, settings)
        told(0.0)
        squares = _gather(source, Path(folder), samples, progress, told)
    values = {name: np.sqrt(total).astype(np.float32) for name, total in squares.items()}
    for name, norms in values.items():
        if not np.isfinite(norms).all():
            raise CassandraError(f"calibration must give finite norms, and {name} has others")
    origin: dict[str, str | int] = {
        "model": Path(source.label).name,
        "text": DEFAULT if settings.text is None else Path(settings.text).name,
        "samples": settings.samples,
        "length": settings.length,
    }
    return Norms(values=values, tokens=int(samples.size), origin=origin)


def spread(tokenizer: Any, text: str, settings: Calibration) -> NDArray[np.int64]:
    """Return the tokens of the samples, [samples, length]; they overlap if the text is short."""
    tokens = np.array(tokenizer(text).input_ids, np.int64)
    room = tokens.size - settings.length
    if room < 0:
        raise CassandraError(
            f"calibration text must have at least length = {settings.length} tokens, "
            f"not {tokens.size}"
        )
    starts = np.arange(settings.samples) * room // max(settings.samples - 1, 1)
    return tokens[starts[:, None] + np.arange(settings.length)]


def _gather(
    source: Source, folder: Path, samples: NDArray[np.int64], progress: bool, told: Told
) -> dict[str, NDArray[np.float64]]:
    """Gather the sums of squares of the input channels, by tensor name."""
    import torch

    from cassandra_spec.model.packing.layers import stream_layers
    from cassandra_spec.model.reply import empty_model
    from cassandra_spec.native.memory import require_memory

    require_memory(_needed_bytes(source, samples.size), source.label)
    network = empty_model(folder, source)
    kinds = {tensor.name: tensor.kind for tensor in packed_tensors(source)}
    head = next(name for name, kind in kinds.items() if kind == "head")
    step = max(_BATCH // samples.shape[1], 1)
    total = len(network.model.layers) * -(-len(samples) // step)
    bar = tqdm(desc="calibrating", total=total, unit=" batches", disable=not progress)
    batches = itertools.count(1)

    def done() -> None:
        bar.update()
        quarter, rest = divmod(4 * next(batches), total)
        if rest < 4:
            told(quarter / 4)

    with torch.inference_mode(), _watched(network, kinds) as sums, bar:
        stream_layers(network, source, step=step, done=done)
        tokens = torch.from_numpy(samples)
        outputs = network.model(input_ids=tokens, use_cache=False).last_hidden_state
        for start in range(0, len(samples), step):
            sums.add(head, outputs[start : start + step])
    return sums.by_name


def _needed_bytes(source: Source, tokens: int) -> int:
    """Return the memory of the largest layer, of what is in no layer, and of three states."""
    sizes: Counter[str] = Counter()
    for tensor in source.tensors.values():
        sizes[_layer_of(tensor.name)] += tensor.count
    width = source.tensors[EMBEDDING].shape[1]
    return 2 * (sizes.pop("", 0) + max(sizes.values(), default=0) + 3 * tokens * width)


def _layer_of(name: str) -> str:
    """Return the part of a tensor's name that names its layer, or an empty string."""
    return ".".join(name.split(".")[:3]) if name.startswith("model.layers.") else ""


class _Squares:
    """Sums of the squares of inputs by channel: in float32 within a pass, in float64 over passes.

    Layers that take the same inputs one after another (q, k and v) share their squares.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, NDArray[np.float64]] = {}
        self._inputs: Any = None
        self._found: NDArray[np.float64] = np.zeros(0)

    def add(self, name: str, inputs: Any) -> None:
        """Add the inputs of a layer, [..., channels]."""
        if inputs is not self._inputs:
            flat = inputs.reshape(-1, inputs.shape[-1]).float()
            self._inputs, self._found = inputs, flat.square().sum(dim=0).double().numpy()
        self.by_name[name] = self.by_name.get(name, 0.0) + self._found


@contextmanager
def _watched(network: Any, kinds: Mapping[str, str]) -> Iterator[_Squares]:
    """Sum the inputs of the linear layers as they come, and stop when the block ends."""
    sums = _Squares()

    def watch(name: str, layer: Any) -> Any:
        return layer.register_forward_pre_hook(lambda _, x: sums.add(name, x[0]))

    handles = [
        watch(f"{name}.weight", layer)
        for name, layer in network.named_modules()
        if kinds.get(f"{name}.weight") == "linear"
    ]
    try:
        yield sums
    finally:
        for handle in handles:
            handle.remove()


def load_or_calibrate(
    source: Source,
    settings: Calibration | None = None,
    *,
    cache: Path | None = None,
    progress: bool = False,
    told: Told = lambda share: None,
) -> Norms:
    """Load norms from a file of :meth:`Norms.save` or the cache, or compute them.

    ``settings.text`` is a file of norms if it ends in ``.safetensors``. ``cache`` is a directory
    (:func:`cache_directory`); by default nothing is cached.
    """
    settings = Calibration() if settings is None else settings
    if settings.text is not None and Path(settings.text).suffix == ".safetensors":
        return Norms.load(Path(settings.text))
    if cache is None:
        return calibrate(source, settings, progress=progress, told=told)
    file = cache / f"norms-{_cache_key(source, settings)}.safetensors"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        calibrate(source, settings, progress=progress, told=told).save(file)
    return Norms.load(file)


def cache_directory() -> Path:
    """Return ``cassandra`` in the cache directory (``XDG_CACHE_HOME``, or ``~/.cache``)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cassandra"


def _cache_key(source: Source, settings: Calibration) -> str:
    """Return a hash of all inputs of the norms, except the machine's arithmetic."""
    text = hashlib.sha256(read_text(settings.text).encode()).hexdigest()
    body = [_VERSION, fingerprint(source), text, settings.samples, settings.length]
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()[:32]
