"""D6, D18: how many calls of a program there are at a time, and that calls that hang stop no others."""

import asyncio
import resource
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tickwheel.delivery import AsyncDeliveryQueue, Delivery, DeliveryQueue
from tickwheel.delivery.sinks.sink import NONE_REFUSED, Refusals, Sink

pytestmark = pytest.mark.timeout(60)

OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0] % 2**63  # without a limit it is -1
PAST_MS = 1_700_000_000_000
LONG_S = 20
QUIET_S = 0.5  # five times as long as a send is young


class Held:
    """Calls that wait until `over`; `wanted` is set when as many as wanted are inside."""

    def __init__(self, wanted: int) -> None:
        self.lock, self.inside, self.most, self.count = threading.Lock(), 0, 0, wanted
        self.wanted, self.over = threading.Event(), threading.Event()

    def enter(self) -> None:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            if self.most >= self.count:
                self.wanted.set()

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1

    def call(self, _: object) -> None:
        self.enter()
        self.over.wait(LONG_S)
        self.leave()


class Slow(Sink):
    """A program's own sink; a subclass has the calls."""

    threads = 2
    held: ClassVar[Held]

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        self.held.call(deliveries)
        return NONE_REFUSED


def put_and_hold(queue: DeliveryQueue, held: Held, count: int) -> None:
    """Puts more messages than there may be calls, and looks that there are that many and no more."""
    queue.put_many([(str(number), PAST_MS, None) for number in range(count)])
    assert held.wanted.wait(LONG_S)
    assert not queue.wait_until_empty(QUIET_S)
    held.over.set()
    assert queue.wait_until_empty(LONG_S)


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 8 + 64),
        ({"spare": 0}, 8),
        ({"spare": 3}, 8 + 3),
        ({"concurrency": 2}, 2),
        ({"concurrency": 12}, 12),
        ({"concurrency": 12, "spare": 3}, 12 + 3),
        ({"concurrency": 2, "spare": 0}, 2),
        ({"concurrency": 2, "spare": 3}, 2 + 3),
    ],
)
def test_so_many_calls_of_a_function_may_hang_at_a_time__D6_D18(
    tmp_path: Path, options: dict[str, Any], most: int
) -> None:
    held = Held(most)
    with DeliveryQueue(tmp_path / "s.db", to=held.call, **options) as queue:
        put_and_hold(queue, held, 100)
    assert (held.most, queue.summary.delivered) == (most, 100)


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, 256 + min(1_024, OPEN_FILES // 3)),
        ({"spare": 0}, 256),
        ({"concurrency": 2}, 2),
        ({"concurrency": 2, "spare": 3}, 2 + 3),
    ],
)
def test_so_many_calls_of_a_coroutine_function_may_hang_at_a_time__D6_D18(
    tmp_path: Path, options: dict[str, Any], most: int
) -> None:
    held = Held(most)

    async def main() -> int:
        over, all_of_them = asyncio.Event(), asyncio.Event()
        count = 0

        async def call(_: object) -> None:
            nonlocal count
            held.enter()
            await over.wait()
            held.leave()
            count += 1
            if count == 1_400:
                all_of_them.set()

        async with AsyncDeliveryQueue(tmp_path / "s.db", to=call, **options) as queue:
            await queue.put_many([(str(number), PAST_MS, None) for number in range(1_400)])
            assert await asyncio.to_thread(held.wanted.wait, LONG_S)
            await asyncio.sleep(QUIET_S)
            over.set()
            async with asyncio.timeout(LONG_S):
                await all_of_them.wait()
        return queue.summary.delivered

    assert asyncio.run(main()) == 1_400
    assert held.most == most


@pytest.mark.parametrize(
    ("spare", "options", "most"), [(0, {}, 2), (3, {}, 5), (3, {"spare": 1}, 3), (0, {"spare": 1}, 3)]
)
def test_a_sink_of_a_program_has_spare_places_if_it_asks_for_them__D6(
    tmp_path: Path, spare: int, options: dict[str, Any], most: int
) -> None:
    kind = type("Own", (Slow,), {"spare": spare, "held": Held(most)})
    with DeliveryQueue(tmp_path / "s.db", to=kind, **options) as queue:
        put_and_hold(queue, kind.held, 20)
    assert (kind.held.most, queue.summary.delivered) == (most, 20)


def test_thirty_customers_that_hang_stop_no_other_one__D6(tmp_path: Path) -> None:
    over, healthy = threading.Event(), threading.Event()
    sent: list[str] = []

    def call(delivery: Delivery) -> None:
        if delivery.message.key is not None:
            over.wait(LONG_S)
        else:
            sent.append(delivery.message.id)
            if len(sent) == 300:
                healthy.set()

    with DeliveryQueue(tmp_path / "s.db", to=call) as queue:
        queue.put_many([(f"bad {number}", PAST_MS, None, f"k{number}") for number in range(30)])
        queue.put_many([(str(number), PAST_MS, None) for number in range(300)])
        assert healthy.wait(LONG_S / 2), "and not after the calls that hang"
        assert not over.is_set()
        over.set()
        assert queue.wait_until_empty(LONG_S)
    assert queue.summary.delivered == 330
