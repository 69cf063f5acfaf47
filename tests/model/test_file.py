from __future__ import annotations

import json
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors import safe_open

from cassandra_spec.golden import CassandraError, FileError, Format, Packed
from cassandra_spec.golden.codec import encode
from cassandra_spec.golden.file import PackedFile, PackedTensor, RawTensor, SafetensorsFile, Writer
from cassandra_spec.golden.file.description import PARTS

FORMATS = {
    "unary": Format(segment=256),
    "unary coded": Format(segment=256, pruned_exponent="coded"),
    "mx": Format(scheme="mx", segment=256),
    "exact": Format(scheme="exact", segment=256, truncated=0),
}
Plan = dict[str, RawTensor | PackedTensor]

NORM = np.arange(6, dtype=np.uint16) + 0x3F80
ODD = np.array([1, 0, 1], np.uint8)


def bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)


def packed_tensors() -> dict[str, Packed]:
    rng = np.random.default_rng(3)
    return {
        name: encode(
            rng.integers(0x3D00, 0x4000, 600).astype(np.uint16), format_, kept=rng.random(600) < 0.6
        )
        for name, format_ in FORMATS.items()
    }


def write_sample(path: Path) -> dict[str, Packed]:
    tensors = packed_tensors()
    plan: Plan = {
        name: PackedTensor(format=packed.format, shape=(20, 30)) for name, packed in tensors.items()
    }
    plan['norm é"\\'] = RawTensor(dtype="BF16", shape=(2, 3), nbytes=12)
    plan["empty"] = RawTensor(dtype="BF16", shape=(0, 5), nbytes=0)
    plan["odd"] = RawTensor(dtype="BOOL", shape=(3,), nbytes=3)
    with Writer(path, plan) as writer:
        for name, packed in tensors.items():
            writer.write_packed(name, packed)
        writer.write_raw('norm é"\\', [bytes_of(NORM)[:5], bytes_of(NORM)[5:]])
        writer.write_raw("empty", [])
        writer.write_raw("odd", [ODD])
    return tensors


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    write_sample(tmp_path / "sample.safetensors")
    return tmp_path / "sample.safetensors"


def assert_same_packed(found: Packed, expected: Packed) -> None:
    for part in ("speculation", "verification", "directory"):
        np.testing.assert_array_equal(getattr(found, part), getattr(expected, part))
    for field in ("format", "count", "codebook", "pruned_codebook"):
        assert getattr(found, field) == getattr(expected, field)
    assert dict(found.stream_bits) == dict(expected.stream_bits)


def test_what_is_written_is_read(sample: Path) -> None:
    packed = PackedFile(sample)
    expected = packed_tensors()
    assert set(packed.tensors) == set(expected)
    for name, tensor in expected.items():
        assert packed.tensors[name].shape == (20, 30)
        assert_same_packed(packed.read_packed(name), tensor)
    np.testing.assert_array_equal(packed.read_raw('norm é"\\').view(np.uint16), NORM)
    assert packed.others["empty"] == RawTensor(dtype="BF16", shape=(0, 5), nbytes=0)
    assert packed.read_raw("empty").size == 0
    assert packed.verify() == 3 * len(expected) + 3


def test_a_tensor_of_no_values(tmp_path: Path) -> None:
    empty = encode(np.zeros(0, np.uint16), Format())
    with Writer(
        tmp_path / "x.safetensors", {"a": PackedTensor(format=Format(), shape=(0, 7))}
    ) as out:
        out.write_packed("a", empty)
    assert_same_packed(PackedFile(tmp_path / "x.safetensors").read_packed("a"), empty)


def test_the_safetensors_library_reads_the_file(sample: Path) -> None:
    packed = packed_tensors()["mx"]
    with safe_open(sample, framework="np") as file:
        np.testing.assert_array_equal(file.get_tensor("mx.speculation"), packed.speculation)
        np.testing.assert_array_equal(file.get_tensor("mx.directory"), packed.directory)
        assert json.loads(file.metadata()["cassandra"])["version"] == 1
    with safe_open(sample, framework="pt") as file:
        norm = file.get_tensor('norm é"\\')
    assert (norm.dtype, tuple(norm.shape)) == (torch.bfloat16, (2, 3))
    assert norm.view(torch.int16).flatten().tolist() == NORM.tolist()


