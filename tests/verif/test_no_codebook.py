"""Without unary there is no codebook: words of one are taken at any time and change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from cassandra_spec.golden.format import Format, Scheme
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.decode.top import DecoderTop
from cassandra_spec.verif.decoder.jobs import jobs_of
from cassandra_spec.verif.library.packets import region_packet
from cassandra_spec.verif.library.payloads import Payload, gaussian
from cassandra_spec.verif.library.tracing import Packets, Ready, Traced

LANES = 8


class Stray:
    """A codebook that never ends."""

    def drive(self, ctx: Any, top: Any) -> None:
        ctx.set(top.s_axis_codebook_tvalid, 1)
        ctx.set(top.s_axis_codebook_tdata, 99)

    def see(self, cycle: Mapping[str, int]) -> None:
        assert cycle["s_axis_codebook_tready"]


@pytest.mark.parametrize("scheme", ["mx", "exact"])
def test_a_codebook_is_ignored(scheme: Scheme) -> None:
    fmt = Format(scheme=scheme, beat=LANES, group=32, segment=64)
    values = gaussian(np.random.default_rng(5), 60)
    (job,) = jobs_of(Payload(name="weights", format=fmt, values=values), [True])
    segment = job.request.segment
    packets = Packets(
        command=[{"tdata": job.request.word}],
        speculation=region_packet(segment.speculation.tobytes(), LANES),
        verification=region_packet(segment.verification.tobytes(), LANES),
    )
    top = DecoderTop(DecoderConfig(lanes=LANES, schemes=(scheme,)))
    trace = Traced(top).run([packets, Stray(), Ready("m_axis_values_tready")], 120)
    beats = [cycle for cycle in trace if cycle["m_axis_values_tvalid"]]
    assert [beat["m_axis_values_tlast"] for beat in beats] == [0] * (len(beats) - 1) + [1]
    data = b"".join(beat["m_axis_values_tdata"].to_bytes(2 * LANES, "little") for beat in beats)
    assert (np.frombuffer(data, "<u2")[: values.size] == job.expected).all()
    assert not trace[-1]["error"]
