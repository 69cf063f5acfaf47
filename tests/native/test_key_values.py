"""Sealed keys and values: golden's values bit for bit, and the replies of BF16."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cassandra_spec import native
from cassandra_spec.drafting import Counters, DraftKind, Settings
from cassandra_spec.golden import CassandraError, Format, GoldenCodec
from cassandra_spec.golden.format import Fill, Scheme
from cassandra_spec.model.speculative import KeyValueFormat
from cassandra_spec.model.speculative.sealing import Sealer
from cassandra_spec.native.arrays import pointer
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.engine_binding import Row
from cassandra_spec.native.key_values import Order, SealedFormat
from cassandra_spec.native.library import available_isas
from cassandra_spec.native.limits import CHUNK
from tests.native.models import packed, small

VOCABULARY = 97
LOSSLESS: tuple[Scheme, ...] = ("unary", "exact")
Patterns = NDArray[np.uint16]


def key_values(scheme: Scheme = "exact", **options: Any) -> KeyValueFormat:
    names = ("truncated", "fill", "group", "codebook")
    chosen = {name: options.pop(name) for name in names if name in options}
    return KeyValueFormat(format=Format(scheme=scheme, **{"fill": "midpoint", **chosen}), **options)


FORMATS = [
    key_values(scheme, order=order, keep=keep, truncated=truncated, fill=fill)
    for scheme, (order, keep), (truncated, fill) in itertools.product(
        LOSSLESS,
        (("channel", None), ("token", None), ("token", 20)),
        ((4, "midpoint"), (2, "zero"), (6, "midpoint"), (0, "zero")),
    )
] + [
    key_values("exact", group=16, block=64),
    key_values("exact", group=64, block=128, segment=1 << 13),
    key_values("unary", order="token", block=1),
    key_values("exact", prune=0.25),
    key_values("unary", order="token", prune=0.5),
    key_values("unary", order="token", keep=0),
    key_values("unary", whole=True),
    key_values("exact", order="token", group=16, whole=True),
]


def make(kv: SealedFormat | None = None, **options: Any) -> Engine:
    names = ("head_dim", "num_key_value_heads", "num_hidden_layers")
    changes = {name: options.pop(name) for name in names if name in options}
    config, tensors = small("llama", max_position_embeddings=1024, **changes)
    return Engine.from_tensors(config, packed(tensors), pin=False, key_values=kv, **options)


def tokens(count: int, seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, count).tolist()


def shape_of(engine: Engine) -> tuple[int, ...]:
    """Return the shape of a chunk: keys and values, layers, positions, heads, head size."""
    config = engine.config
    return 2, config.layers, CHUNK, config.kv_heads, config.head_size


def read_chunk(engine: Engine, slot: int, chunk: int, *, draft: bool = False) -> Patterns:
    """Return a chunk as the target or a draft reads it."""
    patterns = np.empty(shape_of(engine), np.uint16)
    place = pointer("patterns", patterns, np.uint16, *patterns.shape, writable=True)
    read = engine._library.cassandra_engine_read_chunk
    assert read(engine._open(), slot, chunk, int(draft), place)
    return patterns


def write_chunk(engine: Engine, slot: int, chunk: int, patterns: Patterns) -> None:
    """Write a chunk in BF16."""
    place = pointer("patterns", patterns, np.uint16, *shape_of(engine))
    engine._library.cassandra_engine_write_chunk(engine._open(), slot, chunk, place)


def draft_of(kv: KeyValueFormat, patterns: Patterns) -> Patterns:
    """Return what golden's codec decodes for a draft of a chunk, its keys and values each alone."""
    read = [Sealer(kv, GoldenCodec()).read_back(each) for each in patterns]
    assert all((target == each).all() for (_, target, _), each in zip(read, patterns, strict=True))
    return np.stack([draft for *_, draft in read])


def require_sealed(engine: Engine, kv: KeyValueFormat, patterns: Patterns, slot: int = 0) -> None:
    """Seal patterns, and hold to golden what target and draft read of them."""
    write_chunk(engine, slot, 0, patterns)
    engine.use_key_values(kv)
    engine.run_rows([Row(slot, CHUNK, 1)], last=0)
    assert (read_chunk(engine, slot, 0) == patterns).all()
    assert (read_chunk(engine, slot, 0, draft=True) == draft_of(kv, patterns)).all()


