"""Programs for `test_large.py`. Each runs in a process of its own, so that the peak of memory is its own.

The last line of the output is JSON: what the program found, and `peak`, in bytes.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tickwheel.cli import main
from tickwheel.delivery import Delivery, DeliveryQueue, Letter, Message
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.sinks import open_sink

Found = dict[str, Any]

MB = 1_000_000
PAYLOAD = b'"' + b"x" * (MB - 2) + b'"'
EVERY_S = 0.01
CLEAN_WITHIN_S = 300


def deliver(source: str, store: str) -> Found:
    """Run the command, until Ctrl-C or its end."""
    sys.argv = ["tickwheel", "deliver", source, "--store", store, "--to", "file:/dev/null"]
    with contextlib.suppress(SystemExit):
        main()
    return {}


def accept(store: str, count: str) -> Found:
    """Accept messages of 1 MB that are overdue, and deliver nothing."""
    running = Running(Path(store), open_sink("file:/dev/null"), Settings(), print)
    past_ms = time.time_ns() // 1_000_000 - 3_600_000
    for start in range(0, int(count), 8):
        every = range(start, min(start + 8, int(count)))
        running.submit([Message(f"large {n}", None, past_ms + n, PAYLOAD) for n in every]).result()
    running.close(10)
    return {}


def clean_up(store: str, count: str) -> Found:
    """Deliver these, with a small message each 10 ms beside them, until the disk has the room back.

    Times in milliseconds: the latest small message, and the longest wait for an answer. `log`: the longest log.
    """
    late_ms, answers_ms, log, large = [], [], 0, threading.Semaphore(0)

    def take(delivery: Delivery) -> None:
        if delivery.message.id.startswith("large"):
            large.release()
        else:
            late_ms.append(delivery.lateness_ms)

    start = time.monotonic()
    with DeliveryQueue(store, to=take) as queue:

        def put_small(turns: int) -> None:
            nonlocal log
            for _ in range(turns):
                begun = time.monotonic()
                queue.put(f"small {begun}", delay_ms=10)
                answers_ms.append((time.monotonic() - begun) * 1000)
                log = max(log, Path(f"{store}-wal").stat().st_size)
                time.sleep(max(0.0, EVERY_S - (time.monotonic() - begun)))

        while has_large(store) or Path(store).stat().st_size > 40 * MB:
            put_small(20)
            assert time.monotonic() - start < CLEAN_WITHIN_S, "the disk has not got its room back"
        took_ms = (time.monotonic() - start) * 1000
        found = {"late_ms": max(late_ms), "answer_ms": max(answers_ms), "took_ms": took_ms, "log": log}
        late_ms.clear()
        answers_ms.clear()
        put_small(100)
        found |= {"quiet_late_ms": max(late_ms), "quiet_answer_ms": max(answers_ms)}
        found |= {"delivered": queue.summary.delivered}
    return found


def has_large(store: str) -> bool:
    """A process of its own reads the file: a second SQLite library in this one would drop the locks of the engine's."""
    done = subprocess.run([sys.executable, "-c", HAS_LARGE, store], capture_output=True, check=True, text=True)
    return done.stdout == "True\n"


HAS_LARGE = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=30)
print(bool(db.execute("SELECT 1 FROM bodies WHERE length(CAST(payload AS BLOB)) > 1000 LIMIT 1").fetchall()))
"""


def crash(store: str, count: str) -> Found:
    """Accept overdue messages of one key, and crash while the first is being sent."""
    is_accepted = threading.Event()

    def take(delivery: Delivery) -> None:
        is_accepted.wait()
        os.kill(os.getpid(), signal.SIGKILL)

    queue = DeliveryQueue(store, to=take)
    past_ms = time.time_ns() // 1_000_000 - 3_600_000

    def blocks() -> Iterator[bytes]:
        for start in range(0, int(count), 1000):
            lines = (
                f'{{"id": "{n}", "key": "one", "due": {past_ms + n}, "payload": {n}}}\n'
                for n in range(start, min(start + 1000, int(count)))
            )
            yield "".join(lines).encode()

    answers = [queue.submit_ndjson(block) for block in blocks()]
    assert sum(len(answer.result()) for answer in answers) == int(count)
    is_accepted.set()
    threading.Event().wait()
    return {}


def go_on(store: str, out: str) -> Found:
    """Deliver what is in the store to a file."""
    with DeliveryQueue(store, to=f"file:{out}") as queue:
        assert queue.wait_until_empty(1000)
    return {}


def dead(store: str, count: str) -> Found:
    """All messages of 1 MB become dead letters, while the first one is still being told."""
    all_are_dead, told = threading.Event(), []

    def refuse(delivery: Delivery) -> None:
        raise ValueError("refused")

    def tell(letter: Letter) -> None:
        all_are_dead.wait()
        told.append(len(letter.record))

    with DeliveryQueue(store, to=refuse, max_attempts=1, on_dead_letter=tell) as queue:
        for start in range(0, int(count), 8):
            every = range(start, min(start + 8, int(count)))
            queue.put_many([(f"large {n}", 1_700_000_000_000, PAYLOAD) for n in every])
        while queue.summary.dead_letters < int(count):
            time.sleep(0.01)
        all_are_dead.set()
        assert queue.wait_until_empty(1000)
    return {"told": len(told), "least": min(told, default=0)}


def end() -> None:
    programs: list[Callable[..., Found]] = [deliver, accept, clean_up, crash, go_on, dead]
    [program] = [it for it in programs if it.__name__ == sys.argv[1]]
    found = program(*sys.argv[2:])
    [peak] = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    print(json.dumps(found | {"peak": int(peak) * 1024}))


if __name__ == "__main__":
    end()
