"""Format the estimate of one setup as a page, and all figures of the paper as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cassandra_spec.lab.system.costs import Bits
from cassandra_spec.lab.system.decoding import Estimate, Setup
from cassandra_spec.lab.system.device import Device
from cassandra_spec.lab.system.errors import unknown
from cassandra_spec.lab.system.events import events_table
from cassandra_spec.lab.system.figures.beyond import (
    break_even,
    limits,
    long_contexts,
    our_figure_12,
    our_schemes,
    target_rates,
    tornado,
    tornado_setups,
)
from cassandra_spec.lab.system.figures.figure_13 import figure_13
from cassandra_spec.lab.system.figures.figure_14 import figure_14
from cassandra_spec.lab.system.figures.paper import (
    disagreements,
    figure_3,
    figure_12,
    gpqa_speedup,
    summary,
)
from cassandra_spec.lab.system.figures.plots import plots
from cassandra_spec.lab.system.figures.silicon import Synthesis
from cassandra_spec.lab.system.figures.table_5 import table_5
from cassandra_spec.lab.system.measured import Measured
from cassandra_spec.toolkit.documents import block_names, fill
from cassandra_spec.toolkit.tables import Table

_STREAMS = {
    "weights": "weights",
    "head": "head",
    "embedding": "embedding",
    "kv_read": "cache, read",
    "kv_written": "cache, written",
    "activations": "activations",
}


def page(answer: Estimate) -> str:
    """Format an estimate: speeds, traffic by stream, assumptions."""
    parts = [_speeds(answer), _bytes(answer)]
    return "\n\n".join([*(part.text() for part in parts), *_assumptions(answer)])


def _speeds(answer: Estimate) -> Table:
    setup, needed = answer.setup, answer.needed
    batch = setup.workload.batch
    fits, both = needed <= answer.cached, needed <= min(answer.cached, answer.cached_bf16)

    def row(label: str, seconds: float, speedup: float, cached: int) -> tuple[str, ...]:
        speed = f"{batch / seconds:.1f}" if needed <= cached else "does not fit"
        ratio = f"{speedup:.2f}" if both else "-"
        return label, speed, ratio, f"{cached:,}"

    name, done = setup.cost.name, answer.round
    notes = [
        f"first token after {answer.prefill * 1e3:.1f} ms (BF16 {answer.prefill_bf16 * 1e3:.1f} ms)"
    ]
    if both:
        notes[0] += f"; prefill and decoding together: {answer.speedup_whole:.2f} times BF16"
    else:
        notes.append(f"prompts and outputs have {needed:,} tokens, whose keys and values must fit")
    if fits:
        notes.insert(0, f"speculation over compression alone: {answer.gain:.2f}; {_even(setup)}")
    return Table(
        title=f"{setup.model.name} on {setup.device.name}, {setup.cost.title}",
        header=("decoding", "tokens/s", "speed-up", "tokens in memory"),
        rows=(
            row("BF16", answer.step_bf16, 1, answer.cached_bf16),
            row(
                f"{name}, no speculation",
                answer.step_compressed,
                answer.speedup_compressed,
                answer.cached,
            ),
            row(
                f"{name}, gamma {setup.gamma}",
                done.seconds_per_token,
                answer.speedup,
                answer.cached,
            ),
        ),
        notes=tuple(notes),
    )


def _even(setup: Setup) -> str:
    if not setup.gamma:
        return "gamma 0 is no speculation"
    even = break_even(setup)
    if even > 1:
        return "it never pays here, whatever the acceptance"
    return f"it pays above {even:.2f} accepted/drafted"


def _bytes(answer: Estimate) -> Table:
    done = answer.round
    drafts = [draft.traffic.streams() for draft in done.drafts]
    target = done.verification.traffic.streams()
    rows = [
        (
            label,
            f"{sum(draft[name] for draft in drafts) / 1e6:,.1f}",
            f"{target[name] / 1e6:,.1f}",
        )
        for name, label in _STREAMS.items()
    ]
    spent = sum(draft.seconds for draft in done.drafts)
    bound = done.drafts[0].bound if done.drafts else "-"
    return Table(
        title=f"One round: {done.seconds * 1e3:.2f} ms, {done.tokens:.2f} tokens for each request",
        header=("MB", f"{len(drafts)} drafts", "verification"),
        rows=tuple(rows),
        notes=(
            f"drafts {spent * 1e3:.2f} ms (slowest stage: {bound}), verification"
            f" {done.verification.seconds * 1e3:.2f} ms ({done.verification.bound})",
        ),
    )


def _assumptions(answer: Estimate) -> Iterator[str]:
    setup = answer.setup
    device, workload = setup.device, setup.workload
    yield "\n".join(
        [
            "Assumptions",
            f"  {workload.prompt} tokens in, {workload.output} out, {workload.batch} at once; the"
            f" cache at its mean, {workload.context:,.0f} tokens",
            *_accepted(setup),
            *_cost_lines(setup),
            f"  memory at {device.bandwidth_efficiency:.0%} of"
            f" {device.bandwidth / 1e9:,.1f} GB/s, arithmetic at {device.compute_efficiency:.0%}"
            f" of {device.compute[setup.cost.dtype] / 1e12:.1f} TFLOPS,"
            f" {device.layer_overhead * 1e6:g} us a layer on top",
            *_array_lines(device),
            f"  {device.decoders:g} decoders of {device.draft_rate:g} (draft) and"
            f" {device.target_rate:g} (target) values a cycle at {device.clock / 1e9:.3f} GHz",
            "  stages of a layer overlap; the sources of all constants are in the files of system/",
        ]
    )


def _array_lines(device: Device) -> Iterator[str]:
    if device.array:
        array = device.array
        yield (
            f"  {array.count} systolic arrays of {array.rows} x {array.columns}: filling, draining"
            " and tails are counted"
        )


def _accepted(setup: Setup) -> Iterator[str]:
    gamma = max(1, setup.gamma)
    yield (
        f"  acceptance: {setup.acceptance.drafted(gamma):.3f} accepted/drafted ="
        f" {setup.acceptance.conditional(gamma):.3f} conditional on all before, at gamma {gamma}"
    )
    if setup.acceptance.source:
        yield f"  this acceptance is {setup.acceptance.source}"


def _cost_lines(setup: Setup) -> Iterator[str]:
    parts: dict[str, Bits] = {
        "weights": setup.cost.weight,
        "cache": setup.cost.kv,
        "head": setup.cost.head,
    }
    for name, bits in parts.items():
        yield f"  {name}: {bits.draft:g} bits in drafts, {bits.whole:g} in all ({bits.source})"


def everything(
    synthesis: Sequence[Synthesis] | None = None, measured: Sequence[Measured] | None = None
) -> Iterator[tuple[str, list[Table]]]:
    """Yield all tables of ``casspec system reproduce``, by section.

    Args:
        synthesis: reports for Table V; None for those of the package.
        measured: acceptance for our schemes; None for that in ``formats.toml``.
    """
    yield "Summary", [summary(synthesis), disagreements()]
    yield "Figure 3", [figure_3()]
    yield "Figure 12", list(figure_12())
    yield "Figure 13", [figure_13(gpqa_speedup())]
    yield "Figure 14", [figure_14()]
    yield "Table V", list(table_5(synthesis))
    yield "Decoder buffers", [events_table()]
    yield "Beyond: our schemes", list(_our_tables(measured))
    yield "Beyond: sensitivity", [tornado(setup) for setup in tornado_setups()]
    yield "Beyond: where speculation stops paying", list(_limit_tables())


def _our_tables(measured: Sequence[Measured] | None) -> Iterator[Table]:
    for device in ("rtx4090", "agx-orin", "npu"):
        yield our_schemes(device, "smollm2-135m", measured)
    yield our_schemes("rtx4090", "llama3-8b", measured)
    yield our_figure_12(measured)
    yield target_rates("rtx4090", "llama3-8b")
    yield target_rates("npu", "llama3-8b")
    yield long_contexts("llama3-8b")


def _limit_tables() -> Iterator[Table]:
    for scheme in ("unary", "exact"):
        for device in ("rtx4090", "agx-orin", "npu"):
            yield limits(device, "llama3-8b", scheme)
        yield limits("rtx4090", "smollm2-135m", scheme)


def fill_tables(document: str, tables: Iterable[Table]) -> str:
    """Return a document with the tables of its blocks ``table: TITLE`` replaced by current ones.

    Raises:
        SystemModelError: no table has the title of a block.
    """
    known = {table.title: table for table in tables}
    blocks = {}
    for name in block_names(document):
        title = name.removeprefix("table: ")
        if title != name:
            table = known[title] if title in known else unknown("table", title, known)
            blocks[name] = table.markdown(heading=False)
    return fill(document, blocks)


def save(sections: Iterable[tuple[str, list[Table]]], folder: Path) -> None:
    """Write all sections as ``reproduction.md``, and the plots, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reproduction.md").write_text(markdown(sections), encoding="utf-8")
    for plot in plots():
        (folder / f"{plot.name}.svg").write_text(plot.svg(), encoding="utf-8")


def markdown(sections: Iterable[tuple[str, list[Table]]]) -> str:
    """Format all sections as one Markdown document."""
    parts = ["# The paper's figures, reproduced by the system model\n"]
    parts += [f"- [{plot.title}]({plot.name}.svg)" for plot in plots()]
    parts.append("")
    for name, tables in sections:
        parts += [f"## {name}\n", *(table.markdown() + "\n" for table in tables)]
    return "\n".join(parts)
