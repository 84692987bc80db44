"""Functions as destinations that messages name, beside webhooks (D23)."""

import asyncio
import gc
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from delivery.webhook_receiver import Receiver
from tickwheel.delivery import AsyncDeliveryQueue, Delivery, DeliveryQueue
from tickwheel.delivery.base.errors import Unavailable, WrongUsage
from tickwheel.delivery.model.entries import Answer

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def tried() -> Iterator[threading.Event]:
    """Set when the log tells of a first attempt that failed."""
    event = threading.Event()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "failed for the first time" in record.getMessage():
                event.set()

    logger, handler = logging.getLogger("tickwheel.delivery"), Handler()
    logger.addHandler(handler)
    yield event
    logger.removeHandler(handler)


def test_each_function_gets_its_own_messages_and_webhooks_theirs__D23(tmp_path: Path, receiver: Receiver) -> None:
    got: Queue[tuple[str, str]] = Queue()

    async def text(delivery: Delivery) -> None:
        await asyncio.sleep(0)
        got.put(("sms", delivery.message.id))

    handlers = {"email": lambda delivery: got.put(("email", delivery.message.id)), "sms": text}
    with DeliveryQueue(tmp_path / "s.db", handlers=handlers, allow_addresses=["127.0.0.1"]) as queue:
        queue.set_destination("hook", receiver.url)
        for name in ("email", "sms", "hook"):
            queue.put(f"to {name}", 1, delay_ms=0, destination=name)
        assert queue.wait_until_empty(30)
    assert sorted(got.queue) == [("email", "to email"), ("sms", "to sms")]
    assert len(receiver.requests) == 1


def test_a_message_that_names_none_goes_to_the_function_or_webhook_of_the_queue__D23(
    tmp_path: Path, receiver: Receiver
) -> None:
    got: list[str] = []
    handlers = {"email": lambda _: None}
    with DeliveryQueue(tmp_path / "s.db", lambda it: got.append(it.message.id), handlers=handlers) as queue:
        queue.put("a", 1, delay_ms=0)
        assert queue.wait_until_empty(30)
    with DeliveryQueue(tmp_path / "t.db", receiver.url, handlers=handlers) as queue:
        queue.put("b", 1, delay_ms=0)
        assert queue.wait_until_empty(30)
    assert got == ["a"]
    assert len(receiver.requests) == 1


def test_one_that_hangs_holds_up_no_other_and_is_not_called_again_beside_itself__D23(tmp_path: Path) -> None:
    hangs, got = threading.Event(), threading.Event()
    calls = []

    def hang(delivery: Delivery) -> None:
        calls.append(delivery.message.id)
        hangs.wait()

    handlers = {"slow": hang, "quick": lambda _: got.set()}
    with DeliveryQueue(tmp_path / "s.db", handlers=handlers) as queue:
        for number in range(100):
            queue.put(f"s{number}", 1, delay_ms=0, destination="slow")
        queue.put("q", 1, delay_ms=0, destination="quick")
        assert got.wait(30)
        assert len(calls) <= 72
        hangs.set()
        assert queue.wait_until_empty(30)
    assert sorted(calls) == sorted(f"s{number}" for number in range(100))


def test_a_function_that_this_process_lacks_keeps_its_messages__D23(tmp_path: Path, tried: threading.Event) -> None:
    store, got = tmp_path / "s.db", Queue[str]()
    with DeliveryQueue(store, handlers={"email": lambda _: None}) as queue:
        assert queue.set_destination("email", rate="1000/s") is Answer.REPLACED
    for id_, handlers in (("a", {"sms": lambda _: None}), ("b", None)):
        tried.clear()
        with DeliveryQueue(store, handlers=handlers, max_attempts=1, backoff_s=(0.05, 0.05)) as queue:
            queue.put(id_, 1, delay_ms=0, destination="email")
            assert tried.wait(30)
            assert queue.state(id_) in (Answer.WAITING, Answer.DELIVERING)
            assert queue.summary.undeliverable == 0
    with DeliveryQueue(store, handlers={"email": lambda it: got.put(it.message.id)}) as queue:
        assert {got.get(timeout=30), got.get(timeout=30)} == {"a", "b"}
        assert (found := queue.view.destination("email")) is not None
        assert (found.rate, found.settings["function"]) == ("1000/s", True)


