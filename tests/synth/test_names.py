"""Plain names: the same design under other names, without escapes, and stable between modules."""

from __future__ import annotations

import re

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.queues import PairQueue
from cassandra_spec.rtl.decode.top import to_verilog
from cassandra_spec.synth.interface.names import plain_names

ITEM = data.StructLayout({"low": 3, "high": 2})


class Pairs(PairQueue):
    """Queues below a top that has a name."""

    module_name = "cassandra_pairs"


class Odd(wiring.Component):
    """Keywords, one name twice, nets without a name; ``more`` numbers the nets of the top."""

    module_name = "odd"

    def __init__(self, more: int = 0) -> None:
        self.more = more
        super().__init__({"begin": In(4), "table": Out(4), "inside": Out(data.ArrayLayout(4, 2))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.part = part = Part()
        value, again = Signal(4, name="value"), Signal(4, name="value")
        m.d.sync += [value.eq(self.begin * 3), again.eq(value + part.final)]
        m.d.comb += [part.final_in.eq(again), self.table.eq(again), self.inside[1].eq(value)]
        for place in range(self.more):
            m.d.sync += self.inside[0].eq((self.begin ^ place) + value)
        return m


class Part(wiring.Component):
    """A module below, with nets without names."""

    def __init__(self) -> None:
        super().__init__({"final": Out(4), "final_in": In(4)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.final.eq((self.final_in + 3) * 5)
        return m


def shape_of(verilog: str) -> list[str]:
    """Return the text of a design with numbers instead of names, by a reading of its own.

    A name is numbered where its module first has it; a pin is the place in its module's port list.
    """
    name = r"\\\S+|\b[A-Za-z_][\w$]*"
    texts = re.split(r"(?m)^(?=module )", verilog)[1:]
    heads = [re.match(rf"module ({name})", text)[1] for text in texts]  # type: ignore[index]
    ports = {
        head: re.findall(name, text[text.index("(") : text.index(";")])
        for head, text in zip(heads, texts, strict=True)
    }
    found = []
    for head, text in zip(heads, texts, strict=True):
        numbers: dict[str, str] = {}
        callee = head
        for line in text.removeprefix(f"module {head}").splitlines():
            if called := re.match(rf"  ({name})\s+({name})\s+\($", line):
                callee = called[1]
                place = heads.index(callee) if callee in heads else callee
                line = f"instance {place} of {called[2]}"
            if pin := re.match(rf"    \.({name})\s?\(", line):
                known = ports.get(callee, [pin[1]])
                line = f"{known.index(pin[1])}: {line[pin.end() :]}"
            tokens = re.findall(rf"'s?[bdho][\w?]+|\$\w+|{name}|\S", line)
            words = [
                numbers.setdefault(token, f"#{len(numbers)}")
                if re.fullmatch(name, token)
                else token
                for token in tokens
            ]
            found.append(" ".join(words))
    return found


def test_the_design_is_the_same_under_other_names() -> None:
    for top in (Pairs(ITEM, 8), Odd(3)):
        before = to_verilog(top, wrapped=True)
        after = plain_names(before)
        assert "\\" in before
        assert shape_of(after) == shape_of(before)


def test_no_name_is_escaped() -> None:
    after = plain_names(to_verilog(Pairs(ITEM, 8), wrapped=True) + to_verilog(Odd(2)))
    assert not re.search(r"\\|\$(?!signed|unsigned)", after)
    modules = re.findall(r"(?m)^module (\w+)", after)
    assert len(modules) == len({*modules})
    assert "cassandra_pairs__even__queue" in modules


def test_a_shape_differs_where_a_name_is_another_ones() -> None:
    """The comparison above is one that can fail."""
    before = to_verilog(Pairs(ITEM, 8), wrapped=True)
    after = plain_names(before)
    assert shape_of(after.replace("r_en", "w_en")) != shape_of(before)


def test_a_module_keeps_its_text_when_another_one_changes() -> None:
    def part(more: int) -> str:
        text = plain_names(to_verilog(Odd(more)))
        return text[text.index("module odd__part") :]

    assert to_verilog(Odd(0)) not in to_verilog(Odd(4))
    assert part(0) == part(4)


def test_keywords_and_doubles_get_new_names() -> None:
    names = {*re.findall(r"\b[A-Za-z_]\w*", plain_names(to_verilog(Odd())))}
    assert {"begin_", "table_", "inside_", "value", "value_2"} <= names
