"""A journal has what was added, whatever the machine was doing when it stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassandra_spec.model.journal import Journal

LINES: list[dict[str, object]] = [{"name": "a", "n": 1}, {"text": "two\nlines"}, {}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    journal = Journal(tmp_path / "journal")
    for line in LINES:
        journal.add(line)
    assert journal.lines == LINES
    return tmp_path / "journal"


def test_lines_come_back_and_others_follow(path: Path) -> None:
    journal = Journal(path)
    assert journal.lines == LINES
    journal.add({"more": 1})
    assert Journal(path).lines == [*LINES, {"more": 1}]


def test_a_line_that_was_being_written_is_cut_off(path: Path) -> None:
    whole = path.read_bytes()
    start = whole[:-1].rfind(b"\n") + 1
    for length in range(start, len(whole)):
        path.write_bytes(whole[:length])
        assert Journal(path).lines == LINES[:2]
        assert path.read_bytes() == whole[:start]


@pytest.mark.parametrize("place", [0, 12, 30])
@pytest.mark.parametrize("mask", [1, 0xFF])
def test_a_changed_line_is_found(path: Path, place: int, mask: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= mask
    path.write_bytes(data)
    with pytest.raises(ValueError, match="checksum is wrong"):
        Journal(path)


def test_another_file_is_not_cut(tmp_path: Path) -> None:
    for text in (b"not a journal", b'{"a": 1}', b"one line\nand another"):
        (tmp_path / "notes").write_bytes(text)
        with pytest.raises(ValueError, match="checksum"):
            Journal(tmp_path / "notes")
        assert (tmp_path / "notes").read_bytes() == text


def test_blocks_that_were_not_written_are_found(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(512))
    with pytest.raises(ValueError, match="blocks were not written"):
        Journal(path)
