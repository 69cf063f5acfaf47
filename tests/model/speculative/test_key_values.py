"""Keys and values in the format: what is sealed, who sees what, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cassandra_spec.drafting import (
    Counters,
    DraftCache,
    DraftKind,
    Node,
    Proposal,
    Settings,
    decode,
)
from cassandra_spec.golden import (
    CassandraError,
    Format,
    GoldenCodec,
    Packed,
    decode_draft,
    decode_target,
)
from cassandra_spec.model.packing.masks import kept_by_magnitude
from cassandra_spec.model.speculative import (
    CassandraForCausalLM,
    KeyValueCache,
    KeyValueFormat,
    run_pass,
)
from cassandra_spec.model.speculative.tiles import Tile
from tests.model.speculative.test_passes import tokens_of

UNARY = KeyValueFormat(format=Format(scheme="unary", group=16, truncated=4), block=16)
EXACT = KeyValueFormat(format=Format(scheme="exact", group=16, fill="midpoint"), block=16)
MX = KeyValueFormat(format=Format(scheme="mx", group=16, truncated=4, fill="midpoint"), block=16)
FORMATS = {"unary": UNARY, "exact": EXACT, "mx": MX}
LOSSLESS = ("unary", "exact")

HEADS, SIZE, LAYERS = 2, 12, 2


def each_format(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kv", [FORMATS[name] for name in names], ids=names)


def reply(
    lm: CassandraForCausalLM,
    prompt: list[int],
    *,
    gamma: int,
    kv: KeyValueFormat | None,
    count: int = 60,
) -> list[int]:
    session = lm.session(len(prompt) + count, kv=kv)
    settings = Settings(gamma=gamma, max_tokens=count)
    return [
        token for committed in decode(session, prompt, settings, Counters()) for token in committed
    ]


@each_format(*LOSSLESS)
@pytest.mark.parametrize("length", [1, 40])
def test_a_lossless_format_does_not_change_replies(
    lm: CassandraForCausalLM, kv: KeyValueFormat, length: int
) -> None:
    prompt = tokens_of(length)
    expected = reply(lm, prompt, gamma=0, kv=None)
    for gamma in (0, 3, 8):
        assert reply(lm, prompt, gamma=gamma, kv=kv) == expected


@pytest.mark.parametrize("length", [1, 40])
@pytest.mark.parametrize(
    "kv",
    [
        MX,
        KeyValueFormat(format=MX.format, block=32, lag=15),
        KeyValueFormat(format=Format(scheme="mx", group=16, truncated=6), block=16, prune=0.5),
    ],
    ids=["block 16", "block 32", "pruned"],
)
def test_a_rounded_format_replies_as_plain_decoding_with_it_does(
    lm: CassandraForCausalLM, kv: KeyValueFormat, length: int
) -> None:
    prompt = tokens_of(length)
    expected = reply(lm, prompt, gamma=0, kv=kv)
    for gamma in (3, 8):
        assert reply(lm, prompt, gamma=gamma, kv=kv) == expected


def test_rounding_is_seen(lm: CassandraForCausalLM) -> None:
    """Otherwise the tests of mx would hold whatever a pass sees."""
    tokens = tokens_of(100)
    found = [logits_of(lm, tokens, kv) for kv in (None, MX)]
    assert not torch.equal(found[0][:40], found[1][:40])
    assert torch.equal(found[0][: 16 + 8], found[1][: 16 + 8])


def logits_of(
    lm: CassandraForCausalLM, tokens: list[int], kv: KeyValueFormat | None
) -> torch.Tensor:
    session = lm.session(len(tokens), kv=kv)
    session.commit(len(tokens))
    return run_pass(lm.network, session.cache, tokens, 0)


def below(tokens: Sequence[int]) -> tuple[Node, ...]:
    """Return a chain of nodes."""
    return Proposal.chain(tokens, [0.0] * len(tokens), "test").nodes


@each_format("mx")
@settings(max_examples=20)
@given(data=st.data())
def test_what_a_position_sees_does_not_depend_on_the_passes(
    lm: CassandraForCausalLM, kv: KeyValueFormat, data: st.DataObject
) -> None:
    tokens = tokens_of(70)
    session = lm.session(len(tokens) + 8, kv=kv)
    expected = logits_of(lm, tokens, kv)
    position = data.draw(st.integers(1, 40))
    session.commit(position)
    session.prompt(tokens[:position])
    while position < len(tokens):
        session.commit(position)
        count = min(data.draw(st.integers(1, 9)), len(tokens) - position)
        wrong = data.draw(st.integers(1, count))  # tokens from here on are rejected
        pass_tokens = [
            token if place < wrong else token ^ 1
            for place, token in enumerate(tokens[position : position + count])
        ]
        if data.draw(st.booleans()):
            session.draft(pass_tokens[0], (), position)
        found = session.target(pass_tokens[0], below(pass_tokens[1:]), position)
        assert torch.equal(found[:wrong], expected[position : position + wrong])
        position += wrong


@each_format(*FORMATS)
def test_the_target_sees_what_packed_data_decode_to(
    lm: CassandraForCausalLM, kv: KeyValueFormat
) -> None:
    session = lm.session(100, kv=kv)
    fill(session, tokens_of(90))
    for draft, decode_values in ((False, decode_target), (True, decode_draft)):
        session.cache.begin(Tile(start=80, rows=16, first=10, stop=11), draft=draft)
        sealed = [[decode_values(part) for part in pair] for pair in session.cache.packed()]
        for layer in range(LAYERS):
            for kind, seen in enumerate(session.cache.seen(layer, 90)):
                expected = [by_position(pair[kind], layer) for pair in sealed]
                found = seen[:, : session.cache.sealed].transpose(0, 1)
                assert torch.equal(found, torch.cat(expected))


def by_position(values: NDArray[np.uint16], layer: int) -> torch.Tensor:
    """Float32 [positions, heads, dimensions] of one layer of sealed blocks of 16."""
    bf16 = torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    blocks = bf16.reshape(-1, LAYERS, HEADS, SIZE, 16)[:, layer]
    return blocks.permute(0, 3, 1, 2).reshape(-1, HEADS, SIZE).float()


def fill(session: object, tokens: list[int]) -> None:
    session.commit(len(tokens))  # type: ignore[attr-defined]
    session.prompt(tokens)  # type: ignore[attr-defined]
    session.commit(len(tokens))  # type: ignore[attr-defined]


class Recording(GoldenCodec):
    """Counts what is decoded, and spoils it on demand."""

    def __init__(self, spoil: str = "") -> None:
        self.asked = {"draft": 0, "target": 0}
        self._spoil = spoil

    def decode_draft(self, packed: Packed) -> NDArray[np.uint16]:
        self.asked["draft"] += packed.count
        found = super().decode_draft(packed)
        return found ^ np.uint16(1 << 15) if self._spoil == "draft" else found

    def decode_target(self, packed: Packed) -> NDArray[np.uint16]:
        self.asked["target"] += packed.count
        found = super().decode_target(packed)
        return found ^ np.uint16(1 << 15) if self._spoil == "target" else found


def spoilt(lm: CassandraForCausalLM, spoil: str) -> Iterator[torch.Tensor]:
    """Yield logits of target and draft after 40 positions, with a codec that turns signs."""
    tokens = tokens_of(41)
    codec = Recording(spoil)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lm, "_codec", codec)
        session = lm.session(64, kv=EXACT)
    fill(session, tokens[:40])
    assert codec.asked == dict.fromkeys(("draft", "target"), 2 * LAYERS * 32 * HEADS * SIZE)
    yield session.draft(tokens[40], (), 40)
    yield session.target(tokens[40], (), 40)


@pytest.mark.parametrize("spoil", ["draft", "target"])
def test_passes_read_what_the_codec_decoded(lm: CassandraForCausalLM, spoil: str) -> None:
    right, wrong = list(spoilt(lm, "")), list(spoilt(lm, spoil))
    same = [torch.equal(*pair) for pair in zip(right, wrong, strict=True)]
    assert same == [spoil != "draft", spoil != "target"]


def test_the_draft_sees_less_unless_it_reads_everything(lm: CassandraForCausalLM) -> None:
    whole = KeyValueFormat(format=EXACT.format, block=16, whole=True)
    tokens = tokens_of(60)
    found = []
    for kv in (None, whole, EXACT):
        session = lm.session(64, kv=kv)
        fill(session, tokens[:59])
        found.append(session.draft(tokens[59], (), 59))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_blocks_are_sealed_when_they_are_committed_and_stay_as_they_are(
    lm: CassandraForCausalLM,
) -> None:
    tokens = tokens_of(60)
    session = lm.session(64, kv=EXACT)
    fill(session, tokens[:31])
    assert session.cache.sealed == 16
    session.target(tokens[31], below(tokens[32:36]), 31)
    session.commit(31)  # all were rejected
    assert session.cache.sealed == 16
    session.target(tokens[31] ^ 1, below([token ^ 1 for token in tokens[32:36]]), 31)
    session.commit(33)
    assert session.cache.sealed == 32
    before = [part.speculation.copy() for pair in session.cache.packed() for part in pair]
    session.target(tokens[33], below(tokens[34:40]), 33)
    session.commit(40)
    after = [part.speculation for pair in session.cache.packed() for part in pair]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_rounded_block_waits_for_its_lag(lm: CassandraForCausalLM) -> None:
    session = lm.session(64, kv=MX)
    fill(session, tokens_of(23))
    assert session.cache.sealed == 0
    session.target(5, (), 23)
    session.commit(24)
    assert session.cache.sealed == 16


def test_keys_and_values_have_codebooks_of_their_own(lm: CassandraForCausalLM) -> None:
    session = lm.session(128, kv=UNARY)
    fill(session, tokens_of(40))
    session.target(tokens_of(60)[40], below(tokens_of(60)[41:]), 40)
    session.commit(60)
    books = [[part.codebook for part in pair] for pair in session.cache.packed()]
    assert len(books) == 2
    assert books[0] == books[1]  # chosen once
    assert books[0][0] != books[0][1]


@each_format(*FORMATS)
def test_values_that_are_not_finite_are_kept_or_saturated_aloud(kv: KeyValueFormat) -> None:
    cache = KeyValueCache(64, kv)
    rows = torch.randn(1, HEADS, 64, SIZE, dtype=torch.bfloat16)
    rows[0, 0, 3, 5] = torch.inf
    cache.commit(32)
    cache.begin(Tile(start=0, rows=16, first=0, stop=16))
    cache.update(rows, rows, 0)
    if kv.lossless:
        cache.commit(32)
        assert cache.seen(0, 15)[0][0, 3, 5] == torch.inf
        return
    with pytest.warns(RuntimeWarning, match="1 keys or values were not finite"):
        cache.begin(Tile(start=16, rows=16, first=0, stop=9))
    assert cache.seen(0, 24)[0][0, 3, 5] == torch.finfo(torch.bfloat16).max


def test_pruning_is_by_position(lm: CassandraForCausalLM) -> None:
    kv = KeyValueFormat(format=EXACT.format, block=16, prune=0.25)
    session = lm.session(64, kv=kv)
    fill(session, tokens_of(40))
    keys, _ = next(iter(session.cache.packed()))
    rows = decode_target(keys).reshape(2, LAYERS, HEADS * SIZE, 16).transpose(0, 1, 3, 2)
    kept = kept_by_magnitude(rows.reshape(-1, HEADS * SIZE), 0.25)
    drafted = decode_draft(keys).reshape(2, LAYERS, HEADS * SIZE, 16).transpose(0, 1, 3, 2)
    assert not drafted.reshape(kept.shape)[~kept].any()
    assert kept.sum() == kept.size * 3 // 4


# --- figures ------------------------------------------------------------------------------------

POSITION = 2 * LAYERS * HEADS * SIZE * 2


def test_without_a_format_a_pass_reads_bf16(lm: CassandraForCausalLM) -> None:
    session = lm.session(64)
    fill(session, tokens_of(40))
    read = session.reads(40)
    assert (read.draft, read.target, read.bf16) == (41 * POSITION,) * 3
    assert session.stored().target == session.stored().bf16 == 40 * POSITION


@each_format(*FORMATS)
def test_bytes_are_those_of_the_sealed_blocks_and_of_the_rest(
    lm: CassandraForCausalLM, kv: KeyValueFormat
) -> None:
    session = lm.session(64, kv=kv)
    fill(session, tokens_of(41))
    parts = [part for pair in session.cache.packed() for part in pair]
    draft = sum(part.speculation.size + part.directory.nbytes for part in parts)
    target = draft + sum(part.verification.size for part in parts)
    read, stored = session.reads(41), session.stored()
    assert session.cache.sealed == 32
    assert (read.draft, read.target) == (draft + 10 * POSITION, target + 10 * POSITION)
    assert read.bf16 == 42 * POSITION
    assert (stored.target, stored.bf16) == (target + 9 * POSITION, 41 * POSITION)
    assert session.reads(20).target < read.target  # as plain decoding would have read it


def test_a_window_reads_the_blocks_that_it_touches() -> None:
    cache = KeyValueCache(64, EXACT)
    tile = Tile(start=0, rows=64, first=0, stop=40)
    cache.commit(40)
    cache.begin(tile)
    rows = torch.randn(1, HEADS, 64, SIZE, dtype=torch.bfloat16)
    cache.update(rows, rows, 0)
    cache.seen(0, 39, 8)
    cache.commit(40)
    (keys, values) = next(iter(cache.packed()))
    last = sum(int(part.directory[1, 1]) * 128 + 20 for part in (keys, values))
    each = POSITION // LAYERS
    assert cache.reads(39).draft == last * 0 + 8 * each
    assert cache.reads(36).draft == last + 5 * each
    assert cache.reads(39).bf16 == 8 * each


def test_the_report_counts_what_was_read(lm: CassandraForCausalLM) -> None:
    counters = Counters()
    prompt = tokens_of(50)
    session = lm.session(100, kv=EXACT)
    list(decode(session, prompt, Settings(gamma=0, max_tokens=40), counters))
    assert counters.kv is not None
    assert (
        counters.kv.target
        == counters.kv.plain
        == sum(session.reads(p).target for p in range(50, 89))
    )
    assert (counters.kv.draft, counters.kv.bf16) == (0, counters.plain_positions * POSITION)
    assert counters.kv.stored == session.stored().target
    assert counters.kv.stored_bf16 == 89 * POSITION


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"block": 24}, "block must be a multiple of 32 .the group., not 24"),
        ({"block": 0}, "block must be a multiple of 32 .the group., not 0"),
        ({"lag": -1}, "lag must be at least 0, not -1"),
        ({"prune": 1.0}, "prune must be a fraction from 0 to below 1, not 1.0"),
    ],
)
def test_bad_fields_are_named(fields: dict[str, int], text: str) -> None:
    with pytest.raises(CassandraError, match=text):
        KeyValueFormat(**fields)  # type: ignore[arg-type]


def test_a_round_has_at_most_the_lag_of_a_rounded_target_as_nodes() -> None:
    MX.check_nodes(8)
    EXACT.check_nodes(100)
    with pytest.raises(CassandraError, match=r"gamma and rows must be at most 8 \(the lag"):
        MX.check_nodes(9)


def test_tiles_must_not_need_what_they_compute() -> None:
    MX.check_rows(16)
    EXACT.check_rows(64)
    with pytest.raises(CassandraError, match="lag must be larger than 8 for tiles of 64 rows"):
        MX.check_rows(64)


def test_a_pass_beyond_the_lag_is_refused(lm: CassandraForCausalLM) -> None:
    session = lm.session(64, kv=MX)
    fill(session, tokens_of(15))
    with pytest.raises(CassandraError, match="a pass must end within 8 positions"):
        session.target(7, below(tokens_of(11)), 15)


def test_a_block_too_large_for_a_segment_is_refused() -> None:
    cache = KeyValueCache(8192, KeyValueFormat(block=8192))
    cache.commit(8192)
    cache.begin(Tile(start=0, rows=8192, first=0, stop=8192))
    rows = torch.zeros(1, 1, 8192, SIZE, dtype=torch.bfloat16)
    cache.update(rows, rows, 0)
    with pytest.raises(CassandraError, match="block must be at most 5461 for heads of 12"):
        cache.commit(8192)


# --- what drafts see ------------------------------------------------------------------------------


@pytest.mark.parametrize("kv", [None, *FORMATS.values()], ids=["bf16", *FORMATS])
@pytest.mark.parametrize("cache", [DraftCache(window=32, sinks=3), DraftCache(window=1, sinks=0)])
def test_a_bounded_draft_cache_does_not_change_replies(
    lm: CassandraForCausalLM, kv: KeyValueFormat | None, cache: DraftCache
) -> None:
    prompt = tokens_of(70)
    expected = reply(lm, prompt, gamma=0, kv=kv, count=40)
    kinds: tuple[DraftKind, ...] = ("model", "hybrid")
    for draft in kinds:
        session = lm.session(len(prompt) + 40, kv=kv, draft_cache=cache)
        asked = Settings(gamma=3, max_tokens=40, draft=draft, draft_cache=cache)
        counters = Counters()
        rounds = decode(session, prompt, asked, counters)
        assert [token for emitted in rounds for token in emitted] == expected
        assert counters.kv is not None
        each = counters.kv.draft / counters.passes
        assert each <= (cache.sinks + 1 + 31 + 8 + (cache.window or 0)) * lm.costs.position


@pytest.mark.parametrize("kv", [None, EXACT], ids=["bf16", "exact"])
def test_drafts_see_the_positions_of_their_cache(
    lm: CassandraForCausalLM, kv: KeyValueFormat | None
) -> None:
    """Against a whole cache whose other positions are taken away."""
    tokens, bounded = tokens_of(90), DraftCache(window=32, sinks=3)
    whole = lm.session(100, kv=kv)
    session = lm.session(100, kv=kv, draft_cache=bounded)
    for each in (whole, session):
        fill(each, tokens)
    places = [place for run in bounded.runs(90, 0, 91) for place in range(*run)]
    assert places == [0, 1, 2, *range(32, 91)]
    for draft in (False, True):
        for each in (whole, session):
            each.cache.begin(Tile(start=80, rows=16, first=10, stop=11), draft=draft)
        for layer in range(LAYERS):
            pairs = zip(whole.cache.seen(layer, 90), session.cache.seen(layer, 90), strict=True)
            for everything, found in pairs:
                assert torch.equal(found, everything[:, places] if draft else everything)


def test_bytes_of_a_draft_are_those_that_it_sees(lm: CassandraForCausalLM) -> None:
    bounded = lm.session(100, draft_cache=DraftCache(window=32, sinks=3))
    whole = lm.session(100)
    for session in (bounded, whole):
        fill(session, tokens_of(90))
    found, expected = bounded.reads(90), whole.reads(90)
    assert (found.target, found.bf16) == (expected.target, expected.bf16)
    assert found.draft * 91 == expected.draft * (3 + 91 - 32)
