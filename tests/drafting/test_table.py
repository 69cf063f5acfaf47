"""The table of n-grams against counting with dictionaries, and files that are not one."""

from __future__ import annotations

import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassandra_spec.drafting import NgramTable
from cassandra_spec.drafting.table import CONTINUATIONS, ENTRY_BYTES, TOKEN_BITS, TRUST
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.file.description import canonical

Runs = dict[tuple[int, ...], "Counter[int]"]
TEXT = [[1, 2, 3, 1, 2, 4, 1, 2, 3], [5, 1, 2, 6, 0, 9], [7]]
SEQUENCES = st.lists(st.lists(st.integers(0, 4), max_size=30), max_size=4)


def count(sequences: list[list[int]], order: int) -> Runs:
    found: Runs = defaultdict(Counter)
    for tokens in sequences:
        for end in range(1, len(tokens)):
            for length in range(1, min(order, end) + 1):
                found[tuple(tokens[end - length : end])][tokens[end]] += 1
    return found


def candidates(
    runs: Runs, order: int, smoothing: float, tail: list[int]
) -> list[tuple[int, float]]:
    found: list[tuple[int, float]] = []
    for length in range(order, 0, -1):
        counts = runs.get(tuple(tail[-length:]), Counter()) if len(tail) >= length else Counter()
        total = sum(counts.values())
        for token, times in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3]:
            if token not in [other for other, _ in found]:
                found.append((token, TRUST.get(length, 1.0) * times / (total + smoothing)))
    return found


@given(SEQUENCES, st.integers(1, 3), st.integers(1, 3), st.floats(0, 3), st.data())
def test_candidates_are_those_of_counting_with_dictionaries(
    sequences: list[list[int]], order: int, least: int, smoothing: float, data: st.DataObject
) -> None:
    table = NgramTable.count(
        sequences, vocabulary=5, order=order, min_count=least, smoothing=smoothing
    )
    runs = count(sequences, order)
    runs = {run: counts for run, counts in runs.items() if counts.total() >= least}
    assert len(table) == len(runs)
    tail = data.draw(st.lists(st.integers(0, 4), max_size=5))
    expected = candidates(runs, order, smoothing, tail)
    found = table.candidates(tail)
    assert [token for token, _ in found] == [token for token, _ in expected]
    assert [share for _, share in found] == pytest.approx([share for _, share in expected])


@given(SEQUENCES, st.integers(0, 30))
def test_a_limit_keeps_what_is_frequent_and_short_runs_of_equals(
    sequences: list[list[int]], most: int
) -> None:
    table = NgramTable.count(sequences, vocabulary=5, max_bytes=most * ENTRY_BYTES + 1)
    runs = count(sequences, 3)
    ranked = sorted(runs, key=lambda run: (-runs[run].total(), len(run), run))[:most]
    assert len(table) == len(ranked)
    for order, each in zip((3, 2, 1), table.orders, strict=True):
        expected = [sum(t << TOKEN_BITS * (order - 1 - at) for at, t in enumerate(run))
                    for run in sorted(ranked) if len(run) == order]  # fmt: skip
        assert each.keys.tolist() == expected


def test_no_text_makes_an_empty_table(tmp_path: Path) -> None:
    table = NgramTable.count([], vocabulary=5)
    table.save(tmp_path / "t", {})
    assert (len(table), table.candidates([1, 2, 3])) == (0, [])
    assert len(NgramTable.load(tmp_path / "t", vocabulary=5)) == 0


def test_tokens_of_the_largest_vocabulary_have_keys() -> None:
    last = (1 << TOKEN_BITS) - 1
    table = NgramTable.count([[last] * 5], vocabulary=1 << TOKEN_BITS, smoothing=0)
    assert table.candidates([0, last, last, last]) == [(last, 1.0)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocabulary": (1 << 21) + 1}, "vocabulary must be from 1 to 2097152, not 2097153"),
        ({"order": 4}, "order must be from 1 to 3, not 4"),
        ({"order": 0}, "order must be from 1 to 3, not 0"),
        ({"vocabulary": 9}, "tokens must be from 0 to 8, not 9"),
    ],
)
def test_what_cannot_be_counted_is_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(CassandraError, match=message):
        NgramTable.count(TEXT, **{"vocabulary": 10, **change})


