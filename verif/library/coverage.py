"""Functional coverage: what the suites must have seen, in prose, and the bins that show it.

:data:`INTENTS` is the plan. Each intent names its bins; docs/results/verification.md repeats the
plan and a test compares the two. A suite samples bins by name (an unknown name is an error), saves
its counts as JSON under ``build/coverage``, and demands the bins that it must hit.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import fnmatch
import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.golden.format import ENCODE_ERROR_CAUSES, ERROR_CAUSES, SCHEMES
from cassandra_spec.toolkit.running import CommandParser, run_command
from cassandra_spec.toolkit.tables import markdown_table

FOLDER = Path(__file__).resolve().parents[2] / "build" / "coverage"
"""Folder of the saved counts."""

MODES = ("draft", "target")
PORTS = ("command", "codebook", "speculation", "verification", "values")
SHARES = ("none", "some", "all")
"""Share of an encoder's vector or segment that is kept."""
LONGEST = 15
"""Zeros of the longest code with a codebook of 16 entries."""


EXTREMES: dict[str, tuple[str, ...]] = {
    "": ("count", "kept", "pruned", "fields"),
    "unary": ("codes", "ranks", "starved"),
    "exact": ("residue", "left", "rows"),
}
"""Sums, counters and queues of a decoder that have a minimum and a maximum, by scheme ("": any)."""

ENCODE_EXTREMES: dict[str, tuple[str, ...]] = {
    "": ("count", "vector", "kept", "whole", "left", "above", "ties"),
    "unary": ("codes", "waits"),
    "mx": ("replaced",),
    "exact": ("residue",),
}
"""Quantities of an encoder that have a minimum and a maximum, by scheme."""


def legal_chunks() -> tuple[tuple[int, int], ...]:
    """Return all pairs of carry and chunk (8 bits of codes) without a code past the limit of 15.

    A chunk without a one is legal if the zeros so far and its own are at most 15.
    """
    return tuple(
        (carry, chunk)
        for carry in range(LONGEST + 1)
        for chunk in range(256)
        if carry + _leading_run(chunk) <= LONGEST
    )


def _leading_run(chunk: int) -> int:
    return 8 if chunk == 0 else (chunk & -chunk).bit_length() - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Intent:
    """One intent in prose, and the bins that show it."""

    name: str  # prefix of the bins
    prose: str
    bins: tuple[str, ...]  # rest of the names, after the prefix
    shown: str = ""  # short form for the table, if there are many bins

    @property
    def full_names(self) -> tuple[str, ...]:
        """Names of the bins for :meth:`Coverage.sample`."""
        return tuple(f"{self.name}.{tail}" for tail in self.bins)


def group_sizes(lanes: int) -> list[int]:
    """Return the group sizes that a decoder reads."""
    return [size for size in (8, 16, 32, 64, 128, 256) if size >= lanes]


def _product(*parts: Iterable[object]) -> tuple[str, ...]:
    return tuple(".".join(map(str, combination)) for combination in itertools.product(*parts))


_CLASSES = ("nan", "infinity", "minus_zero", "plus_zero", "subnormal", "normal")

