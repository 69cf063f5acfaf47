"""Faults that are drawn: their list, the journal, and proofs that a fault is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.verif.formal.prover import missing_tools
from cassandra_spec.verif.mutation.beside import equal_outputs
from cassandra_spec.verif.mutation.drawn import Drawn, Faulty, Journal, Result, draw, idle, summary

# A counter from 0 to 5, so `late` is never one.
VERILOG = """module top(input clk, input rst, output reg [2:0] y);
  initial y = 0;
  wire late;
  reg [2:0] count = 0;
  assign late = count > 3'd5;
  always @(posedge clk) begin
    count <= rst | (count == 3'd5) ? 3'd0 : count + 3'd1;
    y <= late ? 3'd7 : count;
  end
endmodule
"""
needs_yosys = pytest.mark.skipif(bool(missing_tools()), reason="Yosys is not there")


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Faulty:
    return draw(VERILOG, "top", 200, 1, tmp_path_factory.mktemp("drawn"))


@needs_yosys
def test_faults_have_numbers_and_places(faulty: Faulty) -> None:
    assert [fault.number for fault in faulty.faults] == list(range(1, len(faulty.faults) + 1))
    assert {fault.mode for fault in faulty.faults} <= {"const0", "const1", "inv", "cnot0", "cnot1"}
    assert all((fault.control is None) != fault.mode.startswith("cnot") for fault in faulty.faults)
    assert "input [9:0] fault;" in faulty.verilog


@needs_yosys
def test_a_bit_that_never_differs_is_no_fault_and_an_inverted_register_is_one(
    faulty: Faulty,
) -> None:
    late = next(
        f for f in faulty.faults if "$gt" in f.cell and f.port == "Y" and f.mode == "const0"
    )
    wrong = next(
        f for f in faulty.faults if "$procdff" in f.cell and f.port == "Q" and f.mode == "inv"
    )
    assert idle(faulty, [late, wrong], 5) == [True, False]
    assert equal_outputs(faulty.folder, "top", late.number, 10)
    assert not equal_outputs(faulty.folder, "top", wrong.number, 10)


def test_the_number_of_faults_is_limited(tmp_path: Path) -> None:
    with pytest.raises(CassandraError, match="--faults must be from 1 to 1023, not 1024"):
        draw(VERILOG, "top", 1024, 1, tmp_path)


def test_a_journal_continues_and_is_left_when_the_digest_changes(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "one")
    journal.add(Result(number=1, what="a", batch=""))
    journal.add(Result(number=2, what="b", batch="mixed"))
    journal.add(Result(number=1, what="a", proof="idle"))
    again = Journal(path, "one").latest()
    assert again[1].proof == "idle"
    assert again[2].batch == "mixed"
    assert Journal(path, "two").latest() == {}


def test_the_summary_names_what_is_left() -> None:
    results = [
        Result(number=1, what="a", batch="mixed"),
        Result(number=2, what="b", batch="always", timing=True),
        Result(number=3, what="c", proof="idle"),
        Result(number=4, what="inv of d"),
    ]
    text = summary("decoder", results)
    assert "4 faults, 1 found by what comes out, 1 by when" in text
    assert "1 (never active), 0 (no output differs); left: 1" in text
    assert text.endswith("  4: inv of d")


def test_a_fault_prints_its_place() -> None:
    fault = Drawn(number=7, mode="cnot0", cell="$add$1", port="A", bit=3, control=5)
    assert str(fault) == "cnot0 by 5 $add$1 A[3]"
