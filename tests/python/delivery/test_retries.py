"""D6: how exceptions and verdicts of Python end an attempt, and dead letters that a program could not take;
`crates/delivery/src/scenarios/retrying.rs` and its neighbours have the attempts and the waits between them.
"""

import json
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from delivery.delivering import LONG_S, Run, given_up, opener_of
from tickwheel.delivery import Delivery, DeliveryFailed, DeliveryQueue, Letter, Message, Unanswered, Unavailable
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.entries import Look
from tickwheel.delivery.model.retry import Retry
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.sinks import Refusals, Sink

pytestmark = pytest.mark.timeout(60)

HOUR_S = 3_600


def message(id_: str, key: str | None = None) -> Message:
    return Message(id_, key, 1, b"1")


class Answers(Sink):
    """Answers each delivery as the test says; an exception that it raises is about all of them."""

    max_batch = 64

    def __init__(self, answer: Callable[[Delivery], Any]) -> None:
        self.answer = answer
        self.attempts: list[tuple[str, int]] = []
        self.sizes: list[int] = []

    def send(self, deliveries: Sequence[Delivery]) -> Refusals:
        self.sizes.append(len(deliveries))
        self.attempts += [(it.message.id, it.attempt) for it in deliveries]
        answers = [self.answer(it) for it in deliveries]
        return {place: why for place, why in enumerate(answers) if why is not None}


def test_an_exception_of_the_sink_is_a_failed_attempt_of_all_it_had__D6(tmp_path: Path) -> None:
    def answer(it: Delivery) -> None:
        if it.attempt == 1:
            raise ValueError("the receiver is out")

    sink = Answers(answer)
    with Run(tmp_path, opener_of(sink), Settings(retry=Retry(8, 10, 10)), starts=False) as run:
        run.give(message("a"), message("b"))
        run.running.start()
        assert run.running.wait(LONG_S)
    assert sink.sizes[0] == 2
    assert sorted(sink.attempts) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert run.letters == []


def test_the_last_error_of_a_sink_is_told__D6(tmp_path: Path) -> None:
    def answer(it: Delivery) -> None:
        raise ValueError("the receiver is out")

    reasons = given_up(tmp_path, opener_of(Answers(answer)), message("a"), message("b"))
    assert reasons == dict.fromkeys("ab", "ValueError: the receiver is out")


class Broken(Exception):
    status_code = 500


def test_a_500_counts_again_only_if_another_message_was_accepted_since__D6(tmp_path: Path) -> None:
    letters: list[Letter] = []
    tried_often, given_up = threading.Event(), threading.Event()

    def send(delivery: Delivery) -> None:
        if delivery.message.key == "k":
            if delivery.attempt == 10:
                tried_often.set()
            raise Broken("over this one")

    def on_dead_letter(letter: Letter) -> None:
        letters.append(letter)
        given_up.set()

    options: dict[str, Any] = {"max_attempts": 2, "waits_s": [0.001], "on_dead_letter": on_dead_letter}
    with DeliveryQueue(tmp_path / "store.db", to=send, **options) as queue:
        queue.put("a", key="k", delay_ms=0)
        assert tried_often.wait(LONG_S)
        assert letters == [], "no other message was accepted, so the fault is hardly that of this one"
        queue.put("b", delay_ms=0)
        assert given_up.wait(LONG_S)
    [letter] = letters
    assert letter.reason.endswith("attempts: Broken: over this one")


def test_a_dead_letter_that_could_not_be_written_out_is_written_by_the_next_run__D2(tmp_path: Path) -> None:
    def no_room(letters: Sequence[Letter]) -> None:
        raise DeliveryFailed("no room for dead letters")

    refuses = opener_of(Answers(lambda it: "no"))
    running = Running(tmp_path / "store.db", refuses, Settings(retry=Retry(1)), no_room)
    running.start()
    running.submit([message("a")]).result(LONG_S)
    with pytest.raises(DeliveryFailed, match="no room"):
        running.wait(LONG_S)
    with pytest.raises(DeliveryFailed, match="no room"):
        running.close(LONG_S)
    for expected in (["a"], []):
        sink = Answers(lambda it: None)
        with Run(tmp_path, opener_of(sink)) as run:
            assert run.running.wait(LONG_S)
        assert [json.loads(letter.record)["id"] for letter in run.letters] == expected, "once"
        assert sink.attempts == []


