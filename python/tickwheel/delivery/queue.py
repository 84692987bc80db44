"""`DeliveryQueue`: durable delayed delivery inside a Python program (rule D11)."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from tickwheel.delivery.entries import OTHER_CONTENT, Answer, Letter, Look
from tickwheel.delivery.errors import WrongUsage
from tickwheel.delivery.log import log_letters, logger
from tickwheel.delivery.message import Cancel, Columns, Fields, Message, check
from tickwheel.delivery.retry import Retry
from tickwheel.delivery.running import Running
from tickwheel.delivery.settings import Settings
from tickwheel.delivery.sinks import Delivery, open_sink, sink_of_function
from tickwheel.delivery.summary import Summary

_CLOSE_WITHIN_S = 30.0
_USUAL = Columns()


class DeliveryQueue:
    """A durable queue: delivers messages on time to the millisecond, in order per key, once, also after a crash.

    `store`: a file, made if it does not exist; if another process has it open, the constructor waits. `to`: the
    destination: an address as for `tickwheel deliver --to`, or a function that is called with each `Delivery`, from up
    to 8 threads, one at a time for a key. `order`: `"key"`, or `"global"` for one order of all messages. `horizon_s`:
    how far ahead messages are loaded into memory. `max_attempts`, `sink_timeout_s`, `keep_ids_days`: as the options of
    the command. `on_dead_letter` is called with each message that was given up, in a thread of its own;
    without it they are logged.
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
                try:
                    on_dead_letter(letter)  # type: ignore[misc]  # it is used only where there is one
                except Exception:
                    logger.exception("on_dead_letter failed with the letter of %s, line %d", letter.source, letter.line)

        self._running = Running(Path(store), opener, settings, put_letters if on_dead_letter else log_letters)
        self._running.start()

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

    def put_many(self, messages: Iterable[Message | Mapping[str, Any] | Sequence[Any]]) -> list[Answer]:
        """Accept messages in one or a few commits, and return once they are on disk; may answer `OTHER_CONTENT`.

        A message is a `Message`, a dict with the arguments of `put`, or a tuple `(id, due, payload)` or `(id, due,
        payload, key)`.
        """
        every = [_message(message) for message in messages]
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
        return self._running.submit(items)

    def wait_until_empty(self, timeout_s: float) -> bool:
        """Whether the queue got empty within this time. Errors: `DeliveryFailed` once delivery has failed."""
        return self._running.wait(timeout_s)

    @property
    def summary(self) -> Summary:
        """The present counts; lateness only once the queue is closed."""
        return self._running.summary

    def __len__(self) -> int:
        """The number of waiting messages."""
        return self._running.waiting

    def close(self) -> None:
        """Send the messages due by now, commit, and stop. The rest stays in the store. Errors: `DeliveryFailed`."""
        self._running.close(_CLOSE_WITHIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _message(given: Message | Mapping[str, Any] | Sequence[Any]) -> Message:
    match given:
        case Message():
            return given
        case Mapping() if "id" in given and given.keys() <= {"id", "payload", "due", "delay_ms", "key"}:
            due, delay_ms, key = given.get("due"), given.get("delay_ms"), given.get("key")
            return message_from(given["id"], given.get("payload"), due=due, delay_ms=delay_ms, key=key)
        case (id_, due, payload):
            return message_from(id_, payload, due=due, delay_ms=None, key=None)
        case (id_, due, payload, key):
            return message_from(id_, payload, due=due, delay_ms=None, key=key)
    raise WrongUsage(
        f"{given!r:.200} is no message: give a Message, a dict with id, due or delay_ms, payload and key, or a tuple"
        " (id, due, payload) or (id, due, payload, key)"
    )


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
