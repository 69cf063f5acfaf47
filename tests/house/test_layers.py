"""The layers: which package may import which, and that there are no cycles."""

from __future__ import annotations

import ast
import graphlib
import sys
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Package: the packages of the project that it may import beside itself.
ALLOWED: dict[str, set[str]] = {
    "golden": set(),
    "toolkit": {"golden"},
    "text": {"golden"},
    "drafting": {"golden", "text"},
    "rtl": {"golden"},
    "native": {"drafting", "golden"},
    "serve": {"drafting", "golden", "text", "toolkit"},
    "synth": {"golden", "rtl", "toolkit"},
    "model": {"drafting", "golden", "native", "toolkit"},
    "verif": {"golden", "rtl", "toolkit"},
    "bench": {"drafting", "golden", "model", "native", "toolkit"},
    "api": {"drafting", "golden", "model", "native", "rtl", "synth", "text", "verif"},
    "commands": {
        *("api", "bench", "drafting", "golden", "model", "native", "rtl", "serve", "synth"),
        *("text", "toolkit", "verif"),
    },
    "lab": {
        *("bench", "commands", "drafting", "golden", "model", "native", "rtl", "synth", "toolkit"),
        *("text", "verif"),
    },
}
# Additional imports of a part of a package.
ALLOWED_OF_PART: dict[str, set[str]] = {"verif.end_to_end": {"drafting", "model", "native"}}
# Imports of the lower layers from outside, so that they stay usable alone.
OUTSIDE: dict[str, set[str]] = {
    "toolkit": set(),
    "drafting": {"numpy"},
    "text": {"numpy"},
    "golden": {"numpy"},
    "rtl": {"amaranth", "numpy"},
    "synth": {"amaranth", "numpy"},
    "verif": {"amaranth", "cocotb", "cocotb_test", "numpy"},
    "native": {"numpy"},
    "serve": {"fastapi", "prometheus_client", "pydantic", "pydantic_core", "starlette", "uvicorn"},
    "model": {
        *("gguf", "jinja2", "numpy", "safetensors", "tokenizers", "torch", "tqdm", "transformers"),
    },
}
OUTSIDE_OF_MODULE: dict[str, set[str]] = {
    "golden.file.reader": {"safetensors"},
    "text.grammar.compiler": {"llguidance"},
    "serve.processors": {"numpy"},
    "native.tools.wheel_hook": {"hatchling"},
    "toolkit.plots": {"matplotlib"},
    "bench.study.figure": {"matplotlib"},
    "bench.accuracy.harness": {"lm_eval"},
    "toolkit.workers.cluster": {"distributed"},
    "verif.end_to_end.page": {"matplotlib"},
    "verif.end_to_end.weights": {"tqdm"},
    "verif.dma.axi_models": {"cocotbext"},
    "verif.dma.description": {"systemrdl"},
}
PACKAGE = "cassandra_spec"


def imports(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """Full names of the modules that a module imports, wherever in it and however."""
    parent = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=name, level=0) if name:
                yield name
            case ast.ImportFrom(module=name, level=level):
                yield ".".join([*parent[: len(parent) - level + 1], *([name] if name else [])])
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]) if (
                "import" in ast.unparse(function).rsplit(".", maxsplit=1)[-1]
            ):
                yield name


def packages_of(source: str, module: str, *, is_package: bool = False) -> Iterator[str]:
    """Return :func:`imports`, where ``from cassandra_spec import golden`` names the layer, too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == PACKAGE and not node.level:
            yield from (f"{PACKAGE}.{alias.name}" for alias in node.names)
    yield from (name for name in imports(source, module, is_package=is_package) if name != PACKAGE)


def needed(source: str, known: Container[str]) -> set[str]:
    """Return the known modules that a source imports by absolute names, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if name in known else node.module for name in inner}
    return {name for name in found if name in known}


