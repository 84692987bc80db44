"""D6: a failed message is retried with back-off, in order, without delaying others, and ends as a dead letter."""

import json
import random
import threading
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tickwheel.delivery import Answer, Delivery, DeliveryFailed, DeliveryQueue, Unanswered, Unavailable
from tickwheel.delivery.model.retry import Retry
from tickwheel.delivery.model.settings import Settings

Desk = Any  # of conftest.py


def attempts_of(desk: Desk, id_: str) -> list[int]:
    return [delivery.attempt for delivery in desk.sink.attempts if delivery.message.id == id_]


def test_a_refused_message_is_tried_again_and_its_attempts_are_counted__D6(desk: Desk) -> None:
    desk.sink.refuses = lambda delivery: "not now" if delivery.attempt < 3 else None
    desk.start().accept("a")
    desk.advance(2_000)
    assert attempts_of(desk, "a") == [1, 2, 3]
    assert [delivery.attempt for delivery in desk.sink.sent] == [3]
    assert desk.engine.summary.delivered == 1


def test_between_attempts_the_back_off_passes_on_the_wheel__D6(new_desk: Callable[..., Desk]) -> None:
    desk = new_desk(Settings(retry=Retry(5, 200, 60_000)))
    desk.sink.refuses = lambda delivery: "no"
    desk.start().accept("a")
    moments = [0.0]
    for _ in range(3_100):
        before = len(desk.sink.attempts)
        desk.advance(1)
        moments += [desk.timer.now_ms() - 5_000] * (len(desk.sink.attempts) - before)
    gaps = [after - before for before, after in pairwise(moments)]
    bounds = [(100, 200), (200, 400), (400, 800), (800, 1600)]
    assert [least <= gap <= most + 1 for gap, (least, most) in zip(gaps, bounds, strict=True)] == [True] * 4


def test_a_list_of_waits_is_followed_exactly_and_its_last_one_again__D6(new_desk: Callable[..., Desk]) -> None:
    desk = new_desk(Settings(retry=Retry.of_seconds(5, (1.0, 300.0), [0.2, 3, 0.5])))
    desk.sink.refuses = lambda delivery: "no"
    desk.start().accept("a")
    gaps_ms = []
    for gap_ms in (200, 3_000, 500, 500):
        before = len(desk.sink.attempts)
        desk.advance(gap_ms - 1)
        assert len(desk.sink.attempts) == before, "not before its time"
        desk.advance(1)
        gaps_ms.append((gap_ms, len(desk.sink.attempts) - before))
    assert gaps_ms == [(200, 1), (3_000, 1), (500, 1), (500, 1)]
    assert [letter.reason for letter in desk.letters] == ["gave up after 5 attempts: no"]


class Broken(Exception):
    status_code = 500


def test_a_500_counts_again_only_if_another_message_was_accepted_since__D6(new_desk: Callable[..., Desk]) -> None:
    desk = new_desk(Settings(retry=Retry(2, 1_000, 1_000), unanswered_for_s=60))
    desk.start()
    desk.sink.error = Broken("all is broken")
    desk.accept("a", key="k")
    desk.advance(30_000)
    assert len(attempts_of(desk, "a")) > 20
    assert desk.letters == [], "no other message was accepted, so the fault is hardly that of this one"
    desk.sink.error = None
    desk.sink.refuses = lambda delivery: Broken("over this one") if delivery.message.key == "k" else None
    desk.accept("b")
    desk.advance(2_000)
    [letter] = desk.letters
    assert letter.reason.endswith("attempts: Broken: over this one")
    assert desk.sink.ids == ["b"]


def test_after_the_last_attempt_it_is_a_dead_letter_and_the_key_goes_on__D6(desk: Desk) -> None:
    desk.sink.refuses = lambda delivery: "broken <b>" if delivery.message.id == "a" else None
    desk.start()
    desk.accept("a", key="k", payload=b'{"x": 1.50}')
    desk.accept("b", key="k")
    desk.advance(240_000)
    desk.pump()
    assert attempts_of(desk, "a") == [1, 2, 3, 4, 5, 6, 7, 8]
    assert desk.sink.ids == ["b"]
    [letter] = desk.letters
    assert (letter.source, letter.reason) == ("delivery", "gave up after 8 attempts: broken <b>")
    assert json.loads(letter.record) == {
        "id": "a", "key": "k", "due": "2023-11-14T22:13:20.000Z", "payload": {"x": 1.5}
    }  # fmt: skip
    summary = desk.engine.summary
    assert (summary.delivered, summary.dead_letters, summary.undeliverable, summary.not_delivered) == (1, 1, 1, 0)
    assert desk.state("a", "k") is Answer.DEAD
    desk.sink.refuses = lambda delivery: None
    assert desk.accept("a", key="k", payload=b'{"x": 1.50}') is Answer.ACCEPTED, "it may be tried anew"
    desk.pump()
    assert (desk.sink.ids, attempts_of(desk, "a")) == (["b", "a"], [1, 2, 3, 4, 5, 6, 7, 8, 1])


