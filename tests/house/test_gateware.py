"""Gateware makes the attributes of a component in its constructor."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def late_attributes(source: str) -> Iterator[str]:
    """``CLASS.METHOD sets NAME`` for each attribute of self that is set outside the constructor."""
    for owner in ast.walk(ast.parse(source)):
        if isinstance(owner, ast.ClassDef):
            for method in owner.body:
                if isinstance(method, ast.FunctionDef) and method.name not in (
                    "__init__",
                    "__post_init__",
                ):
                    for name in _set_on_self(method):
                        yield f"{owner.name}.{method.name} sets {name}"


def _set_on_self(method: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(method):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name
            case ast.Call(func=ast.Name(id="setattr"), args=[ast.Name(id="self"), name, *_]):
                yield ast.unparse(name)


@pytest.mark.parametrize("path", sorted((ROOT / "rtl").rglob("*.py")), ids=lambda path: path.stem)
def test_no_attribute_appears_during_elaboration(path: Path) -> None:
    """Signals between the parts of an elaboration are passed, so that a reader sees the flow."""
    assert list(late_attributes(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "body",
    [
        "self.room = Signal()",
        "self.room, other = Signal(), Signal()",
        "m.submodules.queue = self.room = Queue()",
        "self.room: Signal = Signal()",
        "setattr(self, 'room', Signal())",
    ],
)
def test_a_late_attribute_is_found(body: str) -> None:
    source = (
        f"class A:\n  def __init__(self):\n    self.x = 1\n  def elaborate(self, _):\n    {body}"
    )
    assert len(list(late_attributes(source))) == 1


def test_what_is_assigned_elsewhere_is_not() -> None:
    source = "class A:\n  def go(self):\n    other.x = self.x\n    self.x.y = 1\n    x = 1"
    assert list(late_attributes(source)) == []