def any_patterns(rng: np.random.Generator, shape: tuple[int, ...]) -> Patterns:
    """Return normal values with zeros, subnormals, tiny, huge and infinite values among them."""
    floats = rng.standard_normal(shape) * np.exp2(rng.integers(-3, 4, shape[-1]))
    found = (floats.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    odd = rng.random(shape) < 0.03
    found[odd] = rng.integers(0, 1 << 16, shape, np.uint16)[odd]
    zeros = rng.random(shape) < 0.02
    found[zeros] &= 0x8000
    return found


@pytest.mark.parametrize("kv", FORMATS, ids=lambda kv: f"{kv.format.scheme}-{kv.order}")
def test_target_and_draft_read_the_values_of_the_format(kv: KeyValueFormat) -> None:
    with make(kv, context=256, threads=2, head_dim=64) as engine:
        patterns = any_patterns(np.random.default_rng(5), shape_of(engine))
        draft = draft_of(kv, patterns)
        for isa in (*available_isas(), None):  # the last one puts things back
            native.set_isa(isa)
            write_chunk(engine, 0, 0, patterns)
            assert (read_chunk(engine, 0, 0, draft=True) == patterns).all(), isa  # not sealed
            engine.forward([1], CHUNK, last=0)
            assert (read_chunk(engine, 0, 0) == patterns).all(), isa
            assert (read_chunk(engine, 0, 0, draft=True) == draft).all(), isa


SIZES, ORDERS = (16, 40, 64), get_args(Order)


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[int, Engine]]:
    """Yield engines by the size of their heads, with more threads than layers."""
    made = {
        size: make(context=256, threads=3, head_dim=size, num_key_value_heads=3) for size in SIZES
    }
    yield made
    for each in made.values():
        each.close()


@st.composite
def formats(draw: st.DrawFn, size: int) -> KeyValueFormat:
    scheme, order = draw(st.sampled_from(LOSSLESS)), draw(st.sampled_from(ORDERS))
    whole, groups = draw(st.booleans()), [16, 32, 64, CHUNK]
    if order == "token" and scheme == "exact" and not whole:  # a group lies within a head
        groups = [each for each in groups if size % each == 0]
        order = order if groups else "channel"
    by_token, group = order == "token", draw(st.sampled_from(groups or [16]))
    blocks = [each for each in (16, 32, 64, CHUNK) if each % group == 0 or by_token]
    format = Format(
        scheme=scheme,
        truncated=draw(st.integers(0, 7)),
        fill=draw(st.sampled_from(get_args(Fill))),
        group=group,
        beat=draw(st.sampled_from([8, 16])),
        codebook=draw(st.sampled_from([16, 32])),
    )
    keep = draw(st.none() | st.integers(0, size + 1)) if by_token else None
    return KeyValueFormat(
        format=format,
        block=draw(st.sampled_from(blocks)),
        order=order,
        keep=keep,
        prune=draw(st.integers(0, 255)) / 256 if keep is None else 0.0,
        whole=whole,
    )


PATTERN = st.integers(0, 0xFFFF) | st.sampled_from([0, 0x8000, 1, 0x7F, 0x80, 0x7F80, 0xFFC0])


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_chunks_of_few_different_values_are_sealed(
    data: st.DataObject, engines: dict[int, Engine]
) -> None:
    """Values that are equal, zero, subnormal, infinite or NaN, and exponents that tie."""
    engine = engines[data.draw(st.sampled_from(SIZES))]
    kv = data.draw(formats(engine.config.head_size))
    values = np.array(data.draw(st.lists(PATTERN, min_size=1, max_size=40)), np.uint16)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    patterns = rng.permuted(np.resize(values, shape_of(engine)))
    require_sealed(engine, kv, patterns, data.draw(st.integers(0, 1)))


@pytest.mark.parametrize("codebook", [16, 32])
def test_exponents_that_tie_are_chosen_as_by_golden(
    codebook: int, engines: dict[int, Engine]
) -> None:
    exponents = np.random.default_rng(7).permutation(
        np.arange(0, 192, 4, dtype=np.uint16)
    )  # 48 of them
    patterns = np.resize(exponents << 7, shape_of(engines[16]))
    require_sealed(engines[16], key_values("unary", codebook=codebook), patterns)


def test_every_chunk_of_a_slot_before_a_row_is_sealed() -> None:
    kv = key_values("unary", order="token", keep=20)
    rng = np.random.default_rng(6)
    with make(kv, context=512, slots=2) as engine:
        written = {
            (slot, chunk): any_patterns(rng, shape_of(engine)) << np.uint16(chunk)
            for slot in (1, 2)
            for chunk in range(3)
        }
        for place, patterns in written.items():
            write_chunk(engine, *place, patterns)
        engine.run_rows([Row(1, 2 * CHUNK, 1), Row(2, 2 * CHUNK - 1, 1)], last=0)
        for place in ((1, 0), (1, 1), (2, 0)):  # each chunk has a codebook of its own
            draft = draft_of(kv, written[place])
            assert (read_chunk(engine, *place, draft=True) == draft).all(), place
            assert (read_chunk(engine, *place) == written[place]).all(), place
        rest = read_chunk(engine, 2, 1, draft=True)
        assert (rest[:, :, :-1] == written[2, 1][:, :, :-1]).all()


