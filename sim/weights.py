"""The main job, ``make sim``: real weights through the format and the gateware, bit for bit.

Packs the linear weights and the head of a model in every scheme, reads the packed files back, and
pushes each segment through the Verilated decoder in draft and in target mode. What comes out is
compared with the golden codec and with the original weights; then the model answers a prompt with
weights that came out of the gateware, and others with keys and values that went through the
gateware's encoder and decoder while it generated (``--kv-only``: nothing but that).
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from cassandra_spec.golden import CassandraError, Format, GoldenCodec, Packed
from cassandra_spec.golden.file import PackedFile
from cassandra_spec.model.packing.packer import Recipe, open_packed, pack_model
from cassandra_spec.model.packing.statistics import (
    entropy_bits,
    exponent_counts,
    frequent_exponents,
    mean_unary_length,
)
from cassandra_spec.model.parallel import Workers
from cassandra_spec.model.weights.sources import (
    BUNDLED,
    Source,
    Tensor,
    open_source,
    packed_tensors,
)
from cassandra_spec.model.weights.subset import Subset
from cassandra_spec.report.tables import text_table
from cassandra_spec.sim.key_values import TOKENS, check_key_values
from cassandra_spec.verif.decoder.bulk import RtlCodec, Statistics

__all__ = ["RECIPES", "main", "one_of_each_kind"]

RECIPES = {
    "unary": Recipe(
        format=Format(scheme="unary", truncated=4), prune=0.4, prune_scores="magnitude"
    ),
    "mx": Recipe(format=Format(scheme="mx", truncated=4, group=32, fill="midpoint")),
    "exact": Recipe(
        format=Format(scheme="exact", truncated=4, group=64, fill="midpoint"),
        group_exponents="chosen",
    ),
}
"""What is packed: the paper's setting for unary; 4 magnitude bits, nothing pruned, for the rest."""

LOSSLESS = ("unary", "exact")
REPLY_SCHEME = "exact"  # whose target weights the model answers with
ENTROPY_PAPER, UNARY_PAPER = 2.6, 2.85  # bits per exponent, paper section IV.B and Figure 6
PROMPT = "Why is the sky blue? Answer in two sentences."
_PART = 1 << 20  # values that a worker checks at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Part:
    """Whole segments of one packed tensor, with the weights that they were made from."""

    name: str
    start: int  # first value
    packed: Packed
    original: NDArray[np.uint16]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Check:
    """What the gateware made of one part, or of all parts of a scheme so far."""

    values: int = 0
    draft: Statistics = dataclasses.field(default_factory=Statistics.none)
    target: Statistics = dataclasses.field(default_factory=Statistics.none)
    mismatches: int = 0  # gateware against golden, draft and target
    lost: int = 0  # target values that are not the original ones

    def __add__(self, other: _Check) -> _Check:
        return _Check(
            **{
                field.name: getattr(self, field.name) + getattr(other, field.name)
                for field in dataclasses.fields(self)
            }
        )


@functools.cache
def _gateware() -> RtlCodec:
    """The decoder of this process, for every scheme."""
    return RtlCodec()


def _check(part: _Part) -> tuple[_Part, _Check, NDArray[np.uint16]]:
    """One part through the gateware in both modes; the target values come along."""
    golden, gateware = GoldenCodec(), _gateware()
    draft = gateware.decode_draft(part.packed)
    draft_cost = gateware.latest
    target = gateware.decode_target(part.packed)
    mismatches = np.count_nonzero(draft != golden.decode_draft(part.packed))
    mismatches += np.count_nonzero(target != golden.decode_target(part.packed))
    check = _Check(
        values=part.packed.count,
        draft=draft_cost,
        target=gateware.latest,
        mismatches=int(mismatches),
        lost=int(np.count_nonzero(target != part.original)),
    )
    return dataclasses.replace(part, packed=_nothing(part.packed)), check, target


def _nothing(packed: Packed) -> Packed:
    """The same description without data, which need not travel back."""
    return dataclasses.replace(
        packed, speculation=packed.speculation[:0], verification=packed.verification[:0]
    )


