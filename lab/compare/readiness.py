"""Check which draft methods fit a packed model, and measure the gain of each.

HyperTensor has a gate of this name before its drafters run (section 5.5). A method is ready if its
options, and the files that it reads, fit the model; preparing it checks that. Its gain is measured
on development prompts, so that benchmarks use prompts on which nothing was chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.compare.contenders import Contender, Ready, load
from cassandra_spec.lab.compare.run import Figures
from cassandra_spec.lab.questions import ALL
from cassandra_spec.model.packing.packer import open_packed
from cassandra_spec.toolkit.tables import Table


def prepare(
    source: Path, texts: Sequence[str], *, gamma: int, max_tokens: int
) -> tuple[list[Ready], dict[str, str]]:
    """Prepare the methods that fit a packed model; return the others with their errors."""
    lm, ready, refused = load(source), list[Ready](), dict[str, str]()
    for text in texts:
        try:
            one = Contender.read(text, gamma=gamma, max_tokens=max_tokens)
            prepared = one.method.prepare(lm)
        except (CassandraError, OSError) as error:
            refused[text] = str(error)
        else:
            ready.append(Ready(contender=one, label=one.label, lm=lm, prepared=prepared))
    return ready, refused


def table(source: Path, found: Sequence[Figures], refused: Mapping[str, str]) -> Table:
    """Format a table, one line per method; ``found`` has the figures of ready methods."""
    whole = [each for each in found if each.category == ALL]
    rows: list[tuple[str, ...]] = [
        (
            each.label,
            "yes",
            f"{each.memory / 1e6:.0f}",
            f"{each.training_seconds:.0f}",
            f"{each.tokens_per_verification:.2f}",
            f"{each.speedup:.2f}",
            "yes" if each.speedup > 1 else "no",
        )
        for each in whole
    ]
    rows += [(text, f"no: {reason}", *["-"] * 5) for text, reason in refused.items()]
    header = ("method", "ready", "extra MB", "training s", "per verification", "traffic", "gains")
    turns = f"Gains are of {whole[0].turns} development prompts." if whole else ""
    title = f"Readiness for {source.name}, model digest {open_packed(source).digest[:16]}"
    return Table(title=title, header=header, rows=tuple(rows), notes=(turns,) if turns else ())
