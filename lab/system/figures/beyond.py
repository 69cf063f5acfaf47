"""Beyond the paper: our schemes, what matters, and where speculation stops paying."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

from cassandra_spec.lab.system.acceptance import MAX_GAMMA, Acceptance
from cassandra_spec.lab.system.costs import FULL, Bits, FormatCost, load_format, load_formats
from cassandra_spec.lab.system.decoding import Setup, cache_tokens, estimate, round_of
from cassandra_spec.lab.system.device import load_device
from cassandra_spec.lab.system.errors import SystemModelError
from cassandra_spec.lab.system.figures.paper_file import paper
from cassandra_spec.lab.system.measured import Measured
from cassandra_spec.lab.system.workload import Workload, load_model
from cassandra_spec.toolkit.tables import Table

BATCHES = (1, 2, 4, 8, 16)
CONTEXTS = (512, 4096, 32768, 131072)
FARTHEST = 1 << 24  # tokens of context at which a search for the limit ends


def break_even(setup: Setup) -> float:
    """Accepted over drafted tokens at which speculation is worth as much as leaving it out.

    Above 1: it never pays in this set-up. ``gamma`` must not be 0.
    """
    plain = round_of(setup.plain()).seconds
    return (round_of(setup).seconds / plain - 1) / setup.gamma


def gain(setup: Setup, context: float) -> float:
    """Return the speed-up over the compressed target with ``context`` tokens in the cache."""
    done = round_of(setup, context)
    return round_of(setup.plain(), context).seconds / done.seconds_per_token


# --- what matters -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Swing:
    """The effect of one input on the speed-up of decoding."""

    name: str  # the input
    low: float  # speed-up with the input at its low end
    high: float  # speed-up at its high end

    @property
    def width(self) -> float:
        """Return the distance between the two ends."""
        return abs(self.high - self.low)


def _scaled(bits: Bits, draft: float = 1.0, whole: float = 1.0) -> Bits:
    """Other bits of what is packed; BF16 stays BF16."""
    if bits.whole == FULL:
        return bits
    target = bits.whole * whole
    return dataclasses.replace(bits, draft=min(bits.draft * draft, target), whole=target)


def _with_bits(setup: Setup, draft: float = 1.0, whole: float = 1.0) -> Setup:
    cost = dataclasses.replace(
        setup.cost,
        weight=_scaled(setup.cost.weight, draft, whole),
        kv=_scaled(setup.cost.kv, draft, whole),
        head=_scaled(setup.cost.head, draft, whole),
    )
    return dataclasses.replace(setup, cost=cost)


def _with_rate(setup: Setup, change: float) -> Setup:
    rate = min(1.0, max(0.0, setup.acceptance.rate + change))
    return dataclasses.replace(setup, acceptance=dataclasses.replace(setup.acceptance, rate=rate))


def _with_gamma(setup: Setup, change: int) -> Setup:
    """Another gamma at the same conditional rate: a longer round accepts a smaller part."""
    kept = Acceptance(rate=setup.acceptance.conditional(setup.gamma), kind="conditional")
    gamma = min(MAX_GAMMA, max(1, setup.gamma + change))
    return dataclasses.replace(setup, acceptance=kept, gamma=gamma)


def _with_device(name: str) -> Callable[[Setup, float], Setup]:
    def change(setup: Setup, factor: float) -> Setup:
        value = getattr(setup.device, name) * factor
        return dataclasses.replace(setup, device=dataclasses.replace(setup.device, **{name: value}))

    return change


def _with_compute(setup: Setup, factor: float) -> Setup:
    compute = {dtype: value * factor for dtype, value in setup.device.compute.items()}
    return dataclasses.replace(setup, device=dataclasses.replace(setup.device, compute=compute))


def _with_context(setup: Setup, factor: float) -> Setup:
    workload = setup.workload
    longer = dataclasses.replace(workload, prompt=max(1, round(workload.context * factor)))
    return dataclasses.replace(setup, workload=dataclasses.replace(longer, output=1))


def _variants(setup: Setup) -> Iterator[tuple[str, Setup, Setup]]:
    yield "acceptance -/+ .05", _with_rate(setup, -0.05), _with_rate(setup, 0.05)
    yield "gamma -/+ 1, same conditional rate", _with_gamma(setup, -1), _with_gamma(setup, 1)
    yield "bits of a draft +/- 10 %", _with_bits(setup, draft=1.1), _with_bits(setup, draft=0.9)
    yield "bits of the whole +/- 10 %", _with_bits(setup, whole=1.1), _with_bits(setup, whole=0.9)
    for name, label in (
        ("bandwidth", "bandwidth x 1/2, x 2"),
        ("decoders", "number of decoders x 1/2, x 2"),
        ("layer_overhead", "overhead of a layer x 1/2, x 2"),
    ):
        change = _with_device(name)
        yield label, change(setup, 0.5), change(setup, 2.0)
    yield "compute x 1/2, x 2", _with_compute(setup, 0.5), _with_compute(setup, 2.0)
    yield "context x 1/2, x 2", _with_context(setup, 0.5), _with_context(setup, 2.0)


def swings(setup: Setup) -> list[Swing]:
    """Compute the speed-up at both ends of every input, widest first."""
    found = [
        Swing(name=name, low=estimate(low).speedup, high=estimate(high).speedup)
        for name, low, high in _variants(setup)
    ]
    return sorted(found, key=lambda swing: -swing.width)


def tornado_setups() -> Iterator[Setup]:
    """Yield the paper's lossless setting and our exact scheme, for Llama3-8B on an RTX 4090."""
    exact, table_4 = load_format("exact"), paper()["acceptance"]["cassandra-1"]
    gpqa = list(paper()["benchmarks"]).index("GPQA-Diamond")
    for scheme, rate, gamma in (
        ("cassandra-1", table_4["deepseek-r1-distill-llama-8b"][gpqa], table_4["gamma"]),
        ("exact", exact.default_acceptance(3), 3),
    ):
        yield Setup(
            device=load_device("rtx4090"),
            model=load_model("llama3-8b"),
            workload=Workload(prompt=222, output=5708),
            cost=load_format(scheme),
            acceptance=Acceptance(rate=rate),
            gamma=gamma,
        )


