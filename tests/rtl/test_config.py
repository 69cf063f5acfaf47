"""Configurations of the decoder: checked at once, and described where users look."""

import re
from pathlib import Path

import pytest

from cassandra_spec.golden import CassandraError, Format
from cassandra_spec.golden.format import (
    COMMAND_FIELDS,
    ENCODE_COMMAND_FIELDS,
    ENCODE_ERROR_CAUSES,
    ERROR_CAUSES,
)
from cassandra_spec.rtl.common.command import COMMAND_WIDTH, CommandLayout, DecoderConfig
from cassandra_spec.rtl.decode.exponent_path import queue_entries
from cassandra_spec.rtl.dma.config import IN_FLIGHT, LENGTH_BITS, DmaConfig, StoreConfig
from cassandra_spec.rtl.dma.store import entry_layout
from cassandra_spec.rtl.encode.regions import EncodeResult
from cassandra_spec.rtl.encode.types import ENCODE_COMMAND_WIDTH, EncodeCommandLayout, EncoderConfig
from cassandra_spec.rtl.zero_counter import ParallelZeroCounter, ZeroCounter

DOCUMENT = Path(__file__).parents[2] / "docs/hardware/decoder.md"
ENCODER = DOCUMENT.with_name("encoder.md")
DMA = DOCUMENT.with_name("dma.md")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lanes": 12}, "beat must be 8 or 16 or 32, not 12"),
        ({"codebook": 64}, "codebook must be 16 or 32, not 64"),
        ({"window": 5}, "window must be an integer from 1 to 4, not 5"),
        ({"superblock": 100}, "superblock must be a multiple of 128"),
        ({"schemes": ()}, r"schemes must be distinct names of unary, mx, exact, not \(\)"),
        ({"schemes": ("huffman",)}, r"schemes must be distinct names .* not \('huffman',\)"),
        ({"schemes": ("mx", "mx")}, "schemes must be distinct names"),
        ({"target_rate": "third"}, "target_rate must be half or full, not 'third'"),
        ({"schemes": ("mx",), "coded": True}, "coded must be False or, with scheme unary, True"),
        ({"coded": 1}, "coded must be False or, with scheme unary, True, not 1"),
        ({"coded": True, "target_rate": "full"}, "coded must be False at full rate, not True"),
        ({"truncated": (5, 4)}, r"truncated must be two integers from 0 to 7, .* not \(5, 4\)"),
        ({"truncated": (0, 8)}, r"truncated must be two integers .* not \(0, 8\)"),
        ({"truncated": (0, True)}, r"truncated must be two integers .* not \(0, True\)"),
        ({"truncated": 4}, "truncated must be two integers .* not 4"),
    ],
)
def test_bad_configurations_name_field_value_and_expectation(fields, message):
    with pytest.raises(CassandraError, match=message):
        DecoderConfig(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lead": 3}, "lead must be 1 or 2 for the gateware, not 3"),
        (
            {"lead": 2, "pruned_exponent": "coded"},
            "coded must be False at full rate, not True",
        ),
    ],
)
def test_formats_that_the_gateware_does_not_decode_are_named(fields, message):
    with pytest.raises(CassandraError, match=message):
        DecoderConfig.of(Format(**fields))


def test_decoder_of_a_format_takes_its_parameters():
    fmt = Format(scheme="exact", beat=32, group=64, window=3, codebook=32, superblock=256)
    config = DecoderConfig.of(fmt)
    assert config == DecoderConfig(
        lanes=32, schemes=("exact",), codebook=32, window=3, superblock=256
    )
    assert DecoderConfig.of(Format(pruned_exponent="coded")).coded


def test_the_lead_of_a_format_asks_for_a_rate():
    for lead, rate, rows in ((1, "half", 8), (2, "full", 16)):
        config = DecoderConfig.of(Format(lead=lead))
        assert (config.target_rate, config.lead, config.verification_rows) == (rate, lead, rows)


def test_each_configuration_has_a_name_of_its_own():
    configs = [
        DecoderConfig(
            lanes=lanes,
            schemes=schemes,
            codebook=codebook,
            window=w,
            superblock=s,
            target_rate=r,
            coded=c,
            truncated=t,
        )
        for lanes in (8, 16, 32)
        for schemes in (("unary",), ("mx", "exact"), ("unary", "mx", "exact"))
        for codebook in (16, 32)
        for w in (1, 2)
        for s in (128, 256)
        for r in ("half", "full")
        for c in {False, "unary" in schemes and r == "half"}
        for t in ((0, 7), (4, 7), (4, 4))
    ]
    assert len({config.module_name for config in configs}) == len(configs)


