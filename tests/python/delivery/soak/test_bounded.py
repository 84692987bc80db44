"""D8: memory does not grow with the waiting messages: it stays within 100 MiB of an empty deliverer's."""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tickwheel.delivery import Delivery, DeliveryQueue, Message

pytestmark = pytest.mark.timeout(1200)

Size = Callable[[int, int], int]

MIB = 1 << 20

PROCESS = """
import json, re, sys, time
from pathlib import Path
import msgspec
from tickwheel.delivery import DeliveryQueue, Message
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.sinks import open_sink

what, store, messages = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
PAYLOAD = msgspec.Raw(json.dumps({"text": "x" * 150}).encode())
now_ms = time.time_ns() // 1_000_000
YEAR_MS = 365 * 86_400_000

def fill(submit, due_ms):
    for start in range(0, messages, 1000):
        every = range(start, min(start + 1000, messages))
        submit([Message(f"message {n}", f"key {n % 997}", due_ms(n), PAYLOAD) for n in every])

if what == "outage":  # accepted, but nothing was delivered: as after a crash and a day without the process
    running = Running(store, open_sink("file:/dev/null"), Settings(), print)
    fill(lambda every: running.submit(every).result(), lambda n: now_ms - 86_400_000 + n)
    running.close(10)
elif what == "year":
    with DeliveryQueue(store, to="file:/dev/null") as queue:
        fill(lambda every: queue.submit(every), lambda n: now_ms + 3_600_000 + (n * 7_919_777) % YEAR_MS)
        queue.submit([]).result()
        assert len(queue) == messages
else:
    with DeliveryQueue(store, to="file:/dev/null") as queue:
        assert queue.wait_until_empty(1000)
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


def peak(what: str, store: Path, messages: int) -> int:
    """The peak resident memory, in bytes, of a process that does this."""
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, what, str(store), str(messages)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout) * 1024


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> int:
    return peak("deliver", tmp_path_factory.mktemp("empty") / "store.db", 0)


def test_messages_due_over_a_year_wait_on_disk__D8(tmp_path: Path, size: Size, empty: int) -> None:
    grown = peak("year", tmp_path / "store.db", size(70_000, 1_000_000)) - empty
    print(f"a year: {grown / MIB:.0f} MiB over an empty deliverer's {empty / MIB:.0f}")
    assert grown < 100 * MIB


def test_after_an_outage_what_is_overdue_comes_in_as_it_goes_out__D8(tmp_path: Path, size: Size, empty: int) -> None:
    messages = size(70_000, 1_000_000)
    store = tmp_path / "store.db"
    peak("outage", store, messages)
    grown = peak("deliver", store, messages) - empty
    print(f"an outage: {grown / MIB:.0f} MiB over an empty deliverer's {empty / MIB:.0f}")
    assert grown < 100 * MIB


def test_ten_thousand_messages_of_one_millisecond_arrive_in_order_per_key__D4(tmp_path: Path) -> None:
    arrived: dict[str | None, list[int]] = defaultdict(list)

    def take(delivery: Delivery) -> None:
        arrived[delivery.message.key].append(json.loads(bytes(delivery.message.payload)))

    with DeliveryQueue(tmp_path / "store.db", to=take) as queue:
        due_ms = 1_700_000_000_000
        messages = [Message(f"id {n}", f"key {n % 100}", due_ms, msgspec.Raw(b"%d" % n)) for n in range(10_000)]
        queue.put_many(messages)
        assert queue.wait_until_empty(100)
    assert dict(arrived) == {f"key {key}": list(range(key, 10_000, 100)) for key in range(100)}
