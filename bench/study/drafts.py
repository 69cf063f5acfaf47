"""One model with one draft after another: what a study of settings needs."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from cassandra_spec.bench.study.chains import Pair, Sequences
from cassandra_spec.bench.study.emulation import Drafts, Replies, follow, greedy_replies
from cassandra_spec.drafting import Candidates, Costs, Settings
from cassandra_spec.golden import CassandraError, GoldenCodec
from cassandra_spec.golden.file import PackedFile
from cassandra_spec.golden.model_types import EMBEDDING, HEAD
from cassandra_spec.model.packing.calibration import Norms
from cassandra_spec.model.packing.packer import PackPlan, decode_tensors, open_packed, pack_model
from cassandra_spec.model.speculative import (
    CassandraForCausalLM,
    DecodedProducts,
    KeyValueFormat,
    PackedLinear,
)
from cassandra_spec.model.speculative.key_values import Sealer
from cassandra_spec.model.speculative.loading import network_costs
from cassandra_spec.model.weights.sources import Source, Values, fingerprint

_ASKED = Settings()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """The settings of a draft."""

    name: str
    plan: PackPlan
    kv: KeyValueFormat | None = None  # None: keys and values stay in BF16
    min_margin: float = 0.0  # as of cassandra_spec.drafting.Settings

    def __post_init__(self) -> None:
        if self.kv is not None and not self.kv.lossless:
            raise CassandraError(
                "scheme of keys and values must be unary or exact (the target's stay its own), not"
                f" {self.kv.format.scheme}"
            )

    def lossless(self, source: Source) -> bool:
        """Return whether the target of a packed model equals the original model."""
        recipes = self.plan.recipes(source).values()
        return all(recipe.format.scheme != "mx" for recipe in recipes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeyValueBytes:
    """Mean bytes of a position's keys and values, all layers together."""

    bf16: float
    draft: float = 0.0  # of a sealed position
    target: float = 0.0  # of a sealed position


