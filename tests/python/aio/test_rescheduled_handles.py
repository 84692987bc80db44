"""`reschedule` of a loop's handle: it is the same handle, at another time (T21)."""

import asyncio
import gc
import os
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tickwheel import TimerForked, TimerFull, aio
from tickwheel.testing import ManualTimer, VirtualLoop

pytestmark = pytest.mark.timeout(60)


LOOPS = {
    "beside": asyncio.SelectorEventLoop,
    "wheel": aio.new_event_loop,
    "own clock": VirtualLoop,
    "virtual": VirtualLoop,
}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Any], Any]]:
    """Runs a coroutine function with the timers of a loop. "own clock": those beside a loop of another clock."""
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:

        async def main(scenario: Callable[[Any], Any]) -> Any:
            return await scenario(asyncio.get_running_loop() if request.param == "virtual" else aio.timers())

        yield lambda scenario: runner.run(main(scenario))


def test_a_handle_is_moved_to_a_later_and_to_an_earlier_time__T1_T21(run: Any) -> None:
    async def main(timers: Any) -> None:
        came, loop = asyncio.Queue[tuple[str, float]](), asyncio.get_running_loop()

        def ring(name: str) -> None:
            came.put_nowait((name, loop.time()))

        soon, late = timers.call_later(0.005, ring, "soon"), timers.call_later(3600, ring, "late")
        before = soon.when()
        assert soon.reschedule(0.05) is True
        assert late.reschedule(timedelta(milliseconds=1)) is True
        assert soon.when() > before
        for handle, name in ((late, "late"), (soon, "soon")):
            came_name, at_s = await came.get()
            assert came_name == name
            assert at_s >= handle.when()
            assert handle.reschedule(0) is False, "it has run"
        assert came.empty()

    run(main)


def test_a_timeout_that_is_renewed_never_runs__T9_T21(run: Any) -> None:
    async def main(timers: Any) -> None:
        handle = timers.call_later(3600, pytest.fail)
        first = hash(handle)
        for _ in range(10_000):
            assert handle.reschedule(3600)
        assert hash(handle) == first, "it stays in a set"
        handle.cancel()
        assert (handle.reschedule(0), handle.cancelled()) == (False, True)
        await aio.sleep(0.002)

    run(main)


def test_one_that_is_due_already_is_moved_if_it_has_not_begun__T7_T21(run: Any) -> None:
    async def main(timers: Any) -> list[str]:
        came = list[str]()
        done = asyncio.get_running_loop().create_future()
        when = asyncio.get_running_loop().time() + 0.001
        timers.call_at(when, lambda: (came.append("first"), second.reschedule(0.005)))
        second = timers.call_at(when, lambda: (came.append("second"), done.set_result(None)))
        timers.call_at(when, came.append, "third")
        await done
        return came

    assert run(main) == ["first", "third", "second"]


def test_a_handle_may_not_move_itself_while_it_runs__T21(run: Any) -> None:
    async def main(timers: Any) -> list[bool]:
        answers = asyncio.Queue[bool]()
        handle = timers.call_later(0.001, lambda: answers.put_nowait(handle.reschedule(0.001)))
        first = await answers.get()
        await aio.sleep(0.005)
        return [first, answers.empty()]

    assert run(main) == [False, True]


@pytest.mark.parametrize("kind", LOOPS)
def test_a_moved_handle_is_dropped_once_it_was_cancelled_or_its_loop_is_closed__T9_rule8(kind: str) -> None:
    class Kept:
        pass

    gone, handles = [], []
    for must_cancel in (True, False):
        kept = Kept()
        gone.append(weakref.ref(kept))
        loop = LOOPS[kind]()

        async def main(loop: Any, kept: object, must_cancel: bool) -> None:
            handle = (loop if kind == "virtual" else aio.timers()).call_later(3600, print, kept)
            handle.reschedule(7200)
            if must_cancel:
                handle.cancel()
            handles.append(handle)

        loop.run_until_complete(main(loop, kept, must_cancel))
        loop.close()
        assert handles[-1].reschedule(1) is False
        if not must_cancel and kind in ("own clock", "virtual"):
            handles[-1].cancel()  # as an asyncio handle, it keeps its callback while it lives
        del kept, loop
    gc.collect()
    assert [it() for it in gone] == [None, None]


@pytest.mark.parametrize(
    ("delay", "error", "text"),
    [
        (float("nan"), ValueError, "delay must be a number of seconds, got nan"),
        ("5", TypeError, "delay must be seconds"),
    ],
)
def test_a_bad_delay_leaves_it_where_it_is__T13_T21(run: Any, delay: Any, error: Any, text: str) -> None:
    async def main(timers: Any) -> None:
        handle = timers.call_later(3600, print)
        when = handle.when()
        with pytest.raises(error, match=text):
            handle.reschedule(delay)
        assert handle.when() == when
        assert handle.reschedule(float("inf")) is True, "for ever, as in call_later"
        handle.cancel()

    run(main)


def test_a_move_on_a_loop_that_was_closed_by_its_class_is_refused_as_an_add_is__T13_T21() -> None:
    loop = asyncio.SelectorEventLoop()

    async def main() -> tuple[Any, Any]:
        return aio.timers(), aio.timers().call_later(10, print)

    timers, handle = loop.run_until_complete(main())
    type(loop).close(loop)
    for call in (lambda: handle.reschedule(1), lambda: timers.call_later(1, print)):
        with pytest.raises(RuntimeError, match="Event loop is closed"):
            call()
    handle.cancel()


def test_a_child_process_moves_nothing__T12_T21(run: Any) -> None:
    async def main(timers: Any) -> None:
        handle = timers.call_later(3600, print)
        if (pid := os.fork()) == 0:
            try:
                handle.reschedule(1)
            except TimerForked:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        handle.cancel()

    run(main)


def test_debug_mode_shows_the_line_of_the_user__T21() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for timers in (loop, aio.timers()):
            for handle in (timers.call_later(5, print), timers.call_at(5, print)):
                assert f"created at {__file__}:" in repr(handle)
                handle.cancel()

    with asyncio.Runner(loop_factory=VirtualLoop, debug=True) as runner:
        runner.run(main())


def test_a_handle_that_a_full_timer_does_not_move_runs_where_it_is__T13_T17() -> None:
    loop, came = VirtualLoop(ManualTimer(max_pending=3)), list[str]()

    async def main() -> None:
        when = loop.time() + 1

        def first() -> None:
            for _ in range(2):
                loop.call_later(10, came.append, "later")
            with pytest.raises(TimerFull):
                second.reschedule(1)

        loop.call_at(when, first)
        second: Any = loop.call_at(when, came.append, "second")
        await asyncio.sleep(20)

    loop.run_until_complete(main())
    loop.close()
    assert came == ["second", "later", "later"]