def part_of(inner: str) -> set[str]:
    """Return the additional imports of the part that a module belongs to."""
    found = (more for part, more in ALLOWED_OF_PART.items() if f"{inner}.".startswith(f"{part}."))
    return set().union(*found)


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Return imports of a module that its layer does not allow."""
    layer, inner = module.split(".")[1], module.removeprefix(f"{PACKAGE}.")
    outside = OUTSIDE.get(layer)
    extra = OUTSIDE_OF_MODULE.get(inner, set())
    allowed_rooms = {layer} | ALLOWED[layer] | part_of(inner)
    wrong = []
    for name in packages_of(source, module, is_package=is_package):
        top, *rest = name.split(".")
        if top == PACKAGE:
            allowed = bool(rest) and rest[0] in allowed_rooms
        elif top in ALLOWED or top == "tests":
            allowed = False  # a layer has one name: the one inside the package
        else:
            allowed = outside is None or top in outside | extra | sys.stdlib_module_names
        if not allowed:
            wrong.append(f"{module} must not import {name}")
    return wrong


def modules() -> list[tuple[Path, str]]:
    """Return every source file of the layers, with its module name."""
    found = []
    for layer in ALLOWED:
        for path in sorted((ROOT / layer).rglob("*.py")):
            parts = (PACKAGE, *path.relative_to(ROOT).with_suffix("").parts)
            found.append((path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)))
    return found


@pytest.mark.parametrize(("path", "module"), modules(), ids=lambda value: str(value))
def test_a_module_imports_only_what_its_layer_allows(path: Path, module: str) -> None:
    source = path.read_text(encoding="utf-8")
    assert violations(source, module, is_package=path.stem == "__init__") == []


def test_every_layer_is_a_folder_and_a_part_of_the_package() -> None:
    assert {module.split(".")[1] for _, module in modules()} == set(ALLOWED)
    assert {path.name for path in (ROOT / PACKAGE).iterdir() if path.is_symlink()} == set(ALLOWED)
    assert all((ROOT / PACKAGE / name).resolve() == ROOT / name for name in ALLOWED)


def test_tests_import_layers_by_their_one_name() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        found = {name.split(".")[0] for name in imports(source, "tests.x")}
        assert not found & set(ALLOWED), path


def test_the_allowed_edges_have_no_cycle() -> None:
    left = {layer: set(needs) for layer, needs in ALLOWED.items()}
    for part, more in ALLOWED_OF_PART.items():
        left[part.split(".")[0]] |= more
    while left:
        ready = {name for name, needs in left.items() if not needs & set(left)}
        assert ready, f"cycle among {sorted(left)}"
        left = {name: needs for name, needs in left.items() if name not in ready}


def test_the_product_does_not_import_the_laboratory() -> None:
    """One module finds the laboratory's commands by name; the wheel has no laboratory."""
    assert not [layer for layer, needs in ALLOWED.items() if "lab" in needs]
    product = [path for path, module in modules() if module.split(".")[1] != "lab"]
    naming = [path for path in product if f"{PACKAGE}.lab" in path.read_text(encoding="utf-8")]
    assert naming == [ROOT / "commands" / "checkout.py"]


def test_no_modules_import_each_other_in_a_circle() -> None:
    known = {module: path for path, module in modules()}
    graph: dict[str, set[str]] = {}
    for module, path in known.items():
        graph[module] = needed(path.read_text(encoding="utf-8"), known) - {module}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_no_top_level_package_escapes_the_table() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages - {"tests", PACKAGE} <= set(ALLOWED)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("golden.codec", "import torch"),
        ("golden.codec", "import safetensors.numpy"),
        ("golden.codec", "def f():\n    from cassandra_spec.rtl.decode.top import DecoderTop"),
        ("rtl.decoder", "from cassandra_spec.verif import tools"),
        ("rtl.decoder", "from cassandra_spec import verif"),
        ("rtl.decoder", "import cocotb"),
        ("model.reply", "from cassandra_spec.rtl import decoder"),
        ("verif.lint", "import cassandra_spec.model.reply as reply"),
        ("verif.lint", "import importlib\nimportlib.import_module('cassandra_spec.model.reply')"),
        ("synth.export", "from cassandra_spec.verif.tools.toolchain import verilator_binary"),
        ("synth.export", "from tests.house import test_layers"),
        ("synth.export", "from golden import Format"),
        ("golden.codec", "from ..rtl import decoder"),
        ("commands.arguments", "from cassandra_spec.lab import commands"),
        ("model.reply", "import cocotb"),
        ("native.codec", "import torch"),
    ],
)
def test_a_wrong_import_is_found(module: str, source: str) -> None:
    assert len(violations(source, f"{PACKAGE}.{module}")) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("golden.file.reader", "from safetensors import safe_open"),
        ("golden.codec", "from .format import Format"),
        ("golden.codec", "import numpy as np\nimport dataclasses"),
        ("rtl.decoder", "from cassandra_spec.golden import Format"),
        ("verif.lint", "from cassandra_spec.rtl.decode.top import DecoderTop\nimport cocotb"),
        ("verif.end_to_end.weights", "from cassandra_spec.model import reply"),
        ("commands.__main__", "from cassandra_spec import model, golden, synth"),
    ],
)
def test_a_right_import_is_not(module: str, source: str) -> None:
    assert violations(source, f"{PACKAGE}.{module}") == []
