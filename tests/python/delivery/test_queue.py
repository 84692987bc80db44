"""`DeliveryQueue` on the engine: ways in, what a destination says, events, and the end of the process."""

import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery import Answer, Delivery, DeliveryQueue, Message, Unavailable, WrongUsage
from tickwheel.delivery.queue import queue as queue_module

pytestmark = pytest.mark.timeout(30)
LATER_MS = 4_000_000_000_000


def test_many_messages_may_be_dicts_tuples_or_messages__D11(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "store.db", to=lambda it: None) as queue:
        every = [{"id": "a", "due": LATER_MS}, ("b", LATER_MS, [1.5]), ("c", LATER_MS, b"", "k")]
        assert queue.put_many([*every, Message("d", None, LATER_MS, b"1"), every[0]]) == [
            *[Answer.ACCEPTED] * 4,
            Answer.DUPLICATE,
        ]
        assert (len(queue), queue.state("c", "k")) == (4, Answer.WAITING)
        with pytest.raises(WrongUsage, match="is no message"):
            queue.put_many([{"id": "a", "dew": 5}])


def test_while_the_destination_is_down_no_attempt_is_counted__D6(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused: list[str] = []
    arrived: list[Delivery] = []

    def told() -> list[str]:
        texts = [record.getMessage().partition(",")[0] for record in caplog.records]
        return [text for text in texts if "for the first time" not in text and "in a row" not in text]

    def send(delivery: Delivery) -> None:
        if not told():
            raise Unavailable("closed for lunch", retry_after_s=0.1)
        if len(refused) < 2:
            refused.append(delivery.message.id)
            raise ValueError("a refusal does not end it")
        arrived.append(delivery)

    keys = [f"k{number}" for number in range(5)]
    # One send at a time: a refusal that is told after another send has ended the outage counts.
    options: dict[str, Any] = {"max_attempts": 1, "backoff_s": (0.1, 0.1), "concurrency": 1}
    with (
        caplog.at_level(logging.INFO, "tickwheel.delivery"),
        DeliveryQueue(tmp_path / "store.db", to=send, **options) as queue,
    ):
        queue.put_many([Message(str(number), keys[number % 5], 5 + number, b"1") for number in range(10)])
        assert queue.wait_until_empty(20)
    assert (len(refused), queue.summary.dead_letters) == (2, 0)
    assert {key: [it.message.id for it in arrived if it.message.key == key] for key in keys} == {
        key: [str(number), str(number + 5)] for number, key in enumerate(keys)
    }
    assert all(it.attempt > 1 for it in arrived if int(it.message.id) < 5)
    assert told() == ["the destination is down: closed for lunch", "the destination is up again"]


def test_a_letter_function_that_fails_is_logged_and_ends_nothing_and_is_told_once__D15(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def send(delivery: Delivery) -> None:
        if delivery.message.id == "bad":
            raise ValueError("no")

    told: list[object] = []

    def tell(letter: object) -> None:
        told.append(letter)
        raise RuntimeError("nobody listens")

    with DeliveryQueue(tmp_path / "store.db", to=send, max_attempts=1, on_dead_letter=tell) as queue:
        queue.put_many([Message("bad", None, 5, b"1"), Message("good", None, 5, b"1")])
        assert queue.wait_until_empty(20)
        assert queue.put("later", delay_ms=0) is Answer.ACCEPTED
        assert queue.wait_until_empty(20)
    assert "on_dead_letter failed" in caplog.text
    with DeliveryQueue(tmp_path / "store.db", to=send, on_dead_letter=tell) as queue:
        assert queue.put("last", delay_ms=0) is Answer.ACCEPTED
        assert queue.wait_until_empty(20)
    assert len(told) == 1


def test_a_letter_function_that_hangs_does_not_keep_a_queue_open_and_is_told_again__D13(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "_CLOSE_WITHIN_S", 0.1)
    told, held = threading.Semaphore(0), threading.Event()

    def send(delivery: Delivery) -> None:
        raise ValueError("no")

    def tell(letter: object) -> None:
        told.release()
        held.wait(20)

    with DeliveryQueue(tmp_path / "store.db", to=send, max_attempts=1, on_dead_letter=tell) as queue:
        queue.put("bad", delay_ms=0)
        assert told.acquire(timeout=10)
    with DeliveryQueue(tmp_path / "store.db", to=send, on_dead_letter=lambda letter: told.release()):
        assert told.acquire(timeout=10)
    held.set()


@pytest.mark.parametrize("how", ["function", "coroutine function"])
def test_a_queue_can_not_be_closed_by_its_own_thread__D13(tmp_path: Path, how: str) -> None:
    said: list[str] = []
    done = threading.Event()

    def send(_: Delivery) -> None:
        try:
            queue.close()
        except RuntimeError as error:
            said.append(str(error))
        done.set()

    async def send_on_its_loop(delivery: Delivery) -> None:
        send(delivery)

    with DeliveryQueue(tmp_path / "store.db", to=send if how == "function" else send_on_its_loop) as queue:
        queue.put("a", delay_ms=0)
        assert done.wait(10)
    assert "can't be closed in one of its own threads" in said[0]


def test_a_program_that_ends_without_closing_ends_and_loses_nothing__D13(tmp_path: Path) -> None:
    script = """if True:
        import sys
        from tickwheel.delivery import DeliveryQueue
        queue = DeliveryQueue(sys.argv[1], to=lambda it: print(it.message.id, flush=True))
        queue.put("now", delay_ms=0)
        queue.put("later", due=4_000_000_000_000)
    """
    store = tmp_path / "store.db"
    done = subprocess.run([sys.executable, "-c", script, store], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (0, "now\n", "")
    with DeliveryQueue(store, to=lambda it: None) as queue:
        assert (len(queue), queue.state("now")) == (1, Answer.DELIVERED)
