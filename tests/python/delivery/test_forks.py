"""Forks in a function of the program's: the child only leaves, and the parent goes on (rule 7 of the borders)."""

import subprocess
import sys
from pathlib import Path

import pytest

from tickwheel._native import StoreSnapshot
from tickwheel.delivery import Answer, DeliveryQueue

pytestmark = pytest.mark.timeout(60)

FORKS = """if True:
    import os, sys, threading
    from tickwheel.delivery import DeliveryQueue
    from tickwheel.delivery.sinks import Sink

    where, path = sys.argv[1:]
    forked, first = threading.Event(), threading.Lock()

    def fork(here):
        if here != where or not first.acquire(blocking=False):
            return
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            print("the child ended with", status, flush=True)
            forked.set()

    class Forks(Sink):
        def send(self, deliveries):
            fork("send")
            return {place: "no" for place, it in enumerate(deliveries) if it.message.id == "bad"}
        def sync(self):
            fork("sync")

    def call(delivery):
        fork("function")
        fork("coroutine")
        if delivery.message.id == "bad":
            raise ValueError("no")

    async def coroutine(delivery):
        call(delivery)

    to = Forks if where in ("send", "sync") else coroutine if where == "coroutine" else call
    queue = DeliveryQueue(path, to=to, max_attempts=1, on_dead_letter=lambda _: fork("on_dead_letter"))
    future = queue.submit_ndjson(b'{"id": "a", "delay_ms": 10}\\n{"id": "bad", "delay_ms": 10}\\n')
    future.add_done_callback(lambda _: fork("callback"))
    print(forked.wait(40), queue.put("b", delay_ms=0), queue.wait_until_empty(20))
    queue.close()
"""


@pytest.mark.parametrize("where", ["function", "coroutine", "send", "sync", "on_dead_letter", "callback"])
def test_a_child_that_is_forked_in_a_function_only_leaves__rule7(where: str, tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    done = subprocess.run([sys.executable, "-c", FORKS, where, store], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        ["the child ended with 0", "True accepted True"],
    ), done.stderr
    with DeliveryQueue(store, to=lambda _: None) as queue:
        assert [queue.state(name) for name in ("a", "bad", "b")] == [Answer.DELIVERED, Answer.DEAD, Answer.DELIVERED]


FORKS_WHEN_OPENED = """if True:
    import os, sys
    from tickwheel.delivery import DeliveryQueue
    from tickwheel.delivery.sinks import Sink

    where, path = sys.argv[1:]
    children = []

    def fork(here):
        if here == where and not children:
            children.append(os.fork())
            if children[0]:
                _, status = os.waitpid(children[0], 0)
                print("the child ended with", status, flush=True)

    class Forks(Sink):
        def __init__(self, *_):
            fork("init")
        def position(self):
            fork("position")
        def arrived(self, suspects, position):
            fork("arrived")
            return []
        def send(self, deliveries):
            return {}

    try:
        queue = DeliveryQueue(path, to=Forks)
    except ValueError as error:
        print(error, flush=True)
        sys.exit()
    print(queue.put("a", delay_ms=0), queue.wait_until_empty(20))
    queue.close()
"""


CRASHES = """if True:
    import os, sys
    from tickwheel.delivery import DeliveryQueue
    queue = DeliveryQueue(sys.argv[1], to=lambda _: os._exit(1))
    queue.put("suspect", delay_ms=0)
    queue.wait_until_empty(20)
"""


@pytest.mark.parametrize("where", ["init", "position", "arrived"])
def test_a_child_that_is_forked_while_a_sink_is_opened_has_no_queue__D9(where: str, tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    assert subprocess.run([sys.executable, "-c", CRASHES, store], timeout=50).returncode == 1
    done = subprocess.run(
        [sys.executable, "-c", FORKS_WHEN_OPENED, where, store], capture_output=True, text=True, timeout=50
    )
    refused, ended, answer = done.stdout.splitlines()
    assert refused.startswith("this process was forked while the queue was opened")
    assert (ended, answer, done.returncode) == ("the child ended with 0", "accepted True", 0), done.stderr


def test_a_snapshot_is_refused_in_a_child__rule7(tmp_path: Path) -> None:
    script = """if True:
        import os, sys
        from tickwheel._native import StoreSnapshot
        with StoreSnapshot(sys.argv[1]) as snapshot:
            child = os.fork()
            if child == 0:
                try:
                    snapshot.paused_keys()
                except ValueError as error:
                    print(error, flush=True)
                del snapshot
                os._exit(0)
            os.waitpid(child, 0)
            print(snapshot.paused_keys())
    """
    DeliveryQueue(tmp_path / "store.db", to=lambda _: None).close()
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "store.db"], capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    refused, paused_keys = done.stdout.splitlines()
    assert refused.startswith("this snapshot belongs to the parent process")
    assert paused_keys == "0"
    with StoreSnapshot(tmp_path / "store.db") as snapshot:
        assert snapshot.paused_keys() == 0