def test_a_dead_letter_that_could_not_be_written_out_is_written_by_the_next_run__D2(desk: Desk) -> None:
    desk.sink.refuses = lambda delivery: "no"
    desk.letters_fail = True
    desk.start().accept("a")
    with pytest.raises(DeliveryFailed, match="no room"):
        desk.advance(240_000)
    desk.crash()
    later = desk.again().start()
    assert [json.loads(letter.record)["id"] for letter in later.letters] == ["a"]
    assert later.sink.attempts == []
    later.close()
    assert desk.again().start().letters == [], "once"


@pytest.mark.parametrize("max_attempts", [1, 2])
def test_the_number_of_attempts_can_be_set__D6(new_desk: Callable[..., Desk], max_attempts: int) -> None:
    desk = new_desk(Settings(retry=Retry(max_attempts)))
    desk.sink.refuses = lambda delivery: "no"
    desk.start().accept("a")
    desk.advance(10_000)
    assert attempts_of(desk, "a") == list(range(1, max_attempts + 1))


def test_an_exception_of_the_sink_is_a_failed_attempt_of_all_it_had__D6(desk: Desk) -> None:
    desk.start()
    for id_ in ("a", "b"):
        desk.accept(id_, 10)
    desk.sink.error = ValueError("the receiver is out")
    desk.advance(10)
    desk.sink.error = None
    desk.advance(1_000)
    assert sorted(desk.sink.ids) == ["a", "b"]
    assert [delivery.attempt for delivery in desk.sink.sent] == [2, 2]


def test_the_last_error_of_a_sink_is_told__D6(new_desk: Callable[..., Desk]) -> None:
    desk = new_desk(Settings(retry=Retry(1)))
    desk.sink.error = ValueError("the receiver is out")
    desk.start().accept("a")
    desk.advance(1)
    desk.pump()
    assert [letter.reason for letter in desk.letters] == ["gave up after 1 attempts: ValueError: the receiver is out"]


@pytest.mark.parametrize(
    ("given", "told"),
    [("", "no reason was given"), (" \n", "no reason was given"), ("é" * 20_000, "é" * 1_000)],
    ids=["empty", "blank", "long"],
)
@pytest.mark.parametrize("kind", [str, Unanswered, Unavailable])
def test_a_reason_is_neither_empty_nor_long__D6_D8(
    new_desk: Callable[..., Desk], kind: Callable[[str], Any], given: str, told: str
) -> None:
    desk = new_desk(Settings(retry=Retry(1), unanswered_for_s=1))
    desk.sink.refuses = lambda delivery: kind(given)
    desk.start().accept("a")
    desk.advance(10_000)
    [letter] = desk.letters
    assert letter.reason.rpartition("attempts: " if kind is str else "at last: ")[2] == told


HOUR_S = 3_600


@pytest.mark.parametrize("kind", [Unanswered, Unavailable])
@pytest.mark.parametrize(
    ("asked_s", "after_s"),
    [
        (20, 20),
        (1e300, HOUR_S),
        (float("inf"), HOUR_S),
        (10**400, HOUR_S),
        (-(10**400), 0),
        (float("nan"), 0),
        (-1, 0),
        (1e-300, 0),
        ("5", 0),
        (None, 0),
    ],
    ids=lambda value: f"{value!r:.12}",
)
def test_a_pause_that_is_asked_for_is_an_hour_at_most_and_nonsense_is_none__D6(
    new_desk: Callable[..., Desk], kind: Any, asked_s: Any, after_s: int
) -> None:
    desk = new_desk()
    answers = [kind("busy", retry_after_s=asked_s)]
    desk.sink.refuses = lambda delivery: answers.pop() if answers else None
    desk.start().accept("a")
    desk.advance(max(after_s * 1_000 - 1, 0))
    assert len(desk.sink.attempts) == 1
    desk.advance(2_000)  # back-off takes up to a second
    assert len(desk.sink.attempts) == 2


