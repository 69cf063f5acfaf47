"""A server whose replies depend on the request alone, with faults that a test asks for.

``python fake_server.py PORT [FAULT ...]``; faults: ``wrong`` (each third reply of some requests has
another end), ``drafts`` (another text for every greedy reply), ``lost`` (a request seems to run for
ever), ``broken`` (streams end early).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULTS = set(sys.argv[2:])
SLOTS = 3
running = [0]
asked = [0]
lock = threading.Lock()
room = threading.Semaphore(SLOTS - ("lost" in FAULTS))


def words(body: dict[str, Any]) -> list[str]:
    """Return the reply to a request, word by word."""
    names = ("messages", "temperature", "seed", "max_tokens")
    text = json.dumps([body.get(name) for name in names])
    digest = hashlib.sha256(text.encode()).hexdigest()
    found = [digest[at : at + 4] + " " for at in range(0, 60, 4)][: body["max_tokens"]]
    with lock:
        asked[0] += 1
        wrong = "wrong" in FAULTS and asked[0] % 3 == 0
    if wrong or ("drafts" in FAULTS and not body["temperature"]):
        found[-1] = "wrong"
    return found


class Server(ThreadingHTTPServer):
    """A server with room for the clients of a test."""

    request_queue_size = 64


class Handler(BaseHTTPRequestHandler):
    """Answers as OpenAI's interface does."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        """Answer the paths of a server's state."""
        if self.path == "/v1/models":
            self._send(json.dumps({"data": [{"id": "fake"}]}).encode())
        elif self.path == "/metrics":
            lines = [
                f"num_requests_running {running[0]}.0",
                "num_requests_waiting 0.0",
                f"spec_decode_num_draft_tokens_total {3 * asked[0]}.0",
                f"spec_decode_num_accepted_tokens_total {2 * asked[0]}.0",
                'request_success_total{finished_reason="error"} 0.0',
            ]
            self._send("\n".join(["# HELP x y", *lines]).encode())
        else:
            self._send(b"{}")

    def do_POST(self) -> None:
        """Answer a chat completion, whole or as a stream."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            self.send_error(404)
            return
        with room, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            with lock:
                running[0] += 1
            try:
                self._reply(body)
            finally:
                with lock:
                    running[0] -= 1

    def _reply(self, body: dict[str, Any]) -> None:
        found, count = words(body), body.get("n", 1)
        usage = {"completion_tokens": len(found) * count, "prompt_tokens": 5}
        if not body["stream"]:
            time.sleep(0.002 * len(found))
            choices = [
                {
                    "index": at,
                    "message": {"content": "".join(found)},
                    "logprobs": None,
                    "finish_reason": "stop",
                }
                for at in range(count)
            ]
            self._send(json.dumps({"choices": choices, "usage": usage}).encode())
            return
        self.send_response(200)
        self.end_headers()
        for word in found:
            for at in range(count):
                delta = {"index": at, "delta": {"content": word}, "finish_reason": None}
                self._event({"choices": [delta]})
            time.sleep(0.002 if len(found) < 15 else 0.05)
        if "broken" in FAULTS:
            return
        ends = [{"index": at, "delta": {}, "finish_reason": "stop"} for at in range(count)]
        self._event({"choices": ends})
        self._event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, body: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(body).encode() + b"\n\n")
        self.wfile.flush()

    def _send(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
