"""Fields of other servers' requests: which of them are read under another name, or ignored.

A field of a request is honoured (a field of its class), an alias of such a field, without influence
on the reply (ignored, and named in the log), or refused unless its value asks for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from pydantic_core import from_json

from cassandra_spec.serve.errors import ApiError

ALIASES = {"n_predict": "max_tokens", "n_cmpl": "n"}
"""Names of llama-server, and of the same field here."""

IGNORED = frozenset(
    (
        # OpenAI: accounting, caches, hints of speed
        *("user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
        *("service_tier", "store", "prediction"),
        # llama-server: slots, caches, extra figures
        *("cache_prompt", "id_slot", "slot_id", "n_cache_reuse", "n_keep", "n_discard"),
        *("timings_per_token", "return_progress", "verbose", "return_tokens", "response_fields"),
        "backend_sampling",
        # llama-server: parameters of samplers that are refused themselves
        *("mirostat_tau", "mirostat_eta", "dynatemp_exponent", "xtc_threshold", "adaptive_decay"),
        *("dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers"),
        # vLLM: queues, caches, forms of what this server does not return
        *("priority", "request_id", "cache_salt", "guided_decoding_backend"),
        "spaces_between_special_tokens",
        # routers: the choice of a server, and figures of its use
        *("provider", "models", "route", "usage"),
    )
)
"""Fields that cannot change a reply."""

_IGNORED_GROUP = "speculative."
"""Begin of llama-server's fields about drafts, which cannot change a reply either."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "top_logprobs": (0,),
    "echo": (False,),
    **dict.fromkeys(("tools", "functions"), ([],)),
    **dict.fromkeys(("tool_choice", "function_call"), ("none", "auto")),
    "parallel_tool_calls": (False, True),
    "suffix": ("",),
    "modalities": (["text"],),
    "verbosity": ("medium",),
    **dict.fromkeys(("audio", "web_search_options"), ()),
    # llama-server
    "dry_multiplier": (0,),
    "reasoning_format": ("none", "auto"),
    **dict.fromkeys(("n_probs", "n_indent"), (0,)),
    "t_max_predict_ms": (0, -1),
    "post_sampling_probs": (False,),
    "lora": ([],),
    "penalize_nl": (False,),
    "parse_tool_calls": (True,),
    # vLLM
    **dict.fromkeys(("use_beam_search", "early_stopping", "include_stop_str_in_output"), (False,)),
    **dict.fromkeys(("return_tokens_as_token_ids", "return_token_ids"), (False,)),
    "length_penalty": (1,),
    **dict.fromkeys(("skip_special_tokens", "detokenize", "include_reasoning"), (True,)),
    **dict.fromkeys(("mm_processor_kwargs", "kv_transfer_params", "vllm_xargs"), ({},)),
    **dict.fromkeys(("bad_words", "documents", "logits_processors"), ([],)),
    **dict.fromkeys(("chat_template", "allowed_token_ids", "prompt_logprobs"), ()),
    "truncate_prompt_tokens": (),
}
"""Fields that are not implemented, and the values that ask for nothing."""

SAMPLERS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("typical_p", "typ_p", "tfs_z"), (1,)),
    "top_n_sigma": (0, -1),
    **dict.fromkeys(("mirostat", "min_keep", "dynatemp_range", "xtc_probability"), (0,)),
    "adaptive_target": (-1,),
    "samplers": (),
}
"""Fields of samplers that are not implemented; they cannot change a greedy reply."""


def without_null(body: dict[str, Any]) -> dict[str, Any]:
    """Return an object without its null fields, which clients send for absent values."""
    return {name: value for name, value in body.items() if value is not None}


def rename(body: dict[str, Any], known: Collection[str]) -> None:
    """Give fields the names that this server has for them; its own name goes first."""
    for name, own in ALIASES.items():
        if name in body and own in known:
            body.setdefault(own, body.pop(name))


def take_ignored(body: dict[str, Any], known: Collection[str]) -> list[str]:
    """Remove the fields that cannot change a reply from a body, and return their names."""
    names = [
        name
        for name in body
        if (name in IGNORED and name not in known) or name.startswith(_IGNORED_GROUP)
    ]
    for name in names:
        del body[name]
    return names


