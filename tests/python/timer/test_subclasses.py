"""T22: a subclass of a timer takes its own `__init__`; settings belong to `__init__`."""

import gc
import inspect
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tickwheel import DelayedOperation, DelayedOperationPurgatory, SystemTimer, TimerTask, _native
from tickwheel.testing import ManualTimer
from timer.watching import executor_thread, refused, until

FIRST_TIMER = (
    "this timer is not initialized yet: call super().__init__() with the timer's settings first, in the __init__ of "
    "the subclass"
)
FIRST_PURGATORY = (
    "this purgatory is not initialized yet: call super().__init__() with its settings first, in the __init__ of the "
    "subclass"
)


class System(SystemTimer):
    def __init__(self, owner: int, *, tick_ms: int) -> None:
        super().__init__(f"of {owner}", tick_ms, on_error=self.failed)
        self.owner = owner
        self.errors: list[BaseException] = []

    def failed(self, task: object, error: BaseException) -> None:
        self.errors.append(error)


class Manual(ManualTimer):
    def __init__(self, owner: int) -> None:
        self.owner = owner
        super().__init__(start_ms=owner, on_error=lambda task, error: self.errors.append(error))
        self.errors: list[BaseException] = []


class Purgatory(DelayedOperationPurgatory):
    def __init__(self, owner: int) -> None:
        super().__init__(f"of {owner}", ManualTimer())
        self.owner = owner


class Waits(DelayedOperation):
    def try_complete(self) -> bool:
        return False


def fail() -> None:
    raise ValueError


def test_a_subclass_of_a_system_timer_takes_its_own_init__T22() -> None:
    with System(7, tick_ms=5) as timer:
        assert (timer.name, timer.owner, timer.snapshot()["levels"][0]["tick_ms"]) == ("of 7", 7, 5)
        timer.after(0, fail)
        until(lambda: len(timer.errors) == 1)
    assert executor_thread("of 7") is None


def test_a_subclass_of_a_manual_timer_takes_its_own_init__T22() -> None:
    timer = Manual(9)
    timer.after(1, fail)
    assert (timer.owner, timer.now_ms(), timer.advance(1), len(timer.errors)) == (9, 9, 1, 1)


def test_a_subclass_of_a_purgatory_takes_its_own_init__T22() -> None:
    purgatory = Purgatory(3)
    assert not purgatory.try_complete_else_watch(Waits(5), ["key"])
    assert (purgatory.owner, purgatory.name, len(purgatory), purgatory.watched) == (3, "of 3", 1, 1)


def never(kind: type) -> Any:
    """An instance of a subclass whose `__init__` forgot to call ours."""
    return type("Forgets", (kind,), {"__init__": lambda self, *args: None})(1, 2)


def timer_calls(timer: Any) -> dict[str, Callable[[], object]]:
    return {
        "name": lambda: timer.name,
        "unfinished": lambda: timer.unfinished,
        "now_ms": timer.now_ms,
        "now_us": timer.now_us,
        "len": lambda: len(timer),
        "add": lambda: timer.add(TimerTask(1, print)),
        "after": lambda: timer.after(1, print),
        "at": lambda: timer.at(1, print),
        "add_many": lambda: timer.add_many(memoryview(b"").cast("q"), print),
        "cancel_many": lambda: timer.cancel_many([]),
        "pending": timer.pending,
        "snapshot": timer.snapshot,
        "stats": timer.stats,
        "record": lambda: timer._record(1),
        "take recorded": lambda: timer._take_recorded(1),
        "stop recording": timer._stop_recording,
        "shutdown": timer.shutdown,
        "enter": timer.__enter__,
        "exit": lambda: timer.__exit__(None, None, None),
        "a purgatory on it": lambda: DelayedOperationPurgatory("p", timer),
    }


@pytest.mark.parametrize("kind", [SystemTimer, ManualTimer])
def test_every_method_of_a_timer_that_was_never_initialized_says_what_to_call__T22(kind: type) -> None:
    timer = never(kind)
    own = [lambda: timer.advance_clock(1)] if kind is SystemTimer else [lambda: timer.advance(1), timer.run_next]
    own += [] if kind is SystemTimer else [lambda: timer.advance_to(1)]
    for call in [*timer_calls(timer).values(), *own]:
        refused(RuntimeError, FIRST_TIMER, call)
    assert bool(timer)
    assert repr(timer) == "<Forgets not initialized>"


