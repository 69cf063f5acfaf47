"""Devices, models, formats, acceptance: what is read, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.lab.system.acceptance import Acceptance
from cassandra_spec.lab.system.costs import Bits, load_format, load_formats
from cassandra_spec.lab.system.device import UNITS, known_devices, load_device
from cassandra_spec.lab.system.errors import SystemModelError
from cassandra_spec.lab.system.workload import Workload, known_models, load_model
from tests.lab.system.simple import MODEL, bits, device

RTX = known_devices()["rtx4090"]


def message_of(error: pytest.ExceptionInfo[SystemModelError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


# --- devices ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", known_devices())
def test_every_device_of_the_package_loads(name: str) -> None:
    loaded = load_device(name)
    assert 0 < loaded.usable < loaded.memory
    assert loaded.decoded(draft=True) >= loaded.decoded(draft=False) > 0


def test_the_papers_npu_is_the_papers() -> None:
    npu = load_device("npu")
    assert (npu.compute["bf16"], npu.bandwidth, npu.memory) == (64e12, 273e9, 128e9)
    assert npu.decoders * npu.draft_rate * 2 == pytest.approx(1024)  # bytes of BF16 in a cycle


def test_a_device_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(RTX.read_text().replace("value = 1.008e12", "value = 2.016e12"))
    assert load_device(path).bandwidth == 2 * load_device("rtx4090").bandwidth


def test_an_unknown_device_lists_the_known_ones() -> None:
    with pytest.raises(SystemModelError) as error:
        load_device("rtx5090")
    assert message_of(error) == (
        "device must be one of a .toml file, agx-orin, npu, rtx4090, not 'rtx5090'"
    )


def test_a_device_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_device(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('unit = "bytes/s"', 'unit = "GB/s"', "unit of bandwidth must be 'bytes/s', not 'GB/s'"),
        ('source = "Ada whitepaper: boost clock"', 'source = " "', "source of clock must say"),
        ("clock = {", "speed = {", "missing ['clock'], unknown ['speed']"),
        ("value = 2.52e9, ", "", "clock must have value, unit and source, not"),
        ("value = 2.52e9", "value = 0", "clock must be a number above 0, not 0.0"),
        ("value = 2.52e9", "value = nan", "clock must be a number at least 0, not nan"),
        ("value = 0.9", "value = 1.5", "bandwidth_efficiency must be at most 1, not 1.5"),
        ("value = 1073741824", "value = 1e12", "reserved must be below memory, not"),
        ("bf16 = {", "fp16 = {", "compute must have bf16, not only ['fp16', 'int8']"),
        ("name =", "name ==", "must be TOML: "),
    ],
)
def test_wrong_device_files(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "wrong.toml"
    text = RTX.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(SystemModelError) as error:
        load_device(path)
    assert message in message_of(error)
    assert str(path) in message_of(error)


def test_every_constant_of_a_device_has_a_unit() -> None:
    assert set(UNITS) | {"name", "compute", "array"} == set(type(device()).__dataclass_fields__)


def test_an_unknown_dtype_lists_the_known_ones() -> None:
    with pytest.raises(SystemModelError, match="on simple must be one of bf16, int8, not 'fp4'"):
        device().flops("fp4")


# --- models and workloads -----------------------------------------------------------------------


def test_weights_of_a_model_by_hand() -> None:
    assert MODEL.attention_weights == 4 * 4 + 4 * 2 + 4 * 2 + 4 * 4
    assert MODEL.mlp_weights == 3 * 4 * 8
    assert MODEL.weights == 3 * 144 + 2 * 40
    assert MODEL.kv_values == 4


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        # Published parameters, less the norms of each model.
        ("llama3-8b", 8_030_261_248 - 65 * 4096),
        ("deepseek-r1-distill-llama-8b", 8_030_261_248 - 65 * 4096),
        ("qwen3-8b", 8_190_735_360 - 73 * 4096 - 36 * 2 * 128),
        ("qwen3-4b", 4_022_468_096 - 73 * 2560 - 36 * 2 * 128),
        ("smollm2-135m", 134_515_008 - 61 * 576),
        ("llama-3.2-1b", 1_235_814_400 - 33 * 2048),
        ("llama-3.2-3b", 3_212_749_824 - 57 * 3072),
    ],
)
def test_models_of_the_package_have_their_published_size(name: str, weights: int) -> None:
    assert load_model(name).weights == weights


def config(tmp_path: Path, **changes: Any) -> Path:
    content = {**json.loads(known_models()["qwen3-4b"].read_text()), **changes}
    content = {key: value for key, value in content.items() if value is not ...}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(content))
    return path


def test_a_model_from_a_config_or_its_directory(tmp_path: Path) -> None:
    path = config(tmp_path, head_dim=..., num_key_value_heads=...)
    model = load_model(path)
    assert load_model(tmp_path) == model
    assert (model.head_size, model.kv_heads) == (2560 // 32, 32)


def test_a_text_model_inside_another_one(tmp_path: Path) -> None:
    inner = json.loads(known_models()["qwen3-4b"].read_text())
    (tmp_path / "config.json").write_text(json.dumps({"text_config": inner}))
    assert load_model(tmp_path).weights == load_model("qwen3-4b").weights


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": ...}, "must have hidden_size"),
        ({"hidden_size": "many"}, "hidden must be an integer, at least 1, not 'many'"),
        ({"num_attention_heads": 0}, "heads must be an integer, at least 1, not 0"),
        ({"num_key_value_heads": 5}, "kv_heads must divide heads 32, not 5"),
        ({"num_experts": 64}, "must be a dense model, not a mixture of experts"),
    ],
)
def test_wrong_configs(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = config(tmp_path, **changes)
    with pytest.raises(SystemModelError) as error:
        load_model(path)
    assert message in message_of(error)
    assert str(path) in message_of(error)


@pytest.mark.parametrize("text", ["[1]", "{"])
def test_what_is_not_a_config(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(SystemModelError, match=r"must be (a )?JSON"):
        load_model(tmp_path)


def test_an_unknown_model_lists_the_known_ones() -> None:
    with pytest.raises(SystemModelError, match=r"one of .*llama3-8b.*qwen3-8b.*, not 'gpt'"):
        load_model("gpt")


@pytest.mark.parametrize(
    "changes", [{"prompt": 0}, {"output": 0}, {"batch": 0}, {"batch": 17}, {"output": 1.5}]
)
def test_wrong_workloads(changes: dict[str, Any]) -> None:
    with pytest.raises(SystemModelError, match=f"{next(iter(changes))} must be an integer"):
        Workload(**{"prompt": 1, "output": 1, **changes})


def test_the_mean_context_is_the_mean_over_all_steps() -> None:
    seen = [10 + step for step in range(7)]
    assert Workload(prompt=10, output=7).context == sum(seen) / len(seen)


# --- formats ------------------------------------------------------------------------------------


def test_the_drafts_of_cassandra_2_cost_what_their_parts_cost() -> None:
    cost = load_format("cassandra-2").weight
    kept = 0.6
    assert cost.draft == pytest.approx(1 + 8 / 32 + kept * (1 + 4))
    assert cost.whole == pytest.approx(cost.draft + kept * 4 + (1 - kept) * 16)


def test_an_unknown_scheme_lists_the_known_ones() -> None:
    with pytest.raises(SystemModelError, match=r"scheme must be one of bf16, .*unary.*, not 'x'"):
        load_format("x")


@pytest.mark.parametrize("cost", load_formats().values(), ids=lambda cost: cost.name)
def test_every_figure_of_a_format_has_a_source(cost: Any) -> None:
    assert all(part.source for part in (cost.weight, cost.kv, cost.head))
    assert all(0 < rate < 1 for rate in cost.acceptance.values())


def test_wrong_bits() -> None:
    with pytest.raises(SystemModelError, match="draft bits must be at most 4, not 5"):
        bits(5, 4)
    with pytest.raises(SystemModelError, match="source of bits"):
        Bits(draft=1, whole=2, source="")


# --- acceptance ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "kind", "gamma", "tokens"),
    [
        (0.78, "drafted", 5, 4.9),
        (0.5, "drafted", 0, 1.0),
        (0.5, "conditional", 3, 1.875),
        (1.0, "conditional", 8, 9.0),
        (0.0, "conditional", 8, 1.0),
    ],
)
def test_tokens_of_a_round(rate: float, kind: Any, gamma: int, tokens: float) -> None:
    assert Acceptance(rate=rate, kind=kind).tokens(gamma) == pytest.approx(tokens)


def test_the_two_definitions_are_different_numbers() -> None:
    """.80 of the tokens that follow accepted ones are .54 of all that are drafted at gamma 5."""
    conditional = Acceptance(rate=0.8, kind="conditional")
    powers = 0.8 + 0.64 + 0.512 + 0.4096 + 0.32768
    assert conditional.drafted(5) == pytest.approx(powers / 5)
    assert Acceptance(rate=powers / 5).conditional(5) == pytest.approx(0.8)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_wrong_rates(rate: float) -> None:
    with pytest.raises(SystemModelError, match="acceptance must be"):
        Acceptance(rate=rate)


def test_an_unknown_kind() -> None:
    with pytest.raises(SystemModelError, match="kind must be one of conditional, drafted"):
        Acceptance(rate=0.5, kind="mean")  # type: ignore[arg-type]


@pytest.mark.parametrize("gamma", [-1, 9, 2.5])
def test_wrong_gammas(gamma: Any) -> None:
    with pytest.raises(SystemModelError, match="gamma must be an integer, 0 to 8"):
        Acceptance(rate=0.5).tokens(gamma)
