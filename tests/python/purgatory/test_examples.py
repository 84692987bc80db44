"""The examples of the purgatory run to their end, and what they tell is what the rules say."""

import asyncio
import http.client
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tickwheel import DelayedOperationPurgatory

EXAMPLES = Path(__file__).parents[3] / "examples"
NOTHING = "watched 0, num_delayed 0, len(purgatory) 0"


def run(name: str, *arguments: str) -> list[str]:
    """What it prints, line by line, once it has ended well and without a warning."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert max(map(len, lines)) <= 60
    return lines


@pytest.fixture(scope="module")
def produced() -> list[str]:
    return run("acks_all.py")


@pytest.fixture(scope="module")
def polled() -> list[str]:
    return run("long_poll.py")


def number(pattern: str, lines: list[str]) -> int:
    [found] = [match for line in lines if (match := re.fullmatch(pattern, line))]
    return int(found[1])


# --- acks=all ----------------------------------------------------------------


def test_a_produce_request_waits_for_all_three_replicas__P3(produced: list[str]) -> None:
    assert produced[1:6] == [f"  offset {n}: written, 3 of 3 replicas" for n in range(5)]


def test_with_one_replica_dead_it_times_out_and_not_early__P1(produced: list[str]) -> None:
    assert "broker-3 dies" in produced[6]
    assert number(r"  offset 5: timed out, 2 of 3 replicas, after (\d+) ms", produced[8:9]) >= 500


def test_it_is_watched_until_then__P2(produced: list[str]) -> None:
    assert produced[7] == "  meanwhile: watched 1, num_delayed 1, len(purgatory) 1"


def test_it_leaves_nothing_behind_and_the_record_where_it_is__P5(produced: list[str]) -> None:
    assert produced[9] == f"  left behind: {NOTHING}"
    assert produced[10].startswith("  log end 6, high watermark 5")


def test_the_next_one_completes_when_the_replica_is_back__P3(produced: list[str]) -> None:
    assert "broker-3 is back" in produced[11]
    assert produced[12:] == ["  offset 6: written, 3 of 3 replicas", f"  left behind: {NOTHING}"]


# --- Long polls --------------------------------------------------------------


def test_a_thousand_long_polls_are_answered_or_get_204__P8(polled: list[str]) -> None:
    assert polled[0] == "1000 clients are connected, and ask"
    news, late = number(r"got news: (\d+)", polled), number(r"got 204: (\d+), .*", polled)
    assert news + late == 1000
    assert late >= 100, "no message ever comes on one topic of ten"


def test_a_message_answers_all_who_wait_for_its_topic__P3(polled: list[str]) -> None:
    answered = [int(line.split()[1]) for line in polled if line.endswith("answered at once")]
    assert len(answered) == 9
    # Who asks only after the message is answered too, and not counted by it.
    assert 0 < sum(answered) <= number(r"got news: (\d+)", polled)


def test_no_long_poll_gives_up_early__T5(polled: list[str]) -> None:
    assert number(r"got 204: \d+, of them early: (\d+)", polled) == 0


def test_the_long_polls_leave_nothing_behind__P5(polled: list[str]) -> None:
    assert polled[-1] == f"left behind: {NOTHING}"


def test_it_says_so_where_a_process_may_not_open_so_many_files() -> None:
    # A process of its own, as the hard limit is never raised again.
    program = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256));"
    program += " sys.argv = ['long_poll.py', '1000']; runpy.run_path(sys.orig_argv[-1], run_name='__main__')"
    command = [sys.executable, "-c", program, str(EXAMPLES / "long_poll.py")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "long_poll.py: 1000 clients need 2050 open files, the hard limit is 256: start fewer\n"


@pytest.fixture(scope="module")
def long_poll() -> ModuleType:
    spec = importlib.util.spec_from_file_location("long_poll_example", EXAMPLES / "long_poll.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def get(client: http.client.HTTPConnection, path: str) -> tuple[int, bytes, bool]:
    client.request("GET", path, headers={"Prefer": "wait=0"})
    response = client.getresponse()
    return response.status, response.read(), client.sock is not None


def test_its_server_speaks_http_with_a_client_that_is_not_its_own__P8(long_poll: ModuleType) -> None:
    def talk(port: int) -> list[tuple[int, bytes, bool]]:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        paths = ["/poll/arts?after=1", "/poll/arts?after=0", "/poll/none?after=0", "/poll/arts?after=-1", "/"]
        answers = [get(client, path) for path in paths]
        client.close()
        return answers

    async def serve() -> list[tuple[int, bytes, bool]]:
        with DelayedOperationPurgatory("polls") as purgatory:
            server = long_poll.Server(purgatory)
            server.publish("arts", "a painting")
            async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
                return await asyncio.to_thread(talk, listening.sockets[0].getsockname()[1])

    assert asyncio.run(serve()) == [
        (204, b"", True),
        (200, b'["a painting"]', True),
        (404, b"", False),
        (400, b"", False),
        (400, b"", False),
    ]
