"""The SoC of examples/soc: its image of memory, and a run where its tools are installed."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from cassandra_spec.golden import decode_target
from cassandra_spec.golden.packed import Packed
from examples.soc import image, run

BUILD = Path(__file__).parents[2] / "build" / "soc"
FIELDS = 2 + 13  # words of a struct tensor


def words_of(data: bytes, place: int, count: int) -> tuple[int, ...]:
    return struct.unpack_from(f"<{count}I", data, place)


def test_the_firmware_finds_every_array_of_every_tensor() -> None:
    rng = np.random.default_rng(1)
    values = (rng.normal(size=300).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    packed = image.tensors(values, 128)
    data = image.image(packed)
    output, count, *places = words_of(data, 0, 2 + len(packed))
    assert output == image.BASE + len(data)
    assert count == len(packed)
    for place, (name, tensor) in zip(places, packed.items(), strict=True):
        assert data[place : place + 8].rstrip(b"\0").decode() == name
        check_tensor(data[place:], tensor)


def check_tensor(data: bytes, tensor: Packed) -> None:
    words = words_of(data, 0, FIELDS)[2:]
    speculation, verification, directory, book, size = words[6:11]
    assert words[0] == len(tensor)
    assert words[5] == len(tensor.directory)
    assert not (speculation | verification) % image.ALIGNED
    for place, array in ((speculation, tensor.speculation), (verification, tensor.verification)):
        assert data[place : place + array.size] == array.tobytes()
    rows = np.frombuffer(data, "<u4", tensor.directory.size, directory)
    assert rows.tolist() == tensor.directory.ravel().tolist()
    assert tuple(data[book : book + size]) == tensor.codebook
    assert words[12] == image.checksum(decode_target(tensor))


def test_the_checksum_sees_order_and_every_bit() -> None:
    values = np.array([1, 2, 3], np.uint16)
    assert image.checksum(values) == (31 * 31 * 1 + 31 * 2 + 3)
    assert image.checksum(values[::-1]) != image.checksum(values)
    assert image.checksum(values ^ np.uint16(0x8000)) != image.checksum(values)


@pytest.mark.slow
def test_the_firmware_passes(capsys: pytest.CaptureFixture[str]) -> None:
    if not (BUILD / "env" / ".ready").exists():
        pytest.skip("`make soc` must have installed LiteX to run the SoC")
    assert run.main(["--out", str(BUILD), "--values", "2048", "--segment", "1024"]) == 0
    assert "PASS" in capsys.readouterr().out
