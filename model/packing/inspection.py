"""Describe the content and the size of a packed file, from its header alone."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from cassandra_spec.golden.file import PackedFile, PackedTensor
from cassandra_spec.golden.file.description import PARTS
from cassandra_spec.golden.model_types import EMBEDDING, HEAD
from cassandra_spec.toolkit.tables import text_table
from cassandra_spec.toolkit.workers.pool import Workers


def verify_file(packed: PackedFile, cluster: str | None = None) -> int:
    """Read everything and check every checksum; return their number.

    With ``cluster``, its workers read the tensors
    (:class:`cassandra_spec.toolkit.workers.pool.Workers`).
    """
    if cluster is None:
        return packed.verify()
    read = partial(_verify_tensor, packed.path.absolute())
    with Workers(cluster=cluster) as workers:
        return sum(workers.map(read, [*packed.tensors, *packed.others]))


def _verify_tensor(path: Path, name: str) -> int:
    packed = PackedFile(path)
    if name in packed.others:
        packed.read_raw(name)
        return 1
    packed.read_packed(name)
    return len(PARTS)


def inspect_file(packed: PackedFile) -> dict[str, Any]:
    """Return a JSON-ready description.

    ``tensors`` maps each packed tensor to its format, shape, codebooks and ``bits``: bits per
    value by stream, then padding, both regions, the directory and the total, all as stored.
    ``bits`` at the top is the mean over all packed values; ``ratio`` compares the file with one
    that has these values in BF16.
    """
    tensors = {name: _describe(packed, name) for name in packed.tensors}
    values = sum(spec.count for spec in packed.tensors.values())
    plain = 2 * values + sum(spec.nbytes for spec in packed.others.values())
    size = packed.path.stat().st_size
    return {
        "file": str(packed.path),
        "bytes": size,
        "bf16_bytes": plain,
        "ratio": plain / size,
        "values": values,
        "bits": mean_bits(tensors.values()),
        "tensors": tensors,
        "others": {
            name: {"dtype": spec.dtype, "shape": list(spec.shape), "bytes": spec.nbytes}
            for name, spec in packed.others.items()
        },
    }


def bits_by_part(packed: PackedFile) -> dict[str, tuple[float, float]]:
    """Return bits per value of linear layers and head, as read by a draft and by a target pass.

    By ``weight`` and ``head``; a head that is not packed has 16, and directories count for both.
    """
    head = HEAD if HEAD in {**packed.tensors, **packed.others} else EMBEDDING
    parts: dict[str, list[str]] = {"weight": [], "head": []}
    for name in packed.tensors:
        if name == head or name != EMBEDDING:
            parts["head" if name == head else "weight"].append(name)
    return {part: _pass_bits(packed, names) for part, names in parts.items()}


def _pass_bits(packed: PackedFile, names: list[str]) -> tuple[float, float]:
    if not names:
        return 16.0, 16.0
    stored = [packed.stored_bytes(name) for name in names]
    values = sum(packed.tensors[name].count for name in names)
    draft = sum(sizes["speculation"] + sizes["directory"] for sizes in stored)
    whole = draft + sum(sizes["verification"] for sizes in stored)
    return 8 * draft / values, 8 * whole / values


def mean_bits(tensors: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Return the bits per value by stream over several tensors, weighted by their sizes."""
    sums: dict[str, float] = {}
    values = 0
    for tensor in tensors:
        values += tensor["values"]
        for name, bits in tensor["bits"].items():
            sums[name] = sums.get(name, 0.0) + bits * tensor["values"]
    return {name: total / max(values, 1) for name, total in sums.items()}


def kind_of_name(name: str) -> str:
    """Return the name without its layer number, shared by all tensors of one kind."""
    return re.sub(r"\.\d+\.", ".*.", name)


def _describe(packed: PackedFile, name: str) -> dict[str, Any]:
    spec = packed.tensors[name]
    description: dict[str, Any] = {
        "shape": list(spec.shape),
        "values": spec.count,
        "segments": spec.segments,
        "kept": _kept(spec) / max(spec.count, 1),
        "format": spec.format.to_dict(),
        "bits": _bits(spec, packed.stored_bytes(name)),
    }
    if spec.format.scheme == "unary":
        description["codebook"] = list(spec.codebook)
        description["code_bits"] = spec.stream_bits.get("exponent", 0) / max(_kept(spec), 1)
    if spec.format.pruned_exponent == "coded":
        description["pruned_codebook"] = list(spec.pruned_codebook)
    return description


def _kept(spec: PackedTensor) -> int:
    """Return the number of values with a draft: each has a bit in every plane of ``sign_high``."""
    return spec.stream_bits.get("sign_high", 0) // spec.format.high_planes


def _bits(spec: PackedTensor, stored: dict[str, int]) -> dict[str, float]:
    count = max(spec.count, 1)
    regions = 8 * (stored["speculation"] + stored["verification"])
    names = [stream.name for stream in spec.format.streams]
    bits = {name: spec.stream_bits.get(name, 0) / count for name in names}
    bits["padding"] = (regions - sum(spec.stream_bits.values())) / count
    bits["directory"] = 8 * stored["directory"] / count
    bits["speculation"] = 8 * stored["speculation"] / count
    bits["verification"] = 8 * stored["verification"] / count
    bits["total"] = (regions + 8 * stored["directory"]) / count
    return bits


_COLUMNS = ("kept", "speculation", "verification", "total")


def inspection_text(report: Mapping[str, Any], *, each: bool) -> str:
    """Format the result of :func:`inspect_file`, one line per tensor with ``each``, else per
    kind.
    """
    rows = [[name, f"{bits:.3f}"] for name, bits in report["bits"].items()]
    parts = [
        f"{report['file']}: {report['bytes']:,} bytes, {len(report['tensors'])} packed tensors of"
        f" {report['values']:,} values, {len(report['others'])} others;"
        f" {report['ratio']:.3f} times smaller than in BF16",
        *dict.fromkeys(_format_text(tensor) for tensor in report["tensors"].values()),
        "\n" + text_table(["stream", "bits/weight"], rows),
        "\n" + text_table(["tensor", "number", "shape", *_COLUMNS], _rows(report, each)),
    ]
    if "verified" in report:
        parts.append(f"\nverified: {report['verified']} checksums are right")
    return "\n".join(parts)


def _format_text(tensor: Mapping[str, Any]) -> str:
    return "format: " + ", ".join(f"{name} {value}" for name, value in tensor["format"].items())


def _rows(report: Mapping[str, Any], each: bool) -> Iterable[list[str]]:
    alike: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for name, tensor in report["tensors"].items():
        shape = "x".join(map(str, tensor["shape"]))
        alike[name if each else kind_of_name(name), shape].append(tensor)
    for (name, shape), tensors in alike.items():
        bits = mean_bits(tensors)
        kept = sum(tensor["kept"] for tensor in tensors) / len(tensors)
        figures = [f"{bits[column]:.3f}" for column in _COLUMNS[1:]]
        yield [name, str(len(tensors)), shape, f"{kept:.1%}", *figures]
