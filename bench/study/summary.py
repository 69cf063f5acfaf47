"""Format the result of a search of settings."""

from __future__ import annotations

from pathlib import Path

from cassandra_spec.bench.study.tuning import Score
from cassandra_spec.model.output import write_file
from cassandra_spec.toolkit.tables import text_table

_SHOWN = 12
_COLUMNS = (
    "draft",
    "whole",
    "gamma",
    "margin",
    "accepted",
    "speed-up",
    "margin 0",
    "plain",
    "Eq. 2",
)


def summary(scores: list[Score], destination: object) -> str:
    """Format the best candidates, and the choice of Eq. 2 if it differs."""
    best, by_eq_2 = scores[0], max(scores, key=lambda score: score.eq_2)
    table = text_table(["candidate", *_COLUMNS], [_cells(score) for score in scores[:_SHOWN]])
    found = f"{table}\n\n{destination}: {best.candidate.name}; best with {best_flags(best)}\n"
    if by_eq_2.candidate == best.candidate:
        return f"{found}Eq. 2 chooses the same."
    return (
        f"{found}Eq. 2 would choose {by_eq_2.candidate.name} ({by_eq_2.eq_2:.3f} against"
        f" {best.eq_2:.3f}), whose traffic speed-up is {by_eq_2.speedup:.3f} at its best gamma,"
        f" {by_eq_2.gamma}, against {best.speedup:.3f}."
    )


def save_best(path: Path, best: Score) -> None:
    """Write the best plan, after a line that says how to generate with it."""
    best.candidate.plan().save(path)
    write_file(path, f"# casspec generate PACKED {best_flags(best)}\n".encode() + path.read_bytes())


def best_flags(score: Score) -> str:
    """Return the flags of ``casspec generate`` for a candidate."""
    draft = f"--draft {score.draft} " if score.draft != "model" else ""
    truncated = score.candidate.kv
    kv = "" if truncated is None else f" --kv unary --kv-truncated {truncated}"
    return f"{draft}--gamma {score.gamma} --min-margin {score.min_margin:g}{kv}"


def _cells(score: Score) -> list[str]:
    return [
        score.candidate.name,
        f"{score.draft_bits:.2f}",
        f"{score.target_bits:.2f}",
        str(score.gamma),
        f"{score.min_margin:g}",
        f"{score.acceptance:.3f}",
        f"{score.speedup:.3f}",
        f"{score.speedup_without:.3f}",
        f"{score.plain_speedup:.3f}",
        f"{score.eq_2:.3f}",
    ]
