"""Pack a model: make its plan, measure what the plan needs, write the packed directory."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from cassandra_spec.golden import CassandraError, Packer
from cassandra_spec.golden.format import Fill, PrunedExponent, Scheme

if TYPE_CHECKING:
    from cassandra_spec.model.packing.calibration import Norms
    from cassandra_spec.model.packing.packer import Outcome
    from cassandra_spec.model.packing.plan import (
        GroupExponents,
        Nonfinite,
        PackPlan,
        PruneScores,
        Recipe,
    )
    from cassandra_spec.model.weights.sources import Source

Preset = Literal["fast", "paper", "small"]


class PackFields(TypedDict, total=False):
    """Fields of a recipe, by the names of `casspec pack` (docs/software/packing.md)."""

    scheme: Scheme
    truncated: int  # low bits of each kept value that the draft does not read
    significand: int  # bits of an mx target's significand
    fill: Fill  # value of the truncated bits in the draft
    group: int  # values that share an exponent (mx, exact)
    segment: int  # values whose data start at a new superblock
    codebook: int  # maximum entries of a codebook of exponents (unary)
    pruned_exponent: PrunedExponent  # encoding of the exponents of pruned values (unary)
    beat: int  # lanes of a matching decoder
    window: int  # rows of a unary-coded stream that are read at a time
    lead: int  # beats between dependent verification streams
    superblock: int  # bytes
    prune: float  # fraction of each output row that the draft reads as 0
    prune_scores: PruneScores  # scores that select the pruned values
    group_exponents: GroupExponents  # choice of the exponents that groups share
    nonfinite: Nonfinite  # NaN and infinities: an error, or (mx) saturated


def _fastest_codec() -> Packer:
    from cassandra_spec.native.codec import fastest_codec

    return fastest_codec()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """Processes and progress of packing; the bytes do not depend on them."""

    jobs: int | None = None  # processes; None: one for each core
    cluster: str | None = None  # address of a Dask scheduler whose workers pack
    fresh: bool = False  # start over instead of resuming an interrupted run
    progress: bool = False  # show bars
    codec: Callable[[], Packer] = _fastest_codec  # called when the model has been opened
    say: Callable[[str], object] = lambda line: None  # called with a line about each step


def pack(
    source: str | Path,
    destination: str | Path,
    *,
    preset: Preset | None = "fast",
    recipe: str | Path | None = None,
    calibration: str | Path | None = None,
    keep: Sequence[str] = (),
    pack_embedding: bool = False,
    work: Work | None = None,
    **fields: Unpack[PackFields],
) -> Outcome:
    """Pack a model into a new directory, as ``casspec pack`` does.

    Args:
        source: a Hugging Face directory, a GGUF file, or ``smollm2``.
        destination: the directory to write; it appears whole or not at all.
        preset: named settings: ``fast`` (lossless, fastest to decode), ``paper`` or ``small``;
            None: those of ``fields`` alone.
        recipe: a file with settings for each tensor, instead of preset and fields.
        calibration: text or norms by which pruning and exponents are weighted.
        keep: globs of tensors that are not packed.
        pack_embedding: pack an untied embedding, too.
        work: processes, progress and the like.
        fields: :class:`PackFields`, in place of the preset's.

    Returns:
        The number of values and bytes.

    Raises:
        CassandraError: an argument or the model is not as it must be; nothing is written.
        OSError, KeyboardInterrupt: the same call resumes the work.
    """
    from cassandra_spec.model.packing.packer import pack_model
    from cassandra_spec.model.weights.sources import open_source

    work = work or Work()
    plan = plan_of(preset, None if recipe is None else Path(recipe), dict(fields))
    plan = _with_overrides(plan, keep, pack_embedding=pack_embedding)
    opened = open_source(str(source))
    for note in (*(f"{opened.label}: {note}" for note in opened.notes), *plan.notes(opened)):
        work.say(note)
    return pack_model(
        opened,
        Path(destination),
        plan,
        norms=_norms(opened, plan, None if calibration is None else Path(calibration), work),
        jobs=work.jobs,
        cluster=work.cluster,
        progress=work.progress,
        fresh=work.fresh,
        codec=work.codec(),
    )


def plan_of(preset: str | None, recipe: Path | None, fields: dict[str, Any]) -> PackPlan:
    """Return the plan that a preset with changed fields, or a file, describes."""
    from cassandra_spec.model.packing.plan import PRESETS, PackPlan, Recipe

    if recipe is not None:
        if fields:
            raise CassandraError(f"{next(iter(fields))} must be in {recipe} or given, not both")
        return PackPlan.load(recipe)
    if preset is not None and preset not in PRESETS:
        raise CassandraError(f"preset must be one of {', '.join(PRESETS)}, not {preset!r}")
    chosen = {**PRESETS[preset], **fields} if preset else fields
    return PackPlan(default=Recipe.from_dict(chosen))


def _with_overrides(plan: PackPlan, keep: Sequence[str], *, pack_embedding: bool) -> PackPlan:
    from cassandra_spec.golden.model_types import EMBEDDING
    from cassandra_spec.model.packing.plan import Override

    kept = (Override(tensors=glob, keep=True) for glob in keep)
    embedding = (Override(tensors=EMBEDDING, keep=False),) if pack_embedding else ()
    return dataclasses.replace(plan, overrides=(*plan.overrides, *embedding, *kept))


def _norms(source: Source, plan: PackPlan, calibration: Path | None, work: Work) -> Norms | None:
    """Return the norms of the inputs if a recipe needs them."""
    recipes = [recipe for recipe in plan.recipes(source).values() if recipe.needs_norms]
    if recipes:
        return _measured(source, recipes, calibration, work)
    if calibration:
        work.say(f"{calibration} is not used: nothing is pruned or weighted by it")
    return None


def _measured(
    source: Source, recipes: Sequence[Recipe], calibration: Path | None, work: Work
) -> Norms:
    """Return the norms of the inputs, and say what is measured, how long, and how to skip it."""
    from cassandra_spec.model.packing import calibration as measuring

    text = measuring.Calibration(text=calibration)
    ways = {
        "--group-exponents chosen": any(each.group_exponents == "weighted" for each in recipes),
        "--prune-scores magnitude": any(each.prune for each in recipes),
    }
    skip = " and ".join(flag for flag, needed in ways.items() if needed)
    of_text = calibration or "the bundled text"
    tokens = text.samples * text.length
    what = f"the inputs of each layer over {tokens:,} tokens of {of_text}"
    begun = time.monotonic()

    def told(share: float) -> None:
        if not share:
            work.say(f"measuring {what}, once (skip it with {skip})")
        elif share < 1 and not work.progress:
            left = (time.monotonic() - begun) * (1 - share) / share
            work.say(f"measuring: {share:.0%}, about {left:.0f} s left")

    norms = measuring.load_or_calibrate(
        source, text, cache=measuring.cache_directory(), progress=work.progress, told=told
    )
    work.say(f"norms of {len(norms.values)} tensors in {time.monotonic() - begun:.1f} s")
    return norms