def test_every_method_of_a_purgatory_that_was_never_initialized_says_what_to_call__T22() -> None:
    purgatory = never(DelayedOperationPurgatory)
    calls: list[Callable[[], object]] = [
        lambda: purgatory.name,
        lambda: purgatory.timer,
        lambda: purgatory.watched,
        lambda: purgatory.num_delayed,
        lambda: purgatory.unfinished,
        lambda: len(purgatory),
        lambda: purgatory.try_complete_else_watch(Waits(1), ["key"]),
        lambda: purgatory.check_and_complete("key"),
        lambda: purgatory.cancel_for_key("key"),
        purgatory.stats,
        purgatory.shutdown,
        purgatory.__enter__,
        lambda: purgatory.__exit__(None, None, None),
    ]
    for call in calls:
        refused(RuntimeError, FIRST_PURGATORY, call)
    assert bool(purgatory)
    assert repr(purgatory) == "<Forgets not initialized>"


@pytest.mark.parametrize("kind", [SystemTimer, ManualTimer, DelayedOperationPurgatory])
def test_one_that_was_never_initialized_is_collected__T22(kind: type) -> None:
    one = never(kind)
    one.me = one
    gone = weakref.ref(one)
    gc.collect()
    del one
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("kind", [SystemTimer, ManualTimer, DelayedOperationPurgatory])
def test_a_second_initialization_is_refused_and_changes_nothing__T22(kind: type) -> None:
    word = "purgatory" if kind is DelayedOperationPurgatory else "timer"
    with kind("first") as one:
        before, running = {*threading.enumerate()}, len(_native._running_timers)  # type: ignore[attr-defined]
        refused(
            RuntimeError,
            f"{word} 'first' is initialized already, and nothing was changed: make a new one for other settings",
            lambda: one.__init__("second"),
        )
        assert one.name == "first"
        assert {*threading.enumerate()} - before == set()  # a thread that an earlier test left may end meanwhile
        assert len(_native._running_timers) == running  # type: ignore[attr-defined]


def test_a_bad_setting_leaves_it_uninitialized_and_it_may_be_tried_again__T22() -> None:
    timer = ManualTimer.__new__(ManualTimer)
    with pytest.raises(ValueError, match=r"^tick_ms must be"):
        timer.__init__(tick_ms=0)  # type: ignore[misc]
    refused(RuntimeError, FIRST_TIMER, timer.now_ms)
    timer.__init__(start_ms=4)  # type: ignore[misc]
    assert timer.now_ms() == 4


def test_a_setting_whose_conversion_uses_the_timer_finds_it_uninitialized__T22() -> None:
    class Size:
        def __index__(self) -> int:
            refused(RuntimeError, FIRST_TIMER, timer.now_ms)
            timer.__init__("inner")  # type: ignore[misc]
            return 20

    timer = SystemTimer.__new__(SystemTimer)
    before = {*threading.enumerate()}
    with pytest.raises(RuntimeError, match="'inner' is initialized already"):
        timer.__init__("outer", wheel_size=[Size()])  # type: ignore[misc]
    assert (timer.name, len({*threading.enumerate()} - before)) == ("inner", 1)
    timer.shutdown()


@pytest.mark.parametrize(
    ("kind", "first"), [(SystemTimer, "name"), (ManualTimer, "name"), (DelayedOperationPurgatory, "name")]
)
def test_the_signature_of_the_class_shows_its_settings__T22(kind: type, first: str) -> None:
    parameters = inspect.signature(kind).parameters
    assert next(iter(parameters)) == first
    assert "on_error" in parameters
    with pytest.raises(TypeError):
        kind("x", unknown=1)


@pytest.mark.parametrize("settings", [{}, {"reaper": False}])
def test_a_subclass_whose_init_raises_after_ours_leaves_no_thread__T22(settings: dict[str, Any]) -> None:
    class Fails(SystemTimer):
        def __init__(self) -> None:
            super().__init__("fails-late", **settings)
            raise LookupError

    before = len(_native._running_timers)  # type: ignore[attr-defined]
    with pytest.raises(LookupError):
        Fails()
    until(lambda: executor_thread("fails-late") is None)
    until(lambda: len(_native._running_timers) == before)  # type: ignore[attr-defined]
