"""The exported top: the decoder with flat AXI4-Stream names (docs/microarchitecture.md)."""

from __future__ import annotations

from typing import Protocol

from amaranth.back import rtlil, verilog
from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from golden.format import ERROR_CAUSES, SCHEMES, Scheme
from rtl.command import COMMAND_WIDTH, DecoderConfig
from rtl.decoder import Decoder
from rtl.superblock_reader import BUS_ROWS
from rtl.verification import VALUE

__all__ = ["DecoderTop", "Top", "to_rtlil", "to_verilog"]


class DecoderTop(wiring.Component):
    """:class:`rtl.decoder.Decoder` behind AXI4-Stream ports; it has no logic of its own."""

    def __init__(
        self,
        *,
        lanes: int = 16,
        schemes: tuple[Scheme, ...] = SCHEMES,
        codebook: int = 16,
        window: int = 2,
        superblock: int = 128,
    ) -> None:
        self.config = config = DecoderConfig(
            lanes=lanes, schemes=schemes, codebook=codebook, window=window, superblock=superblock
        )
        lanes = config.lanes
        bus = BUS_ROWS * lanes
        super().__init__(
            {
                **_stream("s_axis_command", In, tdata=COMMAND_WIDTH),
                **_stream("s_axis_codebook", In, tdata=8, tlast=1),
                **_stream("s_axis_speculation", In, tdata=bus, tlast=1),
                **_stream("s_axis_verification", In, tdata=bus, tlast=1),
                **_stream(
                    "m_axis_values",
                    Out,
                    tdata=VALUE * lanes,
                    tkeep=VALUE // 8 * lanes,
                    tlast=1,
                    tuser=1,
                ),
                "error": Out(len(ERROR_CAUSES)),
                "clear_error": In(1),
                "busy": Out(1),
            }
        )

    @classmethod
    def of(cls, config: DecoderConfig) -> DecoderTop:
        """The top of a configuration."""
        return cls(
            lanes=config.lanes,
            schemes=config.schemes,
            codebook=config.codebook,
            window=config.window,
            superblock=config.superblock,
        )

    @property
    def module_name(self) -> str:
        """Name of the Verilog module, one for each configuration."""
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
        for name in ("command", "codebook", "speculation", "verification"):
            port = getattr(decoder, name)
            m.d.comb += [
                port.valid.eq(getattr(self, f"s_axis_{name}_tvalid")),
                getattr(self, f"s_axis_{name}_tready").eq(port.ready),
            ]
        for name in ("speculation", "verification"):
            payload = getattr(decoder, name).payload
            m.d.comb += [
                payload.data.eq(getattr(self, f"s_axis_{name}_tdata")),
                payload.last.eq(getattr(self, f"s_axis_{name}_tlast")),
            ]
        self._values(m, decoder)
        return m

    def _values(self, m: Module, decoder: Decoder) -> None:
        beat = decoder.values.payload
        keep = Cat(beat.present[lane].replicate(VALUE // 8) for lane in range(self.config.lanes))
        m.d.comb += [
            self.m_axis_values_tdata.eq(beat.values),
            self.m_axis_values_tkeep.eq(keep),
            self.m_axis_values_tlast.eq(beat.last),
            self.m_axis_values_tuser.eq(beat.error),
            self.m_axis_values_tvalid.eq(decoder.values.valid),
            decoder.values.ready.eq(self.m_axis_values_tready),
        ]


def _stream(name: str, flow: type[In] | type[Out], **fields: int) -> dict[str, object]:
    back = In if flow is Out else Out
    ports: dict[str, object] = {f"{name}_{field}": flow(width) for field, width in fields.items()}
    ports[f"{name}_tvalid"] = flow(1)
    ports[f"{name}_tready"] = back(1)
    return ports


class Top(Protocol):
    """A component that is exported: it has a module name of its own."""

    @property
    def module_name(self) -> str:
        """Name of the Verilog module."""
        ...


def to_verilog(top: Top) -> str:
    """Verilog of a top and everything below it, in one text."""
    return verilog.convert(top, name=top.module_name, emit_src=False, strip_internal_attrs=True)


def to_rtlil(top: Top) -> str:
    """RTLIL of a top, for Yosys and proofs."""
    return rtlil.convert(top, name=top.module_name, emit_src=False)
