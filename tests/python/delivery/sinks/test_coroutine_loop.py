"""The loop of a coroutine sink goes on, whatever runs on it: only the end of the sink ends it (rules D6, D10)."""

import asyncio
import errno
import gc
import itertools
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from delivery.loops import LONG_S, run, until
from delivery.serve.conftest import Served
from tickwheel.delivery import AsyncDeliveryQueue, Delivery, DeliveryFailed, DeliveryQueue, Letter, StoreView

pytestmark = pytest.mark.timeout(60)


def a_child_raises(error: BaseException) -> None:
    async def child() -> None:
        raise error

    children.add(asyncio.get_running_loop().create_task(child()))


children: set[asyncio.Task[None]] = set()  # asyncio keeps no task alive


def cancel_all_tasks() -> None:
    for task in asyncio.all_tasks():
        task.cancel()


def stop_soon() -> None:
    loop = asyncio.get_running_loop()
    loop.call_soon(loop.stop)


def close() -> None:
    """As another thread can, between the stop of the loop and its next turn."""
    loop = asyncio.get_running_loop()
    loop.run_forever = loop.close  # type: ignore[method-assign]
    loop.stop()


def break_its_selector() -> None:
    """As `os.closerange` does."""

    def select(_timeout: float | None) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    asyncio.get_running_loop()._selector.select = select  # type: ignore[attr-defined]


KEEP_THE_TASKS: dict[str, Callable[[], object]] = {
    "a child exits": lambda: a_child_raises(SystemExit(3)),
    "a child is interrupted": lambda: a_child_raises(KeyboardInterrupt()),
    "stop": lambda: asyncio.get_running_loop().stop(),
    "stop soon": stop_soon,
}
LOSE_THE_TASKS: dict[str, Callable[[], object]] = {
    "cancel all tasks": cancel_all_tasks,
    "close": close,
    "break its selector": break_its_selector,
}
ALL = {**KEEP_THE_TASKS, **LOSE_THE_TASKS}


class Function:
    """A coroutine function: the message "held" waits, and "a" does what is given, once."""

    def __init__(self, what: Callable[[], object]) -> None:
        self._what = what
        self.begun: defaultdict[str, list[bool]] = defaultdict(list)  # by id: whether each call was redelivered
        self.arrived: set[str] = set()
        self.goes_on = threading.Event()

    async def __call__(self, delivery: Delivery) -> None:
        id_ = delivery.message.id
        self.begun[id_].append(delivery.redelivered)
        if id_ == "held":
            while not self.goes_on.is_set():
                await asyncio.sleep(0.001)
        if id_ == "a" and len(self.begun["a"]) == 1:
            self._what()
            await asyncio.sleep(0)
        self.arrived.add(id_)


