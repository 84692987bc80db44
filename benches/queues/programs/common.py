"""What the programs of all Python sides share; `node/common.mjs` and `river/main.go` do the same.

A program gets a `Request` as JSON in its argument, and does one of three things:

accept    hand in jobs that are due in an hour, `batch` of them in a call, by `clients` at once
late      hand in jobs that are due one by one at a steady rate, start the worker, note when each job runs
overdue   hand in jobs, start the worker once all are due, note when each job runs

It prints a line of JSON, and writes a line for each job that ran to `out`: its number, and the epoch microseconds.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

TOO_LATE: Final = 75
"""The exit code if the first job was due before all were handed in."""
SPARE_S: Final = 3.0
"""Between the last job that is handed in and the first that is due: a worker starts meanwhile."""
TAIL_S: Final = 10.0
"""So long after the last job is due a program waits for those that have not run."""
OVERDUE_WITHIN_S: Final = 60.0
HOUR_MS: Final = 3_600_000
TEXT: Final = "x" * 80


@dataclass(frozen=True, slots=True)
class Request:
    """`lead_s`: until the first job is due. `postgres`: a URL, `redis`: a port. `folder`: an empty one, on the disk."""

    do: str
    count: int
    rate: int
    lead_s: float
    batch: int
    clients: int
    postgres: str
    redis: int
    folder: str
    out: str


Job = tuple[int, int]
"""The number of a job, and when it is due in epoch milliseconds."""
Put = Callable[[list[Job]], Awaitable[None] | None]
Ran = Callable[[int], None]


class Side(Protocol):
    """A queue. The methods may be coroutine functions, all of them or none: those that are not run in other threads."""

    def open(self, request: Request, /) -> Any:
        """Connect, and make the tables."""

    def put(self, jobs: list[Job], /) -> Any:
        """Hand in, with the fewest calls that the queue has for it. Returns once all are accepted."""

    def work(self, ran: Ran, /) -> Any:
        """Start the worker, which calls `ran` with the number of each job; does not wait for it."""

    def close(self) -> Any:
        """End all."""


def main(side: Side) -> None:
    """Do what the argument asks for."""
    asyncio.run(_main(side, Request(**json.loads(sys.argv[1]))))


async def _main(side: Side, request: Request) -> None:
    await _call(side.open, request)
    began_s = time.monotonic()
    if request.do == "accept":
        hour_ms = now_ms() + HOUR_MS
        await _put_all(side.put, [(n, hour_ms + n) for n in range(request.count)], request.batch, request.clients)
        print(json.dumps({"took_s": time.monotonic() - began_s}), flush=True)
    else:
        await _run(side, request)
    await _call(side.close)


async def _run(side: Side, request: Request) -> None:
    first_ms = now_ms() + round(request.lead_s * 1000)
    jobs = [(n, first_ms + n * 1000 // request.rate) for n in range(request.count)]
    await _put_all(side.put, jobs, request.batch, request.clients)
    if now_ms() + SPARE_S * 1000 > first_ms:
        print(f"all were handed in {now_ms() + SPARE_S * 1000 - first_ms:.0f} ms too late", file=sys.stderr)
        sys.exit(TOO_LATE)
    last_ms = jobs[-1][1]
    if request.do == "overdue":
        await asyncio.sleep(max(0, last_ms + 100 - now_ms()) / 1000)
    came: list[Job] = []
    began_us = time.time_ns() // 1000
    await _call(side.work, lambda number: came.append((number, time.time_ns() // 1000)))
    end_ms = now_ms() + OVERDUE_WITHIN_S * 1000 if request.do == "overdue" else last_ms + TAIL_S * 1000
    out = Path(request.out)
    while len(came) < request.count and now_ms() < end_ms:
        await asyncio.sleep(0.1)
        if not came and out.exists() and out.read_bytes().count(b"\n") >= request.count:  # another process runs them
            break
    if came or not out.exists():
        out.write_text("".join(f"{number} {us}\n" for number, us in came))
    print(json.dumps({"first_ms": first_ms, "began_us": began_us}), flush=True)


async def _put_all(put: Put, jobs: list[Job], batch: int, clients: int) -> None:
    """Each client hands in every so many-th batch, one after the other."""
    batches = [jobs[at : at + batch] for at in range(0, len(jobs), batch)]
    mine = [batches[n::clients] for n in range(clients)]
    if asyncio.iscoroutinefunction(put):

        async def client(every: list[list[Job]]) -> None:
            for one in every:
                await put(one)

        await asyncio.gather(*map(client, mine))
        return
    failed: list[BaseException] = []

    def thread(every: list[list[Job]]) -> None:
        try:
            for one in every:
                put(one)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=thread, args=(every,)) for every in mine]
    for one in threads:
        one.start()
    for one in threads:
        await asyncio.to_thread(one.join)
    if failed:
        raise failed[0]


async def _call(method: Callable[..., Any], *arguments: Any) -> None:
    """In another thread if it is no coroutine function: some queues refuse to run beside a loop."""
    if asyncio.iscoroutinefunction(method):
        await method(*arguments)
    else:
        await asyncio.to_thread(method, *arguments)


def now_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


def as_argument(request: Request) -> str:
    """The one argument of a program."""
    return json.dumps(asdict(request))
