"""What a reading from outside found: each case once lost, repeated or held up a message."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from delivery.delivering import given_up, opener_of
from tickwheel.delivery import Answer, BadRecord, DeliveryQueue, Message, WrongUsage
from tickwheel.delivery.sinks import Sink

PAST_MS = 1_000_000_000_000


def run(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


CLOSED = """
import os, sys
from pathlib import Path
from tickwheel.delivery import DeliveryQueue
os.close(1)
with DeliveryQueue(sys.argv[1], to=lambda delivery: None) as queue:
    queue.put("a", due=4_000_000_000_000)
    assert os.readlink("/proc/self/fd/1") == "/dev/null", os.readlink("/proc/self/fd/1")
"""


def test_a_closed_standard_output_does_not_lead_into_the_store__D5(tmp_path: Path) -> None:
    done = run(CLOSED, str(tmp_path / "s.db"))
    assert done.returncode == 0, done.stderr


def test_to_write_to_a_closed_standard_output_is_wrong_usage__D10(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text('{"id": "a", "due": 1000000000000}\n')
    command = f'"{sys.executable}" -m tickwheel.cli deliver in.ndjson --store s.db --to - >&-'
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "standard output is closed" in done.stderr


def test_to_read_from_a_closed_standard_input_is_wrong_usage__D11(tmp_path: Path) -> None:
    command = f'"{sys.executable}" -m tickwheel.cli deliver - <&-'
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "standard input is closed: open it, or name files" in " ".join(done.stderr.split())


FORKS = """
import os, sys, time
from tickwheel.delivery import DeliveryQueue
calls = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
parent = os.getpid()

def take(delivery):
    os.write(calls, f"{delivery.message.id}\\n".encode())
    if delivery.message.id == "150" and os.getpid() == parent:
        child = os.fork()
        if child:
            os.waitpid(child, 0)

with DeliveryQueue(sys.argv[1], to=take) as queue:
    queue.put_many([(str(n), 1_000_000_000_000, None) for n in range(500)])
    assert queue.wait_until_empty(30)