def test_errors_mean_the_same_as_in_a_function_of_the_queue__D6_D23(tmp_path: Path) -> None:
    class Away(Exception):
        pass

    tries: Queue[str] = Queue()

    def fail(delivery: Delivery) -> None:
        tries.put("fail")
        if tries.qsize() == 1:
            raise Away
        if tries.qsize() == 2:
            raise Unavailable("not yet")
        raise ValueError("no such number")

    options: Any = {"unavailable": Away, "max_attempts": 1, "backoff_s": (0.01, 0.01)}
    letters: Queue[Any] = Queue()
    with DeliveryQueue(tmp_path / "s.db", handlers={"sms": fail}, on_dead_letter=letters.put, **options) as queue:
        queue.put("a", 1, delay_ms=0, destination="sms")
        letter = letters.get(timeout=30)
    assert "no such number" in letter.reason
    assert tries.qsize() == 3


def test_on_a_loop_coroutines_run_there__D23(tmp_path: Path) -> None:
    async def main() -> None:
        got: asyncio.Queue[Any] = asyncio.Queue()

        async def text(_: Delivery) -> None:
            await got.put(asyncio.get_running_loop())

        async with AsyncDeliveryQueue(tmp_path / "s.db", handlers={"sms": text}) as queue:
            await queue.put("a", 1, delay_ms=0, destination="sms")
            assert await asyncio.wait_for(got.get(), 30) is asyncio.get_running_loop()

    asyncio.run(main())


def test_what_is_no_function_is_refused__D23(tmp_path: Path) -> None:
    class NotThere:
        pass

    for handlers, to, said in (
        ([1], None, "handlers is"),
        ({"a": 1}, None, "can't be called"),
        ({"a": print}, "file:x", "beside handlers it may be"),
        ({"a": print}, NotThere, "beside handlers it may be"),
    ):
        with pytest.raises(WrongUsage, match=said):
            DeliveryQueue(tmp_path / "s.db", to, handlers=handlers)  # type: ignore[arg-type]
    with DeliveryQueue(tmp_path / "s.db", handlers={"a": print}) as queue:
        with pytest.raises(WrongUsage, match="has no url"):
            queue.set_destination("b")
        with pytest.raises(WrongUsage, match="no headers"):
            queue.set_destination("a", headers={"X": "y"})
        for change in (lambda: queue.set_destination("a", "https://h.example/"), lambda: queue.remove_destination("a")):
            with pytest.raises(WrongUsage, match="is a function of handlers="):
                change()
        queue.set_destination("hook", "https://h.example/")
    with pytest.raises(WrongUsage, match="is a webhook in this store"):
        DeliveryQueue(tmp_path / "s.db", handlers={"hook": print})


def test_a_child_that_a_function_forks_ends_with_the_call__D10_D23(tmp_path: Path) -> None:
    ended: list[int] = []

    def fork(_: Delivery) -> None:
        if child := os.fork():
            ended.append(os.waitpid(child, 0)[1])

    with DeliveryQueue(tmp_path / "s.db", handlers={"fork": fork}) as queue:
        queue.put("a", 1, delay_ms=0, destination="fork")
        assert queue.wait_until_empty(30)
    assert ended == [0]


def test_threads_of_functions_are_used_again_and_end_with_the_queue__D23(tmp_path: Path) -> None:
    threads: set[threading.Thread] = set()
    with DeliveryQueue(tmp_path / "s.db", handlers={"a": lambda _: threads.add(threading.current_thread())}) as queue:
        for number in range(500):
            queue.put(f"{number}", 1, key="key", delay_ms=0, destination="a")
        assert queue.wait_until_empty(30)
    assert len(threads) < 5, "one call at a time needs no more, but for a thread that is not yet idle"
    del queue
    gc.collect()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_a_function_can_not_close_its_queue__D10_D23(tmp_path: Path) -> None:
    said: list[str] = []

    def close(_: Delivery) -> None:
        try:
            queue.close()
        except RuntimeError as error:
            said.append(str(error))

    with DeliveryQueue(tmp_path / "s.db", handlers={"close": close}) as queue:
        queue.put("a", 1, delay_ms=0, destination="close")
        assert queue.wait_until_empty(30)
    assert len(said) == 1
    assert "own threads" in said[0]
