"""D6: `unavailable=` names the exceptions by which a function says that the receiver of a message is away."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery import AsyncDeliveryQueue, Delivery, DeliveryQueue, Unanswered, Unavailable
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.sinks import Destination, Refusals, Sink
from tickwheel.delivery.sinks.python import sink_of

LONG_S = 20


class Away(Exception): ...


class Asynchronous:
    def __init__(self, function: Callable[[Delivery], object]) -> None:
        self.function = function

    async def __call__(self, delivery: Delivery) -> None:
        self.function(delivery)


async def _call(function: Callable[[Delivery], object], delivery: Delivery) -> None:
    function(delivery)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "form",
    [lambda function: function, Asynchronous, lambda function: partial(_call, function)],
    ids=["function", "object", "coroutine"],
)
@pytest.mark.parametrize(
    ("error", "is_redelivered"),
    [(Away("for lunch"), True), (KeyError("x"), True), (ConnectionRefusedError(111, "refused"), False)],
    ids=lambda value: f"{value!r:.30}",
)
def test_exceptions_of_a_program_can_say_that_a_receiver_is_away__D6(
    tmp_path: Path, form: Callable[[Callable[[Delivery], object]], Any], error: Exception, is_redelivered: bool
) -> None:
    seen: list[bool] = []
    over = threading.Event()

    def send(delivery: Delivery) -> None:
        seen.append(delivery.redelivered)
        if delivery.attempt == 1:
            raise error
        over.set()

    options: dict[str, Any] = {"max_attempts": 1, "waits_s": [0.01]}
    unavailable = (Away, KeyError, OSError)
    with DeliveryQueue(tmp_path / "store.db", to=form(send), unavailable=unavailable, **options) as queue:
        queue.put("a", delay_ms=0)
        assert over.wait(LONG_S)
    assert (queue.summary.delivered, queue.summary.dead_letters) == (1, 0)
    assert seen == [False, is_redelivered]


def test_they_can_for_the_queue_of_a_loop__D6(tmp_path: Path) -> None:
    async def main() -> int:
        over = asyncio.Event()

        async def send(delivery: Delivery) -> None:
            if delivery.attempt == 1:
                raise Away("for lunch")
            over.set()

        options: dict[str, Any] = {"max_attempts": 1, "waits_s": [0.01], "unavailable": Away}
        async with AsyncDeliveryQueue(tmp_path / "store.db", to=send, **options) as queue:
            await queue.put("a", delay_ms=0)
            async with asyncio.timeout(LONG_S):
                await over.wait()
        return queue.summary.delivered

    assert asyncio.run(main()) == 1


@pytest.mark.parametrize("own", [Unanswered, Unavailable])
def test_an_exception_of_tickwheel_keeps_its_time_though_unavailable_names_it__D6(tmp_path: Path, own: Any) -> None:
    seen: list[int] = []
    failed = threading.Event()

    def send(delivery: Delivery) -> None:
        seen.append(delivery.attempt)
        failed.set()
        raise own("closed", retry_after_s=3_000)

    options: dict[str, Any] = {"unavailable": Exception, "waits_s": [0.001]}
    with DeliveryQueue(tmp_path / "store.db", to=send, **options) as queue:
        queue.put("a", delay_ms=0)
        assert failed.wait(LONG_S)
        assert not queue.wait_until_empty(0.2)
    assert seen == [1]


@pytest.mark.parametrize("unavailable", [ValueError("x"), (int,), "OSError", [OSError], ((OSError,),), None, [], 0])
def test_only_classes_of_exceptions_can_say_so__D2(tmp_path: Path, unavailable: Any) -> None:
    with pytest.raises(WrongUsage, match=r"unavailable is .*: it may be a class of exceptions, or a tuple of them"):
        DeliveryQueue(tmp_path / "store.db", to=print, unavailable=unavailable)
    assert list(tmp_path.iterdir()) == []


class Mine(Sink):
    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        return {}


@pytest.mark.parametrize(
    "to", ["-", "http://127.0.0.1:9/", "python:json:dumps", Mine, partial(Mine), Destination.standard_output()]
)
def test_they_are_for_functions_alone__D2(tmp_path: Path, to: Any) -> None:
    with pytest.raises(WrongUsage, match="unavailable is for a function or a coroutine function: leave it out"):
        DeliveryQueue(tmp_path / "store.db", to=to, unavailable=OSError)
    assert list(tmp_path.iterdir()) == []


def test_a_function_that_would_run_nothing_is_refused_with_them_too__D10() -> None:
    def generator(_delivery: Delivery) -> Any:
        yield 1

    for to, problem in ((generator, "is a generator"), (5, "can't be called")):
        with pytest.raises(WrongUsage, match=problem):
            sink_of(to, unavailable=OSError)  # type: ignore[arg-type]
