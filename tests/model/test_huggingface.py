"""Packed directories through ``AutoModelForCausalLM.from_pretrained``."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    GenerationMixin,
    StoppingCriteriaList,
    TextStreamer,
    dynamic_module_utils,
    pipeline,
)

import cassandra_spec.model.huggingface as packed_models
from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.model.packing.packer import Recipe, pack_model, unpack_model
from cassandra_spec.model.speculative import CassandraForCausalLM
from cassandra_spec.model.weights.sources import open_source
from tests.model.tiny import LONGROPE, MODEL_TYPES, change_config, write_model

ROOT = Path(__file__).resolve().parents[2]
RECIPE = Recipe(format=Format(scheme="exact", group=16, truncated=4, fill="midpoint"))
TOKENS = torch.arange(2, 14)[None]


def pack(folder: Path, **options: Any) -> tuple[Path, Path]:
    """Return a plain directory and the packed one."""
    source = write_model(folder / "plain", max_position_embeddings=128, **options)
    pack_model(open_source(source), folder / "packed", RECIPE, jobs=1)
    return source, folder / "packed"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(tmp_path_factory.mktemp("huggingface"))[1]


@pytest.fixture(scope="module")
def model(packed: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(packed)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_packed_directory_loads_as_any_checkpoint(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], model_type: str, tied: bool
) -> None:
    odd = {"hidden_size": 44, "intermediate_size": 75}  # no multiples of a beat
    plain, packed = pack(tmp_path, model_type=model_type, tied=tied, **odd)
    capfd.readouterr()
    found: Any = AutoModelForCausalLM.from_pretrained(packed)
    said = capfd.readouterr()
    assert not any(word in said.out + said.err for word in ("MISSING", "UNEXPECTED", "corrupted"))
    expected = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16)
    assert type(found).__name__ == type(expected).__name__
    torch.testing.assert_close(found(TOKENS).logits, expected(TOKENS).logits, atol=0.03, rtol=0.03)
    ours = CassandraForCausalLM.from_pretrained(packed)
    reply = found.generate(TOKENS, max_new_tokens=30, do_sample=False)
    assert torch.equal(reply, ours.generate(TOKENS, max_new_tokens=30, do_sample=False))
    assert found.cassandra.report.accepted > 0  # it speculates by itself
    found.save_pretrained(tmp_path / "saved")
    assert files(tmp_path / "saved") == files(packed)


def files(folder: Path) -> dict[str, bytes]:
    """Return contents of all files below a directory."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_a_changed_generation_config_is_saved_and_no_other(packed: Path, tmp_path: Path) -> None:
    without = tmp_path / "without"
    shutil.copytree(packed, without, ignore=shutil.ignore_patterns("generation_config.json"))
    model: Any = AutoModelForCausalLM.from_pretrained(without)
    model.save_pretrained(tmp_path / "same")
    assert files(tmp_path / "same") == files(without)
    model.generation_config.max_new_tokens = 5
    model.save_pretrained(tmp_path / "changed")
    assert GenerationConfig.from_pretrained(tmp_path / "changed").max_new_tokens == 5


