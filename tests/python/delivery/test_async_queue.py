"""`AsyncDeliveryQueue`: the methods of `DeliveryQueue`, awaited; opening, closing, other loops, and forks."""

import asyncio
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from delivery.loops import LONG_S, loop_kind, run, until  # noqa: F401, a fixture
from tickwheel._native import read_records
from tickwheel.delivery import (
    Answer,
    AsyncDeliveryQueue,
    BadRecord,
    Delivery,
    DeliveryFailed,
    DeliveryQueue,
    Message,
    StoreView,
    WrongUsage,
)
from tickwheel.delivery.engine.running import Running

pytestmark = pytest.mark.timeout(60)
LATER_MS = 4_000_000_000_000
METHODS = [
    "put",
    "put_many",
    "cancel",
    "reschedule",
    "requeue",
    "again",
    "cancel_many",
    "requeue_many",
    "pause",
    "resume",
    "state",
    "close",
]


async def ignore(_: Delivery) -> None: ...


# --- The same as DeliveryQueue ------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_the_arguments_of_the_one_that_blocks__D11(name: str) -> None:
    method = getattr(AsyncDeliveryQueue, name)
    assert inspect.iscoroutinefunction(method)
    assert [*inspect.signature(method).parameters.values()] == [
        *inspect.signature(getattr(DeliveryQueue, name)).parameters.values()
    ]


def test_the_queue_takes_the_options_of_the_one_that_blocks_and_refuses_others_at_once__D11() -> None:
    mine, others = inspect.signature(AsyncDeliveryQueue), inspect.signature(DeliveryQueue)
    assert [*mine.parameters] == [*others.parameters]
    with pytest.raises(TypeError, match="retries"):
        AsyncDeliveryQueue("store.db", to=ignore, retries=5)  # type: ignore[call-arg]


def test_answers_are_those_of_the_queue_that_blocks__D7_D16(tmp_path: Path, loop_kind: str) -> None:  # noqa: F811
    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:
            assert await queue.put("a", {"x": 1}, due=LATER_MS, key="k") is Answer.ACCEPTED
            assert await queue.put("a", {"x": 1}, due=LATER_MS, key="k") is Answer.DUPLICATE
            with pytest.raises(BadRecord, match="other content"):
                await queue.put("a", {"x": 2}, due=LATER_MS, key="k")
            with pytest.raises(BadRecord, match="due is missing"):
                await queue.put("b")
            with pytest.raises(WrongUsage, match="NaN"):
                await queue.put("b", float("nan"), delay_ms=5)
            assert await queue.reschedule("a", due=LATER_MS + 1, key="k") is Answer.RESCHEDULED
            assert await queue.state("a", "k") is Answer.WAITING
            assert await queue.requeue("a", "k") is Answer.WAITING
            assert await queue.put_many([("b", LATER_MS, 1), {"id": "c", "due": LATER_MS, "key": "k"}]) == [
                Answer.ACCEPTED,
                Answer.ACCEPTED,
            ]
            with pytest.raises(WrongUsage, match="is no message"):
                await queue.put_many([5])  # type: ignore[list-item]
            assert (len(queue), queue.summary.accepted, queue.is_paused) == (3, 3, False)
            assert await queue.pause() is None  # type: ignore[func-returns-value]
            assert queue.is_paused
            await queue.resume()
            page = await queue.view.list(key="k")
            assert [it.id for it in page.messages] == ["c", "a"]
            found = await queue.view.show("b")
            assert found is not None
            assert (await queue.view.status()).waiting == 3
            assert [*(await queue.view.dead()).letters] == []
            assert await queue.cancel("b") is Answer.CANCELLED
            action = await queue.cancel_many(key="k")
            while (it := await queue.action(action)) is None or it.ended is None:
                await asyncio.sleep(0.001)
            assert it.changed == 2
            assert [one.id for one in await queue.view.actions()] == [action]

    run(main(), loop_kind)


def test_with_one_order_no_key_can_be_paused__D16(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore, order="global") as queue:
            with pytest.raises(WrongUsage, match="no key can be paused"):
                await queue.pause(key="k")

    run(main())


