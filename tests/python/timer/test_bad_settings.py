"""T13: a bad setting is refused with what was given, what is allowed and what to do."""

import asyncio
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest

from tickwheel import DelayedOperationPurgatory, SystemTimer, Timer
from tickwheel.testing import ManualTimer
from timer.watching import refused, wait

LIMIT = 2**52
HUGE = 10**5000
"""More digits than Python turns into text."""

RANGES: list[tuple[str, str, str, list[Any]]] = [
    ("tick_ms", "from 1 to 4503599627370495", "use 1 for a millisecond", [0, -1, LIMIT, 10**30, -(10**30)]),
    (
        "wheel_size",
        "from 2 to 65536",
        "use 20, or one size per level as in (60, 60, 12)",
        [0, 1, -20, 65_537, 10**30],
    ),
    ("start_ms", "from 0 to 4503599627370495", "leave it out for the default clock", [-1, -(10**30), LIMIT]),
    ("max_pending", "from 1 to 18446744073709551615", "leave it out for no bound", [0, -1, 2**64]),
    ("slack_us", "from 0 to 4503599627370495", "use 100 for at most 10,000 wake-ups a second", [-1, LIMIT]),
]
NOT_INTS: list[tuple[Any, str]] = [(True, "bool True"), (1.5, "float 1.5"), ("1", "str '1'"), (1j, "complex 1j")]

SETTINGS: list[tuple[str, Any, type[Exception], str]] = [
    *(
        (name, value, ValueError, f"{name} must be {allowed}, got {value}: {hint}")
        for name, allowed, hint, values in RANGES
        for value in values
    ),
    *(
        (name, value, TypeError, f"{name} must be an int, got {given}: {hint}")
        for name, _, hint, _ in RANGES
        for value, given in NOT_INTS
    ),
    *(
        ("wheel_size", value, error, f"wheel_size must be {text}: use 20, or one size per level as in (60, 60, 12)")
        for value, error, text in [
            ((20, 1), ValueError, "from 2 to 65536, got 1"),
            ((65_537, 20), ValueError, "from 2 to 65536, got 65537"),
            (["20"], TypeError, "an int, got str '20'"),
            ([20, False], TypeError, "an int, got bool False"),
        ]
    ),
    ("wheel_size", (), ValueError, "wheel_size must name at least one level, got none: use 20"),
    *(
        (
            "precision",
            value,
            ValueError,
            f"precision must be 'exact' or 'tick', got {value!r}: 'tick' is up to one tick early, as in Kafka",
        )
        for value in ("x", "EXACT", "", 1, b"tick", True)
    ),
    *(
        (name, None, TypeError, f"{name} must be an int, got NoneType None: {hint}")
        for name, _, hint, _ in RANGES
        if name not in {"start_ms", "max_pending"}  # there it is what leaves the setting out
    ),
    (
        "precision",
        None,
        ValueError,
        "precision must be 'exact' or 'tick', got None: 'tick' is up to one tick early, as in Kafka",
    ),
    (
        "name",
        "a\ud800b",
        ValueError,
        "name must be text that UTF-8 can encode, got 'a\\ud800b': remove unpaired surrogates",
    ),
    ("on_error", 3, TypeError, "on_error must be callable, got int 3: pass a function, or a lambda"),
    ("name", 3, TypeError, "name must be text, got int: it names the timer's threads and its errors"),
    ("name", b"x", TypeError, "name must be text, got bytes: it names the timer's threads and its errors"),
]


@pytest.mark.parametrize(
    ("kind", "name", "value", "error", "message"),
    [
        (kind, *setting)
        for kind in (SystemTimer, ManualTimer)
        for setting in SETTINGS
        if kind is SystemTimer or setting[0] != "slack_us"  # a manual timer has no reaper to spare
    ],
)
def test_a_bad_setting_is_refused__T13(
    kind: type[Timer], name: str, value: object, error: type[Exception], message: str
) -> None:
    refused(error, message, lambda: kind(**{"name": "bad", name: value}))


