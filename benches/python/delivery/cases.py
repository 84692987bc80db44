"""What is measured: each case in a process of its own, so that its memory and CPU are its own.

    python -m benches.python.delivery.cases NAME SECONDS FOLDER

It prints its `Row` as JSON. The generator is another process; what it wrote is handed in by the block, as bytes.
"""

import asyncio
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from tickwheel.delivery import Delivery, DeliveryQueue
from tickwheel.delivery.model.summary import percentiles

from . import polling
from .generator import SIZE

OVERDUE: Final = 1_000_000
KNOWN: Final = 10_000_000
_WAIT_S: Final = 120


@dataclass(frozen=True, slots=True)
class Row:
    """Milliseconds late; `cpu` in cores and `us` of it a message, without the generator's; `mib` resident at most."""

    messages: int
    per_second: float
    p50: float
    p99: float
    p999: float
    max: float
    early: int
    answer_p50: float
    answer_max: float
    cpu: float
    us: float
    mib: float


@dataclass(frozen=True, slots=True)
class Case:
    """`rate`: messages a second, 0 for as many as go. `most_s`: no longer than this. `aims`: of p99 and p99.9 in ms."""

    rate: int
    run: Callable[["Case", float, Path], Row]
    least_s: float = 0
    aims: tuple[float, float] | None = None
    field: str = ""
    """What each message has besides, as the generator takes it."""


def blocks(rate: int, seconds: float, *between_ms: int, field: str = "") -> Iterator[bytes]:
    """What the generator writes."""
    arguments = [str(it) for it in (rate, seconds, field, *between_ms) if it != ""]
    command = [sys.executable, "-m", "benches.python.delivery.generator", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=1 << 20) as process:
        assert process.stdout is not None
        while head := process.stdout.read(SIZE.size):
            yield process.stdout.read(SIZE.unpack(head)[0])


@dataclass(frozen=True, slots=True)
class Fed:
    """What was handed in, for how long, and how long each block waited until it was on disk."""

    messages: int
    took_s: float
    answered_ms: list[float]


def feed(submit: Callable[[bytes], "Future[Any]"], every: Iterator[bytes]) -> Fed:
    """Submit all blocks, and wait until they are on disk."""
    answered_ms: list[float] = []
    tickets: list[Future[Any]] = []

    def note(asked: float, _: object) -> None:
        answered_ms.append((time.monotonic() - asked) * 1000)

    messages, start = 0, time.monotonic()
    for block in every:
        asked = time.monotonic()
        ticket = submit(block)
        ticket.add_done_callback(partial(note, asked))
        tickets.append(ticket)
        messages += block.count(b"\n")
    for ticket in tickets:
        ticket.result()
    return Fed(messages, time.monotonic() - start, answered_ms)


def measure(run: Callable[[], Fed], late: Callable[[], list[float]]) -> Row:
    """The row of what `run` does until all is delivered. `late` is called after it, and is not measured."""
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    fed = run()
    took_s = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    late_ms = late()
    if fed.messages != len(late_ms):
        sys.exit(f"{fed.messages} messages were accepted and {len(late_ms)} delivered")
    answers, ranks = percentiles(fed.answered_ms), percentiles(late_ms)
    return Row(
        messages=fed.messages,
        per_second=fed.messages / (fed.took_s or took_s),
        p50=ranks["p50"] or 0,
        p99=ranks["p99"] or 0,
        p999=ranks["p999"] or 0,
        max=ranks["max"] or 0,
        early=sum(ms < 0 for ms in late_ms),
        answer_p50=answers["p50"] or 0,
        answer_max=answers["max"] or 0,
        cpu=cpu_s / took_s,
        us=1e6 * cpu_s / max(1, fed.messages),
        mib=after.ru_maxrss / 1024,
    )


def drain(queue: DeliveryQueue) -> None:
    """Wait until all is delivered."""
    if not queue.wait_until_empty(_WAIT_S):
        sys.exit(f"{len(queue)} messages were not delivered within {_WAIT_S} s")


def late_in(out: Path) -> list[float]:
    """The lateness in each line of a file."""
    with out.open("rb") as lines:
        found = [json.loads(line) for line in lines]
    names = {line["id"] for line in found}
    if len(names) != len(found):
        sys.exit(f"{len(found) - len(names)} messages were delivered twice")
    return [line["lateness_ms"] for line in found]


def deliver(case: Case, seconds: float, to: Any, store: Path, late: Callable[[], list[float]], **options: Any) -> Row:
    """Feed a queue at the case's rate until all is delivered."""

    def run() -> Fed:
        with DeliveryQueue(store, to=to, **options) as queue:
            fed = feed(queue.submit_ndjson, blocks(case.rate, seconds, field=case.field))
            drain(queue)
        return fed

    return measure(run, late)


def to_file(case: Case, seconds: float, folder: Path) -> Row:
    """To a file, as lines."""
    out = folder / "out"
    return deliver(case, seconds, f"file:{out}", folder / "store.db", lambda: late_in(out))


def beside_a_busy_thread(case: Case, seconds: float, folder: Path) -> Row:
    """To a file, while a thread of Python computes all the time."""
    is_over = threading.Event()

    def compute() -> None:
        while not is_over.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        return to_file(case, seconds, folder)
    finally:
        is_over.set()
        thread.join()


def to_function(case: Case, seconds: float, folder: Path) -> Row:
    """To a function of Python, which reads the id."""
    late_ms: list[float] = []

    def take(delivery: Delivery) -> None:
        if delivery.message.id:
            late_ms.append(delivery.lateness_ms)

    return deliver(case, seconds, take, folder / "store.db", lambda: late_ms)