_DECODER: tuple[Intent, ...] = (
    Intent(
        name="code_length",
        prose="Every length of a unary code, 0 to 15 zeros, decodes to its codebook entry.",
        bins=_product(range(LONGEST + 1)),
        shown="`code_length.0` … `code_length.15`",
    ),
    Intent(
        name="chunk",
        prose="Every chunk of 8 bits of codes meets every carry that the code limit allows.",
        bins=tuple(f"{carry}.{chunk:02x}" for carry, chunk in legal_chunks()),
        shown="`chunk.CARRY.CHUNK`, all legal pairs",
    ),
    Intent(
        name="mask",
        prose="Beats that are kept whole, pruned whole, in part, by a single value, and in turn"
        " full and empty; segments without a mask stream, and segments in which nothing is kept.",
        bins=("full", "empty", "partial", "single", "alternating", "no_stream", "all_pruned"),
    ),
    Intent(
        name="last_beat",
        prose="The last beat of a segment has every number of lanes from 1 to all, in decoders of"
        " 8, 16 and 32 lanes.",
        bins=tuple(f"{lanes}.{last}" for lanes in (8, 16, 32) for last in range(1, lanes + 1)),
        shown="`last_beat.LANES.PRESENT`",
    ),
    Intent(
        name="size",
        prose="Segments of one value, one less and one more than a beat and a group, exactly a"
        " beat, a group and a full segment, and a last group that is cut short.",
        bins=(
            *("one", "beat_less_1", "beat", "beat_more_1", "group_less_1", "group"),
            *("group_more_1", "full", "short_group"),
        ),
    ),
    Intent(
        name="switch",
        prose="Adjacent segments differ in mode, in scheme (each ordered pair), in t, in fill, in"
        " group, in having a mask, and in codebook.",
        bins=(
            *(
                "draft_to_target",
                "target_to_draft",
                "truncated",
                "fill",
                "group",
                "mask",
                "codebook",
            ),
            *(f"{a}_to_{b}" for a, b in itertools.permutations(SCHEMES, 2)),
        ),
    ),
    Intent(
        name="setting",
        prose="Every t from 0 to 7 in every scheme and mode; both fills in every scheme's drafts.",
        bins=(
            *_product(SCHEMES, MODES, range(8)),
            *_product(SCHEMES, ("zero", "midpoint")),
        ),
        shown="`setting.SCHEME.MODE.T`, `setting.SCHEME.FILL`",
    ),
    Intent(
        name="group_size",
        prose="Every group from a beat to 256, in mx and exact, in decoders of 8, 16 and 32 lanes.",
        bins=tuple(
            f"{lanes}.{scheme}.{size}"
            for lanes in (8, 16, 32)
            for scheme in ("mx", "exact")
            for size in group_sizes(lanes)
        ),
        shown="`group_size.LANES.SCHEME.SIZE`",
    ),
    Intent(
        name="value",
        prose="Values of every class, kept and pruned, in target mode of every scheme: NaN with"
        " payload, infinities, both zeros, subnormals, normal values (mx has finite values only).",
        bins=tuple(
            name
            for name in _product(SCHEMES, ("kept", "pruned"), _CLASSES)
            if name
            not in ("mx.kept.nan", "mx.kept.infinity", "mx.pruned.nan", "mx.pruned.infinity")
        ),
        shown="`value.SCHEME.FATE.CLASS`",
    ),
    Intent(
        name="miss",
        prose="A value that the mask keeps is pruned because its exponent is not in the codebook;"
        " a codebook is full; a codebook has one entry; a packet goes on beyond the entries that"
        " the decoder holds.",
        bins=("pruned", "full_codebook", "one_entry", "long_packet"),
    ),
    Intent(
        name="shared",
        prose="Group exponents at the ends of their range, groups without a kept value, groups of"
        " zeros, values that saturate because the encoder chose a smaller exponent, and results"
        " that are subnormal.",
        bins=(
            *("lowest", "highest", "exact_255", "none_kept", "all_zero", "saturated"),
            "subnormal_result",
        ),
    ),
    Intent(
        name="residue",
        prose="Residues of every width from 0 to 7 bits, zero flags of both signs.",
        bins=(*_product(("width",), range(8)), "zero_flag.plus", "zero_flag.minus"),
        shown="`residue.width.0` … `residue.width.7`, `residue.zero_flag.SIGN`",
    ),
    Intent(
        name="escape",
        prose="Escapes of kept values: the window is 0x00 (the value is too small), 0xFF because it"
        " is too large or not finite, and 0xFF for the ordinary significand 255; several in a beat;"
        " all of a beat; beside pruned values.",
        bins=("small", "large", "not_finite", "ordinary", "several", "whole_beat", "beside_pruned"),
    ),
    Intent(
        name="extreme",
        prose="The least and the most of every sum, counter and queue, in decoders of 8, 16 and 32"
        " lanes: values of a segment; kept values of a beat; values that it takes from `pruned`;"
        " values of a block left over; codes of a window; ranks in the queue before and after a"
        " beat; windows by which it starves; bits of its residue, and bits of a row left over;"
        " rows of a phase (low bits of a beat, residue of the one before).",
        bins=_product((8, 16, 32), itertools.chain(*EXTREMES.values()), ("least", "most")),
        shown="`extreme.LANES.WHAT.END`",
    ),
    Intent(
        name="stall",
        prose="Every stream waits for its other end: sources for the decoder (valid, not ready),"
        " the decoder for sources (ready, not valid), and the other way round for values.",
        bins=_product(PORTS, ("held", "starved")),
        shown="`stall.PORT.held`, `stall.PORT.starved`",
    ),
    Intent(
        name="error",
        prose="Each cause of section 7 of docs/format.md, and commands that the decoder cannot"
        " obey, in each region, scheme and mode where it can occur.",
        bins=(
            *_product(("short", "long"), ("speculation",), SCHEMES, MODES),
            *_product(("short", "long"), ("verification",), SCHEMES),
            *_product(("short",), ("no_verification",), SCHEMES),
            *_product(("code", "rank"), MODES),
            *_product(("group",), ("mx_zero", "mx_255", "exact_zero"), MODES),
            "window.target",
            *_product(("command",), ("scheme", "group", "coded"), MODES),
        ),
        shown="`error.short.REGION.SCHEME.MODE`, `error.long.REGION.SCHEME.MODE`,"
        " `error.short.no_verification.SCHEME`, `error.code.MODE`, `error.rank.MODE`,"
        " `error.group.SCHEME_EXPONENT.MODE`, `error.window.target`, `error.command.FIELD.MODE`",
    ),
    Intent(
        name="coded",
        prose="Decoders of coded pruned exponents: codes of every length; beats with none, some and"
        " nothing but pruned values; no, some and nothing but escapes among them; a codebook that"
        " is full, and one without entries; beats that starve by no, one and more windows; each"
        " error.",
        bins=(
            *_product(("length",), range(LONGEST + 1)),
            *_product(("pruned", "escapes"), ("none", "some", "all")),
            *("book.full", "book.empty", "starve.0", "starve.1", "starve.more"),
            *_product(("error",), ("short.coded", "long.coded", "code.pruned", "rank.pruned")),
        ),
        shown="`coded.length.ZEROS`, `coded.pruned.SHARE`, `coded.escapes.SHARE`,"
        " `coded.book.FILL`, `coded.starve.WINDOWS`, `coded.error.CAUSE`",
    ),
    Intent(
        name="recovery",
        prose="After each cause, with more input waiting, the next segment decodes right.",
        bins=tuple(ERROR_CAUSES),
    ),
    Intent(
        name="reset",
        prose="Reset in the middle of a segment in each mode, while a codebook is loaded, and while"
        " values wait; what comes after decodes right.",
        bins=(*MODES, "codebook", "waiting"),
    ),
    Intent(
        name="handshake",
        prose="The decoder offers values without waiting for ready.",
        bins=("valid_first",),
    ),
)

