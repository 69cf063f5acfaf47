"""Take the decoder into a FuseSoC project, and lint a top that instantiates it.

    python examples/fusesoc/take.py PROJECT

writes the decoder with its core file to PROJECT/cassandra, and draft_reader.v and .core beside it.
FuseSoC (2.4) lints it with PROJECT as one of its libraries, and Verilator on PATH:

    fusesoc --cores-root PROJECT run --target lint example:cassandra:draft_reader

Needs ``cassandra-spec[hardware]``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.synth.export import export
from cassandra_spec.verif.tools.lint import lint

TOP = Path(__file__).with_name("draft_reader.v")


def main(project: Path) -> int:
    """Export, copy and lint; 1 if Verilator has a warning."""
    decoder = export(project / "cassandra", DecoderConfig(lanes=8, schemes=("exact",)))
    for file in (TOP, TOP.with_suffix(".core")):
        shutil.copy(file, project)
    files = project / "draft_reader.f"
    files.write_text(f"cassandra/{decoder.name}\n{TOP.name}\n", encoding="utf-8")
    warnings = lint(files)
    print(warnings or f"{TOP.stem}: clean")
    return 1 if warnings else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
