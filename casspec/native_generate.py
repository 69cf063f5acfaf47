"""``casspec generate --backend native``: replies by the native engine."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from cassandra_spec.golden import CassandraError
from cassandra_spec.report.tables import text_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cassandra_spec.model.speculative.text import ReplyText
    from cassandra_spec.native.decoding import Settings
    from cassandra_spec.native.engine import Engine

__all__ = ["TextPrinter", "generate_natively"]


class TextPrinter:
    """Prints the pieces of replies as they come, with an empty line between replies."""

    def __init__(self) -> None:
        self._reply = 0

    def __call__(self, reply: int, text: str) -> None:
        """Print the next piece of a reply, by its number."""
        separator = "\n\n" if reply > self._reply else ""
        self._reply = reply
        print(separator + text, end="", flush=True)


def generate_natively(args: argparse.Namespace) -> int:
    """Reply to each prompt; the flags are those of ``casspec generate``."""
    _refuse(args)
    from cassandra_spec.model.packing.packer import open_packed
    from cassandra_spec.native.engine import Engine

    open_packed(args.source)
    replies: list[ReplyText] = []
    draft = not args.plain and args.gamma != 0 and args.draft != "lookup"
    options = {"target": args.native_target, "threads": args.threads, "draft": draft}
    with Engine.from_packed(args.source, **options) as engine:
        settings = _settings(args)
        try:
            _reply(engine, args, settings, replies)
        finally:
            if replies or sys.exc_info()[0] is KeyboardInterrupt:
                _print_outcome(engine, settings, replies, args.json)
    return 0


def _refuse(args: argparse.Namespace) -> None:
    """What only the torch backend can do."""
    stated = {
        "--temperature": args.temperature != 0,
        "--top-k": args.top_k is not None,
        "--top-p": args.top_p is not None,
        "--kv": args.kv != "bf16",
        "--codec": args.codec != "golden",
    }
    for flag, given in stated.items():
        if given:
            raise CassandraError(
                f"{flag} must not be given with --backend native, which decodes greedily from "
                "BF16 keys and values: use --backend torch"
            )


def _settings(args: argparse.Namespace) -> Settings:
    from cassandra_spec.model.speculative.text import check_stop_strings
    from cassandra_spec.native.decoding import Settings

    check_stop_strings(args.stop)
    return Settings(
        gamma=0 if args.plain else args.gamma,
        draft=args.draft,
        min_margin=args.min_margin,
        max_tokens=args.max_tokens,
    )


def _reply(
    engine: Engine, args: argparse.Namespace, settings: Settings, replies: list[ReplyText]
) -> None:
    """Reply to the prompts; ``replies`` grows as they come."""
    import dataclasses

    from transformers import AutoTokenizer

    from cassandra_spec.model.speculative.text import ReplyText, encode_prompt, stop_tokens
    from cassandra_spec.model.weights.sources import read_config

    tokenizer: Any = AutoTokenizer.from_pretrained(args.source, local_files_only=True)
    stops = stop_tokens(tokenizer, read_config(args.source).get("eos_token_id"))
    settings = dataclasses.replace(settings, stop_tokens=stops)
    show = (lambda reply, text: None) if args.json else TextPrinter()
    for number, prompt in enumerate(args.prompt):
        text = ReplyText(tokenizer, tuple(args.stop))
        rounds = engine.rounds(encode_prompt(tokenizer, prompt), settings, ends=text.add)
        for place, _ in enumerate(rounds):
            if place == 0:
                replies.append(text)
            show(number, text.new())
        show(number, text.new(last=True))


def _print_outcome(
    engine: Engine, settings: Settings, replies: Sequence[ReplyText], as_json: bool
) -> None:
    report = engine.report(settings)
    if as_json:
        texts = [reply.text for reply in replies]
        tokens = [reply.tokens for reply in replies]
        print(json.dumps({"texts": texts, "tokens": tokens, "report": report}))
        return
    print(flush=True)
    print("\n" + text_table(["figure", "value"], _figures(report)), file=sys.stderr)


def _figures(report: dict[str, Any]) -> list[list[str]]:
    """Rows of the table of figures."""
    native = report["native"]
    forms = {
        kind: ", ".join(f"{count} {form}" for form, count in found.items())
        for kind, found in native["forms"].items()
    }
    size = native["memory"]
    return [
        ["replies, tokens", f"{report['replies']:,}, {report['tokens']:,}"],
        ["gamma, draft", f"{report['gamma']}, {native['draft']}"],
        ["accepted / drafted", f"{report['accepted']:,} / {report['drafted']:,}"],
        ["acceptance rate", _decimal(report["acceptance_rate"])],
        ["the same, predecessors accepted", _decimal(report["conditional_rate"])],
        ["tokens per verification", _decimal(report["tokens_per_verification"])],
        ["rounds by accepted tokens", " ".join(map(str, report["accepted_lengths"]))],
        ["rounds with a copied draft", f"{native['copied_rounds']:,}"],
        *([["rounds by plan", _plans(native["plans"])]] if native["plans"] else []),
        ["tokens per second", _decimal(native["tokens_per_second"])],
        ["ms per draft, verification", f"{native['draft_ms']:.3f}, {native['verify_ms']:.3f}"],
        ["prompt tokens per second", _decimal(native["prompt_tokens_per_second"])],
        ["threads, instruction set", f"{native['threads']}, {native['isa']}"],
        ["matrices of the target", forms["target"]],
        ["matrices of the draft", forms["draft"] or "-"],
        ["MB of target, draft, embedding", " ".join(f"{size[k] / 1e6:,.1f}" for k in _SIZES)],
    ]


def _plans(plans: dict[str, int]) -> str:
    """What an adaptive gamma chose, the most frequent first."""
    order = sorted(plans, key=lambda plan: -plans[plan])
    return "; ".join(f"{plan}: {plans[plan]}" for plan in order)


_SIZES = ("target", "draft", "embedding")


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
