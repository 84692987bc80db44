"""How late the messages of healthy customers are beside bad ones, by kind of destination (rule D6).

    python -m benches.python.delivery.neighbours [--only "webhook: 40 hang"]... [--check]

Each customer is a key. Each case runs in a process of its own, in real time and with the usual settings. A function and
a coroutine run in this process; a webhook goes to a receiver in another. The first number is that of the healthy
messages that came, of those that were due; then the greatest lateness of one of them.
"""

import asyncio
import json
import logging
import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any, ClassVar

import click
from rich.console import Console
from rich.table import Table

from tickwheel.delivery import Delivery, DeliveryQueue

from .receiver import ANSWER, Receiver

HEALTHY = 100
EACH_S = 1.7  # a healthy customer has a message about this often
HANG_S = 60.0


@dataclass(frozen=True)
class Case:
    """`bad` customers of a kind, with one message each, due within `bad_within_s`; the healthy ones' are due within
    `within_s`. `aim_s`: the greatest lateness that is allowed.
    """

    to: str
    kind: str
    bad: int = 40
    aim_s: float = 1.0
    size: int = 2
    bad_within_s: float = 5.0
    within_s: float = 5.0
    files: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def healthy_messages(self) -> int:
        """Of each healthy customer."""
        return max(3, round(self.within_s / EACH_S))


@dataclass(frozen=True)
class Row:
    """The result of a case."""

    came: int
    due: int
    latest_s: float


KINDS = {
    "function": ("refuses", "hangs", "raises TimeoutError", "answers 500", "answers 503", "raises ValueError"),
    "coroutine": ("refuses", "hangs", "raises TimeoutError", "answers 500", "answers 503", "raises ValueError"),
    "webhook": ("cuts the connection", "hangs", "answers 500", "answers 503", "answers 404"),
}
CASES = {f"{to}: 40, each {kind}": Case(to, kind) for to, kinds in KINDS.items() for kind in kinds}
CASES |= {
    f"{to}: 40 with 1 MiB, each {kind}": Case(to, kind, size=1_000_000)
    for to, kind in (("function", "refuses"), ("coroutine", "hangs"), ("webhook", "hangs"))
}
CASES |= {
    f"{to}: 800, each hangs": Case(to, "hangs", bad=800, aim_s=2.0, bad_within_s=0.001)
    for to in ("coroutine", "webhook")
}
CASES |= {
    "webhook: 300, each hangs, 1,024 files": Case("webhook", "hangs", bad=300, files=1_024),
    "function: 100,000, each refuses": Case(
        "function", "refuses", bad=100_000, aim_s=5.0, bad_within_s=60.0, within_s=60.0
    ),
    "coroutine: 100,000, each refuses": Case(
        "coroutine", "refuses", bad=100_000, aim_s=5.0, bad_within_s=60.0, within_s=60.0
    ),
    "webhook: 100,000, each cuts the connection": Case(
        "webhook", "cuts the connection", bad=100_000, aim_s=5.0, bad_within_s=60.0, within_s=60.0
    ),
    # The bound of D6: 40 keys that hang 1 s, in 4 places.
    "function: 40, each hangs 1 s, concurrency 4": Case(
        "function", "hangs 1 s", aim_s=10.8, bad_within_s=0.001, within_s=0.001, options={"concurrency": 4}
    ),
}


def raised(kind: str) -> Exception:
    """What a function raises for a bad customer."""
    match kind:
        case "refuses":
            return ConnectionRefusedError("its server is gone")
        case "raises TimeoutError":
            return TimeoutError("no answer")
        case "raises ValueError":
            return ValueError("no such customer")
    status, _, after_s = kind.removeprefix("answers ").partition(", Retry-After: ")
    headers = Message()
    if after_s:
        headers["Retry-After"] = after_s
    return urllib.error.HTTPError("http://customer", int(status), "failed", headers, None)


