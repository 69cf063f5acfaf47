"""Arguments of native code are checked, and a call that fails there ends with an error."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cassandra_spec.golden import CassandraError
from cassandra_spec.native import NativeError
from cassandra_spec.native.arrays import int32, pointer
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.engine_binding import RoundRequest
from cassandra_spec.native.linear import NativeLinear, NativeStreams, time_layers
from tests.native.models import small

FULL = np.zeros((4, 6), dtype=np.float32)
READ_ONLY = FULL.copy()
READ_ONLY.flags.writeable = False
OUT_OF_MEMORY = """
import resource
import numpy as np
from cassandra_spec.native import NativeError
from cassandra_spec.native.linear import NativeLinear

with NativeLinear(np.zeros((1, 1 << 21), np.uint16), "bf16") as layer:
    x = np.zeros((1, 1 << 21), np.float32)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20),) * 2)
    try:
        layer.multiply(x)
    except NativeError as error:
        print(error)
"""


def test_an_array_that_fits_is_taken() -> None:
    assert pointer("x", FULL, np.float32, 4, 6, writable=True).address == FULL.ctypes.data


@pytest.mark.parametrize(
    "array",
    [
        FULL.astype(np.float64),
        FULL.astype(">f4"),
        FULL[:3],
        FULL.reshape(6, 4).T,
        np.zeros((4, 12), np.float32)[:, ::2],
        np.zeros(97, np.uint8)[1:].view(np.float32).reshape(4, 6),
        READ_ONLY,
    ],
    ids=["dtype", "byte order", "shape", "transposed", "strided", "not aligned", "read-only"],
)
def test_any_other_array_is_refused(array: NDArray[Any]) -> None:
    with pytest.raises(
        CassandraError, match=r"x must be contiguous, writable float32 \[4, 6\], not"
    ):
        pointer("x", array, np.float32, 4, 6, writable=True)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 10**400])
def test_numbers_beyond_32_bits_are_refused(value: int) -> None:
    with pytest.raises(CassandraError, match="low must be from -2147483648 to 2147483647"):
        int32("low", value)
    with pytest.raises(CassandraError, match="low must be from"):
        RoundRequest(model=1, low=value)


def test_a_group_that_wraps_around_to_a_legal_one_is_refused() -> None:
    with pytest.raises(CassandraError, match="group must be from"):
        NativeLinear(np.zeros((4, 4), np.uint16), "draft5", group=2**32 + 32)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int16])
@pytest.mark.parametrize("name", ["lm_head.weight", "model.layers.1.mlp.up_proj.weight"])
def test_a_tensor_of_another_dtype_is_refused(name: str, dtype: Any) -> None:
    config, tensors = small()
    tensors[name] = tensors[name].astype(dtype)
    with pytest.raises(CassandraError, match="must be contiguous uint16"):
        Engine.from_tensors(config, tensors, threads=1, pin=False)


def test_layers_are_timed_by_as_many_threads_as_they_were_made_for() -> None:
    with NativeLinear(np.zeros((4, 4), np.uint16), "bf16") as layer:
        with pytest.raises(NativeError, match="threads must be those of every layer, not 2"):
            time_layers([layer], 1, 1, 2)
        with pytest.raises(CassandraError, match="rows must be from 1 to 128, not 129"):
            time_layers([layer], 129, 1, 1)


def test_streams_outlive_their_layers() -> None:
    streams = NativeStreams(1)
    layer = NativeLinear(np.zeros((4, 4), np.uint16), "bf16", streams=streams)
    with pytest.raises(NativeError, match="streams must be closed after the layers in them"):
        streams.__exit__(None, None, None)
    assert not layer.values().any()
    layer.close()
    streams.__exit__(None, None, None)
    with pytest.raises(NativeError, match="the streams must be open, not closed"):
        NativeLinear(np.zeros((4, 4), np.uint16), "bf16", streams=streams)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the size of the process")
@pytest.mark.skipif(
    platform.machine() != os.uname().machine, reason="an emulated library has its own memory"
)
def test_memory_that_runs_out_in_a_call_is_an_error() -> None:
    # without sanitizers, which end a process that has no more memory
    left_out = ("LD_PRELOAD", "CASSANDRA_NATIVE_SANITIZE")
    run = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY],
        env={name: value for name, value in os.environ.items() if name not in left_out},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout == "there is not enough memory\n", run.stderr
    assert run.returncode == 0