def tornado(setup: Setup) -> Table:
    """Rank the inputs by their effect on the speed-up."""
    rows = [
        (swing.name, f"{swing.low:.3f}", f"{swing.high:.3f}", f"{swing.width:.3f}")
        for swing in swings(setup)
    ]
    return Table(
        title=f"Sensitivity: {setup.cost.name}, {setup.model.name} on {setup.device.name}",
        header=("input", "low end", "high end", "swing"),
        rows=tuple(rows),
        notes=(
            f"Decoding against BF16: {estimate(setup).speedup:.3f} as it is, with acceptance"
            f" {setup.acceptance.rate:.2f} at gamma {setup.gamma}.",
        ),
    )


# --- our schemes --------------------------------------------------------------------------------


def measured_setups(
    device: str, model: str, rows: Sequence[Measured] | None = None
) -> Iterator[Setup]:
    """Yield every acceptance of an acceptance file's ``rows``, or of ``formats.toml``, at its
    gamma.
    """
    for cost, acceptance, gamma in _measured_costs(rows):
        yield Setup(
            device=load_device(device),
            model=load_model(model),
            workload=Workload(prompt=222, output=1096),
            cost=cost,
            acceptance=acceptance,
            gamma=gamma,
        )


def _measured_costs(
    rows: Sequence[Measured] | None,
) -> Iterator[tuple[FormatCost, Acceptance, int]]:
    if rows is None:
        for cost in load_formats().values():
            for gamma, rate in cost.acceptance.items():
                yield cost, Acceptance(rate=rate), gamma
        return
    whole = [row for row in rows if not row.stops_early]
    if not whole:
        raise SystemModelError("acceptance file must have rows whose rounds have gamma drafts")
    for row in whole:
        cost = dataclasses.replace(row.cost(load_format(row.scheme)), name=row.label)
        yield cost, row.acceptance, row.gamma


def our_schemes(device: str, model: str, measured: Sequence[Measured] | None = None) -> Table:
    """Compare all measured schemes on one device, with SmolLM2's acceptance."""
    rows = []
    for setup in measured_setups(device, model, measured):
        answer, even = estimate(setup), break_even(setup)
        rows.append(
            (
                setup.cost.name,
                f"{setup.gamma}",
                f"{setup.acceptance.rate:.2f}",
                f"{answer.speedup:.2f}",
                f"{answer.speedup_compressed:.2f}",
                f"{answer.gain:.2f}",
                f"{even:.2f}" if even <= 1 else "never",
                f"{answer.cached:,}",
            )
        )
    return Table(
        title=f"Our schemes: {load_model(model).name} on {load_device(device).name}",
        header=(
            "scheme",
            "gamma",
            "acceptance",
            "speed-up",
            "no speculation",
            "gain",
            "break-even",
            "tokens in memory",
        ),
        rows=tuple(rows),
        notes=(
            "Acceptance of SmolLM2-135M (accepted over drafted); larger models accept more (Table"
            " IV). 222 tokens in, 1096 out.",
            "gain: over the compressed target without speculation; break-even: the acceptance at"
            " which it is 1.",
        ),
    )


def our_figure_12(measured: Sequence[Measured] | None = None) -> Table:
    """Figure 12 for our schemes: every device and model, with SmolLM2's acceptance."""
    models = ("deepseek-r1-distill-llama-8b", "qwen3-8b", "qwen3-4b", "smollm2-135m")
    rows: dict[tuple[str, str, int], list[str]] = {}
    for device, model in itertools.product(("rtx4090", "agx-orin", "npu"), models):
        for setup in measured_setups(device, model, measured):
            answer = estimate(setup)
            cells = rows.setdefault((device, setup.cost.name, setup.gamma), [])
            cells += [f"{answer.speedup:.2f}", f"({answer.speedup_compressed:.2f})"]
    return Table(
        title="Figure 12 for our schemes: decoding against BF16, and without speculation in ()",
        header=(
            "device",
            "scheme",
            "gamma",
            *(name for model in models for name in (load_model(model).name, "()")),
        ),
        rows=tuple(
            (device, scheme, f"{gamma}", *cells) for (device, scheme, gamma), cells in rows.items()
        ),
        notes=(
            "Acceptance of SmolLM2-135M for all models, as nothing larger was measured: larger ones"
            " accept more (Table IV).",
        ),
    )


