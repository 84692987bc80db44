"""The examples of delivery run to their end, and do what they say (D7, D11)."""

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from delivery.loops import LONG_S

pytestmark = pytest.mark.timeout(120)
EXAMPLES = Path(__file__).parents[3] / "examples"


class Server:
    """The app in a process of its own, which uvicorn serves."""

    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self.process, self.url = process, url

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=LONG_S) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.loads(refused.read())

    def wait_for(self, path: str, is_it: Callable[[Any], bool]) -> Any:
        end = time.monotonic() + LONG_S
        while not is_it(answer := self.ask("GET", path)[1]):
            assert time.monotonic() < end
            time.sleep(0.01)
        return answer


@contextmanager
def served(store: Path) -> Iterator[Server]:
    """From a socket that is bound before, so that the address is known."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        arguments = ["--app-dir", str(EXAMPLES), "--fd", str(listening.fileno()), "--log-level", "error"]
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", *arguments, "reminders_fastapi:app"],
            env={**os.environ, "REMINDERS": str(store)},
            pass_fds=[listening.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield Server(process, f"http://127.0.0.1:{listening.getsockname()[1]}")
        finally:
            process.kill()
            process.communicate()


def stopped(server: Server) -> tuple[str, str]:
    server.process.send_signal(signal.SIGINT)
    return server.process.communicate(timeout=60)


@pytest.mark.skipif(importlib.util.find_spec("fastapi") is None, reason="fastapi is not installed")
def test_reminders_are_set_cancelled_shown_and_come_out_also_after_a_restart__D7_D11(tmp_path: Path) -> None:
    store = tmp_path / "reminders.db"
    with served(store) as server:
        assert server.ask("PUT", "/reminders/tea", {"text": "ready", "after_s": 3600}) == (200, {"answer": "accepted"})
        assert server.ask("PUT", "/reminders/tea", {"text": "done", "after_s": 0.05}) == (200, {"answer": "replaced"})
        assert server.wait_for("/delivered", lambda told: told != []) == ["tea"]
        assert server.ask("GET", "/reminders/tea")[1]["state"] == "delivered"
        assert server.ask("GET", "/reminders/cake") == (404, {"detail": "there is no reminder cake"})
        assert server.ask("PUT", "/reminders/cake", {"text": "out", "after_s": 3600}) == (200, {"answer": "accepted"})
        assert server.ask("DELETE", "/reminders/cake") == (200, {"answer": "cancelled"})
        assert server.ask("PUT", "/reminders/soup", {"text": "hot", "after_s": -1})[0] == 422
        assert server.ask("PUT", "/reminders/soup", {"text": "hot", "after_s": 1.5}) == (200, {"answer": "accepted"})
        due = server.ask("GET", "/reminders/soup")[1]
        assert due["state"] == "waiting"
        assert re.fullmatch(r"20\d\d-.*Z", due["due"])
        out, err = stopped(server)
        assert (out, err) == ("tea: done\n", "")
    with served(store) as server:
        server.wait_for("/reminders/soup", lambda found: found["state"] == "delivered")
        assert stopped(server) == ("soup: hot\n", "")
