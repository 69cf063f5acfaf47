"""Sealed keys and values: golden's values bit for bit, and the replies of BF16."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cassandra_spec import native
from cassandra_spec.drafting import Counters, DraftKind, Settings
from cassandra_spec.golden import CassandraError, Encoder, Format, GoldenCodec, GoldenEncoder
from cassandra_spec.golden.format import SCHEMES, Scheme
from cassandra_spec.model.speculative import KeyValueFormat
from cassandra_spec.model.speculative.chunks import FormatSealer
from cassandra_spec.model.speculative.sealing import Sealer
from cassandra_spec.native.codec import NativeCodec
from cassandra_spec.native.engine import Engine
from cassandra_spec.native.key_values import ChunkSealer, SealedForm
from cassandra_spec.native.library import available_isas
from cassandra_spec.native.limits import CHUNK
from tests.native.models import packed, small

VOCABULARY = 97
Patterns = NDArray[np.uint16]


def key_values(scheme: Scheme = "exact", **options: Any) -> KeyValueFormat:
    names = ("truncated", "fill", "group", "significand")
    chosen = {name: options.pop(name) for name in names if name in options}
    return KeyValueFormat(format=Format(scheme=scheme, **{"fill": "midpoint", **chosen}), **options)


FORMATS = [
    key_values(scheme, order=order, keep=keep, truncated=truncated, fill=fill)
    for scheme, (order, keep), (truncated, fill) in itertools.product(
        SCHEMES,
        (("channel", None), ("token", None), ("token", 20)),
        ((4, "midpoint"), (2, "zero"), (6, "midpoint"), (0, "zero")),
    )
] + [
    key_values("exact", group=16, block=64),
    key_values("exact", group=64, block=128),
    key_values("mx", significand=7),
    key_values("exact", prune=0.25),
    key_values("unary", whole=True),
    key_values("exact", order="token", group=16, whole=True),
]


class Given:
    """A sealer that gives the patterns that a test wants, and keeps what it has given."""

    def __init__(self, sealer: FormatSealer, patterns: Sequence[Patterns] = ()) -> None:
        self.form, self._sealer = sealer.form, sealer
        self._patterns = iter(patterns)
        self.given: list[tuple[Patterns, Patterns]] = []

    def seal(self, patterns: Patterns) -> tuple[Patterns, Patterns]:
        self.given.append(self._sealer.seal(next(self._patterns, patterns)))
        return self.given[-1]


def make(sealer: ChunkSealer | None = None, **options: Any) -> Engine:
    changes = {name: options.pop(name) for name in ("head_dim",) if name in options}
    config, tensors = small("llama", max_position_embeddings=1024, **changes)
    return Engine.from_tensors(config, packed(tensors), pin=False, key_values=sealer, **options)


def tokens(count: int, seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, count).tolist()


def any_patterns(rng: np.random.Generator, shape: tuple[int, ...]) -> Patterns:
    """Return normal values with zeros, subnormals, tiny, huge and infinite values among them."""
    floats = rng.standard_normal(shape) * np.exp2(rng.integers(-3, 4, shape[-1]))
    found = (floats.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    odd = rng.random(shape) < 0.03
    found[odd] = rng.integers(0, 1 << 16, shape, np.uint16)[odd]
    zeros = rng.random(shape) < 0.02
    found[zeros] &= 0x8000
    return found


@pytest.mark.filterwarnings("ignore:.* keys or values were not finite:RuntimeWarning")
@pytest.mark.parametrize("kv", FORMATS, ids=lambda kv: f"{kv.format.scheme}-{kv.order}")
def test_target_and_draft_read_the_values_of_the_format(kv: KeyValueFormat) -> None:
    codec = GoldenCodec()
    rng = np.random.default_rng(5)
    with make(context=256, head_dim=64) as plain:
        shape = plain.read_chunk(0, 0).shape
    patterns = [any_patterns(rng, shape[1:]) for _ in range(2)]
    given = Given(FormatSealer(kv=kv, codec=codec), patterns)
    with make(given, context=256, threads=2, head_dim=64) as engine:
        engine.forward(tokens(CHUNK + 1), last=0)
        engine.forward([1], CHUNK + 1, last=0)  # seals the first chunk
        encoder: Encoder | None = None if kv.prune else GoldenEncoder()
        read = [Sealer(kv, codec, encoder).read_back(each)[1:] for each in patterns]
        targets, drafts = map(np.stack, zip(*read, strict=True))
        assert not kv.lossless or (targets == np.stack(patterns)).all()
        for isa in (*available_isas(), None):  # the last one puts things back
            native.set_isa(isa)
            assert (engine.read_chunk(0, 0) == targets).all(), isa
            assert (engine.read_chunk(0, 0, draft=True) == drafts).all(), isa


@pytest.mark.parametrize("size", [16, 40, 80])
@pytest.mark.parametrize("order", ["channel", "token"])
def test_heads_of_any_size_are_sealed(size: int, order: str) -> None:
    kv = key_values("unary" if order == "token" else "exact", order=order)
    given = Given(FormatSealer(kv=kv, codec=NativeCodec()))
    with make(given, context=256, head_dim=size) as engine:
        engine.forward(tokens(CHUNK), last=0)
        before = engine.read_chunk(0, 0)
        engine.forward([1], CHUNK, last=0)
        assert (engine.read_chunk(0, 0) == before).all()
        drafts = np.stack([draft for _, draft in given.given])
        assert (engine.read_chunk(0, 0, draft=True) == drafts).all()


class Twice:
    """A sealer whose target reads the draft values, too."""

    def __init__(self, sealer: FormatSealer) -> None:
        self.form = SealedForm(rule="same", by_token=sealer.form.by_token, group=16)
        self._sealer = sealer

    def seal(self, patterns: Patterns) -> tuple[Patterns, Patterns]:
        _, draft = self._sealer.seal(patterns)
        return draft, draft


@pytest.mark.parametrize("scheme", ["exact", "unary"])
def test_passes_compute_with_the_values_that_they_read(scheme: Scheme, every_isa: str) -> None:
    sealer = FormatSealer(kv=key_values(scheme, truncated=5), codec=NativeCodec())
    prompt, rest = tokens(3 * CHUNK + 9), tokens(4, seed=2)
    with make(context=512) as plain, make(sealer, context=512, threads=2) as sealed:
        assert (plain.forward(prompt, last=1) == sealed.forward(prompt, last=1)).all()
        at = len(prompt)
        whole = plain.forward(rest, at)
        assert (whole == sealed.forward(rest, at)).all()
        drafts = sealed.forward(rest, at, draft=True)
        with make(Twice(sealer), context=512) as other:
            other.forward(prompt, last=0)
            assert (other.forward(rest, at, draft=True) == drafts).all()
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
    sealer = FormatSealer(kv=kv, codec=NativeCodec())
    with make(sealer, context=640, threads=2) as engine:
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

    sealer = FormatSealer(kv=key_values("exact"), codec=NativeCodec())
    with make(slots=4, context=512) as plain, make(sealer, slots=4, context=512) as sealed:
        assert list(run(sealed)) == list(run(plain))


def test_sealed_chunks_take_less_memory_and_copies_share_it() -> None:
    sealer = FormatSealer(kv=key_values("exact"), codec=NativeCodec())
    with make(context=1024) as plain, make(sealer, context=1024) as engine:
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


def test_what_an_engine_cannot_hold_is_refused() -> None:
    codec = NativeCodec()
    with pytest.raises(CassandraError, match=r"block must divide 128 .*, not 96"):
        FormatSealer(kv=key_values("exact", block=96), codec=codec)
    narrow = KeyValueFormat(format=Format(scheme="exact", beat=8, group=8))
    with pytest.raises(CassandraError, match="group must be a power of two from 16 to 128, not 8"):
        FormatSealer(kv=narrow, codec=codec)
    sealer = FormatSealer(kv=key_values("exact", order="token"), codec=codec)
    with pytest.raises(CassandraError, match="group must divide the head size 40"):
        make(sealer, head_dim=40)
    for rule, dropped in (("shared", 0), ("aligned", 8)):
        with pytest.raises(CassandraError, match=r"(rule|dropped) must be"):
            SealedForm(rule=rule, dropped=dropped)  # type: ignore[arg-type]
