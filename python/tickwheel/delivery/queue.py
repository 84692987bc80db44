"""`DeliveryQueue`: durable delayed delivery inside a Python program (rule D11)."""

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from tickwheel import SystemTimer
from tickwheel.delivery.clock import DueClock, WallClock
from tickwheel.delivery.engine import Engine, Settings
from tickwheel.delivery.errors import DeliveryFailed, WrongUsage
from tickwheel.delivery.items import OTHER_CONTENT, Answer, Item, Look, Put
from tickwheel.delivery.message import Cancel, Columns, Fields, Message, check, check_name, checked
from tickwheel.delivery.retry import Retry
from tickwheel.delivery.sinks import Delivery, SinkOpener, open_sink, sink_of_function
from tickwheel.delivery.store.letters import Letter
from tickwheel.delivery.store.owner import Ownership
from tickwheel.delivery.summary import Summary

_CLOSE_WITHIN_S = 30.0
_SLACK_US = 300  # between two wake-ups of the timer: messages due meanwhile go out together, which saves work
_USUAL = Columns()


class DeliveryQueue:
    """A durable queue: delivers messages on time to the millisecond, in order per key, once, also after a crash.

    `store`: a file, made if it does not exist; if another process has it open, the constructor waits. `to`: the
    destination: an address as for `tickwheel deliver --to`, or a function that is called with each `Delivery`, from up
    to 8 threads, one at a time for a key. `order`: `"key"`, or `"global"` for one order of all messages. `horizon_s`:
    how far ahead messages are loaded into memory. `max_attempts`, `sink_timeout_s`, `keep_ids_days`: as the options of
    the command. `on_dead_letter` is called with each message that was given up, in the writer's thread.
    Errors: `WrongUsage`, `StoreFailed`, `DeliveryFailed`. Close it, or use it as a context manager.

    >>> import tempfile, threading
    >>> arrived = threading.Event()
    >>> def remind(delivery):
    ...     print(delivery.message.id, bytes(delivery.message.payload).decode())
    ...     arrived.set()
    >>> with tempfile.TemporaryDirectory() as folder, DeliveryQueue(f"{folder}/reminders.db", to=remind) as queue:
    ...     answer = queue.put("tea", {"text": "the tea is ready"}, delay_ms=20)
    ...     arrived.wait(10)
    tea {"text":"the tea is ready"}
    True
    >>> answer
    <Answer.ACCEPTED: 'accepted'>
    """

    def __init__(
        self,
        store: str | Path,
        to: str | Callable[[Delivery], object],
        *,
        order: Literal["key", "global"] = "key",
        horizon_s: float = 10.0,
        max_attempts: int = 5,
        sink_timeout_s: float = 30.0,
        keep_ids_days: float = 7.0,
        on_dead_letter: Callable[[Letter], object] | None = None,
    ) -> None:
        opener = open_sink(to) if isinstance(to, str) else sink_of_function(to)
        settings = Settings(order, horizon_s, sink_timeout_s, keep_ids_days, Retry(max_attempts))

        def put_letters(letters: Sequence[Letter]) -> None:
            for letter in letters:
                if on_dead_letter is not None:
                    on_dead_letter(letter)

        self._running = Running(Path(store), opener, settings, put_letters)
        self._running.start(WallClock(self._running.timer))

    def put(
        self,
        id: str,  # noqa: A002, as in a message
        payload: Any = None,
        *,
        due: datetime | str | int | None = None,
        delay_ms: float | None = None,
        key: str | None = None,
    ) -> Answer:
        """Accept a message, and return once it is on disk: `ACCEPTED`, `DUPLICATE`, or `CANCELLED` by an early cancel.

        `due`: RFC 3339 text, a `datetime` with a zone, or epoch milliseconds; or else `delay_ms` from now. `payload`:
        `bytes`, or a value that JSON can hold. Errors: `BadRecord`, also for a known id with other content.
        Costs one commit; the messages of a `put_many` share one.
        """
        [answer] = self.submit([message_from(id, payload, due=due, delay_ms=delay_ms, key=key)]).result()
        if answer is Answer.OTHER_CONTENT:
            raise OTHER_CONTENT
        return answer

    def put_many(self, messages: Iterable[Message]) -> list[Answer]:
        """Accept messages in one or a few commits, and return once they are on disk; may answer `OTHER_CONTENT`."""
        every = list(messages)
        tickets = [self.submit(every[start : start + 1000]) for start in range(0, len(every), 1000)]
        return [answer for ticket in tickets for answer in ticket.result()]

    def cancel(self, id: str, key: str | None = None) -> Answer:  # noqa: A002
        """Cancel a message (D7), and return once the cancel is on disk.

        `CANCELLED`: it will not be sent, or was cancelled before. `DELIVERED`, `DEAD`: too late. `DELIVERING`: it is
        being sent, or a send was tried. `UNKNOWN`: it has not come; it is cancelled when it comes.
        """
        [answer] = self.submit([Cancel(id, key)]).result()
        return answer

    def state(self, id: str, key: str | None = None) -> Answer:  # noqa: A002
        """The state of a message: one of the answers of `cancel`, or `WAITING`."""
        [answer] = self.submit([Look(id, key)]).result()
        return answer

    def submit(self, items: Sequence[Message | Cancel | Look]) -> "Future[list[Answer]]":
        """Submit items without waiting for the disk: the future gets their answers, in order, once all are on disk.

        Blocks while some thousand are queued. Errors: `BadRecord`, and then none is accepted; `DeliveryFailed` once
        delivery has failed, also from the future.
        """
        prepared: list[Item] = []
        for item in items:
            if isinstance(item, Message):
                prepared.append(Put.of(checked(item)))
            else:
                check_name(item.id, item.key)
                prepared.append(item)
        return self._running.engine.writer.submit(prepared)

    def wait_until_empty(self, timeout_s: float) -> bool:
        """Whether the queue got empty within this time. Errors: `DeliveryFailed` once delivery has failed."""
        return self._running.engine.wait(timeout_s)

    @property
    def summary(self) -> Summary:
        """The present counts; lateness only once the queue is closed."""
        return self._running.engine.summary

    def __len__(self) -> int:
        """The number of waiting messages."""
        waiting: int = self._running.engine.store.waiting
        return waiting

    def close(self) -> None:
        """Send the messages due by now, commit, and stop. The rest stays in the store. Errors: `DeliveryFailed`."""
        self._running.close(_CLOSE_WITHIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Running:
    """An open store and an engine that runs on it, until `close`. Nothing is due before `start`.

    `waiting` is called once if another process has the store.
    """

    def __init__(
        self,
        path: Path,
        opener: SinkOpener,
        settings: Settings,
        put_letters: Callable[[Sequence[Letter]], None],
        waiting: Callable[[str], object] | None = None,
    ) -> None:
        path = path.resolve()
        self._owner = Ownership.of(path, waiting)
        self.timer = SystemTimer("deliver", slack_us=_SLACK_US, on_error=lambda _, error: self.engine.fail(error))
        try:
            self.engine = Engine(path, opener, self.timer, settings, put_letters=put_letters)
            try:
                self.engine.run()
            except BaseException:
                with contextlib.suppress(DeliveryFailed):
                    self.engine.close(0)
                raise
        except BaseException:
            self.timer.shutdown(0)
            self._owner.release()
            raise

    def start(self, clock: DueClock) -> None:
        """Start delivery: from now on messages are due, by this clock."""
        self.engine.start(clock)

    def close(self, timeout_s: float | None) -> None:
        """Errors: `DeliveryFailed`."""
        try:
            self.engine.close(timeout_s)
        finally:
            self._owner.release()


def message_from(
    id_: str, payload: Any, *, due: datetime | str | int | None, delay_ms: float | None, key: str | None
) -> Message:
    """A message from Python values, by the same rules as for a record (D1). Errors: `BadRecord`."""
    if isinstance(due, datetime):
        due = due.isoformat()
    fields = Fields(id=id_, key=key, due=due, delay_ms=delay_ms)
    if isinstance(payload, bytes):
        fields.payload = payload
    else:
        try:
            fields.payload = msgspec.Raw(msgspec.json.encode(payload))
        except TypeError as error:
            raise WrongUsage(f"the payload can't be written as JSON: {error}; give bytes instead") from error
    message = check(fields, _USUAL, time.time_ns())
    assert isinstance(message, Message)
    return message