_ENCODER_OUTPUTS = ("speculation", "verification", "result")
_ENCODER: tuple[Intent, ...] = (
    Intent(
        name="encode_setting",
        prose="Encoder: none, some and all of a vector are kept, at every t, in every scheme.",
        bins=_product(SCHEMES, SHARES, range(8)),
        shown="`encode_setting.SCHEME.SHARE.T`",
    ),
    Intent(
        name="encode_vector",
        prose="Encoder: vectors of zeros, with NaN, infinities and subnormals, and cut short, of"
        " which none, some and all is kept; ties across the border of what is kept.",
        bins=(
            *_product(SCHEMES, SHARES, ("zeros", "nan", "infinity", "subnormal", "partial")),
            *_product(SCHEMES, ("some",), ("ties",)),
        ),
        shown="`encode_vector.SCHEME.SHARE.KIND`, `encode_vector.SCHEME.some.ties`",
    ),
    Intent(
        name="encode_held",
        prose="Encoder: each output is held (valid, not ready) in segments of which none, some and"
        " all is kept.",
        bins=_product(SCHEMES, SHARES, _ENCODER_OUTPUTS),
        shown="`encode_held.SCHEME.SHARE.PORT`",
    ),
    Intent(
        name="encode_stall",
        prose="Encoder: every stream waits for its other end, in both directions.",
        bins=_product(("command", "codebook", "values", *_ENCODER_OUTPUTS), ("held", "starved")),
        shown="`encode_stall.PORT.held`, `encode_stall.PORT.starved`",
    ),
    Intent(
        name="encode_last",
        prose="Encoder: the last beat of a segment has every number of lanes from 1 to all.",
        bins=tuple(f"{lanes}.{last}" for lanes in (8, 16, 32) for last in range(1, lanes + 1)),
        shown="`encode_last.LANES.PRESENT`",
    ),
    Intent(
        name="encode_group",
        prose="Encoder: every group from the lanes to 128, in mx and exact.",
        bins=_product(("mx", "exact"), (8, 16, 32, 64, 128)),
        shown="`encode_group.SCHEME.SIZE`",
    ),
    Intent(
        name="encode_extreme",
        prose="Encoder: the least and the most of every sum, counter and queue, with 8, 16 and 32"
        " lanes: values of a segment, and of a vector; kept values of a beat; values that it stores"
        " whole; values of a block left over; in a search, values above the threshold and ties"
        " that are kept; bits of a beat's codes; beats that wait for the block of a kept value;"
        " values that are replaced; bits of a beat's residue.",
        bins=_product((8, 16, 32), itertools.chain(*ENCODE_EXTREMES.values()), ("least", "most")),
        shown="`encode_extreme.LANES.WHAT.END`",
    ),
    Intent(
        name="encode_mask",
        prose="Encoder: segments without a mask, with one although all is kept, and in unary with"
        " a chosen value whose exponent is not in the codebook.",
        bins=("absent", "all_kept", "miss"),
    ),
    Intent(
        name="encode_error",
        prose="Encoder: each cause of docs/hardware/encoder.md.",
        bins=tuple(ENCODE_ERROR_CAUSES),
    ),
    Intent(
        name="encode_recovery",
        prose="Encoder: after each cause, the next segment is encoded right.",
        bins=tuple(ENCODE_ERROR_CAUSES),
    ),
    Intent(
        name="encode_reset",
        prose="Encoder: reset in the middle of a segment; what comes after is encoded right.",
        bins=("busy",),
    ),
)

