"""A callback that does not keep its object alive, and fixtures for tests (T8, T15)."""

import functools
import gc
import weakref
from pathlib import Path

import pytest

from tickwheel import TimerTask, weak_method
from tickwheel.testing import ManualTimer

pytestmark = pytest.mark.timeout(60)
pytest_plugins = ["pytester"]


class Session:
    def __init__(self):
        self.ended = []

    def end(self, *args):
        self.ended.append(args)
        return len(self.ended)


def test_a_weak_method_is_called_while_its_object_is_there__T8():
    timer, session = ManualTimer(strict=True), Session()
    task = timer.after(5, weak_method(session.end), "late")
    timer.add(TimerTask(6, weak_method(session.end)))
    timer.advance(6)
    assert session.ended == [("late",), ()]
    assert weak_method(session.end)() == 3
    assert "Session.end" in repr(weak_method(session.end))
    assert task.is_pending is False


def test_a_weak_method_keeps_nothing_alive_and_does_nothing_then__T8():
    timer, session = ManualTimer(strict=True), Session()
    gone = weakref.ref(session)
    call = weak_method(session.end)
    timer.after(5, call)
    del session
    gc.collect()
    assert gone() is None
    assert timer.advance(5) == 1
    assert call() is None
    assert repr(call) == "<weak_method of an object that is gone>"


@pytest.mark.parametrize("wrapped", [lambda method: method, functools.partial], ids=["itself", "in a partial"])
def test_a_series_of_a_weak_method_ends_with_its_object__T20(wrapped):
    timer, session = ManualTimer(strict=True), Session()
    series = timer.every(10, wrapped(weak_method(session.end)))
    timer.advance(20)
    assert session.ended == [(), ()]
    del session
    timer.advance(10)
    assert (len(timer), series.is_pending, series.cancel()) == (0, False, False)


def test_what_a_weak_coroutine_method_returns_is_closed_and_is_an_error__T8():
    class Page:
        async def end(self): ...

    told = []
    timer, page = ManualTimer(on_error=lambda _, error: told.append(type(error))), Page()
    for callback in (weak_method(page.end), functools.partial(weak_method(page.end))):
        timer.after(5, callback)
    timer.advance(5)
    assert told == [TypeError, TypeError]


@pytest.mark.parametrize("no_method", [print, Session, Session.end, lambda: None, 5])
def test_only_a_method_of_an_object_can_be_weak__T8(no_method):
    with pytest.raises(TypeError, match=r"pass it as object\.method"):
        weak_method(no_method)


def test_pytest_finds_the_fixtures_by_itself__T15(pytester):
    pytester.makepyfile("""
        import asyncio
        import pytest

        def test_a_failing_callback_fails_the_test(manual_timer):
            manual_timer.after(60_000, pytest.fail, "the callback failed")
            manual_timer.advance(60_000)

        def test_a_year_takes_no_time(virtual_runner):
            assert virtual_runner.run(asyncio.sleep(31_536_000, "a year later")) == "a year later"

        def test_a_deadlock_is_told(virtual_runner):
            virtual_runner.run(asyncio.Event().wait())
    """)
    result = pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*the callback failed*", "*nothing can happen any more at 0 s*"])
    assert Path(pytester.path).exists()
