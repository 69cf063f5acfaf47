"""Compare with other programs: llama.cpp and transformers; and with another checkout."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cassandra_spec.bench.decode import contenders as own
from cassandra_spec.bench.decode.contenders import Contender, name_beside
from cassandra_spec.bench.decode.run import Bench
from cassandra_spec.bench.decode.workers import llama_program
from cassandra_spec.golden import CassandraError
from cassandra_spec.golden.model_config import read_config
from cassandra_spec.lab.decode.gguf_file import write_gguf
from cassandra_spec.model.packing.calibration import Norms
from cassandra_spec.model.weights.sources import Source

FLASH = "llama.cpp BF16, flash attention"
"""Llama.cpp with flash attention; LLAMA in results.py is without."""

_TRANSFORMERS = "cassandra_spec.lab.decode.transformers_serve"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Llama(Contender):
    """llama.cpp."""

    kind: str = "llama.cpp"
    type: str  # of the weights in its file
    flash: bool = False  # flash attention


CONTENDERS = (
    *own.NATIVE,
    Llama(name="llama.cpp BF16", type="BF16"),
    Llama(name=FLASH, type="BF16", flash=True),
    Llama(name="llama.cpp Q8_0", type="Q8_0"),
    Llama(name="llama.cpp Q4_1", type="Q4_1"),
    Contender(name="transformers BF16", kind="transformers", program=_TRANSFORMERS, slow=True),
    *own.TORCH,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RivalBench(Bench):
    """A benchmark with these contenders."""

    llama_python: Path | None

    def able(self) -> list[Contender]:
        """Return the contenders whose requirements are met."""
        return [each for each in super().able() if self.llama_python or not isinstance(each, Llama)]

    def command(
        self, contender: Contender, weights: str, source: Source, norms: Norms | None
    ) -> list[str]:
        """Return the command of a worker."""
        if not isinstance(contender, Llama):
            return super().command(contender, weights, source, norms)
        file = self._gguf(contender.type, weights, source, norms)
        sizes = [str(self.context), str(self.threads), str(int(contender.flash))]
        return [*self._llama("serve"), str(file), *sizes]

    def _gguf(self, kind: str, weights: str, source: Source, norms: Norms | None) -> Path:
        """Return a file for llama.cpp; llama.cpp itself converts types other than BF16."""
        plain = (self.folder / f"{weights}-BF16.gguf").absolute()
        if not plain.exists():
            config = read_config(self.packed("exact-4", weights, source, norms))
            write_gguf(source, config, plain)
        file = plain.with_name(f"{weights}-{kind}.gguf")
        if not file.exists():
            part = file.with_suffix(".part")
            command = [*self._llama("quantize"), str(plain), str(part), kind]
            made = subprocess.run(command, capture_output=True, text=True, check=False)
            if made.returncode:
                raise CassandraError(f"llama.cpp must quantise to {kind}: {made.stderr[-300:]}")
            part.rename(file)
        return file

    def _llama(self, what: str) -> list[str]:
        assert self.llama_python is not None
        return [*llama_program(self.llama_python), what]


def with_checkout(contenders: Sequence[Contender], checkout: Path) -> list[Contender]:
    """Return the contenders, and the native ones again with the code of another checkout.

    Raises:
        CassandraError: the folder is no checkout of this project.
    """
    if not (checkout / "cassandra_spec" / "native").exists():
        raise CassandraError(f"beside must be a checkout of this project, not {checkout}")
    others = [
        dataclasses.replace(
            each,
            name=name_beside(each.name),
            checkout=checkout.resolve(),
            same_as=each.same_as and name_beside(each.same_as),
        )
        for each in contenders
        if each.kind == "native" and not each.table
    ]
    return [*contenders, *others]
