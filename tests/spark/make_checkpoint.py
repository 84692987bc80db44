"""Makes `tests/data/checkpoint-N.tar.xz`: a small checkpoint in the format N of now, with its deliverer's store.

    PYTHONPATH=tests/python python -m tests.spark.make_checkpoint [FILE]

One was made with Spark 4.1.1. Keep the files of earlier formats: an upgrade is tried on them. Messages are due in 2100,
or stuck.
"""

import json
import shutil
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tickwheel.delivery import DeliveryQueue
from tickwheel.delivery.model.message import Columns
from tickwheel.delivery.read.sources import find_sources
from tickwheel.spark import HandOff
from tickwheel.spark.feed import Pipeline
from tickwheel.spark.packing import VERSION

from .ports import port_of

PLACE = Path("/tmp/tickwheel-checkpoint")
DATA = Path(__file__).parents[1] / "data"
FAR, LATER, NOW = "2100-01-01T00:00:00Z", "2200-01-01T00:00:00Z", "2026-01-01T00:00:00Z"
SECONDS_OF_63_YEARS = 2_000_000_000

FIRST: list[dict[str, Any]] = [
    *({"id": f"m{n}", "key": f"k{n % 5}", "due": FAR, "payload": {"n": n, "text": "é"}} for n in range(30)),
    {"id": "m3", "key": "k3", "op": "reschedule", "due": LATER},
    {"id": "m4", "key": "k4", "op": "cancel"},
    {"id": "done", "due": NOW},
    {"id": "stuck", "due": NOW, "payload": "at the deliverer"},
    {"id": "stuck and put off", "key": "k0", "due": NOW},
    {"id": "stuck by delay", "key": "k1", "delay_ms": 1.5},
    {"id": "delayed", "delay_ms": SECONDS_OF_63_YEARS * 1000},
    {"id": "delayed, expires", "delay_ms": SECONDS_OF_63_YEARS * 1000, "expires": LATER},
    {"id": "expires", "due": FAR, "expires": LATER, "traceparent": f"00-{1:032x}-{2:016x}-01"},
    {"id": "bytes", "due": FAR, "payload_base64": "/wA="},
    {"id": "beat", "key": "k2", "every": 10_000_000_000, "missed": "all", "payload": [1]},
    {"id": "new year", "cron": "0 0 1 1 *", "tz": "Europe/Berlin", "due": FAR},
]
SECOND: list[dict[str, Any]] = [{"id": "stuck and put off", "key": "k0", "op": "reschedule", "due": FAR}]
THIRD: list[dict[str, Any]] = [  # while the deliverer is down
    {"id": "near", "key": "k0", "due": NOW},
    {"id": "m5", "key": "k0", "op": "cancel"},
    {"id": "m6", "key": "k1", "op": "reschedule", "due": LATER},
    {"id": "never", "due": "tomorrow"},
]


def make(place: Path) -> None:
    """Three runs: with a deliverer that can't send some messages, again, and without it."""
    store, files = place / "store.db", place / "in"
    files.mkdir(parents=True)

    def send(delivery: Any) -> None:
        if delivery.message.id.startswith("stuck"):
            raise ConnectionError("it is down")

    with DeliveryQueue(store, to=send) as queue, port_of(queue) as at:
        _run(place, at, FIRST, lambda report: (report.waiting, report.given, report.recurring) == (34, 4, 2))
        _run(place, at, SECOND, lambda report: (report.waiting, report.given) == (34, 5) and _is_put_off(queue))
    _run(place, at, THIRD, lambda report: report.waiting >= 37)


def _is_put_off(queue: DeliveryQueue) -> bool:
    return queue.view.show("stuck and put off", "k0").due.startswith("2100")


def _run(place: Path, at: str, records: list[dict[str, Any]], is_enough: Callable[[Any], bool]) -> None:
    number = len([*(place / "in").iterdir()])
    (place / "in" / f"{number}.ndjson").write_text("".join(f"{json.dumps(it)}\n" for it in records))
    hand_off, stop = HandOff([at]), threading.Event()

    def check(progress: Any) -> None:
        if hand_off.report.shards:
            print(number, hand_off.report.waiting, hand_off.report.given, hand_off.report.recurring)
        if progress and progress["batchId"] > 2 and is_enough(hand_off.report):
            stop.set()

    sources = find_sources([str(place / "in")])
    Pipeline(sources, Columns(), place / "checkpoint", 20_000).feed(hand_off, stop, check)


def main() -> None:
    """Write the file."""
    shutil.rmtree(PLACE, ignore_errors=True)
    make(PLACE)
    to = Path(sys.argv[1]) if sys.argv[1:] else DATA / f"checkpoint-{VERSION}.tar.xz"
    with tarfile.open(to, "w:xz") as archive:
        for name in ("checkpoint", "store.db"):
            archive.add(PLACE / name, name)
    shutil.rmtree(PLACE)


if __name__ == "__main__":
    main()
