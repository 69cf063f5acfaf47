"""Memories of exported tops: each is an instance of a module named after its shape.

While a top is converted, :class:`Wrapped` is the platform, which Amaranth asks for every memory.
:meth:`Shape.verilog` writes the behavioural body of the module; a chip puts a compiled memory with
the same ports in its place. Simulations of Amaranth have Amaranth's own memory.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Value
from amaranth.lib.memory import Memory

_NAME = re.compile(r"cassandra_ram_(\d+)x(\d+)_r(\d+)_l([01])")

_MODULE = """\
`ifndef {guard}
`define {guard}
// {words} words of {width} bits, {reads} of latency {latency}. {rule}
module {name} (
{ports}
);
  reg [{msb}:0] words [0:{last}];
  always @(posedge clk) if (w_en) words[w_addr] <= w_data;
{body}endmodule
`endif
"""

_RULES = (
    "A read of the word that is being written shows the old word.",
    "The word being written is never read in the same cycle; r_data stays until the next r_en.",
)


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Shape:
    """A memory with one write port and some read ports, all on one clock.

    Attributes:
        words, width: number and bits of the words.
        reads: number of read ports.
        latency: cycles from address to data, 0 or 1.
    """

    words: int
    width: int
    reads: int
    latency: int

    @property
    def name(self) -> str:
        """Name of the module."""
        return f"cassandra_ram_{self.words}x{self.width}_r{self.reads}_l{self.latency}"

    @classmethod
    def named(cls, module: str) -> Shape | None:
        """Return the shape whose module has this name, None for other modules."""
        found = _NAME.fullmatch(module)
        if found is None:
            return None
        words, width, reads, latency = map(int, found.groups())
        return cls(words=words, width=width, reads=reads, latency=latency)

    @property
    def bits(self) -> int:
        """Bits that it stores."""
        return self.words * self.width

    @property
    def rule(self) -> str:
        """Name of the rule for reads of a word that is being written."""
        return ("old", "never")[self.latency]

    @property
    def address_bits(self) -> int:
        """Bits of an address, at least one."""
        return max(1, (self.words - 1).bit_length())

    @property
    def read_names(self) -> list[str]:
        """Prefixes of the ports for reading."""
        return ["r"] if self.reads == 1 else [f"r{place}" for place in range(self.reads)]

    def describe(self) -> dict[str, object]:
        """Describe the shape for other programs."""
        return {
            "module": self.name,
            **dataclasses.asdict(self),
            "read_while_written": self.rule,
            "bits": self.bits,
        }

    def verilog(self) -> str:
        """Write the behavioural module."""
        address, data = f"[{self.address_bits - 1}:0] ", f"[{self.width - 1}:0] "
        ports = ["input clk", "input w_en", f"input {address}w_addr", f"input {data}w_data"]
        body = ""
        for read in self.read_names:
            if self.latency:
                ports += [f"input {read}_en", f"input {address}{read}_addr"]
                ports += [f"output reg {data}{read}_data"]
                body += f"  always @(posedge clk) if ({read}_en) {read}_data <= "
                body += f"words[{read}_addr];\n"
            else:
                ports += [f"input {address}{read}_addr", f"output {data}{read}_data"]
                body += f"  assign {read}_data = words[{read}_addr];\n"
        return _MODULE.format(
            name=self.name,
            guard=self.name.upper(),
            words=self.words,
            width=self.width,
            reads="one read port" if self.reads == 1 else f"{self.reads} read ports",
            latency=self.latency,
            rule=_RULES[self.latency],
            ports=",\n".join(f"    {port}" for port in ports),
            msb=self.width - 1,
            last=self.words - 1,
            body=body,
        )


class Wrapped:
    """A platform on which every memory is an instance of a module of :class:`Shape`.

    Raises NotImplementedError for memories whose ports a :class:`Shape` does not describe.
    """

    def get_memory(self, memory: Memory) -> Instance:
        """Return the instance that stands for a memory."""
        [write], reads = memory.write_ports, memory.read_ports
        latencies = {int(port.domain != "comb") for port in reads}
        if len(latencies) != 1 or any(port.transparent_for for port in reads):
            raise NotImplementedError("read ports must be alike and not transparent")
        if len(write.en) != 1 or {port.domain for port in reads} - {"comb", write.domain}:
            raise NotImplementedError("a memory must have one clock and no parts of words")
        [latency] = latencies
        width = len(Value.cast(write.data))
        shape = Shape(words=memory.depth, width=width, reads=len(reads), latency=latency)

        def address(value: Value) -> Value:
            return Cat(value, Const(0, 1))[: shape.address_bits]

        pins: dict[str, object] = {
            "i_clk": ClockSignal(write.domain),
            "i_w_en": write.en,
            "i_w_addr": address(write.addr),
            "i_w_data": Value.cast(write.data),
        }
        for name, read in zip(shape.read_names, reads, strict=True):
            pins |= {f"i_{name}_addr": address(read.addr), f"o_{name}_data": Value.cast(read.data)}
            pins |= {f"i_{name}_en": read.en} if latency else {}
        return Instance(shape.name, **pins)


def shapes_in(text: str) -> list[Shape]:
    """Return the shapes whose modules are named in a text, each once, sorted."""
    found = {Shape.named(name[0]) for name in _NAME.finditer(text)}
    return sorted(shape for shape in found if shape is not None)


def modules(shapes: Iterable[Shape]) -> str:
    """Write the behavioural modules of several shapes as one Verilog text."""
    return "\n".join(shape.verilog() for shape in shapes)


_DESIGN = (  # a module, and an instance in it: in RTLIL, in Verilog
    (re.compile(r"^module \\(\S+)\n(.*?)^end$", re.M | re.S), r"^  cell \\(\S+) \\(\S+)$"),
    (re.compile(r"^module (\w+).*?;\n(.*?)^endmodule$", re.M | re.S), r"^  (\w+) (\w+) \($"),
)


def instances(design: str) -> Iterator[tuple[str, Shape]]:
    """Yield path and shape of each memory of a design in RTLIL or Verilog with plain names.

    A path consists of the names of instances, from that in the top on.
    """
    for module, cell in _DESIGN:
        found = module.findall(design)
        inside = {name: re.findall(cell, body, re.M) for name, body in found}
        if found:
            yield from _below(found[0][0], "", inside)


def _below(
    module: str, path: str, inside: Mapping[str, list[tuple[str, str]]]
) -> Iterator[tuple[str, Shape]]:
    for kind, name in inside.get(module, ()):
        if shape := Shape.named(kind):
            yield path + name, shape
        else:
            yield from _below(kind, f"{path}{name}.", inside)