@pytest.mark.parametrize(
    ("given", "told"),
    [("", "no reason was given"), (" \n", "no reason was given"), ("é" * 20_000, "é" * 1_000)],
    ids=["empty", "blank", "long"],
)
@pytest.mark.parametrize("kind", [str, Unanswered, Unavailable])
def test_a_reason_is_neither_empty_nor_long__D6_D8(
    tmp_path: Path, kind: Callable[[str], Any], given: str, told: str
) -> None:
    settings = Settings(retry=Retry(1, 10, 10), unanswered_for_s=0.05)
    with Run(tmp_path, opener_of(Answers(lambda it: kind(given))), settings) as run:
        run.deliver(message("a"))
    [letter] = run.letters
    assert letter.reason.rpartition("after 1 attempt: " if kind is str else "at last: ")[2] == told


@pytest.mark.parametrize("kind", [Unanswered, Unavailable])
@pytest.mark.parametrize(
    ("asked_s", "wait_s"),
    [(20, 20), (1e300, HOUR_S), (float("inf"), HOUR_S), (10**400, HOUR_S)],
    ids=lambda value: f"{value!r:.12}",
)
def test_a_time_that_is_asked_for_is_waited_for_up_to_an_hour__D6(
    tmp_path: Path, kind: Any, asked_s: Any, wait_s: int
) -> None:
    is_tried = threading.Event()

    def answer(it: Delivery) -> Any:
        is_tried.set()
        return kind("busy", retry_after_s=asked_s)

    with Run(tmp_path, opener_of(Answers(answer)), Settings(retry=Retry(waits_ms=(1.0,)))) as run:
        began = datetime.now(UTC)
        run.give(message("a"))
        assert is_tried.wait(LONG_S)
        while (seen := run.running.view.show("a")) is None or seen.next_try is None:
            run.give(Look("a", None))  # until a group with the attempt is on disk
        next_try, around = datetime.fromisoformat(seen.next_try), timedelta(seconds=1)
        assert began - around < next_try - timedelta(seconds=wait_s) < datetime.now(UTC) + around


@pytest.mark.parametrize("kind", [Unanswered, Unavailable])
@pytest.mark.parametrize(
    "asked_s", [-(10**400), float("nan"), -1, 1e-300, "5", None], ids=lambda value: f"{value!r:.12}"
)
def test_a_time_that_is_nonsense_is_not_waited_for__D6(tmp_path: Path, kind: Any, asked_s: Any) -> None:
    sink = Answers(lambda it: kind("busy", retry_after_s=asked_s) if it.attempt == 1 else None)
    with Run(tmp_path, opener_of(sink), Settings(retry=Retry(waits_ms=(1.0,)))) as run:
        run.deliver(message("a"))
    assert sink.attempts == [("a", 1), ("a", 2)]


def test_a_sink_that_hangs_is_cut_off_and_a_fresh_one_goes_on__D6(tmp_path: Path) -> None:
    sent: list[str] = []
    held, done = threading.Event(), threading.Event()

    def send(delivery: Delivery) -> None:
        if delivery.message.id == "hangs" and delivery.attempt == 1:
            held.wait(60)
        sent.append(f"{delivery.message.id} {delivery.attempt}")
        if delivery.message.id == "after":
            done.set()

    with DeliveryQueue(tmp_path / "store.db", to=send, sink_timeout_s=0.5) as queue:
        queue.put("hangs", key="k", delay_ms=0)
        queue.put("after", key="k", delay_ms=2)
        assert done.wait(20)
        assert sent == ["hangs 2", "after 1"]
        held.set()
    assert queue.summary.delivered == 2
