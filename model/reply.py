"""A transformers model from any supply of weights, and its greedy reply to a chat prompt."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.initialization import no_init_weights

from cassandra_spec.drafting import encode_prompt, stop_tokens
from cassandra_spec.golden import CassandraError, bf16
from cassandra_spec.golden.file import PackedFile
from cassandra_spec.golden.file.description import Spec
from cassandra_spec.model.pretrained import load_config, load_tokenizer
from cassandra_spec.model.weights.agreement import BUFFERS
from cassandra_spec.model.weights.sources import Source, Tensor, Values


@dataclasses.dataclass(frozen=True)
class ReadWeights:
    """Weights of a model by Hugging Face's names, as BF16 patterns that a function reads."""

    tensors: Mapping[str, Spec | Tensor]
    read: Callable[[str], Values]


Weights = ReadWeights | Source


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    """A model's reply."""

    text: str
    tokens: tuple[int, ...]  # generated tokens, with the one that ended the reply


def build_model(directory: Path, weights: Weights) -> Any:
    """Build a transformers model in BF16 from the config of ``directory`` and ``weights``.

    Raises :class:`CassandraError`, before memory is taken for the model, if the config and the
    tensors do not describe the same model: a tensor is missing, unused or of another shape.
    """
    model = empty_model(directory, weights)
    fill_model(model, weights)
    return model


def empty_model(directory: Path, weights: Weights) -> Any:
    """Build the model of :func:`build_model` whose parameters have no values yet.

    The system gives memory for a parameter when it is filled.
    """
    config = load_config(directory, weights.tensors)
    with torch.device("meta"):
        _check_tensors(_empty_model(config), weights.tensors)
    return _empty_model(config).eval()


def fill_model(model: Any, weights: Weights) -> None:
    """Read each parameter of a transformers model once, a tied one under the embedding's name.

    Raises :class:`CassandraError` if the tensors are not those of the model.
    """
    _check_tensors(model, weights.tensors)
    fill_module(model, weights)


def fill_module(module: Any, weights: Weights, prefix: str = "") -> None:
    """Read each parameter of a part of a model; ``prefix`` comes before its names."""
    with torch.no_grad():
        for name, parameter in module.named_parameters(prefix):
            parameter.copy_(_tensor(name, tuple(parameter.shape), weights.read(name)))


def _empty_model(config: Any) -> Any:
    with no_init_weights():
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, trust_remote_code=False
        )
    model.tie_weights()
    return model


def _check_tensors(model: Any, tensors: Mapping[str, Spec | Tensor]) -> None:
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        shape = list(parameter.shape)
        if name not in tensors:
            raise CassandraError(f"{name} must be a tensor of the model, and is missing")
        if list(tensors[name].shape) != shape:
            raise CassandraError(
                f"{name} must have the shape {shape}, as the config says, "
                f"not {list(tensors[name].shape)}"
            )
    for name in tensors:
        if name not in parameters and not name.endswith(BUFFERS):
            raise CassandraError(f"{name} must be a weight of the config's model, and is unused")


def _tensor(name: str, shape: tuple[int, ...], values: Values) -> torch.Tensor:
    if values.size != np.prod(shape, dtype=np.int64):
        raise CassandraError(f"{name} must have the shape {list(shape)}, not {values.size} values")
    patterns = torch.from_numpy(np.require(values, requirements=["C", "W"]).view(np.int16))
    return patterns.view(torch.bfloat16).reshape(shape)


def packed_reader(packed: PackedFile, decode: Callable[[Any], NDArray[np.uint16]]) -> ReadWeights:
    """Return a reader of a packed model's weights: packed tensors through ``decode``, others raw.

    ``decode`` is one of the two methods of a :class:`golden.Codec`.
    """

    def read(name: str) -> Values:
        if name in packed.tensors:
            return decode(packed.read_packed(name))
        data = packed.read_raw(name)
        return bf16.from_bytes(packed.others[name].dtype, data)

    return ReadWeights({**packed.tensors, **packed.others}, read)


def reply(model: Any, directory: Path, prompt: str, *, tokens: int) -> Reply:
    """Generate greedily, at most ``tokens`` tokens, with the chat template of ``directory``."""
    tokenizer = load_tokenizer(directory)
    inputs = torch.tensor([encode_prompt(tokenizer, prompt)])
    stops = stop_tokens(tokenizer, directory)
    settings = GenerationConfig(
        max_new_tokens=tokens,
        do_sample=False,
        eos_token_id=sorted(stops) or None,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.inference_mode():
        output = model.generate(
            inputs, attention_mask=torch.ones_like(inputs), generation_config=settings
        )
    generated = output[0, inputs.shape[1] :].tolist()
    text = tokenizer.decode(generated, skip_special_tokens=True)
    return Reply(text=text.strip(), tokens=tuple(generated))