def transformers_alone(folder: Path, packed: Path, **arguments: Any) -> tuple[int, list[str]]:
    """Load and generate without our import: the exit status, and the last lines of both outputs."""
    program = (
        "import sys, torch, transformers\n"
        f"found = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], **{arguments})\n"
        "print(found.generate(torch.arange(2, 14)[None], max_new_tokens=9, do_sample=False)"
        ".tolist(), found.cassandra.report.drafted)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(packed)],
        cwd=ROOT,
        env=os.environ | {"HF_MODULES_CACHE": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    return run.returncode, [text.splitlines()[-1] for text in (run.stdout, run.stderr) if text]


def test_without_the_import_transformers_refuses_it(packed: Path, tmp_path: Path) -> None:
    code, (last,) = transformers_alone(tmp_path, packed)
    assert code == 1
    assert last.startswith("ValueError: ")
    assert "import cassandra_spec.model.huggingface before from_pretrained" in last
    assert list(tmp_path.iterdir()) == []  # no code of the directory has been looked at


def test_with_code_of_the_directory_it_needs_no_import(
    packed: Path, model: Any, tmp_path: Path
) -> None:
    code, lines = transformers_alone(tmp_path, packed, trust_remote_code=True)
    assert code == 0, lines
    reply = model.generate(TOKENS, max_new_tokens=9, do_sample=False)
    assert lines[0] == f"{reply.tolist()} {model.cassandra.report.drafted}"


@pytest.fixture
def modules_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder to which transformers copies code of directories before it runs it."""
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])  # which transformers appends it to
    return tmp_path / "modules"


def test_custom_generate_is_the_model_s_own(packed: Path, model: Any, modules_cache: Path) -> None:
    expected = model.generate(TOKENS, max_new_tokens=9, do_sample=False)
    named = {"custom_generate": str(packed), "trust_remote_code": True}
    found = model.generate(TOKENS, max_new_tokens=9, do_sample=False, **named)
    assert torch.equal(found, expected)
    assert modules_cache.is_dir()
    plain: Any = AutoModelForCausalLM.from_pretrained(packed.parent / "plain")
    line = "^custom_generate must be called on a model from a packed directory, not on a Llama"
    with pytest.raises(CassandraError, match=line):
        plain.generate(TOKENS, **named)


def test_our_own_loader_runs_no_code_of_a_directory(
    packed: Path, modules_cache: Path, tmp_path: Path
) -> None:
    hostile = Path(shutil.copytree(packed, tmp_path / "hostile"))
    for path in hostile.rglob("*.py"):
        path.write_text("raise SystemExit('run')")
    model: Any = CassandraForCausalLM.from_pretrained(hostile)
    assert model.generate(TOKENS, max_new_tokens=2).shape[1] == TOKENS.shape[1] + 2
    found: Any = AutoModelForCausalLM.from_pretrained(hostile)
    found.save_pretrained(tmp_path / "saved")
    assert files(tmp_path / "saved") == files(packed)  # ours, not the directory's
    unpack_model(hostile, tmp_path / "unpacked", jobs=1)
    assert not list((tmp_path / "unpacked").rglob("*.py"))
    assert not modules_cache.exists()


def test_transformers_may_choose_the_device(packed: Path) -> None:
    quantizer = packed_models.CassandraQuantizer(packed_models.CassandraConfig())
    quantizer.validate_environment(device_map="auto")
    assert quantizer.update_device_map("auto") == {"": torch.device("cpu")}
    assert quantizer.update_device_map(None) is None
    with pytest.raises(CassandraError, match=r"^device_map must be 'cpu', or not"):
        quantizer.validate_environment(device_map={"": "cuda:0"})


def test_an_unpacked_directory_is_an_ordinary_one(packed: Path, tmp_path: Path) -> None:
    unpack_model(packed, tmp_path / "plain", jobs=1)
    entries = json.loads((tmp_path / "plain" / "config.json").read_text())
    assert not {"quantization_config", "transformers_weights"} & set(entries)
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "plain")
    assert not isinstance(found, packed_models.SpeculativeGeneration)


def test_a_directory_that_was_packed_before_the_config_said_so_is_read(
    packed: Path, tmp_path: Path
) -> None:
    before = tmp_path / "before"
    AutoModelForCausalLM.from_pretrained(packed).save_pretrained(before)
    change_config(before, quantization_config=None, transformers_weights=None)
    ours = [CassandraForCausalLM.from_pretrained(folder) for folder in (packed, before)]
    replies = [lm.generate(TOKENS, max_new_tokens=9, do_sample=False) for lm in ours]
    assert torch.equal(*replies)


def test_transformers_own_passes_go_on_working_after_a_reply(model: Any) -> None:
    before = model(TOKENS).logits
    config = GenerationConfig(max_new_tokens=5, do_sample=False)
    model.generate(TOKENS, config)
    assert torch.equal(model(TOKENS).logits, before)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"assistant_model": object()}, r"generate\(\) must not be given assistant_model"),
        ({"num_beams": 2}, "num_beams must be 1"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    model: Any, arguments: dict[str, Any], line: str
) -> None:
    with pytest.raises(CassandraError, match=f"^{line}"):
        model.generate(TOKENS, max_new_tokens=5, **arguments)


def test_it_works_in_a_pipeline(packed: Path, model: Any) -> None:
    made: Any = pipeline("text-generation", model=str(packed))
    (found,) = made("word5 word9", max_new_tokens=12, do_sample=False, return_full_text=False)
    ids = made.tokenizer("word5 word9", return_tensors="pt").input_ids
    reply = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
    text = made.tokenizer.decode(reply, skip_special_tokens=True)
    assert found["generated_text"].split() == text.split()
    assert made.model.cassandra.report.drafted > 0


def test_streamers_and_stopping_criteria_are_those_of_transformers(model: Any) -> None:
    class Streamer:
        def __init__(self) -> None:
            self.found: list[int] = []
            self.ended = False

        def put(self, tokens: torch.Tensor) -> None:
            self.found += tokens.reshape(-1).tolist()

        def end(self) -> None:
            self.ended = True

    whole = model.generate(TOKENS, max_new_tokens=30, do_sample=False)
    streamer, asked = Streamer(), list[int]()

    def after_20(ids: torch.Tensor, scores: None) -> torch.Tensor:
        asked.append(ids.shape[1])
        return torch.tensor([ids.shape[1] >= 20])

    criteria = StoppingCriteriaList([after_20])
    found = model.generate(
        TOKENS, max_new_tokens=30, do_sample=False, streamer=streamer, stopping_criteria=criteria
    )
    assert torch.equal(found, whole[:, :20])
    assert asked == list(range(13, 21))
    assert streamer.found == found[0].tolist()
    assert streamer.ended


def test_a_longer_context_is_asked_for_behind_the_class(tmp_path: Path) -> None:
    source = write_model(tmp_path / "plain", model_type="phi3", eos_token_id=None, **LONGROPE)
    pack_model(open_source(source), tmp_path / "packed", RECIPE, jobs=1)
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "packed")
    with pytest.raises(CassandraError, match="context of 44 positions, not need 72"):
        model.generate(TOKENS, max_new_tokens=60)
    model.cassandra.use_context(72)
    reply = model.generate(TOKENS, max_new_tokens=60, do_sample=False)
    ours = CassandraForCausalLM.from_pretrained(tmp_path / "packed", context=72)
    expected = ours.generate(TOKENS, max_new_tokens=60, do_sample=False, draft="none")
    assert torch.equal(reply, expected)


def test_generate_has_the_signature_of_transformers(model: Any) -> None:
    theirs = inspect.signature(GenerationMixin.generate).parameters
    assert list(inspect.signature(type(model).generate).parameters) == list(theirs)


def test_text_is_streamed_by_transformers_own_class(
    packed: Path, model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(packed)
    streamer = TextStreamer(tokenizer, skip_prompt=True)
    reply = model.generate(TOKENS, max_new_tokens=9, do_sample=False, streamer=streamer)
    expected = tokenizer.decode(reply[0, TOKENS.shape[1] :])
    assert capsys.readouterr().out.split() == expected.split()


def test_stop_strings_need_a_tokenizer(model: Any) -> None:
    with pytest.raises(CassandraError, match=r"^tokenizer must be given"):
        model.generate(TOKENS, max_new_tokens=5, stop_strings=["word7"])


@pytest.mark.parametrize(
    ("entries", "error", "line"),
    [
        ({"version": 2}, CassandraError, "quantization_config: version must be 1, not 2"),
        ({"version": "x"}, CassandraError, "quantization_config: version must be 1, not 'x'"),
    ],
)
def test_a_version_that_is_not_known_is_refused(
    packed: Path, tmp_path: Path, entries: dict[str, Any], error: type[Exception], line: str
) -> None:
    other = tmp_path / "other"
    AutoModelForCausalLM.from_pretrained(packed).save_pretrained(other)
    change_config(other, quantization_config={"quant_method": "cassandra", **entries})
    with pytest.raises(error, match=f"^{line}"):
        AutoModelForCausalLM.from_pretrained(other)


def test_other_arguments_of_save_pretrained_are_refused(model: Any, tmp_path: Path) -> None:
    with pytest.raises(CassandraError, match="must not be given max_shard_size"):
        model.save_pretrained(tmp_path / "saved", max_shard_size="1MB")
