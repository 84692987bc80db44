import asyncio
import gc
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from delivery.delivering import LONG_S, Run, given_up, to_function
from tickwheel.delivery import Delivery, DeliveryFailed, DeliveryQueue, Message, Unanswered, Unavailable
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.model.retry import Retry
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.sinks import CoroutineFunction, Destination, open_sink, sink_of_function

pytestmark = pytest.mark.timeout(30)

JSON = msgspec.Raw(b'{"x": 1.50}')


def message(id_: str, payload: msgspec.Raw | bytes = JSON, key: str | None = None) -> Message:
    return Message(id_, key, 1, payload)


def reasons(folder: Path, to: Destination | Callable[[Delivery], object], *messages: Message) -> dict[str, str]:
    """Delivers these by one attempt each, and returns the reasons of those that were given up."""
    opener = to if isinstance(to, Destination) else to_function(to)
    return given_up(folder, opener, *(messages or [message("a")]))


def destination(spec: str) -> Destination:
    found = open_sink(spec)
    assert isinstance(found, Destination)
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which is not on the path yet."""
    import sys

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return tmp_path


def test_the_function_gets_the_delivery_as_it_is__D10(tmp_path: Path) -> None:
    seen: list[Delivery] = []
    assert reasons(tmp_path, seen.append, message("a", key="k"), message("b", b"\xff\x00")) == {}
    first, second = sorted(seen, key=lambda it: it.message.id)
    assert (first.message.id, first.message.key, first.message.due_ms, first.attempt) == ("a", "k", 1, 1)
    assert isinstance(first.message.payload, msgspec.Raw)
    assert msgspec.json.decode(first.message.payload) == {"x": 1.5}
    assert second.message.payload == b"\xff\x00"
    assert not second.redelivered


def test_what_it_raises_is_a_failed_attempt_of_that_message_alone__D6(tmp_path: Path) -> None:
    def function(one: Delivery) -> None:
        if one.message.id == "b":
            raise ValueError("no such customer")

    failed = reasons(tmp_path, function, message("a"), message("b"), message("c"))
    assert failed == {"b": "ValueError: no such customer"}


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("never")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError(), "CancelledError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (DeliveryFailed("all is over"), "DeliveryFailed: all is over"),
        (Unspeakable(), "Unspeakable: its text can't be read"),
        (ValueError("x" * 5000), "ValueError: " + "x" * 988),
    ],
)
def test_nothing_it_raises_ends_the_thread_or_the_run__D6(tmp_path: Path, error: BaseException, reason: str) -> None:
    def function(one: Delivery) -> None:
        if one.message.id == "a":
            raise error

    assert reasons(tmp_path, function, message("a"), message("b")) == {"a": reason}


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("closed for lunch", retry_after_s=0.05),
        ConnectionRefusedError("nobody there"),
        BrokenPipeError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_says_that_nothing_can_be_told_makes_its_key_wait_and_costs_no_attempt__D6(
    tmp_path: Path, error: Exception
) -> None:
    raised = [error]
    seen: list[Delivery] = []
    other, third_try = threading.Event(), threading.Event()

    def function(one: Delivery) -> None:
        if one.message.key == "k":
            seen.append(one)
            if one.attempt == 3:
                third_try.set()
            if raised:
                raise raised[0]
        else:
            other.set()

    with Run(tmp_path, to_function(function), Settings(retry=Retry(1, waits_ms=(20.0,)))) as run:
        run.give(*(message(str(number), key="k") for number in range(3)), message("other"))
        assert other.wait(LONG_S)
        assert third_try.wait(LONG_S)
        assert run.running.engine.down is None, "it is one key"
        assert {one.message.id for one in seen} == {"0"}
        raised.clear()
        tries = len(seen)
        assert run.running.wait(LONG_S)
    assert run.letters == []
    assert [one.message.id for one in seen[-3:]] == ["0", "1", "2"]
    assert tries <= len(seen) - 2, "a try may have been under way"
    assert seen[-3].redelivered == isinstance(error, BrokenPipeError), "it may have arrived"


SLOW = [TimeoutError("too slow"), Unanswered("TimeoutError: too slow")]


@pytest.mark.parametrize("error", SLOW, ids=lambda error: type(error).__name__)
def test_without_any_answer_it_is_a_dead_letter_by_its_time__D6(tmp_path: Path, error: Exception) -> None:
    def function(one: Delivery) -> None:
        raise error

    with Run(tmp_path, to_function(function), Settings(retry=Retry(1, 10, 10), unanswered_for_s=1)) as run:
        run.deliver(message("a"))
    [letter] = run.letters
    assert letter.reason.endswith("no success in 1 s (--unanswered-for), at last: TimeoutError: too slow")


@pytest.mark.parametrize("error", SLOW, ids=lambda error: type(error).__name__)
def test_without_any_answer_five_keys_are_down_and_cost_no_message__D6(tmp_path: Path, error: Exception) -> None:
    is_slow = [True]

    def function(one: Delivery) -> None:
        if is_slow:
            raise error

    with Run(tmp_path, to_function(function), Settings(retry=Retry(1, 10, 10))) as run:
        run.give(*(message(str(number)) for number in range(8)))
        while run.running.engine.down is None:  # the test's own time limit ends this
            time.sleep(0.01)
        assert run.running.engine.down == "TimeoutError: too slow"
        is_slow.clear()
        assert run.running.wait(LONG_S)
    assert run.letters == []


def test_what_it_returns_does_not_matter__D10(tmp_path: Path) -> None:
    assert reasons(tmp_path, lambda one: False) == {}


async def coroutine(_one: Delivery) -> None: ...


def generator(_one: Delivery) -> Iterator[int]:
    yield 1


async def async_generator(_one: Delivery) -> AsyncIterator[int]:
    yield 1


class Asynchronous:
    async def __call__(self, _one: Delivery) -> None: ...


@pytest.mark.parametrize("function", [generator, async_generator, partial(generator)])
def test_a_function_that_would_run_nothing_is_refused_at_once__D10(function: Callable[[Delivery], object]) -> None:
    with pytest.raises(WrongUsage, match="ordinary or a coroutine function"):
        sink_of_function(function)


@pytest.mark.parametrize("function", [coroutine, Asynchronous(), partial(coroutine)])
def test_each_form_of_a_coroutine_function_is_found__D10(function: Callable[[Delivery], object]) -> None:
    assert isinstance(sink_of_function(function), CoroutineFunction)


@pytest.mark.parametrize("inner", [coroutine, generator, async_generator])
def test_a_hidden_coroutine_is_a_failed_attempt_and_not_a_lost_message__D10(
    tmp_path: Path, inner: Callable[[Delivery], object]
) -> None:
    assert "which is never run" in reasons(tmp_path, lambda one: inner(one))["a"]


def test_what_can_not_be_called_is_refused__D10() -> None:
    with pytest.raises(WrongUsage, match="can't be called"):
        sink_of_function(5)  # type: ignore[arg-type]


def test_a_destination_in_a_reference_cycle_is_collected__rule8() -> None:
    class Shop:
        def __init__(self) -> None:
            self.destination = sink_of_function(self.send)

        def send(self, _: Delivery) -> None: ...

    kept = weakref.ref(Shop())
    gc.collect()
    assert kept() is None


def test_a_module_in_the_current_folder_is_found__D10(here: Path) -> None:
    (here / "mailer_here.py").write_text("seen = []\ndef send(d):\n    seen.append(d.message.id)\n")
    assert reasons(here, destination("python:mailer_here:send"), message("a\n\0b")) == {}
    import mailer_here  # type: ignore[import-not-found]

    assert mailer_here.seen == ["a\n\0b"]


def test_a_module_in_a_package_is_found__D10(here: Path) -> None:
    (here / "shop_here").mkdir()
    (here / "shop_here" / "__init__.py").touch()
    (here / "shop_here" / "mail.py").write_text("def send(d): raise KeyError(d.message.id)\n")
    assert reasons(here, destination("python:shop_here.mail:send")) == {"a": "KeyError: 'a'"}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("python:", "names no function"),
        ("python:json", "names no function"),
        ("python:json:", "names no function"),
        ("python::dumps", "names no function"),
        ("python:json:a.b", "names no function"),
        ("python:json:dumps:x", "names no function"),
        ("python:../x:f", "names no function"),
        ("python:no_such_module_here:f", "there is no module no_such_module_here"),
        ("python:json.no_such:f", "there is no module json.no_such"),
        ("python:no_such_package.mail:f", "there is no module no_such_package.mail"),
        ("python:json:no_such", "the module json has no no_such"),
        ("python:json:__name__", "can't be called"),
        ("python:lazy_here:f", "ordinary or a coroutine function"),
        ("python:broken_here:f", "can't be imported: ZeroDivisionError: division by zero"),
        ("python:needy_here:f", "can't be imported: ModuleNotFoundError: No module named 'not_there_either'"),
        ("python:leaving_here:f", "can't be imported: SystemExit: 0"),
    ],
)
def test_a_function_that_is_not_there_is_wrong_usage__D10(here: Path, spec: str, problem: str) -> None:
    (here / "broken_here.py").write_text("1 / 0\n")
    (here / "lazy_here.py").write_text("def f(d): yield d\n")
    (here / "needy_here.py").write_text("import not_there_either\n")
    (here / "leaving_here.py").write_text("raise SystemExit(0)\n")
    with pytest.raises(WrongUsage) as error:
        open_sink(spec)
    assert problem in str(error.value)


# --- Many messages, one thread or eight ------------------------------------


def sends_for(folder: Path, function: Callable[[Delivery], object], count: int) -> int:
    """How many sends the engine makes for so many messages without a key."""
    with Run(folder, to_function(function), Settings(concurrency=1), starts=False) as run:
        run.give(*(message(str(number)) for number in range(count)))
        run.running.start()
        assert run.running.wait(LONG_S)
        _, counts, _ = run.running.engine.measures().send_durations
        return sum(counts)


def test_each_send_is_one_call_of_the_function__D10(tmp_path: Path) -> None:
    assert sends_for(tmp_path, lambda one: None, 100) == 100


def test_eight_threads_may_be_in_the_function_at_a_time__D10(tmp_path: Path) -> None:
    together = threading.Barrier(8)
    with DeliveryQueue(tmp_path / "store.db", to=lambda one: together.wait(LONG_S)) as queue:
        queue.put_many([message(str(number)) for number in range(8)])
        assert queue.wait_until_empty(LONG_S)
    assert queue.summary.delivered == 8


def test_a_slow_call_holds_up_no_other_message_and_its_cut_off_is_about_it_alone__D4_D6(tmp_path: Path) -> None:
    others = threading.Event()
    over = threading.Event()
    seen: list[tuple[str, int]] = []

    def function(one: Delivery) -> None:
        seen.append((one.message.id, one.attempt))
        if one.message.id == "slow" and one.attempt == 1:
            over.wait(LONG_S)
        if len(seen) == 3_001:
            others.set()

    with DeliveryQueue(tmp_path / "store.db", to=function, sink_timeout_s=1) as queue:
        queue.put_many([message(str(number)) for number in range(2_000)])  # it is known as fast after these
        assert queue.wait_until_empty(LONG_S)
        many = [message(str(number)) for number in range(2_000, 3_000)]
        queue.put_many([*many[:300], message("slow"), *many[300:]])
        assert others.wait(LONG_S)
        assert ("slow", 2) not in seen
        assert queue.wait_until_empty(LONG_S)
        over.set()
    assert sorted(seen) == sorted([*((str(number), 1) for number in range(3_000)), ("slow", 1), ("slow", 2)])
    assert queue.summary.delivered == 3_001


def test_messages_of_a_key_stay_in_order_in_however_many_threads__D4(tmp_path: Path) -> None:
    inside: defaultdict[str | None, int] = defaultdict(int)
    seen: defaultdict[str | None, list[int]] = defaultdict(list)

    def function(one: Delivery) -> None:
        key, number = one.message.key, int(one.message.id)
        inside[key] += 1
        assert inside[key] == 1
        if number % 97 == 0:
            time.sleep(0.005)
        seen[key].append(number)
        inside[key] -= 1

    with DeliveryQueue(tmp_path / "store.db", to=function, max_attempts=1) as queue:
        queue.put_many([Message(str(number), f"k{number % 20}", 1 + number, JSON) for number in range(2_000)])
        assert queue.wait_until_empty(LONG_S)
    assert queue.summary.delivered == 2_000
    assert all(numbers == sorted(numbers) and len(numbers) == 100 for numbers in seen.values())
