"""The read master with a slow memory, beside the closed form of the guide."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.golden.errors import CassandraError
from cassandra_spec.lab.gateware import read_latency
from cassandra_spec.rtl.common.command import DecoderConfig
from cassandra_spec.rtl.dma.config import DmaConfig
from cassandra_spec.verif.dma.reading import read

BURST = 128  # bytes


@pytest.mark.parametrize(("outstanding", "latency"), [(1, 1), (1, 30), (2, 30), (4, 30), (8, 30)])
def test_the_words_come_when_the_closed_form_says(outstanding: int, latency: int) -> None:
    config = DmaConfig(burst=BURST, buffer=BURST * outstanding)
    long, groups = config.longest, 3
    reading = read(config, latency=latency, words=groups * outstanding * long)
    period = max(outstanding * long, latency + long + 4)  # of as many bursts as are outstanding
    assert reading.first == latency + 7
    assert reading.last == reading.first + (groups - 1) * period + outstanding * long - 1
    assert reading.share == pytest.approx(outstanding * long / period)


def test_tables_and_plot_are_of_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document, plot = tmp_path / "page.md", tmp_path / "plot.svg"
    names = ("read-share", "read-latency")
    document.write_text("\n".join(f"<!-- {name} -->\n\n<!-- /{name} -->" for name in names))
    flags = ["--latencies", "4", "40", "--outstanding", "1", "2", "--bursts", "128"]
    flags += ["--bytes", "512", "--document", str(document), "--plot", str(plot)]
    assert read_latency.main(flags) == 0
    assert capsys.readouterr().out == ""
    one = read(DmaConfig(burst=BURST, buffer=BURST), latency=40, words=32)
    text = document.read_text()
    assert f"| {one.share:.0%} |" in text
    assert f"| {one.first}, {one.last:,} |" in text
    assert "2 outstanding" in plot.read_text()


def test_what_says_nothing_of_the_read_master_is_refused() -> None:
    config = DmaConfig(decoder=DecoderConfig(lanes=8), bus=16)
    with pytest.raises(CassandraError, match="bus must be 8 bytes, not 16"):
        read(config, latency=1, words=8)
    with pytest.raises(CassandraError, match="words must be more than 128 in the buffer, not 128"):
        read(DmaConfig(), latency=1, words=128)
