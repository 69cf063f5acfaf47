"""Define recipes for the tensors of a model, and read and write plan files (packing.md).

A plan file is TOML: what holds for all tensors in ``[default]``, and what is different for some in
``[[override]]``, by glob. Overrides apply in their order, later ones over earlier ones::

    version = 1

    [default]
    scheme = "exact"
    group = 64
    group_exponents = "weighted"

    [[override]]
    tensors = "model.layers.*.mlp.down_proj.weight"
    truncated = 3

    [[override]]
    tensors = "lm_head.weight"
    keep = true
"""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from cassandra_spec.golden.errors import CassandraError, FileError
from cassandra_spec.golden.format import Format
from cassandra_spec.golden.model_types import EMBEDDING, HEAD
from cassandra_spec.golden.selection import check_prune
from cassandra_spec.model.output import write_file
from cassandra_spec.model.weights.sources import Source, Tensor

PruneScores = Literal["wanda", "magnitude"]
GroupExponents = Literal["largest", "chosen", "weighted"]
Nonfinite = Literal["error", "saturate"]

_VERSION = 1
_KEEP = "keep"


def _require_choice(field: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        expected = " or ".join(repr(choice) for choice in choices)
        raise CassandraError(f"{field} must be {expected}, not {value!r}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings with which one tensor is packed."""

    format: Format = dataclasses.field(default_factory=Format)
    prune: float = 0.0  # fraction of each output row that the draft reads as 0
    prune_scores: PruneScores = "wanda"  # scores that select the pruned values
    group_exponents: GroupExponents = "largest"  # others: a closer draft (exact)
    nonfinite: Nonfinite = "error"  # "saturate": the largest finite value (mx)

    def __post_init__(self) -> None:
        check_prune(self.prune)
        _require_choice("prune_scores", self.prune_scores, get_args(PruneScores))
        _require_choice("group_exponents", self.group_exponents, get_args(GroupExponents))
        _require_choice("nonfinite", self.nonfinite, get_args(Nonfinite))
        scheme = self.format.scheme
        if self.group_exponents != "largest" and scheme != "exact":
            raise CassandraError(
                f"group_exponents must be 'largest' in scheme {scheme}, not "
                f"{self.group_exponents!r}"
            )
        if self.nonfinite == "saturate" and scheme != "mx":
            raise CassandraError(f"nonfinite must be 'error' in scheme {scheme}, not 'saturate'")

    @property
    def needs_norms(self) -> bool:
        """Return whether the tensor needs norms of its inputs."""
        return self.group_exponents == "weighted" or bool(
            self.prune and self.prune_scores == "wanda"
        )

    def without_norms(self) -> Recipe:
        """Return the nearest recipe that needs no norms: all inputs have equal weight."""
        chosen = "chosen" if self.group_exponents == "weighted" else self.group_exponents
        return dataclasses.replace(self, prune_scores="magnitude", group_exponents=chosen)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, those of the format included; :meth:`from_dict` is the inverse."""
        own = {name: getattr(self, name) for name in _OWN}
        return {**self.format.to_dict(), **own}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Recipe:
        """Build a recipe; a field that is not given has its default."""
        _require_known(fields, "recipe")
        own = {name: value for name, value in fields.items() if name in _OWN}
        rest = {name: value for name, value in fields.items() if name not in _OWN}
        return cls(format=Format.from_dict(rest), **own)


_OWN = tuple(field.name for field in dataclasses.fields(Recipe) if field.name != "format")
FIELDS = (*(field.name for field in dataclasses.fields(Format)), *_OWN)
"""Fields of a recipe, those of its format first."""


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "fast": {
        **{"scheme": "exact", "group": 64, "fill": "midpoint"},
        "group_exponents": "weighted",
    },
    "paper": {"scheme": "unary", "prune": 0.4},
    "small": {"scheme": "unary", "fill": "midpoint"},
}
"""Fields of recipes by name: the fastest with the native backend; the paper's setting; the
smallest file with an exact target.
"""


def _require_known(fields: Mapping[str, Any], where: str) -> None:
    for name in fields:
        if name not in FIELDS:
            raise CassandraError(
                f"{where}: a field must be one of {', '.join(FIELDS)}, not {name!r}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Override:
    """Settings that differ for the tensors whose names match a glob."""

    tensors: str  # glob of Hugging Face's names; a tied head is lm_head.weight, too
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # fields of a recipe
    keep: bool | None = None  # stay as they are, not packed

    def matches(self, tensor: Tensor) -> bool:
        """Return whether the glob matches the tensor's name, or its role as the head."""
        names = {tensor.name} | ({HEAD} if tensor.kind == "head" else set())
        return any(fnmatch.fnmatchcase(name, self.tensors) for name in names)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackPlan:
    """The recipe of every tensor of a model.

    Linear weights and the head are packed unless an override keeps them; an embedding that is not
    the head stays as it is unless an override says ``keep = false``, and is then packed without
    norms. What overrides add up to is checked for each tensor by :meth:`recipes`.
    """

    default: Recipe = dataclasses.field(default_factory=Recipe)
    overrides: tuple[Override, ...] = ()

    def __post_init__(self) -> None:
        for number, override in enumerate(self.overrides, 1):
            where = f"override {number} ({override.tensors})"
            if not isinstance(override.tensors, str) or not override.tensors:
                raise CassandraError(
                    f"override {number}: tensors must be a glob of names, not {override.tensors!r}"
                )
            if override.keep is not None and not isinstance(override.keep, bool):
                raise CassandraError(f"{where}: keep must be true or false, not {override.keep!r}")
            _require_known(override.changes, where)

    @classmethod
    def of(cls, recipe: Recipe | PackPlan) -> PackPlan:
        """Return a plan that packs every tensor by one recipe, or the plan itself."""
        return recipe if isinstance(recipe, PackPlan) else cls(default=recipe)

    def recipe(self, tensor: Tensor) -> Recipe | None:
        """Return the recipe of a tensor; None: do not pack it."""
        if tensor.kind == "other" and tensor.name != EMBEDDING:
            return None
        keep, recipe = tensor.kind == "other", self.default
        for number, override in enumerate(self.overrides, 1):
            if override.matches(tensor):
                where = f"override {number} ({override.tensors}) on {tensor.name}"
                recipe = _amended(recipe.to_dict(), override.changes, where)
                keep = keep if override.keep is None else override.keep
        if keep:
            return None
        return recipe.without_norms() if tensor.kind == "other" else recipe

    def recipes(self, source: Source) -> dict[str, Recipe]:
        """Return the recipe of each packed tensor of a model."""
        tensors = source.tensors.values()
        for number, override in enumerate(self.overrides, 1):
            if not any(map(override.matches, tensors)):
                raise CassandraError(
                    f"override {number}: tensors must match a name, and {override.tensors!r} "
                    "matches none"
                )
        recipes = {tensor.name: self.recipe(tensor) for tensor in tensors}
        return {name: recipe for name, recipe in recipes.items() if recipe is not None}

    def notes(self, source: Source) -> tuple[str, ...]:
        """Warn of matrices whose groups cross the ends of rows."""
        uneven = Counter(
            (source.tensors[name].shape[1], recipe.format.group)
            for name, recipe in self.recipes(source).items()
            if recipe.format.scheme != "unary"
            and source.tensors[name].shape[1] % recipe.format.group
        )
        return tuple(
            f"{count} matrices have rows of {columns} values, no multiple of the group ({group}):"
            " their drafts take 12 bits or more for each weight in the native backend"
            for (columns, group), count in sorted(uneven.items())
        )

    def save(self, path: Path) -> None:
        """Write a plan file (TOML). Whole or not at all."""
        parts = [f"version = {_VERSION}\n", _table("[default]", self.default.to_dict())]
        for override in self.overrides:
            keep = {} if override.keep is None else {_KEEP: override.keep}
            body = {"tensors": override.tensors, **override.changes, **keep}
            parts.append(_table("[[override]]", body))
        write_file(path, "\n".join(parts).encode())

    @classmethod
    def load(cls, path: Path) -> PackPlan:
        """Read a plan file. Raises :class:`FileError` with the file, the field and the value."""
        if not path.is_file():
            raise FileError(f"{path} must be a plan file, and is missing")
        try:
            return cls.from_dict(tomllib.loads(path.read_text(encoding="utf-8")))
        except CassandraError as error:
            raise FileError(f"{path}: {error}") from error
        except ValueError as error:  # not UTF-8, or not TOML
            raise FileError(f"{path} must be TOML ({error})") from error

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> PackPlan:
        """Build a plan from the contents of a plan file."""
        for name in body:
            _require_choice("an entry", name, ("version", "default", "override"))
        _require_choice("version", body.get("version"), (_VERSION,))
        default = _default(body.get("default", {}))
        entries = body.get("override", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise CassandraError("override must be tables, [[override]]")
        return cls(default=default, overrides=tuple(map(_override, entries)))


def _amended(recipe: Mapping[str, Any], changes: Mapping[str, Any], where: str) -> Recipe:
    try:
        return Recipe.from_dict({**recipe, **changes})
    except CassandraError as error:
        raise CassandraError(f"{where}: {error}") from error


def _default(fields: object) -> Recipe:
    if not isinstance(fields, dict):
        raise CassandraError("default must be a table, [default]")
    if _KEEP in fields:
        raise CassandraError("default: keep must be in an override, not here")
    return _amended({}, fields, "default")


def _override(entry: Mapping[str, Any]) -> Override:
    changes = {name: value for name, value in entry.items() if name not in ("tensors", _KEEP)}
    return Override(tensors=entry.get("tensors", ""), changes=changes, keep=entry.get(_KEEP))


def _table(header: str, fields: Mapping[str, object]) -> str:
    return "".join(
        [f"{header}\n", *(f"{name} = {_toml(value)}\n" for name, value in fields.items())]
    )


def _toml(value: object) -> str:
    """Format a string, number or truth value; TOML's basic strings are those of JSON."""
    return json.dumps(value, ensure_ascii=False)