def to_handlers(case: Case, seconds: float, folder: Path) -> Row:
    """To functions of Python, each with a name that messages give as their destination."""
    late_ms: list[float] = []

    def take(delivery: Delivery) -> None:
        late_ms.append(delivery.lateness_ms)

    handlers = {str(n): partial(take) for n in range(int(case.field.partition(":")[2]))}
    return deliver(case, seconds, None, folder / "store.db", lambda: late_ms, handlers=handlers)


def to_coroutine(wait_s: float) -> Callable[[Case, float, Path], Row]:
    """To a coroutine function of Python, which reads the id, and waits so long."""

    def run(case: Case, seconds: float, folder: Path) -> Row:
        late_ms: list[float] = []

        async def take(delivery: Delivery) -> None:
            if wait_s:
                await asyncio.sleep(wait_s)
            if delivery.message.id:
                late_ms.append(delivery.lateness_ms)

        return deliver(case, seconds, take, folder / "store.db", lambda: late_ms)

    return run


def to_webhook(case: Case, seconds: float, folder: Path) -> Row:
    """To a receiver of webhooks in another process, which reads the lateness in each body."""
    command = [sys.executable, "-m", "benches.python.delivery.receiver"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def late() -> list[float]:
            found: list[float] = json.loads(process.communicate()[0])
            return found

        assert process.stdout is not None
        url = f"http://127.0.0.1:{process.stdout.readline().strip()}/"
        return deliver(case, seconds, url, folder / "store.db", late)


def overdue(_case: Case, _seconds: float, folder: Path) -> Row:
    """A million messages that are due when the queue is opened."""
    out, due_ms = folder / "out", time.time_ns() // 1_000_000 + 60_000
    with DeliveryQueue(folder / "store.db", to=f"file:{out}") as queue:
        fed = feed(queue.submit_ndjson, blocks(100_000, OVERDUE / 100_000, due_ms - 1000, due_ms))
    time.sleep(max(0, (due_ms + 500) / 1000 - time.time()))

    def run() -> Fed:
        with DeliveryQueue(folder / "store.db", to=f"file:{out}") as queue:
            drain(queue)
        return Fed(fed.messages, 0, [])

    return measure(run, lambda: late_in(out))


def with_many_known(case: Case, seconds: float, folder: Path) -> Row:
    """To a file, where ten million ids are known already."""
    past_ms, filled = 1_000_000_000_000, folder / "filled"
    with DeliveryQueue(folder / "store.db", to=f"file:{filled}") as queue:
        feed(queue.submit_ndjson, blocks(100_000, KNOWN / 100_000, past_ms, past_ms + 1))
        queue.wait_until_empty(600)
    filled.unlink()
    return to_file(case, seconds, folder)


def one_key(_case: Case, seconds: float, folder: Path) -> Row:
    """All messages have one key, and are overdue: each is sent after the one before was acknowledged."""
    out, messages = folder / "out", round(2_000 * seconds)

    def run() -> Fed:
        with DeliveryQueue(folder / "store.db", to=f"file:{out}") as queue:
            queue.put_many((f"{n}", 1_000_000_000_000, n, "key") for n in range(messages))
            drain(queue)
        return Fed(messages, 0, [])

    return measure(run, lambda: late_in(out))


def poll(every_ms: int) -> Callable[[Case, float, Path], Row]:
    """The usual way: a table that is asked every so many milliseconds."""

    def run(case: Case, seconds: float, folder: Path) -> Row:
        def run() -> Fed:
            with polling.Table(folder, every_ms) as table:
                fed = feed(table.submit, blocks(case.rate, seconds))
                table.wait_until_empty()
            return fed

        return measure(run, lambda: late_in(folder / "out"))

    return run


CASES: Final = {
    "5,000 function": Case(5_000, to_function),
    "5,000 coroutine": Case(5_000, to_coroutine(0)),
    "5,000 coroutine waits 20 ms": Case(5_000, to_coroutine(0.02)),
    "8,000 file": Case(8_000, to_file, aims=(2, 5)),
    "8,000 polling 100 ms": Case(8_000, poll(100)),
    "8,000 polling 1 ms": Case(8_000, poll(1)),
    "8,000 webhooks": Case(8_000, to_webhook, aims=(10, float("inf"))),
    "20,000 file": Case(20_000, to_file, aims=(3, 6)),
    "20,000 function": Case(20_000, to_function, aims=(5, 10)),
    "20,000 coroutine": Case(20_000, to_coroutine(0)),
    "50,000 file": Case(50_000, to_file, least_s=60, aims=(5, 10)),
    "50,000 file, 1,000 tenants": Case(50_000, to_file, least_s=60, aims=(5, 10), field="tenant:1000"),
    "50,000 function": Case(50_000, to_function),
    "50,000 functions, 100 destinations": Case(50_000, to_handlers, field="destination:100"),
    "50,000 busy thread": Case(50_000, beside_a_busy_thread),
    "50,000 with 10M known": Case(50_000, with_many_known, aims=(10, 25)),
    "80,000 file": Case(80_000, to_file, aims=(10, 25)),
    "100,000 file": Case(100_000, to_file),
    "1M overdue": Case(0, overdue),
    "one key": Case(0, one_key),
}


def main(name: str, seconds: float, folder: Path) -> None:
    """Run one case."""
    case = CASES[name]
    print(json.dumps(asdict(case.run(case, max(seconds, case.least_s), folder))))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))