def header_of(path: Path) -> tuple[bytes, bytes]:
    """Return the header and the data of a file, by the layout that safetensors documents."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    return content[8 : 8 + size], content[8 + size :]


def test_the_header_fills_its_room_with_spaces_and_the_data_have_no_holes(sample: Path) -> None:
    text, data = header_of(sample)
    assert len(text) % 8 == 0
    assert text.rstrip(b" ").endswith(b"}")
    entries = json.loads(text)
    del entries["__metadata__"]
    ends = sorted(tuple(entry["data_offsets"]) for entry in entries.values())
    assert [0, *(stop for _, stop in ends)] == [*(start for start, _ in ends), len(data)]


def test_the_room_is_that_of_the_longest_header(tmp_path: Path) -> None:
    """A tensor that uses every entry of every field to its end still fits."""
    fmt = Format(codebook=32, pruned_exponent="coded", segment=32)
    values = ((np.arange(100 * 62) % 62 + 190) << 7).astype(np.uint16)
    packed = encode(values, fmt)
    assert len(packed.codebook) == 32
    assert len(packed.pruned_codebook) >= 30
    plan: Plan = {f"t{number}": PackedTensor(format=fmt, shape=(100, 62)) for number in range(20)}
    with Writer(tmp_path / "x.safetensors", plan) as writer:
        for name in plan:
            writer.write_packed(name, packed)
    assert PackedFile(tmp_path / "x.safetensors").verify() == 60


def test_writing_and_reading_take_the_memory_of_a_piece(tmp_path: Path) -> None:
    size, piece = 1 << 24, 1 << 18
    path = tmp_path / "big.safetensors"

    def chunks() -> Iterator[NDArray[np.uint8]]:
        for _ in range(size // piece):
            yield np.zeros(piece, np.uint8)

    tracemalloc.start()
    plan: Plan = {name: RawTensor(dtype="U8", shape=(size,), nbytes=size) for name in ("a", "b")}
    with Writer(path, plan) as writer:
        for name in plan:
            writer.write_raw(name, chunks())
    file = SafetensorsFile(path)
    for start in range(0, size, piece):
        assert not file.read("b", start, start + piece).any()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * piece


# --- nothing or the whole -----------------------------------------------------------------------

FOUR = np.arange(4, dtype=np.uint8)
ONE = {"a": RawTensor(dtype="U8", shape=(4,), nbytes=4)}


def write_and_raise(path: Path, error: BaseException) -> None:
    with Writer(path, ONE) as writer:
        writer.write_raw("a", [np.zeros(4, np.uint8)])
        raise error


@pytest.mark.parametrize("error", [OSError("disk"), KeyboardInterrupt(), CassandraError("x")])
def test_an_exception_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: BaseException
) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"old")
    with pytest.raises(type(error)):
        write_and_raise(path, error)
    assert [file.name for file in tmp_path.iterdir()] == ["x.safetensors"]
    assert path.read_bytes() == b"old"


def write(path: Path, plan: dict[str, Any], steps: Callable[[Writer], object]) -> None:
    with Writer(path, plan) as writer:
        steps(writer)


@pytest.mark.parametrize(
    ("plan", "steps", "message"),
    [
        (ONE, lambda w: None, "a must be written before the file is closed"),
        (ONE, lambda w: w.write_raw("b", []), "the next tensor must be a, as planned, not b"),
        (ONE, lambda w: w.write_raw("a", [np.zeros(3, np.uint8)]), "a must have 4 bytes.*not 3"),
        (
            ONE,
            lambda w: w.write_packed("a", encode(NORM, Format())),
            "a must be written raw, as planned, not packed",
        ),
        (
            {"a": PackedTensor(format=Format(), shape=(6,))},
            lambda w: w.write_raw("a", []),
            "a must be written packed, as planned, not raw",
        ),
        (
            {"a": PackedTensor(format=Format(), shape=(7,))},
            lambda w: w.write_packed("a", encode(NORM, Format())),
            "a must have the format and size of its plan",
        ),
    ],
)
def test_what_was_not_planned_is_refused(
    tmp_path: Path, plan: dict[str, Any], steps: Callable[[Writer], object], message: str
) -> None:
    with pytest.raises(CassandraError, match=message):
        write(tmp_path / "x.safetensors", plan, steps)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a.directory", "__metadata__"])
def test_names_that_collide_are_refused(tmp_path: Path, name: str) -> None:
    plan: Plan = {"a": PackedTensor(format=Format(), shape=(7,)), name: ONE["a"]}
    with pytest.raises(CassandraError, match="tensor names must be distinct"):
        Writer(tmp_path / "x.safetensors", plan)
    assert list(tmp_path.iterdir()) == []


# --- broken files -------------------------------------------------------------------------------


def read_everything(path: Path) -> dict[str, Any]:
    packed = PackedFile(path)
    return {
        **{name: packed.read_packed(name) for name in packed.tensors},
        **{name: packed.read_raw(name) for name in packed.others},
    }


def small_file(path: Path) -> Path:
    packed = encode(NORM, Format(beat=8, group=8, segment=8))
    plan: Plan = {
        "w": PackedTensor(format=packed.format, shape=(2, 3)),
        "n": RawTensor(dtype="BF16", shape=(6,), nbytes=12),
    }
    with Writer(path, plan) as writer:
        writer.write_packed("w", packed)
        writer.write_raw("n", [bytes_of(NORM)])
    return path


def test_no_flipped_bit_gives_other_contents(tmp_path: Path) -> None:
    path = small_file(tmp_path / "x.safetensors")
    content = path.read_bytes()
    expected = read_everything(path)
    header = len(header_of(path)[0]) + 8
    messages = []
    for place in range(len(content)):
        broken = bytearray(content)
        broken[place] ^= 1 << place % 8
        path.write_bytes(broken)
        try:
            contents = read_everything(path)
        except FileError as error:
            messages.append(str(error))
            continue
        assert place < header, "a flipped bit of the data must be found"
        assert_same_packed(contents["w"], expected["w"])
        np.testing.assert_array_equal(contents["n"], expected["n"])
    assert all(str(path) in message and "\n" not in message for message in messages)
    assert len(messages) > len(content) - 40  # what remains is the value of "format" and the like


def test_every_truncation_is_found(tmp_path: Path) -> None:
    path = small_file(tmp_path / "x.safetensors")
    content = path.read_bytes()
    for size in [*range(0, 300), *range(300, len(content), 7)]:
        path.write_bytes(content[:size])
        with pytest.raises(FileError, match="must be a whole safetensors file, not one"):
            PackedFile(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "of fewer than 8 bytes"),
        (b"plain text, longer than eight bytes", "of another kind"),
        (struct.pack("<Q", 100) + b"{}", "truncated inside its header"),
        (struct.pack("<Q", 2) + b"{}x", "truncated, or with bytes of no tensor"),
        (struct.pack("<Q", 3) + b"[1]", "invalid JSON"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(FileError, match=message):
        SafetensorsFile(tmp_path / "x")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="must be a file, and is missing"):
        SafetensorsFile(tmp_path / "x")
    with pytest.raises(FileError, match="must be a file, and is a directory"):
        SafetensorsFile(tmp_path)


def test_holes_in_the_data_are_refused(tmp_path: Path) -> None:
    entries = {
        "a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
        "b": {"dtype": "U8", "shape": [2], "data_offsets": [3, 5]},
    }
    text = json.dumps(entries).encode()
    (tmp_path / "x").write_bytes(struct.pack("<Q", len(text)) + text + b"12345")
    with pytest.raises(FileError, match="invalid offset for tensor `b`"):
        SafetensorsFile(tmp_path / "x")


def test_an_ordinary_file_is_not_a_packed_model(tmp_path: Path) -> None:
    write(tmp_path / "x", ONE, lambda w: w.write_raw("a", [np.zeros(4, np.uint8)]))
    with pytest.raises(FileError, match="must be a packed model: its metadata has no 'cassandra'"):
        PackedFile(tmp_path / "x")


def rewrite(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> Path:
    """Change the header and the description of a file, and make its checksum right again."""
    text, data = header_of(path)
    header = json.loads(text)
    body = json.loads(header["__metadata__"]["cassandra"])
    del body["crc32"]
    change(header, body)
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    body["crc32"] = zlib.crc32(canonical.encode())
    header["__metadata__"]["cassandra"] = json.dumps(body)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def in_entry(**changes: Any) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    return lambda header, body: body["tensors"]["w"].update(changes)


def in_body(**changes: Any) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    return lambda header, body: body.update(changes)


def test_unknown_keys_are_ignored(tmp_path: Path) -> None:
    path = rewrite(small_file(tmp_path / "x"), in_body(future=[1]))
    rewrite(path, in_entry(future={"a": 1}))
    np.testing.assert_array_equal(PackedFile(path).read_raw("n").view(np.uint16), NORM)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (in_body(version=2), "version must be 1, not 2"),
        (in_body(tensors=[]), r"tensors must be an object, not \[\]"),
        (in_body(others=None), "others must be an object, not None"),
        (in_body(others={}), "n must be in the entry 'cassandra', and is not"),
        (in_body(others={"m": {}}), "must have a tensor m, and has none of that name"),
        (in_body(others={"n": 3}), "n must be an object, not 3"),
        (
            in_body(others={"n": {"dtype": "F16", "shape": [6], "crc32": 1}}),
            r"n must be F16 \[6\], not BF16 \[6\]",
        ),
        (in_body(others={"n": {"dtype": "BF16", "shape": [6]}}), "n must have a CRC-32"),
        (in_entry(format={"scheme": "other"}), "w: scheme must be"),
        (in_entry(format=None), "format must be an object, not None"),
        (in_entry(format={"colour": 1}), "w: format field must be one of"),
        (in_entry(shape=[-6]), r"w: shape must be a list of numbers to \d+, not \[-6\]"),
        (in_entry(shape=[600]), r"w.directory must be U32 \[75, 5\], not U32 \[1, 5\]"),
        (in_entry(codebook=[1, 1]), "w: codebook must list at most 16 exponents, each once"),
        (in_entry(codebook=list(range(17))), "w: codebook must list at most 16 exponents"),
        (in_entry(codebook=[256]), r"w: codebook must be a list of numbers to 255, not \[256\]"),
        (in_entry(codebook=[True]), "w: codebook must be a list of numbers"),
        (in_entry(crc32={"speculation": 1}), "w must have a CRC-32 of every part"),
        (in_entry(stream_bits={"low": "x"}), "w: stream_bits must be an object of numbers"),
        (
            in_entry(stream_bits={"low": 10**400}),
            r"stream_bits must be an object of .*\d+",
        ),
        (in_entry(crc32=dict.fromkeys(PARTS, 1 << 32)), "w: crc32 must be an object of numbers to"),
        (in_entry(shape=[1] * 65), "w: shape must have at most 64 dimensions, not 65"),
        (
            lambda h, b: b["tensors"].update(n=b["tensors"]["w"]),
            "must have a tensor n.speculation",
        ),
        (
            lambda h, b: b["others"].update(
                {"w.directory": {"dtype": "U32", "shape": [1, 5], "crc32": 0}}
            ),
            "w.directory must be packed or plain in the entry 'cassandra', not both",
        ),
        (lambda h, b: b["tensors"]["w"].pop("codebook"), "w must have a codebook"),
        (lambda h, b: b["tensors"].update(w=1), "w must be an object, not 1"),
        (lambda h, b: b["tensors"].update(v=b["tensors"]["w"]), "a tensor v.speculation"),
        (
            lambda h, b: h["w.speculation"].update(dtype="I8"),
            r"w.speculation must be U8 \[128\], not I8 \[128\]",
        ),
    ],
)
def test_a_wrong_description_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any], dict[str, Any]], object], message: str
) -> None:
    path = rewrite(small_file(tmp_path / "x"), change)
    with pytest.raises(FileError, match=message) as caught:
        PackedFile(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["no json", "[" * 100_000, "3"])
def test_a_description_must_be_a_json_object(tmp_path: Path, text: str) -> None:
    path = small_file(tmp_path / "x")
    content, data = header_of(path)
    header = json.loads(content)
    header["__metadata__"]["cassandra"] = text
    content = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(content)) + content + data)
    with pytest.raises(FileError, match="the entry 'cassandra' must be"):
        PackedFile(path)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (0, 1, "w.directory must cover w.speculation without holes"),
        (1, 2, "w.directory must cover w.speculation without holes"),
        (3, 0, "w.directory must cover w.verification without holes"),
        (4, 2, "w.directory must have flags of 0 or 1"),
    ],
)
def test_a_directory_must_fit_the_arrays(
    tmp_path: Path, column: int, value: int, message: str
) -> None:
    path = small_file(tmp_path / "x")
    text, data = header_of(path)
    start, stop = json.loads(text)["w.directory"]["data_offsets"]
    directory = np.frombuffer(data[start:stop], np.uint32).copy()
    directory[column] = value
    path.write_bytes(
        path.read_bytes()[: 8 + len(text)] + data[:start] + directory.tobytes() + data[stop:]
    )
    checksum = zlib.crc32(directory.tobytes())
    rewrite(path, lambda header, body: body["tensors"]["w"]["crc32"].update(directory=checksum))
    with pytest.raises(FileError, match=message):
        PackedFile(path).read_packed("w")


def test_a_checksum_names_the_tensor_and_its_part(tmp_path: Path) -> None:
    path = small_file(tmp_path / "x")
    rewrite(path, lambda header, body: body["tensors"]["w"]["crc32"].update(verification=0xAB))
    with pytest.raises(
        FileError, match=r"x: w\.verification must have the CRC-32 000000ab, not [0-9a-f]{8}$"
    ):
        PackedFile(path).read_packed("w")


def test_a_name_that_is_not_there(tmp_path: Path) -> None:
    packed = PackedFile(small_file(tmp_path / "x"))
    with pytest.raises(FileError, match="must have a tensor v, and has none of that name"):
        packed.read_packed("v")
    with pytest.raises(FileError, match="must have a tensor w, and has none of that name"):
        packed.read_raw("w")


def test_what_a_file_says_about_itself_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with Writer(path, ONE, about={"kind": "test", "n": [1, 2]}) as writer:
        writer.write_raw("a", [FOUR])
    file = PackedFile(path)
    assert file.about == {"kind": "test", "n": [1, 2]}
    np.testing.assert_array_equal(file.map_raw("a"), file.read_raw("a"))


def test_a_digest_is_of_the_contents(tmp_path: Path) -> None:
    digests = []
    for values, about in ((FOUR, {}), (FOUR, {}), (FOUR + 1, {}), (FOUR, {"n": 1})):
        path = tmp_path / "x.safetensors"
        with Writer(path, ONE, about=about) as writer:
            writer.write_raw("a", [values])
        digests.append(PackedFile(path).digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_a_file_that_shrinks_is_refused(sample: Path) -> None:
    file = SafetensorsFile(sample)
    name = max(file.tensors, key=lambda name: file.tensors[name].nbytes)
    sample.write_bytes(sample.read_bytes()[:5000])
    for read in (file.read, file.map):
        with pytest.raises(FileError, match="must not shrink while it is read"):
            read(name)