class Healthy:
    """The messages of healthy customers that came."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.all_came = threading.Event()
        self._lock = threading.Lock()
        self._late_ms: dict[str, float] = {}

    def came(self, id_: str, late_ms: float) -> None:
        """Counts a message, once."""
        with self._lock:
            self._late_ms.setdefault(id_, late_ms)
            if len(self._late_ms) == self.count:
                self.all_came.set()

    def row(self) -> Row:
        """What came up to now."""
        return Row(len(self._late_ms), self.count, max(self._late_ms.values(), default=0.0) / 1_000)


def function(kind: str, healthy: Healthy) -> Callable[[Delivery], None]:
    """The destination of a function."""
    ended = threading.Event()

    def send(delivery: Delivery) -> None:
        if delivery.message.id.startswith("good"):
            healthy.came(delivery.message.id, delivery.lateness_ms)
        elif kind == "hangs":
            ended.wait(HANG_S)
        elif kind == "hangs 1 s":
            ended.wait(1.0)
        else:
            raise raised(kind)

    return send


def coroutine(kind: str, healthy: Healthy) -> Callable[[Delivery], Awaitable[None]]:
    """The destination of a coroutine function."""

    async def send(delivery: Delivery) -> None:
        if delivery.message.id.startswith("good"):
            healthy.came(delivery.message.id, delivery.lateness_ms)
        elif kind == "hangs":
            await asyncio.sleep(HANG_S)
        else:
            raise raised(kind)

    return send


class Treating(Receiver):
    """A connection to the receiver. `kind` is how it treats messages of bad customers."""

    kind: ClassVar[str]

    def answer(self, body: bytes, transport: asyncio.Transport) -> None:
        """Accepts messages of healthy customers, and prints them."""
        if b'"id":"good' in body[:100]:
            message = json.loads(body)
            print(message["id"], message["lateness_ms"], flush=True)
            transport.write(ANSWER)
        elif self.kind == "cuts the connection":
            transport.abort()
        elif self.kind != "hangs":
            status = self.kind.removeprefix("answers ").encode()
            transport.write(b"HTTP/1.1 " + status + b" No\r\ncontent-length: 0\r\n\r\n")


async def receive(kind: str) -> None:
    """The receiver's process: prints its port, then each healthy message with its lateness."""
    Treating.kind = kind
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Treating, "127.0.0.1", 0, backlog=4_096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def put_all(queue: DeliveryQueue, case: Case) -> float:
    """Puts all messages, and returns when the last one is due."""
    rng = random.Random(1)
    start_ms = time.time() * 1_000 + 1_000 + case.bad * (0.3 + case.size / 20_000)
    payload = b'"' + b"x" * (case.size - 2) + b'"'
    bad = ((f"bad {number}", case.bad_within_s, payload) for number in range(case.bad))
    messages = [(name, int(start_ms + 1_000 * within_s * rng.random()), body, name) for name, within_s, body in bad]
    for number in range(HEALTHY):
        for each in range(case.healthy_messages):
            due_ms = int(start_ms + 1_000 * case.within_s * rng.random())
            messages.append((f"good {number}-{each}", due_ms, b"1", f"good {number}"))
    at_once = 1_000 if case.size < 1_000 else 10
    for place in range(0, len(messages), at_once):
        queue.put_many(messages[place : place + at_once])
    late_s = time.time() - start_ms / 1_000
    if late_s > 0:
        raise RuntimeError(f"the messages were put {late_s:.1f} s too late")
    return start_ms / 1_000 + max(case.within_s, case.bad_within_s)


def measure(case: Case, store: str) -> Row:
    """Runs one case in this process, which does not wait then for calls that hang."""
    if case.files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (case.files, case.files))
    healthy, receiver = Healthy(HEALTHY * case.healthy_messages), None
    to: Any
    if case.to == "webhook":
        command = [sys.executable, "-m", "benches.python.delivery.neighbours", "--receive", case.kind]
        receiver = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert receiver.stdout is not None
        to = f"http://127.0.0.1:{int(receiver.stdout.readline())}/"
        lines = receiver.stdout

        def read() -> None:
            for line in lines:
                id_, _, late_ms = line.rpartition(" ")
                healthy.came(id_, float(late_ms))

        threading.Thread(target=read, daemon=True).start()
    else:
        to = (function if case.to == "function" else coroutine)(case.kind, healthy)
    queue = DeliveryQueue(store, to=to, on_dead_letter=lambda _: None, **case.options)
    last_s = put_all(queue, case)
    healthy.all_came.wait(last_s - time.time() + case.aim_s + 20)
    if receiver is not None:
        receiver.kill()
        receiver.wait()
    return healthy.row()


@click.command()
@click.option("--only", "names", multiple=True, type=click.Choice([*CASES]), help="This case; may be repeated.")
@click.option("--check", is_flag=True, help="Fail if a target is missed.")
@click.option("--case", "one", nargs=2, hidden=True)
@click.option("--receive", "kind", hidden=True)
def main(names: tuple[str, ...], one: tuple[str, str] | None, kind: str | None, *, check: bool) -> None:
    """Measure each case, and print a table."""
    if kind is not None:
        asyncio.run(receive(kind))
        return
    if one is not None:
        logging.disable()
        name, store = one
        print(json.dumps(asdict(measure(CASES[name], store))), flush=True)
        os._exit(0)  # calls that hang are not waited for
    table = Table(title="Healthy messages beside bad customers")
    for name in ("case", "came", "of", "latest, s", "aim, s"):
        table.add_column(name, justify="right" if name != "case" else "left")
    missed = False
    Path("build").mkdir(exist_ok=True)
    for name in names or CASES:
        with tempfile.TemporaryDirectory(dir="build") as folder:
            command = [sys.executable, "-m", "benches.python.delivery.neighbours", "--case", name, f"{folder}/store.db"]
            row = Row(**json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
        aim_s = CASES[name].aim_s
        missed |= row.came < row.due or row.latest_s > aim_s
        table.add_row(name, f"{row.came}", f"{row.due}", f"{row.latest_s:.3f}", f"{aim_s:g}")
    Console(width=110).print(table)
    if check and missed:
        sys.exit(1)


if __name__ == "__main__":
    main()
