"""Timing diagrams: traced from the gateware, true to the rules, drawn from their sources."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cassandra_spec.synth.interface import registers
from cassandra_spec.verif.decoder import diagrams
from cassandra_spec.verif.decoder.diagrams import DIAGRAMS, FOLDER
from cassandra_spec.verif.library.streams import HandshakeChecker
from cassandra_spec.verif.library.waves import Channel, Diagram

ALL = {diagram.name: diagram for diagram in DIAGRAMS}


def spread(wave: str) -> list[str]:
    """Return a wave with its dots replaced by what they repeat."""
    marks: list[str] = []
    for mark in wave:
        marks.append(marks[-1] if mark == "." else mark)
    return marks


def lines(text: str) -> dict[str, dict[str, Any]]:
    return {line["name"]: line for line in json.loads(text)["signal"] if line}


def transfers(line: dict[str, Any]) -> list[str | None]:
    """Return the label of a bus in each cycle."""
    labels, held, found = iter(line["data"]), None, list[str | None]()
    for mark in line["wave"]:
        if mark != ".":
            held = None if mark == "x" else next(labels)
        found.append(held)
    return found


def check_channel(channel: Channel, signals: dict[str, dict[str, Any]]) -> int:
    """Hold a channel of a diagram to the rules; returns its transfers."""
    valid, ready = (spread(signals[name]["wave"]) for name in (channel.valid, channel.ready))
    data = transfers(signals[channel.data])
    bits = [spread(signals[name]["wave"]) for name in channel.bits]
    checker, moved = HandshakeChecker(channel.data), 0
    for cycle, (offered, taken) in enumerate(zip(valid, ready, strict=True)):
        payload = {"data": data[cycle], **{str(i): bit[cycle] for i, bit in enumerate(bits)}}
        assert (offered == "1") == (data[cycle] is not None)
        assert "x" not in payload.values() or offered == "0"
        checker.cycle(offered == "1", taken == "1", payload)  # type: ignore[arg-type]
        moved += offered == taken == "1"
    return moved


@pytest.mark.parametrize("diagram", ALL.values(), ids=ALL)
def test_a_diagram_keeps_the_rules_and_shows_transfers(diagram: Diagram) -> None:
    signals = lines((FOLDER / f"{diagram.name}.json").read_text())
    for line in signals.values():
        assert len(line["wave"]) == diagram.cycles
    assert all(check_channel(channel, signals) for channel in diagram.channels)


def test_the_gateware_does_what_the_diagrams_show(tmp_path: Path) -> None:
    """If it does something else by now, `make figures` draws that."""
    assert diagrams.main(["--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in FOLDER.iterdir()}
    for drawn in tmp_path.iterdir():
        assert drawn.read_text() == (FOLDER / drawn.name).read_text(), drawn.name


@pytest.mark.parametrize("main", [diagrams.main, registers.main])
def test_a_place_that_cannot_be_written_is_one_line(
    main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", "/dev/null/x"]) == 2
    err = capsys.readouterr().err
    assert err.endswith(": error: /dev/null/x: Not a directory\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", ALL)
def test_a_picture_names_its_signals_and_transfers(name: str) -> None:
    source = json.loads((FOLDER / f"{name}.json").read_text())
    space = "{http://www.w3.org/2000/svg}"
    root = ET.parse(FOLDER / f"{name}.svg").getroot()
    assert root.findtext(f"{space}title") == ALL[name].title
    signals = [signal for signal in source["signal"] if signal]
    labels = [label for signal in signals for label in signal.get("data", ())]
    wanted = [ALL[name].title, ALL[name].note, *(signal["name"] for signal in signals), *labels]
    assert sorted(text.text or "" for text in root.iter(f"{space}text")) == sorted(wanted)


def test_words_wait_for_the_memory_in_the_diagram_of_writes() -> None:
    """A write burst is shown with a word that is not taken at once, and its response."""
    signals = lines((FOLDER / "axi_write.json").read_text())
    valid, ready = (spread(signals[f"m_axi_w{name}"]["wave"]) for name in ("valid", "ready"))
    assert ("1", "0") in zip(valid, ready, strict=True)
    assert "1" in signals["m_axi_bvalid"]["wave"]


def test_nothing_else_is_in_the_folder() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(ALL)


def small(valid: str, ready: str, data: str) -> int:
    channel = Channel(valid="v", ready="r", data="d", label="")
    signals: dict[str, dict[str, Any]] = {
        "v": {"wave": valid},
        "r": {"wave": ready},
        "d": {"wave": data, "data": ["a", "b"]},
    }
    return check_channel(channel, signals)


def test_a_small_diagram_is_right() -> None:
    assert small("0110", "0010", "x3.x") == 1


@pytest.mark.parametrize(
    ("valid", "ready", "data"),
    [("0100", "0000", "x3xx"), ("0110", "1011", "x34x"), ("0110", "0010", "x3x.")],
)
def test_a_diagram_that_breaks_a_rule_is_found(valid: str, ready: str, data: str) -> None:
    with pytest.raises(AssertionError):
        small(valid, ready, data)
