"""The surfaces of delivery, each as one class: an operation goes in, and its answer comes back as a word of `Answer`.

All have the same destination, clock and engine, and differ in the surface alone. A surface without an operation uses
the one that its users would: messages of a hand-off are paused and requeued over HTTP.

To add a surface, write a class with `do`, `due`, `letters`, `destination` and `close`, and name it in `SURFACES`.
`without` are fields of `put` for which the surface has no way.
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

import msgspec
from click.testing import CliRunner

from delivery.batches import stream
from delivery.serve.conftest import ARROW, Served
from tickwheel._native import NdjsonLines
from tickwheel.commands import tickwheel as command
from tickwheel.delivery import (
    AsyncClient,
    AsyncDeliveryQueue,
    BadRecord,
    Client,
    Delivery,
    DeliveryQueue,
    Letter,
    Unavailable,
)
from tickwheel.delivery.model.message import MAX_PAYLOAD, Columns
from tickwheel.delivery.read.hand_off_rows import HANDED, batch_of

STEERING = {"requeue", "again", "pause", "resume", "state", "forget_event"}


class Destination:
    """Remembers what it got, and refuses the ids that it is told to."""

    def __init__(self) -> None:
        self.refused: frozenset[str] = frozenset()
        self.away: frozenset[str] = frozenset()
        self._got: list[Delivery] = []
        self._has_changed = threading.Condition()

    def __call__(self, delivery: Delivery) -> None:
        if delivery.message.id in self.refused:
            raise ValueError("refused by the test")
        if delivery.message.id in self.away:
            raise Unavailable("away by the test", retry_after_s=3_600)
        with self._has_changed:
            self._got.append(delivery)
            self._has_changed.notify_all()

    def take(self, count: int, within_s: float) -> list[Delivery]:
        """The next ones, and whatever came beside them."""
        with self._has_changed:
            self._has_changed.wait_for(lambda: len(self._got) >= count, within_s)
            got, self._got = self._got, []
            return got


class Queue:
    """`DeliveryQueue`: calls with values."""

    name: ClassVar = "queue"
    without: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, folder: Path) -> None:
        self.destination = Destination()
        self.letters: list[str] = []
        self.store = folder / "store.db"
        self.open(self.store)

    def open(self, store: Path) -> None:
        self.queue = DeliveryQueue(store, self.destination, max_attempts=1, on_dead_letter=self.keep)

    def keep(self, letter: Letter) -> None:
        record = letter.record if isinstance(letter.record, bytes) else bytes(letter.record or b"")
        self.letters.append(json.loads(record)["id"])

    def do(self, op: str, fields: dict[str, Any]) -> str:
        return said(self, op, fields)

    def call(self, op: str, fields: dict[str, Any]) -> Any:
        first, named = arguments(op, fields)
        return getattr(self.queue, op)(*first, **named)

    def due(self, id_: str, key: str | None) -> str:
        shown = self.queue.view.show(id_, key)
        assert shown is not None
        assert shown.due is not None
        return shown.due

    def close(self) -> None:
        self.queue.close()


class Lines(Queue):
    """`submit_ndjson` of the same queue: messages, cancels and other due times as lines."""

    name = "lines"
    without = frozenset({"replace"})

    def call(self, op: str, fields: dict[str, Any]) -> Any:
        if op in STEERING:
            return super().call(op, fields)
        [answer] = self.queue.submit_ndjson(line(op, fields)).result(20)
        if isinstance(answer, BadRecord):
            raise answer
        return answer


class Async(Queue):
    """`AsyncDeliveryQueue`, on a loop in a thread."""

    name = "async queue"

    def open(self, store: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

        async def destination(delivery: Delivery) -> None:
            self.destination(delivery)

        self.opened = AsyncDeliveryQueue(store, destination, max_attempts=1, on_dead_letter=self.keep)
        self.run(self.opened.__aenter__())

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(20)

    def call(self, op: str, fields: dict[str, Any]) -> Any:
        first, named = arguments(op, fields)
        return self.run(getattr(self.opened, op)(*first, **named))

    def due(self, id_: str, key: str | None) -> str:
        async def show() -> Any:
            return await self.opened.view.show(id_, key)

        return str(self.run(show()).due)

    def close(self) -> None:
        try:
            self.run(self.opened.close())
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(20)
            self.loop.close()


class Http:
    """The requests of `serve`, one for each operation."""

    name: ClassVar = "http"
    without: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, folder: Path) -> None:
        self.destination = Destination()
        self.store = folder / "store.db"
        self.served = Served(folder, to=self.destination, max_attempts=1)

    @property
    def letters(self) -> list[str]:
        return [json.loads(it["record"])["id"] for it in self.served.ask("GET", "/dead").body["letters"]]

    def do(self, op: str, fields: dict[str, Any]) -> str:
        method, path, body = getattr(self, f"_{op}")(dict(fields))
        reply = self.served.ask(method, path, body)
        if reply.status == 400:
            return "refused"
        if isinstance(reply.body, dict) and "state" in reply.body:
            answer = str(reply.body["state"])
            assert reply.status == status_of(op, answer), f"{op} is answered {answer} with {reply.status}"
            return answer
        return {
            ("put", 409): "conflict",
            ("event", 409): "conflict",
            ("pause", 200): "paused",
            ("resume", 200): "resumed",
        }[op, reply.status]

    def _put(self, fields: dict[str, Any]) -> tuple[str, str, Any]:
        replacing = {name: fields.pop(name) for name in ("replace", "at_latest_ms") if name in fields}
        if "replace" in replacing:
            replacing["replace"] = "true"
        return "POST", f"/messages?{urlencode(replacing)}".rstrip("?"), fields

    def _cancel(self, fields: dict[str, Any]) -> tuple[str, str, Any]:
        return "DELETE", address(fields), None

    def _state(self, fields: dict[str, Any]) -> tuple[str, str, Any]:
        return "GET", address(fields), None

    def _reschedule(self, fields: dict[str, Any]) -> tuple[str, str, Any]:
        return "PATCH", address(fields), {name: fields[name] for name in ("due", "delay_ms") if name in fields}

    def _event(self, fields: dict[str, Any]) -> tuple[str, str, Any]:
        return "POST", "/messages", {"op": "event", **fields}

    def _forget_event(self, fields: dict[str, Any]) -> tuple[str, str, Any]:
        return "DELETE", f"/remembered?{urlencode(fields)}", None

    def _requeue(self, fields: dict[str, Any]) -> tuple[str, str, Any]:
        return "POST", "/requeue", fields

    def _again(self, fields: dict[str, Any]) -> tuple[str, str, Any]:
        return "POST", f"/again?{urlencode(fields)}", None

    def _pause(self, fields: dict[str, Any]) -> tuple[str, str, Any]:
        given = {name: value for name, value in fields.items() if value is not None}
        return "POST", f"/pause?{urlencode(given)}", None

    def _resume(self, fields: dict[str, Any]) -> tuple[str, str, Any]:
        return "POST", of_key("/resume", fields), None

    def due(self, id_: str, key: str | None) -> str:
        return str(self.served.ask("GET", address({"id": id_, "key": key})).body["due"])

    def close(self) -> None:
        self.served.close()


class OfClient(Http):
    """`Client`, which asks that server."""

    name = "client"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.client = self.connect(f"http://127.0.0.1:{self.served.port}")

    def connect(self, url: str) -> Any:
        return Client(url)

    def do(self, op: str, fields: dict[str, Any]) -> str:
        return said(self, op, fields)

    def call(self, op: str, fields: dict[str, Any]) -> Any:
        first, named = arguments(op, fields)
        return getattr(self.client, op)(*first, **named)

    def close(self) -> None:
        self.client.close()
        super().close()


class OfAsyncClient(OfClient):
    """`AsyncClient`, each call on a loop of its own."""

    name = "async client"

    def connect(self, url: str) -> Any:
        return AsyncClient(url)

    def call(self, op: str, fields: dict[str, Any]) -> Any:
        async def ask() -> Any:
            first, named = arguments(op, fields)
            return await getattr(self.client, op)(*first, **named)

        return asyncio.run(ask())

    def close(self) -> None:
        asyncio.run(self.client.close())
        Http.close(self)


class Commands(Http):
    """`tickwheel cancel`, `event` and the other operations for that server, `show` for its store."""

    name = "commands"
    WORDS: ClassVar = {
        "it has not come": "unknown",
        "no message has this name": "unknown",
        "it is delivered": "delivered",
        "it is a dead letter": "dead",
        "it has expired": "expired",
        "it is cancelled": "cancelled",
        "it waits": "waiting",
        "nothing of this name waits": "unknown",
        "its key is paused": "paused",
        "no event of this name": "unknown",
        "other content": "conflict",
        "is no name of an event": "refused",
        "remember_ms": "refused",
    }
    OPTIONS: ClassVar = {"delay_ms": "delay", "remember_ms": "remember"}

    def do(self, op: str, fields: dict[str, Any]) -> str:
        if op == "put":
            return super().do(op, fields)
        if op == "state":
            return self.shown(fields)
        options = [
            f"--{self.OPTIONS.get(name, name)}={json.dumps(value) if name == 'payload' else value}"
            for name, value in fields.items()
            if value is not None and name != "event"
        ]
        name = [fields["event"]] if op == "event" else []
        server = f"http://127.0.0.1:{self.served.port}"
        seen = CliRunner().invoke(command, [op.replace("_", "-"), server, *name, *options])
        said = seen.stdout + seen.stderr
        if op in ("pause", "resume"):
            if seen.exit_code == 2 and "which is over" in said:
                return "refused"
            assert seen.exit_code == 0, said
            return {"pause": "paused", "resume": "resumed"}[op]
        if op == "event" and seen.exit_code == 0:
            return "let_go"
        if seen.exit_code == 0 and "it has not come" not in said:
            return said.rpartition(": ")[2].strip()
        (answer,) = {answer for words, answer in self.WORDS.items() if words in said}
        assert seen.exit_code == (0 if "it has not come" in said else 2 if op == "event" else 1), said
        return answer

    def shown(self, fields: dict[str, Any]) -> str:
        key = [f"--key={fields['key']}"] if fields.get("key") else []
        seen = CliRunner().invoke(command, ["show", str(self.store), fields["id"], "--json", *key])
        if seen.exit_code == 1 and not seen.stdout:
            return "unknown"
        assert seen.exit_code == 0, seen.output
        return str(json.loads(seen.stdout)["state"])


class HandOff(Http):
    """What Spark hands off: messages, cancels, other due times. None has an answer: it is on disk, or a dead letter. A
    recurring message is a dead letter too (S2): the store of a deliverer makes its occurrences.
    """

    name = "hand-off"
    without = frozenset({"replace", "every", "cron", "until_event", "event"})

    def do(self, op: str, fields: dict[str, Any]) -> str | None:  # type: ignore[override]
        if op in STEERING:
            return super().do(op, fields)
        records = NdjsonLines("in", Columns(), 2 * MAX_PAYLOAD).read(line(op, fields), now_ns=time.time_ns())
        given = stream(batch_of(records).select(HANDED.names))
        reply = self.served.ask("POST", "/hand-off", given, headers=ARROW)
        assert reply[:2] == (200, {"rows": 1}), reply
        return None


def said(surface: Any, op: str, fields: dict[str, Any]) -> str:
    """The answer of its call, `conflict` or `refused`."""
    try:
        answer = surface.call(op, fields)
    except BadRecord as bad:
        return "conflict" if "other content" in bad.reason else "refused"
    return {"pause": "paused", "resume": "resumed"}.get(op) or getattr(answer, "value", "let_go")  # or a count


def arguments(op: str, fields: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Those of the method of a queue."""
    named = dict(fields)
    if op == "event":
        return [named.pop("key"), named.pop("event")], named
    return [named.pop("id")] if "id" in named and op != "forget_event" else [], named


def status_of(op: str, answer: str) -> int:
    """As the page of HTTP has it: what was asked for is done, is not known, or it is too late."""
    match op, answer:
        case "put", "accepted":
            return 201
        case "cancel", "unknown":
            return 202
        case _, "unknown":
            return 404
        case ("put", _) | ("state", _) | ("event", _) | ("forget_event", _):
            return 200
        case ("cancel", "cancelled") | ("reschedule", "rescheduled") | ("requeue", "requeued") | ("again", "tried"):
            return 200
        case _:
            return 200 if op in ("pause", "resume") else 409


def line(op: str, fields: dict[str, Any]) -> bytes:
    given = {name: value for name, value in fields.items() if value is not None}
    return msgspec.json.encode(given if op == "put" else {**given, "op": op})


def address(fields: dict[str, Any]) -> str:
    return of_key(f"/messages/{quote(fields['id'], safe='')}", fields)


def of_key(path: str, fields: dict[str, Any]) -> str:
    return f"{path}?{urlencode({'key': fields['key']})}" if fields.get("key") else path


SURFACES: dict[str, Callable[[Path], Any]] = {
    it.name: it for it in (Queue, Lines, Async, Http, OfClient, OfAsyncClient, Commands, HandOff)
}