@pytest.mark.parametrize("scheme", ["exact", "unary"])
def test_passes_compute_with_the_values_that_they_read(scheme: Scheme, every_isa: str) -> None:
    kv = key_values(scheme, truncated=5)
    prompt, rest = tokens(3 * CHUNK + 9), tokens(4, seed=2)
    with make(context=512) as plain, make(kv, context=512, threads=2) as sealed:
        assert (plain.forward(prompt, last=1) == sealed.forward(prompt, last=1)).all()
        at = len(prompt)
        whole = plain.forward(rest, at)
        assert (whole == sealed.forward(rest, at)).all()
        drafts = sealed.forward(rest, at, draft=True)
        for chunk in range(3):
            write_chunk(plain, 0, chunk, read_chunk(sealed, 0, chunk, draft=True))
        assert (plain.forward(rest, at, draft=True) == drafts).all()
    assert not (drafts == whole).all()


@pytest.fixture(scope="module")
def replies() -> dict[str, list[int]]:
    """Return the replies of an engine with keys and values in BF16."""
    with make(context=640) as engine:
        return {draft: _reply(engine, draft) for draft in ("none", "model", "hybrid")}


def _reply(engine: Engine, draft: DraftKind, count: int = 150) -> list[int]:
    settings = Settings(max_tokens=count, draft=draft, gamma=0 if draft == "none" else 4)
    rounds = engine.rounds(tokens(330), settings, Counters())
    return [token for emitted in rounds for token in emitted]


@pytest.mark.parametrize("kv", [key_values("exact"), key_values("unary", order="token", keep=6)])
@pytest.mark.parametrize("draft", ["none", "model", "hybrid"])
def test_replies_are_those_of_bf16(
    kv: KeyValueFormat, draft: DraftKind, replies: dict[str, list[int]]
) -> None:
    with make(kv, context=640, threads=2) as engine:
        assert _reply(engine, draft) == replies[draft] == replies["none"]
        assert _reply(engine, draft, 20) == replies[draft][:20]  # behind what the first has sealed


def test_sequences_side_by_side_share_sealed_prefixes() -> None:
    prompts = [tokens(300), [*tokens(200), *tokens(70, seed=3)], tokens(257, seed=4)]
    settings = Settings(max_tokens=12, gamma=0)

    def run(engine: Engine) -> Iterator[list[int]]:
        with engine.sequences(keep=True) as batch:
            for group in (prompts, prompts[::-1]):
                slots: dict[int, list[int]] = {}
                for prompt in group:
                    slots[batch.claim(prompt, settings)] = []
                while batch.running:
                    for each in batch.step():
                        slots[each.slot].append(each.token)
                yield from slots.values()

    exact = key_values("exact")
    with make(slots=4, context=512) as plain, make(exact, slots=4, context=512) as sealed:
        assert list(run(sealed)) == list(run(plain))


def test_sealed_chunks_take_less_memory_and_copies_share_it() -> None:
    with make(context=1024) as plain, make(key_values("exact"), context=1024) as engine:
        for each in (plain, engine):
            each.forward(tokens(6 * CHUNK), last=0)
            each.forward([1], 6 * CHUNK, last=0)
        chunk = CHUNK * engine.memory()["position"]
        assert plain.memory()["cache"] == 7 * chunk
        held = engine.memory()["cache"]
        assert chunk + 6 * chunk * 12 / 16 < held < chunk + 6 * chunk * 13 / 16
        engine.copy_positions(0, 1, 6 * CHUNK)
        assert engine.memory()["cache"] == held
        engine.copy_positions(0, 1, 6 * CHUNK + 1)
        assert engine.memory()["cache"] == held + chunk
        engine.forward([1], 0, last=0)  # begins another sequence: the first chunk is opened
        assert engine.memory()["cache"] > held + chunk


@pytest.mark.parametrize(
    ("kv", "line"),
    [
        (key_values("exact", block=96), r"block must divide 128 .*, not 96"),
        (
            KeyValueFormat(format=Format(scheme="exact", beat=8, group=8)),
            "group must be a power of two from 16 to 128, not 8",
        ),
        (key_values("exact", order="token"), "group must divide the head size 40 .*, not 32"),
        (key_values("mx"), "the scheme of keys and values must be unary or exact .*, not mx"),
    ],
)
def test_what_an_engine_cannot_hold_is_refused(kv: KeyValueFormat, line: str) -> None:
    with pytest.raises(CassandraError, match=line):
        make(kv, head_dim=40)
    with make(head_dim=40) as engine, pytest.raises(CassandraError, match=line):
        engine.use_key_values(kv)
