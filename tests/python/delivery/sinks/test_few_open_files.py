"""A process that may open few files: webhooks that hang take at most a third of them."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)

TIME_OUT_S = 60
DELIVERER = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, 1_024))
from tickwheel.delivery import DeliveryQueue, Message
queue = DeliveryQueue(sys.argv[1], to=sys.argv[2], sink_timeout_s={TIME_OUT_S})
for name, count in (("bad", 300), ("good", 100)):
    queue.put_many([Message(f"{{name}} {{it}}", f"{{name}} {{it}}", 1_700_000_000_000, b"1") for it in range(count)])
    print(queue._running.engine.measures().spare_places[1], flush=True)
    sys.stdin.readline()
os._exit(0)
"""


class Hanging(ThreadingHTTPServer):
    """Answers no bad customer before the end."""

    daemon_threads = True
    request_queue_size = 1_024

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.ended = threading.Event()
        self.came: list[str] = []

    def count(self, kind: str) -> int:
        return sum(it.startswith(kind) for it in self.came)


class Answer(BaseHTTPRequestHandler):
    server: Hanging

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.came.append(message["id"])
        if message["id"].startswith("bad"):
            self.server.ended.wait(2 * TIME_OUT_S)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def wait_for(holds: Callable[[], bool]) -> None:
    """The limit is shorter than the time-out, so no call was cut off meanwhile."""
    end = time.monotonic() + TIME_OUT_S / 2
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_300_webhooks_that_hang_delay_no_healthy_one_with_1024_open_files__D6(tmp_path: Path) -> None:
    with Hanging() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [
            sys.executable,
            "-c",
            DELIVERER,
            str(tmp_path / "store.db"),
            f"http://127.0.0.1:{server.server_port}/",
        ]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as deliverer:
            assert deliverer.stdin is not None
            assert deliverer.stdout is not None
            try:
                assert deliverer.stdout.readline() == f"{1_024 // 3}\n"
                wait_for(lambda: server.count("bad") == 300)
                deliverer.stdin.write("\n")
                deliverer.stdin.flush()
                wait_for(lambda: server.count("good") == 100)
            finally:
                server.ended.set()
                deliverer.kill()
        server.shutdown()
    assert len(server.came) == 400