# --- Nothing blocks the loop ---------------------------------------------------


def commits_of(queue: AsyncDeliveryQueue) -> int:
    assert queue._queue is not None
    _, counts, _ = queue._queue._running.engine.measures().commit_durations
    return sum(counts)


def test_puts_of_many_tasks_share_commits__D5(tmp_path: Path, loop_kind: str) -> None:  # noqa: F811
    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:
            before = commits_of(queue)
            answers = await asyncio.gather(*(queue.put(str(number), due=LATER_MS) for number in range(1000)))
            assert set(answers) == {Answer.ACCEPTED}
            assert commits_of(queue) - before < 200

    run(main(), loop_kind)


def test_where_much_is_queued_tasks_wait_in_turn_and_the_loop_goes_on__D8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Running.try_submit
    submitted: list[str] = []
    refused: list[str] = []

    def full_at_the_second(running: Running, given: Any, told: Any, **options: Any) -> Any:
        [records] = read_records(given, **options)
        [message] = records.to_list()
        if message.id == "1" and not refused:
            refused.append("1")
            return records
        submitted.append(message.id)
        return submit(running, records, told)

    monkeypatch.setattr(Running, "try_submit", full_at_the_second)

    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:
            puts = [queue.put(str(number), due=LATER_MS) for number in range(4)]
            assert await asyncio.gather(*puts) == [Answer.ACCEPTED] * 4

    run(main())
    assert (refused, submitted) == (["1"], ["0", "1", "2", "3"])


def test_a_put_that_finds_the_queue_full_of_what_an_outbox_gave_goes_on_by_itself__D8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, has_room = Running.try_submit, iter([False, False])

    def full_twice(running: Running, given: Any, told: Any, **options: Any) -> Any:
        [records] = read_records(given, **options)
        return submit(running, records, told) if next(has_room, True) else records

    monkeypatch.setattr(Running, "try_submit", full_twice)

    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:
            assert await queue.put("a", due=LATER_MS) is Answer.ACCEPTED  # no answer of another put wakes it

    run(main())


def test_many_messages_are_read_beside_the_loop__D11(tmp_path: Path) -> None:
    threads: set[threading.Thread] = set()

    def messages() -> Iterator[Message]:
        for number in range(2_500):
            threads.add(threading.current_thread())
            yield Message(str(number), None, LATER_MS, b"1")

    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:
            assert await queue.put_many(messages()) == [Answer.ACCEPTED] * 2_500

    run(main())
    assert threading.main_thread() not in threads


@pytest.mark.parametrize(
    "method",
    [
        lambda queue: queue.put_many([("a", LATER_MS, 1)]),
        lambda queue: queue.action("none"),
        lambda queue: queue.view.status(),
        lambda queue: queue.view.list(),
        lambda queue: queue.view.show("a"),
        lambda queue: queue.view.dead(),
        lambda queue: queue.view.actions(),
    ],
    ids=["put_many", "action", "status", "list", "show", "dead", "actions"],
)
def test_all_threads_of_the_loops_default_executor_may_wait_for_the_queue__D11(
    method: Callable[[AsyncDeliveryQueue], Coroutine[Any, Any, object]],
    tmp_path: Path,
    loop_kind: str,  # noqa: F811
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(2))
        both_wait = threading.Barrier(2)

        async def call() -> object:
            return await method(queue)

        def from_thread() -> object:
            both_wait.wait(LONG_S)
            return asyncio.run_coroutine_threadsafe(call(), loop).result(LONG_S / 2)

        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:
            await asyncio.gather(asyncio.to_thread(from_thread), asyncio.to_thread(from_thread))

    run(main(), loop_kind)


def test_messages_that_come_from_other_calls_of_put_many_wait_for_them_however_many__D11(tmp_path: Path) -> None:
    async def main() -> None:
        loop, depth = asyncio.get_running_loop(), 40

        async def put(number: int) -> list[Answer]:
            return await queue.put_many(messages(number))

        def messages(number: int) -> Iterator[Message]:
            if number < depth:
                asyncio.run_coroutine_threadsafe(put(number + 1), loop).result(LONG_S)
            yield Message(str(number), None, LATER_MS, b"1")

        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:
            await put(1)
            assert len(queue) == depth

    run(main())


