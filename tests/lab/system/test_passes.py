"""Bytes, operations and times of one pass."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cassandra_spec.lab.system.costs import FormatCost, load_formats
from cassandra_spec.lab.system.errors import SystemModelError
from cassandra_spec.lab.system.passes import Pass, Traffic, cost_of, flops_of, traffic_of
from cassandra_spec.lab.system.workload import known_models, load_model
from tests.lab.system.simple import DEVICE, HALF, MODEL, PLAIN, bits, device


def test_bytes_of_a_decoding_step_by_hand() -> None:
    traffic = traffic_of(MODEL, HALF, Pass(tokens=1, context=5, batch=2))
    assert traffic.weights == 3 * 144  # one byte each
    assert traffic.head == 40
    assert traffic.embedding == 2 * 4 * 2
    assert traffic.kv_read == 3 * 4 * 5 * 2  # keys and values of 2 each, 5 tokens, 2 requests
    assert traffic.kv_written == 3 * 4 * 2
    # Into and out of: q 4 4, k and v 2 2, o 4 4 (k, v share q's input); gate, up 4 8 8, down 8 4.
    layer = (4 + 4 + 2 + 2 + 4 + 4) + (4 + 8 + 8 + 8 + 4)
    assert traffic.activations == 2 * (3 * layer * 2 + (4 + 10) * 2)


def test_a_draft_reads_the_bits_of_the_draft() -> None:
    step = Pass(tokens=1, context=5)
    whole = traffic_of(MODEL, HALF, step)
    draft = traffic_of(MODEL, HALF, dataclasses.replace(step, draft=True))
    for name in ("weights", "head", "kv_read", "kv_written"):
        assert 2 * draft.streams()[name] == whole.streams()[name]
    for name in ("embedding", "activations"):
        assert draft.streams()[name] == whole.streams()[name]


def test_operations_of_a_pass_by_hand() -> None:
    # Two tokens see 5 + 1 and 5 + 2 tokens; each one 2 heads of 2 values, query-key and value.
    attention = 2 * 2 * 2 * 2 * (6 + 7)
    linear = 2 * 144 * 2
    head = 2 * 40
    step = Pass(tokens=2, context=5)
    assert flops_of(MODEL, step) == 3 * (attention + linear) + head


@pytest.mark.parametrize("name", known_models())
@pytest.mark.parametrize("scheme", load_formats())
@pytest.mark.parametrize("draft", [False, True])
def test_no_byte_is_lost(name: str, scheme: str, draft: bool) -> None:
    """Every stored value is read once, at its bits: what goes in is what the model holds."""
    model, cost = load_model(name), load_formats()[scheme]
    step = Pass(tokens=4, context=100, batch=3, logits=4, draft=draft)
    traffic = traffic_of(model, cost, step)
    assert traffic.total == pytest.approx(sum(traffic.streams().values()), rel=1e-15)
    side = "draft" if draft else "whole"
    embedding = 0 if model.tied else model.head_weights
    linear = model.weights - model.head_weights - embedding
    values = {
        "weights": linear * getattr(cost.weight, side),
        "head": model.head_weights * getattr(cost.head, side),
        "kv_read": 3 * 100 * model.layers * model.kv_values * getattr(cost.kv, side),
        "kv_written": 3 * 4 * model.layers * model.kv_values * getattr(cost.kv, side),
        "embedding": 12 * model.hidden * 16,
    }
    assert {key: traffic.streams()[key] * 8 for key in values} == pytest.approx(values, rel=1e-12)


def test_weights_are_shared_by_a_batch_and_the_cache_is_not() -> None:
    one = traffic_of(MODEL, HALF, Pass(tokens=1, context=7))
    four = traffic_of(MODEL, HALF, Pass(tokens=1, context=7, batch=4))
    assert (four.weights, four.head) == (one.weights, one.head)
    assert (four.kv_read, four.kv_written) == (4 * one.kv_read, 4 * one.kv_written)


def test_traffic_adds_and_scales_by_stream() -> None:
    traffic = Traffic(weights=1, head=2, embedding=3, kv_read=4, kv_written=5, activations=6)
    assert (traffic + traffic * 2).streams() == {
        name: 3 * value for name, value in traffic.streams().items()
    }
    assert traffic.total == 21


STEP = Pass(tokens=1, context=5)


def test_memory_sets_the_pace_of_the_simple_device() -> None:
    cost = cost_of(DEVICE, MODEL, HALF, STEP)
    assert cost.bound == "memory"
    assert cost.seconds == pytest.approx(cost.traffic.total / 1000)


def test_efficiency_divides() -> None:
    full = cost_of(DEVICE, MODEL, HALF, STEP).seconds
    half = cost_of(device(bandwidth_efficiency=0.5), MODEL, HALF, STEP).seconds
    assert half == pytest.approx(2 * full)


def test_overhead_comes_on_top_for_each_layer_and_the_head() -> None:
    plain = cost_of(DEVICE, MODEL, HALF, STEP).seconds
    more = cost_of(device(layer_overhead=0.25), MODEL, HALF, STEP).seconds
    assert more == pytest.approx(plain + 4 * 0.25)


def test_slow_arithmetic_sets_the_pace() -> None:
    slow = device(compute={"bf16": 10.0})
    cost = cost_of(slow, MODEL, HALF, STEP)
    assert cost.bound == "compute"
    assert cost.seconds == pytest.approx(flops_of(MODEL, STEP) / 10)


@pytest.mark.parametrize(("draft", "rate"), [(False, 0.05), (True, 0.1)])
def test_slow_decoders_set_the_pace(draft: bool, rate: float) -> None:
    slow = device(draft_rate=0.1, target_rate=0.05)
    step = dataclasses.replace(STEP, draft=draft)
    cost = cost_of(slow, MODEL, HALF, step)
    values = 3 * 144 + 40 + 3 * 4 * 5
    assert cost.bound == "decoders"
    assert cost.seconds == pytest.approx(values / (2 * 10 * rate))


def test_slow_encoders_set_the_pace_of_layers_alone() -> None:
    cost = cost_of(device(encoder_rate=0.001), MODEL, HALF, STEP)
    end = (40 + 4 * 2 + 14 * 2) / 1000
    assert cost.seconds == pytest.approx(3 * 4 / (10 * 0.001) + end)


def test_plain_data_go_through_no_decoder() -> None:
    stages = cost_of(DEVICE, MODEL, PLAIN, STEP).stages
    assert (stages["decoders"], stages["encoders"]) == (0, 0)


def test_a_plain_head_goes_through_no_decoder() -> None:
    slow = device(draft_rate=0.1, target_rate=0.1)
    stages = cost_of(slow, MODEL, HALF.with_plain_head(), STEP).stages
    assert stages["decoders"] == pytest.approx((3 * 144 + 3 * 4 * 5) / 2)


def test_the_dtype_chooses_the_arithmetic() -> None:
    cost = FormatCost(
        name="int8",
        title="",
        weight=bits(8, 8),
        kv=bits(16, 16),
        head=bits(16, 16),
        decoder="",
        dtype="int8",
    )
    assert 2 * cost_of(DEVICE, MODEL, cost, STEP).stages["compute"] == pytest.approx(
        cost_of(DEVICE, MODEL, PLAIN, STEP).stages["compute"]
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": 0}, "tokens must be an integer, at least 1, not 0"),
        ({"context": -1.0}, "context must be a number at least 0, not -1.0"),
        ({"batch": 1.5}, "batch must be an integer, at least 1, not 1.5"),
        ({"logits": 2}, "logits must be an integer, 1 to 1, not 2"),
    ],
)
def test_wrong_passes(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SystemModelError) as error:
        dataclasses.replace(STEP, **changes)
    assert str(error.value) == message
