"""Faults that are drawn: their list, the journal, and proofs that a fault is none."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from cassandra_spec.golden import codec
from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import Format
from cassandra_spec.verif.decoder.bulk import requests_of
from cassandra_spec.verif.formal.prover import missing_tools
from cassandra_spec.verif.library.bulk import Traffic
from cassandra_spec.verif.mutation.batches import Batch, FaultyDecoder, Seen
from cassandra_spec.verif.mutation.drawn import (
    Drawn,
    Faulty,
    Journal,
    Result,
    Work,
    draw,
    left_to_run,
    prove_survivors,
    summary,
    tried_with,
)
from tests.verif import stand_in

# A block that counts from 0 to 5, so `late` is never one.
VERILOG = """module top(input clk, input rst, output [2:0] y);
  counter inner(.clk(clk), .rst(rst), .y(y));
endmodule

module counter(input clk, input rst, output reg [2:0] y);
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
NOTHING = Batch(name="nothing", requests=(), traffic=Traffic())
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
def test_a_survivor_that_is_none_is_proved(faulty: Faulty) -> None:
    late = next(
        f for f in faulty.faults if "$gt" in f.cell and f.port == "Y" and f.mode == "const0"
    )
    wrong = next(
        f for f in faulty.faults if "$procdff" in f.cell and f.port == "Q" and f.mode == "inv"
    )
    results = [Result(number=fault.number, what="") for fault in (late, wrong)]
    (proved,) = prove_survivors(faulty, results, 10)
    assert (proved.number, proved.proof) == (late.number, "1 cells")


def test_the_number_of_faults_is_limited(tmp_path: Path) -> None:
    with pytest.raises(CassandraError, match="--faults must be from 1 to 1023, not 1024"):
        draw(VERILOG, "top", 1024, 1, tmp_path)


def test_a_journal_continues_and_is_left_when_the_digest_changes(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, "one")
    journal.add(Result(number=1, what="a", batch=""))
    journal.add(Result(number=2, what="b", batch="mixed", ran=("1", "2")))
    journal.add(Result(number=1, what="a", proof="3 cells"))
    again = Journal(path, "one").latest()
    assert again[1].proof == "3 cells"
    assert again[2] == Result(number=2, what="b", batch="mixed", ran=("1", "2"))
    assert Journal(path, "two").latest() == {}


def test_batches_that_are_new_are_run_with_what_others_left() -> None:
    def work(digest: str) -> Work:
        return Work(batch=NOTHING, wanted=Seen(what=None), digest=digest)

    def digests(result: Result) -> tuple[Result, list[str]]:
        known, rest = left_to_run(result, fresh, every)
        return known, [each.digest for each in rest]

    every = [work("1"), work("2"), work("3")]
    fresh = Result(number=1, what="a")
    left = Result(number=1, what="a", ran=("1", "2"))
    found = Result(number=1, what="a", batch="second", ran=("1", "2"))
    assert digests(fresh) == (fresh, ["1", "2", "3"])
    assert digests(left) == (left, ["3"])
    assert digests(found) == (found, [])
    late = dataclasses.replace(found, timing=True)
    assert digests(late) == (late, ["3"])
    proved = dataclasses.replace(left, proof="3 cells")
    assert digests(proved) == (proved, [])
    gone = dataclasses.replace(found, ran=("1", "4"))
    assert digests(gone) == (fresh, ["1", "2", "3"])


def test_a_batch_shows_a_fault_and_no_other_is_run_then() -> None:
    class Gateware:
        """Values and cycles of each batch, in turn."""

        def __init__(self, *seen: Seen) -> None:
            self.seen_ = iter(seen)

        def choose(self, fault: int) -> None:
            """Ignore the choice: no fault is put into it."""

        def seen(self, batch: Batch) -> Seen:
            return next(self.seen_)

    every = [Work(batch=NOTHING, wanted=Seen(what=7, cycles=(3,)), digest=d) for d in "123"]
    same, late, wrong = Seen(what=7, cycles=(3,)), Seen(what=7, cycles=(4,)), Seen(what=8)
    fresh = Result(number=1, what="a")
    all_ = dataclasses.replace(fresh, ran=("1", "2", "3"))
    by_time = dataclasses.replace(all_, batch="nothing", timing=True)
    found = dataclasses.replace(fresh, batch="nothing", ran=("1", "2"))
    assert tried_with(Gateware(same, same, same), fresh, every) == all_
    assert tried_with(Gateware(same, late, same), fresh, every) == by_time
    assert tried_with(Gateware(late, wrong), fresh, every) == found


def test_a_fault_begins_as_at_power_on() -> None:
    """Fault 1 sets a register that no reset clears; while it is set, fault 2 loses a value."""
    sticky = stand_in.VERILOG
    for old, new in (
        ("input rst,", "input rst, input [1:0] fault,"),
        ("reg running = 0;", "reg running = 0, kept = 0;"),
        ("age <= age + 1;", "age <= age + 1; kept <= kept | (fault == 1);"),
        ("left <= count", "left <= count - (kept & (fault == 2))"),
    ):
        assert sticky.count(old) == 1
        sticky = sticky.replace(old, new)
    fmt = Format(beat=stand_in.LANES, truncated=stand_in.GOOD, segment=64)
    packed = codec.encode(np.zeros(64, np.uint16), fmt)
    batch = dataclasses.replace(NOTHING, requests=list(requests_of(packed, target=False)))
    decoder = FaultyDecoder(stand_in.CONFIG, sticky)
    good = decoder.seen(batch)
    assert not isinstance(good.what, str)  # how a run broke
    for fault in (1, 2):
        decoder.choose(fault)
        assert decoder.seen(batch) == good


def test_the_summary_names_what_is_left() -> None:
    results = [
        Result(number=1, what="a", batch="mixed"),
        Result(number=2, what="b", batch="always", timing=True),
        Result(number=3, what="c", proof="3 cells"),
        Result(number=4, what="inv of d"),
    ]
    text = summary("decoder", results)
    assert "4 faults, 1 found by what comes out, 1 by when" in text
    assert "proved to be none: 1; left: 1" in text
    assert text.endswith("  4: inv of d")


def test_a_fault_prints_its_place() -> None:
    fault = Drawn(number=7, mode="cnot0", cell="$add$1", port="A", bit=3, control=5)
    assert str(fault) == "cnot0 by 5 $add$1 A[3]"