def _parts(source: Source, packed: PackedFile) -> Iterator[_Part]:
    for name in packed.tensors:
        tensor = packed.read_packed(name)
        step = max(_PART // tensor.format.segment, 1)
        for first in range(0, len(tensor.directory), step):
            part = tensor.part(first, first + step)
            start = first * tensor.format.segment
            original = source.read(name, start, start + part.count)
            yield _Part(name=name, start=start, packed=part, original=original)


class _Weights:
    """Tensors as they come out of the gateware, in one file that is mapped, not read."""

    def __init__(self, folder: Path, tensors: Sequence[Tensor]) -> None:
        ends = np.cumsum([0, *(tensor.count for tensor in tensors)])
        self._place = {
            tensor.name: slice(int(start), int(stop))
            for tensor, start, stop in zip(tensors, ends[:-1], ends[1:], strict=True)
        }
        self._values = np.memmap(folder / "decoded", np.uint16, "w+", shape=(int(ends[-1]),))

    def put(self, name: str, start: int, values: NDArray[np.uint16]) -> None:
        self._values[self._place[name]][start : start + values.size] = values

    def read(self, name: str) -> NDArray[np.uint16]:
        return self._values[self._place[name]]

    def __contains__(self, name: str) -> bool:
        return name in self._place


def _check_scheme(
    source: Source, packed: PackedFile, workers: Workers, keep: _Weights | None
) -> _Check:
    total = _Check()
    count = sum(spec.count for spec in packed.tensors.values())
    shown = sys.stderr.isatty()
    with tqdm(
        desc="gateware ", total=count, unit=" values", unit_scale=True, disable=not shown
    ) as bar:
        for part, check, target in workers.map(_check, _parts(source, packed)):
            total += check
            bar.update(check.values)
            if keep is not None:
                keep.put(part.name, part.start, target)
    return total


def _bits(packed: PackedFile) -> dict[str, float]:
    """Bits per weight by stream, and of both regions as stored, over all tensors."""
    count = sum(spec.count for spec in packed.tensors.values())
    bits: dict[str, float] = {}
    for name in packed.tensors:
        tensor = packed.read_packed(name)
        for key, share in tensor.bits().items():
            bits[key] = bits.get(key, 0.0) + share * tensor.count / count
    return bits


_STREAMS = ("mask", "exponent", "sign_high", "low", "residue", "pruned")


def _print_results(checks: dict[str, _Check], bits: dict[str, dict[str, float]]) -> None:
    rows = []
    for scheme, check in checks.items():
        rows += [
            [scheme, mode, f"{check.values:,}", f"{cost.beats:,}", f"{cost.cycles:,}"]
            + [f"{cost.values_per_cycle:.2f}"]
            for mode, cost in (("draft", check.draft), ("target", check.target))
        ]
    print("\n" + text_table(["scheme", "mode", "values", "beats", "cycles", "values/cycle"], rows))
    rows = [
        [
            scheme,
            f"{check.mismatches:,}",
            f"{check.lost:,}" if scheme in LOSSLESS else f"{check.lost:,} (rounded)",
        ]
        for scheme, check in checks.items()
    ]
    header = ["scheme", "gateware != golden", "target != original"]
    print("\n" + text_table(header, rows))
    rows = [
        [scheme]
        + [f"{own.get(name, 0):.2f}" for name in (*_STREAMS, "padding")]
        + [f"{own['speculation']:.2f}", f"{own['total']:.2f}"]
        for scheme, own in bits.items()
    ]
    header = ["bits/weight", *_STREAMS, "padding", "draft reads", "whole"]
    print("\n" + text_table(header, rows))


def _print_exponents(source: Source) -> None:
    """Entropy and unary length of exponents per tensor, weighted by size, beside the paper's."""
    entropy = length = total = 0.0
    for tensor in packed_tensors(source):
        counts = exponent_counts(source.read(tensor.name))
        entropy += entropy_bits(counts) * tensor.count
        length += mean_unary_length(counts, frequent_exponents(counts, 256)) * tensor.count
        total += tensor.count
    print(
        f"\nexponents, all values, bits each: entropy {entropy / total:.2f}"
        f" (paper {ENTROPY_PAPER}), unary code {length / total:.2f} (paper {UNARY_PAPER})"
    )


def _compare_replies(
    source: Source, whole: Source, decoded: _Weights, folder: Path, prompt: str, tokens: int
) -> bool:
    """The reply from original weights and from those out of the gateware; whether they agree."""
    from cassandra_spec.model.reply import (  # transformers takes seconds to import
        ReadWeights,
        build_model,
        reply,
    )

    def read(name: str) -> NDArray[np.uint16]:
        return decoded.read(name) if name in decoded else whole.read(name)

    companions = folder / "companions"
    companions.mkdir()
    whole.save_companions(companions)
    replies = []
    for weights in (whole, ReadWeights(whole.tensors, read)):
        model = build_model(companions, weights)
        replies.append(reply(model, companions, prompt, tokens=tokens))
        del model
    gateware = len(source.tensors)
    print(f"\nprompt: {prompt}\nreply, original weights: {replies[0].text}")
    print(f"reply, gateware weights ({gateware} tensors, scheme {REPLY_SCHEME}): {replies[1].text}")
    same = replies[0].tokens == replies[1].tokens
    print(f"{len(replies[0].tokens)} tokens, {'identical' if same else 'DIFFERENT'}")
    return same


def one_of_each_kind(tensors: Sequence[Tensor]) -> list[str]:
    """The first tensor of each kind of linear layer: the last two parts of its name tell."""
    first = {".".join(tensor.name.split(".")[-2:]): tensor.name for tensor in reversed(tensors)}
    return sorted(first.values())


def _select(whole: Source, *, quick: bool) -> Subset:
    """The tensors to check, as a source of their own."""
    tensors = packed_tensors(whole)
    names = one_of_each_kind(tensors) if quick else [tensor.name for tensor in tensors]
    chosen = Subset(whole, names)
    weights = sum(tensor.count for tensor in chosen.tensors.values())
    part = " (one of each kind)" if quick else ""
    print(f"{whole.label}: {len(names)} tensors, {weights:,} weights{part}")
    return chosen


def _pack_and_check(
    source: Source, scheme: str, folder: Path, jobs: int | None, keep: _Weights | None
) -> tuple[_Check, dict[str, float]]:
    """One scheme: pack, decode in both modes, compare. What was checked, and bits per weight."""
    recipe = RECIPES[scheme]
    print(f"\nscheme {scheme}, {_describe(recipe)}", flush=True)
    start = time.monotonic()
    pack_model(source, folder, recipe, jobs=jobs, progress=sys.stderr.isatty())
    print(f"  packed in {time.monotonic() - start:.0f} s", flush=True)
    packed = open_packed(folder)
    start = time.monotonic()
    with Workers(jobs) as workers:
        check = _check_scheme(source, packed, workers, keep)
    cycles = check.draft.cycles + check.target.cycles
    print(
        f"  through the gateware and compared in {time.monotonic() - start:.0f} s:"
        f" {cycles:,} cycles, {check.mismatches:,} mismatches",
        flush=True,
    )
    return check, _bits(packed)


def _check_all(args: argparse.Namespace, folder: Path) -> bool:
    """The whole job in a folder for temporary files; whether every bit was right."""
    whole = open_source(args.source)
    source = _select(whole, quick=args.quick)
    print("building the Verilated decoder ...", flush=True)
    print(f"gateware: {_gateware().config.module_name}")
    decoded = _Weights(folder, packed_tensors(source))
    checks: dict[str, _Check] = {}
    bits: dict[str, dict[str, float]] = {}
    for scheme in RECIPES:
        keep = decoded if scheme == REPLY_SCHEME else None
        checks[scheme], bits[scheme] = _pack_and_check(
            source, scheme, folder / scheme, args.jobs, keep
        )
    _print_results(checks, bits)
    _print_exponents(source)
    same = _compare_replies(source, whole, decoded, folder, args.prompt, args.tokens)
    same &= _check_key_values(whole, folder / "whole", args)
    right = all(check.mismatches == 0 for check in checks.values())
    return same and right and all(checks[scheme].lost == 0 for scheme in LOSSLESS)


def _check_key_values(whole: Source, folder: Path, args: argparse.Namespace) -> bool:
    """Replies with keys and values through the gateware; whether every byte was right."""
    recipe = RECIPES[REPLY_SCHEME]
    print(f"\npacking {whole.label} for replies: {REPLY_SCHEME}, {_describe(recipe)}", flush=True)
    recipe = dataclasses.replace(recipe, group_exponents="largest")  # quicker
    pack_model(whole, folder, recipe, jobs=args.jobs, progress=sys.stderr.isatty())
    checks = check_key_values(folder, args.prompt, max(args.tokens, TOKENS))
    return all(check.good for check in checks)


def _run(args: argparse.Namespace) -> int:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cassandra-sim-", dir=args.work) as name:
        folder = Path(name)
        if args.kv_only:
            good = _check_key_values(open_source(args.source), folder / "whole", args)
        else:
            good = _check_all(args, folder)
    seconds = time.monotonic() - begun
    print(f"\n{'PASS' if good else 'FAIL'} in {int(seconds // 60)} min {seconds % 60:.0f} s")
    return 0 if good else 1


def _describe(recipe: Recipe) -> str:
    fmt = recipe.format
    parts = [f"t = {fmt.truncated}", f"fill {fmt.fill}"]
    if fmt.scheme != "unary":
        parts.append(f"groups of {fmt.group}")
    parts.append(f"{recipe.prune:.0%} pruned by magnitude" if recipe.prune else "nothing pruned")
    return ", ".join(parts)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one tensor of each kind")
    parser.add_argument(
        "--kv-only",
        action="store_true",
        help="keys and values alone: encoder and decoder in the loop",
    )
    parser.add_argument("--source", default=BUNDLED, help="model: smollm2, GGUF file or folder")
    parser.add_argument("--jobs", type=int, help="worker processes (default: all cores)")
    parser.add_argument("--work", type=Path, help="folder for temporary files (about 1 GB)")
    parser.add_argument("--prompt", default=PROMPT, help="what to ask the model")
    parser.add_argument("--tokens", type=int, default=64, help="longest reply in tokens")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the main job; 0 if every bit is right, 1 if not, 2 for bad input."""
    args = _parser().parse_args(argv)
    try:
        return _run(args)
    except CassandraError as error:
        print(f"make sim: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("make sim: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
