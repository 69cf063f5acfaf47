"""Print the output of ``casspec generate``: the text of replies and tables of figures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cassandra_spec.drafting.report import plan_shares
from cassandra_spec.toolkit.tables import text_table

if TYPE_CHECKING:
    from cassandra_spec.drafting import Generation, NativeFigures, Report


class TextPrinter:
    """Print pieces of replies as they arrive, with an empty line between replies."""

    def __init__(self) -> None:
        self._reply = 0

    def __call__(self, reply: int, text: str) -> None:
        """Print the next piece of reply number ``reply``."""
        separator = "\n\n" if reply > self._reply else ""
        self._reply = reply
        print(separator + text, end="", flush=True)


_ENDS = {
    "stop_token": "the model ended",
    "stop_string": "a stop string ended",
    "length": "--max-tokens ended",
    "interrupted": "an interrupt ended",
}


def print_summary(outcome: Generation) -> None:
    """Print at most six lines to standard error: what a person asks first."""
    lines = "\n".join(f"  {line}" for line in _summary(outcome))
    print(f"\n{lines}", file=sys.stderr)


def _summary(outcome: Generation) -> Iterator[str]:
    report, native = outcome.report, outcome.report.native
    yield _count_line(outcome)
    if native and native.tokens_per_second:
        prompt = native.prompt_tokens_per_second
        read = f", the prompt at {prompt:,.0f}" if prompt else ""
        yield f"{native.tokens_per_second:.1f} tokens per second{read}"
    if report.drafted:
        yield (
            f"accepted {report.accepted:,} of {report.drafted:,} drafted tokens"
            f" ({report.acceptance_rate:.0%}), {report.tokens_per_verification:.2f} tokens per"
            " verification"
        )
    if (traffic := report.traffic.get("all")) and traffic.plain_speedup and traffic.speedup:
        plain = (
            f"{traffic.plain_speedup:.2f} x fewer than without drafts, " if report.drafts else ""
        )
        yield f"bytes read: {plain}{traffic.speedup:.2f} x fewer than in BF16"
    if native:
        names = {"target": "target", "draft": "draft", "embedding": "embedding", "cache": "KV"}
        sizes = (f"{name} {native.memory[kind] / 1e6:,.0f}" for kind, name in names.items())
        yield f"memory in MB: {', '.join(sizes)}"
    yield "all figures: --figures; none: --quiet"


def _count_line(outcome: Generation) -> str:
    """Return the number of tokens, and what ended the replies."""
    report = outcome.report
    replies = "" if report.replies == 1 else f"{report.replies:,} replies, "
    ends = {reason: outcome.stop_reasons.count(reason) for reason in outcome.stop_reasons}
    several = (lambda count: "it") if report.replies == 1 else "{:,} of them".format
    told = ", ".join(f"{_ENDS[reason]} {several(count)}" for reason, count in ends.items())
    return f"{replies}{report.tokens:,} tokens; {told}"


def print_figures(report: Report, kv_format: str) -> None:
    """Print all figures to standard error, so that the reply can be piped."""
    rows = [
        ["replies, tokens", f"{report.replies:,}, {report.tokens:,}"],
        ["gamma, draft", f"{report.gamma}, {report.draft}"],
        ["accepted / drafted", f"{report.accepted:,} / {report.drafted:,}"],
        ["of these copied", f"{report.copied_accepted:,} / {report.copied:,}"],
        ["acceptance rate", _decimal(report.acceptance_rate)],
        ["conditional acceptance rate", _decimal(report.conditional_rate)],
        ["tokens per verification", _decimal(report.tokens_per_verification)],
        ["rounds by accepted tokens", " ".join(map(str, report.accepted_lengths))],
    ]
    if report.native:
        rows += _native_rows(report.native)
    if report.traffic:
        rows += [
            ["keys and values", kv_format],
            ["their memory, of BF16", _decimal(report.kv.memory)],
        ]
    print("\n" + text_table(["figure", "value"], rows), file=sys.stderr)
    if report.traffic:
        print("\n" + _traffic_table(report), file=sys.stderr)


def _native_rows(native: NativeFigures) -> list[list[str]]:
    forms = {
        kind: ", ".join(f"{count} {form}" for form, count in found.items())
        for kind, found in native.forms.items()
    }
    streamed = native.memory.get("streamed")
    sizes = (native.memory[kind] for kind in ("target", "draft", "embedding"))
    return [
        ["rounds with a copied draft", f"{native.copied_rounds:,}"],
        *([["rounds by plan", plan_shares(native.plans)]] if native.plans else []),
        ["tokens per second", _decimal(native.tokens_per_second)],
        ["ms per draft, verification", f"{native.draft_ms:.3f}, {native.verify_ms:.3f}"],
        ["prompt tokens per second", _decimal(native.prompt_tokens_per_second)],
        ["threads, instruction set", f"{native.threads}, {native.isa}"],
        ["matrices of the target", forms["target"]],
        ["matrices of the draft", forms["draft"] or "-"],
        ["MB of target, draft, embedding", " ".join(f"{size / 1e6:,.1f}" for size in sizes)],
        ["MB of keys and values", f"{native.memory['cache'] / 1e6:,.1f}"],
        *([["MB read by a verification", _megabytes(streamed)]] if streamed is not None else []),
    ]


_TRAFFIC = (
    *("MB read per token", "BF16", "packed, plain", "speculative"),
    *("by drafts", "by target", "KV", "plain speed-up", "speed-up"),
)


def _traffic_table(report: Report) -> str:
    kv = report.kv
    rows = [
        [
            scope,
            *map(_megabytes, (of.bf16, of.plain, of.speculative, of.draft, of.target, of.kv)),
            _decimal(of.plain_speedup),
            _decimal(of.speedup),
        ]
        for scope, of in report.traffic.items()
    ]
    both = kv.draft + kv.target
    sizes = (kv.bf16, kv.plain, both, kv.draft, kv.target, both)
    return text_table(_TRAFFIC, [*rows, ["keys and values", *map(_megabytes, sizes), "", ""]])


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.2f}"


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
