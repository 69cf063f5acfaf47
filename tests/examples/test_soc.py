"""The SoC of examples/soc: its image of memory, what it needs, and its verdict."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from cassandra_spec.golden import decode_target
from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.packed import Values
from cassandra_spec.model.weights.sources import open_source
from examples.soc import image, run, values

FIELDS = 2 + 20  # words of a struct tensor
VECTOR = 64


def words_of(data: bytes, place: int, count: int) -> tuple[int, ...]:
    return struct.unpack_from(f"<{count}I", data, place)


def patterns(count: int) -> Values:
    numbers = np.random.default_rng(1).normal(size=count).astype(np.float32)
    return (numbers.view(np.uint32) >> 16).astype(np.uint16)


def tensors() -> list[image.Tensor]:
    return [
        *image.weights(patterns(300), 128),
        *image.key_values(patterns(192), patterns(320), VECTOR, 128),
    ]


def test_the_firmware_finds_every_array_of_every_tensor() -> None:
    packed = tensors()
    data = image.image(packed)
    output, count, *places = words_of(data, 0, 2 + len(packed))
    assert output == image.BASE + len(data)
    assert count == len(packed)
    for place, tensor in zip(places, packed, strict=True):
        assert data[place : place + 8].rstrip(b"\0").decode() == tensor.name
        check_tensor(data[place:], tensor)


def check_tensor(data: bytes, tensor: image.Tensor) -> None:
    packed, words = tensor.packed, words_of(data, 0, FIELDS)[2:]
    places, sizes = words[8:13], words[13:18]
    parts = [data[place : place + size] for place, size in zip(places, sizes, strict=True)]
    assert words[0] == len(packed)
    assert words[5] == len(packed.directory)
    assert words[6:8] == (tensor.vector, tensor.keep)
    assert not any(place % image.ALIGNED for place in places)
    plain = b"" if tensor.plain is None else tensor.plain.tobytes()
    assert parts[:3] == [plain, packed.speculation.tobytes(), packed.verification.tobytes()]
    assert np.frombuffer(parts[3], "<u4").tolist() == packed.directory.ravel().tolist()
    assert tuple(parts[4]) == packed.codebook
    assert words[19] == image.checksum(decode_target(packed))


def test_keys_come_back_whole_and_drafts_have_a_part() -> None:
    keys, _ = image.key_values(patterns(192), patterns(192), VECTOR, 128)
    assert keys.plain is not None
    assert np.array_equal(decode_target(keys.packed), keys.plain)
    assert keys.keep < keys.vector


def test_values_that_do_not_fit_the_memory_are_refused() -> None:
    with pytest.raises(CassandraError, match="values must fit a memory of 1048576 bytes"):
        image.image(image.weights(patterns(1 << 17), 16384))


def test_the_checksum_sees_order_and_every_bit() -> None:
    numbers = np.array([1, 2, 3], np.uint16)
    assert image.checksum(numbers) == (31 * 31 * 1 + 31 * 2 + 3)
    assert image.checksum(numbers[::-1]) != image.checksum(numbers)
    assert image.checksum(numbers ^ np.uint16(0x8000)) != image.checksum(numbers)


def test_keys_and_values_are_those_of_the_first_layer() -> None:
    source = open_source("smollm2")
    found = values.read(source, 1000)

    def tensor(name: str, stop: int | None = None) -> torch.Tensor:
        numbers = source.read(name, 0, stop).astype(np.uint32) << 16
        return torch.from_numpy(numbers.view(np.float32))

    rows = tensor("model.embed_tokens.weight", 3 * 576).reshape(3, 576)
    scale = tensor("model.layers.0.input_layernorm.weight")
    hidden = torch.nn.functional.rms_norm(rows, (576,), scale, 1e-5)
    for name, computed in (("k", found.keys), ("v", found.values)):
        weight = tensor(f"model.layers.0.self_attn.{name}_proj.weight").reshape(-1, 576)
        expected = torch.nn.functional.linear(hidden, weight).ravel().numpy()
        numbers = (computed.astype(np.uint32) << 16).view(np.float32)
        assert np.allclose(numbers, expected, rtol=2**-7, atol=1e-4)


def test_missing_packages_are_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    out = tmp_path / "soc"
    assert run.main(["--out", str(out)]) == 2
    assert not out.exists()
    [line] = capsys.readouterr().err.splitlines()
    assert "GCC for RISC-V" in line
    assert "apt install" in line
    assert "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf" in line


@pytest.mark.parametrize(
    ("printed", "last"),
    [("row  ok\\nPASS\\n- sim.v:1: Verilog $finish\\n", "PASS"), ("row  WRONG\\nFAIL\\n", "FAIL")],
)
def test_the_table_ends_with_the_verdict(tmp_path: Path, printed: str, last: str) -> None:
    command = [sys.executable, "-c", f'print("build\\nCassandra in a LiteX SoC\\n{printed}")']
    assert run.simulate(command, tmp_path).splitlines()[-1] == last


def test_a_simulation_that_prints_no_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CassandraError, match="the firmware must print a table"):
        run.simulate([sys.executable, "-c", "print('built')"], tmp_path)
