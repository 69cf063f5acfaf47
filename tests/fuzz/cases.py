"""One case of each campaign: damage something at random, and hold what happens to the promise.

A case returns ``refused`` or ``accepted``; a broken promise is any exception, a crash or a hang.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import random
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cassandra_spec.commands.__main__ import main
from cassandra_spec.golden import (
    CassandraError,
    Format,
    GoldenCodec,
    Packed,
    decode_draft,
    decode_target,
    encode,
    oracle,
)
from cassandra_spec.golden.errors import DecodeError
from cassandra_spec.golden.file import PackedFile
from cassandra_spec.model.packing.packer import Recipe, pack_model
from cassandra_spec.model.weights.gguf import GgufSource
from cassandra_spec.model.weights.sources import open_source
from cassandra_spec.native import load
from cassandra_spec.native.codec import NativeCodec
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.forms import TARGETS
from cassandra_spec.toolkit.running import LONGEST_LINE
from tests.fuzz.requests import FIELDS, REQUESTS, ask, ask_plainly, body_of, opened, whole
from tests.model.byte_model import pack_byte_model
from tests.model.gguf_files import write_gguf
from tests.model.tiny import write_model
from tests.native.test_memory_faults import reply_under_faults

__all__ = ["CAMPAIGNS", "prepare"]

LENGTHS = (0, 2, 255, 1 << 16, 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
NUMBERS = (0, 1, -1, 2, 255, 1 << 16, 1 << 31, 1 << 32, 1 << 40, (1 << 63) - 1, 10**30, 10**400)
VALUES: tuple[Any, ...] = (None, True, "", "x", "\0", "é" * 50, 0.5, -0.0, 1e308, [], {}, [[]])


def prepare(folder: Path) -> None:
    """Make the files that cases damage, and the native library."""
    load()
    write_model(folder / "model")
    write_gguf(folder / "model.gguf", folder / "model")
    recipe = Recipe(format=Format(segment=256), prune=0.3, prune_scores="magnitude")
    pack_model(open_source(folder / "model"), folder / "packed", recipe, jobs=1)
    pack_byte_model(folder / "bytes")


def checked(action: Callable[[], object]) -> str:
    """Run an action that may be refused in one line."""
    try:
        action()
    except CassandraError as error:
        refusal = str(error)
    else:
        return "accepted"
    assert "\n" not in refusal, refusal
    return "refused"


def damaged(data: bytes, rng: random.Random, first: int = 0, last: int | None = None) -> bytes:
    """Some bits flipped, bytes replaced by extremes, a piece removed, repeated, or the end cut."""
    octets = bytearray(data)
    last = len(octets) if last is None else last
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        place = rng.randrange(first, max(last, first + 1)) % max(len(octets), 1)
        match rng.randrange(6):
            case 0 | 1:
                octets[place] ^= 1 << rng.randrange(8)
            case 2:
                octets[place] = rng.choice((0, 127, 128, 255))
            case 3:
                octets[place : place + 8] = struct.pack("<Q", rng.choice(LENGTHS))
            case 4:
                del octets[place : place + rng.randrange(1, 40)]
            case _:
                octets[place:place] = octets[place : place + rng.randrange(1, 40)]
        if not octets:
            break
    return bytes(octets[: rng.randrange(len(octets) + 1)] if rng.random() < 0.05 else octets)


def mutated(value: Any, rng: random.Random) -> Any:
    """Return a JSON value with one thing in it changed, removed or added."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        changed = dict(value)
        if rng.random() < 0.1:
            del changed[key]
        elif rng.random() < 0.1:
            changed[rng.choice(("auto_map", "_attn_implementation", "x", key * 40))] = value[key]
        else:
            changed[key] = mutated(value[key], rng)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        return [*value[:place], mutated(value[place], rng), *value[place + 1 :]]
    return rng.choice((*NUMBERS, *VALUES))


# --- campaigns ----------------------------------------------------------------------------------


