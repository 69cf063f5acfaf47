"""Studies against decoding: what a draft sees of keys and values, and whole measurements."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cassandra_spec.bench.study.acceptance import count
from cassandra_spec.bench.study.chains import Rows, Sequences
from cassandra_spec.bench.study.drafts import SealedSequences, Setting, Study
from cassandra_spec.drafting import Counters, Settings, decode
from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.model.packing.packer import Override, PackPlan, Recipe, pack_model
from cassandra_spec.model.speculative import (
    CassandraForCausalLM,
    KeyValueCache,
    KeyValueFormat,
)
from cassandra_spec.model.speculative.tiles import Tile
from cassandra_spec.model.weights.sources import Source, open_source
from tests.bench.study.test_emulation import in_float32
from tests.model.tiny import write_model

BLOCK, LAYERS, HEADS, SIZE = 16, 3, 2, 8
FORMATS = {
    "unary": KeyValueFormat(format=Format(scheme="unary", group=16, truncated=5), block=BLOCK),
    "exact": KeyValueFormat(
        format=Format(scheme="exact", group=16, truncated=5, fill="midpoint"), block=BLOCK
    ),
}
PROMPTS = ["word3 word4 word5", " ".join(f"word{n}" for n in range(5, 50)), "word9"]


@pytest.mark.parametrize("kv", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("prompt", [5, 40])
def test_a_draft_sees_what_it_sees_in_decoding(kv: KeyValueFormat, prompt: int) -> None:
    torch.manual_seed(prompt)
    total = 75
    written = torch.randn(LAYERS, 2, HEADS, total, SIZE).to(torch.bfloat16)
    sequences, cache = Sequences(1), KeyValueCache(total + 1, kv)
    rows = Rows(sequence=torch.zeros(total, dtype=torch.int64), position=torch.arange(total))
    for layer in range(LAYERS):
        sequences.write(layer, rows, written[layer, 0], written[layer, 1])
    sealed = SealedSequences(sequences, kv, [range(prompt)])
    for first, stop in [(0, prompt), *((n, n + 1) for n in range(prompt, total))]:
        cache.begin(Tile(start=0, rows=total, first=first, stop=stop))
        for layer in range(LAYERS):
            cache.update(written[layer, :1], written[layer, 1:], layer)
        cache.commit(stop)
        cache.begin(Tile(start=0, rows=total + 1, first=stop, stop=stop), draft=True)
        blocks = int(sealed.blocks_seen(torch.tensor([stop]))[0])
        assert blocks == stop // BLOCK
        for layer in range(LAYERS):
            ours = sealed.seen(layer, 0, blocks)
            theirs = cache.seen(layer, stop - 1)
            for mine, other in zip(ours, theirs, strict=True):
                assert torch.equal(mine[:, :stop].float(), other)
    stored = cache.stored()
    whole = total // BLOCK * BLOCK
    tail = (total - whole) * LAYERS * HEADS * SIZE * 2 * 2
    assert sealed.bytes().draft * whole == stored.draft - tail
    assert sealed.bytes().target * whole == stored.target - tail
    assert sealed.bytes().bf16 * total == stored.bf16


def test_a_sequence_shorter_than_a_block_has_nothing_sealed() -> None:
    sequences = Sequences(1)
    rows = Rows(sequence=torch.zeros(3, dtype=torch.int64), position=torch.arange(3))
    sequences.write(0, rows, *torch.randn(2, HEADS, 3, SIZE).to(torch.bfloat16))
    sealed = SealedSequences(sequences, FORMATS["exact"], [range(3)])
    assert torch.equal(sealed.seen(0, 0, 0)[0], sequences.layers[0][0][0])
    with pytest.raises(CassandraError, match="block must be shorter than every sequence, not 16"):
        sealed.bytes()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("study")
    return open_source(write_model(folder / "plain", max_position_embeddings=256))


def recipe(scheme: str, truncated: int) -> Recipe:
    return Recipe(
        format=Format(
            scheme=scheme,  # type: ignore[arg-type]
            truncated=truncated,
            group=32,
            segment=1024,
            fill="midpoint",
        )
    )


@pytest.fixture(scope="module")
def study(source: Source) -> Study:
    return Study(source, PROMPTS, max_tokens=24, depth=4, jobs=1)


@pytest.mark.parametrize("scheme", ["unary", "mx", "exact"])
def test_a_measurement_is_of_the_packed_model(
    source: Source, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = CassandraForCausalLM.from_pretrained
    monkeypatch.setattr(
        CassandraForCausalLM, "from_pretrained", lambda path: in_float32(load(path))
    )
    study = Study(source, PROMPTS, max_tokens=24, depth=4, jobs=1)
    plan = PackPlan(
        default=recipe(scheme, 4), overrides=(Override(tensors="lm_head.weight", keep=True),)
    )
    measured = study.measure(Setting(name="test", plan=plan))
    pack_model(source, tmp_path / "packed", plan, jobs=1)
    lm = in_float32(load(tmp_path / "packed"))
    assert measured.costs == lm.costs
    settings = Settings(gamma=4, max_tokens=24, stop_tokens=lm.stop_tokens())
    total = Counters()
    for prompt in PROMPTS:
        tokens = lm.encode_prompt(prompt)
        list(decode(lm.session(len(tokens) + 24), tokens, settings, total))
    report = count(measured, 4).report
    assert (report.accepted, report.drafted) == (total.accepted, total.drafted)
    assert report.rounds == total.rounds


def test_drafts_replace_each_other(study: Study) -> None:
    close = Setting(name="close", plan=PackPlan.of(recipe("exact", 0)))
    keep = (Override(tensors="*", keep=True), Override(tensors="*q_proj*", keep=False))
    others = [
        Setting(name="far", plan=PackPlan.of(recipe("exact", 7))),
        Setting(name="some", plan=PackPlan(default=recipe("exact", 7), overrides=keep)),
    ]
    alone = [count(study.measure(each), 4).acceptance for each in (close, *others)]
    again = [count(study.measure(each), 4).acceptance for each in (*others, close)]
    assert again == [*alone[1:], alone[0]]
    assert alone[0] > alone[2] > alone[1]


def test_keys_and_values_are_of_a_lossless_scheme(source: Source) -> None:
    kv = KeyValueFormat(format=Format(scheme="mx"))
    with pytest.raises(CassandraError, match="scheme of keys and values must be unary or exact"):
        Setting(name="mx", plan=PackPlan(), kv=kv)


def test_gammas_are_checked_before_the_work(study: Study) -> None:
    for gamma in (0, 5):
        with pytest.raises(CassandraError, match=f"gamma must be from 1 to 4, not {gamma}"):
            study.check_gammas([3, gamma])
