"""Messages: one by its name, and pages of them. Waiting messages come in order of delivery, recurring ones in order of
acceptance, ended messages by their end, the last one first. And pages of remembered events, by the end of their time.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from tickwheel._native import StoreSnapshot, rfc_3339
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.model.entries import Outcome

MOST: Final = 1_000
"""The most entries of a page."""

LOOKED_AT: Final = 100_000
"""How many messages one call looks at, where a filter leaves most of them out: some 20 ms."""

_NUMBER: Final = re.compile(r"\d{1,18}", re.ASCII)


class State(StrEnum):
    """The state of a message, according to the file. A message that is being sent right now counts as waiting. What is
    `remembered` is no message, but an event that lets go messages that come later.
    """

    WAITING = "waiting"
    RECURRING = "recurring"
    DELIVERED = "delivered"
    CANCELLED = "cancelled"
    DEAD = "dead"
    EXPIRED = "expired"
    REMEMBERED = "remembered"


_OUTCOMES: Final = {state: Outcome[state.name] for state in State if state.name in Outcome.__members__}
_STATES: Final = {**{outcome: state for state, outcome in _OUTCOMES.items()}, Outcome.WITHDRAWN: State.CANCELLED}


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a recurring message comes: each `every` milliseconds, or as a `cron` pattern says in the time zone `tz`.

    `missed`: what happens to times that pass before the occurrence before has its outcome.
    """

    missed: str
    every: int | None = None
    cron: str | None = None
    tz: str | None = None

    def __str__(self) -> str:
        rule = f"every {self.every:,} ms" if self.every is not None else f"{self.cron} in {self.tz}"
        return f"{rule}, missed: {self.missed}"


class Seen(msgspec.Struct, frozen=True):
    """A message. Times are RFC 3339 in UTC.

    `attempts`: how often it was tried. `last_error`: of a dead or expired message, and of a message that waits until
    `next_try`. `redelivered`: it may have arrived before. `ended`: the time of its outcome. `lateness_ms`: only of a
    delivered message. `rule`: only of a recurring message; its `due` is the due time of the open occurrence, or null
    once the rule has ended. `event_name`: only of a remembered event; its `due` is the end of its time by the clock of
    the store. `destination`, `tenant`: those that it names; they are known until the outcome, and as long
    as a dead letter is kept.
    """

    id: str
    key: str | None
    state: State
    due: str | None
    attempts: int = 0
    last_error: str | None = None
    next_try: str | None = None
    redelivered: bool = False
    ended: str | None = None
    lateness_ms: float | None = None
    rule: Rule | None = None
    destination: str | None = None
    tenant: str | None = None
    event_name: str | None = None


class Page(msgspec.Struct, frozen=True):
    """Messages, and the cursor of the next page; `None` after the last."""

    messages: Sequence[Seen]
    next: str | None


class Filter(msgspec.Struct, frozen=True):
    """Which messages: of a key, a destination, a tenant; that wait for an event; due in a span. `limit` of a page. Of
    remembered events: of a key; of the name `until`; that end in a span.
    """

    key: str | None = None
    destination: str | None = None
    tenant: str | None = None
    until: str | None = None
    due_from_ms: int | None = None
    due_before_ms: int | None = None
    limit: int = 100


def list_messages(db: StoreSnapshot, state: State, which: Filter, cursor: str | None = None) -> Page:
    """A page of the messages in a state. `cursor`: the `next` of the page before.

    Errors: `WrongUsage`, `StoreFailed`.
    """
    check_limit(which.limit)
    named = "tenant" if which.destination is None else "destination"
    if getattr(which, named) is not None and state is State.REMEMBERED:
        raise WrongUsage(f"an event is of a key, whatever the {named}: list remembered ones by key and name")
    if getattr(which, named) is not None and state in (State.DELIVERED, State.CANCELLED):
        text = f"{state} messages can't be listed by {named}, which is forgotten with the outcome"
        raise WrongUsage(f"{text}: ask for waiting, recurring, dead or expired ones")
    if which.until is not None and state not in (State.WAITING, State.REMEMBERED):
        raise WrongUsage(f"{state} messages wait for no event: ask for waiting ones")
    part = msgspec.structs.astuple(which)
    if state in (State.WAITING, State.REMEMBERED):
        after = numbers_of(cursor, 2) if cursor else ()
        look = db.waiting if state is State.WAITING else db.remembered
        found, position = look(part, LOOKED_AT, (after[0], after[1]) if after else None)
        following = position and f"{position[0]}.{position[1]}"
    else:
        number = numbers_of(cursor, 1)[0] if cursor else None
        if state is State.RECURRING:
            found, last = db.recurring(part, LOOKED_AT, number)
        else:
            found, last = db.ended(_OUTCOMES[state], part, LOOKED_AT, number)
        following = None if last is None else str(last)
    return Page([Seen(**seen(it)) for it in found], following)


