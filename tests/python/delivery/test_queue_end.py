"""The end of a queue: what it lets go of, by which thread it is closed, and how long the process waits at its exit."""

import gc
import logging
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

import pytest

from tickwheel.delivery import Answer, Delivery, DeliveryFailed, DeliveryQueue, Letter
from tickwheel.delivery.sinks import Refusals, Sink

pytestmark = pytest.mark.timeout(60)


class Function:
    def __call__(self, _: object) -> None: ...


def test_a_closed_queue_keeps_none_of_its_functions__rule8(tmp_path: Path) -> None:
    send, tell = Function(), Function()
    kept = weakref.ref(send), weakref.ref(tell)
    queue = DeliveryQueue(tmp_path / "store.db", to=send, on_dead_letter=tell)
    queue.put("a", delay_ms=0)
    assert queue.wait_until_empty(20)
    del send, tell
    assert all(function() is not None for function in kept)
    queue.close()
    gc.collect()
    assert [function() for function in kept] == [None, None]
    queue.close()  # once more does nothing


def test_a_closed_queue_keeps_no_sink__rule8(tmp_path: Path) -> None:
    made: list[weakref.ref[Sink]] = []

    class Mine(Sink):
        def __init__(self, _: object) -> None:
            made.append(weakref.ref(self))

        def send(self, deliveries: Sequence[Delivery]) -> Refusals:
            return {}

        def sync(self) -> None: ...

    queue = DeliveryQueue(tmp_path / "store.db", to=Mine)
    queue.put("a", delay_ms=0)
    assert queue.wait_until_empty(20)
    assert [sink() is not None for sink in made] == [True]
    queue.close()
    gc.collect()
    assert [sink() for sink in made] == [None]


def test_a_closed_queue_in_a_reference_cycle_is_collected__rule8(tmp_path: Path) -> None:
    class Shop:
        def __init__(self) -> None:
            self.queue = DeliveryQueue(tmp_path / "store.db", to=self.send, on_dead_letter=self.tell)

        def send(self, _: Delivery) -> None: ...

        def tell(self, _: Letter) -> None: ...

    shop = Shop()
    shop.queue.put("a", delay_ms=0)
    shop.queue.close()
    kept = weakref.ref(shop), weakref.ref(shop.queue)
    del shop
    gc.collect()
    assert [it() for it in kept] == [None, None]


def test_a_queue_that_is_forgotten_delivers_on__rule8(tmp_path: Path) -> None:
    script = """if True:
        import gc, sys, threading
        from tickwheel.delivery import DeliveryQueue
        arrived = threading.Event()
        class Shop:
            def __init__(self):
                self.queue = DeliveryQueue(sys.argv[1], to=self.send)
                self.queue.put("later", delay_ms=300)
            def send(self, delivery):
                arrived.set()
        Shop()
        gc.collect()
        print(arrived.wait(20))
    """
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "store.db"], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_a_function_that_is_dropped_at_the_end_may_close_the_queue_again__rule8(tmp_path: Path) -> None:
    closed = []

    class Closes(Function):
        def __del__(self) -> None:
            queue.close()
            closed.append(True)

    queue = DeliveryQueue(tmp_path / "store.db", to=Closes())
    queue.close()
    gc.collect()
    assert closed == [True]


def test_a_queue_can_be_closed_in_the_function_of_another__D13(tmp_path: Path) -> None:
    told: list[object] = []
    done = threading.Event()

    def send(_: Delivery) -> None:
        try:
            with DeliveryQueue(tmp_path / "inner.db", to=lambda _: None) as inner:
                told.append(inner.put("b", delay_ms=0))
        except BaseException as error:
            told.append(error)
        done.set()

    with DeliveryQueue(tmp_path / "outer.db", to=send) as outer:
        outer.put("a", delay_ms=0)
        assert done.wait(20)
    assert told == [Answer.ACCEPTED]