def test_command_word_fits_the_bus():
    assert CommandLayout.size == sum(field.width for field in COMMAND_FIELDS) <= COMMAND_WIDTH


def test_command_word_of_the_encoder_fits_the_bus():
    width = sum(field.width for field in ENCODE_COMMAND_FIELDS)
    assert EncodeCommandLayout.size == width <= ENCODE_COMMAND_WIDTH


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lanes": 12}, "beat must be 8 or 16 or 32, not 12"),
        ({"schemes": ()}, "schemes must be distinct names"),
        ({"vector": 96}, r"vector must be a power of two from 16 \(lanes\) to 256, not 96"),
        ({"lanes": 32, "group": 16}, r"group must be a power of two from 32 \(lanes\) to 256"),
        ({"group": 512}, "group must be a power of two from 16 .* not 512"),
        ({"values_per_cycle": 2}, "values_per_cycle must be 4, 8, 16 or None at 16 lanes, not 2"),
        ({"values_per_cycle": 32}, "values_per_cycle must be 4, 8, 16 or None at 16 lanes"),
    ],
)
def test_bad_configurations_of_the_encoder_are_named(fields, message):
    with pytest.raises(CassandraError, match=message):
        EncoderConfig(**fields)


def test_as_many_values_in_a_cycle_as_lanes_is_the_usual_encoder():
    assert EncoderConfig(values_per_cycle=16) == EncoderConfig()
    config = EncoderConfig(lanes=32, values_per_cycle=4)
    assert (config.lanes, config.pace) == (32, 4)
    assert config.module_name == "cassandra_encoder_l32_unary_mx_exact_b16_c4"


def test_encoder_of_a_format_takes_its_parameters():
    fmt = Format(scheme="exact", beat=32, group=256, window=3, codebook=32, superblock=256)
    config = EncoderConfig.of(fmt)
    assert (config.lanes, config.schemes, config.group) == (32, ("exact",), 256)
    assert config.module_name == "cassandra_encoder_l32_exact_b32_w3_s256_g256"
    with pytest.raises(CassandraError, match="lead must be 1 for the encoder, not 2"):
        EncoderConfig.of(Format(lead=2))
    with pytest.raises(CassandraError, match="pruned_exponent must be 'raw' for the encoder"):
        EncoderConfig.of(Format(pruned_exponent="coded"))


@pytest.mark.parametrize(
    ("document", "fields"), [(DOCUMENT, COMMAND_FIELDS), (ENCODER, ENCODE_COMMAND_FIELDS)]
)
def test_the_documented_command_word_is_the_one_that_is_built(document, fields):
    text = document.read_text()
    table = re.search(r"<!-- command-table -->\n(.*?)<!-- /command-table -->", text, re.DOTALL)
    assert table is not None
    rows = [row.strip("| ").split(" | ") for row in table[1].splitlines()[2:]]
    expected, low = [], 0
    for field in fields:
        high = low + field.width - 1
        bits = f"{high}:{low}" if high > low else f"{low}"
        expected.append([bits, f"`{field.name}`", field.meaning])
        low += field.width
    assert rows == expected


def test_the_documented_result_of_the_encoder_is_the_one_that_is_built():
    rows = re.search(
        r"<!-- result-table -->\n(.*?)<!-- /result-table -->", ENCODER.read_text(), re.S
    )
    assert rows is not None
    found = re.findall(r"^\| ([\d:]+) \| `(\w+)` \|", rows[1], re.MULTILINE)
    fields = {name: (field.offset, field.width) for name, field in EncodeResult()}
    spans = {name: [low + width - 1, low][width == 1 :] for name, (low, width) in fields.items()}
    assert found == [(":".join(map(str, span)), name) for name, span in spans.items()]


def test_the_documented_causes_are_those_of_the_port():
    text = DOCUMENT.read_text().replace("\n", " ")
    documented = re.findall(r"(\d) `(\w+)`", text[text.index("Error causes, by bit") :])
    assert [name for _, name in documented[: len(ERROR_CAUSES)]] == list(ERROR_CAUSES)
    assert [int(bit) for bit, _ in documented[: len(ERROR_CAUSES)]] == list(
        range(len(ERROR_CAUSES))
    )