INTENTS = (*_DECODER, *_ENCODER)
"""The plan, in the order of docs/results/verification.md."""


class Coverage:
    """Counts of the bins of a plan."""

    def __init__(self, intents: Sequence[Intent] = INTENTS) -> None:
        names = [name for intent in intents for name in intent.full_names]
        twice = [name for name, uses in collections.Counter(names).items() if uses > 1]
        if twice:
            raise CassandraError(f"bin must be in one intent, not several: {twice[0]!r}")
        self.intents = tuple(intents)
        self.hits = dict.fromkeys(names, 0)

    def sample(self, name: str, count: int = 1) -> None:
        """Count a hit of bin ``name`` (or ``count`` hits)."""
        if name not in self.hits:
            raise CassandraError(f"coverage bin must be in the plan, not {name!r}")
        self.hits[name] += count

    def sample_if(self, condition: bool | int, name: str) -> None:
        """Count ``condition`` hits of bin ``name``; True is one hit."""
        if condition:
            self.sample(name, int(condition))

    def missing(self, *patterns: str) -> tuple[str, ...]:
        """Return the bins without a hit, among those that match a shell pattern (default: all)."""
        chosen = [name for name in self.hits if _matches(name, patterns or ("*",))]
        if not chosen:
            raise CassandraError(f"coverage pattern must match a bin of the plan, not {patterns!r}")
        return tuple(name for name in chosen if not self.hits[name])

    def require(self, *patterns: str) -> None:
        """Raise AssertionError with the bins that were not hit. Each pattern must match a bin."""
        missing = [name for pattern in patterns for name in self.missing(pattern)]
        if missing:
            shown = ", ".join(missing[:20])
            raise AssertionError(f"{len(missing)} coverage bins were not hit: {shown}")

    def merge(self, other: Coverage) -> None:
        """Add the counts of another run."""
        for name, count in other.hits.items():
            self.sample(name, count)

    def save(self, path: Path) -> None:
        """Write the counts as JSON, by bin."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.hits, indent=1) + "\n")

    @classmethod
    def load(cls, paths: Iterable[Path]) -> Coverage:
        """Return the sum of saved runs; raise if a bin is not in the plan any more."""
        total = cls()
        for path in paths:
            for name, count in json.loads(path.read_text()).items():
                total.sample(name, count)
        return total

    def report(self) -> str:
        """Format one line per intent: bins hit, number of bins, the first missing ones."""
        lines = [f"{'intent':<16}{'hit':>6}{'of':>6}  missing"]
        for intent in self.intents:
            missing = [tail for tail in intent.bins if not self.hits[f"{intent.name}.{tail}"]]
            hit, some = len(intent.bins) - len(missing), ", ".join(missing[:6])
            more = f" and {len(missing) - 6} more" if len(missing) > 6 else ""
            lines.append(f"{intent.name:<16}{hit:>6}{len(intent.bins):>6}  {some}{more}".rstrip())
        return "\n".join(lines)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def plan_table() -> str:
    """Format the plan as the Markdown table of docs/results/verification.md."""
    rows = [(intent.prose, _shown(intent), len(intent.bins)) for intent in INTENTS]
    return markdown_table(["intent", "bins", "number"], rows)


def _shown(intent: Intent) -> str:
    return intent.shown or ", ".join(f"`{name}`" for name in intent.full_names)


def report_saved() -> str:
    """Format the sum of all saved runs; name and skip files of another version of the plan."""
    total, notes = Coverage(), []
    for path in sorted(FOLDER.glob("*.json")):
        try:
            total.merge(Coverage.load([path]))
        except CassandraError as error:
            notes.append(f"{path.name} is left out, its suite must run again: {error}")
    return "\n".join([total.report(), *notes])


def main(argv: Sequence[str] | None = None) -> int:
    """Print the sum of all saved runs, or the plan's table with ``--plan``."""
    return run_command(_parser, _run, argv)


def _parser() -> CommandParser:
    parser = CommandParser(prog="cassandra_spec.verif.library.coverage", description=main.__doc__)
    parser.add_argument("--plan", action="store_true", help="print the plan's table instead")
    return parser


def _run(args: argparse.Namespace) -> int:
    print(plan_table() if args.plan else report_saved())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
