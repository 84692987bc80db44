"""An event loop on a manual clock (T15, T21)."""

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest

from tickwheel.testing import Deadlock, ManualTimer, VirtualLoop

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=VirtualLoop) as made:
        yield made


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_sleeping_takes_no_time_and_the_order_is_always_the_same__T15(runner: asyncio.Runner) -> None:
    came: list[tuple[str, float]] = []

    async def wait(name: str, *delays_s: float) -> None:
        for delay_s in delays_s:
            await asyncio.sleep(delay_s)
            came.append((name, now_s()))

    async def main() -> None:
        await asyncio.gather(wait("a", 3600, 0.25), wait("b", 1800, 1800, 0.25), wait("c", 0.1, 0.2))

    began_s = time.monotonic()
    runner.run(main())
    assert time.monotonic() - began_s < 60
    assert came == [
        ("c", 0.1), ("c", 0.300001), ("b", 1800.0), ("a", 3600.0), ("b", 3600.0), ("a", 3600.25), ("b", 3600.25),
    ]  # fmt: skip


def test_time_outs_and_cancels_are_as_on_any_loop__T21(runner: asyncio.Runner) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.sleep(3600)
        assert now_s() == 60
        assert await asyncio.wait_for(asyncio.sleep(5, "slept"), 10) == "slept"
        assert now_s() == 65
        loop = asyncio.get_running_loop()
        loop.call_later(1, pytest.fail).cancel()
        assert isinstance(loop, VirtualLoop)
        assert len(loop.timer) == 0, "a cancelled timer is off the wheel"
        await asyncio.sleep(10)
        assert now_s() == 75

    runner.run(main())


def test_where_nothing_can_happen_any_more_the_waiting_tasks_are_named__T15(runner: asyncio.Runner) -> None:
    async def answer() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(answer(), name="the answer")
        await asyncio.sleep(10)
        await task

    with pytest.raises(Deadlock) as error:
        runner.run(main())
    first, *waiting = str(error.value).splitlines()
    assert first == "nothing can happen any more at 10 s, and these tasks wait:"
    assert any("the answer: " in line and "answer at " in line and "test_virtual.py:" in line for line in waiting)
    assert len(waiting) == 2


def test_threads_sockets_and_processes_have_their_turn_before_time_moves__T15(runner: asyncio.Runner) -> None:
    is_over = threading.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(3600, is_over.set)
        assert await loop.run_in_executor(None, lambda: "from a thread") == "from a thread"
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        writer.write(b"echo\n")
        assert await reader.readline() == b"echo\n"
        writer.close()
        server.close()
        assert now_s() == 0
        assert await loop.run_in_executor(None, is_over.wait, 20), "a thread that waits for the loop's time gets it"
        assert now_s() == 3600

    runner.run(main())


def test_a_thread_of_ones_own_is_waited_for_a_moment__T15() -> None:
    async def main() -> str:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        threading.Thread(target=loop.call_soon_threadsafe, args=[done.set]).start()
        await done.wait()
        return "woken"

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(grace_s=20)) as runner:
        assert runner.run(main()) == "woken"


def test_a_loop_shares_the_clock_of_its_timer__T15() -> None:
    timer = ManualTimer(start_ms=5_000)
    came: list[Any] = []
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(timer)) as runner:

        async def main() -> None:
            assert now_s() == 5
            timer.after(1_000, lambda: came.append(now_s()))
            await asyncio.sleep(2)
            timer.advance(500)
            assert now_s() == 7.5

        runner.run(main())
    assert came == [6.0]


def test_a_closed_loop_takes_no_more__T11_T21() -> None:
    loop = VirtualLoop()
    loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.call_later(1, print)


def test_an_executor_that_refuses_a_call_does_not_hide_a_deadlock__T15(runner: asyncio.Runner) -> None:
    async def main() -> None:
        pool = ThreadPoolExecutor(1)
        pool.shutdown()
        with pytest.raises(RuntimeError):
            await asyncio.get_running_loop().run_in_executor(pool, int)
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        runner.run(main())


def test_a_pool_of_processes_works_and_time_waits_for_it__T15(runner: asyncio.Runner) -> None:
    async def main() -> None:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            loop = asyncio.get_running_loop()
            assert await loop.run_in_executor(pool, abs, -1) == 1
            assert now_s() == 0

    runner.run(main())


def test_a_loop_that_runs_for_ever_waits_for_other_threads__T15() -> None:
    loop, ended = VirtualLoop(grace_s=0.001), []

    def serve() -> None:
        try:
            loop.run_forever()
        except BaseException as error:
            ended.append(error)

    async def work() -> float:
        await asyncio.sleep(3600)
        return now_s()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert asyncio.run_coroutine_threadsafe(work(), loop).result(20) == 3600
        thread.join(0.05)  # idle for longer than its grace
        assert asyncio.run_coroutine_threadsafe(work(), loop).result(20) == 7200
    finally:
        if thread.is_alive():
            loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()
    assert not ended


def test_in_debug_mode_it_refuses_what_asyncio_does__T21(runner: asyncio.Runner) -> None:
    async def coroutine() -> None: ...

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_debug(True)
        with pytest.raises(TypeError, match="coroutines cannot be used with call_at"):
            loop.call_later(1, coroutine)
        with pytest.raises(RuntimeError, match="Non-thread-safe operation"):
            await asyncio.to_thread(loop.call_later, 1, int)

    runner.run(main())
