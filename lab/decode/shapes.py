"""Costs of steps in the shapes of larger models, on random weights, and what they promise.

Weights are random, so replies mean nothing and nothing is accepted but by chance: what is measured
is time alone, in the engine's own rounds.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.bench.decode.probe import memory_speed
from cassandra_spec.bench.decode.results import Spread
from cassandra_spec.golden import CassandraError, Format, Packed
from cassandra_spec.golden.file import PackedTensor, RawTensor, Writer
from cassandra_spec.toolkit.tables import text_table

_LLAMA = {
    "model_type": "llama",
    "vocab_size": 128_256,
    "intermediate_size": 8192,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
    "tie_word_embeddings": True,
}
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "135m": {
        **_LLAMA,
        "vocab_size": 49_152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
    },
    "1b": {
        **_LLAMA,
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "head_dim": 64,
    },
    "3b": {
        **_LLAMA,
        "hidden_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 24,
        "head_dim": 128,
    },
    "gemma3-270m": {
        "model_type": "gemma3_text",
        "vocab_size": 262_144,
        "hidden_size": 640,
        "intermediate_size": 2048,
        "num_hidden_layers": 18,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
    },
}
"""Sizes of SmolLM2-135M, of Llama 3.2 with 1 and 3 billion weights, and of Gemma 3 270M."""

FORMAT = Format(scheme="exact", group=64, truncated=4, fill="midpoint")
_PROMPT = 32  # tokens, without a context
_REPLY = 400  # tokens at most
_PART = 2048  # tokens of the prompt between two lines of progress
_ROUNDS = 6
_REPEATS = 3
_TILE = 1 << 20  # random values, repeated: time does not depend on them


Tensor = NDArray[np.uint16] | Packed


def random_tensors(config: Mapping[str, Any]) -> Callable[[str], Tensor | None]:
    """Return random tensors by Hugging Face's names; matrices of one size share one packed
    tensor.
    """
    from cassandra_spec.native.codec import NativeCodec
    from cassandra_spec.native.models.reading import read_model_config

    sizes, codec = read_model_config(config), NativeCodec()
    shapes = sizes.tensor_shapes()
    random = np.random.default_rng(1)
    tile = (random.normal(0, 0.02, _TILE).astype(np.float32).view(np.uint32) >> 16).astype("u2")

    @cache
    def packed(count: int) -> Packed:
        return codec.encode(np.resize(tile, count), FORMAT)

    def read(name: str) -> Tensor | None:
        shape = shapes.get(name)
        if shape is None:
            return None
        return packed(math.prod(shape)) if len(shape) == 2 else np.full(shape, 0x3F80, np.uint16)

    return read


def save_shape(shape: str, folder: Path) -> Path:
    """Return a directory with a packed model of a shape; create it if it is missing."""
    from cassandra_spec.native.models.reading import read_model_config

    if (folder / "model.safetensors").exists():
        return folder
    config = SHAPES[shape]
    shapes = read_model_config(config).tensor_shapes()
    read = random_tensors(config)
    tensors = {name: found for name in shapes if (found := read(name)) is not None}
    plan = {
        name: PackedTensor(format=FORMAT, shape=shapes[name])
        if isinstance(found, Packed)
        else RawTensor(dtype="BF16", shape=shapes[name], nbytes=found.nbytes)
        for name, found in tensors.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    with Writer(folder / "model.safetensors", plan) as writer:
        for name, found in tensors.items():
            if isinstance(found, Packed):
                writer.write_packed(name, found)
            else:
                writer.write_raw(name, [found.view(np.uint8)])
    return folder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds of steps in one shape."""

    shape: str
    context: int  # tokens before the timed steps
    target: str  # form
    target_bytes: int
    draft_bytes: int
    kv_bytes: int  # of a position
    draft: Spread
    rows: tuple[Spread, ...]  # target passes over 1, 2, ... 8 rows
    beside: Spread  # the part of a plain step that is no product of matrices
    probe: float  # bytes a second

    def relative(self, rows: int) -> float:
        """Return the time of a pass over rows, in plain steps."""
        return self.rows[rows - 1].median / self.rows[0].median

    @property
    def relative_draft(self) -> float:
        """A draft step, in plain steps."""
        return self.draft.median / self.rows[0].median