HOLDS = """if True:
    import sys, time
    from tickwheel.delivery import DeliveryQueue
    with DeliveryQueue(sys.argv[1], to=lambda _: None):
        print("open", flush=True)
        sys.stdin.read()
"""


class Holder:
    """Another process that has the store."""

    def __init__(self, store: Path) -> None:
        command = [sys.executable, "-c", HOLDS, str(store)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "open\n"

    def __enter__(self) -> "Holder":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=LONG_S)


def opens() -> bool:
    """Whether a thread opens a queue, or closes one again."""
    return any(it.name.startswith("opens-delivery") for it in threading.enumerate())


def test_while_another_process_has_the_store_the_loop_goes_on_and_then_it_opens__D9(
    tmp_path: Path,
    loop_kind: str,  # noqa: F811
) -> None:
    async def main() -> None:
        with Holder(tmp_path / "store.db"):
            opening = asyncio.create_task(AsyncDeliveryQueue(tmp_path / "store.db", to=ignore).__aenter__())
            await asyncio.sleep(0.2)
            assert not opening.done()
        queue = await opening
        assert await queue.put("a", due=LATER_MS) is Answer.ACCEPTED
        await queue.close()

    run(main(), loop_kind)


def test_opening_can_be_cancelled_while_another_process_has_the_store__D9(tmp_path: Path) -> None:
    async def main() -> None:
        with Holder(tmp_path / "store.db"):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2), AsyncDeliveryQueue(tmp_path / "store.db", to=ignore):
                    raise AssertionError("it is not open")
            await until(lambda: not opens())

    run(main())