class SealedSequences(Sequences):
    """A draft's view of sequences whose whole blocks are sealed (docs/software/lossless.md)."""

    def __init__(
        self, written: Sequences, kv: KeyValueFormat, prompts: Sequence[Sequence[int]]
    ) -> None:
        super().__init__(written.count)
        self.layers = written.layers
        self._kv = kv
        self._sealed = [self._seal(number, len(prompt)) for number, prompt in enumerate(prompts)]

    def blocks_seen(self, starts: torch.Tensor) -> torch.Tensor:
        """Return the blocks that are sealed when a round begins at a start, int64 like
        ``starts``.
        """
        return torch.tensor([self._kv.sealed_for(start) for start in starts.tolist()])

    def seen(self, layer: int, sequence: int, blocks: int) -> Pair:
        """Return keys and values with the first ``blocks`` as the draft's."""
        stop = blocks * self._kv.block
        written, sealed = self.layers[layer][sequence], self._sealed[sequence][0]
        key, value = (
            torch.cat([kind[layer, :, :stop].to(own.dtype), own[:, stop:]], 1)
            for kind, own in zip(sealed, written, strict=True)
        )
        return key, value

    def bytes(self) -> KeyValueBytes:
        """Return the means over all sealed blocks."""
        positions = sum(sealed[0].shape[2] for sealed, _ in self._sealed)
        if not positions:
            raise CassandraError(f"block must be shorter than every sequence, not {self._kv.block}")
        draft, target = np.sum([stored for _, stored in self._sealed], axis=0) / positions
        return KeyValueBytes(bf16=bf16_bytes(self), draft=draft, target=target)

    def _seal(self, sequence: int, prompt: int) -> tuple[Pair, tuple[int, int]]:
        """Seal whole blocks; return keys and values [layers, heads, positions, dimensions], and
        bytes.

        The blocks of the prompt come first, as in decoding: they choose the codebooks.
        """
        block = self._kv.block
        found, stored = [], np.zeros(2, np.int64)
        for kind in (0, 1):
            rooms = torch.stack([layer[sequence][kind] for layer in self.layers.values()])
            blocks = rooms.shape[2] // block
            first = min(max(prompt // block, 1), blocks) * block
            sealer = Sealer(self._kv, GoldenCodec())
            views = []
            for part in (rooms[:, :, :first], rooms[:, :, first : blocks * block]):
                if part.shape[2]:
                    sealed = sealer.seal(part.transpose(1, 2).to(torch.bfloat16))
                    views.append(sealed.draft.transpose(1, 2))
                    stored += [sealed.draft_bytes.sum(), sealed.target_bytes.sum()]
            found.append(torch.cat([rooms[:, :, :0].float(), *views], 2))
        return (found[0], found[1]), (int(stored[0]), int(stored[1]))


def bf16_bytes(sequences: Sequences) -> int:
    """Return the bytes of a position's keys and values in BF16."""
    return sum(
        2 * kind.shape[0] * kind.shape[2]
        for stored in sequences.layers.values()
        for kind in stored[0]
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """A setting's draft on the replies of its target."""

    setting: Setting
    replies: Replies
    drafts: tuple[Drafts, ...]
    costs: Costs
    kv: KeyValueBytes
    asked: Settings = _ASKED  # how replies are generated; gamma and min_margin are not looked at
    table: Candidates | None = None  # of the low drafter

    def settings(self, gamma: int) -> Settings:
        """Return the settings of replies with a gamma."""
        return dataclasses.replace(self.asked, gamma=gamma, min_margin=self.setting.min_margin)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Loaded:
    """A draft in its place, for settings that differ in keys and values alone."""

    plan: PackPlan
    lm: CassandraForCausalLM
    replies: Replies
    costs: Costs


@dataclasses.dataclass
class Study:
    """A model and prompts, on which one setting after another is measured.

    Weights are packed and decoded by the codec, in a temporary directory. Lossless settings share
    the target and its replies; a rounded target is loaded and replies for itself.
    """

    source: Source
    prompts: Sequence[str]
    _: dataclasses.KW_ONLY
    norms: Norms | None = None
    max_tokens: int = 128
    depth: int = 8  # the largest gamma that is measured
    jobs: int | None = None
    progress: bool = False
    asked: Settings = _ASKED  # draft and levels
    table: Candidates | None = None  # of the low drafter
    _own: tuple[CassandraForCausalLM, Replies] | None = dataclasses.field(default=None, init=False)
    _loaded: _Loaded | None = dataclasses.field(default=None, init=False)

    def about(self) -> dict[str, object]:
        """Return all inputs of measurements besides the setting."""
        return {
            "model": fingerprint(self.source),
            "prompts": self.prompts,
            "norms": None if self.norms is None else self.norms.digest(),
            "max_tokens": self.max_tokens,
            "depth": self.depth,
            **self._levels(),
        }

    def _levels(self) -> dict[str, object]:
        """Return the fields of levels; empty for the draft view alone, as in older files."""
        if not self.asked.uses_low_drafter:
            return {}
        levels = dataclasses.asdict(self.asked.levels)
        return {"draft": self.asked.draft, "levels": levels, "table": self.table is not None}

    def check_gammas(self, gammas: Sequence[int]) -> None:
        """Refuse a gamma that is not measured, before anything long begins."""
        for gamma in gammas:
            if not 1 <= gamma <= self.depth:
                raise CassandraError(f"gamma must be from 1 to {self.depth}, not {gamma}")

    def measure(self, setting: Setting) -> Measured:
        """Pack, decode the draft, and follow it from every place of every reply."""
        if self._loaded is None or self._loaded.plan != setting.plan:
            self._loaded = self._load(setting)
        at = self._loaded
        seen, kv = at.replies.sequences, KeyValueBytes(bf16=bf16_bytes(at.replies.sequences))
        if setting.kv is not None:
            seen = SealedSequences(seen, setting.kv, at.replies.prompts)
            kv = seen.bytes()
        with at.lm.mode.drafting():
            drafts = follow(
                at.lm.network, at.replies, seen, depth=self.depth, progress=self.progress
            )
        return Measured(
            setting=setting,
            replies=at.replies,
            drafts=drafts,
            costs=at.costs,
            kv=kv,
            asked=self.asked,
            table=self.table,
        )

    def _load(self, setting: Setting) -> _Loaded:
        with tempfile.TemporaryDirectory(prefix="cassandra-study-") as folder:
            path = Path(folder) / "packed"
            pack_model(
                self.source,
                path,
                setting.plan,
                norms=self.norms,
                jobs=self.jobs,
                progress=self.progress,
            )
            lm, replies = self._target(setting, path)
            packed = open_packed(path)
            self._replace_drafts(lm, packed)
            return _Loaded(
                plan=setting.plan, lm=lm, replies=replies, costs=network_costs(lm.network, packed)
            )

    def _target(self, setting: Setting, path: Path) -> tuple[CassandraForCausalLM, Replies]:
        """Return the target with its replies to the prompts; cached for the original model."""
        lossless = setting.lossless(self.source)
        if lossless and self._own is not None:
            return self._own
        lm = CassandraForCausalLM.from_pretrained(path)
        if lossless:
            _wrap_others(lm)
        replies = greedy_replies(
            lm.network,
            [lm.encode_prompt(prompt) for prompt in self.prompts],
            max_tokens=self.max_tokens,
            stop_tokens=lm.stop_tokens(),
            progress=self.progress,
        )
        if lossless:
            self._own = lm, replies
        return lm, replies

    def _replace_drafts(self, lm: CassandraForCausalLM, packed: PackedFile) -> None:
        """Give each linear layer the draft of a packing; others draft with target weights."""
        values = dict(decode_tensors(packed, draft=True, jobs=self.jobs, progress=self.progress))
        for name, module in lm.network.named_modules():
            if not isinstance(module, PackedLinear):
                continue
            assert isinstance(module.products, DecodedProducts)
            module.products = DecodedProducts(
                draft=_draft_values(f"{name}.weight", values, module.products.target_values),
                target=module.products.target_values,
            )


def _draft_values(weight: str, values: Mapping[str, Values], target: torch.Tensor) -> torch.Tensor:
    """Draft values of a weight; its target values if it is not packed."""
    stored = EMBEDDING if weight == HEAD and weight not in values else weight
    if stored not in values:
        return target
    patterns = torch.from_numpy(values[stored].view(np.int16)).view(torch.bfloat16)
    return patterns.reshape(target.shape).to(target.dtype)


def _wrap_others(lm: CassandraForCausalLM) -> None:
    """Make drafts possible of the layers that one packing left out and another may not."""
    for name, layer in list(lm.network.named_modules()):
        if isinstance(layer, torch.nn.Linear):
            weight = layer.weight.detach()
            products = DecodedProducts(draft=weight, target=weight)
            lm.network.set_submodule(name, PackedLinear(products, lm.mode, layer.bias))
