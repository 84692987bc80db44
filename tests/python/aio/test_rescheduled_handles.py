"""`reschedule` of a loop's handle: it is the same handle, at another time (T21)."""

import asyncio
import gc
import os
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import TimerForked, aio

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(params=[asyncio.SelectorEventLoop, aio.new_event_loop], ids=["beside", "wheel"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Any], Any]]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


def test_a_handle_is_moved_to_a_later_and_to_an_earlier_time__T1_T21(run: Any) -> None:
    async def main() -> None:
        timers, came = aio.timers(), asyncio.Queue[tuple[str, float]]()

        def ring(name: str) -> None:
            came.put_nowait((name, time.monotonic()))

        soon, late = timers.call_later(0.005, ring, "soon"), timers.call_later(3600, ring, "late")
        before, number = soon.when(), len(timers)
        assert soon.reschedule(0.05) is True
        assert late.reschedule(timedelta(milliseconds=1)) is True
        assert soon.when() > before
        assert len(timers) == number
        for handle, name in ((late, "late"), (soon, "soon")):
            came_name, at_s = await came.get()
            assert came_name == name
            assert at_s >= handle.when()
            assert handle.reschedule(0) is False, "it has run"
        assert came.empty()

    run(main())


def test_a_timeout_that_is_renewed_never_runs__T9_T21(run: Any) -> None:
    async def main() -> None:
        timers = aio.timers()
        handle = timers.call_later(3600, pytest.fail)
        before, first = len(timers), hash(handle)
        for _ in range(10_000):
            assert handle.reschedule(3600)
        assert (len(timers), hash(handle), handle in {handle}) == (before, first, True)
        handle.cancel()
        assert (handle.reschedule(0), handle.cancelled(), len(timers)) == (False, True, before - 1)
        await aio.sleep(0.002)

    run(main())


def test_one_that_is_due_already_is_moved_if_it_has_not_begun__T7_T21(run: Any) -> None:
    async def main() -> list[str]:
        timers, came = aio.timers(), list[str]()
        done = asyncio.get_running_loop().create_future()
        when = asyncio.get_running_loop().time() + 0.001
        timers.call_at(when, lambda: (came.append("first"), second.reschedule(0.005)))
        second = timers.call_at(when, lambda: (came.append("second"), done.set_result(None)))
        timers.call_at(when, came.append, "third")
        await done
        return came

    assert run(main()) == ["first", "third", "second"]


def test_a_handle_may_not_move_itself_while_it_runs__T21(run: Any) -> None:
    async def main() -> list[bool]:
        answers = asyncio.Queue[bool]()
        handle = aio.timers().call_later(0.001, lambda: answers.put_nowait(handle.reschedule(0.001)))
        first = await answers.get()
        await aio.sleep(0.005)
        return [first, answers.empty()]

    assert run(main()) == [False, True]


def test_a_moved_handle_is_dropped_once_it_was_cancelled_or_its_loop_is_closed__T9_rule8() -> None:
    class Kept:
        pass

    gone, handles = [], []
    for must_cancel in (True, False):
        kept = Kept()
        gone.append(weakref.ref(kept))
        loop = aio.new_event_loop()

        async def main(kept: object, must_cancel: bool) -> None:
            handle = aio.timers().call_later(3600, print, kept)
            handle.reschedule(7200)
            if must_cancel:
                handle.cancel()
            handles.append(handle)

        loop.run_until_complete(main(kept, must_cancel))
        loop.close()
        del kept, loop
    gc.collect()
    assert [it() for it in gone] == [None, None]
    assert [handle.reschedule(1) for handle in handles] == [False, False]


@pytest.mark.parametrize(
    ("delay", "error", "text"),
    [
        (float("nan"), ValueError, "delay must be a number of seconds, got nan"),
        ("5", TypeError, "delay must be seconds"),
    ],
)
def test_a_bad_delay_leaves_it_where_it_is__T13_T21(run: Any, delay: Any, error: Any, text: str) -> None:
    async def main() -> None:
        handle = aio.timers().call_later(3600, print)
        when = handle.when()
        with pytest.raises(error, match=text):
            handle.reschedule(delay)
        assert handle.when() == when
        assert handle.reschedule(float("inf")) is True, "for ever, as in call_later"
        handle.cancel()

    run(main())


def test_a_child_process_moves_nothing__T12_T21(run: Any) -> None:
    async def main() -> None:
        handle = aio.timers().call_later(3600, print)
        if (pid := os.fork()) == 0:
            try:
                handle.reschedule(1)
            except TimerForked:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        handle.cancel()

    run(main())
