"""`DeliveryQueue`: durable delayed delivery inside a Python program (rule D11)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from inspect import iscoroutinefunction
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, cast

import msgspec

from tickwheel._native import Receipt, due_ms_of, due_of, read_records
from tickwheel.delivery.base.errors import BadRecord, WrongUsage
from tickwheel.delivery.engine.running import Running
from tickwheel.delivery.model.bulk import Time, act_of, why_refused
from tickwheel.delivery.model.entries import (
    MANY_WAIT,
    OTHER_CONTENT,
    Act,
    Again,
    Answer,
    Event,
    ForgetEvent,
    Letter,
    Look,
    Pause,
    RemoveDestination,
    RemoveTenant,
    Requeue,
    Reschedule,
    SetDestination,
    SetTenant,
    no_destination,
)
from tickwheel.delivery.model.message import Cancel, Message
from tickwheel.delivery.model.operations import reply
from tickwheel.delivery.model.settings import Settings
from tickwheel.delivery.model.summary import Summary
from tickwheel.delivery.observe.log import log_cancelled, log_letters, logger, subject_of
from tickwheel.delivery.observe.tracing import current_traceparent
from tickwheel.delivery.outbox.source import sources_of
from tickwheel.delivery.queue.store_wait import StoreWait
from tickwheel.delivery.sight import Action, StoreView
from tickwheel.delivery.sinks import Destination, Handlers, Opener, OwnSink, open_sink, sink_of
from tickwheel.delivery.sinks.python import ONLY_FOR_FUNCTIONS, Function

_CLOSE_WITHIN_S = 30.0
_T = TypeVar("_T")


class DeliveryQueue:
    """A durable queue: delivers messages on time to the millisecond, in order per key, once, also after a crash.

    `store`: a file, made if it does not exist; if another process has it open, the constructor waits for that to end,
    at most `wait_s` (`None`: for ever), and logs a warning after 1 s. `order`: `"key"`, or `"global"` for one order of
    all messages. `horizon_s`: how far ahead messages are loaded into memory. `backoff_s`: the first wait and the
    longest; or `waits_s`: all waits, of which the last one is used again and again; with `waits_end` the end of the
    list is the end of the message. `rate`: as `"100/s"` or `"30/min"`. `outbox`:
    an address, or several. `max_attempts`, `unanswered_for_s`, `sink_timeout_s`, `keep_ids_days`, `concurrency` and
    `spare` are the options of the commands; so are `tenant_concurrency` and `tenant_rate`, which limit each tenant.
    `final_statuses`: those of a webhook's answer that make a dead letter at once, as 410 does. `proxy`: webhooks are
    sent through it, as `http://user:password@host:3128`, or `env` for the proxy that the environment names.
    `unavailable`: an exception class, or several; a function raises it if the receiver of a message is away.
    `on_dead_letter`: called with each message that is given up, in a separate thread; by default the log names these
    messages. `replicate_to`: as `postgresql://user@host/database?store=NAME`, so that the store outlives its machine
    (D21). While another process has that store, the constructor waits too.

    `to` is the destination:

    - an address, as for `tickwheel deliver --to`;
    - a function, called with each `Delivery`, from up to 8 threads, for one message of a key at a time;
    - a coroutine function, with up to 256 calls at a time on an event loop in a thread;
    - a subclass of `tickwheel.delivery.sinks.Sink`;
    - `None`: each message names its destination. `set_destination` says what they are, and `allow_addresses` which
      networks inside they may be in, as `10.1.0.0/16`.

    `handlers`: functions and coroutine functions that messages name too, as `{"email": send_email}`. Then `to` is a
    webhook, a function, or `None`.

    Close the queue, or use it as a context manager. If a program forgets it, it delivers until the process ends.
    Errors: `WrongUsage`, also if this process has the store open; `StoreUnavailable` once `wait_s` is over;
    `StoreFailed`, `DeliveryFailed`.

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
        to: str | OwnSink | None = None,
        *,
        handlers: Mapping[str, Function] | None = None,
        order: Literal["key", "global"] = "key",
        horizon_s: float = 10.0,
        max_attempts: int = 8,
        backoff_s: tuple[float, float] = (1.0, 300.0),
        waits_s: Sequence[float] | None = None,
        waits_end: bool = False,
        unanswered_for_s: float = 86_400.0,
        sink_timeout_s: float = 30.0,
        keep_ids_days: float = 7.0,
        rate: str | None = None,
        concurrency: int | None = None,
        spare: int | None = None,
        tenant_concurrency: int | None = None,
        tenant_rate: str | None = None,
        final_statuses: Iterable[int] = (),
        allow_addresses: Iterable[str] = (),
        proxy: str | None = None,
        unavailable: type[BaseException] | tuple[type[BaseException], ...] = (),
        outbox: str | Iterable[str] | None = None,
        on_dead_letter: Callable[[Letter], object] | None = None,
        wait_s: float | None = None,
        replicate_to: str | None = None,
    ) -> None:
        if on_dead_letter is not None and not callable(on_dead_letter):
            raise WrongUsage(
                f"on_dead_letter is {on_dead_letter!r:.200}: give a function that takes one Letter, or None"
            )
        if iscoroutinefunction(on_dead_letter):
            raise WrongUsage("on_dead_letter is a coroutine function, and is called in a thread: give an ordinary one")
        if isinstance(to, str) and unavailable != () and handlers is None:
            raise WrongUsage(ONLY_FOR_FUNCTIONS)
        self._handlers: Handlers | None = None
        if handlers is not None:
            self._handlers = Handlers(handlers, _beside_handlers(to), unavailable)
            opener: Opener = self._handlers
        elif to is None:
            opener = Destination.named()
        else:
            opener = open_sink(to) if isinstance(to, str) else sink_of(to, unavailable)
        settings = Settings.of(
            order=order,
            horizon_s=horizon_s,
            max_attempts=max_attempts,
            backoff_s=backoff_s,
            waits_s=waits_s,
            waits_end=waits_end,
            unanswered_for_s=unanswered_for_s,
            sink_timeout_s=sink_timeout_s,
            keep_ids_days=keep_ids_days,
            rate=rate,
            concurrency=concurrency,
            spare=spare,
            tenant_concurrency=tenant_concurrency,
            tenant_rate=tenant_rate,
            final_statuses=final_statuses,
            allow_addresses=allow_addresses,
            proxy=proxy,
            replicate_to=replicate_to,
        )

        def put_letters(letters: Sequence[Letter]) -> None:
            for letter in letters:
                try:
                    on_dead_letter(letter)  # type: ignore[misc]  # it is used only where there is one
                except BaseException:  # not even SystemExit ends the queue from here
                    logger.exception("on_dead_letter failed with the letter of %s", subject_of(letter))

        self._wait = StoreWait(wait_s)
        letters = put_letters if on_dead_letter else log_letters
        self._running = self._run(Path(store), opener, settings, letters, outboxes=sources_of(outbox))
        try:
            self._set_handlers()
        except BaseException:
            self._running.close(0)
            raise
        self._running.start()

    def put(
        self,
        id: str,  # noqa: A002, as in a message
        payload: Any = None,
        *,
        due: datetime | str | int | None = None,
        delay_ms: float | timedelta | None = None,
        key: str | None = None,
        expires: datetime | str | int | None = None,
        traceparent: str | None = None,
        destination: str | None = None,
        tenant: str | None = None,
        replace: bool = False,
        debounce_ms: float | timedelta | None = None,
        at_latest_ms: int | timedelta | None = None,
        every: int | timedelta | None = None,
        cron: str | None = None,
        tz: str | None = None,
        missed: Literal["skip", "all", "last"] | None = None,
        until_event: Sequence[str] | str | None = None,
    ) -> Answer:
        """Accept a message, and return once it is on disk: `ACCEPTED`, `DUPLICATE`, or `CANCELLED` by an early cancel.

        `due`: RFC 3339 text, a `datetime` with a zone, or epoch milliseconds; or else `delay_ms` from now. Milliseconds
        are a number or a `timedelta`. `payload`: bytes of any kind, or a value that JSON can hold. `expires`, as `due`:
        past it the message is not delivered, and is a dead letter (D17). `traceparent`: comes out with it; by default
        that of OpenTelemetry's current span. `destination`: see `set_destination`. `tenant`: whose message it is;
        tenants take turns (D24).
        Errors: `BadRecord`, also for a known id with other content, or a destination that is not set; `WrongUsage` for
        a payload that JSON can't hold, as NaN.
        Costs one commit; the messages of a `put_many` share one.

        `replace`: the message takes the place of the earlier message with this name (D16). `REPLACED`: the earlier
        message waited, and is not sent. `ACCEPTED`: no message has this name, or it has its outcome. `DELIVERING`: the
        earlier message is being sent, and nothing is accepted. `debounce_ms`: as `replace` with `delay_ms`, so that
        each call postpones the message. `at_latest_ms`: limits that, counted from the first call of the series.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, DeliveryQueue(f"{folder}/r.db", to=lambda _: None) as queue:
        ...     for text in "ti", "tick", "tickwheel":
        ...         queue.put("search", text, debounce_ms=60_000, at_latest_ms=600_000)
        <Answer.ACCEPTED: 'accepted'>
        <Answer.REPLACED: 'replaced'>
        <Answer.REPLACED: 'replaced'>

        `every` (milliseconds) or `cron` (five fields, or six with the seconds first; `tz`: a time zone, by default
        UTC): it recurs (D19). Each occurrence is a message with the id `ID@DUE`, or `ID@DUE#N` once the wall clock was
        stepped N times. It is made when the one before has its outcome. Times that have passed by then are skipped, or
        follow `missed`. `due` or `delay_ms`: of the first. The same id with other content takes its place: `REPLACED`;
        a `cancel` ends it.

        `until_event`: names without spaces (D22). The first `event` of one of them, for this key, makes the message due
        before its time. `delivery.cause` says what has made it due. At most 1,000 messages of a key wait so; one more
        is a `BadRecord`.

        >>> with tempfile.TemporaryDirectory() as folder, DeliveryQueue(f"{folder}/r.db", to=lambda _: None) as queue:
        ...     queue.put("report", "write it", cron="30 9 * * MON-FRI", tz="Europe/Berlin", due=1_900_000_000_000)
        ...     queue.view.show("report").next_id
        <Answer.ACCEPTED: 'accepted'>
        'report@2030-03-18T08:30:00.000Z'
        """
        given = {
            "id": id,
            "payload": payload,
            "due": due,
            "delay_ms": delay_ms,
            "key": key,
            "expires": expires,
            "traceparent": traceparent,
            "destination": destination,
            "tenant": tenant,
            "replace": replace,
            "debounce_ms": debounce_ms,
            "at_latest_ms": at_latest_ms,
            "every": every,
            "cron": cron,
            "tz": tz,
            "missed": missed,
            "until_event": until_event,
        }

        def accepted(receipts: list[Receipt]) -> Answer:
            [answer] = _warned(receipts, [(id, key)])
            if answer is Answer.CONFLICT:
                raise OTHER_CONTENT
            if answer is Answer.REFUSED:
                raise no_destination(destination)
            if answer is Answer.FULL:
                raise MANY_WAIT
            return answer

        return self._ask([given], accepted, format="item", trace=current_traceparent())

    def put_many(self, messages: Iterable[Message | Mapping[str, Any] | Sequence[Any]]) -> list[Answer]:
        """Accept messages in one or a few commits, and return once they are on disk; `CONFLICT`, `REFUSED` and `FULL`
        are answers too.

        A message is a `Message`, a dict with the arguments of `put`, also `replace` and `debounce_ms`, or a tuple `(id,
        due, payload)` or `(id, due, payload, key)`. All are read and checked first: if one is wrong, or `messages`
        raises, none is accepted. Errors: `BadRecord`, `WrongUsage`; `DeliveryFailed` if delivery fails meanwhile, and
        errors of a signal's handler. After these two, some messages may be accepted: the same call answers `DUPLICATE`
        for them.
        """
        parts = read_records(messages, format="messages", trace=current_traceparent())
        every: Iterable[Any] = chain.from_iterable(part.to_list() for part in parts)
        names = ((message.id, message.key) for message in every)
        return self._ask(parts, lambda receipts: _warned(receipts, names))

    def cancel(self, id: str, key: str | None = None) -> Answer:  # noqa: A002
        """Cancel a message (D7), and return once the cancel is on disk.

        `CANCELLED`: it will not be sent, or was cancelled before. `DELIVERED`, `DEAD`, `EXPIRED`: too late.
        `DELIVERING`: it is being sent in this moment. `UNKNOWN`: it has not come. If it comes later, it is cancelled.
        """
        return self._ask([Cancel(id, key)], _the_one, format="item")

    def reschedule(
        self,
        id: str,  # noqa: A002
        *,
        due: datetime | str | int | None = None,
        delay_ms: float | timedelta | None = None,
        key: str | None = None,
    ) -> Answer:
        """Change the due time of a waiting message (D16), to an earlier or later one, and return once it is on disk.

        `RESCHEDULED`: it is sent at the new time, and not before. Its attempts count on. Other messages of its key that
        are due in the same millisecond are sent before it. `DELIVERED`, `DEAD`, `EXPIRED`, `CANCELLED`: too late.
        `DELIVERING`: it is being sent in this moment. `UNKNOWN`: it has not come. Errors: `BadRecord`.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, DeliveryQueue(f"{folder}/r.db", to=lambda _: None) as queue:
        ...     queue.put("tea", "ready", delay_ms=180_000), queue.reschedule("tea", delay_ms=240_000)
        (<Answer.ACCEPTED: 'accepted'>, <Answer.RESCHEDULED: 'rescheduled'>)
        """
        return self._ask([Reschedule(id, key, due_ms_of(due, delay_ms))], _the_one, format="item")

    def event(
        self,
        key: str,
        name: str,
        *,
        id: str,  # noqa: A002
        payload: Any = None,
        remember_ms: int | timedelta | None = None,
    ) -> int:
        """Let go the messages of this key that wait for this event (D22), and return how many, once it is on disk.

        Each is due from that moment, and gets `payload` as `delivery.event`. A message that is due already is not among
        them. `(key, id)` is the name of the event: the same event again lets nothing go, and has its first count.
        `remember_ms`: it also lets go what comes within this time, at most as long as names are kept. Errors:
        `BadRecord`, also for a known name with other content; `WrongUsage` for a payload that JSON can't hold.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, DeliveryQueue(f"{folder}/r.db", to=lambda _: None) as queue:
        ...     queue.put("cancel", key="order 7", delay_ms=3_600_000, until_event=["paid"])
        ...     queue.event("order 7", "paid", id="payment 1", payload={"sum": 12})
        <Answer.ACCEPTED: 'accepted'>
        1
        """

        def counted(receipts: list[Receipt]) -> int:
            [(_, _, _, count)] = receipts[0].rows()
            if count is None:
                raise OTHER_CONTENT
            return count

        return self._ask([Event(id, key, name, payload, remember_ms)], counted, format="item")

    def forget_event(self, key: str, id: str) -> Answer:  # noqa: A002
        """Let a remembered event let go no further message (D22): `CANCELLED`, or `UNKNOWN` if it is not remembered."""
        return self._ask([ForgetEvent(id, key)], _the_one, format="item")

    def requeue(self, id: str, key: str | None = None) -> Answer:  # noqa: A002
        """Try a dead letter anew, with all attempts (D16), and return once that is on disk.

        `REQUEUED`: it goes out, marked `redelivered`, as it may have arrived before; it does not expire. Otherwise as
        `state`, where `DEAD` and `EXPIRED` say that its record is not kept any more: of the last 100,000 it is.
        `REFUSED`: its destination is not set any more; set it again first.
        """
        return self._ask([Requeue(id, key)], _the_one, format="item")

    def again(self, id: str | None = None, *, key: str | None = None) -> Answer:  # noqa: A002
        """Try a failing key at once, or a failing message without a key by its `id` (D16); return once that is on disk.

        `TRIED`: the wait is over, and the message is sent as soon as there is a spare place. If this attempt fails too,
        the key waits as usual. `UNKNOWN`: no such key or message waits for its next attempt. `DELIVERING`: it is being
        sent in this moment. `PAUSED`: the key, or all sending, is paused. Only for an `id`: `WAITING` if the message
        was not tried yet, and the outcomes that `cancel` answers. With `order="global"` any key names the one order.
        Errors: `WrongUsage` if both or none are given; `BadRecord` for a key or an id that is not allowed.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, DeliveryQueue(f"{folder}/r.db", to=lambda _: None) as queue:
        ...     queue.again(key="shop 1")
        <Answer.UNKNOWN: 'unknown'>
        """
        return self._ask([Again(id, key)], _the_one, format="item")

    def cancel_many(
        self,
        *,
        key: str | None = None,
        key_prefix: str | None = None,
        due_from: Time | None = None,
        due_before: Time | None = None,
        destination: str | None = None,
        tenant: str | None = None,
        all: bool = False,  # noqa: A002
        action: str | None = None,
    ) -> str:
        """Cancel all messages that wait and match (D16), beside delivery; return its id once it has begun.

        `key`, `key_prefix`, `due_from` (then or later), `due_before`, `destination`, `tenant`: a message must match all
        that are given. `all`: every message. Later messages, and messages that are being sent, are not cancelled.
        `queue.action(id)` shows the progress. The action continues after a restart. `action`: your own id. The same id
        again does nothing, as long as the action is kept. Some hundred thousand a second. Errors: `WrongUsage`;
        `BadRecord`, also for an id of another action, or a destination that is not set.
        """
        return self._begin(act_of("cancel", action, key, key_prefix, due_from, due_before, destination, tenant, all))

    def requeue_many(
        self,
        *,
        key: str | None = None,
        key_prefix: str | None = None,
        due_from: Time | None = None,
        due_before: Time | None = None,
        destination: str | None = None,
        tenant: str | None = None,
        all: bool = False,  # noqa: A002
        action: str | None = None,
    ) -> str:
        """Try all matching dead letters anew, as `requeue` does; otherwise as `cancel_many`."""
        return self._begin(act_of("requeue", action, key, key_prefix, due_from, due_before, destination, tenant, all))

    def action(self, id: str) -> Action | None:  # noqa: A002
        """The progress of an action on many messages. `None`: no action has this id, or it is not kept any more. The
        last 10,000 ended actions are kept.
        """
        if id is None:
            raise WrongUsage("id is None: give the id of an action")
        return next(iter(self.view.actions(id)), None)

    def _begin(self, act: Act) -> str:
        def begun(receipts: list[Receipt]) -> str:
            refused = why_refused(act, _the_one(receipts))
            if refused is not None:
                raise refused
            return act.id

        return self._ask([act], begun, format="item")

    def _set_handlers(self) -> None:
        """Each handler has a destination in the store, whose settings stay if it has some."""
        if self._handlers is None:
            return
        for name in self._handlers.names:
            known = self._running.view.destination(name)
            if known is not None and not known.settings.get("function"):
                raise WrongUsage(f"the destination {name!r} is a webhook in this store: give the function another name")
            if known is None:
                settings = msgspec.json.encode({"function": True, **self._handlers.limits(name)}).decode()
                self._running.submit(SetDestination(name, settings), format="item").result()

    def _refuse_handler(self, name: str) -> None:
        if self._handlers is not None and name in self._handlers.names:
            raise WrongUsage(f"{name!r} is a function of handlers=: take it out there, or give another name")

    def set_destination(
        self,
        name: str,
        url: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        secrets: Sequence[str] | None = None,
        body: Literal["envelope", "payload"] | Mapping[str, Any] | Sequence[Any] = "envelope",
        certificates: str = "",
        rate: str | None = None,
        concurrency: int | None = None,
        spare: int | None = None,
        waits_s: Sequence[float] | None = None,
        sink_timeout_s: float | None = None,
        disable_after_days: float | None = None,
        paused: bool | None = None,
    ) -> Answer:
        """Set a webhook that messages name by `destination` (D23), and return once it is on disk: `ACCEPTED`, or
        `REPLACED` if there was one of this name.

        The next send uses it. The store keeps it, with its secrets. Each has limits of its own, and none holds up
        another. `to` is a webhook too, for messages that name none, or `None`: then each message has to name one.
        `url`: as for `to`; addresses of this machine and of private networks are refused at the send. `secrets`: sign
        each request; a change without them keeps those that are set, and `[]` takes them away. `body`: `"envelope"`,
        `"payload"` (the payload alone, and the name and times in headers `Tickwheel-*`), or a template, as
        `{"text": "{{payload.name|nobody}}"}`. `certificates`: PEM, in place of those of the system. `rate`: as `100/s`.
        `disable_after_days`: it is paused once it has failed for so long without a success, and `view` says why.
        What is left out is as for the queue, whatever it was before; but `paused` stays as it was. Errors: `BadRecord`
        for a name that is not allowed, `WrongUsage` for a setting, or if `to` is no webhook.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, DeliveryQueue(f"{folder}/r.db", to=None) as queue:
        ...     queue.set_destination("acme", "https://acme.example/hooks", rate="10/s")
        ...     queue.put("tea", "ready", delay_ms=60_000, destination="acme")
        <Answer.ACCEPTED: 'accepted'>
        <Answer.ACCEPTED: 'accepted'>
        """
        if url is None and self._handlers is None:
            raise WrongUsage(
                "a destination without url is a function, and this queue has no handlers=: give an address"
            )
        if url is not None:
            self._refuse_handler(name)
        limits = self._handlers.limits(name) if self._handlers and url is None else {}
        given = {
            "url": url,
            "function": True if url is None else None,
            "headers": headers,
            "secrets": secrets,
            "body": body,
            "certificates": certificates,
            "rate": rate,
            "concurrency": concurrency,
            "spare": spare,
            "waits_s": waits_s,
            "sink_timeout_s": sink_timeout_s,
            "disable_after_days": disable_after_days,
            "paused": paused,
        }
        given = dict(limits) | {name: value for name, value in given.items() if value is not None}
        return self._set("set_destination", SetDestination(name, msgspec.json.encode(given).decode()))

    def _set(self, operation: str, item: SetDestination | SetTenant) -> Answer:
        def set_now(receipts: list[Receipt]) -> Answer:
            answer = _the_one(receipts)
            if answer is Answer.REFUSED:
                raise WrongUsage(reply(operation, answer).sentence)
            return answer

        return self._ask([item], set_now, format="item")

    def remove_destination(self, name: str, *, dead: bool = False) -> Answer:
        """Remove a named destination (D23), and return once this is on disk: `REMOVED`, or `UNKNOWN`.

        `REFUSED`: it has messages. With `dead` these become dead letters, some at a time, beside delivery; what is
        being sent in this moment may still arrive. Errors: `BadRecord` for a name that is not allowed.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, DeliveryQueue(f"{folder}/r.db", to=None) as queue:
        ...     _ = queue.set_destination("acme", "https://acme.example/hooks")
        ...     _ = queue.put("tea", "ready", delay_ms=60_000, destination="acme")
        ...     queue.remove_destination("acme"), queue.remove_destination("acme", dead=True)
        (<Answer.REFUSED: 'refused'>, <Answer.REMOVED: 'removed'>)
        """
        self._refuse_handler(name)
        return self._ask([RemoveDestination(name, dead)], _the_one, format="item")

    def set_tenant(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: str | None = None,
        weight: int | None = None,
        paused: bool | None = None,
    ) -> Answer:
        """Set what a tenant may do (D24), and return once it is on disk: `ACCEPTED`, or `REPLACED` if it was set or
        paused before.

        The next send keeps to it, at all destinations together, and the store keeps it. The tenant need not have a
        message. `concurrency`: at most so many messages are out at a time; `rate`: as `10/s`; `weight`: so many
        messages are sent in each of its turns, 1 to 100. What is left out is as for all tenants (`tenant_concurrency`,
        `tenant_rate`, a weight of 1), whatever it was before; but `paused` stays as it was. Errors: `BadRecord` for a
        name that is not allowed; `WrongUsage` for a setting, or with `order="global"`.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, DeliveryQueue(f"{folder}/r.db", to=lambda _: None) as queue:
        ...     queue.set_tenant("acme", rate="10/s", weight=3), queue.view.tenant("acme").settings
        (<Answer.ACCEPTED: 'accepted'>, {'rate': '10/s', 'weight': 3})
        """
        given = {"concurrency": concurrency, "rate": rate, "weight": weight, "paused": paused}
        settings = {each: value for each, value in given.items() if value is not None}
        return self._set("set_tenant", SetTenant(name, msgspec.json.encode(settings).decode()))

    def remove_tenant(self, name: str) -> Answer:
        """Give a tenant the usual limits again, and end its pause (D24); return once on disk: `REMOVED`, or `UNKNOWN`
        if it was not set or paused. Its messages stay. Errors: `BadRecord` for a name that is not allowed.
        """
        return self._ask([RemoveTenant(name)], _the_one, format="item")

    def pause(
        self,
        key: str | None = None,
        *,
        destination: str | None = None,
        tenant: str | None = None,
        until: Time | None = None,
    ) -> None:
        """Send nothing more (D16), or nothing of a key, to a destination or of a tenant, until `resume`, also after a
        restart; return once on disk.

        `until`: a time, as `due` of `put`, at which the pause ends by itself, by the wall clock. The last pause counts,
        also if it has no end. Messages are accepted, and wait. A message that is being sent gets its outcome. If a key
        is paused, a message of it that was tried before is marked `redelivered` later. Errors: `BadRecord` for a key or
        a time that is not allowed; `WrongUsage` for two names, with `order="global"`, if 10,000 keys are paused, or if
        no destination has the name.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, DeliveryQueue(f"{folder}/r.db", to=lambda _: None) as queue:
        ...     queue.pause(key="kitchen")
        ...     _ = queue.put("tea", "ready", key="kitchen", delay_ms=0)
        ...     queue.wait_until_empty(0.05), queue.resume(key="kitchen"), queue.wait_until_empty(10)
        (False, None, True)
        """
        text = until.isoformat() if isinstance(until, datetime) else str(until)
        until_ms = None if until is None else due_of(text, "until")
        return self._pause(Pause(True, key, destination, tenant, until_ms))

    def resume(self, key: str | None = None, *, destination: str | None = None, tenant: str | None = None) -> None:
        """Send due messages again, all, or those of a key, to a destination or of a tenant; return once on disk.

        What was paused by a name waits for its own `resume`. Errors: `WrongUsage` if no destination has this name.
        """
        return self._pause(Pause(False, key, destination, tenant))

    def _pause(self, asked: Pause) -> None:
        def done(receipts: list[Receipt]) -> None:
            answer = _the_one(receipts)
            if answer is Answer.REFUSED:
                raise WrongUsage(": ".join(self._running.why_not_paused(asked)))
            if answer is Answer.UNKNOWN:
                raise WrongUsage(str(no_destination(asked.destination)))

        return self._ask([asked], done, format="item")

    @property
    def is_paused(self) -> bool:
        """Whether sending is paused, of all keys."""
        return self._running.engine.is_paused

    def state(self, id: str, key: str | None = None) -> Answer:  # noqa: A002
        """The state of a message: one of the answers of `cancel`, or `WAITING`."""
        return self._ask([Look(id, key)], _the_one, format="item")

    @property
    def view(self) -> StoreView:
        """Looks at this queue's store: `queue.view.list(key="k")`, and `show`, `dead`, `status`."""
        return self._running.view

    def submit(
        self, items: Iterable[Message | Mapping[str, Any] | Sequence[Any] | Cancel | Look]
    ) -> "Future[list[Answer]]":
        """Submit items without waiting for the disk: the future gets their answers, in order, once all are on disk.

        A message is given as to `put_many`. Blocks while some thousand are queued. Errors: `BadRecord`, and then none
        is accepted; `WrongUsage`; `DeliveryFailed` once delivery has failed, also from the future.
        """
        return self._running.submit(items)

    def submit_ndjson(self, data: bytes) -> "Future[list[Answer | BadRecord]]":
        r"""Submit the messages and cancels in lines of NDJSON (D1), and do not wait for the disk.

        The future gets a list with an entry for each record, in order, once all are on disk: the answer, or the error
        of this line. A wrong line does not affect the other lines. No Python object is made for a message, so this is
        the fastest way in. Blocks while much is queued. Errors: `DeliveryFailed` once delivery has failed, also from
        the future.

        >>> import tempfile
        >>> lines = b'{"id": "tea", "delay_ms": 20, "payload": "ready"}\n{"id": "cake"}\n'
        >>> with tempfile.TemporaryDirectory() as folder, DeliveryQueue(f"{folder}/r.db", to=lambda _: None) as queue:
        ...     tea, cake = queue.submit_ndjson(lines).result()
        >>> tea, cake.reason
        (<Answer.ACCEPTED: 'accepted'>, 'due is missing')
        """
        return self._running.submit(data, format="lines", trace=current_traceparent())

    def wait_until_empty(self, timeout_s: float) -> bool:
        """Whether the queue got empty within this time. Errors: `DeliveryFailed` once delivery has failed."""
        return self._running.wait(timeout_s)

    @property
    def summary(self) -> Summary:
        """The present counts; lateness only once the queue is closed."""
        return self._running.summary

    def __len__(self) -> int:
        """The number of waiting messages."""
        return self._running.engine.waiting

    def close(self) -> None:
        """Send the messages due by now, commit, and stop. The rest stays in the store, also what a pause or the `rate`
        holds back. Sends on their way have until `sink_timeout_s`, at most 30 s. Errors: `DeliveryFailed`.
        """
        self._running.close(_CLOSE_WITHIN_S)

    def _run(self, *given: Any, **options: Any) -> Running:
        """`AsyncDeliveryQueue` opens it in another way."""
        wait = self._wait
        asked = {"waiting": wait.say, "standing_by": wait.stand_by, "check": wait.check}
        return Running(*given, **asked | options)

    def _ask(self, parts: Sequence[object], read: Callable[[list[Receipt]], _T], **options: Any) -> _T:
        """Submit all parts, and return what `read` makes of the receipts. `AsyncDeliveryQueue` waits in another way."""
        return read(self._running.engine.submit(parts, **options))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _answers(receipts: list[Receipt]) -> list[Any]:
    return [answer for receipt in receipts for answer in receipt.answers()]


def _beside_handlers(to: str | OwnSink | None) -> Function | Destination | None:
    """Errors: `WrongUsage`."""
    opener = open_sink(to) if isinstance(to, str) and to.startswith(("http://", "https://")) else to
    is_class = isinstance(getattr(opener, "func", opener), type)  # a partial has one
    if isinstance(opener, Destination | None) or (callable(opener) and not is_class):
        return cast("Function | Destination | None", opener)
    raise WrongUsage(f"to is {to!r:.200}: beside handlers it may be an address of a webhook, a function, or None")


def _the_one(receipts: list[Receipt]) -> Answer:
    [answer] = _answers(receipts)
    return answer  # type: ignore[no-any-return]


def _warned(receipts: list[Receipt], names: Iterable[tuple[str, str | None]]) -> list[Answer]:
    """The answers. A cancelled message is never sent: the log says so, as callers rarely look at an answer."""
    answers = _answers(receipts)
    number = answers.count(Answer.CANCELLED)
    if number:
        log_cancelled(number, len(answers), *next(islice(names, answers.index(Answer.CANCELLED), None)))
    return answers
