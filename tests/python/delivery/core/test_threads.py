"""The real queue under many threads: every answer is definite and true, and no accepted message is lost."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tickwheel.delivery import Answer, Delivery, DeliveryFailed, DeliveryQueue, Message, WrongUsage
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.sinks import Sink, SinkSettings

pytestmark = pytest.mark.timeout(60)

JSON = msgspec.Raw(b"1")


def in_threads(number: int, work: Callable[[int], object]) -> None:
    """Run `work` in all threads at once, to the end; the first error is raised."""
    errors: list[BaseException] = []
    ready = threading.Barrier(number)

    def run(place: int) -> None:
        try:
            ready.wait()
            work(place)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_a_cancel_at_the_moment_of_sending_has_one_true_answer__D7(tmp_path: Path) -> None:
    arrived: Counter[str] = Counter()
    with DeliveryQueue(tmp_path / "store.db", to=lambda it: arrived.update([it.message.id])) as queue:
        answers: dict[str, Answer] = {}

        def work(place: int) -> None:
            rng = random.Random(place)
            for number in range(60):
                id_ = f"{place} {number}"
                queue.put(id_, delay_ms=rng.randrange(6), key=rng.choice([None, "k", f"key {place}"]))
                key = None
                answers[id_] = queue.cancel(id_, key)

        in_threads(4, work)
        assert queue.wait_until_empty(20)
    assert set(answers.values()) <= {Answer.CANCELLED, Answer.DELIVERED, Answer.DELIVERING, Answer.UNKNOWN}
    for id_, answer in answers.items():
        if answer is not Answer.UNKNOWN:  # the message has a key
            assert arrived[id_] == (0 if answer is Answer.CANCELLED else 1), (id_, answer)
    assert max(arrived.values()) == 1


def test_one_of_many_cancels_of_the_same_message_decides_and_all_answers_agree__D7(tmp_path: Path) -> None:
    arrived: Counter[str] = Counter()
    with DeliveryQueue(tmp_path / "store.db", to=lambda it: arrived.update([it.message.id])) as queue:
        for round_ in range(40):
            id_ = f"round {round_}"
            queue.put(id_, delay_ms=2)
            answers: list[Answer] = []
            in_threads(3, lambda _, id_=id_, answers=answers: answers.append(queue.cancel(id_)))  # type: ignore[misc]
            assert queue.wait_until_empty(20)
            assert (Answer.CANCELLED in answers) == (arrived[id_] == 0), answers
            if Answer.CANCELLED in answers:
                assert set(answers) == {Answer.CANCELLED}


def test_put_cancel_and_state_from_many_threads_agree_in_the_end__D5_D7(tmp_path: Path) -> None:
    arrived: Counter[tuple[str | None, str]] = Counter()
    answers: list[tuple[str | None, str, Answer]] = []
    with DeliveryQueue(tmp_path / "store.db", to=lambda it: arrived.update([(it.message.key, it.message.id)])) as queue:

        def work(place: int) -> None:
            rng = random.Random(place)
            for _ in range(80):
                key, id_ = rng.choice([None, "k", "l"]), str(rng.randrange(40))
                what = rng.random()
                if what < 0.6:
                    queue.put(id_, due=time.time_ns() // 1_000_000 // 100_000 * 100_000, key=key)
                elif what < 0.8:
                    answers.append((key, id_, queue.cancel(id_, key)))
                else:
                    queue.state(id_, key)

        with contextlib.suppress(ValueError):
            in_threads(4, work)
        assert queue.wait_until_empty(20)
        summary = queue.summary
    assert max(arrived.values()) == 1
    assert summary.accepted == summary.delivered + summary.cancelled
    assert summary.delivered == len(arrived)
    cancelled = {(key, id_) for key, id_, answer in answers if answer is Answer.CANCELLED}
    assert cancelled.isdisjoint(arrived)


def test_what_was_answered_while_it_was_closed_is_delivered_by_the_next__D5(tmp_path: Path) -> None:
    arrived: Counter[str] = Counter()
    accepted: list[str] = []
    for round_ in range(5):
        queue = DeliveryQueue(tmp_path / "store.db", to=lambda it: arrived.update([it.message.id]))
        begun = threading.Semaphore(0)

        def work(place: int, queue: DeliveryQueue = queue, round_: int = round_, begun: Any = begun) -> None:
            if place == 0:
                for _ in range(20):
                    begun.acquire()
                queue.close()
                return
            number = 0
            while True:
                id_ = f"{round_} {place} {number}"
                try:
                    answer = queue.put(id_, delay_ms=number % 20)
                except RuntimeError:
                    return
                assert answer is Answer.ACCEPTED
                accepted.append(id_)
                begun.release()
                number += 1

        in_threads(4, work)
    with DeliveryQueue(tmp_path / "store.db", to=lambda it: arrived.update([it.message.id])) as last:
        assert last.wait_until_empty(20)
    assert sorted(arrived) == sorted(accepted)
    assert set(arrived.values()) == {1}


class Hanging(Sink):
    """Hangs until it is released; eight threads."""

    threads = 8

    def __init__(self, held: threading.Event, entered: threading.Semaphore) -> None:
        self._held, self._entered = held, entered

    def send(self, deliveries: Any) -> Any:
        self._entered.release()
        self._held.wait(50)
        return {}


def running(path: Path, opener: Callable[[SinkSettings], Sink], settings: Settings = Settings()) -> Running:  # noqa: B008
    made = Running(path, opener, settings, lambda letters: None)
    made.start()
    return made


def put(made: Running, *ids: str) -> None:
    made.submit([Message(id_, None, 5, JSON) for id_ in ids]).result(10)


def test_closing_waits_for_sinks_that_hang_only_so_long_in_all__D6_D13(tmp_path: Path) -> None:
    held, entered = threading.Event(), threading.Semaphore(0)
    made = running(tmp_path / "store.db", lambda settings: Hanging(held, entered))
    put(made, *map(str, range(8)))
    for _ in range(8):
        assert entered.acquire(timeout=10)
    began = time.monotonic()
    made.close(0.5)
    took_s = time.monotonic() - began
    held.set()
    assert took_s < 2, "each of the eight was waited for in turn"
    redelivered = []
    with DeliveryQueue(tmp_path / "store.db", to=lambda it: redelivered.append(it.redelivered)) as queue:
        assert queue.wait_until_empty(10)
    assert redelivered == [True] * 8


def test_a_destination_that_hangs_does_not_keep_messages_from_being_accepted__D5(tmp_path: Path) -> None:
    held, entered = threading.Event(), threading.Semaphore(0)
    made = running(tmp_path / "store.db", lambda settings: Hanging(held, entered))
    put(made, *map(str, range(8)))
    for _ in range(8):
        assert entered.acquire(timeout=10)
    for number in range(100):
        put(made, f"more {number}")
    held.set()
    assert made.wait(20)
    made.close(10)


def native_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_a_function_that_hangs_has_a_bounded_number_of_threads__D6_D8(tmp_path: Path) -> None:
    held, entered = threading.Event(), threading.Semaphore(0)
    most = []

    def send(delivery: Delivery) -> None:
        if not held.is_set():
            most.append(native_threads())
            entered.release()
            held.wait(50)

    before = native_threads()
    with DeliveryQueue(tmp_path / "store.db", to=send, sink_timeout_s=0.3) as queue:
        queue.put_many([Message(str(number), None, 5, JSON) for number in range(200)])
        for _ in range(9):  # eight at once, and the first that asks whether the destination is up
            assert entered.acquire(timeout=20)
        entered.acquire(timeout=1.5)  # another probe would have come by then if there were a thread for it
        # Eight that hang, eight that take their place, and the engine's own.
        assert max([*most, native_threads()]) <= before + 8 + 8 + 8
        held.set()
        assert queue.wait_until_empty(50)


def test_closing_a_file_with_messages_on_their_way_commits_them__D5_D13(tmp_path: Path) -> None:
    out = tmp_path / "out.ndjson"
    for round_ in range(3):
        queue = DeliveryQueue(tmp_path / f"{round_}.db", to=f"file:{out}")
        queue.put_many([Message(str(number), None, 5, JSON) for number in range(100)])
        queue.close()
        assert queue.summary.delivered > 0
    lines = len(out.read_bytes().splitlines())
    assert lines >= queue.summary.delivered


def test_closing_sends_all_that_is_due_also_of_one_key__D13(tmp_path: Path) -> None:
    arrived = []
    queue = DeliveryQueue(tmp_path / "store.db", to=lambda it: arrived.append(it.message.id))
    queue.put_many([Message(str(number), "k", 5, JSON) for number in range(50)])
    queue.close()
    assert len(arrived) == 50


def test_closing_twice_is_no_error__D13(tmp_path: Path) -> None:
    with DeliveryQueue(tmp_path / "store.db", to=lambda it: None) as queue:
        queue.put("a", delay_ms=0)
        queue.close()


def test_when_a_sink_can_not_be_opened_nothing_is_left_behind__D9(tmp_path: Path) -> None:
    opened = []

    class Many(Hanging):
        threads = 3

    def opener(settings: SinkSettings) -> Sink:
        if len(opened) == 2:
            raise DeliveryFailed("no more connections")
        opened.append(settings)
        return Many(threading.Event(), threading.Semaphore(0))

    with pytest.raises(DeliveryFailed, match="no more connections"):
        Running(tmp_path / "store.db", opener, Settings(), lambda letters: None)
    thread = threading.Thread(
        target=lambda: DeliveryQueue(tmp_path / "store.db", to=lambda it: None).close(), daemon=True
    )
    thread.start()
    thread.join(5)
    assert not thread.is_alive(), "the store is still locked by a queue whose constructor failed"


def meta(store: Path) -> dict[str, Any]:
    """Read by a process of its own: a second SQLite in this one would take the engine's locks away."""
    read = (
        "import json, sqlite3, sys; db = sqlite3.connect(sys.argv[1]); print(json.dumps(dict(db.execute(sys.argv[2]))))"
    )
    query = "SELECT name, value FROM meta WHERE typeof(value) <> 'blob'"
    done = subprocess.run([sys.executable, "-c", read, store, query], stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_touch_the_store__D9_D13(tmp_path: Path) -> None:
    arrived: Counter[str] = Counter()
    with DeliveryQueue(tmp_path / "store.db", to=lambda it: arrived.update([it.message.id])) as queue:
        queue.put("before", delay_ms=0)
        queue.put("later", delay_ms=3_000_000)
        before = meta(tmp_path / "store.db")
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            said = b"nothing"
            try:
                queue.close()
                said = b"closed"
            except BaseException as error:
                said = type(error).__name__.encode()
            os.write(writing, said)
            os._exit(0)
        os.close(writing)
        said = os.read(reading, 100).decode()
        os.close(reading)
        os.waitpid(child, 0)
        queue.put("after", delay_ms=0)
        after = meta(tmp_path / "store.db")
        assert after["sent_until_ms"] is not None, f"the child wrote to the store: it said {said}"
        assert before["store_id"] == after["store_id"]
        queue.cancel("later")
        assert queue.wait_until_empty(10)
    assert arrived == {"before": 1, "after": 1}
    assert said in ("TimerForked", "RuntimeError", "WrongUsage")


CALLS: dict[str, Callable[[DeliveryQueue], object]] = {
    "put": lambda queue: queue.put("a", delay_ms=0),
    "submit": lambda queue: queue.submit([]),
    "cancel": lambda queue: queue.cancel("a"),
    "state": lambda queue: queue.state("a"),
    "wait": lambda queue: queue.wait_until_empty(1),
    "len": len,
    "summary": lambda queue: queue.summary,
    "close": lambda queue: queue.close(),
}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("what", list(CALLS))
def test_a_forked_child_gets_an_error_and_does_not_hang__D13(tmp_path: Path, what: str) -> None:
    with DeliveryQueue(tmp_path / "store.db", to=lambda it: None) as queue:
        queue.put("before", delay_ms=0)
        child = os.fork()
        if not child:
            signal.alarm(3)
            try:
                CALLS[what](queue)
            except WrongUsage:
                os._exit(7)
            except BaseException:
                os._exit(8)
            os._exit(9)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        assert queue.put("after", delay_ms=0) is Answer.ACCEPTED


def test_a_queue_that_could_not_be_opened_leaves_no_thread__D13(tmp_path: Path) -> None:
    def opener(settings: SinkSettings) -> Sink:
        raise DeliveryFailed("can't be reached")

    before = native_threads()
    for number in range(5):
        with pytest.raises(DeliveryFailed, match="can't be reached"):
            Running(tmp_path / f"{number}.db", opener, Settings(), lambda letters: None)
    assert native_threads() < before + 5
