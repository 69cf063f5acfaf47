"""Define ``casspec generate`` and ``chat``, which print replies and their figures."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from cassandra_spec.api.replies import with_system
from cassandra_spec.commands.generate_figures import TextPrinter, print_figures, print_summary
from cassandra_spec.commands.generate_flags import (
    BF16,
    add_generation,
    open_model,
    reply_options,
)
from cassandra_spec.golden import CassandraError
from cassandra_spec.model import flags as model_flags
from cassandra_spec.text.reply import read_prompt
from cassandra_spec.toolkit import flags

if TYPE_CHECKING:
    from cassandra_spec.api.replies import Chat, Stream
    from cassandra_spec.drafting import Generation

GENERATE_EPILOG = """\
examples:
  casspec generate packed --prompt "Why is the sky blue?"
  casspec generate packed --prompt "Hello." --prompt "And again?" --gamma 5 --max-tokens 64
  casspec generate packed --prompt-file question.txt --system "Answer in one sentence."
  casspec generate packed --prompt-file one.txt --prompt-file two.txt --batch 16
  casspec generate packed --prompt "Hello." --plain
  casspec generate packed --prompt "Hello." --gamma adaptive --kv exact --kv-truncated 3
  casspec generate packed --prompt "Hello." --gamma adaptive --draft hybrid --min-margin 0.75
  casspec generate packed --prompt "Hello." --draft hybrid --table packed/table.safetensors
  casspec generate packed --prompt "Count to ten." --stop "7"
  casspec generate packed --prompt "Tell a story." --temperature 0.8 --top-p 0.95 --seed 1
  casspec generate packed --prompt "Ann is 34." --json-schema person.json
  casspec generate packed --prompt "Is it?" --regex "(Yes|No)\\."
  casspec generate packed --prompt "Hello." --json | jq .report.acceptance_rate
  casspec generate packed --prompt "Hello." --draft hybrid --trace hello.html
  casspec generate packed --prompt "Hello." --max-tokens 64 --codec rtl --kv exact --kv-order token

Each prompt gets its own reply. Without --temperature decoding is greedy, and replies are identical,
token for token, to those of --plain with the same --kv. Some figures follow the replies; --figures
prints all, --quiet none. They are totals over all replies; docs/software/runtime.md defines them.
Ctrl-C prints the text and the figures so far.
"""

CHAT_EPILOG = """\
examples:
  casspec chat packed
  casspec chat packed --system "Answer in one sentence." --max-tokens 256

