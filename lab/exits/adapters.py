"""Exits of a frozen model: an adapter and a confidence estimator behind some of its layers.

CascadeExit, section 3.1. The model's own norm and head follow the adapter, so an exit's logits are
``head(norm(adapter(h)))``. An adapter computes in units of the root mean square of its input, which
the norm removes again: states of middle layers differ in size by orders of magnitude.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch.nn.functional import silu

from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.errors import FileError
from cassandra_spec.golden.file import PackedFile, RawTensor, Writer
from cassandra_spec.golden.format import is_integer

BOTTLENECK = 512
HIDDEN = 256

_KIND = "exits"
_EPSILON = 1e-6
_MOST = 1 << 20  # of a size that a file names


class Exit(torch.nn.Module):
    """Adapter and confidence estimator behind one layer of ``width`` values."""

    def __init__(self, width: int, bottleneck: int = BOTTLENECK, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(width, bottleneck, bias=False)
        self.down = torch.nn.Linear(width, bottleneck, bias=False)
        self.up = torch.nn.Linear(bottleneck, width, bias=False)
        self.ask = torch.nn.Linear(width, hidden)
        self.answer = torch.nn.Linear(hidden, 1)
        torch.nn.init.zeros_(self.up.weight)  # the adapter begins as the identity

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        """Adapt a state; returns float32 [..., width] before the norm."""
        x = unit(state)
        inner = x.to(self.gate.weight.dtype)
        found: torch.Tensor = x + self.up(silu(self.gate(inner)) * self.down(inner))
        return found

    def confidence(self, state: torch.Tensor) -> torch.Tensor:
        """Return the logit, float32 [...], that the exit's best token is the model's."""
        inner = unit(state).to(self.ask.weight.dtype)
        found: torch.Tensor = self.answer(silu(self.ask(inner))).float()
        return found[..., 0]

    @torch.no_grad()
    def scale(self, slope: float, offset: float) -> None:
        """Have the confidence be ``slope`` times what it was, and ``offset`` more."""
        self.answer.weight.mul_(slope)
        self.answer.bias.mul_(slope).add_(offset)

    def adapter(self) -> list[torch.nn.Parameter]:
        """Return the parameters of the adapter."""
        return [p for part in (self.gate, self.down, self.up) for p in part.parameters()]

    def estimator(self) -> list[torch.nn.Parameter]:
        """Return the parameters of the confidence estimator."""
        return [*self.ask.parameters(), *self.answer.parameters()]


def unit(state: torch.Tensor) -> torch.Tensor:
    """Normalise states by their root mean square, in float32."""
    state = state.float()
    return state * torch.rsqrt(state.square().mean(-1, keepdim=True) + _EPSILON)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exits:
    """The exits of one model, by the number of layers before each, shallowest first."""

    heads: Mapping[int, Exit]
    thresholds: Mapping[int, float] = dataclasses.field(default_factory=dict)  # of the cascade
    seconds: float = 0.0  # of training

    @classmethod
    def new(cls, layers: Sequence[int], width: int, bottleneck: int, hidden: int) -> Self:
        """Untrained exits; random numbers are torch's."""
        return cls(heads={layer: Exit(width, bottleneck, hidden) for layer in sorted(layers)})

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers before each exit."""
        return tuple(self.heads)

    def state(self) -> dict[str, torch.Tensor]:
        """Return all parameters by layer and name."""
        return {
            f"{layer}.{name}": value.detach()
            for layer, head in self.heads.items()
            for name, value in head.state_dict().items()
        }

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take parameters as :meth:`state` gives them."""
        for layer, head in self.heads.items():
            names = {name: f"{layer}.{name}" for name in head.state_dict()}
            head.load_state_dict({name: state[full] for name, full in names.items()})

    def save(self, path: Path, metadata: Mapping[str, Any]) -> None:
        """Write a file, whole or not at all, with checksums.

        ``metadata`` is kept as JSON; its ``model_digest`` says whose exits these are.
        """
        first = next(iter(self.heads.values()))
        bottleneck, width = first.gate.weight.shape
        about = {
            **metadata,
            "kind": _KIND,
            "layers": list(self.layers),
            "sizes": [width, bottleneck, first.ask.out_features],
            "thresholds": {str(layer): value for layer, value in self.thresholds.items()},
            "seconds": self.seconds,
        }
        save_tensors(path, self.state(), about)

    @classmethod
    def load(cls, path: Path, *, layers: int, width: int, model_digest: str) -> Self:
        """Load exits from a file, for a model of ``layers`` layers of ``width`` values.

        Raises :class:`FileError` if they are of another model or the file is damaged.
        """
        file = PackedFile(path)
        found, sizes, facts = _read_about(file, model_digest)
        check_layers(found, layers)
        if sizes[0] != width:
            raise FileError(f"{path}: exits must be {width} wide, as the model is, not {sizes[0]}")
        exits = cls.new(found, *sizes)
        shapes = {name: tuple(value.shape) for name, value in exits.state().items()}
        exits.load_state(dict(load_tensors(file, shapes)))
        return dataclasses.replace(exits, **facts)


