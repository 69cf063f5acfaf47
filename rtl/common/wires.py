"""Wires between parts."""

from __future__ import annotations

from amaranth.hdl import Module

__all__ = ["drive"]


def drive(m: Module, target: object, source: object, *names: str) -> None:
    """Drive the ports of these names of ``target`` by those of ``source``."""
    m.d.comb += [getattr(target, name).eq(getattr(source, name)) for name in names]