Each line of input is a message; the model sees the whole conversation through its chat template.
At the end of the model's context the oldest turns are dropped, not the system message. Ctrl-D or
Ctrl-C ends the conversation and prints some figures over all replies.
"""


_FIRST = (
    *("--system", "--max-tokens", "--stop", "--temperature", "--top-p", "--seed"),
    *("--json-schema", "--plain", "--quiet"),
)
"""Flags that the short help of both commands shows."""


def add_generate(parser: flags.CommandParser) -> None:
    """Add ``casspec generate``."""
    flags.describe(parser, GENERATE_EPILOG, _generate)
    model_flags.add_packed(parser)
    flags.add_repeated(parser, "prompt", "TEXT", "prompt")
    text = "read a prompt from a file; -: from standard input, the default without prompts"
    flags.add_repeated(parser, "prompt-file", "FILE", text)
    text = "decode up to N prompts at once (native backend; at most 16)"
    flags.add_count(parser, "batch", text, 1)
    flags.add_switch(parser, "raw", "continue the prompt without a chat template")
    flags.add_switch(parser, "json", "print replies and all figures as JSON")
    _add_figures(parser)
    text = "write an HTML page with the source of each token, beside plain decoding"
    flags.add_file(parser, "trace", text)
    add_generation(parser)
    parser.show_first("--prompt", "--prompt-file", "--batch", "--json", "--trace", *_FIRST)


def add_chat(parser: flags.CommandParser) -> None:
    """Add ``casspec chat``."""
    flags.describe(parser, CHAT_EPILOG, _chat)
    model_flags.add_packed(parser)
    parser.set_defaults(raw=False, json=False, batch=1)
    _add_figures(parser)
    add_generation(parser)
    parser.show_first(*_FIRST)


def _add_figures(parser: argparse.ArgumentParser) -> None:
    flags.add_switch(parser, "figures", "print all figures, not six lines")
    flags.add_switch(parser, "quiet", "print replies and errors only")


def _generate(args: argparse.Namespace) -> int:
    """Run ``casspec generate``."""
    from cassandra_spec.model.output import file_place
    from cassandra_spec.model.trace import Recorder

    prompts = [with_system(prompt, args.system) for prompt in _prompts(args)]
    trace = args.trace and file_place(args.trace)
    with open_model(args) as model:
        recorder = Recorder(model.backend) if trace else None
        replies = model.begin(recorder, **reply_options(args))
        try:
            show = (lambda *_: None) if args.json else TextPrinter()
            if args.batch > 1:
                replies.run_together(prompts, show)
            else:
                replies.run(prompts, show)
        finally:
            if replies or sys.exc_info()[0] is KeyboardInterrupt:
                _print_outcome(replies.generation(), args)
        if recorder:
            recorder.save(trace, f"Replies of {args.source.resolve().name}", prompts)
    return 0


def _chat(args: argparse.Namespace) -> int:
    """Run ``casspec chat``."""
    with open_model(args) as model:
        chat = model.chat(**reply_options(args))
        try:
            _converse(chat)
        except KeyboardInterrupt as error:
            if type(error) is not KeyboardInterrupt:
                raise  # terminated
        if chat.replies:
            _print_outcome(chat.replies.generation(), args)
    return 0


def _converse(chat: Chat) -> None:
    """Answer each message of the user."""
    shown = "> " if sys.stdin.isatty() else ""
    while line := _message(shown):
        dropped = chat.dropped
        try:
            stream = chat.stream(line)
        except CassandraError as error:
            _say(f"{error}: it is left out")
            continue
        if chat.dropped and not dropped:
            _say("the context is full: the oldest turns are left out from now on")
        _print_pieces(stream)
        print(flush=True)


def _print_pieces(stream: Stream) -> None:
    """Print a reply as it comes; after an interrupt, the rest of its text."""
    printed = 0
    try:
        for piece in stream:
            printed += len(piece)
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        print(stream.text[printed:], end="", flush=True)
        raise


def _say(line: str) -> None:
    print(f"casspec: {line}", file=sys.stderr, flush=True)


def _message(shown: str) -> str:
    """Return the next line that is not empty, or an empty string at the end of the input."""
    print(shown, end="", file=sys.stderr, flush=True)
    for line in sys.stdin:
        if text := line.strip():
            return text
    return ""


def _prompts(args: argparse.Namespace) -> list[str]:
    """Return the texts of ``--prompt``, then of ``--prompt-file``, else of standard input."""
    files = args.prompt_file
    if not args.prompt and not files:
        if sys.stdin.isatty():
            raise CassandraError("--prompt must be given, or text on standard input")
        files = ["-"]
    return [*args.prompt, *map(read_prompt, files)]


def _print_outcome(outcome: Generation, args: argparse.Namespace) -> None:
    """End the reply's line and print the figures, or print all as JSON; name the backend."""
    print(json.dumps(outcome.to_dict()) if args.json else "", flush=True)
    if args.quiet:
        return
    for choice, reason in args.reasons.items():
        if reason and (args.json or args.figures):
            _say(f"{choice} was chosen: {reason}")
    if args.figures and not args.json:
        print_figures(outcome.report, _kv_text(args))
    elif not args.json:
        print_summary(outcome)


def _kv_text(args: argparse.Namespace) -> str:
    if args.kv == BF16:
        return "BF16"
    read = "whole" if args.kv_whole else f"without {args.kv_truncated} bits"
    return f"{args.kv}, drafts {read}, blocks of {args.kv_block}"