# --- files ---------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "table.safetensors"
    NgramTable.count(TEXT, vocabulary=10).save(path, {"model_digest": "abc", "tokens": 16})
    return path


def change_header(
    path: Path, change: Callable[[dict[str, Any]], object], *, shift: int = 0
) -> None:
    """Change a header and its checksum."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    text = text.ljust(-(-len(text) // 8) * 8 + shift)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])


def seal(header: dict[str, Any], body: dict[str, Any]) -> None:
    body.pop("crc32", None)
    body["crc32"] = zlib.crc32(canonical(body).encode())
    header["__metadata__"]["cassandra"] = json.dumps(body)


def change_about(path: Path, **entries: object) -> None:
    def change(header: dict[str, Any]) -> None:
        body = json.loads(header["__metadata__"]["cassandra"])
        body["about"] |= entries
        seal(header, body)

    change_header(path, change)


def change_data(path: Path, name: str, place: tuple[int, ...], value: float) -> None:
    """Put a value into an array, and its checksum into the header."""
    dtype = {"keys": "<u8", "tokens": "<i4", "confidences": "<f4"}[name.split(".")[0]]
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[:8], "little")
    entry = json.loads(data[8 : 8 + size])[name]
    start, stop = (8 + size + offset for offset in entry["data_offsets"])
    array = np.frombuffer(data, dtype, (stop - start) // np.dtype(dtype).itemsize, start)
    array.reshape(entry["shape"])[place] = value
    checksum = zlib.crc32(bytes(data[start:stop]))
    path.write_bytes(data)

    def change(header: dict[str, Any]) -> None:
        body = json.loads(header["__metadata__"]["cassandra"])
        body["others"][name]["crc32"] = checksum
        seal(header, body)

    change_header(path, change)


@given(sequences=SEQUENCES)
def test_a_file_has_what_was_saved(
    sequences: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    table = NgramTable.count(sequences, vocabulary=5)
    table.save(path, {"model_digest": "abc"})
    read = NgramTable.load(path, vocabulary=5, owner={"model_digest": "abc"})
    for one, two in zip(table.orders, read.orders, strict=True):
        for name in ("keys", "tokens", "confidences"):
            saved, loaded = getattr(one, name), getattr(two, name)
            assert (saved.dtype, saved.shape) == (loaded.dtype, loaded.shape)
            np.testing.assert_array_equal(saved, loaded)
            assert loaded.ctypes.data % loaded.itemsize == 0


def test_a_file_is_mapped_and_cannot_be_written_through(file: Path) -> None:
    for each in NgramTable.load(file, vocabulary=10).orders:
        assert not each.keys.flags.owndata
        assert not each.keys.flags.writeable


def test_a_table_is_for_all_models_with_its_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "t"
    digests = {"model_digest": "abc", "tokenizer_digest": "def"}
    NgramTable.count(TEXT, vocabulary=10).save(path, digests)
    NgramTable.load(path, vocabulary=10, owner=digests | {"model_digest": "other"})
    for owner in ({"model_digest": "abc"}, digests | {"tokenizer_digest": "other"}):
        with pytest.raises(CassandraError, match="tokenizer_digest must be the model's"):
            NgramTable.load(path, vocabulary=10, owner=owner)


@pytest.mark.parametrize(
    ("vocabulary", "digest", "message"),
    [
        (9, "abc", "tokens.3 must be from 0 to 8, or -1 .*, not 9"),
        (10, "xyz", "model_digest must be the model's, xyz, not 'abc'"),
        (1 << 22, "abc", "vocabulary must be from 1 to 2097152, not 4194304"),
    ],
)
def test_a_table_of_another_model_is_refused(
    vocabulary: int, digest: str, message: str, file: Path
) -> None:
    with pytest.raises(CassandraError, match=message):
        NgramTable.load(file, vocabulary=vocabulary, owner={"model_digest": digest})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("keys.3", (0,), 1 << 63), "keys.3 must be ascending, each once, not "),
        (
            ("keys.3", (-1,), 1 << 63),
            "keys.3 must be of 3 tokens from 0 to 9, not 9223372036854775808",
        ),
        (("keys.2", (-1,), 1 << 42), "keys.2 must be of 2 tokens from 0 to 9, not 4398046511104"),
        (("keys.1", (-1,), 10), "keys.1 must be of 1 tokens from 0 to 9, not 10"),
        (("keys.1", (1,), 0), "keys.1 must be ascending, each once, not 0"),
        (("tokens.1", (0, 0), 10), "tokens.1 must be from 0 to 9, or -1 behind .*, not 10"),
        (("tokens.1", (0, 0), -1), "tokens.1 must be from 0 to 9, or -1 behind .*, not -1"),
        (("tokens.1", (0, 1), -2), "tokens.1 must be from 0 to 9, or -1 behind .*, not -2"),
        (("tokens.1", (0, 2), 1), "tokens.1 must be from 0 to 9, or -1 behind .*, not 1"),
        (("confidences.2", (0, 0), np.nan), "confidences.2 must be from 0 to 1.*, not nan"),
        (("confidences.2", (0, 0), -0.5), "confidences.2 must be from 0 to 1.*, not -0.5"),
        (("confidences.2", (0, 0), 1.5), "confidences.2 must be from 0 to 1.*, not 1.5"),
        (("confidences.1", (0, 2), 0.5), "confidences.1 must be .* 0 where .* no token, not 0.5"),
    ],
)
def test_wrong_content_is_refused(
    change: tuple[str, tuple[int, ...], float], message: str, file: Path
) -> None:
    change_data(file, *change)
    with pytest.raises(CassandraError, match=message) as caught:
        NgramTable.load(file, vocabulary=10)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"kind": "other"}, "must be a table of n-grams"),
        ({"order": 4}, "must be a table of n-grams"),
        ({"order": "3"}, "must be a table of n-grams"),
        ({"order": 2}, r"\.3 must be an array of a table, and is not"),
    ],
)
def test_a_wrong_description_is_refused(
    entries: dict[str, object], message: str, file: Path
) -> None:
    change_about(file, **entries)
    with pytest.raises(CassandraError, match=message):
        NgramTable.load(file, vocabulary=10)


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "message"),
    [
        ("keys.1", "I64", None, "keys.1 must be U64, not I64"),
        ("tokens.1", "U32", None, "tokens.1 must be I32, not U32"),
        (
            "confidences.1",
            "F32",
            lambda n: [n * CONTINUATIONS],
            "confidences.1 must have the shape",
        ),
        ("tokens.1", "I32", lambda n: [CONTINUATIONS, n], "tokens.1 must have the shape"),
        ("keys.1", "U64", lambda n: [], "must be a whole safetensors file"),
    ],
)
def test_wrong_dtypes_and_shapes_are_refused(
    name: str, dtype: str, shape: Callable[[int], list[int]] | None, message: str, file: Path
) -> None:
    def change(header: dict[str, Any]) -> None:
        body = json.loads(header["__metadata__"]["cassandra"])
        for entry in (header[name], body["others"][name]):
            entry["dtype"] = dtype
            entry["shape"] = shape(entry["shape"][0]) if shape else entry["shape"]
        seal(header, body)

    change_header(file, change)
    with pytest.raises(CassandraError, match=message):
        NgramTable.load(file, vocabulary=10)


def test_arrays_that_lie_askew_are_refused(file: Path) -> None:
    change_header(file, lambda header: None, shift=4)
    with pytest.raises(CassandraError, match=r"keys\.3 must start at a multiple of 8, not at"):
        NgramTable.load(file, vocabulary=10)


def test_a_changed_byte_a_cut_and_another_file_are_refused(file: Path) -> None:
    data = file.read_bytes()
    for place in (-1, len(data) // 2, 200):
        damaged = bytearray(data)
        damaged[place] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(CassandraError):
            NgramTable.load(file, vocabulary=10)
    file.write_bytes(data[:-1])
    with pytest.raises(CassandraError, match="must be a whole safetensors file"):
        NgramTable.load(file, vocabulary=10)
    with pytest.raises(CassandraError, match="must be a file"):
        NgramTable.load(file.with_name("absent"), vocabulary=10)
