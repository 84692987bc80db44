"""A sink that is a coroutine function: many calls at a time, order per key, cut-offs, errors, loops that hang."""

import asyncio
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from delivery.loops import LONG_S, loop_kind, run, until  # noqa: F401, a fixture
from tickwheel.delivery import (
    AsyncDeliveryQueue,
    Delivery,
    DeliveryFailed,
    DeliveryQueue,
    Letter,
    Message,
    StoreView,
    Unanswered,
    Unavailable,
)
from tickwheel.delivery.queue.queue import _CLOSE_WITHIN_S

pytestmark = pytest.mark.timeout(60)
OVERDUE_MS = 1_700_000_000_000


def overdue(count: int, key: str | None = None) -> list[Message]:
    return [Message(str(number), key, OVERDUE_MS, b"1") for number in range(count)]


def wait_for(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def reasons(folder: Path, function: Callable[[Delivery], Awaitable[object]], *ids: str) -> dict[str, str]:
    """Delivers these by one attempt each, on a loop in a thread, and returns why some were given up."""
    letters: list[Letter] = []
    queue = DeliveryQueue(folder / "store.db", to=function, max_attempts=1, on_dead_letter=letters.append)
    with queue:
        queue.put_many([Message(id_, None, OVERDUE_MS, b"1") for id_ in ids])
        assert queue.wait_until_empty(LONG_S)
    gave_up = "gave up after 1 attempt: "
    return {msgspec.json.decode(it.record)["id"]: it.reason.removeprefix(gave_up) for it in letters}


# --- Where it runs, and how many at a time --------------------------------------


def test_it_runs_on_the_loop_of_the_queue_also_by_its_name__D10(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loop_kind: str,  # noqa: F811
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    module = f"mail_on_{loop_kind}"
    (tmp_path / f"{module}.py").write_text(
        "import asyncio\nloops = []\nasync def send(d):\n    loops.append(asyncio.get_running_loop())\n"
    )

    async def main() -> list[asyncio.AbstractEventLoop]:
        loops: list[asyncio.AbstractEventLoop] = []

        async def send(_: Delivery) -> None:
            loops.append(asyncio.get_running_loop())

        for to in (send, f"python:{module}:send"):
            async with AsyncDeliveryQueue(tmp_path / f"{len(loops)}.db", to=to) as queue:
                await queue.put("a", delay_ms=0)
                await until(lambda queue=queue: len(queue) == 0)  # type: ignore[misc]
        assert set(loops + sys.modules[module].loops) == {asyncio.get_running_loop()}
        return loops + sys.modules[module].loops

    assert len(run(main(), loop_kind)) == 2


def test_with_the_queue_that_blocks_it_runs_on_a_loop_in_a_thread_that_ends_with_it__D10(tmp_path: Path) -> None:
    threads = set()

    async def send(_: Delivery) -> None:
        await asyncio.sleep(0)
        threads.add(threading.current_thread())

    assert reasons(tmp_path, send, "a", "b") == {}
    [thread] = threads
    assert (thread.name, thread.daemon) == ("coroutines-deliver", True)
    thread.join(LONG_S)
    assert not thread.is_alive()


@pytest.mark.parametrize(("concurrency", "most"), [(None, 256), (1, 1), (3, 3), (1000, 600)])
def test_so_many_calls_are_in_flight_as_concurrency_says__D18(
    tmp_path: Path, concurrency: int | None, most: int
) -> None:
    async def main() -> None:
        running, highest, goes_on = 0, 0, asyncio.Event()

        async def send(_: Delivery) -> None:
            nonlocal running, highest
            running += 1
            highest = max(highest, running)
            await goes_on.wait()
            running -= 1

        async with AsyncDeliveryQueue(tmp_path / "store.db", to=send, concurrency=concurrency) as queue:
            await queue.put_many(overdue(600))
            await until(lambda: running == most)
            await asyncio.sleep(0.02)
            assert highest == most
            goes_on.set()
            await until(lambda: len(queue) == 0)
        assert highest == most

    run(main())


def test_the_messages_of_a_key_are_called_one_after_another_in_order__D4(
    tmp_path: Path,
    loop_kind: str,  # noqa: F811
) -> None:
    async def main() -> None:
        order: defaultdict[str | None, list[str]] = defaultdict(list)
        running: set[str | None] = set()
        failed: set[str] = set()

        async def send(delivery: Delivery) -> None:
            message = delivery.message
            assert message.key not in running
            running.add(message.key)
            await asyncio.sleep(0.001 * (int(message.id) % 3))
            running.remove(message.key)
            if message.id == "5" and delivery.attempt == 1:
                failed.add(str(message.key))
                raise ValueError("not now")
            order[message.key].append(message.id)

        async with AsyncDeliveryQueue(tmp_path / "store.db", to=send, backoff_s=(0.001, 0.01)) as queue:
            await queue.put_many([message for key in "abcdefgh" for message in overdue(20, key)])
            await until(lambda: len(queue) == 0)
        assert failed == set("abcdefgh")
        assert order == {key: [str(number) for number in range(20)] for key in "abcdefgh"}

    run(main(), loop_kind)


# --- What it raises and returns ---------------------------------------------------


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no such customer"), "ValueError: no such customer"),
        (DeliveryFailed("all is over"), "DeliveryFailed: all is over"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (asyncio.CancelledError(), "CancelledError"),
    ],
)
def test_nothing_it_raises_in_its_own_thread_ends_the_loop_or_the_run__D6(
    tmp_path: Path, error: BaseException, reason: str
) -> None:
    async def send(delivery: Delivery) -> None:
        await asyncio.sleep(0)
        if delivery.message.id == "a":
            raise error

    assert reasons(tmp_path, send, "a", "b", "c") == {"a": reason}


def test_a_task_that_is_cancelled_has_no_answer_and_is_tried_again__D6(tmp_path: Path) -> None:
    async def send(delivery: Delivery) -> None:
        if delivery.message.id == "a" and delivery.attempt == 1:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        await asyncio.sleep(0)

    assert reasons(tmp_path, send, "a", "b") == {}


def test_a_call_of_which_the_loop_makes_no_task_has_no_answer_and_the_others_are_made__D6(tmp_path: Path) -> None:
    async def main() -> None:
        failures = [RuntimeError("no task")]
        arrived: list[tuple[str, int]] = []

        def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
            if failures and coroutine.__name__ == "_call":
                raise failures.pop()
            return asyncio.Task(coroutine, loop=loop, **more)

        async def send(delivery: Delivery) -> None:
            arrived.append((delivery.message.id, delivery.attempt))

        asyncio.get_running_loop().set_task_factory(make)
        async with AsyncDeliveryQueue(
            tmp_path / "store.db", to=send, max_attempts=1, backoff_s=(0.01, 0.01), sink_timeout_s=2 * LONG_S
        ) as queue:
            await queue.put_many(overdue(20))
            await until(lambda: len(queue) == 0)
        assert len(arrived) == 20
        assert sum(attempt > 1 for _, attempt in arrived) == 1, "the others are not tried in vain"

    run(main())


@pytest.mark.parametrize(
    "error", [Unavailable("closed for lunch", retry_after_s=0.05), ConnectionRefusedError("nobody")]
)
def test_what_says_that_nothing_can_be_told_is_down_in_the_end_and_no_dead_letter__D6(
    tmp_path: Path, error: Exception
) -> None:
    async def main() -> None:
        is_down = True
        attempts: list[int] = []

        async def send(delivery: Delivery) -> None:
            if is_down:
                raise error
            attempts.append(delivery.attempt)

        async with AsyncDeliveryQueue(tmp_path / "store.db", to=send, max_attempts=1, backoff_s=(0.05, 0.1)) as queue:
            await queue.put_many(overdue(20))
            assert queue._queue is not None
            await until(lambda: queue._queue._running.engine.down is not None)  # type: ignore[union-attr]
            is_down = False
            await until(lambda: len(queue) == 0)
        assert len(attempts) == 20
        assert min(attempts) > 1

    run(main())


@pytest.mark.parametrize("error", [TimeoutError("too slow"), Unanswered("TimeoutError: too slow")])
def test_five_messages_without_an_answer_are_down__D6(tmp_path: Path, error: Exception) -> None:
    async def send(_: Delivery) -> None:
        raise error

    with DeliveryQueue(tmp_path / "store.db", to=send) as queue:
        queue.put_many(overdue(20))
        wait_for(lambda: queue._running.engine.down == "TimeoutError: too slow")
    assert len(StoreView(tmp_path / "store.db").list().messages) == 20


def test_a_system_exit_on_the_loop_of_a_program_is_the_programs_and_a_failed_attempt__D6(tmp_path: Path) -> None:
    program = """if True:
        import asyncio, sys
        from tickwheel.delivery import AsyncDeliveryQueue

        async def send(delivery):
            raise SystemExit(7)

        async def main():
            async with AsyncDeliveryQueue(sys.argv[1], to=send, max_attempts=1) as queue:
                await queue.put("a", delay_ms=0)
                await asyncio.Event().wait()

        asyncio.run(main())
    """
    command = [sys.executable, "-W", "error", "-c", program, str(tmp_path / "store.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)
    assert done.returncode == 7, done.stderr
    assert "Traceback" not in done.stderr
    [letter] = StoreView(tmp_path / "store.db").dead().letters
    assert letter.reason == "gave up after 1 attempt: SystemExit: 7"


async def coroutine(_: Delivery) -> None: ...


async def generator(_: Delivery) -> Any:
    yield 1


@pytest.mark.parametrize("inner", [coroutine, generator])
def test_what_was_not_awaited_is_a_failed_attempt_and_not_a_lost_message__D10(
    tmp_path: Path, inner: Callable[[Delivery], object]
) -> None:
    async def send(delivery: Delivery) -> object:
        return inner(delivery)

    assert "which is never run: await it" in reasons(tmp_path, send, "a")["a"]


# --- What takes too long ------------------------------------------------------------


def test_a_call_that_takes_too_long_is_cancelled_and_tried_again__D6(tmp_path: Path, loop_kind: str) -> None:  # noqa: F811
    async def main() -> None:
        cancelled: list[str] = []
        arrived: list[tuple[str, int, bool]] = []

        async def send(delivery: Delivery) -> None:
            if delivery.attempt == 1 and delivery.message.id == "a":
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.append(delivery.message.id)
                    raise
            arrived.append((delivery.message.id, delivery.attempt, delivery.redelivered))

        options = {"sink_timeout_s": 0.1, "backoff_s": (0.001, 0.01), "concurrency": 1}
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=send, **options) as queue:  # type: ignore[arg-type]
            await queue.put("a", delay_ms=0)
            await queue.put("b", delay_ms=0)
            await until(lambda: len(queue) == 0)
        assert cancelled == ["a"]
        assert sorted(arrived) == [("a", 2, True), ("b", 1, False)]

    run(main(), loop_kind)


def test_a_task_that_goes_on_after_its_end_keeps_its_place_until_it_has_ended__D6(tmp_path: Path) -> None:
    async def main() -> None:
        started: list[str] = []
        may_end = asyncio.Event()

        async def stubborn(delivery: Delivery) -> None:
            started.append(delivery.message.id)
            while not may_end.is_set():
                try:
                    await may_end.wait()
                except asyncio.CancelledError:
                    started.append("cancelled")

        options = {"sink_timeout_s": 0.05, "concurrency": 1, "max_attempts": 1, "on_dead_letter": lambda _: None}
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=stubborn, **options) as queue:  # type: ignore[arg-type]
            await queue.put("a", delay_ms=0)
            await until(lambda: started == ["a", "cancelled"])
            await queue.put("b", delay_ms=0)
            await asyncio.sleep(0.05)
            assert started == ["a", "cancelled"]
            may_end.set()
            await until(lambda: started == ["a", "cancelled", "b"])
            await until(lambda: len(queue) == 0)

    run(main())


def test_a_loop_that_hangs_is_cut_off_and_the_queue_goes_on_and_closes__D6(tmp_path: Path) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    async def send(_: Delivery) -> None:
        if not goes_on.is_set():
            hangs.set()
            goes_on.wait(LONG_S)

    with DeliveryQueue(tmp_path / "store.db", to=send, sink_timeout_s=0.1, backoff_s=(0.01, 0.01)) as queue:
        queue.put_many(overdue(300))  # more than there are places
        assert hangs.wait(LONG_S)
        wait_for(lambda: queue._running.engine.down is not None)
        assert queue.put("later", delay_ms=3_600_000) == "accepted"
        goes_on.set()
        wait_for(lambda: len(queue) == 1)
    assert queue.summary.delivered == 300


def test_a_queue_closes_while_its_loop_hangs_and_keeps_what_was_not_delivered__D6_D13(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tickwheel.delivery.queue.queue._CLOSE_WITHIN_S", 0.2)
    hangs, goes_on = threading.Event(), threading.Event()

    async def send(_: Delivery) -> None:
        hangs.set()
        goes_on.wait(LONG_S)

    queue = DeliveryQueue(tmp_path / "store.db", to=send)
    queue.put_many(overdue(5))
    assert hangs.wait(LONG_S)
    began = time.monotonic()
    queue.close()
    assert time.monotonic() - began < 10
    goes_on.set()
    assert len(StoreView(tmp_path / "store.db").list().messages) == 5
    wait_for(lambda: not [it for it in threading.enumerate() if it.name == "coroutines-deliver"])


@pytest.mark.parametrize("kind", ["swallows its cancel", "blocks its thread"])
def test_a_close_waits_for_no_call_that_was_cut_off__D6_D13(tmp_path: Path, kind: str) -> None:
    cut_off, may_end = threading.Event(), threading.Event()

    async def send(_: Delivery) -> None:
        if kind == "blocks its thread":
            cut_off.set()
            may_end.wait(LONG_S)
        while not may_end.is_set():
            try:
                await asyncio.sleep(3_600 if not cut_off.is_set() else 0.01)
            except asyncio.CancelledError:
                cut_off.set()

    queue = DeliveryQueue(tmp_path / "store.db", to=send, concurrency=1, sink_timeout_s=0.2)
    queue.put_many(overdue(3))  # two wait for the place
    assert cut_off.wait(LONG_S)
    began = time.monotonic()
    queue.close()
    assert time.monotonic() - began < _CLOSE_WITHIN_S / 2
    may_end.set()
    assert len(StoreView(tmp_path / "store.db").list().messages) == 3


@pytest.mark.parametrize("kind", ["swallows its cancel", "blocks its thread"])
def test_a_close_of_the_async_queue_waits_for_no_call_that_was_cut_off__D6_D13(tmp_path: Path, kind: str) -> None:
    may_end, closed = threading.Event(), threading.Event()
    took_s: list[float] = []

    def watch() -> None:
        wait_for(lambda: any(it.name == "closes-delivery" for it in threading.enumerate()))
        began = time.monotonic()
        while any(it.name == "closes-delivery" for it in threading.enumerate()):
            time.sleep(0.01)
        took_s.append(time.monotonic() - began)
        may_end.set()

    async def main() -> None:
        closes = asyncio.Event()

        async def send(_: Delivery) -> None:
            await closes.wait()
            if kind == "blocks its thread":
                may_end.wait(LONG_S)
            while not may_end.is_set():
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    continue

        queue = AsyncDeliveryQueue(tmp_path / "store.db", to=send, concurrency=1, sink_timeout_s=0.2)
        async with queue:
            await queue.put_many(overdue(3))  # two wait for the place
            watcher = threading.Thread(target=watch)
            watcher.start()
            closing = asyncio.create_task(queue.close())
            await until(lambda: any(it.name == "closes-delivery" for it in threading.enumerate()))
            closes.set()
            await closing
            await until(lambda: not watcher.is_alive())
        closed.set()

    run(main())
    assert closed.is_set()
    assert took_s[0] < _CLOSE_WITHIN_S / 2


def test_what_is_in_flight_when_a_close_gives_up_is_cancelled__D6_D13(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tickwheel.delivery.queue.queue._CLOSE_WITHIN_S", 0.1)
    cancelled: list[str] = []

    async def main() -> None:
        async def send(delivery: Delivery) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(delivery.message.id)
                raise

        async with AsyncDeliveryQueue(tmp_path / "store.db", to=send) as queue:
            await queue.put_many(overdue(3))
            await asyncio.sleep(0.05)
        await until(lambda: len(cancelled) == 3)

    run(main())
    assert len(StoreView(tmp_path / "store.db").list().messages) == 3


# --- The command, and the end of a process ------------------------------------------


def test_the_command_takes_a_coroutine_function__D10_D11(tmp_path: Path) -> None:
    (tmp_path / "mail.py").write_text(
        "import asyncio\nasync def send(delivery):\n    await asyncio.sleep(0.01)\n    print(delivery.message.id)\n"
    )
    lines = "".join(f'{{"id": "{number}", "due": {OVERDUE_MS}}}\n' for number in range(20))
    (tmp_path / "in.ndjson").write_text(lines)
    command = [sys.executable, "-m", "tickwheel", "deliver", "in.ndjson", "--to", "python:mail:send"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(map(int, done.stdout.split())) == [*range(20)]


HANGS = """if True:
    import asyncio, sys, threading, time
    from tickwheel.delivery import DeliveryQueue

    async def send(delivery):
        started.set()
        {what}

    started = threading.Event()
    queue = DeliveryQueue(sys.argv[1], to=send)
    queue.put("a", delay_ms=0)
    print(started.wait(20))
"""


@pytest.mark.parametrize("what", ["await asyncio.sleep(3600)", "time.sleep(3600)"], ids=["waits", "hangs"])
def test_a_call_that_does_not_end_keeps_no_process_alive__D13(tmp_path: Path, what: str) -> None:
    command = [sys.executable, "-W", "error", "-c", HANGS.format(what=what), str(tmp_path / "store.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert [it.id for it in StoreView(tmp_path / "store.db").list().messages] == ["a"]


FORKS = """if True:
    import asyncio, os, sys
    from tickwheel.delivery import AsyncDeliveryQueue

    async def main():
        delivered = []

        async def send(delivery):
            if delivery.message.id == "0":
                children.append(os.fork())
            delivered.append(delivery.message.id)

        children = []
        async with AsyncDeliveryQueue(sys.argv[1], to=send) as queue:
            for number in range(50):
                await queue.put(str(number), delay_ms=0)
                await asyncio.sleep(0.02)
            while len(queue):
                await asyncio.sleep(0.01)
        _, status = await asyncio.to_thread(os.waitpid, children[0], 0)
        print(status, sorted(map(int, delivered)) == [*range(50)], queue.summary.delivered)

    asyncio.run(main())
"""


def test_a_child_that_is_forked_in_a_call_leaves_the_loop_to_its_parent__rule7(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKS, str(tmp_path / "store.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=False)
    assert (done.returncode, done.stdout) == (0, "0 True 50\n"), done.stderr
