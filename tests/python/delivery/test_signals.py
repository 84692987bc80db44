"""Ctrl-C wherever the main thread waits for the engine or a sink: its handler runs soon, and may raise."""

import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tickwheel.delivery import Answer, Delivery, DeliveryQueue
from tickwheel.delivery.sinks import Refusals, Sink

pytestmark = pytest.mark.timeout(60)


class Alarm(Exception):
    """What the handler of the signal raises."""


@pytest.fixture
def alarm() -> Iterator[None]:
    """SIGALRM raises `Alarm`."""

    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
def test_a_submit_that_waits_for_room_hears_signals_and_has_submitted_nothing_then__D13(tmp_path: Path) -> None:
    syncs, may_go_on = threading.Event(), threading.Event()
    at_last = threading.Timer(20, may_go_on.set)
    at_last.start()

    class Slow(Sink):
        def send(self, deliveries: Sequence[Delivery]) -> Refusals:
            return {}

        def sync(self) -> None:
            syncs.set()
            may_go_on.wait()

    with DeliveryQueue(tmp_path / "store.db", to=Slow) as queue:
        queue.put("now", delay_ms=0)
        assert syncs.wait(20)  # the writer takes nothing more
        large = b"".join(b'{"id": "%d", "due": 4000000000000, "payload": "%1000000d"}\n' % (n, n) for n in range(68))
        queue.submit_ndjson(large)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Alarm):
            queue.submit_ndjson(b'{"id": "late", "due": 4000000000000}\n')
        at_last.cancel()
        may_go_on.set()
        assert queue.state("late") is Answer.UNKNOWN
        assert len(queue) == 68


LEAVES_ONE_UNDER_WAY = """if True:
    import os, sys
    from tickwheel.delivery import DeliveryQueue
    queue = DeliveryQueue(sys.argv[1], to=lambda _: os._exit(0))
    queue.put("a", delay_ms=0)
    queue.wait_until_empty(20)
"""


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("call", ["__init__", "position", "arrived"])
def test_what_ends_a_program_ends_a_start__D13(call: str, raised: type[BaseException], tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    subprocess.run([sys.executable, "-c", LEAVES_ONE_UNDER_WAY, store], check=True, timeout=30)

    def stop(*_: object) -> None:
        raise raised

    stopped = type("Stopped", (Sink,), {"send": lambda *_: {}, call: stop})
    with pytest.raises(raised):
        DeliveryQueue(store, to=stopped)
    with DeliveryQueue(store, to=lambda _: None) as queue:
        assert queue.wait_until_empty(20)
        assert queue.summary.delivered == 1


def test_an_exception_in_a_put_leaves_no_lock_taken__D13(tmp_path: Path) -> None:
    """It came where `Future.result` had just taken its lock. Then no answer came any more, to any call."""
    times = 0

    def trace(frame: FrameType, what: str, _given: Any) -> Any:
        nonlocal times
        if frame.f_code is not threading.Condition.__enter__.__code__:
            return None
        if what == "return":
            times += 1
            raise Alarm
        return trace

    def interrupted(put: Callable[[], object]) -> None:
        before = sys.gettrace()
        gc.disable()  # destructors of other tests' objects may take such locks
        sys.settrace(trace)
        try:
            put()
        except Alarm:
            pass
        finally:
            sys.settrace(before)
            gc.enable()

    with DeliveryQueue(tmp_path / "s.db", to=lambda _: None) as queue:
        far = timedelta(days=1)
        interrupted(lambda: queue.put("a", delay_ms=far))
        interrupted(lambda: queue.put_many([{"id": f"{n}", "delay_ms": far} for n in range(3000)]))
        assert queue.put("a", delay_ms=far) is Answer.DUPLICATE
        assert queue.cancel("a") is Answer.CANCELLED
    assert times == 0