def take_neutral(
    body: dict[str, Any], known: Collection[str], table: dict[str, tuple[Any, ...]]
) -> None:
    """Remove fields whose values ask for nothing. Raises :class:`ApiError` for other values."""
    for name, allowed in table.items():
        if name in body and name not in known:
            require_neutral(name, body.pop(name), allowed)


def take_samplers(body: dict[str, Any]) -> dict[str, Any]:
    """Remove the fields of samplers from a body; return those whose values ask for something."""
    given = {name: body.pop(name) for name in SAMPLERS if name in body}
    return {name: value for name, value in given.items() if not _is_one_of(value, SAMPLERS[name])}


def require_neutral(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Raise :class:`ApiError` unless a value is one of those that ask for nothing."""
    if not _is_one_of(value, allowed):
        must = f"must be {' or '.join(map(repr, allowed))} here" if allowed else "must not be given"
        raise ApiError(
            400,
            f"{name} {must}: this server does not support it",
            param=name,
            code="unsupported_parameter",
        )


def _is_one_of(value: Any, allowed: tuple[Any, ...]) -> bool:
    same = (one for one in allowed if isinstance(one, bool) == isinstance(value, bool))
    return value in same


def take_functions(body: dict[str, Any]) -> bool:
    """Replace a chat's deprecated ``functions`` by tools; return whether it had some."""
    functions, choice = body.get("functions"), body.get("function_call")
    if "tools" in body or not isinstance(functions, list) or not functions:
        return False
    del body["functions"]
    body["tools"] = [{"type": "function", "function": each} for each in functions]
    body["parallel_tool_calls"] = False
    if body.pop("function_call", None) is not None:
        named = {"type": "function", "function": choice}
        body["tool_choice"] = named if isinstance(choice, dict) else choice
    return True


# --- formats of replies -------------------------------------------------------------------------

_JSON = ("guided_json", "json_schema")
_GRAMMARS = {"guided_regex": "regex", "guided_grammar": "gbnf", "grammar": "gbnf"}
_FORMATS = (*_JSON, *_GRAMMARS, "guided_choice")


def take_formats(body: dict[str, Any]) -> None:
    """Replace vLLM's and llama-server's fields for structured output by ``response_format``.

    Raises :class:`ApiError` if a value has another type, or if there are two formats.
    """
    structured = body.pop("structured_outputs", {})
    if not isinstance(structured, dict):
        raise _refusal("structured_outputs", f"must be an object, not {structured!r}")
    formats = {f"guided_{name}": value for name, value in without_null(structured).items()}
    formats |= {name: body.pop(name) for name in _FORMATS if name in body}
    if _is_schema(body.get("response_format")):
        formats["json_schema"] = body.pop("response_format")["schema"]
    if "response_format" in body and (not formats or body["response_format"] != {"type": "text"}):
        formats["response_format"] = body["response_format"]
    if len(formats) > 1:
        first, second, *_ = formats
        raise _refusal(second, f"must not be given with {first}")
    for name, value in formats.items():
        body["response_format"] = value if name == "response_format" else _format(name, value)


def _is_schema(form: Any) -> bool:
    """Return whether a format is llama-server's JSON object with a schema."""
    return isinstance(form, dict) and form.get("type") == "json_object" and "schema" in form


def _format(name: str, value: Any) -> dict[str, Any]:
    if name in _JSON and isinstance(value, dict | str):
        return {"type": "json_schema", "json_schema": {"schema": _read_schema(name, value)}}
    if name in _GRAMMARS and isinstance(value, str):
        syntax = "lark" if name == "guided_grammar" and "::=" not in value else _GRAMMARS[name]
        return {"type": "grammar", "syntax": syntax, "definition": value}
    if name == "guided_choice" and isinstance(value, list) and value:
        texts = " | ".join(json.dumps(str(text), ensure_ascii=False) for text in value)
        return {"type": "grammar", "syntax": "lark", "definition": f"start: {texts}"}
    raise _refusal(name, "must be a schema, a text or a list of texts, as its server has it")


def _read_schema(name: str, value: dict[str, Any] | str) -> Any:
    try:
        return from_json(value) if isinstance(value, str) else value
    except ValueError as error:
        raise _refusal(name, f"must be JSON: {error}") from error


def _refusal(name: str, message: str) -> ApiError:
    return ApiError(400, f"{name} {message}", param=name, code="invalid_value")
