"""Run the main check, ``make sim``: a real model through format and gateware, bit for bit.

Packs the linear weights and the head of a model in every scheme, reads the packed files back, and
decodes each segment in the Verilated decoder, in draft and in target mode. The output is compared
with the golden codec and with the original weights. Then the model answers a prompt with weights
from the gateware, and again with keys and values that the gateware encodes and decodes during
generation (``--kv-only``: only this part). Tables, plots, coverage, a waveform and the replies form
one HTML page.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cassandra_spec.golden.format import SCHEMES
from cassandra_spec.golden.model_types import EMBEDDING, HEAD
from cassandra_spec.model.output import write_file
from cassandra_spec.model.packing.packer import pack_model
from cassandra_spec.model.weights.sources import BUNDLED, Source, open_source, packed_tensors
from cassandra_spec.model.weights.subset import Subset
from cassandra_spec.toolkit import flags
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import text_table
from cassandra_spec.verif.end_to_end.key_values import (
    QUICK_SCHEMES,
    QUICK_TOKENS,
    TOKENS,
    KeyValueCheck,
    check_key_values,
    key_value_table,
)
from cassandra_spec.verif.end_to_end.page import PAGE, Replies, Run, page
from cassandra_spec.verif.end_to_end.results import exponents, weight_tables
from cassandra_spec.verif.end_to_end.weights import (
    RECIPES,
    REPLY_SCHEME,
    DecodedWeights,
    Work,
    describe,
    gateware,
    one_of_each_kind,
    pack_and_check,
)

PROMPT = "Why is the sky blue? Answer in two sentences."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the main job; 0 if every bit is right, 1 if not, 2 for bad input."""
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.verif.end_to_end", description=__doc__)
    text = "run the linear layers of one layer, and fewer, shorter replies"
    flags.add_switch(parser, "quick", text)
    text = "run only keys and values: encoder and decoder in the loop"
    flags.add_switch(parser, "kv-only", text)
    text = "model: `smollm2`, a GGUF file or a directory"
    parser.add_argument("--source", default=BUNDLED, help=text)
    flags.add_jobs(parser, "worker processes (default: all cores)")
    flags.add_cluster(parser)
    flags.add_folder(parser, "work", "folder for temporary files (about 1 GB)")
    text = "HTML page to write (default build/sim/report.html)"
    parser.add_argument("--page", type=Path, metavar="FILE", default=PAGE, help=text)
    parser.add_argument("--prompt", default=PROMPT, help="prompt of the replies")
    flags.add_count(parser, "tokens", "length limit of each reply", 64)
    return parser


def _run(args: argparse.Namespace) -> int:
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cassandra-sim-", dir=args.work) as name:
        folder = Path(name)
        whole = open_source(args.source)
        found = Run(model=Path(whole.label).name)
        if not args.kv_only:
            _check_weights(whole, folder, args, found)
        found.key_values = _check_key_values(whole, folder / "whole", args)
    seconds = time.monotonic() - start
    found.verdict = f"{'PASS' if found.good else 'FAIL'} in {_duration(seconds)}"
    print(f"\n{found.verdict}")
    args.page.parent.mkdir(parents=True, exist_ok=True)
    write_file(args.page, page(found).encode())
    print(f"the same with plots, coverage and a waveform: {args.page}")
    return 0 if found.good else 1


def _duration(seconds: float) -> str:
    return f"{int(seconds // 60)} min {seconds % 60:.0f} s"


def _check_weights(whole: Source, folder: Path, args: argparse.Namespace, found: Run) -> None:
    """Check the weights of every scheme in the gateware, then generate a reply with them."""
    source = _select(whole, quick=args.quick)
    print("building the Verilated decoder ...", flush=True)
    print(f"gateware: {gateware().config.module_name}")
    decoded = DecodedWeights(folder, packed_tensors(source))
    work = Work(jobs=args.jobs, cluster=args.cluster)
    for scheme in RECIPES:
        keep = decoded if scheme == REPLY_SCHEME else None
        found.weights[scheme] = pack_and_check(source, scheme, folder / scheme, work, keep)
    for table in weight_tables(found.weights):
        print("\n" + text_table(table.header, table.rows))
    found.exponents = exponents(source)
    print(f"\n{found.exponents}")
    tokens = QUICK_TOKENS if args.quick else args.tokens
    found.replies = compare_replies(whole, decoded, folder / "companions", args.prompt, tokens)


def compare_replies(
    source: Source, decoded: DecodedWeights, folder: Path, prompt: str, tokens: int
) -> Replies:
    """Generate and print replies with the weights of ``source`` and with ``decoded`` ones.

    ``folder`` must not exist: the tokenizer and the configuration are put there.
    """
    # transformers takes seconds to import
    from cassandra_spec.model.reply import ReadWeights, build_model, reply

    def read(name: str) -> NDArray[np.uint16]:
        return decoded.read(name) if name in decoded else source.read(name)

    folder.mkdir()
    source.save_companions(folder)
    replies = []
    for weights in (source, ReadWeights(source.tensors, read)):
        model = build_model(folder, weights)
        replies.append(reply(model, folder, prompt, tokens=tokens))
        del model
    original, gateware_reply = replies
    print(f"\nprompt: {prompt}\nreply, original weights: {original.text}")
    tensors = f"{len(decoded)} tensors, scheme {REPLY_SCHEME}"
    print(f"reply, gateware weights ({tensors}): {gateware_reply.text}")
    same = original.tokens == gateware_reply.tokens
    print(f"{len(original.tokens)} tokens, {'identical' if same else 'DIFFERENT'}")
    return Replies(prompt=prompt, original=original.text, gateware=gateware_reply.text, same=same)


def _select(whole: Source, *, quick: bool) -> Subset:
    """Select the tensors to check; quickly, a layer without the head, which is eight times it."""
    tensors = packed_tensors(whole)
    if quick:
        tensors = [tensor for tensor in tensors if tensor.name not in (EMBEDDING, HEAD)]
    names = one_of_each_kind(tensors) if quick else [tensor.name for tensor in tensors]
    chosen = Subset(whole, names)
    weights = sum(tensor.count for tensor in chosen.tensors.values())
    part = " (a layer)" if quick else ""
    print(f"{whole.label}: {len(names)} tensors, {weights:,} weights{part}")
    return chosen


def _check_key_values(whole: Source, folder: Path, args: argparse.Namespace) -> list[KeyValueCheck]:
    """Check replies whose keys and values pass through the gateware; weights do not."""
    from cassandra_spec.native.codec import fastest_codec

    recipe = RECIPES[REPLY_SCHEME]
    print(f"\npacking {whole.label} for replies: {REPLY_SCHEME}, {describe(recipe)}", flush=True)
    recipe = dataclasses.replace(recipe, group_exponents="largest")  # quicker
    work = {"jobs": args.jobs, "cluster": args.cluster, "progress": sys.stderr.isatty()}
    pack_model(whole, folder, recipe, codec=fastest_codec(), **work)
    tokens = QUICK_TOKENS if args.quick else max(args.tokens, TOKENS)
    schemes = QUICK_SCHEMES if args.quick else SCHEMES
    checks = check_key_values(folder, args.prompt, tokens, schemes)
    table = key_value_table(checks)
    print("\n" + text_table(table.header, table.rows))
    return checks


if __name__ == "__main__":
    sys.exit(main())