def test_a_callback_of_an_answer_may_wait_for_an_answer_of_another_queue__D11(tmp_path: Path) -> None:
    told: list[object] = []
    begun, done = threading.Event(), threading.Event()
    with (
        DeliveryQueue(tmp_path / "a.db", to=lambda _: None) as first,
        DeliveryQueue(tmp_path / "b.db", to=lambda _: None) as second,
    ):

        def answered(_: object) -> None:
            if threading.current_thread() is threading.main_thread() or begun.is_set():
                return  # the answer was there before the callback, so it is called here, where it may wait
            begun.set()
            for queue in (second, first):
                try:
                    told.append(queue.put("b", delay_ms=0))
                except RuntimeError as error:
                    told.append(str(error)[:40])
            done.set()

        while not begun.is_set():
            first.submit_ndjson(b'{"id": "a", "delay_ms": 0}\n').add_done_callback(answered)
        assert done.wait(20)
    assert told == [Answer.ACCEPTED, "a callback of an answer's future can't w"]


HANGS = """if True:
    import sys, threading, time
    from tickwheel.delivery import DeliveryQueue
    called = threading.Event()
    def hang(_):
        called.set()
        while how == "runs":
            time.sleep(0.001)
        threading.Event().wait()
    where, how, path = sys.argv[1:]
    if where == "function":
        queue = DeliveryQueue(path, to=hang)
    elif where == "sink":
        from tickwheel.delivery.sinks import Sink
        class Hangs(Sink):
            def send(self, deliveries):
                hang(deliveries)
        queue = DeliveryQueue(path, to="python:__main__:Hangs")
    elif where == "callback":
        queue = DeliveryQueue(path, to=lambda _: None)
        queue.submit_ndjson(b"").add_done_callback(hang)
    else:
        def refuse(_):
            raise ValueError("no")
        queue = DeliveryQueue(path, to=refuse, on_dead_letter=hang, max_attempts=1)
    queue.submit_ndjson(b'{"id": "a", "delay_ms": 0}\\n')
    called.wait()
    print(time.monotonic(), flush=True)
"""


