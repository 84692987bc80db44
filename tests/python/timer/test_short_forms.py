"""T19 and the task itself: `after` and `at` in one call, tasks with arguments and a name, subclasses with `run()`."""

import types
import weakref
from typing import Any

import pytest

from tickwheel import TimerTask
from tickwheel.testing import ManualTimer


class Call:
    """Something to call that a weak reference can watch."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def __call__(self, *args: Any) -> None:
        self.seen.append(args)


def test_after_adds_a_one_shot_task_and_returns_it__T19() -> None:
    timer, call = ManualTimer(), Call()
    task = timer.after(20, call, "a", 2)
    assert type(task) is TimerTask
    assert (task.delay_ms, task.name, timer.pending()) == (20, None, [(20, task)])
    timer.advance(100)
    assert (call.seen, task.cancel()) == ([("a", 2)], False)


def test_at_is_the_same_at_an_instant_of_the_timers_clock__T19() -> None:
    timer, call = ManualTimer(start_ms=1000), Call()
    task = timer.at(1020.5, call, "a", 2)
    assert (task.delay_ms, timer.pending()) == (20.5, [(1020.5, task)])
    assert timer.at(5, call).delay_ms == 0
    timer.advance(20.5)
    assert call.seen == [(), ("a", 2)]


@pytest.mark.parametrize("end", ["run", "cancel", "cancel_many"])
@pytest.mark.parametrize("form", ["after", "at"])
def test_a_one_shot_lets_go_of_its_callback_and_arguments_when_it_ends__T19(form: str, end: str) -> None:
    timer, call, arg = ManualTimer(), Call(), Call()
    task = getattr(timer, form)(20, call, arg)
    watches = [weakref.ref(call), weakref.ref(arg)]
    del call, arg
    assert [watch() is None for watch in watches] == [False, False]
    match end:
        case "run":
            timer.advance(20)
        case "cancel":
            task.cancel()
        case _:
            timer.cancel_many([task])
    assert [watch() for watch in watches] == [None, None]


def test_a_one_shot_lets_go_although_its_callback_failed__T19() -> None:
    told: list[type[BaseException]] = []
    timer = ManualTimer(on_error=lambda _, error: told.append(type(error)))
    arg = Call()
    watch = weakref.ref(arg)
    task = timer.after(5, int, arg)
    del arg
    timer.advance(5)
    assert (told, watch(), task.cancel()) == ([TypeError], None, False)


@pytest.mark.parametrize("end", ["run", "cancel"])
def test_a_one_shot_that_has_ended_cannot_be_added_again__T19(end: str) -> None:
    timer = ManualTimer()
    task = timer.after(5, int)
    if end == "run":
        timer.advance(5)
    else:
        task.cancel()
    with pytest.raises(
        ValueError, match=r"made by after\(\) or at\(\) and has ended: make a TimerTask to add it again$"
    ):
        timer.add(task)
    with pytest.raises(ValueError, match=r"^this task has nothing to run: it was made by after\(\) or at\(\) and has"):
        task.run()
    assert len(timer) == 0


def test_a_one_shot_that_is_pending_may_be_moved__T19() -> None:
    timer, call = ManualTimer(), Call()
    task = timer.after(20, call)
    timer.advance(15)
    timer.add(task)
    assert timer.pending() == [(35, task)]
    timer.advance(20)
    assert call.seen == [()]


def test_a_one_shot_lets_go_of_itself_too__T19() -> None:
    timer = ManualTimer()
    watches = [weakref.ref(timer.after(5, int)), weakref.ref(timer.after(500, int))]
    timer.advance(5)
    assert [watch() is None for watch in watches] == [True, False]


def test_a_task_has_arguments_and_a_name__T19() -> None:
    timer, call = ManualTimer(), Call()
    task = TimerTask(1.5, call, 1, "two", name="greet")
    assert (task.delay_ms, task.name) == (1.5, "greet")
    timer.add(task)
    timer.advance(2)
    task.run()
    assert call.seen == [(1, "two"), (1, "two")]


@pytest.mark.parametrize(("given", "shown"), [(5, 5), (5.0, 5), (0.25, 0.25), (-3, -3), (0, 0)])
def test_delay_ms_is_what_was_given__T1(given: float, shown: float) -> None:
    assert TimerTask(given, print).delay_ms == shown


def test_a_task_keeps_its_callback_for_the_next_add__T19() -> None:
    timer, call = ManualTimer(), Call()
    task = TimerTask(5, call)
    for _ in range(3):
        timer.add(task)
        timer.advance(5)
    timer.add(task)
    task.cancel()
    timer.add(task)
    timer.advance(5)
    assert call.seen == [()] * 4


def test_a_subclass_overrides_run__T19() -> None:
    class Ping(TimerTask):
        def __init__(self, delay_ms: float, host: str) -> None:
            super().__init__(delay_ms, name=f"ping {host}")
            self.host = host
            self.runs = 0

        def run(self) -> str:
            self.runs += 1
            return self.host

    timer, task = ManualTimer(), Ping(5, "a")
    timer.add(task)
    assert (timer.pending(), task.name) == ([(5, task)], "ping a")
    timer.advance(5)
    timer.add(task)
    timer.advance(5)
    assert task.runs == 2


def test_a_subclass_may_call_the_run_it_overrides__T19() -> None:
    class Logged(TimerTask):
        def run(self) -> None:
            order.append("before")
            super().run()
            order.append("after")

    order: list[str] = []
    timer = ManualTimer()
    timer.add(Logged(5, order.append, "callback"))
    timer.advance(5)
    assert order == ["before", "callback", "after"]


def test_a_subclass_without_a_run_of_its_own_runs_its_callback__T19() -> None:
    class Tagged(TimerTask):
        tag = "x"

    timer, call = ManualTimer(), Call()
    timer.add(Tagged(5, call, 1))
    timer.advance(5)
    assert call.seen == [(1,)]


def test_a_pending_task_cannot_be_initialized_again__T7() -> None:
    timer, call = ManualTimer(), Call()
    task = TimerTask(5, call)
    timer.add(task)
    with pytest.raises(ValueError, match=r"^this task is pending: cancel it before it is initialized again$"):
        task.__init__(9, print)  # type: ignore[misc]
    assert task.delay_ms == 5
    timer.advance(5)
    assert call.seen == [()]


def test_a_repr_says_what_and_whether_it_is_pending__T14() -> None:
    class Ping(TimerTask):
        def run(self) -> None: ...

    timer = ManualTimer("clock")
    named, ping = TimerTask(5, print, name="greet"), Ping(5)
    assert repr(named) == "<TimerTask 'greet'>"
    timer.add(named)
    timer.add(ping)
    assert repr(named) == "<TimerTask 'greet' pending>"
    assert repr(ping) == "<Ping pending>"
    assert repr(timer.after(5, print)) == "<TimerTask <built-in function print> pending>"
    assert repr(timer) == "<ManualTimer 'clock' 3 pending>"
    timer.shutdown()
    assert repr(named) == "<TimerTask 'greet'>"
    assert repr(timer) == "<ManualTimer 'clock' shut down, 3 unfinished>"


def test_keyword_arguments_reach_the_callback__T19():
    timer, came = ManualTimer(), []

    def note(*args, **kwargs):
        came.append((args, kwargs))

    tasks = [
        timer.after(5, note, 1, kwargs={"name": "a", "context": "b"}),
        timer.after(5, note, kwargs=types.MappingProxyType({"key": 2})),
        timer.after(5, note, 3, kwargs={}, name="three"),
    ]
    assert [task.args for task in tasks] == [(1,), (), (3,)]
    assert tasks[0].callback.keywords == {"name": "a", "context": "b"}
    shown = str(timer.snapshot())
    assert "note" in shown
    assert "three" in shown
    timer.advance(5)
    assert came == [((1,), {"name": "a", "context": "b"}), ((), {"key": 2}), ((3,), {})]


@pytest.mark.parametrize(
    ("callback", "kwargs", "text"),
    [
        (print, 5, "kwargs must map the names of keyword arguments to values, got int 5: pass a dict"),
        (print, [("end", "")], "kwargs must map the names"),
        (5, {}, "callback must be callable"),
    ],
)
def test_keyword_arguments_that_are_none_are_refused__T13_T19(callback, kwargs, text):
    timer = ManualTimer()
    with pytest.raises(TypeError, match=text):
        timer.after(5, callback, kwargs=kwargs)
    assert len(timer) == 0


def test_a_coroutine_function_with_keyword_arguments_is_refused_as_any__T8_T19():
    async def call(**_):
        pass

    timer = ManualTimer()
    with pytest.raises(TypeError, match="is a coroutine function, which only an asyncio loop can run"):
        timer.after(5, call, kwargs={"key": 1})
