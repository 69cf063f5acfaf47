"""Unknown values: a segment through a decoder whose registers begin as X, and a planted fault."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import Format
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode.top import DecoderTop, to_verilog
from cassandra_spec.verif.decoder.jobs import jobs_of
from cassandra_spec.verif.icarus.simulation import packets, words_of_decoder
from cassandra_spec.verif.icarus.unknown import same_values, unknown, without_values
from cassandra_spec.verif.library.payloads import draw

TOP = DecoderTop(DecoderConfig(lanes=8, schemes=("mx",)))


def test_initial_values_of_registers_and_memories_go_and_others_stay() -> None:
    before = (
        "module a(clk);\n  input clk;\n  reg \\b$1  = 1'h1;\n  reg [7:0] m [3:0];\n"
        "  initial begin\n    m[0] = 8'h00;\n    m[1] = 8'h00;\n  end\n  reg c = 1'h0;\n"
        "  always @(posedge clk)\n    \\b$1  <= 1'h0;\n"
        "  always @(posedge clk)\n    m[0] <= 8'h00;\nendmodule\n"
    )
    after = without_values(before)
    assert "reg \\b$1 ;" in after
    assert "initial" not in after
    assert "reg c = 1'h0;" in after  # nothing is clocked into it


def test_lanes_that_a_beat_does_not_have_may_be_unknown() -> None:
    beats = [("40004000", "f", "0", "0"), ("xxxx3f80", "3", "1", "0"), ("xxxxxxxx", "0", "1", "1")]
    assert [*packets(beats)] == [(b"\x00\x40\x00\x40\x80\x3f", False), (b"", True)]


@pytest.mark.slow
def test_a_control_register_without_reset_is_found(tmp_path: Path) -> None:
    if shutil.which("iverilog") is None:
        pytest.skip("iverilog is not there: apt install iverilog")
    fmt = Format(scheme="mx", beat=8, group=32, segment=64)
    payload = draw(np.random.default_rng(1), fmt, 60, "weights")
    requests = [job.request for job in jobs_of(payload)]
    words, verilog = words_of_decoder(requests, TOP.config), to_verilog(TOP)
    found, cycles = unknown(TOP, verilog, tmp_path).run(words, len(requests))
    assert same_values(requests, found["values"])
    assert cycles > 20
    reset = "    if (rst) begin\n      \\$15  = 1'h0;\n    end\n"  # of `pending`
    assert verilog.count(reset) >= 1
    faulty = verilog.replace(reset, "", 1)
    with pytest.raises(CassandraError, match=r"unknown .* in cycle"):
        unknown(TOP, faulty, tmp_path).run(words, len(requests))
