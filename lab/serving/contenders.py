"""Define the servers that ``casspec bench serving`` compares."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.serving.servers import HOST, PORT, casspec_serve

PLAIN, DRAFTS = "plain", "drafts"
"""This project's server without drafts, and with its default flags."""

LLAMA_SAMPLING = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""Request fields that switch off the filters which llama-server applies by default."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contender:
    """A server, and whose replies its own are compared with."""

    name: str
    command: Sequence[str]
    about: Sequence[Any] = ()  # what its weights are, as JSON
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of each request
    same_as: str | None = None  # contender without drafts
    peer: bool = False  # another program: greedy replies are compared, but may differ


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sizes:
    """Settings that all servers share."""

    slots: int
    threads: int
    context: int  # positions of prompt and reply
    max_tokens: int  # of a reply


def own_contenders(packed: Path, others: Sequence[str], sizes: Sizes) -> list[Contender]:
    """Return this project's server without drafts, with drafts, and with other flags.

    ``others`` have the form ``LABEL=[PACKED] FLAGS``. Raises :class:`CassandraError` for another.
    """
    found = [_own(PLAIN, packed, ["--plain"], sizes), _own(DRAFTS, packed, [], sizes)]
    for text in others:
        label, words = _labelled("also", text)
        given = shlex.split(words)
        place = Path(given.pop(0)) if given and not given[0].startswith("-") else packed
        found.append(_own(label, place, given, sizes))
    return found


def _own(name: str, packed: Path, given: Sequence[str], sizes: Sizes) -> Contender:
    from cassandra_spec.model.packing.packer import open_packed

    numbers = {
        "--slots": sizes.slots,
        "--threads": sizes.threads,
        "--context": sizes.context,
        "--max-tokens": sizes.max_tokens,
    }
    shared = [str(word) for pair in numbers.items() for word in pair]
    return Contender(
        name=name,
        command=casspec_serve(packed, *shared, *given),
        about=[open_packed(packed).digest],
        same_as=None if name == PLAIN else PLAIN,
    )


def llama_contenders(
    program: Path | None, models: Sequence[str], drafts: Sequence[str], sizes: Sizes
) -> list[Contender]:
    """Return llama-server with each model, without drafts and with each type of drafts.

    ``models`` have the form ``LABEL=FILE``; ``drafts`` are values of llama-server's
    ``--spec-type``. Raises :class:`CassandraError` for another form, a missing file or program.
    """
    if (program is None) != (not models):
        raise CassandraError("llama-server and llama-model must be given together")
    found = []
    for text in models:
        label, file = _labelled("llama-model", text)
        for kind in ("", *drafts):
            more = ["--spec-type", kind] if kind else []
            found.append(_llama(f"llama.cpp {label}", kind, program, Path(file), more, sizes))
    return found


def _llama(
    name: str, kind: str, program: Path | None, file: Path, more: Sequence[str], sizes: Sizes
) -> Contender:
    for each in (program, file):
        if each is None or not each.is_file():
            raise CassandraError(f"llama-server and llama-model must be files, not {each}")
    assert program is not None
    numbers = {
        "--port": PORT,
        "--parallel": sizes.slots,
        "--ctx-size": sizes.slots * sizes.context,
        "--threads": sizes.threads,
        "--threads-batch": sizes.threads,
        "--cache-ram": 0,  # of prompts that no slot holds any more
    }
    words = [str(word) for pair in numbers.items() for word in pair]
    stat = file.stat()
    return Contender(
        name=f"{name}, {kind}" if kind else name,
        command=[
            *(str(program.absolute()), "--model", str(file.absolute()), "--host", HOST),
            *(*words, "--cont-batching", "--no-kv-unified", *more),
        ],
        about=[stat.st_size, stat.st_mtime_ns],
        fields=LLAMA_SAMPLING,
        same_as=name if kind else None,
        peer=True,
    )


def _labelled(flag: str, text: str) -> tuple[str, str]:
    label, mark, rest = text.partition("=")
    if not (label.strip() and mark and rest.strip()):
        raise CassandraError(f"{flag} must be LABEL=..., not {text!r}")
    return label.strip(), rest.strip()


def require_distinct(contenders: Sequence[Contender]) -> None:
    """Raise :class:`CassandraError` if two contenders have one name."""
    names = [each.name for each in contenders]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CassandraError(f"also and llama-model must have labels of their own, not {twice[0]}")
