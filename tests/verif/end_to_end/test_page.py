"""The page of the main job: everything that was found, and whether it was right."""

from __future__ import annotations

import dataclasses

from cassandra_spec.verif.end_to_end.key_values import KeyValueCheck
from cassandra_spec.verif.end_to_end.page import Replies, Run, page
from cassandra_spec.verif.end_to_end.weights import Check, Checked
from cassandra_spec.verif.library.bulk import PortCount, Statistics

COST = Statistics(values=320, cycles=21, ports={"values": PortCount(moved=20)})
CHECK = Check(values=320, draft=COST, target=COST)
BITS = {"exponent": 0.5, "sign_high": 5.0, "low": 4.0, "speculation": 5.5, "total": 9.5}
KEY_VALUES = KeyValueCheck(
    scheme="mx",
    layout="blocks",
    tokens=64,
    vectors=7,
    tail=0,
    same_tokens=True,
    different_regions=0,
)


def run(*, mismatches: int = 0, lost: int = 0) -> Run:
    check = dataclasses.replace(CHECK, mismatches=mismatches, lost=lost)
    names = ("first", "second")
    checked = Checked(checks=dict.fromkeys(names, check), bits=dict.fromkeys(names, BITS))
    return Run(
        model="a <model>",
        weights={"exact": checked},
        exponents="entropy 2.6",
        replies=Replies(prompt="Why?", original="So & so.", gateware="So & so.", same=True),
        key_values=[KEY_VALUES],
        verdict="PASS in 1 min 2 s",
    )


def test_the_page_has_what_was_found() -> None:
    text = page(run())
    for part in (
        *("a &lt;model&gt; through the gateware", "PASS in 1 min 2 s", "entropy 2.6"),
        *('<th scope="row">exact</th><td>draft</td><td>640</td><td>40</td><td>42</td>', "15.24"),
        *("So &amp; so.", "The tokens are identical.", "2 tensors; on average 15.24 draft"),
        *("Coverage of the suites", "A segment of 60 values on 8 lanes"),
        '<th scope="row">mx</th><td>blocks</td><td>64</td><td>7</td>',
    ):
        assert part in text


def test_a_run_is_good_if_every_bit_is_right() -> None:
    assert run().good
    assert not run(mismatches=1).good
    assert not run(lost=1).good
    assert dataclasses.replace(run(), replies=None).good
    different = dataclasses.replace(KEY_VALUES, different_regions=1)
    assert not dataclasses.replace(run(), key_values=[different]).good
    other = Replies(prompt="Why?", original="So.", gateware="No.", same=False)
    assert not dataclasses.replace(run(), replies=other).good


def test_keys_and_values_may_stand_alone() -> None:
    text = page(Run(model="m", key_values=[KEY_VALUES], verdict="PASS"))
    assert "Weights" not in text
    assert "Keys and values through encoder and decoder" in text


def test_bits_are_means_over_values() -> None:
    checked = Checked(
        checks={"a": Check(values=100), "b": Check(values=300)},
        bits={"a": {"total": 8.0}, "b": {"total": 12.0, "mask": 1.0}},
    )
    assert checked.total.values == 400
    assert checked.mean_bits == {"total": 11.0, "mask": 0.75}
