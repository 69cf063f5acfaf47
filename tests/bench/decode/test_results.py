"""Figures of turns that are known, and the file that keeps them."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from cassandra_spec.bench.decode.contenders import CONTENDERS, PLAIN, PLANS, Contender, choose
from cassandra_spec.bench.decode.probe import memory_speed, time_numpy
from cassandra_spec.bench.decode.prompts import in_rounds
from cassandra_spec.bench.decode.report import draw, lines
from cassandra_spec.bench.decode.results import LLAMA, Spread, Turn, Turns, summaries
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.errors import FileError
from cassandra_spec.lab.decode import rivals
from cassandra_spec.native.linear import time_reading

FAST = "native hybrid, exact, 4 bits"
SOME = [each for each in rivals.CONTENDERS if each.name in (PLAIN, LLAMA, FAST)]


def turn(contender: str, number: int, rate: float, *, tokens: int = 11, last: int = 0) -> Turn:
    reply = (*range(tokens - 1), last)
    return Turn(
        weights="dequantised",
        contender=contender,
        round=number,
        replies=(reply, reply),
        seconds=2 * (tokens - 1) / rate,
        first=10 / rate,
        prompt=40,
        probe=4e10 + number * 1e9,
        resident=5_000_000 + number,
        held=None if contender == LLAMA else 3_000_000,
    )


def some_turns() -> list[Turn]:
    """Return turns on a machine that is twice as fast in the second round, for all alike."""
    return [
        turn(name, number, base * pace)
        for number, pace in enumerate((1.0, 2.0, 1.5))
        for name, base in ((PLAIN, 200.0), (FAST, 300.0), (LLAMA, 100.0))
    ]


def test_ratios_are_taken_round_by_round() -> None:
    found = {each.contender: each for each in summaries(some_turns(), SOME)}
    fast = found[FAST]
    assert (fast.rate.median, fast.rate.low, fast.rate.high) == pytest.approx((450, 375, 525))
    assert fast.to_plain is not None
    assert fast.to_llama is not None
    assert (fast.to_plain.median, fast.to_plain.low) == pytest.approx((1.5, 1.5))
    assert fast.to_llama.high == pytest.approx(3)
    assert fast.prompt_rate.median == pytest.approx(4 * 450)
    assert fast.prompt_to_llama is not None
    assert fast.prompt_to_llama.low == pytest.approx(3)
    assert (fast.tokens, fast.rounds, fast.resident) == (60, 3, 5_000_002)
    assert fast.probe.median == 4.1e10
    assert (fast.compared, fast.identical) == (6, 6)
    assert found[LLAMA].alike == 6


def test_a_reply_that_differs_is_seen() -> None:
    turns = [*some_turns()[:4], turn(FAST, 1, 600.0, last=7)]
    found = {each.contender: each for each in summaries(turns, SOME)}
    assert (found[FAST].compared, found[FAST].identical) == (4, 2)


def test_a_short_reply_is_compared_as_far_as_it_goes() -> None:
    short = Contender(name="short", kind="torch", same_as=PLAIN)
    turns = [turn(PLAIN, 0, 100.0), turn("short", 0, 10.0, tokens=5, last=4)]
    assert summaries(turns, [short])[0].identical == 2


def test_what_an_adaptive_gamma_chose_is_printed() -> None:
    plans = ({"model 4": 3}, {"model 4": 90, "model 5": 9, "plain": 1})
    turns = [
        dataclasses.replace(turn(FAST, number, 300.0), plans=counts)
        for number, counts in enumerate(plans)
    ]
    found = summaries([*some_turns()[:2], *turns], SOME)
    assert "model 4: 90%; model 5: 9%; others: 1%" in lines(found)
    assert "adaptive" not in lines(summaries(some_turns(), SOME))


def test_turns_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "new" / "turns.jsonl"
    turns = Turns(file, {"a": (1, 2)})
    for each in some_turns():
        turns.add(each)
    again = Turns(file, {"a": [1, 2]})
    assert list(again) == some_turns()
    assert ("dequantised", FAST, 2) in again
    assert ("dithered", FAST, 2) not in again
    with pytest.raises(FileError, match="must be of the same model, prompts and settings"):
        Turns(file, {"a": 3})
    with file.open("a") as out:
        out.write('{"weights": 1, "replies": []}\n')
    with pytest.raises(FileError, match="must be turns of a benchmark"):
        Turns(file, {"a": (1, 2)})


def test_the_table_and_the_picture(tmp_path: Path) -> None:
    found = summaries(some_turns(), SOME)
    text = lines(found)
    assert "450 [375, 525]" in text
    assert "6/6" in text
    assert "(6)" in text
    root = ET.fromstring(draw(found, title="Some decoding"))
    space = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{space}title") is not None
    description = root.find(f"{space}desc")
    assert description is not None
    assert f"{FAST}: 450" in (description.text or "")
    key = {"native, plain", "native, speculative", "other programs, torch"}
    assert key <= {text.text for text in root.iter(f"{space}text")}
    assert draw(found, title="Some decoding") == draw(found, title="Some decoding")


def test_the_panels_of_the_picture_have_one_scale() -> None:
    some = summaries(some_turns(), SOME)
    slow = [
        dataclasses.replace(each, weights="others", rate=Spread(low=1.0, median=2.0, high=3.0))
        for each in some
    ]
    space = "{http://www.w3.org/2000/svg}"
    root = ET.fromstring(draw([*some, *slow], title="Some decoding"))
    axes = [group for group in root.iter(f"{space}g") if group.get("id") == "axes_1"][:1] + [
        group for group in root.iter(f"{space}g") if group.get("id") == "axes_2"
    ][:1]
    ticks = [
        [
            "".join(tick.itertext()).strip()
            for tick in panel.iter(f"{space}g")
            if tick.get("id", "").startswith("xtick")
        ]
        for panel in axes
    ]
    assert len(ticks) == 2
    assert ticks[0] == ticks[1] != []


def test_contenders_are_chosen_with_those_that_they_are_held_to() -> None:
    assert choose([]) == list(CONTENDERS)
    assert len({each.name for each in CONTENDERS}) == len(CONTENDERS)
    assert [each.name for each in choose(["native hybrid, exact*"])] == [PLAIN, FAST]
    known = {each.name for each in CONTENDERS}
    assert {each.same_as for each in CONTENDERS} <= known | {None}
    assert {each.plan for each in CONTENDERS} <= set(PLANS)
    with pytest.raises(CassandraError, match="contenders must be among"):
        choose(["vllm"])


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_is_read_at_a_speed(threads: int) -> None:
    for read in (time_numpy, time_reading):
        seconds = read(1 << 22, 2, threads)
        assert len(seconds) == 2
        assert min(seconds) > 0
    assert memory_speed(threads) > 0


def test_all_prompts_have_a_round() -> None:
    prompts = [[n] for n in range(7)]
    found = in_rounds(prompts, 3)
    assert sorted(prompt for some in found for prompt in some) == prompts
    with pytest.raises(CassandraError, match=r"rounds must be from 1 to 7 \(prompts\), not 8"):
        in_rounds(prompts, 8)