"""


def test_a_function_that_forks_delivers_nothing_in_the_child__D5(tmp_path: Path) -> None:
    done = run(FORKS, str(tmp_path / "s.db"), str(tmp_path / "calls"))
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sorted(calls, key=int) == [str(n) for n in range(500)]


@pytest.mark.parametrize("answer", [{99: "bad"}, {0: ValueError}, {0: True}, {0: float("nan")}])
def test_what_is_no_verdict_does_not_count_as_delivered__D6(tmp_path: Path, answer: Any) -> None:
    class Says(Sink):
        def send(self, deliveries: Any) -> Any:
            return answer

    assert "send returned" in given_up(tmp_path, opener_of(Says()), Message("a", None, 1, b"1"))["a"]


def test_a_second_close_waits_for_the_first__D13(tmp_path: Path) -> None:
    may_go = threading.Event()
    began = threading.Event()

    def take(_: object) -> None:
        began.set()
        may_go.wait(30)

    queue = DeliveryQueue(tmp_path / "s.db", to=take)
    queue.put("a", due=PAST_MS)
    assert began.wait(30)
    first, second = (threading.Thread(target=queue.close) for _ in range(2))
    first.start()
    second.start()
    second.join(0.2)
    assert second.is_alive()
    may_go.set()
    first.join(30)
    second.join(30)
    DeliveryQueue(tmp_path / "s.db", to=take).close()
    assert queue.summary.delivered == 1


def test_on_dead_letter_that_exits_ends_nothing__D15(tmp_path: Path) -> None:
    told = threading.Event()

    def on_dead_letter(_: object) -> None:
        told.set()
        raise SystemExit(3)

    def refuse(_: object) -> None:
        raise ValueError("no")

    with DeliveryQueue(tmp_path / "s.db", to=refuse, max_attempts=1, on_dead_letter=on_dead_letter) as queue:
        queue.put("a", due=PAST_MS)
        assert told.wait(30)
        assert queue.put("b", due=4_000_000_000_000) is Answer.ACCEPTED


@pytest.mark.parametrize(
    ("suffix", "begun", "rest", "expected"),
    [
        (
            ".ndjson",
            '{"id": "a", "due": 1000000000000}\n{"id": "b", "due": 1000000000000, "pay',
            'load": 1}\n',
            "delivered 1 duplicates 0 cancelled 0 dead letters 0",
        ),
        (
            ".csv",
            "id,due,payload\na,1000000000000,1\nb,1000000000000,va",
            "lue\n",
            "delivered 0 duplicates 0 cancelled 0 dead letters 1",
        ),
    ],
)
def test_a_line_that_was_not_finished_is_read_again_once_it_is__D2_D11(
    tmp_path: Path, suffix: str, begun: str, rest: str, expected: str
) -> None:
    path = tmp_path / f"in{suffix}"
    path.write_text(begun)
    command = [sys.executable, "-m", "tickwheel.cli", "deliver", path.name, "--store", "s.db", "--to", "file:out"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    path.write_text(begun + rest)
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    delivered = (tmp_path / "out").read_text()
    assert expected in " ".join(again.stderr.split()), again.stderr
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert (tmp_path / "out").read_text() == delivered


def test_a_long_name_is_refused_and_ends_nothing__D12(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "s.db", to=lambda delivery: None) as queue:
        for name, key in (("x" * 1_048_577, None), ("a", "x" * 1_048_577)):
            with pytest.raises(BadRecord, match=r"has 1,048,577 bytes .allowed: .*: at most 1,048,576 bytes"):
                queue.put(name, due=PAST_MS, key=key)
        [bad] = queue.submit_ndjson(b'{"id": "%s", "due": 1000000000000}' % (b"x" * 1_048_577)).result(10)
        assert "has 1,048,577 bytes" in str(bad)
        assert queue.put("x" * 1_048_576, due=PAST_MS) is Answer.ACCEPTED


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_file_beside_an_open_store_is_no_destination__D9(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(WrongUsage, match="is the store of a queue in this process"):
        DeliveryQueue(tmp_path / "s.db", to=f"file:{tmp_path / 's.db'}{suffix}")


def test_a_callback_of_an_answer_is_told_that_it_can_not_wait_for_another__D11(tmp_path: Path) -> None:
    raised: list[BaseException] = []
    is_over = threading.Event()

    def put_another(_: object) -> None:
        for call in (lambda: queue.put("b", due=PAST_MS), lambda: queue.state("a"), lambda: queue.cancel("a")):
            try:
                call()
            except RuntimeError as error:
                raised.append(error)
        is_over.set()

    with DeliveryQueue(tmp_path / "s.db", to=lambda delivery: None) as queue:
        queue.submit_ndjson(b'{"id": "a", "due": 1000000000000}').add_done_callback(put_another)
        assert is_over.wait(30)
        assert len(raised) == 3
        assert "use submit and a callback, or another thread" in str(raised[0])
        assert queue.put("c", due=PAST_MS) is Answer.ACCEPTED


@pytest.mark.parametrize("payload", [bytearray(b"\x01\xff"), memoryview(b"\x01\xff")])
def test_bytes_of_every_kind_arrive_as_bytes__D1(tmp_path: Path, payload: Any) -> None:
    arrived: list[Any] = []
    with DeliveryQueue(tmp_path / "s.db", to=lambda delivery: arrived.append(delivery.message.payload)) as queue:
        queue.put("a", payload, due=PAST_MS)
        assert queue.wait_until_empty(30)
    assert arrived == [b"\x01\xff"]


@pytest.mark.parametrize("store", [["--store", "s.db"], []])
def test_sigterm_stops_as_ctrl_c_does__D13(tmp_path: Path, store: list[str]) -> None:
    (tmp_path / "in.ndjson").write_text('{"id": "a", "due": 4000000000000}\n{"id": "now", "due": 1000000000000}\n')
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-m", "tickwheel.cli", "deliver", "in.ndjson", *store, "--summary", "sum.json"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
    ) as process:
        assert process.stdout is not None
        assert '"now"' in process.stdout.readline()
        process.terminate()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert (tmp_path / "sum.json").exists()
    assert list((tmp_path / "tmp").iterdir()) == []
