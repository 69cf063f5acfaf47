"""Contenders: draft methods with settings, made ready for packed models."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from cassandra_spec.drafting import ADAPTIVE, Settings
from cassandra_spec.golden import CassandraError
from cassandra_spec.lab.baselines import Method, Prepared, known_methods, parse_method
from cassandra_spec.model.speculative import CassandraForCausalLM
from cassandra_spec.native.codec import NativeCodec

_CONTENDER = re.compile(r"(?P<method>.+?)(@(?P<gamma>\d+|adaptive))?(?P<low>\+low)?")
_PATH = re.compile(r"=[^:]*/")  # labels name files without their folders


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contender:
    """A method with settings, written ``METHOD[@GAMMA][+low]``; ``+low``: above low drafters."""

    label: str
    method: Method
    settings: Settings

    @classmethod
    def read(cls, text: str, *, gamma: int, max_tokens: int) -> Contender:
        """Parse a contender. Raises :class:`CassandraError` in one line."""
        found = _CONTENDER.fullmatch(text)
        if found is None:
            raise CassandraError(f"methods must be METHOD[@GAMMA][+low], not {text!r}")
        given = found["gamma"] or str(gamma)
        settings = Settings(
            gamma=ADAPTIVE if given == ADAPTIVE else int(given),
            draft="hybrid" if found["low"] else "model",
            max_tokens=max_tokens,
        )
        method = parse_method(found["method"])
        method.check(settings)
        return cls(label=_PATH.sub("=", text), method=method, settings=settings)

    def key(self) -> list[object]:
        """Return, as JSON, all besides model and prompt that a reply depends on."""
        return [repr(self.settings), *self.method_key()]

    def method_key(self) -> list[object]:
        """Return all that the method's drafts depend on, without its settings."""
        return [repr(self.method), *map(list, self._files())]

    def _files(self) -> Iterator[tuple[str, int, int]]:
        """Yield names, sizes and times of the files that the method reads."""
        for path in vars(self.method).values():
            if isinstance(path, Path) and path.exists():
                for file in sorted(path.iterdir()) if path.is_dir() else [path]:
                    about = file.stat()
                    yield file.name, about.st_size, about.st_mtime_ns


def default_contenders() -> list[str]:
    """Return the default contenders of all methods."""
    return [text for method in known_methods().values() for text in method.compared]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ready:
    """A contender on one of the models."""

    contender: Contender
    label: str
    lm: CassandraForCausalLM
    prepared: Prepared


def prepare(sources: Sequence[Path], contenders: Sequence[Contender]) -> list[Ready]:
    """Prepare contenders for packed models with the same tokens.

    All run on the first model; the first Cassandra contender also runs on every other model. A
    contender that does not fit its model is refused before any is prepared, and a method is
    prepared once for all its settings.
    """
    views = [each for each in contenders if each.method.name == "cassandra"][:1]
    models = {source: load(source) for source in sources}
    pairs = [
        (source, each)
        for number, source in enumerate(models)
        for each in (views if number else contenders)
    ]
    for source, each in pairs:
        each.method.check_model(models[source])
    prepared: dict[tuple[Path, Method], Prepared] = {}
    for source, each in pairs:
        if (source, each.method) not in prepared:
            prepared[source, each.method] = each.method.prepare(models[source])
    return [
        Ready(
            contender=each,
            label=each.label if source == sources[0] else f"{each.label} ({source.name})",
            lm=models[source],
            prepared=prepared[source, each.method],
        )
        for source, each in pairs
    ]


def load(source: Path) -> CassandraForCausalLM:
    """Load a packed model, decoded by the native codec."""
    return CassandraForCausalLM.from_pretrained(source, codec=NativeCodec())