def seen(found: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `Seen`, for what the store says of a message."""
    told = with_times(found)
    outcome, rule, late_us = told.pop("outcome"), told.pop("rule"), told.pop("lateness_us")
    still = State.REMEMBERED if told["event_name"] else State.WAITING if rule is None else State.RECURRING
    return told | {
        "state": _STATES[outcome] if outcome else still,
        "lateness_ms": None if late_us is None else late_us / 1_000,
        "rule": rule and msgspec.json.decode(rule, type=Rule),
    }


class Details(Seen, frozen=True, kw_only=True):
    """A message with its content, as long as the store has it: the payload, as JSON or as bytes in base64; `expires`
    and `traceparent`, if it has them. `seq`: its number. `key_paused_since`: only of a waiting or recurring message, if
    its key is paused. `next_id`: only of a recurring message; the id of its open occurrence. `until_event`: what a
    waiting message waits for, or did; then `cause` is `event` or `deadline`, and `event` has name, id and payload.
    """

    seq: int
    next_id: str | None = None
    key_paused_since: str | None = None
    payload: msgspec.Raw | None = None
    payload_base64: str | None = None
    expires: str | None = None
    traceparent: str | None = None
    until_event: Sequence[str] | None = None
    cause: str | None = None
    event: msgspec.Raw | None = None


def show_message(db: StoreSnapshot, id_: str, key: str | None) -> Details | None:
    """The newest message with this name; `None`: it has not come, or is forgotten. Errors: `StoreFailed`.

    The time and the lateness of an outcome come from a part of the ledger: for a delivered message, the 300,000 rows
    from its due time on; for other outcomes, the last 300,000 rows. If the outcome is not there, they are missing.
    """
    found = db.show(id_, key)
    if found is None:
        return None
    payload, is_json = found.pop("payload") or (b"", None)
    names, event = found.pop("until_event"), found.pop("event")
    return Details(
        **seen(found),
        until_event=None if names is None else names.split(" "),
        event=None if event is None else msgspec.Raw(event.encode()),
        payload=msgspec.Raw(payload) if is_json else None,
        payload_base64=base64.b64encode(payload).decode() if is_json is False else None,
    )


def time_of(epoch_ms: int | None) -> str | None:
    """As RFC 3339 in UTC, if there is one."""
    return None if epoch_ms is None else rfc_3339(epoch_ms)


def with_times(found: Mapping[str, Any]) -> dict[str, Any]:
    """What the store tells, with RFC 3339 in UTC in place of milliseconds since 1970: `due_ms` becomes `due`."""
    return {
        name.removesuffix("_ms"): time_of(value) if name.endswith("_ms") else value for name, value in found.items()
    }


def check_limit(limit: int) -> None:
    """Errors: `WrongUsage`."""
    if not isinstance(limit, int) or not 1 <= limit <= MOST:
        raise WrongUsage(f"a page can't have {limit!r:.100} entries: ask for 1 to {MOST:,}")


def numbers_of(cursor: str, count: int) -> Sequence[int]:
    """The parts of a cursor. Errors: `WrongUsage`."""
    parts = cursor.split(".")
    if len(parts) != count or not all(_NUMBER.fullmatch(part) for part in parts):
        raise WrongUsage(f"{cursor!r:.100} is no cursor: give the one of the page before, with the same filters")
    return [int(part) for part in parts]
