"""Runs where the wheel is installed with its extra `delivery`: a queue, and the command. Prints `delivered`."""

import json
import pathlib
import queue
import subprocess
import sys
import tempfile

import tickwheel
from tickwheel.delivery import DeliveryQueue

assert pathlib.Path(tickwheel.__file__).is_relative_to(sys.prefix), tickwheel.__file__

COMMAND = pathlib.Path(sys.executable).with_name("tickwheel")
LINES = "".join(f'{{"id": "{id_}", "delay_ms": {delay_ms}}}\n' for id_, delay_ms in (("b", 200), ("a", 100)))


def command(*words, **more):
    return subprocess.run([COMMAND, *words], capture_output=True, text=True, timeout=60, **more)


arrived = queue.SimpleQueue()
with tempfile.TemporaryDirectory() as folder, DeliveryQueue(pathlib.Path(folder) / "store.db", arrived.put) as messages:
    messages.put("hello", delay_ms=10, payload={"text": "from Python"})
    delivery = arrived.get(timeout=30)
    assert (delivery.message.id, json.loads(bytes(delivery.message.payload))) == ("hello", {"text": "from Python"})
    assert delivery.lateness_ms >= 0

delivered = command("deliver", "-", input=LINES)
assert delivered.returncode == 0, delivered.stderr
assert [json.loads(line)["id"] for line in delivered.stdout.splitlines()] == ["a", "b"]

assert "tickwheel deliver -" in command().stderr
assert command("--version").stdout == f"tickwheel, version {tickwheel.__version__}\n"
print("delivered")
