"""Thousands of messages with small bounds: all are delivered in order, and the bounds always hold (D4, D8)."""

import random
import threading
from collections import defaultdict
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tickwheel.delivery import Answer, Cancel, Delivery, DeliveryQueue, Message
from tickwheel.delivery.model.retry import Retry
from tickwheel.delivery.model.settings import Bounds, Settings

Desk = Any  # of ../conftest.py
START_MS = 1_700_000_000_000
TINY = Bounds(messages=40, size=40_000, lane_messages=4, lane_size=6_000)


def put(id_: str, due_ms: int, key: str | None, payload: bytes = b"1") -> Message:
    return Message(id_, key, due_ms, msgspec.Raw(payload))


def watched(desk: Desk) -> Desk:
    """Checks what is in memory whenever something is sent and after each group."""
    send, commit = desk.sink.send, desk.commit

    def check() -> None:
        messages, size = desk.engine.native.in_memory()
        assert messages <= TINY.messages
        assert size <= TINY.size

    def checked_send(deliveries: Any) -> Any:
        check()
        return send(deliveries)

    def checked_commit() -> bool:
        more: bool = commit()
        check()
        return more

    desk.sink.send, desk.commit = checked_send, checked_commit
    return desk


def check_order(desk: Desk, wanted: dict[str | None, list[tuple[int, int]]]) -> None:
    arrived = defaultdict(list)
    for delivery in desk.sink.sent:
        arrived[delivery.message.key].append((delivery.message.due_ms, int(delivery.message.id)))
    for key, each in wanted.items():
        if key is None:
            assert sorted(arrived[key]) == sorted(each)
        else:
            assert arrived[key] == sorted(each), key


@pytest.mark.parametrize("order", ["key", "global"])
def test_thousands_that_are_overdue_come_out_in_order_through_a_small_memory__D4_D8(
    make_desk: Callable[..., Desk], order: Any
) -> None:
    rng = random.Random(3)
    desk = watched(make_desk(Settings(bounds=TINY, order=order)))
    wanted = defaultdict(list)
    every = []
    for number in range(1, 2_001):
        key, due_ms = (
            rng.choice([None, "hot", "hot", "hot", "a", "b", f"rare {number}"]),
            START_MS - rng.randrange(9_000),
        )
        wanted[key].append((due_ms, number))
        every.append(put(str(number), due_ms, key))
    desk.hand_in(*every[:1_000])
    desk.hand_in(*every[1_000:])
    desk.start()
    desk.advance(20_000)
    assert len(desk.sink.sent) == 2_000
    if order == "global":
        assert [(it.message.due_ms, int(it.message.id)) for it in desk.sink.sent] == sorted(
            chain.from_iterable(wanted.values())
        )
    check_order(desk, wanted)


def test_a_key_that_always_fails_and_late_ones_that_come_before_others__D4_D8(make_desk: Callable[..., Desk]) -> None:
    rng = random.Random(5)
    desk = watched(make_desk(Settings(bounds=TINY, retry=Retry(3, 300, 300))))
    desk.sink.refuses = lambda delivery: "no" if delivery.message.key == "bad" else None
    desk.start()
    wanted = defaultdict(list)
    number = 0
    for _ in range(60):
        now_ms = desk.wall_ns() // 1_000_000
        group = []
        for _ in range(20):
            number += 1
            key, due_ms = rng.choice([None, "bad", "good", "b", "c", "d"]), now_ms + rng.randrange(1, 4_000)
            if key != "bad":
                wanted[key].append((due_ms, number))
            group.append(put(str(number), due_ms, key, b'"' + b"x" * rng.randrange(900) + b'"'))
        desk.hand_in(*group)
        desk.advance(rng.randrange(120))
    desk.advance(400_000)
    check_order(desk, wanted)
    assert desk.engine.summary.not_delivered == 0
    assert all(delivery.lateness_ms >= 0 for delivery in desk.sink.sent)


def test_other_keys_are_on_time_while_one_has_thousands_overdue_and_fails__D4_D8(
    make_desk: Callable[..., Desk],
) -> None:
    desk = watched(make_desk(Settings(bounds=TINY, retry=Retry(1_000, 60_000, 60_000))))
    desk.sink.refuses = lambda delivery: "no" if delivery.message.key == "bad" else None
    desk.hand_in(*(put(f"bad {number}", START_MS - 5_000 + number, "bad") for number in range(1_500)))
    desk.start()
    for number in range(200):
        desk.accept(f"good {number}", 50 * number, key=f"good {number % 3}")
    desk.advance(11_000)
    sent = [delivery for delivery in desk.sink.sent if delivery.message.key != "bad"]
    assert len(sent) == 200
    assert max(delivery.lateness_ms for delivery in sent) <= 1