def test_the_documented_causes_of_the_encoder_are_those_of_its_result():
    documented = re.findall(r"^\| (\d) \| `(\w+)` \|", ENCODER.read_text(), re.MULTILINE)
    expected = [(str(bit), name) for bit, name in enumerate(ENCODE_ERROR_CAUSES)]
    assert documented == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bus": 24}, "bus must be one of 8, 16, 32, 64, 128, not 24"),
        ({"bus": 8}, "bus must be at least 16 bytes, a word of a region, not 8"),
        ({"burst": 96}, "burst must be one of 128, 256, .* not 96"),
        ({"buffer": 0}, "buffer must be 256 times a power of two, at most 65536, not 0"),
        ({"buffer": -256}, "buffer must be 256 times a power of two, at most 65536, not -256"),
        ({"buffer": 128}, "buffer must be 256 times a power of two, at most 65536, not 128"),
        ({"buffer": 768}, "buffer must be 256 times a power of two, at most 65536, not 768"),
        ({"buffer": 1 << 24}, "buffer must be 256 times a power of two, .* not 16777216"),
        ({"queue": 3}, "queue must be one of 2, 4, 8, 16, 32, 64, not 3"),
        ({"books": 0}, "books must be one of 1, 2, 4, 8, 16, not 0"),
        ({"address": 36}, "address must be one of 32, 40, 48, 56, 64, not 36"),
    ],
)
@pytest.mark.parametrize("config", [DmaConfig, StoreConfig])
def test_dma_and_store_refuse_the_same(config, fields, message):
    with pytest.raises(CassandraError, match=message):
        config(**fields)


@pytest.mark.parametrize("config", [DmaConfig, StoreConfig])
def test_a_burst_has_at_most_256_bus_words(config):
    engines = {"decoder": DecoderConfig(lanes=8), "encoder": EncoderConfig(lanes=8)}
    narrow = {name: engines[name] for name in engines if hasattr(config(), name)}
    with pytest.raises(CassandraError, match="burst must be at most 2048, 256 bus words, not 4096"):
        config(**narrow, bus=8, burst=4096)
    assert config(buffer=1 << 16).depth == 1 << 12


def test_decoder_and_encoder_share_fields_and_checks():
    assert DecoderConfig(lanes=8, window=3).shared == EncoderConfig(lanes=8, window=3).shared
    for fields, message in (
        ({"window": 5}, "window must be an integer from 1 to 4, not 5"),
        ({"schemes": ("mx", "mx")}, "schemes must be distinct names"),
        ({"codebook": 64}, "codebook must be 16 or 32, not 64"),
    ):
        for config in (DecoderConfig, EncoderConfig):
            with pytest.raises(CassandraError, match=message):
                config(**fields)


@pytest.mark.parametrize("lanes", [8, 16, 32])
@pytest.mark.parametrize("window", [1, 2, 3, 4])
def test_rank_queue_holds_what_the_schedule_can_leave_in_it(lanes, window):
    worst = (lanes - 1) + window * lanes + lanes
    assert worst <= queue_entries(lanes, window) < 2 * worst


@pytest.mark.parametrize("counter", [ZeroCounter, ParallelZeroCounter])
def test_zero_counters_reject_bad_widths_and_limits(counter):
    with pytest.raises(CassandraError, match="width must be an integer of at least 1, not 0"):
        counter(0)
    with pytest.raises(CassandraError, match="limit must be an integer of at least 8, not 7"):
        counter(8, limit=7)


def test_document_of_entries_counts_what_the_store_holds():
    """The figures of the queues behind an encoder, in the order of the text."""
    text = DMA.read_text(encoding="utf-8").split("## CassandraEncoderDma", 1)[1]
    table, prose = text.split("<!-- /entries -->")[0].split("<!-- entries -->")
    config, bits = StoreConfig(), entry_layout().size
    rows = [int(number) for number in re.findall(r"^\|[^|]+\| (\d+) \|", table, re.MULTILINE)]
    assert rows == [config.queue, IN_FLIGHT, config.results]
    assert f"An entry has {bits} bits" in prose
    assert f"{bits * config.results} flip-flops for {config.results} entries" in prose
    assert f"{bits * 64:,} for 64" in prose
    assert f"A room has {LENGTH_BITS} bits, so it is below {1 << LENGTH_BITS - 20} MiB" in prose
