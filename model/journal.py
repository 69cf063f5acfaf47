"""A journal: what a long piece of work has done so far, so that an interrupt costs little."""

from __future__ import annotations

import json
import os
import re
import zlib
from pathlib import Path
from typing import Any

from cassandra_spec.model.output import write_file

_BEGUN = re.compile(rb"[0-9a-f]{0,8}(\Z| )")  # beginning of an incomplete line


class Journal:
    """JSON objects in a file, a line each behind its CRC-32; ``lines`` has them.

    The last line is cut off if it was being written when the machine stopped. Raises ValueError if
    the file is damaged otherwise.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lines = self._read() if path.exists() else []

    def add(self, body: dict[str, Any]) -> None:
        """Add a line; when this returns it is on the disk."""
        with self._path.open("ab") as file:
            file.write(seal(body))
            file.flush()
            os.fsync(file.fileno())
        self.lines.append(body)

    def _read(self) -> list[dict[str, Any]]:
        text = self._path.read_bytes()
        if b"\0" in text:
            raise ValueError("blocks were not written")
        end = text.rfind(b"\n") + 1
        lines = [open_sealed(line) for line in text[:end].splitlines()]
        if not _BEGUN.match(text[end:]):
            raise ValueError("a line has no checksum")
        if end != len(text):
            write_file(self._path, text[:end])
        return lines


def seal(body: object) -> bytes:
    """Format a line of JSON behind its CRC-32."""
    text = json.dumps(body).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def open_sealed(line: bytes) -> dict[str, Any]:
    """Parse a line of :func:`seal`; raises ValueError if it is damaged."""
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        raise ValueError("a checksum is wrong")
    return dict(json.loads(text))