def packed_file(rng: random.Random, base: Path, room: Path) -> str:
    """Read a packed file with damage in its header, its description (sealed again) or its data."""
    data = (base / "packed/model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    match rng.randrange(3):
        case 0:
            data = damaged(data, rng, 0, 8 + size)
        case 1:
            data = damaged(data, rng, 8 + size)
        case _:
            data = _redescribed(data, size, rng)
    path = room / "model.safetensors"
    path.write_bytes(data)

    def read() -> None:
        file, codec = PackedFile(path), GoldenCodec()
        for name in list(file.tensors)[:2]:
            packed = file.read_packed(name)
            packed.bits()
            assert codec.decode_draft(packed).size == codec.decode_target(packed).size
        for name in file.others:
            file.read_raw(name)

    return checked(read)


def _redescribed(data: bytes, size: int, rng: random.Random) -> bytes:
    header = json.loads(data[8 : 8 + size])
    body = json.loads(header["__metadata__"]["cassandra"])
    del body["crc32"]
    body = mutated(body, rng)
    if isinstance(body, dict):
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        body["crc32"] = zlib.crc32(text.encode())
    header["__metadata__"]["cassandra"] = json.dumps(body)
    content = json.dumps(header).encode()
    return struct.pack("<Q", len(content)) + content + data[8 + size :]


def packed_memory(rng: random.Random, base: Path, room: Path) -> str:
    """Damaged regions, directories and codebooks: codec, native code and oracle judge alike."""
    scheme = rng.choice(("unary", "mx", "exact"))
    coded = "coded" if scheme == "unary" and rng.random() < 0.5 else "raw"
    format = Format(scheme=scheme, segment=64, pruned_exponent=coded, window=rng.randint(1, 4))  # type: ignore[arg-type]
    random_bits = np.random.default_rng(rng.randrange(1 << 32))
    values = random_bits.integers(0x3F00, 0x4100, rng.randrange(200), dtype=np.uint16)
    packed = encode(values, format, kept=random_bits.random(values.size) < 0.7)
    part = rng.choice(("speculation", "verification", "directory", "codebook"))
    changes: dict[str, Any] = {}
    if part == "codebook":
        changes[part] = packed.codebook[: rng.randrange(17)]
    else:
        array = getattr(packed, part)
        octets = bytearray(array.tobytes())
        for _ in range(rng.randint(1, 4) if octets else 0):
            octets[rng.randrange(len(octets))] ^= 1 << rng.randrange(8)
        changes[part] = np.frombuffer(bytes(octets), array.dtype).reshape(array.shape)
    broken = dataclasses.replace(packed, **changes)
    outcomes, native = [], NativeCodec()
    for ours, *others in (
        (decode_draft, oracle.decode_draft, native.decode_draft),
        (decode_target, oracle.decode_target, native.decode_target),
    ):
        outcomes.append(_judged(ours, broken))
        for theirs in others:
            assert outcomes[-1] == _judged(theirs, broken), (part, outcomes[-1])
    return "refused" if any(isinstance(one, str | int) for one in outcomes) else "accepted"


def _judged(decode: Callable[[Packed], Any], packed: Packed) -> object:
    try:
        return decode(packed).tolist()
    except DecodeError as error:
        return error.segment
    except CassandraError as error:
        return str(error)


def engine_memory(rng: random.Random, base: Path, room: Path) -> str:
    """Flip bits of an engine's weights while it replies, and back."""
    options: dict[str, Any] = {"threads": rng.randint(1, 2), "target": rng.choice(TARGETS)}
    options["pin"] = False
    with Engine.from_packed(base / "packed", **options, verify=True) as engine:
        tokens = reply_under_faults(engine, rng.randrange(1 << 32))
        engine.verify()
    return "refused" if tokens is None else "accepted"


def gguf_file(rng: random.Random, base: Path, room: Path) -> str:
    """Read a GGUF file with damage, mostly in its header."""
    data = (base / "model.gguf").read_bytes()
    path = room / "model.gguf"
    path.write_bytes(damaged(data, rng, 0, 1500 if rng.random() < 0.8 else None))

    def read() -> None:
        source = GgufSource(path)
        for name in source.tensors:
            source.read(name)

    return checked(read)


def generate(source: Path, rng: random.Random) -> list[object]:
    """Return the arguments of a short reply, with either backend."""
    backend = rng.choice(("torch", "native", "auto"))
    return [source, "--prompt", "word5", "--max-tokens", "2", "--backend", backend]


def directory(rng: random.Random, base: Path, room: Path) -> str:
    """Run a command on a packed or plain directory with one damaged file."""
    kind = rng.choice(("model", "packed"))
    source = room / kind
    shutil.copytree(base / kind, source)
    path = rng.choice(sorted(source.glob("*.json*")))
    match rng.randrange(4):
        case 0:
            path.write_bytes(damaged(path.read_bytes(), rng))
        case 1:
            path.unlink()
            (path.mkdir, lambda: path.symlink_to(path), lambda: None)[rng.randrange(3)]()
        case _:
            path.write_text(json.dumps(mutated(json.loads(path.read_text()), rng)))
    if kind == "model":
        return command(["pack", source, room / "out", "--scheme", "mx", "--jobs", "1"])
    commands: tuple[list[object], ...] = (
        ["generate", *generate(source, rng)],
        ["unpack", source, room / "out", "--jobs", "1"],
        ["inspect", source],
    )
    return command(rng.choice(commands))


FLAGS: dict[str, tuple[str, ...]] = {
    "generate": ("--gamma", "--max-tokens", "--min-margin", "--temperature", "--top-k", "--top-p")
    + ("--seed", "--kv-truncated", "--kv-block", "--kv-keep", "--stop", "--prompt"),
    "pack": ("--prune", "--truncated", "--significand", "--group", "--segment")
    + ("--codebook", "--beat", "--jobs"),
    "system estimate": ("--acceptance", "--gamma", "--batch", "--prompt", "--output", "--device"),
    "rtl": ("--lanes", "--codebook", "--window", "--bus", "--address"),
}
ESTIMATE = ("--device", "npu", "--model", "qwen3-4b", "--scheme", "exact")
WORDS = ("", "x", "-1", "0", "nan", "inf", "1e400", "9" * 40, "9" * 5000, "0x10", "é", "1.5", "--")


def flags(rng: random.Random, base: Path, room: Path) -> str:
    """Run a command with flags of odd values."""
    name = rng.choice(list(FLAGS))
    places: dict[str, list[object]] = {
        "generate": generate(base / "packed", rng),
        "pack": [base / "model", room / "out", "--scheme", "mx", "--jobs", "1"],
        "system estimate": [*ESTIMATE, "--gamma", "3"],
        "rtl": ["--out", room / "rtl"],
    }
    chosen = rng.sample(FLAGS[name], rng.choice((1, 1, 2)))
    odd = [word for flag in chosen for word in (flag, rng.choice(WORDS))]
    return command([*name.split(), *places[name], *odd])


def requests(rng: random.Random, base: Path, room: Path) -> str:
    """Send requests of odd fields: each is refused by name, or replies as without drafts."""
    accepted = 0
    with opened(base / "bytes/packed") as client:
        for _ in range(REQUESTS):
            kind = rng.choice(list(FIELDS))
            body = body_of(kind, rng)
            for _ in range(rng.choice((0, 0, 1, 2))):
                body = mutated(body, rng)
            choices = ask(client, kind, body)
            accepted += choices is not None
            if choices and (not body.get("temperature") or body.get("seed") is not None):
                plain = ask_plainly(client, kind, body)
                assert whole(plain or []) == whole(choices), body
    return "accepted" if accepted else "refused"


def command(argv: list[object]) -> str:
    """Run a command, which must end with 0, or with 2 and one line that is not too long."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(word) for word in argv])
        except SystemExit as end:  # of argparse
            code = end.code if isinstance(end.code, int) else 1
    lines = [line for line in err.getvalue().splitlines() if line.strip()]
    assert code in (0, 2), (argv, code, lines[-3:])
    if code == 2:
        last = lines[-1]
        assert "error: " in last, (argv, lines[-3:])
        assert len(last) <= LONGEST_LINE, (argv, last)
        assert not any(line.startswith("Traceback") for line in lines), (argv, lines[-3:])
    return "refused" if code else "accepted"


Case = Callable[[random.Random, Path, Path], str]

CAMPAIGNS: dict[str, tuple[Case, float]] = {
    "packed files": (packed_file, 0.15),
    "packed tensors in memory": (packed_memory, 0.15),
    "weights of an engine in memory": (engine_memory, 0.1),
    "GGUF files": (gguf_file, 0.15),
    "directories through commands": (directory, 0.2),
    "flags of commands": (flags, 0.15),
    "requests to a server": (requests, 0.1),
}
"""Cases by name, with the part of the time that each has."""