@pytest.mark.parametrize(
    ("where", "how"),
    [
        ("function", "waits"),
        ("function", "runs"),
        ("sink", "waits"),
        ("on_dead_letter", "waits"),
        ("on_dead_letter", "runs"),
        ("callback", "waits"),
    ],
)
def test_a_function_that_hangs_holds_up_the_exit_for_two_seconds__D13(where: str, how: str, tmp_path: Path) -> None:
    """Python before 3.14 ends the thread of one that runs, by unwinding its stack."""
    command = [sys.executable, "-c", HANGS, where, how, tmp_path / "store.db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    took_s = time.monotonic() - float(done.stdout)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert took_s < 6  # two, and the interpreter's own end on a busy machine


def test_a_queue_is_not_opened_after_the_exit_has_begun__D13(tmp_path: Path) -> None:
    script = """if True:
        import atexit, sys
        def late():
            try:
                DeliveryQueue(sys.argv[1], to=print)
            except RuntimeError as error:
                print(error)
        atexit.register(late)  # before the hook of the queues, so it is called after it
        from tickwheel.delivery import DeliveryQueue
    """
    store = tmp_path / "store.db"
    done = subprocess.run([sys.executable, "-c", script, store], capture_output=True, text=True, timeout=30)
    refused = "the interpreter is exiting: no queue can be opened any more\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, refused, "")
    assert not store.exists()


def test_the_exit_waits_for_a_queue_that_is_just_being_opened__rule7(tmp_path: Path) -> None:
    script = """if True:
        import sys, threading, time
        from tickwheel.delivery import DeliveryQueue
        from tickwheel.delivery.sinks import Sink
        hangs, opens = threading.Event(), threading.Event()
        def hang(_):
            hangs.set()
            threading.Event().wait()
        class Slow(Sink):
            def __init__(self, *_):
                opens.set()
                time.sleep(0.3)  # meanwhile the exit begins, and waits for the queue that hangs
            def send(self, deliveries): ...
            def close(self):
                for _ in range(100):
                    time.sleep(0.01)  # comes back to Python all the time
                print("closed", flush=True)
        def open_another():
            try:
                DeliveryQueue(sys.argv[2], to=Slow)
            except RuntimeError as error:
                print(error, flush=True)
        queue = DeliveryQueue(sys.argv[1], to=hang)
        queue.put("a", delay_ms=0)
        hangs.wait()
        threading.Thread(target=open_another, daemon=True).start()
        opens.wait()
    """
    command = [sys.executable, "-c", script, tmp_path / "a.db", tmp_path / "b.db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.returncode, "Fatal" in done.stderr) == (0, False), done.stderr
    assert "closed" in done.stdout
    assert "the interpreter is exiting: no queue can be opened any more" in done.stdout


def test_a_queue_is_not_empty_while_dead_letters_are_untold__D2(tmp_path: Path) -> None:
    told: list[Letter] = []
    may_go = threading.Event()

    def tell(letter: Letter) -> None:
        assert may_go.wait(20)
        told.append(letter)

    def refuse(_: object) -> None:
        raise ValueError("no")

    with DeliveryQueue(tmp_path / "store.db", to=refuse, max_attempts=1, on_dead_letter=tell) as queue:
        queue.put_many([(str(number), 100_000_000_000, b"") for number in range(2_500)])  # two and a half batches
        while queue.summary.dead_letters < 2_500:
            queue.wait_until_empty(0.01)
        assert not queue.wait_until_empty(0.1)
        may_go.set()
        assert queue.wait_until_empty(40)
        assert len(told) == 2_500


def test_a_destination_that_fails_at_its_end_is_told_with_the_kind_of_error__D6(tmp_path: Path) -> None:
    class Mine(Sink):
        def send(self, deliveries: Sequence[Delivery]) -> Refusals:
            return {}

        def close(self) -> None:
            raise KeyError("connection")

    queue = DeliveryQueue(tmp_path / "store.db", to=Mine)
    with pytest.raises(DeliveryFailed, match="failed at the end: KeyError: 'connection'"):
        queue.close()


def test_a_sync_can_neither_submit_nor_close__D11(tmp_path: Path) -> None:
    told: list[str] = []
    opened, done = threading.Event(), threading.Event()

    class Mine(Sink):
        def send(self, deliveries: Sequence[Delivery]) -> Refusals:
            return {}

        def sync(self) -> None:
            assert opened.wait(20)
            for call in (lambda: queue.put("b", delay_ms=0), lambda: queue.submit_ndjson(b"{}"), queue.close):
                with pytest.raises(RuntimeError) as caught:
                    call()
                told.append(str(caught.value)[:23])
            done.set()

    queue = DeliveryQueue(tmp_path / "store.db", to=Mine)
    opened.set()
    queue.put("a", delay_ms=0)
    assert done.wait(20)
    queue.close()
    assert told[:3] == ["a sink's sync can't sub", "a sink's sync can't sub", "a queue can't be closed"]


def test_what_a_callback_raises_is_told_as_it_is__D11(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: told.append(raised.exc_type))

    def leave(_: object) -> None:
        raise SystemExit(3)

    with DeliveryQueue(tmp_path / "store.db", to=lambda _: None) as queue:
        future = queue.submit_ndjson(b'{"id": "a", "delay_ms": 0}\n')
        future.add_done_callback(leave)
        assert queue.put("b", delay_ms=0) is Answer.ACCEPTED
        assert future.result(20) == [Answer.ACCEPTED]
    assert told == [SystemExit]


def test_a_function_that_is_slow_ends_before_the_process_does__D13(tmp_path: Path) -> None:
    script = """if True:
        import sys, threading, time
        from tickwheel.delivery import DeliveryQueue
        called = threading.Event()
        def slow(_):
            called.set()
            time.sleep(0.5)
            print("sent", flush=True)
        queue = DeliveryQueue(sys.argv[1], to=slow)
        queue.put("a", delay_ms=0)
        called.wait()
    """
    store = tmp_path / "store.db"
    done = subprocess.run([sys.executable, "-c", script, store], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "sent\n", "")
    with DeliveryQueue(store, to=logging.debug) as queue:
        assert queue.state("a") is Answer.DELIVERED


def test_what_is_due_at_the_exit_is_still_sent__D13(tmp_path: Path) -> None:
    script = """if True:
        import sys, threading, time
        from tickwheel.delivery import DeliveryQueue
        called, told = threading.Event(), []
        def slow(delivery):
            called.set()
            time.sleep(0.1)
            print(delivery.message.id, flush=True)
        queue = DeliveryQueue(sys.argv[1], to=slow)
        queue.put_many([(f"{number}", 100_000_000_000, b"", "one key") for number in range(4)])
        called.wait()
    """
    store = tmp_path / "store.db"
    done = subprocess.run([sys.executable, "-c", script, store], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["0", "1", "2", "3"], "")