def check_layers(exits: Sequence[int], layers: int) -> None:
    """Refuse exits that are not behind layers of a model, before its last one."""
    for layer in exits:
        if not 1 <= layer < layers:
            raise CassandraError(f"an exit must be behind layer 1 to {layers - 1}, not {layer}")
    if not exits or len(set(exits)) != len(exits):
        raise CassandraError(f"exits must be distinct and at least one, not {list(exits)}")


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor], about: Mapping[str, Any]) -> None:
    """Write float32 tensors with checksums, whole or not at all."""
    plan = {
        name: RawTensor(dtype="F32", shape=tuple(value.shape), nbytes=4 * value.numel())
        for name, value in tensors.items()
    }
    with Writer(path, plan, about=about) as out:
        for name, value in tensors.items():
            data = np.ascontiguousarray(value.float().numpy(), "<f4")
            out.write_raw(name, [data.reshape(-1).view(np.uint8)])


def load_tensors(
    file: PackedFile, shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the float32 tensors of a file; checks names, shapes and finiteness."""
    if set(file.others) != set(shapes) or file.tensors:
        raise FileError(f"{file.path} must have the tensors of its exits, and has others")
    for name, shape in shapes.items():
        spec = file.others[name]
        if (spec.dtype, spec.shape) != ("F32", shape):
            raise FileError(
                f"{file.path}: {name} must be F32 {list(shape)}, not {spec.dtype}"
                f" {list(spec.shape)}"
            )
        values = file.read_raw(name).view("<f4").astype(np.float32).reshape(shape)
        if not np.isfinite(values).all():
            raise FileError(f"{file.path}: {name} must be finite")
        yield name, torch.from_numpy(values)


def _read_about(file: PackedFile, model_digest: str) -> tuple[list[int], list[int], dict[str, Any]]:
    """Read the layers and sizes in a file, and its further metadata."""
    about = file.about
    if about.get("kind") != _KIND:
        raise FileError(f"{file.path} must be exits of a model (casspec train-exits)")
    if about.get("model_digest") != model_digest:
        raise FileError(
            f"{file.path}: model_digest must be the model's, {model_digest[:16]}..., "
            f"not {reprlib.repr(about.get('model_digest'))}"
        )
    layers: Any = about.get("layers")
    sizes: Any = about.get("sizes")
    if not _are_sizes(layers) or not _are_sizes(sizes) or len(sizes) != 3:
        raise FileError(f"{file.path}: layers and sizes must be lists of numbers")
    try:
        thresholds = {layer: float(about["thresholds"][str(layer)]) for layer in layers}
        return layers, sizes, {"thresholds": thresholds, "seconds": float(about["seconds"])}
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{file.path}: thresholds and seconds must be numbers") from error


def _are_sizes(found: Any) -> bool:
    return isinstance(found, list) and all(is_integer(each, 1, _MOST) for each in found)
