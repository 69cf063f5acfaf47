"""The exported top: the decoder with flat AXI4-Stream names (decoder.md)."""

from __future__ import annotations

import re
from typing import Protocol

from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.golden.format import ERROR_CAUSES
from cassandra_spec.rtl.common.command import COMMAND_WIDTH, VALUE, DecoderConfig
from cassandra_spec.rtl.common.conversion import rtlil_of, verilog_of
from cassandra_spec.rtl.common.ram import Wrapped
from cassandra_spec.rtl.common.superblock_reader import BUS_ROWS
from cassandra_spec.rtl.common.wires import axi_channel, handshake, values_out
from cassandra_spec.rtl.decoder import Decoder

_BLOCK = re.compile(r"^  always @\*\n    (.*;)$", re.MULTILINE)
_STARTER = re.compile(r"^  reg (\\\$auto\$verilog_backend\S*) *= 0;$", re.MULTILINE)


class DecoderTop(wiring.Component):
    """:class:`cassandra_spec.rtl.decoder.Decoder` with AXI4-Stream ports; adds no logic."""

    def __init__(self, config: DecoderConfig | None = None) -> None:
        self.config = config = config or DecoderConfig()
        lanes = config.lanes
        coded = {"user": 2} if config.coded else {}
        super().__init__(
            {
                **axi_channel("s_axis_command_t", In, data=COMMAND_WIDTH),
                **axi_channel("s_axis_codebook_t", In, data=8, last=1, **coded),
                **axi_channel("s_axis_speculation_t", In, data=BUS_ROWS * lanes, last=1),
                **axi_channel(
                    "s_axis_verification_t", In, data=config.verification_rows * lanes, last=1
                ),
                **axi_channel(
                    "m_axis_values_t",
                    Out,
                    data=VALUE * lanes,
                    keep=VALUE // 8 * lanes,
                    last=1,
                    user=1,
                ),
                "error": Out(len(ERROR_CAUSES)),
                "clear_error": In(1),
                "busy": Out(1),
            }
        )

    @property
    def module_name(self) -> str:
        """Name of the Verilog module, unique per configuration."""
        return self.config.module_name

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.decoder = decoder = Decoder(self.config)
        command = decoder.command.payload
        m.d.comb += [
            command.eq(self.s_axis_command_tdata),
            decoder.codebook.payload.exponent.eq(self.s_axis_codebook_tdata),
            decoder.codebook.payload.last.eq(self.s_axis_codebook_tlast),
            decoder.clear_error.eq(self.clear_error),
            self.error.eq(decoder.error),
            self.busy.eq(decoder.busy),
        ]
        if self.config.coded:
            word = decoder.codebook.payload
            m.d.comb += Cat(word.pruned, word.empty).eq(self.s_axis_codebook_tuser)
        for name in ("command", "codebook", "speculation", "verification"):
            handshake(m, self, f"s_axis_{name}_t", getattr(decoder, name))
        for name in ("speculation", "verification"):
            payload = getattr(decoder, name).payload
            m.d.comb += [
                payload.data.eq(getattr(self, f"s_axis_{name}_tdata")),
                payload.last.eq(getattr(self, f"s_axis_{name}_tlast")),
            ]
        values_out(m, self, decoder.values)
        return m


class Top(Protocol):
    """A component that is exported as a module with a name of its own."""

    @property
    def module_name(self) -> str:
        """Name of the Verilog module."""
        ...

    @property
    def signature(self) -> wiring.Signature:
        """Its ports."""
        ...


def to_verilog(top: Top, *, wrapped: bool = False) -> str:
    """Convert a top and everything below it to Verilog, as one text.

    ``wrapped``: memories are instances of modules that the text does not have (``rtl/common/ram``).
    """
    platform = Wrapped() if wrapped else None
    text = verilog_of(top, top.module_name, strip_attributes=True, platform=platform)
    return "".join(_start_blocks(module) for module in re.split(r"(?m)^(?=module )", text))


def _start_blocks(module: str) -> str:
    """Make every ``always @*`` of a module run at time zero.

    Yosys makes longer blocks read a variable so that its initial value starts them. But it gives
    that value in the declaration, which is no event in SystemVerilog, and it skips one-line blocks
    that assign some bits of a variable. If the inputs of a block never change, its outputs then
    stay X in simulators that follow the letter of the standard (Icarus Verilog does, Verilator does
    not). Here all blocks read the variable, and it gets its value after they have started.
    """
    found = _STARTER.search(module)
    if not _BLOCK.search(module) and not found:
        return module
    name = found[1] if found else "\\$start"
    block = f"  always @* begin\n    if ({name} ) begin end\n    "
    module = _BLOCK.sub(lambda match: f"{block}{match[1]}\n  end", module)
    declared = f"  reg {name} ;"
    if found:
        module = _STARTER.sub(lambda _: declared, module)
    else:
        module = module.replace(";\n", f";\n{declared}\n", 1)
    return module.replace("\nendmodule", f"\n  initial {name} = 0;\nendmodule", 1)


def to_rtlil(top: Top) -> str:
    """Convert a top to RTLIL for synthesis; memories are instances as in :func:`to_verilog`."""
    return rtlil_of(top, top.module_name, Wrapped())
