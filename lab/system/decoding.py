"""Prefill, decoding, and rounds of drafts and verification; what a device makes of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from cassandra_spec.lab.system.acceptance import MAX_GAMMA, Acceptance
from cassandra_spec.lab.system.costs import FULL, FormatCost, load_format
from cassandra_spec.lab.system.device import Device
from cassandra_spec.lab.system.errors import check_count
from cassandra_spec.lab.system.passes import Pass, PassCost, Traffic, cost_of
from cassandra_spec.lab.system.workload import Model, Workload


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup:
    """One scenario: device, model, lengths, format and draft settings."""

    device: Device
    model: Model
    workload: Workload
    cost: FormatCost  # the format of weights, cache and head
    acceptance: Acceptance  # of the draft
    gamma: int  # drafted tokens in a round; 0 is decoding without speculation
    window: int | None = None  # cached tokens that a draft reads, sinks included; None: all

    def __post_init__(self) -> None:
        check_count("gamma", self.gamma, 0, MAX_GAMMA)
        if self.window is not None:
            check_count("window", self.window, 1)

    def run(self, step: Pass) -> PassCost:
        """Return the cost of a pass in this setup."""
        return cost_of(self.device, self.model, self.cost, step)

    def plain(self, cost: FormatCost | None = None) -> Setup:
        """Return the same setup without speculation, in the same format or another."""
        return dataclasses.replace(self, gamma=0, cost=cost or self.cost)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Round:
    """``gamma`` drafts and their verification, at one context."""

    drafts: tuple[PassCost, ...]  # costs of the draft passes, in order
    verification: PassCost  # cost of the target pass over ``gamma + 1`` tokens
    tokens: float  # mean tokens that it yields for each request

    @property
    def seconds(self) -> float:
        """Seconds of all drafts and the verification."""
        return sum(draft.seconds for draft in self.drafts) + self.verification.seconds

    @property
    def traffic(self) -> Traffic:
        """Bytes of the round, by stream."""
        return sum((draft.traffic for draft in self.drafts), self.verification.traffic)

    @property
    def seconds_per_token(self) -> float:
        """Time of a token of one request (a batch makes one for each request meanwhile)."""
        return self.seconds / self.tokens


def round_of(setup: Setup, context: float | None = None) -> Round:
    """Return the cost of a round with ``context`` tokens in the cache (default: the workload's
    mean).

    Draft number i sees i tokens more, at the draft's bits, as the rest of the cache that it reads;
    verification writes the rows of all gamma + 1 tokens.
    """
    start = setup.workload.context if context is None else context
    seen = start if setup.window is None else min(start, setup.window)
    batch = setup.workload.batch
    drafts = tuple(
        setup.run(Pass(tokens=1, context=seen + number, batch=batch, draft=True))
        for number in range(setup.gamma)
    )
    tokens = setup.gamma + 1
    verification = setup.run(Pass(tokens=tokens, context=start, batch=batch, logits=tokens))
    yields = setup.acceptance.tokens(setup.gamma)
    return Round(drafts=drafts, verification=verification, tokens=yields)


def weight_bytes(model: Model, cost: FormatCost) -> float:
    """Return the bytes of a model in memory: linear weights, head, and an untied embedding.

    A tied head that is packed serves as embedding, too: its rows are decoded when they are used.
    """
    linear = model.layers * model.layer_weights * cost.weight.whole
    embedding = 0.0 if model.tied else model.head_weights * FULL
    return (linear + model.head_weights * cost.head.whole + embedding) / 8


def cache_tokens(device: Device, model: Model, cost: FormatCost) -> int:
    """Return how many tokens' keys and values fit beside the weights; 0 if the weights do not
    fit.
    """
    token = model.layers * model.kv_values * cost.kv.whole / 8
    return max(0, int((device.usable - weight_bytes(model, cost)) / token))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """The answer; times in seconds, of one request in its batch."""

    setup: Setup
    prefill: float  # time to the first token
    prefill_bf16: float  # the same in BF16
    step_bf16: float  # time of a token in BF16 without speculation
    step_compressed: float  # the same with the compressed target: the honest baseline
    round: Round  # of drafts and verification
    cached: int  # tokens that fit into memory in this format
    cached_bf16: int  # the same in BF16

    @property
    def needed(self) -> int:
        """Tokens whose keys and values must fit: all prompts and outputs of the batch."""
        workload = self.setup.workload
        return workload.batch * (workload.prompt + workload.output)

    @property
    def speedup(self) -> float:
        """Decoding, against BF16 without speculation."""
        return self.step_bf16 / self.round.seconds_per_token

    @property
    def speedup_compressed(self) -> float:
        """Decoding with the compressed target and no speculation, against BF16."""
        return self.step_bf16 / self.step_compressed

    @property
    def gain(self) -> float:
        """Return the speed-up of speculation over compression alone; below 1 it does not pay."""
        return self.step_compressed / self.round.seconds_per_token

    @property
    def speedup_whole(self) -> float:
        """Prefill and decoding together, against BF16."""
        steps = self.setup.workload.output - 1
        mine = self.prefill + steps * self.round.seconds_per_token
        return (self.prefill_bf16 + steps * self.step_bf16) / mine

    def to_dict(self) -> dict[str, Any]:
        """Plain figures for other programs; rates in tokens/s of the whole batch.

        Speeds are None where the cache does not fit into memory, and so are ratios of them.
        """
        setup = self.setup
        rate = setup.workload.batch
        fits, both = self.needed <= self.cached, self.needed <= min(self.cached, self.cached_bf16)
        return {
            "device": setup.device.name,
            "model": setup.model.name,
            "scheme": setup.cost.name,
            "workload": dataclasses.asdict(setup.workload),
            "gamma": setup.gamma,
            "window": setup.window,
            "acceptance": {
                "given": setup.acceptance.rate,
                "kind": setup.acceptance.kind,
                "source": setup.acceptance.source,
                "drafted": setup.acceptance.drafted(max(1, setup.gamma)),
                "conditional": setup.acceptance.conditional(max(1, setup.gamma)),
            },
            "tokens_per_round": self.round.tokens,
            "seconds": {
                "prefill": self.prefill,
                "prefill_bf16": self.prefill_bf16,
                "drafts": sum(draft.seconds for draft in self.round.drafts),
                "verification": self.round.verification.seconds,
            },
            "tokens_per_second": {
                "bf16": rate / self.step_bf16 if self.needed <= self.cached_bf16 else None,
                "compressed": rate / self.step_compressed if fits else None,
                "speculative": rate / self.round.seconds_per_token if fits else None,
            },
            "speedup": {
                "decode": self.speedup if both else None,
                "compressed_without_speculation": self.speedup_compressed if both else None,
                "speculation_over_compressed": self.gain if fits else None,
                "prefill_and_decode": self.speedup_whole if both else None,
            },
            "bytes_per_round": self.round.traffic.streams(),
            "bound": {
                "draft": self.round.drafts[0].bound if self.round.drafts else None,
                "verification": self.round.verification.bound,
            },
            "cache_tokens": {
                "bf16": self.cached_bf16,
                "scheme": self.cached,
                "needed": self.needed,
            },
        }


def _prefill(setup: Setup) -> float:
    workload = setup.workload
    step = Pass(tokens=workload.prompt, context=0, batch=workload.batch)
    return setup.run(step).seconds


def estimate(setup: Setup) -> Estimate:
    """Estimate one setup at the mean context of its workload.

    The mean is exact as long as one stage sets the pace over the whole output, since every stage
    is linear in the context.
    """
    bf16 = setup.plain(load_format("bf16"))
    return Estimate(
        setup=setup,
        prefill=_prefill(setup),
        prefill_bf16=_prefill(bf16),
        step_bf16=round_of(bf16).seconds,
        step_compressed=round_of(setup.plain()).seconds,
        round=round_of(setup),
        cached=cache_tokens(setup.device, setup.model, setup.cost),
        cached_bf16=cache_tokens(setup.device, setup.model, bf16.cost),
    )