def test_a_queue_whose_opening_was_cancelled_too_late_is_closed_again__D13(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, goes_on = threading.Event(), threading.Event()
    start = Running.start

    def slow(running: Running) -> None:
        start(running)
        opened.set()
        assert goes_on.wait(LONG_S)

    monkeypatch.setattr(Running, "start", slow)

    async def main() -> None:
        opening = asyncio.create_task(AsyncDeliveryQueue(tmp_path / "store.db", to=ignore).__aenter__())
        await asyncio.to_thread(opened.wait)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        goes_on.set()
        monkeypatch.setattr(Running, "start", start)
        await until(lambda: not opens())
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:
            assert len(queue) == 0

    run(main())


def test_an_error_of_opening_is_raised_by_async_with_and_leaves_nothing__D13(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(WrongUsage, match="order is 'none'"):
            async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore, order="none"):  # type: ignore[arg-type]
                pass
        assert [*tmp_path.iterdir()] == []

    run(main())


def test_what_is_in_flight_ends_while_the_queue_closes__D6(tmp_path: Path, loop_kind: str) -> None:  # noqa: F811
    ended: list[str] = []

    async def main() -> None:
        goes_on = asyncio.Event()

        async def slow(delivery: Delivery) -> None:
            started.append(delivery.message.id)
            await goes_on.wait()
            ended.append(delivery.message.id)

        started: list[str] = []
        queue = AsyncDeliveryQueue(tmp_path / "store.db", to=slow)
        async with queue:
            await queue.put_many([(str(number), 1_700_000_000_000, 1) for number in range(5)])
            await until(lambda: len(started) == 5)
            closing = asyncio.create_task(queue.close())
            await asyncio.sleep(0.05)
            assert not closing.done()
            goes_on.set()
            await closing
            assert queue.summary.delivered == 5
            with pytest.raises(RuntimeError, match="the queue is closed"):
                await queue.put("late", delay_ms=5)

    run(main(), loop_kind)
    assert sorted(ended) == ["0", "1", "2", "3", "4"]


# --- Cancelled, other loops, forks ---------------------------------------------


def test_a_put_that_is_cancelled_may_have_been_accepted_and_a_cancel_is_certain__D7(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:
            put = asyncio.create_task(queue.put("a", due=LATER_MS))
            await asyncio.sleep(0)  # it is submitted, and waits
            put.cancel()
            with pytest.raises(asyncio.CancelledError):
                await put
            assert await queue.put("a", due=LATER_MS) is Answer.DUPLICATE
            assert await queue.cancel("a") is Answer.CANCELLED

    run(main())
    assert caplog.records == []  # the answer that no task waits for is no error


def test_many_messages_that_are_still_read_when_their_task_is_cancelled_leave_no_warning__D11(tmp_path: Path) -> None:
    reads, goes_on, was_read = threading.Event(), threading.Event(), threading.Event()

    def messages() -> Iterator[Message]:
        yield Message("a", None, LATER_MS, b"1")
        reads.set()
        assert goes_on.wait(LONG_S)
        was_read.set()

    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:
            putting = asyncio.create_task(queue.put_many(messages()))
            await asyncio.to_thread(reads.wait, LONG_S)
            putting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await putting
            goes_on.set()
            assert await asyncio.to_thread(was_read.wait, LONG_S)
            assert await queue.state("a") is Answer.UNKNOWN

    run(main())
    gc.collect()  # a coroutine that was not awaited is an error of this test


def test_messages_without_end_are_read_no_further_once_their_task_is_cancelled__D11(tmp_path: Path) -> None:
    is_reading, ends = threading.Event(), threading.Event()
    readers: list[threading.Thread] = []

    def messages() -> Iterator[Message]:
        readers.append(threading.current_thread())
        while not ends.is_set():
            is_reading.set()
            yield Message("a", None, LATER_MS, b"1")

    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:
            putting = asyncio.create_task(queue.put_many(messages()))
            await asyncio.to_thread(is_reading.wait, LONG_S)
            putting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await putting
            await asyncio.to_thread(readers[0].join, 10)
            assert not readers[0].is_alive()
            assert await queue.state("a") is Answer.UNKNOWN

    try:
        run(main())
    finally:
        ends.set()


def test_a_coroutine_function_for_dead_letters_is_refused__D15(tmp_path: Path) -> None:
    async def tell(_: object) -> None: ...

    async def main() -> None:
        with pytest.raises(WrongUsage, match="on_dead_letter is a coroutine function"):
            await AsyncDeliveryQueue(tmp_path / "store.db", to=ignore, on_dead_letter=tell).__aenter__()

    run(main())


def test_a_queue_that_is_not_open_or_was_opened_before_says_so(tmp_path: Path) -> None:
    queue = AsyncDeliveryQueue(tmp_path / "store.db", to=ignore)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="async with"):
            await queue.put("a", due=LATER_MS)
        with pytest.raises(RuntimeError, match="async with"):
            len(queue)
        async with queue:
            pass
        with pytest.raises(RuntimeError, match="opened before"):
            await queue.__aenter__()

    run(main())


def test_another_loop_than_the_one_it_was_opened_on_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:

            async def elsewhere() -> None:
                with pytest.raises(RuntimeError, match="another event loop"):
                    await queue.put("a", due=LATER_MS)

            await asyncio.to_thread(asyncio.run, elsewhere())

    run(main())


def test_delivery_that_has_failed_fails_what_waits_and_the_close__D6(tmp_path: Path) -> None:
    async def main() -> None:
        queue = await AsyncDeliveryQueue(tmp_path / "store.db", to=ignore).__aenter__()
        assert queue._queue is not None
        queue._queue._running.fail(DeliveryFailed("the power is off"))
        with pytest.raises(DeliveryFailed, match="the power is off"):
            await queue.put("a", due=LATER_MS)
        with pytest.raises(DeliveryFailed, match="the power is off"):
            await queue.close()

    run(main())


def test_a_forked_child_is_told_that_the_queue_is_its_parents__rule7(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=ignore) as queue:
            child = os.fork()
            if child == 0:
                try:
                    asyncio.run(queue.put("a", due=LATER_MS))
                except WrongUsage as error:
                    os._exit(0 if "belongs to the parent process" in str(error) else 2)
                finally:
                    os._exit(3)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            assert await queue.put("a", due=LATER_MS) is Answer.ACCEPTED

    run(main())


# --- The end of a program ------------------------------------------------------


def end_of(program: str, store: Path, *, interrupted: bool = False) -> tuple[int, str, str]:
    """Runs it; where it says `ready` it gets a Ctrl-C."""
    command = [sys.executable, "-W", "error", "-c", program, str(store)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if interrupted:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=40)
    return process.returncode, out, err


def test_a_ctrl_c_closes_the_queue_and_what_waits_is_kept__D13(tmp_path: Path) -> None:
    program = """if True:
        import asyncio, sys
        from tickwheel.delivery import AsyncDeliveryQueue

        async def send(delivery):
            print("ready", flush=True)
            await asyncio.sleep(0.1)
            print("sent", delivery.message.id)

        async def main():
            async with AsyncDeliveryQueue(sys.argv[1], to=send) as queue:
                await queue.put("b", delay_ms=3_600_000)
                await queue.put("a", delay_ms=0)
                await asyncio.Event().wait()

        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted")
    """
    code, out, err = end_of(program, tmp_path / "store.db", interrupted=True)
    assert (code, out, err) == (0, "sent a\ninterrupted\n", "")
    assert [it.id for it in StoreView(tmp_path / "store.db").list().messages] == ["b"]


def test_a_loop_that_ends_while_the_queue_waits_for_its_store_keeps_no_process_alive__D9_D13(tmp_path: Path) -> None:
    program = """if True:
        import asyncio, sys
        from tickwheel.delivery import AsyncDeliveryQueue

        async def send(delivery): ...

        async def opens():
            async with AsyncDeliveryQueue(sys.argv[1], to=send):
                pass

        async def main():
            opening = asyncio.ensure_future(opens())
            await asyncio.sleep(0.2)
            raise SystemExit(3)

        asyncio.new_event_loop().run_until_complete(main())
    """
    with Holder(tmp_path / "store.db"):
        command = [sys.executable, "-c", program, str(tmp_path / "store.db")]
        assert subprocess.run(command, stderr=subprocess.DEVNULL, timeout=LONG_S, check=False).returncode == 3


FORGOTTEN = """if True:
    import asyncio, sys
    from tickwheel.delivery import AsyncDeliveryQueue

    async def send(delivery):
        {what}

    async def main():
        queue = await AsyncDeliveryQueue(sys.argv[1], to=send).__aenter__()
        await queue.put("a", delay_ms=0)
        await queue.put("b", delay_ms=500)
        await asyncio.sleep(0.1)

    asyncio.run(main())
    print("the loop is closed")
"""


@pytest.mark.parametrize("what", ["pass", "await asyncio.sleep(3600)"], ids=["ends", "waits"])
def test_a_queue_that_was_forgotten_keeps_no_process_alive_and_loses_nothing__D5_D13(tmp_path: Path, what: str) -> None:
    began = time.monotonic()
    code, out, err = end_of(FORGOTTEN.format(what=what), tmp_path / "store.db")
    assert (code, out) == (0, "the loop is closed\n"), err
    assert time.monotonic() - began < 20
    assert "Traceback" not in err
    assert "b" in [it.id for it in StoreView(tmp_path / "store.db").list().messages]


def test_a_loop_that_is_closed_takes_nothing_more_and_loses_nothing__D6(tmp_path: Path, loop_kind: str) -> None:  # noqa: F811
    async def main() -> AsyncDeliveryQueue:
        queue = await AsyncDeliveryQueue(tmp_path / "store.db", to=ignore).__aenter__()
        await queue.put("a", delay_ms=0)
        await until(lambda: len(queue) == 0)
        return queue

    kept = run(main(), loop_kind)._queue
    assert kept is not None
    given = [Message(str(number), None, 1_700_000_000_000, b"1") for number in range(5)]
    assert kept._running.submit(given).result(LONG_S) == [Answer.ACCEPTED] * 5
    end = time.monotonic() + LONG_S
    while (down := kept._running.engine.down) is None:
        assert time.monotonic() < end
        time.sleep(0.001)
    assert down == "the event loop of the sink is closed"
    kept.close()
    assert [it.id for it in StoreView(tmp_path / "store.db").list().messages] == ["0", "1", "2", "3", "4"]