def test_a_cancel_finds_what_is_in_memory_in_the_store_alone_or_went_back_there__D7_D8(
    make_desk: Callable[..., Desk],
) -> None:
    desk = watched(make_desk(Settings(bounds=TINY)))
    desk.start()
    ids = [str(number) for number in range(300)]
    for number in range(300):  # each is due before all earlier ones
        desk.hand_in(put(ids[number], START_MS + 9_000 - 10 * number, "k" if number % 2 else None))
    assert 0 < desk.engine.in_memory < 300
    cancelled = ids[::3]
    assert desk.hand_in(*(Cancel(id_, "k" if int(id_) % 2 else None) for id_ in cancelled)) == [Answer.CANCELLED] * 100
    desk.advance(20_000)
    assert sorted(desk.sink.ids, key=int) == [id_ for id_ in ids if id_ not in cancelled]
    of_key = [int(it.message.id) for it in desk.sink.sent if it.message.key]
    assert of_key == sorted(of_key, reverse=True)
    assert desk.engine.summary.not_delivered == 0


@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_wall_clock_does_nothing_is_early_or_lost__D3(make_desk: Callable[..., Desk], seed: int) -> None:
    rng = random.Random(seed)
    desk = make_desk(Settings(bounds=rng.choice([TINY, Bounds()])))
    desk.start()
    plain = desk.sink.send

    def send(deliveries: Any) -> Any:
        now_ms = desk.wall_ns() / 1e6
        for delivery in deliveries:
            assert delivery.lateness_ms >= 0
            assert delivery.message.due_ms <= now_ms, "early"
            assert delivery.message.due_ms <= delivery.delivered_at_ms
        return plain(deliveries)

    desk.sink.send = send
    number = 0
    for _ in range(60):
        now_ms = desk.wall_ns() // 1_000_000
        for _ in range(rng.randrange(6)):
            number += 1
            key, due_ms = rng.choice([None, "k", "l"]), max(1, now_ms + rng.randrange(-100, 15_000))
            desk.hand_in(put(str(number), due_ms, key))
        desk.step_ms += rng.choice([0, 0, 0, 1, -1, 3, -7, 500, -500, 3_600_000, -3_600_000])
        desk.advance(rng.randrange(300))
    desk.step_ms += 50_000_000
    desk.advance(5_000)
    assert sorted(int(id_) for id_ in desk.sink.ids) == list(range(1, number + 1))


def test_a_step_forward_brings_what_is_beyond_the_horizon_at_once__D3(desk: Desk) -> None:
    desk.start()
    for number in range(20):
        desk.accept(str(number), 3_600_000 + number, key="k")
    assert desk.engine.in_memory == 0
    desk.step_ms = 3_600_100
    desk.advance(1_000)
    assert desk.sink.ids == [str(number) for number in range(20)]


def test_a_slewed_clock_is_followed_within_its_second__D3(desk: Desk) -> None:
    desk.start().accept("a", 5_000)
    for _ in range(500):  # the wall clock runs a tenth slower
        desk.step_ms -= 1
        desk.advance(10)
        assert desk.sink.sent == []
    desk.advance(600)
    [delivery] = desk.sink.sent
    assert 0 <= delivery.lateness_ms <= 1


def test_keys_that_fail_with_large_messages_stop_nobody__D6_D8(tmp_path: Path) -> None:
    """150 MB of messages that are tried again and again, with 96 MiB of memory."""
    count, all_arrived = 150, threading.Event()
    arrived: set[str] = set()

    def send(delivery: Delivery) -> None:
        if delivery.message.key == "good":
            arrived.add(delivery.message.id)
            if len(arrived) == count:
                all_arrived.set()
            return
        raise TimeoutError("it is gone")

    queue = DeliveryQueue(tmp_path / "store.db", to=send)
    for number in range(count):
        queue.put_many([put(f"bad {number}", START_MS, f"bad {number}", b'"' + b"x" * 1_000_000 + b'"')])
        queue.put_many([put(f"good {number}", START_MS, "good")])
    assert all_arrived.wait(50), f"{len(arrived)} of {count}"
    queue.close()