def measured_setup(device: str, model: str, scheme: str, gamma: int = 3) -> Setup:
    """Return the setup of :func:`measured_setups` with this scheme and gamma."""
    return next(
        setup
        for setup in measured_setups(device, model)
        if (setup.cost.name, setup.gamma) == (scheme, gamma)
    )


def target_rates(device: str, model: str) -> Table:
    """Compute the cost of half-rate target decoders, by the number of decoders."""
    setup = measured_setup(device, model, "exact")
    full = setup.device.draft_rate
    rows = []
    for parts in (1, 2, 4, 8):
        decoders = max(1, round(setup.device.decoders / parts))
        speedups = []
        for rate in (full, full / 2):
            changed = dataclasses.replace(setup.device, decoders=decoders, target_rate=rate)
            answer = estimate(dataclasses.replace(setup, device=changed))
            speedups.append(f"{answer.speedup:.2f}")
        rows.append((f"{decoders}", *speedups))
    return Table(
        title=f"Target decoders at half rate: exact, {setup.model.name} on {setup.device.name}",
        header=("decoders", "full rate", "half rate"),
        rows=tuple(rows),
        notes=("Speed-up of decoding against BF16; gamma 3, acceptance of SmolLM2-135M.",),
    )


# --- long contexts ------------------------------------------------------------------------------

LONG = 32768  # tokens in the cache
WINDOWS = (None, 1040, 272)  # cached tokens that drafts read: all, or sinks and a window


def long_contexts(model: str) -> Table:
    """Speed-up over BF16 with a long cache, by what drafts read of it."""
    rows = []
    for device, scheme in itertools.product(("rtx4090", "agx-orin", "npu"), ("unary", "exact")):
        setup = measured_setup(device, model, scheme)
        plain = round_of(setup.plain(load_format("bf16")), LONG).seconds
        speedups = []
        for window in WINDOWS:
            done = round_of(dataclasses.replace(setup, window=window), LONG)
            speedups.append(f"{plain / done.seconds_per_token:.2f}")
        rows.append((setup.device.name, scheme, f"{setup.acceptance.rate:.2f}", *speedups))
    columns = ("drafts read all" if n is None else f"drafts read {n:,}" for n in WINDOWS)
    return Table(
        title=f"Long contexts: {load_model(model).name}, {LONG:,} tokens in the cache",
        header=("device", "scheme", "acceptance", *columns),
        rows=tuple(rows),
        notes=(
            "Speed-up of decoding over BF16, one request, gamma 3, with SmolLM2-135M's acceptance"
            " in all columns: a window that loses acceptance gains less.",
        ),
    )


# --- limits -------------------------------------------------------------------------------------


def crossing(setup: Setup) -> int | None:
    """Return the first context at which the gain crosses 1, seen from an empty cache, or None.

    The gain is taken to cross 1 no more than once, up to ``FARTHEST`` tokens.
    """
    pays = gain(setup, 0) >= 1
    if (gain(setup, FARTHEST) >= 1) == pays:
        return None
    contexts = range(FARTHEST + 1)
    return bisect.bisect_left(contexts, True, key=lambda n: (gain(setup, n) >= 1) != pays)


def limits(device: str, model: str, scheme: str) -> Table:
    """Compute the gain of speculation by batch and context; below 1 it does not pay."""
    setup = measured_setup(device, model, scheme, 3)
    rows = []
    for batch in BATCHES:
        workload = dataclasses.replace(setup.workload, batch=batch)
        used = dataclasses.replace(setup, workload=workload)
        gains = (_gain_text(used, context) for context in CONTEXTS)
        rows.append((f"{batch}", *gains, _where(used)))
    return Table(
        title=f"Gain of speculation: {scheme}, {setup.model.name} on {setup.device.name}",
        header=("batch", *(f"context {context:,}" for context in CONTEXTS), "pays at contexts"),
        rows=tuple(rows),
        notes=(
            f"Over the compressed target without speculation, at gamma {setup.gamma} and acceptance"
            f" {setup.acceptance.rate:.2f}; below 1 it stops paying.",
            "(): the cache of that many tokens does not fit into the memory of the device.",
        ),
    )


def _where(setup: Setup) -> str:
    """Describe in words where speculation pays."""
    pays, change = gain(setup, 0) >= 1, crossing(setup)
    if change is None:
        return "everywhere" if pays else "nowhere"
    return f"below {change:,}" if pays else f"from {change:,}"


def _gain_text(setup: Setup, context: int) -> str:
    text = f"{gain(setup, context):.2f}"
    fits = cache_tokens(setup.device, setup.model, setup.cost)
    return text if setup.workload.batch * context <= fits else f"({text})"