def measure(
    shape: str,
    *,
    target: str,
    threads: int,
    context: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Costs:
    """Time the rounds of a random model of a shape, every gamma in turn, several times.

    All rounds begin after the same ``context`` tokens (default: a short prompt).
    """
    from cassandra_spec.native.engine import Engine
    from cassandra_spec.native.models.reading import read_model_config

    if shape not in SHAPES:
        raise CassandraError(f"shape must be one of {', '.join(SHAPES)}, not {shape!r}")
    config = SHAPES[shape]
    read = random_tensors(config)
    prompt = prompt_of(context or _PROMPT, config["vocab_size"])
    options: dict[str, Any] = {"target": target, "threads": threads}
    options["context"] = len(prompt) + _REPLY
    with Engine(read_model_config(config), read, **options) as engine:
        del read
        for start in range(0, len(prompt), _PART):
            engine.forward(prompt[start : start + _PART], start, last=0)
            if start + _PART < len(prompt):
                say(f"{shape}: {start + _PART:,} of {len(prompt):,} tokens read")
        drafts: list[float] = []
        passes: list[list[float]] = [[] for _ in range(8)]
        probes, beside = [], []
        for _ in range(_REPEATS):
            probes.append(memory_speed(threads))
            beside += _time_beside(engine, prompt)
            for gamma in range(8):
                draft, verify = time_rounds(engine, prompt, gamma, _ROUNDS)
                passes[gamma] += verify
                drafts += draft
        held = engine.memory()
    return Costs(
        shape=shape,
        context=len(prompt),
        target=target,
        target_bytes=held["target"],
        draft_bytes=held["draft"],
        kv_bytes=held["position"],
        draft=Spread.of(drafts),
        rows=tuple(map(Spread.of, passes)),
        beside=Spread.of(beside),
        probe=float(np.median(probes)),
    )


def prompt_of(length: int, vocabulary: int) -> list[int]:
    """Return random tokens: the time of a pass does not depend on them."""
    return np.random.default_rng(2).integers(vocabulary, size=length).tolist()


def measure_shapes(
    names: Sequence[str], threads: int, say: Callable[[str], None], context: int | None = None
) -> list[Costs]:
    """Measure each shape separately, because the largest take most of a machine's memory.

    Raises:
        CassandraError: a name is unknown, or a shape has fewer positions than the context needs.
    """
    for name in names:
        if name not in SHAPES:
            raise CassandraError(f"shape must be one of {', '.join(SHAPES)}, not {name!r}")
        most = SHAPES[name]["max_position_embeddings"] - _REPLY
        if context and context > most:
            raise CassandraError(f"context must be at most {most} for {name}, not {context}")
    found = []
    for name in names:
        found.append(measure(name, target="bf16", threads=threads, context=context, say=say))
        say(f"{name}: measured")
    return found


def time_rounds(
    engine: Any, prompt: Sequence[int], gamma: int, count: int
) -> tuple[list[float], list[float]]:
    """Time each draft step (mean of its round) and each target pass of some rounds.

    The keys and values of the prompt, all but the last token's, must exist. All rounds begin there.
    """
    from cassandra_spec.drafting import Chooser, Part, Settings
    from cassandra_spec.native.rounds.runtime import EngineRuntime
    from cassandra_spec.native.rounds.slots import OneSlot

    kind = "model" if gamma else "none"
    settings = Settings(gamma=gamma, draft=kind, max_tokens=_REPLY)  # type: ignore[arg-type]
    runtime = EngineRuntime(engine, OneSlot())
    slot, _ = runtime.claim(prompt, settings, {})
    part = Part(
        slot=slot,
        tokens=prompt,
        position=len(prompt) - 1,
        count=1,
        prompt=False,
        budget=_REPLY - 1,
        settings=settings,
        seed=0,
        chooser=Chooser(prompt, settings),
    )
    drafts, verifications = [], []
    for _ in range(count):
        [result] = runtime.round([part])
        outcome = result.outcome
        if outcome.drafted != gamma:
            raise CassandraError(f"drafted must be {gamma}, not {outcome.drafted}")
        verifications.append(outcome.verify_seconds)
        if gamma:
            drafts.append(outcome.draft_seconds / gamma)
    return drafts, verifications


def _time_beside(engine: Any, prompt: Sequence[int]) -> list[float]:
    """Return for some plain steps the share of time that the first thread is in no product."""
    found = []
    for at in range(len(prompt), len(prompt) + _ROUNDS):
        engine.take_product_seconds()
        begun = time.perf_counter()
        engine.forward(prompt[:1], at, rows=1)
        found.append(1 - engine.take_product_seconds() / (time.perf_counter() - begun))
    return found


def projected(costs: Costs, acceptance: float) -> tuple[int, float]:
    """Return the best gamma and its speed-up over plain decoding at a conditional rate.

    A round of gamma emits 1 + a + ... + a**gamma tokens and takes gamma draft steps and a pass
    over gamma + 1 rows.
    """
    passes = [costs.relative(1 + gamma) for gamma in range(len(costs.rows))]
    found = [
        (projected_rate(costs.relative_draft, passes, gamma, acceptance), gamma)
        for gamma in range(len(passes))
    ]
    gain, gamma = max(found, key=lambda pair: (pair[0], -pair[1]))
    return gamma, gain


def projected_rate(draft: float, passes: Sequence[float], gamma: int, acceptance: float) -> float:
    """Return tokens per unit of time, from a draft step and passes over 1, 2, ... rows."""
    tokens = sum(acceptance**place for place in range(gamma + 1))
    return tokens / (gamma * draft + passes[gamma])


def lines(found: Sequence[Costs], acceptances: Sequence[float]) -> str:
    """Format a table: steps in plain steps, and projected gains."""
    head = [
        "shape",
        "context",
        "target",
        "GB target",
        "GB draft",
        "GB/s",
        "plain ms",
        "beside weights",
        "draft",
    ]
    head += [f"{rows} rows" for rows in range(2, 9)]
    head += [f"gain at {acceptance:g}" for acceptance in acceptances]
    return text_table(head, [_cells(costs, acceptances) for costs in found])


def _cells(costs: Costs, acceptances: Sequence[float]) -> list[str]:
    plain = costs.rows[0]
    cells = [
        costs.shape,
        f"{costs.context:,}",
        costs.target,
        f"{costs.target_bytes / 1e9:.2f}",
        f"{costs.draft_bytes / 1e9:.2f}",
        f"{costs.probe / 1e9:.0f}",
        f"{plain.median * 1e3:.1f} [{plain.low * 1e3:.1f}, {plain.high * 1e3:.1f}]",
        f"{costs.beside.median:.1%}",
        f"{costs.relative_draft:.2f}",
        *(f"{costs.relative(rows):.2f}" for rows in range(2, 9)),
    ]
    for acceptance in acceptances:
        gamma, gain = projected(costs, acceptance)
        cells.append(f"{gain:.2f} (gamma {gamma})")
    return cells
