"""The arguments of transformers' ``generate()``, checked and turned into settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from transformers import GenerationConfig

from cassandra_spec.drafting import GREEDY, DraftKind, Levels, Sampling, Settings
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.format import is_integer
from cassandra_spec.model.speculative.processing import PROCESSED, AllowedTokens, Processing

_DEFAULT_TOKENS = 20  # as in transformers
_DEFAULT_TOP_K = 50
_MOST_COPIES = 1024

_SUPPORTED = frozenset(
    ("max_new_tokens", "max_length", "do_sample", "temperature", "top_k", "top_p", "eos_token_id")
    + ("pad_token_id", "stop_strings", "num_return_sequences", "return_dict_in_generate")
    + ("output_scores", "output_logits", *PROCESSED)
)
_WITHOUT_EFFECT = frozenset(  # on the tokens that come out
    ("bos_token_id", "cache_config", "cache_implementation", "compile_config", "disable_compile")
    + ("decoder_start_token_id", "max_cache_len", "prefill_chunk_size", "transformers_version")
    + ("use_cache", "_from_model_config")
)
_NEUTRAL_IF_ONE = frozenset(
    ("encoder_repetition_penalty", "guidance_scale", "length_penalty", "num_beam_groups")
    + ("num_beams", "top_h", "typical_p")
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """A parsed request for replies."""

    settings: Settings
    ids: torch.Tensor  # prompts, padded on the left, int64 [batch, width]
    prompts: list[list[int]]  # without the padding
    pad_token: int | None  # completes replies that are shorter than the longest
    copies: int  # replies to each prompt
    processing: Processing
    outputs: tuple[str, ...] | None  # beside the tokens; None: tokens alone


def read_request(
    model_config: GenerationConfig,
    config: GenerationConfig | None,
    arguments: Mapping[str, Any],
    *,
    ids: torch.Tensor | Sequence[Any],
    attention_mask: torch.Tensor | Sequence[Any] | None,
    longest: int,
    gamma: Any,
    draft: DraftKind,
    min_margin: float,
    seed: int | None,
    processors: Sequence[Any] = (),
    allowed: AllowedTokens | None = None,
) -> Request:
    """Merge the arguments of a call, of a config given with it, and of the model.

    Those that :class:`Levels` has are for the levels of drafting. ``longest`` is the number of
    positions that the model has; ``processors`` and ``allowed`` are the caller's own. Raises
    :class:`CassandraError` that names an argument that is unknown, not supported or not as it must
    be.
    """
    own, levels = dict(arguments), {field.name for field in dataclasses.fields(Levels)}
    level_arguments = {name: own.pop(name) for name in levels & own.keys()}
    merged = _merge(model_config, config, own)
    stops = _stop_tokens(merged.eos_token_id)
    pad = merged.pad_token_id if merged.pad_token_id is not None else next(iter(stops), None)
    table, prompts = read_inputs(ids, attention_mask, pad if pad not in stops else None)
    copies = _copies(merged)
    table = table.repeat_interleave(copies, dim=0)
    prompts = [prompt for prompt in prompts for _ in range(copies)]
    if pad is None and len(prompts) > 1:
        raise CassandraError("pad_token_id must be given for several prompts, and is not")
    settings = Settings(
        gamma=gamma,
        draft=draft,
        min_margin=min_margin,
        levels=Levels(**level_arguments),
        max_tokens=_max_tokens(merged, table.shape[1], longest),
        stop_tokens=frozenset(stops),
        stop_strings=_strings(merged.stop_strings),
        sampling=_sampling(merged),
        seed=seed,
    )
    outputs = _outputs(merged)
    processing = Processing(
        entries={name: getattr(merged, name) for name in PROCESSED},
        stops=stops,
        sampling=settings.sampling,
        custom=processors,
        allowed=allowed,
        records=bool(outputs),
    )
    return Request(
        settings=settings,
        ids=table,
        prompts=prompts,
        pad_token=pad,
        copies=copies,
        processing=processing,
        outputs=outputs,
    )


def _copies(merged: Any) -> int:
    """Return the number of replies to each prompt."""
    copies = 1 if merged.num_return_sequences is None else merged.num_return_sequences
    if not is_integer(copies, 1, _MOST_COPIES):
        raise CassandraError(
            f"num_return_sequences must be an integer from 1 to {_MOST_COPIES}, not {copies!r}"
        )
    if copies > 1 and not merged.do_sample:
        raise CassandraError(
            f"num_return_sequences must be 1 without do_sample, not {copies}: greedy replies to a "
            "prompt are the same"
        )
    return int(copies)


def _outputs(merged: Any) -> tuple[str, ...] | None:
    """Return the names of outputs besides tokens; as in transformers, only if a dict is
    requested.
    """
    if not merged.return_dict_in_generate:
        return None
    wanted = {"scores": merged.output_scores, "logits": merged.output_logits}
    return tuple(name for name, given in wanted.items() if given)


def _merge(
    model_config: GenerationConfig, config: GenerationConfig | None, arguments: Mapping[str, Any]
) -> Any:
    """Merge the options into a namespace; unset options are None."""
    known = dict.fromkeys(GenerationConfig().to_dict())
    merged: dict[str, Any] = {**known}
    for values in (model_config.to_dict(), {} if config is None else config.to_dict(), arguments):
        merged |= {name: value for name, value in values.items() if value is not None}
    for name, value in arguments.items():
        if name not in known and value is not None:
            raise CassandraError(f"generate() must not be given {name}: it is not supported")
    for name in known:
        _check_supported(name, merged[name])
    return SimpleNamespace(**merged)


def _check_supported(name: str, value: Any) -> None:
    if name in _SUPPORTED | _WITHOUT_EFFECT or not value:
        return
    if name not in _NEUTRAL_IF_ONE:
        raise CassandraError(f"generate() must not be given {name}={value!r}: it is not supported")
    if value != 1:
        raise CassandraError(f"{name} must be 1 (the rest is not supported), not {value!r}")


def _max_tokens(merged: Any, width: int, longest: int) -> int:
    """Return the token limit; as in transformers, ``max_length`` includes the padded prompt."""
    if merged.max_new_tokens is not None:
        return int(merged.max_new_tokens)
    if merged.max_length is None:
        return min(_DEFAULT_TOKENS, longest - width)
    if merged.max_length <= width:
        raise CassandraError(
            f"max_length must be more than the {width} tokens of the input, not {merged.max_length}"
        )
    return int(merged.max_length) - width


def _stop_tokens(eos: Any) -> tuple[int, ...]:
    """Return the tokens that end a reply, in order, from a number, several or a tensor."""
    if isinstance(eos, torch.Tensor):
        eos = eos.tolist()
    if eos is None:
        return ()
    return (eos,) if isinstance(eos, int) else tuple(eos)


def _strings(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(() if value is None else value)


def _sampling(merged: Any) -> Sampling:
    if not merged.do_sample:
        return GREEDY
    temperature = 1.0 if merged.temperature is None else float(merged.temperature)
    if temperature == 0:
        raise CassandraError("temperature must be above 0 with do_sample=True, not 0")
    top_k = _DEFAULT_TOP_K if merged.top_k is None else int(merged.top_k)
    top_p = None if merged.top_p is None or merged.top_p == 1 else float(merged.top_p)
    return Sampling(temperature=temperature, top_k=top_k or None, top_p=top_p)


# --- prompts ------------------------------------------------------------------------------------


def read_inputs(
    ids: torch.Tensor | Sequence[Any],
    attention_mask: torch.Tensor | Sequence[Any] | None,
    pad_token: int | None,
) -> tuple[torch.Tensor, list[list[int]]]:
    """Return token ids [batch, width] and the prompts in them, by a mask that is 0 in the padding.

    One prompt may come as a list of numbers. Without a mask, ``pad_token`` at the left is padding
    (pass None where it can be a part of a prompt).
    """
    table = _table(ids, "input_ids")
    if attention_mask is None:
        masked = table == pad_token if pad_token is not None else torch.zeros_like(table) > 0
        mask = masked.cummin(dim=1).values.logical_not()
    else:
        mask = _table(attention_mask, "attention_mask") != 0
    if mask.shape != table.shape:
        raise CassandraError(
            f"attention_mask must have the shape {list(table.shape)}, not {list(mask.shape)}"
        )
    if (mask[:, :-1] & ~mask[:, 1:]).any():
        raise CassandraError("attention_mask must have its zeros at the left, and has others")
    if not mask[:, -1:].all() or not table.numel():
        raise CassandraError("input_ids must have at least one token in each prompt")
    return table, [row[seen].tolist() for row, seen in zip(table, mask, strict=True)]


def _table(values: torch.Tensor | Sequence[Any], name: str) -> torch.Tensor:
    """Return nested numbers as an int64 tensor [batch, width]."""
    try:
        table = torch.as_tensor(values)
    except (TypeError, ValueError) as error:
        raise CassandraError(f"{name} must be whole numbers in rows of one length") from error
    if (table.dtype.is_floating_point and table.numel()) or table.ndim not in (1, 2):
        raise CassandraError(
            f"{name} must be whole numbers [batch, width], not {table.dtype} {list(table.shape)}"
        )
    return table.to(torch.int64).reshape(table.shape if table.ndim == 2 else (1, -1))
