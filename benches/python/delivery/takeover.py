"""Measure how long nothing is delivered after the owner of a replicated store was killed (D21).

The owner holds `--held` messages, and one is due each 5 ms. It is killed, and its file removed. The time is from the
kill to the first message that the next owner delivers: a standby that follows, or a process that begins then with an
empty file.

    python -m benches.python.delivery.takeover --postgresql 'postgresql://user@host/database' --held 100000
"""

import argparse
import multiprocessing
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tickwheel.delivery import Delivery, DeliveryQueue

_DAY_MS = 86_400_000
_EVERY_MS, _DUE = 5, 24_000


def deliver(store: Path, address: str, held: int, told: Connection) -> None:
    """Open the queue, put the messages if there are any, and tell when the first one is delivered, in nanoseconds."""
    is_first = True

    def note(_delivery: Delivery) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            told.send(time.time_ns())

    with DeliveryQueue(store, to=note, replicate_to=address) as queue:
        if held:
            queue.put_many(_messages(held))
            is_first = True
        told.send("ready")
        time.sleep(600)


def _messages(held: int) -> Iterator[dict[str, Any]]:
    for number in range(held):
        yield {"id": f"held {number}", "delay_ms": _DAY_MS + number, "payload": {"number": number}}
    for number in range(_DUE):
        yield {"id": f"due {number}", "delay_ms": 2_000 + number * _EVERY_MS}


def measured_s(address: str, held: int, *, has_standby: bool) -> float:
    """One kill: seconds until the first delivery."""
    spawn = multiprocessing.get_context("spawn")
    started = []

    def start(store: Path, held: int) -> tuple[Any, Connection]:
        here, there = spawn.Pipe(duplex=False)
        process = spawn.Process(target=deliver, args=(store, address, held, there), daemon=True)
        process.start()
        started.append(process)
        return process, here

    with tempfile.TemporaryDirectory() as folder:
        owner, told = start(Path(folder, "one.db"), held)
        while told.recv() != "ready":
            pass
        _, next_told = start(Path(folder, "two.db"), 0) if has_standby else (None, None)
        time.sleep(10 if has_standby else 3)
        os.kill(owner.pid, signal.SIGKILL)
        killed_ns = time.time_ns()
        if next_told is None:
            _, next_told = start(Path(folder, "two.db"), 0)
        while not isinstance(first_ns := next_told.recv(), int):
            pass
        for process in started:
            process.kill()
            process.join()
    return (first_ns - killed_ns) / 1e9


def main() -> None:
    """Print the median and the longest of the runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--postgresql", required=True, help="the address, without a store")
    parser.add_argument("--held", type=int, default=100_000, help="messages that wait for a day")
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    for has_standby in (True, False):
        mark = "&" if "?" in given.postgresql else "?"
        stores = (f"{given.postgresql}{mark}store=takeover-{time.time_ns()}-{run}" for run in range(given.runs))
        took_s = [measured_s(store, given.held, has_standby=has_standby) for store in stores]
        what = "a standby" if has_standby else "an empty file"
        print(f"{given.held:,} held, {what}: median {statistics.median(took_s):.2f} s, longest {max(took_s):.2f} s")


if __name__ == "__main__":
    main()
