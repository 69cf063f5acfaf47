"""Plain names in exported Verilog: no escaped identifiers, dots, dollars or brackets.

Yosys prints the names of Amaranth as they are, with dots and brackets, and numbers nets without a
name over the whole design. Here each module numbers its own, in the order of its text, so that a
name changes only where its module changes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Container, Iterable, Iterator, Mapping

_NAME = r"(?:\\\S+ |[A-Za-z_][\w$]*)"
_TOKEN = re.compile(
    rf"\"(?:[^\"\\]|\\.)*\"|//.*|\$\w+|\d*'s?[bdho][0-9a-fA-FxzXZ?_]+|(?P<name>{_NAME})"
)
_MODULE = re.compile(r"(?m)^(?=module )")
_HEAD = re.compile(rf"^module ({_NAME})")
_INSTANCE = re.compile(rf"^  ({_NAME}) ({_NAME}) \($")
_PIN = re.compile(rf"^    \.({_NAME})\((.*)$")
_PLAIN = re.compile(r"[A-Za-z_]\w*")
_STARTER = re.compile(r"\$(?:auto\$verilog_backend.*|start)")

Names = dict[str, str]
"""Plain names by the printed ones; escaped ones are keys without backslash and space."""


def plain_names(verilog: str) -> str:
    """Return the text of a design with plain names for modules, signals and instances.

    The first module keeps its name. Names that are plain keep theirs.
    """
    preamble, *texts = _MODULE.split(verilog)
    heads = [_bare(_HEAD.match(text)[1]) for text in texts]  # type: ignore[index]
    modules = _modules(heads)
    inside = {head: _inside(text) for head, text in zip(heads, texts, strict=True)}
    renamed = (
        _renamed(text, modules, inside[head], inside)
        for head, text in zip(heads, texts, strict=True)
    )
    return preamble + "".join(renamed)


def _bare(name: str) -> str:
    return name[1:-1] if name.startswith("\\") else name


def _inside(module: str) -> Names:
    """Choose the names inside a module."""
    found = list(dict.fromkeys(_names(module)))
    plain = {name for name in found if not name.startswith("\\")}
    return _chosen([_bare(name) for name in found if name not in plain], plain)


def _names(module: str) -> Iterator[str]:
    """Yield the names that belong to a module, as printed; keywords, too."""
    for line in module.split("\n"):
        if head := _HEAD.match(line):
            line = line[head.end() :]
        elif instance := _INSTANCE.match(line):
            line = instance[2]
        elif pin := _PIN.match(line):
            line = pin[2]
        yield from (token["name"] for token in _TOKEN.finditer(line) if token["name"])


def _modules(paths: Iterable[str]) -> Names:
    """Choose the names of modules: a path with two underscores for each dot, parents first."""
    chosen = Names()
    for path in paths:
        parent, dot, last = path.rpartition(".")
        start = chosen[parent] + "__" if dot else ""
        chosen[path] = _free(start + _base(last).rstrip("_") if dot else path, chosen.values())
    return chosen


def _chosen(names: Iterable[str], taken: Iterable[str]) -> Names:
    """Choose a plain name for each, none twice."""
    used, chosen = set(taken), Names()
    for name in names:
        chosen[name] = _free(_base(name), used)
        used.add(chosen[name])
    return chosen


def _free(base: str, used: Container[str]) -> str:
    """Return the name, or with the smallest number behind it that makes it a new one."""
    stem = base.removesuffix("$")
    if stem == base and base not in used:
        return base
    return next(name for n in itertools.count(2) if (name := f"{stem}_{n}") not in used)


def _base(name: str) -> str:
    """Return what a plain name begins with; a dollar at the end asks for a number behind it."""
    if _STARTER.fullmatch(name):
        return "starter"
    if re.fullmatch(r"\$\d+", name):
        return "n$"  # a net without a name
    if _PLAIN.fullmatch(name):  # a keyword
        return f"{name}_"
    words = re.sub(r"\$\d+", "$", name.removeprefix("$"))
    plain = re.sub(r"\W+", "_", words.replace("$", "")).strip("_")
    return f"{plain}$" if "$" in words else plain


def _renamed(module: str, modules: Names, own: Names, inside: Mapping[str, Names]) -> str:
    def substitute(text: str, names: Names) -> str:
        def one(token: re.Match[str]) -> str:
            name = token["name"]
            return names[_bare(name)] if name and name.startswith("\\") else token[0]

        return _TOKEN.sub(one, text)

    lines, callee = [], Names()
    for line in module.split("\n"):
        if head := _HEAD.match(line):
            line = f"module {modules[_bare(head[1])]}{substitute(line[head.end() :], own)}"
        elif instance := _INSTANCE.match(line):
            kind = _bare(instance[1])
            callee = inside.get(kind, {})
            line = f"  {modules.get(kind, kind)} {substitute(instance[2], own)} ("
        elif pin := _PIN.match(line):
            name = _bare(pin[1])
            line = f"    .{callee.get(name, name)}({substitute(pin[2], own)}"
        else:
            line = substitute(line, own)
        lines.append(line.rstrip())
    return "\n".join(lines)
