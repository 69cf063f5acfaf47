"""Chromium without a window, driven over its pipe for debuggers."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import pytest

_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


class Tab:
    """A page of the browser."""

    def __init__(self, orders: BinaryIO, answers: BinaryIO) -> None:
        self._orders, self._answers, self._rest = orders, answers, b""
        self._numbers, self._session = itertools.count(), dict[str, str]()
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Return an order of the DevTools protocol, and its result."""
        number = next(self._numbers)
        order = {"id": number, "method": method, "params": params, **self._session}
        self._orders.write(json.dumps(order).encode() + b"\0")
        while (answer := self._receive()).get("id") != number:
            pass
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = self._answers.read(1 << 16)
            assert more, "the browser has ended"
            self._rest += more
        answer, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(answer))

    def open(self, address: str, *, dark: bool = False) -> None:
        """Go to a page in light or dark."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, code: str) -> Any:
        """Return the value of JavaScript code."""
        found = self.send("Runtime.evaluate", expression=code, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, code: str, seconds: float = 300) -> None:
        """Wait until JavaScript code comes to something true."""
        end = time.monotonic() + seconds
        while not self.value(code):
            assert time.monotonic() < end, code
            time.sleep(0.05)

    def press(self, key: str, *, control: bool = False) -> None:
        """Press a key."""
        code, text = {"Enter": (13, "\r"), "Tab": (9, ""), "a": (65, "a")}[key]
        fields = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 2 * control}
        for kind, typed in (("keyDown", "" if control else text), ("keyUp", "")):
            self.send("Input.dispatchKeyEvent", type=kind, text=typed, **fields)

    def names(self) -> set[tuple[str, str]]:
        """Return roles and names, as assistive technology has them."""
        nodes = self.send("Accessibility.getFullAXTree")["nodes"]
        kept = (node for node in nodes if not node["ignored"] and "name" in node)
        return {(node["role"]["value"], node["name"]["value"]) for node in kept}


@contextmanager
def browser() -> Iterator[Tab]:
    """Yield a tab of a browser of its own; the test is skipped where Chromium is absent."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not there: apt install chromium")
    (theirs, orders), (answers, gives) = os.pipe(), os.pipe()
    high = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (theirs, gives)]  # 3 and 4 are free
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        redirect = f'exec "$@" 3<&{high[0]} 4>&{high[1]}'
        flags = (*_FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}")
        process = subprocess.Popen(
            ["bash", "-c", redirect, "bash", program, *flags],
            pass_fds=high,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for each in (theirs, gives, *high):
            os.close(each)
        with os.fdopen(orders, "wb", 0) as to, os.fdopen(answers, "rb", 0) as back:
            try:
                yield Tab(to, back)
            finally:
                process.terminate()
                process.wait()
