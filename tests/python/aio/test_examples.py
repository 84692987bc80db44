"""The examples for event loops run to their end, and do what they say (T20, T21)."""

import importlib.util
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)
EXAMPLES = Path(__file__).parents[3] / "examples"


def run(name: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


def test_connections_that_are_silent_are_closed_and_no_others__T21() -> None:
    assert run("idle_connections.py", "300") == [
        "300 connections",
        "1500 messages, as many time-outs reset; now 150 connections are silent",
        "150 were closed, none before 2 s, and 150 are open",
    ]


def test_a_websocket_that_does_not_answer_is_closed__T20_T21() -> None:
    pytest.importorskip("websockets")
    assert run("websocket_keep_alive.py") == [
        "the one that was cut off is gone",
        "the good one said 'hello'",
        "the good one is gone",
    ]


def test_a_long_poll_is_answered_by_news_and_by_its_deadline__P3() -> None:
    pytest.importorskip("fastapi")
    uvicorn = pytest.importorskip("uvicorn")
    spec = importlib.util.spec_from_file_location("long_poll_fastapi", EXAMPLES / "long_poll_fastapi.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    server = uvicorn.Server(uvicorn.Config(module.app, host="127.0.0.1", port=0, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
    port = server.servers[0].sockets[0].getsockname()[1]
    topic = f"http://127.0.0.1:{port}/topics/tea"

    def get(query: str) -> tuple[int, bytes]:
        with urllib.request.urlopen(f"{topic}?{query}", timeout=60) as answer:
            return answer.status, answer.read()

    def publish(text: str) -> bytes:
        request = urllib.request.Request(topic, text.encode(), {"Content-Type": "text/plain"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())

    found: list[tuple[int, bytes]] = []
    waiting = [threading.Thread(target=lambda: found.append(get("wait_s=60"))) for _ in range(5)]
    for one in waiting:
        one.start()
    while module.purgatory.watched < 5:
        assert thread.is_alive()
    assert publish("it is ready") == b'{"answered":5}'
    for one in waiting:
        one.join()
    assert found == [(200, b'["it is ready"]')] * 5
    assert get("after=1&wait_s=0.05") == (204, b"")
    assert get("after=0&wait_s=60")[1] == b'["it is ready"]', "at once"
    server.should_exit = True
    thread.join(30)
    assert not thread.is_alive()
