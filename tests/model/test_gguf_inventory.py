"""Every row of the inventory of GGUF files, each with a file of its own."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from cassandra_spec.golden import CassandraError, bf16
from cassandra_spec.golden.model_types import MODEL_TYPES
from cassandra_spec.model.weights.gguf import GgufSource
from cassandra_spec.model.weights.gguf_inventory import (
    ARCH,
    KEYS,
    KINDS,
    TENSORS,
    Row,
    document,
    find_row,
)
from tests.model.gguf_files import (
    arrays_of,
    bytes_model,
    keys_of,
    piece_keys,
    tokenizer_keys,
    write_file,
    write_gguf,
    write_shards,
)
from tests.model.tiny import write_model

PAGE = Path(__file__).parents[2] / "docs" / "software" / "inventory.md"
ARCHITECTURES = tuple(each.gguf for each in MODEL_TYPES)
PIECES = 265


@dataclasses.dataclass(frozen=True)
class Example:
    """A value of a key, and other keys without which it would mean nothing."""

    value: Any
    beside: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    pieces: bool = False  # the tokenizer is SentencePiece's


def _yarn(value: Any) -> Example:
    return Example(value, {f"{ARCH}rope.scaling.type": "yarn", f"{ARCH}rope.scaling.factor": 2.0})


def _several(value: Any, names: Mapping[str, str]) -> dict[str, Example]:
    return {
        prefix + name: Example(value) for prefix, some in names.items() for name in some.split()
    }


def swapped_tokens() -> list[str]:
    """Return the vocabulary with its first tokens exchanged."""
    first, second, *others = tokenizer_keys(259)["tokenizer.ggml.tokens"]
    return [second, first, *others]


EXAMPLES: dict[str, Example] = {
    "general.architecture": Example("mamba"),
    "general.type": Example("adapter"),
    "general.sampling.*": Example(0.3),
    "general.tensor_extra.*": Example(["token_embd.weight"]),
    "general.*": Example("Tiny"),
    "adapter.*": Example("lora"),
    **_several(7, {"general.": "file_type quantization_version"}),
    **_several(1000, {ARCH: "vocab_size embedding_length_out expert_shared_feed_forward_length"}),
    **_several(32, {ARCH: "context_length embedding_length feed_forward_length"}),
    f"{ARCH}block_count": Example(3),
    f"{ARCH}attention.head_count": Example(8),
    f"{ARCH}attention.head_count_kv": Example([4, 2]),
    **_several(24, {f"{ARCH}attention.": "key_length value_length key_length_swa"}),
    f"{ARCH}attention.value_length_swa": Example(6),
    f"{ARCH}attention.layer_norm_rms_epsilon": Example(0.125),
    f"{ARCH}attention.layer_norm_epsilon": Example(0.125),
    **_several(0.75, {ARCH: "residual_scale embedding_scale logit_scale"}),
    **_several(0.75, {f"{ARCH}attention.": "scale max_alibi_bias clamp_kqv"}),
    **_several(5.0, {ARCH: "attn_logit_softcapping final_logit_softcapping"}),
    f"{ARCH}router_logit_softcapping": Example(5.0),
    f"{ARCH}attention.sliding_window": Example(7),
    f"{ARCH}attention.sliding_window_pattern": Example([False, True]),
    f"{ARCH}attention.causal": Example(False),
    **_several(2, {f"{ARCH}expert_": "count used_count group_count group_used_count"}),
    f"{ARCH}nextn_predict_layers": Example(1),
    f"{ARCH}pooling_type": Example(3),
    f"{ARCH}classifier.*": Example(["good", "bad"]),
    f"{ARCH}use_parallel_residual": Example(True),
    f"{ARCH}tensor_data_layout": Example("column major"),
    **_several(99.0, {f"{ARCH}rope.": "freq_base freq_base_swa"}),
    **_several(6, {f"{ARCH}rope.": "dimension_count dimension_count_swa"}),
    f"{ARCH}rope.dimension_sections": Example([2, 2, 2, 0]),
    f"{ARCH}rope.scaling.type": Example("yarn"),
    f"{ARCH}rope.scaling.original_context_length": _yarn(16),
    f"{ARCH}rope.scaling.finetuned": Example(False),
    **_several(4.0, {f"{ARCH}rope.": "scale_linear scaling.factor scaling.attn_factor"}),
    **_several(0.5, {f"{ARCH}rope.scaling.": "alpha yarn_log_multiplier"}),
    **{
        f"{ARCH}rope.scaling.yarn_{name}": _yarn(3.0)
        for name in ("ext_factor", "attn_factor", "beta_fast", "beta_slow")
    },
    f"{ARCH}*": Example(1),
    "tokenizer.ggml.model": Example("bert"),
    "tokenizer.ggml.pre": Example("smollm"),
    "tokenizer.ggml.tokens": Example(swapped_tokens()),
    "tokenizer.ggml.scores": Example([float(n % 7) for n in range(PIECES)], pieces=True),
    "tokenizer.ggml.token_type": Example([3] * 259),
    "tokenizer.ggml.merges": Example([]),
    **_several(5, {"tokenizer.ggml.": "bos_token_id eos_token_id eot_token_id eom_token_id"}),
    **_several(6, {"tokenizer.ggml.": "unknown_token_id padding_token_id"}),
    **_several(7, {"tokenizer.ggml.fim_": "pad_token_id rep_token_id sep_token_id"}),
    **_several(8, {"tokenizer.ggml.fim_": "pre_token_id suf_token_id mid_token_id"}),
    **_several(8, {"tokenizer.ggml.": "prefix_token_id suffix_token_id middle_token_id"}),
    **_several(8, {"tokenizer.ggml.": "seperator_token_id cls_token_id mask_token_id"}),
    **_several(True, {"tokenizer.ggml.": "add_bos_token add_eos_token add_sep_token"}),
    **_several(True, {"tokenizer.ggml.": "remove_extra_whitespaces normalizer.*"}),
    "tokenizer.ggml.token_type_count": Example(2),
    "tokenizer.ggml.add_space_prefix": Example(False, pieces=True),
    "tokenizer.ggml.precompiled_charsmap": Example([1, 2, 3]),
    "tokenizer.chat_template": Example("{{ messages[-1].content }}"),
    "tokenizer.chat_template.*": Example("{{ tools }}{{ messages[0].content }}"),
    "tokenizer.chat_templates": Example(["tool_use"]),
    **_several("{}", {"tokenizer.": "huggingface.json rwkv.world"}),
    "tokenizer.*": Example("new"),
    "*": Example("somebody"),
}
ELSEWHERE = {"general.alignment", "split.no", "split.count", "split.tensors.count"}
"""Keys that go with the rest of a file; tests below cover them."""

OTHER = {"*": "else", f"{ARCH}*": "something_new", "tokenizer.chat_template.*": "tool_use"}
"""Text for the end of names."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """Return the directory of a model by architecture and size of its vocabulary."""
    folder = tmp_path_factory.mktemp("models")

    @functools.cache
    def make(architecture: str, tokens: int) -> Path:
        (kind,) = (each for each in MODEL_TYPES if each.gguf == architecture)
        path = folder / f"{architecture}-{tokens}"
        return bytes_model(path, model_type=kind.name, vocab_size=tokens)

    return make


def outcome(path: Path, folder: Path) -> dict[str, bytes] | str:
    """Return all that is made of a file: companions and tensors, or the error."""
    folder.mkdir()
    try:
        source = GgufSource(path)
        source.save_companions(folder)
    except CassandraError as error:
        return str(error)
    files = {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    return files | {name: source.read_raw(name).tobytes() for name in source.tensors}


def name_of(row: Row, architecture: str) -> str:
    """Return a key that a row is about."""
    name = row.name.removesuffix("*") + OTHER.get(row.name, "thing") * row.name.endswith("*")
    return name.replace(ARCH, f"{architecture}.")


def cases() -> list[Any]:
    """Return each row with an architecture that it is about."""
    found = []
    for row in (each for each in KEYS if each.name not in ELSEWHERE):
        architectures = row.only or ARCHITECTURES
        free = [a for a in architectures if find_row(name_of(row, a), a) is row]
        found.append(pytest.param(row, free[0], id=f"{row.name}-{free[0]}"))
    return found


@pytest.mark.parametrize(("row", "architecture"), cases())
def test_a_row_is_what_becomes_of_a_file(
    row: Row, architecture: str, models: Callable[[str, int], Path], tmp_path: Path
) -> None:
    example = EXAMPLES[row.name]
    model = models(architecture, PIECES if example.pieces else 259)
    key = name_of(row, architecture)
    beside = {n.replace(ARCH, f"{architecture}."): value for n, value in example.beside.items()}
    pieces = piece_keys() if example.pieces else {}
    keys = {**keys_of(model), **pieces, **beside}
    arrays = arrays_of(model)

    def made(name: str, changes: Mapping[str, Any]) -> dict[str, bytes] | str:
        path = write_file(tmp_path / "m.gguf", {**keys, **changes}, arrays)
        return outcome(path, tmp_path / name)

    plain, changed = made("plain", {}), made("changed", {key: example.value})
    if row.treatment == "without influence":
        assert changed == plain
    elif row.treatment == "honoured":
        assert changed != plain
    else:
        assert isinstance(changed, str)
        assert "\n" not in changed
        assert f"{key} must be {row.expected}, not " in changed
        assert row.why in changed
        for value in row.neutral:
            kind = type(example.value) if isinstance(example.value, int | float) else type(value)
            assert made(f"neutral {value}", {key: kind(value)}) == plain


WRONG: tuple[Any, ...] = ("text", -1, 3.5, True, ["text"], [1, 2, 3], float("nan"), 1e30)
"""Values of other types and out of range; each form refuses some of them."""


def is_right(words: str, value: Any) -> bool:
    """Return True if a value has the form that some words say."""
    if words == "a text":
        return isinstance(value, str)
    if words == "a list of texts":
        return isinstance(value, list) and isinstance(value[0], str)
    if words == "true or false":
        return value is True
    if words.startswith("a list of"):  # one for each token: there are 259
        return False
    if words == "an integer from 0 on, or a list for the layers":
        return value == [1, 2, 3]
    single = type(value) in (int, float)
    if words == "a number":
        return single and value == value
    if words.startswith("a number from 0"):
        return single and 0 <= value <= float(words.split()[-1])
    if words.startswith("a number above 0"):
        return single and 0 < value <= float(words.split()[-1])
    several = value == [1, 2, 3] and "layers" in words
    return several or (type(value) is int and value >= 0)


FORMS = [row for row in KEYS if row.treatment == "honoured" and not row.name.startswith("split.")]


@pytest.mark.parametrize("row", FORMS, ids=lambda row: f"{row.name}-{row.only[:1]}")
def test_values_of_a_wrong_form_are_refused_by_the_name_of_their_key(
    row: Row, models: Callable[[str, int], Path], tmp_path: Path
) -> None:
    assert row.form is not None
    architecture = row.only[0] if row.only else "llama"
    model, key = models(architecture, 259), name_of(row, architecture)
    wrong = [value for value in WRONG if not is_right(row.form.words, value)]
    assert wrong
    for value in wrong:
        path = write_file(tmp_path / "m.gguf", keys_of(model) | {key: value}, arrays_of(model))
        with pytest.raises(CassandraError) as caught:
            GgufSource(path)
        assert str(caught.value).startswith(f"{path}: {key} must be ")


@pytest.mark.parametrize("key", ["tokenizer.ggml.model", "tokenizer.ggml.tokens"])
def test_a_file_without_a_tokenizer(
    key: str, models: Callable[[str, int], Path], tmp_path: Path
) -> None:
    """Its weights can be read, and the error names the key that is missing."""
    model = models("llama", 259)
    path = write_gguf(tmp_path / "m.gguf", model, keys={key: None})
    assert outcome(path, tmp_path / "made") == f"{path} must have an entry {key}, and has none"
    path = write_gguf(tmp_path / "m.gguf", model, keys={"tokenizer.ggml.model": "none"})
    reason = "tokenizer.ggml.model must be one of gpt2 and llama, not 'none'"
    assert outcome(path, tmp_path / "none") == f"{path}: {reason}"


def test_a_rotated_part_is_even_and_within_a_head(
    models: Callable[[str, int], Path], tmp_path: Path
) -> None:
    model, name = models("phi3", 259), "phi3.rope.dimension_count"
    for size in (5, 14):
        path = write_gguf(tmp_path / "m.gguf", model, keys={name: size})
        with pytest.raises(CassandraError, match=f"{name} must be an even number up to 12, not"):
            GgufSource(path)


def test_every_key_that_the_package_names_has_a_row() -> None:
    groups = (gguf.Keys.General, gguf.Keys.LLM, gguf.Keys.Attention, gguf.Keys.Rope)
    names = [*map(vars, (*groups, gguf.Keys.Split, gguf.Keys.Tokenizer))]
    keys = [key for each in names for key in each.values() if isinstance(key, str) and "." in key]
    keys = [key for key in keys if not key.startswith(("gguf.", "cassandra"))]
    assert len(keys) > 150
    for architecture in ARCHITECTURES:
        for key in keys:
            row = find_row(key.replace("{arch}", architecture), architecture)
            assert row.name not in ("*", "tokenizer.*"), key
            if key.startswith("{arch}"):
                assert row.name.startswith(ARCH)


def test_tensors_are_aligned_as_the_file_says(
    models: Callable[[str, int], Path], tmp_path: Path
) -> None:
    model = models("llama", 259)
    keys, arrays = keys_of(model), arrays_of(model)
    plain = outcome(write_file(tmp_path / "m.gguf", keys, arrays), tmp_path / "plain")
    path = write_file(tmp_path / "m.gguf", keys, arrays, alignment=512)
    assert outcome(path, tmp_path / "aligned") == plain


# --- shards ---------------------------------------------------------------------------------------


def places(model: Path, count: int) -> dict[str, int]:
    """Return a shard for each tensor, so that layers are torn apart."""
    return {name: number % count for number, name in enumerate(arrays_of(model))}


@pytest.mark.parametrize("count", [2, 3, 5])
def test_shards_are_one_model_from_any_of_them(
    count: int, models: Callable[[str, int], Path], tmp_path: Path
) -> None:
    model = models("llama", 259)
    plain = outcome(write_gguf(tmp_path / "whole.gguf", model), tmp_path / "plain")
    paths = write_shards(tmp_path, model, count, places(model, count))
    for number, path in enumerate(paths):
        assert outcome(path, tmp_path / f"from {number}") == plain
        assert GgufSource(path).files == tuple(paths)
    paths[-1].unlink()
    with pytest.raises(
        CassandraError, match=f"beside all {count} shards; missing: {paths[-1].name}"
    ):
        GgufSource(paths[0])


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"split.no": 0}, "00002-of-00002.gguf: split.no must be 1, not 0"),
        ({"split.count": 3}, "is one of 3 shards, so its name must end in -0000N-of-00003.gguf"),
        ({"split.count": "2"}, "split.count must be an integer up to 4096, not '2'"),
        ({"split.tensors.count": 5}, "split.tensors.count must be 20, as the shards have, not 5"),
        ({"split.no": None}, "split.no must be 0, not None"),
        ({"split.tensors.count": None}, "must have an entry split.tensors.count, and has none"),
    ],
)
def test_shards_that_contradict_each_other(
    keys: dict[str, Any], line: str, models: Callable[[str, int], Path], tmp_path: Path
) -> None:
    model = models("llama", 259)
    paths = write_shards(tmp_path, model, 2, places(model, 2), keys=keys)
    with pytest.raises(CassandraError, match=line):
        GgufSource(paths[0])


def test_a_tensor_in_two_shards(models: Callable[[str, int], Path], tmp_path: Path) -> None:
    model = models("llama", 259)
    paths = write_shards(tmp_path, model, 2, {"token_embd.weight": 1}, twice="output_norm.weight")
    with pytest.raises(CassandraError, match=r"has the tensor output_norm\.weight twice"):
        GgufSource(paths[1])


# --- tensors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_tensor_that_the_package_names_is_read_or_refused(
    architecture: str, models: Callable[[str, int], Path], tmp_path: Path
) -> None:
    model = models(architecture, 259)
    (number,) = (n for n, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    known = [gguf.TENSOR_NAMES[each] for each in gguf.MODEL_TENSORS[number]]
    own = arrays_of(model)
    keys = keys_of(model)
    extra = [f"{name.format(bid=0)}.{form}" for name in known for form in ("weight", "bias")]
    extra += ["blk.0.attn_q.scale", "blk.0.attn_q.input_scale", "blk.7.attn_q.weight", "v.blk"]
    factors = [row.name for row in TENSORS if row.matches(row.name, architecture) and row.only]
    values = np.ones(6, np.float32), Kind.F32
    for name in (each for each in extra if each not in own and each not in factors):
        path = write_file(tmp_path / "m.gguf", keys, own | {name: values})
        if name.endswith(".bias") or name == "output.weight":
            with pytest.raises(CassandraError, match=f"{name}|must have the shape"):
                GgufSource(path)
        else:
            with pytest.raises(CassandraError, match=name):
                GgufSource(path)
    for name in own:
        rest = {each: array for each, array in own.items() if each != name}
        path = write_file(tmp_path / "m.gguf", keys, rest)
        if name.endswith(".bias") or name == "output.weight":
            GgufSource(path)
        else:
            with pytest.raises(CassandraError, match=r"must be a tensor of|must be of 0 tokens"):
                GgufSource(path)


@pytest.mark.parametrize("kind", list(Kind))
def test_every_type_of_tensors_is_read_or_refused(
    kind: Kind, models: Callable[[str, int], Path], tmp_path: Path
) -> None:
    model = write_model(
        tmp_path / "m", tied=True, vocab_size=259, hidden_size=256, intermediate_size=256
    )
    count, size = gguf.GGML_QUANT_SIZES[kind]
    raw = np.random.default_rng(3).integers(0, 60, (259, 256 // count * size), np.uint8)
    arrays = arrays_of(model) | {"token_embd.weight": (raw, kind)}
    path = write_file(tmp_path / "m.gguf", keys_of(model), arrays)
    if kind not in KINDS:
        with pytest.raises(
            CassandraError, match=f"token_embd.weight must have a type .*{kind.name}"
        ):
            GgufSource(path)
        return
    expected = gguf.quants.dequantize(raw, kind).astype(np.float32)
    found = GgufSource(path).read("model.embed_tokens.weight")
    np.testing.assert_array_equal(found, bf16.from_f32(expected.reshape(-1).view(np.uint32)))


# --- the page -------------------------------------------------------------------------------------


def test_the_page_has_the_tables() -> None:
    assert document() in PAGE.read_text(encoding="utf-8")
