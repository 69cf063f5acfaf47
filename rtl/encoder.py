"""The encoder (paper, Figure 8b): turns values and commands into regions and results."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cassandra_spec.rtl.common.command import VALUE
from cassandra_spec.rtl.common.superblock_reader import BUS_ROWS
from cassandra_spec.rtl.common.wires import axi_channel, handshake, values_in
from cassandra_spec.rtl.encode.front import EncoderFront
from cassandra_spec.rtl.encode.regions import EncodeResult, EncoderRegions, region_ports
from cassandra_spec.rtl.encode.types import ENCODE_COMMAND_WIDTH, EncoderConfig

RESULT_WIDTH = -(-EncodeResult().size // 8) * 8
"""Width of a result on the bus: :func:`cassandra_spec.rtl.encode.regions.EncodeResult`, padded with
zeros to whole bytes."""

_INPUTS = ("command", "codebook", "values")


class Encoder(wiring.Component):
    """Encoder: front end and back end.

    Latency, throughput and buffering: see :class:`cassandra_spec.rtl.encode.front.EncoderFront` and
    :class:`cassandra_spec.rtl.encode.regions.EncoderRegions`. Illegal input sets a bit of
    ``errors`` in the segment's result (docs/hardware/encoder.md); the next segment is encoded as
    usual.

    Members
    -------
    command : In(stream of EncodeCommandLayout)
        One per segment, after the codebook that it needs.
    codebook : In(stream of {exponent: 8, last: 1})
        A packet replaces the codebook; taken before a waiting command, when no segment is in the
        front end.
    values : In(stream of TensorWord)
        One packet per segment.
    speculation, verification : Out(stream of RegionWord)
        One packet per region with rows.
    results : Out(stream of EncodeResult)
        One per segment, in order.
    busy : Out(1)
        A segment is in flight.
    """

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config
        self.front = EncoderFront(config)
        self.regions = EncoderRegions(config)
        inputs = {name: self.front.signature.members[name] for name in _INPUTS}
        super().__init__({**inputs, **region_ports(config)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.front = front = self.front
        m.submodules.regions = regions = self.regions
        for name in _INPUTS:
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(front, name))
        wiring.connect(m, front.records, regions.records)
        for name in ("speculation", "verification", "results"):
            wiring.connect(m, getattr(regions, name), wiring.flipped(getattr(self, name)))
        m.d.comb += self.busy.eq(front.busy | regions.busy)
        return m


class EncoderTop(wiring.Component):
    """:class:`Encoder` with AXI4-Stream ports; adds no logic of its own.

    ``tkeep`` of the values has two bits per value, which must be equal. They are checked in the
    last word of a packet only.
    """

    def __init__(self, config: EncoderConfig) -> None:
        self.config = config
        lanes = config.lanes
        region = {"data": BUS_ROWS * lanes, "last": 1}
        value = {"data": VALUE * config.pace, "keep": VALUE // 8 * config.pace, "last": 1}
        super().__init__(
            {
                **axi_channel("s_axis_command_t", In, data=ENCODE_COMMAND_WIDTH),
                **axi_channel("s_axis_codebook_t", In, data=8, last=1),
                **axi_channel("s_axis_values_t", In, **value),
                **axi_channel("m_axis_speculation_t", Out, **region),
                **axi_channel("m_axis_verification_t", Out, **region),
                **axi_channel("m_axis_result_t", Out, data=RESULT_WIDTH),
                "busy": Out(1),
            }
        )

    @property
    def module_name(self) -> str:
        """Name of the Verilog module, unique per configuration."""
        return self.config.module_name

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.encoder = encoder = Encoder(self.config)
        m.d.comb += [
            encoder.command.payload.eq(self.s_axis_command_tdata),
            encoder.codebook.payload.exponent.eq(self.s_axis_codebook_tdata),
            encoder.codebook.payload.last.eq(self.s_axis_codebook_tlast),
            self.m_axis_result_tdata.eq(encoder.results.payload),
            self.busy.eq(encoder.busy),
        ]
        handshake(m, self, "s_axis_command_t", encoder.command)
        handshake(m, self, "s_axis_codebook_t", encoder.codebook)
        handshake(m, self, "m_axis_result_t", encoder.results)
        values_in(m, self, encoder.values)
        for name in ("speculation", "verification"):
            port = getattr(encoder, name)
            handshake(m, self, f"m_axis_{name}_t", port)
            m.d.comb += [
                getattr(self, f"m_axis_{name}_tdata").eq(port.payload.data),
                getattr(self, f"m_axis_{name}_tlast").eq(port.payload.last),
            ]
        return m
