"""What the subcommands do: call the other packages, print what they say.

Packages are imported where they are used, so that each command needs and loads its own alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cassandra_spec.casspec.codecs import choose_codec
from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.report.tables import text_table

if TYPE_CHECKING:
    from cassandra_spec.model.packing.calibration import Norms
    from cassandra_spec.model.packing.plan import PackPlan
    from cassandra_spec.model.weights.sources import Source

__all__ = ["calibrate", "inspect", "pack", "unpack"]

_COLUMNS = ("kept", "speculation", "verification", "total")


def pack(args: argparse.Namespace) -> int:
    """``casspec pack``."""
    from cassandra_spec.model.packing.packer import pack_model
    from cassandra_spec.model.weights.sources import open_source

    plan = _plan(args)
    source = open_source(args.source)
    for note in source.notes:
        _say(args, f"{source.label}: {note}")
    norms = _norms(args, source, plan)
    outcome = pack_model(
        source,
        args.destination,
        plan,
        norms=norms,
        jobs=args.jobs,
        progress=not args.quiet,
        fresh=args.fresh,
        codec=choose_codec(args),
    )
    if outcome.resumed:
        _say(args, f"{outcome.resumed} tensors were there from an interrupted run")
    if outcome.saturated:
        _say(args, f"{outcome.saturated:,} values were not finite and are saturated")
    plain = outcome.values * 2
    bits = 8 * outcome.bytes / outcome.values
    _say(
        args,
        f"{args.destination}: {outcome.values:,} values, {outcome.bytes:,} bytes,"
        f" {bits:.2f} bits per value, {outcome.bytes / plain:.1%} of BF16",
    )
    return 0


def _plan(args: argparse.Namespace) -> PackPlan:
    """What the flags of ``pack`` ask for, or the file that they name."""
    from cassandra_spec.model.packing.plan import Override, PackPlan, Recipe
    from cassandra_spec.model.weights.architectures import EMBEDDING

    given = {name: getattr(args, name) for name in Recipe().to_dict()}
    given = {name: value for name, value in given.items() if value is not None}
    if args.recipe and given:
        raise CassandraError(f"{next(iter(given))} must be in {args.recipe} or a flag, not both")
    plan = PackPlan.load(args.recipe) if args.recipe else PackPlan(default=Recipe.from_dict(given))
    kept = (Override(tensors=glob, keep=True) for glob in args.keep)
    embedding = (Override(tensors=EMBEDDING, keep=False),) if args.pack_embedding else ()
    return dataclasses.replace(plan, overrides=(*plan.overrides, *embedding, *kept))


def _norms(args: argparse.Namespace, source: Source, plan: PackPlan) -> Norms | None:
    """Norms for the recipes that need them."""
    from cassandra_spec.model.packing.calibration import (
        Calibration,
        cache_directory,
        load_or_calibrate,
    )

    if not any(recipe.needs_norms for recipe in plan.recipes(source).values()):
        if args.calibration:
            _say(args, f"{args.calibration} is not used: nothing is pruned or weighted by it")
        return None
    return load_or_calibrate(
        source,
        Calibration(text=args.calibration),
        cache=cache_directory(),
        progress=not args.quiet,
    )


def calibrate(args: argparse.Namespace) -> int:
    """``casspec calibrate``."""
    from cassandra_spec.model.packing.calibration import Calibration, calibrate
    from cassandra_spec.model.weights.sources import open_source

    if args.destination.is_dir() or not args.destination.parent.is_dir():
        raise CassandraError(f"{args.destination} must be a file in a directory that exists")
    settings = Calibration(text=args.calibration, samples=args.samples, length=args.length)
    norms = calibrate(open_source(args.source), settings, progress=not args.quiet)
    norms.save(args.destination)
    channels = sum(values.size for values in norms.values.values())
    _say(
        args,
        f"{args.destination}: {channels:,} norms of {len(norms.values)} tensors over"
        f" {norms.tokens:,} tokens",
    )
    return 0


def unpack(args: argparse.Namespace) -> int:
    """``casspec unpack``."""
    from cassandra_spec.model.packing.packer import unpack_model

    outcome = unpack_model(
        args.source,
        args.destination,
        draft=args.draft,
        jobs=args.jobs,
        progress=not args.quiet,
        codec=choose_codec(args),
    )
    _say(args, f"{args.destination}: {outcome.values:,} values, {outcome.bytes:,} bytes")
    return 0


def _say(args: argparse.Namespace, line: str) -> None:
    if not args.quiet:
        print(line, file=sys.stderr)


def inspect(args: argparse.Namespace) -> int:
    """``casspec inspect``."""
    from cassandra_spec.model.packing.inspection import inspect_file
    from cassandra_spec.model.packing.packer import open_packed

    packed = open_packed(args.source)
    report = inspect_file(packed)
    if args.verify:
        report["verified"] = packed.verify()
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        _print_report(report, each=args.tensors)
    return 0


def _print_report(report: Mapping[str, Any], *, each: bool) -> None:
    print(
        f"{report['file']}: {report['bytes']:,} bytes, {len(report['tensors'])} packed tensors of"
        f" {report['values']:,} values, {len(report['others'])} others;"
        f" {report['ratio']:.3f} times smaller than in BF16"
    )
    for text in dict.fromkeys(_format_text(tensor) for tensor in report["tensors"].values()):
        print(text)
    rows = [[name, f"{bits:.3f}"] for name, bits in report["bits"].items()]
    print("\n" + text_table(["stream", "bits/weight"], rows))
    print("\n" + text_table(["tensor", "number", "shape", *_COLUMNS], list(_rows(report, each))))
    if "verified" in report:
        print(f"\nverified: {report['verified']} checksums are right")


def _format_text(tensor: Mapping[str, Any]) -> str:
    return "format: " + ", ".join(f"{name} {value}" for name, value in tensor["format"].items())


def _rows(report: Mapping[str, Any], each: bool) -> Iterable[list[str]]:
    from cassandra_spec.model.packing.inspection import kind_of_name, mean_bits

    alike: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for name, tensor in report["tensors"].items():
        shape = "x".join(map(str, tensor["shape"]))
        alike[name if each else kind_of_name(name), shape].append(tensor)
    for (name, shape), tensors in alike.items():
        bits = mean_bits(tensors)
        kept = sum(tensor["kept"] for tensor in tensors) / len(tensors)
        figures = [f"{bits[column]:.3f}" for column in _COLUMNS[1:]]
        yield [name, str(len(tensors)), shape, f"{kept:.1%}", *figures]