@pytest.mark.parametrize("wheel_size", [b"20", {20: 1}, {20, 30}])
def test_a_wheel_size_that_is_no_sequence_of_ints_is_refused__T13(wheel_size: Any) -> None:
    with pytest.raises(TypeError, match="wheel_size must be"):
        ManualTimer(wheel_size=wheel_size)


@pytest.mark.parametrize("executor", [3, "threads", print])
def test_something_that_is_no_executor_is_refused__T13(executor: Any) -> None:
    given = type(executor).__name__
    message = (
        f"executor must be a concurrent.futures.Executor of threads or an asyncio loop, got {given}: leave it out for "
        "a thread of the timer's own"
    )
    refused(TypeError, message, lambda: SystemTimer("bad", executor=executor))


@pytest.mark.parametrize("executor", [ThreadPoolExecutor, asyncio.SelectorEventLoop])
def test_a_class_of_executors_is_refused__T13(executor: Any) -> None:
    message = (
        "executor must be a concurrent.futures.Executor of threads or an asyncio loop, got the class "
        f"{executor.__name__}: make one, as in executor={executor.__name__}()"
    )
    refused(TypeError, message, lambda: SystemTimer("bad", executor=executor))


@pytest.mark.parametrize(("given", "shown"), [(2, "int 2"), (None, "NoneType None"), ("no", "str 'no'")])
def test_a_flag_is_true_or_false__T13(given: Any, shown: str) -> None:
    message = f"reaper must be True or False, got {shown}: with False call advance_clock"
    refused(TypeError, message, lambda: SystemTimer("bad", reaper=given))
    message = f"timer_enabled must be True or False, got {shown}: with False no deadline is set"
    refused(TypeError, message, lambda: DelayedOperationPurgatory("bad", ManualTimer(), given))


def test_an_executor_of_processes_is_refused__T13() -> None:
    message = (
        "executor must be a concurrent.futures.Executor of threads or an asyncio loop, got ProcessPoolExecutor, which "
        "runs tasks in other processes: leave it out for a thread of the timer's own"
    )
    with ProcessPoolExecutor(1) as processes:
        refused(TypeError, message, lambda: SystemTimer("bad", executor=processes))


def test_an_executor_of_interpreters_is_refused__T8_T13(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there from 3.14 on; a class of the same name in a module of the same name stands for it."""
    module = ModuleType("concurrent.futures.interpreter")
    kind = type("InterpreterPoolExecutor", (ThreadPoolExecutor,), {})
    monkeypatch.setattr(module, kind.__name__, kind, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    message = (
        "executor must be a concurrent.futures.Executor of threads or an asyncio loop, got InterpreterPoolExecutor, "
        "which runs tasks in other interpreters: leave it out for a thread of the timer's own"
    )
    with kind(1) as interpreters:
        refused(TypeError, message, lambda: SystemTimer("bad", executor=interpreters))


@pytest.mark.parametrize("stand_in", [None, ModuleType("half_imported")])
def test_a_module_of_executors_that_is_blocked_or_half_imported_refuses_nothing__T8(
    monkeypatch: pytest.MonkeyPatch, stand_in: ModuleType | None
) -> None:
    monkeypatch.setitem(sys.modules, "concurrent.futures.process", stand_in)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "concurrent.futures.interpreter", stand_in)  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as threads, SystemTimer("good", executor=threads) as timer:
        ran = threading.Event()
        timer.after(0, ran.set)
        wait(ran)


@pytest.mark.parametrize("setting", ["tick_ms", "wheel_size", "start_ms", "max_pending"])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_int_too_long_to_print_is_refused_by_its_name__T13(setting: str, sign: int) -> None:
    with pytest.raises(ValueError, match=f"^{setting} must be "):
        ManualTimer(**{setting: sign * HUGE})