def test_a_failing_message_holds_up_its_own_key_alone__D4(desk: Desk) -> None:
    desk.sink.refuses = lambda delivery: "no" if delivery.message.id == "a" and delivery.attempt < 4 else None
    desk.start()
    for id_, key, after_ms in [("a", "k", 0), ("b", "k", 1), ("c", "l", 2), ("d", None, 3)]:
        desk.accept(id_, after_ms, key=key)
    desk.advance(10)
    assert desk.sink.ids == ["c", "d"]
    desk.advance(10_000)
    assert desk.sink.ids == ["c", "d", "a", "b"]


def test_with_a_global_order_everything_waits_for_the_one_before__D4(new_desk: Callable[..., Desk]) -> None:
    desk = new_desk(Settings(order="global"))
    desk.sink.refuses = lambda delivery: "no" if delivery.message.id == "a" and delivery.attempt < 3 else None
    desk.start()
    for id_, key, after_ms in [("c", None, 12), ("a", "k", 10), ("b", "l", 11)]:
        desk.accept(id_, after_ms, key=key)
    desk.advance(20)
    assert desk.sink.ids == []
    desk.advance(10_000)
    assert desk.sink.ids == ["a", "b", "c"]


def test_a_third_of_all_attempts_fails_and_every_key_stays_in_order__D4(desk: Desk) -> None:
    rng = random.Random(7)
    desk.sink.refuses = lambda delivery: "at random" if rng.random() < 1 / 3 else None
    desk.start()
    expected = defaultdict(list)
    for number in range(300):
        key, after_ms = f"key {number % 7}", rng.randrange(500)
        desk.accept(str(number), after_ms, key=key)
        expected[key].append((after_ms, number))
    desk.advance(120_000)
    arrived = defaultdict(list)
    for delivery in desk.sink.sent:
        arrived[delivery.message.key].append(int(delivery.message.id))
    given_up = {int(json.loads(letter.record)["id"]) for letter in desk.letters}
    in_order = {key: [number for _, number in sorted(each)] for key, each in expected.items()}
    assert {key: [number for number in each if number not in given_up] for key, each in in_order.items()} == arrived
    assert len(desk.sink.sent) + len(given_up) == 300


def test_what_waits_for_its_next_attempt_can_be_cancelled__D7(desk: Desk) -> None:
    desk.sink.refuses = lambda delivery: "no" if delivery.message.id == "a" else None
    desk.start().accept("a", key="k")
    desk.accept("b", key="k")
    desk.advance(1)
    assert desk.cancel("a", "k") is Answer.CANCELLED
    desk.advance(10_000)
    assert desk.sink.ids == ["b"]


@pytest.mark.timeout(30)
def test_a_sink_that_hangs_is_cut_off_and_a_fresh_one_goes_on__D6(tmp_path: Path) -> None:
    sent: list[str] = []
    held, done = threading.Event(), threading.Event()

    def send(delivery: Delivery) -> None:
        if delivery.message.id == "hangs" and delivery.attempt == 1:
            held.wait(60)
        sent.append(f"{delivery.message.id} {delivery.attempt}")
        if delivery.message.id == "after":
            done.set()

    with DeliveryQueue(tmp_path / "store.db", to=send, sink_timeout_s=0.05) as queue:
        queue.put("hangs", key="k", delay_ms=0)
        queue.put("after", key="k", delay_ms=2)
        assert done.wait(20)
        assert sent == ["hangs 2", "after 1"]
        held.set()
    assert queue.summary.delivered == 2


def test_what_gets_no_answer_is_given_up_by_its_own_time__D6(new_desk: Any) -> None:
    desk = new_desk(Settings(unanswered_for_s=60)).start()
    desk.sink.error = ConnectionError("it is gone")
    desk.accept("first", 0, key="k")
    desk.accept("later", 500_000, key="k")
    desk.advance(50_000)
    assert desk.letters == []
    desk.advance(80_000)
    [letter] = desk.letters
    assert letter.reason.endswith("no success in 60 s (--unanswered-for), at last: ConnectionError: it is gone")
    desk.sink.error = None
    desk.advance(450_000)
    assert desk.sink.ids == ["later"]