def wait_for(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize("how", ALL)
def test_nothing_that_runs_on_it_ends_the_loop_or_costs_another_message_an_attempt__D6(
    tmp_path: Path, how: str
) -> None:
    function = Function(ALL[how])
    letters: list[Letter] = []
    options = {"max_attempts": 1, "backoff_s": (0.01, 0.02), "on_dead_letter": letters.append}
    with DeliveryQueue(tmp_path / "store.db", to=function, **options) as queue:  # type: ignore[arg-type]
        queue.put("held", delay_ms=0)
        wait_for(lambda: "held" in function.begun)
        for id_ in "abcd":
            queue.put(id_, delay_ms=0)
            wait_for(lambda id_=id_: id_ in function.arrived or bool(letters))  # type: ignore[misc]
        function.goes_on.set()
        assert queue.wait_until_empty(LONG_S)
    assert letters == []
    assert function.arrived == {"held", *"abcd"}
    assert [function.begun[id_] for id_ in "bcd"] == [[False]] * 3
    assert function.begun["held"] == ([False] if how in KEEP_THE_TASKS else [False, True])


@pytest.mark.parametrize("how", ALL)
def test_a_service_whose_loop_was_disturbed_is_ready_and_delivers__D6_D12(tmp_path: Path, how: str) -> None:
    function = Function(ALL[how])
    served = Served(tmp_path, to=function)
    try:
        for id_ in "ab":
            served.ask("POST", "/messages", {"id": id_, "delay_ms": 0})
            wait_for(lambda id_=id_: id_ in function.begun)  # type: ignore[misc]
        assert served.ask("GET", "/readyz")[:2] == (200, {"status": "ok"})
    finally:
        served.close()


def test_a_service_is_not_ready_when_no_loop_can_be_made_in_place_of_one_that_was_closed__D6_D12(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_loop() -> asyncio.AbstractEventLoop:
        raise OSError(24, "Too many open files")

    def close_for_ever() -> None:
        monkeypatch.setattr(asyncio, "new_event_loop", no_loop)
        close()

    function = Function(close_for_ever)
    served = Served(tmp_path, to=function)
    served.ask("POST", "/messages", {"id": "a", "delay_ms": 0})
    wait_for(lambda: "a" in function.begun)
    numbers = itertools.count()

    def has_failed() -> bool:
        served.ask("POST", "/messages", {"id": f"b{next(numbers)}", "delay_ms": 0})
        return served.ask("GET", "/readyz")[:2] == (503, {"status": "failed"})

    wait_for(has_failed)  # at the first call that no loop can take
    with pytest.raises(DeliveryFailed, match="Too many open files"):
        served.close()
    assert not StoreView(tmp_path / "store.db").dead().letters


def test_a_queue_whose_loop_cannot_be_made_is_not_opened__D10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_loop() -> asyncio.AbstractEventLoop:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(asyncio, "new_event_loop", no_loop)
    with pytest.raises(DeliveryFailed, match=r"no thread with an event loop can be made .*Too many open files"):
        DeliveryQueue(tmp_path / "store.db", to=Function(lambda: None))


def test_the_loop_of_the_thread_that_opens_a_queue_stays_its_loop__D10(tmp_path: Path) -> None:
    own = asyncio.new_event_loop()
    asyncio.set_event_loop(own)
    try:
        with DeliveryQueue(tmp_path / "store.db", to=Function(lambda: None)) as queue:
            queue.put("b", delay_ms=0)
            assert queue.wait_until_empty(LONG_S)
            assert asyncio.get_event_loop() is own
    finally:
        asyncio.set_event_loop(None)
        own.close()


FORKS = """if True:
    import asyncio, os, sys
    from tickwheel.delivery import DeliveryQueue

    delivered, children = [], []

    async def child():
        children.append(os.fork())
        if children[-1] == 0:
            sys.exit(3)

    async def send(delivery):
        if delivery.message.id == "0":
            await asyncio.create_task(child())
        delivered.append(delivery.message.id)

    with DeliveryQueue(sys.argv[1], to=send) as queue:
        for number in range(20):
            queue.put(str(number), delay_ms=0)
            assert queue.wait_until_empty(20)
        _, status = os.waitpid(children[0], 0)
    print(status, sorted(map(int, delivered)) == [*range(20)], queue.summary.delivered)
"""


def test_a_child_that_another_task_forks_leaves_the_loop_to_its_parent__rule7(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKS, str(tmp_path / "store.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout) == (0, "0 True 20\n"), done.stderr


def test_a_call_that_the_program_cancels_at_its_end_is_no_dead_letter__D6(tmp_path: Path) -> None:
    begun: list[str] = []

    async def main() -> None:
        async def send(delivery: Delivery) -> None:
            begun.append(delivery.message.id)
            if len(begun) == 1:
                await asyncio.Event().wait()

        async with AsyncDeliveryQueue(tmp_path / "store.db", to=send, max_attempts=1, backoff_s=(0.01, 0.02)) as queue:
            await queue.put("a", delay_ms=0)
            await until(lambda: begun == ["a"])
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                if "_call" in repr(task):
                    task.cancel()
            await until(lambda: len(queue) == 0)

    run(main())
    assert begun == ["a", "a"]
    assert not StoreView(tmp_path / "store.db").dead().letters


def test_a_call_whose_loop_the_program_closes_is_no_dead_letter__D6(tmp_path: Path) -> None:
    begun: list[str] = []

    async def send(delivery: Delivery) -> None:
        begun.append(delivery.message.id)
        await asyncio.Event().wait()

    async def start() -> AsyncDeliveryQueue:
        queue = await AsyncDeliveryQueue(tmp_path / "store.db", to=send, max_attempts=1).__aenter__()
        await queue.put("a", delay_ms=0)
        await until(lambda: begun == ["a"])
        return queue

    loop = asyncio.new_event_loop()
    queue = loop.run_until_complete(start())
    loop.close()
    del loop
    gc.collect()  # drops the task
    assert queue._queue is not None
    queue._queue.close()
    view = StoreView(tmp_path / "store.db")
    assert [it.id for it in view.list().messages] == ["a"]
    assert not view.dead().letters


def test_a_coroutine_that_swallows_its_cancel_does_not_hold_up_the_end__D6_D13(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tickwheel.delivery.queue.queue._CLOSE_WITHIN_S", 0.1)
    begun, may_end = threading.Event(), threading.Event()

    async def stubborn(_: Delivery) -> None:
        begun.set()
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)

    queue = DeliveryQueue(tmp_path / "store.db", to=stubborn)
    queue.put("a", delay_ms=0)
    assert begun.wait(LONG_S)
    queue.close()
    [thread] = [it for it in threading.enumerate() if it.name == "coroutines-deliver"]
    assert thread.is_alive()
    may_end.set()
    thread.join(LONG_S)
    assert not thread.is_alive()
