"""debounce and throttle: what they keep, and what they refuse (T13, T21)."""

import asyncio
import copy
import gc
import math
import pickle
import weakref
from contextvars import ContextVar
from typing import Any

import pytest

from tickwheel import aio
from tickwheel.testing import VirtualLoop

pytestmark = pytest.mark.timeout(30)
both = pytest.mark.parametrize("quiet", [aio.debounce, aio.throttle])
on_both = pytest.mark.parametrize("loop_factory", [asyncio.SelectorEventLoop, VirtualLoop])


def run(coroutine: Any) -> Any:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


class Page:
    """What a call has as an argument."""


@both
@on_both
def test_a_closed_loop_and_what_it_was_called_with_is_freed__T21(quiet: Any, loop_factory: Any) -> None:
    called = quiet(0.001)(lambda page: None)

    async def main(page: Page) -> None:
        for _ in range(3):
            called(page)
        await asyncio.sleep(0.01)
        called(page)

    loop, page = loop_factory(), Page()
    gone = [weakref.ref(loop), weakref.ref(page)]
    loop.run_until_complete(main(page))
    loop.close()
    del loop, page
    gc.collect()
    assert [it() for it in gone] == [None, None]


@both
@pytest.mark.filterwarnings("ignore:unclosed")
def test_a_loop_that_is_left_with_a_call_pending_is_freed__T21(quiet: Any) -> None:
    called = quiet(60)(lambda: None)

    async def main() -> None:
        called()
        called()

    loop = asyncio.SelectorEventLoop()
    gone = weakref.ref(loop)
    loop.run_until_complete(main())
    del loop
    for _ in range(2):  # the first one calls its finalizer
        gc.collect()
    assert gone() is None


def test_a_loop_keeps_nothing_of_a_call_that_has_come__T21() -> None:
    async def main() -> None:
        called = aio.debounce(1)(Page)  # as one that is decorated for each object
        gone = weakref.ref(called)
        called()
        await asyncio.sleep(2)
        del called
        gc.collect()
        assert gone() is None

    run(main())


def test_a_call_that_waits_is_seen_dropped_and_made_at_once__T21() -> None:
    class Page:
        def __init__(self) -> None:
            self.saved: list[str] = []

        @aio.debounce(1)
        def save(self, text: str, *, end: str = "") -> int:
            self.saved.append(text + end)
            return len(self.saved)

    async def main() -> None:
        page = Page()
        assert (page.save.is_pending(), page.save.cancel(), page.save.flush()) == (False, False, None)
        page.save("a")
        assert page.save.is_pending()
        assert page.save.cancel()
        await asyncio.sleep(3)
        page.save("b")
        page.save("c", end=".")
        assert page.save.flush() == 1
        assert page.saved == ["c."]
        assert not page.save.is_pending()
        await asyncio.sleep(3)
        assert page.saved == ["c."]
        page.save("d")
        await asyncio.sleep(3)
        assert (page.saved, page.save.is_pending()) == (["c.", "d"], False)

    run(main())


@aio.debounce(1)
def kept(**named: str) -> None:
    saved.append(named["self"])


saved: list[str] = []


def test_a_debounced_function_is_pickled_by_its_name__T21() -> None:
    assert pickle.loads(pickle.dumps(kept)) is kept
    assert copy.deepcopy(kept) is kept

    async def main() -> None:
        kept(self="me")
        kept.flush()

    run(main())
    assert saved == ["me"]


@on_both
def test_a_flush_of_a_coroutine_function_gives_its_task__T21(loop_factory: Any) -> None:
    @aio.debounce(1)
    async def save(text: str) -> str:
        await asyncio.sleep(0.001)
        return text

    async def main() -> None:
        save("a")
        assert await save.flush() == "a"

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


@on_both
def test_the_report_of_a_failed_call_names_the_function__T21(loop_factory: Any) -> None:
    @aio.debounce(0.001)
    def fail() -> None:
        raise ZeroDivisionError

    told: list[str] = []

    async def main() -> None:
        came = asyncio.Event()

        def note(_: Any, context: dict[str, Any]) -> None:
            told.append(context["message"])
            came.set()

        asyncio.get_running_loop().set_exception_handler(note)
        fail()
        await asyncio.wait_for(came.wait(), 20)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())
    assert [("fail" in text, "None" in text) for text in told] == [(True, False)], told


def test_a_flush_runs_in_the_context_of_the_call_and_raises_what_it_raises__T21() -> None:
    user = ContextVar("user", default="nobody")
    seen: list[str] = []

    @aio.debounce(1)
    def fail() -> None:
        seen.append(user.get())
        raise ZeroDivisionError

    async def main() -> None:
        token = user.set("me")
        fail()
        user.reset(token)
        with pytest.raises(ZeroDivisionError):
            fail.flush()
        assert (seen, fail.is_pending()) == (["me"], False)

    run(main())


@pytest.mark.parametrize(
    ("make", "says"),
    [
        pytest.param(lambda: aio.debounce(print), "<built-in function print>: pass a number", id="without parentheses"),  # type: ignore[arg-type]
        pytest.param(lambda: aio.throttle(print), "<built-in function print>: pass a number", id="throttle without"),  # type: ignore[arg-type]
        pytest.param(lambda: aio.debounce("5"), "got str '5'", id="text"),  # type: ignore[arg-type]
        pytest.param(lambda: aio.throttle(None), "got None", id="None"),  # type: ignore[arg-type]
        pytest.param(lambda: aio.throttle(math.nan), "got nan", id="nan"),
    ],
)
def test_bad_input_is_refused_at_once__T13(make: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        make()
