"""The meaning of delivery as tables of steps, the same for every surface (D1 to D7, D16, D17, D19).

A step is an operation, its fields and the expected answer, or a check of the messages at the destination. Times are
milliseconds since 1970. `FAR` is in 2096 and `PAST` in 1973, so that no result depends on the speed of the machine.

To add a scenario, add an entry to `SCENARIOS`: it runs on every surface that knows its fields.
"""

from dataclasses import dataclass, field
from typing import Any

FAR, LATER, PAST = 4_000_000_000_000, 4_000_000_060_000, 100_000_000_000
FAR_TEXT, LATER_TEXT = "2096-10-02T07:06:40.000Z", "2096-10-02T07:07:40.000Z"


@dataclass(frozen=True)
class Do:
    """One operation. `answer` is a state of `Answer`, or `refused` where the record is."""

    op: str
    answer: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Arrived:
    """Waits until the destination has got these, each as (id, payload), in this order; and no others."""

    messages: tuple[tuple[str, Any], ...]
    redelivered: bool = False


@dataclass(frozen=True)
class Refuse:
    """From now on the destination refuses these ids, and no others."""

    ids: frozenset[str]


@dataclass(frozen=True)
class Away:
    """From now on these ids can't be reached, and their keys wait for an hour; no others."""

    ids: frozenset[str]


@dataclass(frozen=True)
class Fails:
    """Waits until a message waits for its next attempt."""

    id: str
    key: str | None = None


@dataclass(frozen=True)
class Ended:
    """Waits until the state of a message is this."""

    id: str
    state: str
    key: str | None = None


@dataclass(frozen=True)
class Due:
    """The due time of a message that waits, in RFC 3339: whole, or its end."""

    id: str
    ends_with: str
    key: str | None = None


@dataclass(frozen=True)
class Letters:
    """Waits until these are the ids of all dead letters."""

    ids: frozenset[str]


Step = Do | Arrived | Refuse | Away | Fails | Ended | Due | Letters


def put(id_: str, answer: str = "accepted", payload: Any = 1, **fields: Any) -> Do:
    return Do("put", answer, {"id": id_, "payload": payload, **fields})


def cancel(id_: str, answer: str = "cancelled", key: str | None = None) -> Do:
    return Do("cancel", answer, {"id": id_, "key": key})


def move(id_: str, answer: str = "rescheduled", key: str | None = None, **to: Any) -> Do:
    return Do("reschedule", answer, {"id": id_, "key": key, **to})


def event(id_: str, name: str, answer: str = "let_go", key: str | None = "k", **more: Any) -> Do:
    return Do("event", answer, {"id": id_, "key": key, "event": name, **more})


def forget(id_: str, answer: str = "cancelled") -> Do:
    return Do("forget_event", answer, {"id": id_, "key": "k"})


def requeue(id_: str, answer: str = "requeued", key: str | None = None) -> Do:
    return Do("requeue", answer, {"id": id_, "key": key})


def again(answer: str = "tried", **which: str) -> Do:
    return Do("again", answer, which)


def state(id_: str, answer: str, key: str | None = None) -> Do:
    return Do("state", answer, {"id": id_, "key": key})


def pause(key: str | None = None, answer: str = "paused", **more: int) -> Do:
    return Do("pause", answer, {"key": key, **more})


def resume(key: str | None = None) -> Do:
    return Do("resume", "resumed", {"key": key})


def arrived(*messages: tuple[str, Any], redelivered: bool = False) -> Arrived:
    return Arrived(messages, redelivered)


SCENARIOS: dict[str, tuple[Step, ...]] = {
    "accept": (
        put("a", payload={"text": "x", "number": 1.5}, due=PAST),
        put("b", payload=[None, True], delay_ms=0),
        arrived(("a", {"text": "x", "number": 1.5}), ("b", [None, True])),
        Ended("a", "delivered"),
        Ended("b", "delivered"),
        put("c", due=FAR, key="k", expires=LATER),
        state("c", "waiting", key="k"),
        Due("c", FAR_TEXT, key="k"),
        state("none", "unknown"),
    ),
    "bad record": (
        put("", "refused", due=FAR),
        put("a", "refused", due=5),
        put("a", "refused"),
        put("a", "refused", due=FAR, delay_ms=5),
        put("a", "refused", due=FAR, key=""),
        state("a", "unknown"),
    ),
    "null": (
        put("a", payload=None, due=PAST),
        put(
            "b", payload=1, due=PAST, key=None, delay_ms=None, expires=None, every=None, cron=None, tz=None, missed=None
        ),
        arrived(("a", {}), ("b", 1)),
        put("c", due=FAR, key="k"),
        move("c", due=LATER, delay_ms=None, key="k"),
        Due("c", LATER_TEXT, key="k"),
    ),
    "numbers": (
        put("a", due=float(FAR)),
        Due("a", FAR_TEXT),
        move("a", due=float(LATER)),
        Due("a", LATER_TEXT),
        put("b", delay_ms=0.5),
        arrived(("b", 1)),
        put("c", "refused", due=FAR + 0.5),
        put("c", "refused", due=0),
        state("c", "unknown"),
    ),
    "duplicate": (
        put("a", payload={"x": 1}, due=FAR),
        put("a", "duplicate", payload={"x": 1}, due=FAR),
        put("a", payload={"x": 1}, due=FAR, key="k"),
        put("a", "duplicate", payload={"x": 1}, due=FAR, key="k"),
        put("b", due=PAST),
        arrived(("b", 1)),
        Ended("b", "delivered"),
        put("b", "duplicate", due=PAST),
    ),
    "conflict": (
        put("a", payload=1, due=FAR),
        put("a", "conflict", payload=2, due=FAR),
        put("a", "conflict", payload=1, due=LATER),
        state("a", "waiting"),
        cancel("a"),
        put("a", "cancelled", payload=1, due=FAR),
        put("gone", due=PAST),
        arrived(("gone", 1)),
        Ended("gone", "delivered"),
        put("gone", "conflict", payload=2, due=PAST),
        put("a", payload=2, due=FAR, key="k"),
    ),
    "cancel": (
        put("a", due=FAR, key="k"),
        cancel("a", "unknown"),
        cancel("a", key="k"),
        cancel("a", key="k"),
        state("a", "cancelled", key="k"),
        put("gone", due=PAST),
        arrived(("gone", 1)),
        Ended("gone", "delivered"),
        cancel("gone", "delivered"),
    ),
    "cancel first": (
        cancel("late", "unknown"),
        put("late", "cancelled", due=PAST),
        state("late", "cancelled"),
        put("next", due=PAST),
        arrived(("next", 1)),
    ),
    "move": (
        put("a", due=FAR),
        move("a", due=LATER),
        Due("a", LATER_TEXT),
        move("a", due=PAST),
        arrived(("a", 1)),
        Ended("a", "delivered"),
        move("a", "delivered", due=FAR),
        move("none", "unknown", due=FAR),
        put("b", due=FAR),
        cancel("b"),
        move("b", "cancelled", delay_ms=5),
        state("b", "cancelled"),
    ),
    "replace": (
        put("a", payload=1, due=FAR, replace=True),
        put("a", "replaced", payload=2, due=LATER, replace=True),
        Due("a", LATER_TEXT),
        put("a", "duplicate", payload=2, due=LATER),
        put("a", payload=3, due=FAR, key="k", replace=True),
        put("a", "replaced", payload=4, due=PAST, replace=True),
        arrived(("a", 4)),
        Ended("a", "delivered"),
        put("a", payload=5, due=PAST, replace=True),
        arrived(("a", 5)),
        state("a", "waiting", key="k"),
    ),
    "debounce": (
        put("search", payload="t", delay_ms=3_600_000, replace=True, at_latest_ms=7_200_000),
        put("search", "replaced", payload="ti", delay_ms=3_600_000, replace=True, at_latest_ms=7_200_000),
        state("search", "waiting"),
        move("search", due=PAST),
        arrived(("search", "ti")),
        put("at once", delay_ms=3_600_000, replace=True, at_latest_ms=0),
        arrived(("at once", 1)),
    ),
    "dead letter": (
        Refuse(frozenset({"bad"})),
        put("bad", due=PAST, key="k"),
        put("good", due=PAST, key="k"),
        arrived(("good", 1)),
        Ended("bad", "dead", key="k"),
        Letters(frozenset({"bad"})),
        state("bad", "dead", key="k"),
        cancel("bad", "dead", key="k"),
        move("bad", "dead", key="k", due=FAR),
    ),
    "requeue": (
        Refuse(frozenset({"bad"})),
        put("bad", payload="x", due=PAST),
        Ended("bad", "dead"),
        Refuse(frozenset()),
        requeue("bad"),
        arrived(("bad", "x"), redelivered=True),
        Ended("bad", "delivered"),
        requeue("bad", "delivered"),
        requeue("none", "unknown"),
        put("far", due=FAR),
        requeue("far", "waiting"),
    ),
    "again": (
        again("unknown", key="k"),
        again("unknown", id="a"),
        Away(frozenset({"a", "b"})),
        put("a", due=PAST, key="k"),
        put("b", due=PAST),
        Fails("a", key="k"),
        Fails("b"),
        put("next", due=PAST, key="k"),
        pause("k"),
        again("paused", key="k"),
        resume("k"),
        Away(frozenset()),
        again(key="k"),
        arrived(("a", 1), ("next", 1)),
        again(id="b"),
        arrived(("b", 1)),
        Ended("next", "delivered", key="k"),
        again("unknown", key="k"),
        Ended("b", "delivered"),
        again("delivered", id="b"),
        put("far", due=FAR),
        again("waiting", id="far"),
        pause(),
        again("paused", id="far"),
        resume(),
    ),
    "pause": (
        pause(),
        put("a", due=PAST),
        state("a", "waiting"),
        put("b", due=PAST),
        cancel("b"),
        resume(),
        arrived(("a", 1)),
        pause(),
        resume(),
        put("c", due=PAST),
        arrived(("c", 1)),
    ),
    "pause a key": (
        pause("k"),
        put("a", due=PAST, key="k"),
        put("b", due=PAST, key="other"),
        put("c", due=PAST),
        arrived(("b", 1), ("c", 1)),
        state("a", "waiting", key="k"),
        resume("k"),
        arrived(("a", 1)),
    ),
    "pause until": (
        pause(until=FAR),
        put("a", due=PAST),
        pause(answer="refused", until=PAST),
        state("a", "waiting"),
        resume(),
        arrived(("a", 1)),
        pause("k", until=FAR),
        put("b", due=PAST, key="k"),
        pause("k", answer="refused", until=PAST),
        state("b", "waiting", key="k"),
        resume("k"),
        arrived(("b", 1)),
    ),
    "expiry": (
        put("late", due=PAST, expires=PAST + 1),
        Ended("late", "expired"),
        state("late", "expired"),
        Letters(frozenset({"late"})),
        put("fresh", due=PAST, expires=FAR),
        arrived(("fresh", 1)),
        put("never", "refused", due=FAR, expires=FAR - 1),
        requeue("late"),
        arrived(("late", 1), redelivered=True),
    ),
    "recurring": (
        put("tick", due=FAR, every=60_000),
        put("tick", "duplicate", due=FAR, every=60_000),
        put("tick", "replaced", due=FAR, every=90_000),
        state("tick", "recurring"),
        state("tick@2096-10-02T07:06:40.000Z", "waiting"),
        Due("tick@2096-10-02T07:06:40.000Z", FAR_TEXT),
        cancel("tick"),
        state("tick", "cancelled"),
        state("tick@2096-10-02T07:06:40.000Z", "cancelled"),
        put("number", due=FAR, every=60_000.0),
        state("number", "recurring"),
        put("large", "refused", every=253_402_300_799_999),
        put("cron", "refused", cron="61 * * * *"),
        put("yearly", cron="0 9 1 1 *", tz="Asia/Tokyo"),
        state("yearly", "recurring"),
        Due("yearly", "-01-01T00:00:00.000Z"),
    ),
    "event": (
        put("a", due=FAR, key="k", until_event=["paid", "lost"]),
        put("a", "duplicate", due=FAR, key="k", until_event=["lost", "paid"]),
        put("a", "conflict", due=FAR, key="k", until_event=["paid"]),
        put("b", due=FAR, key="k", until_event=["lost"]),
        put("c", due=FAR, key="other", until_event=["paid"]),
        event("e", "paid", payload={"sum": 12}),
        arrived(("a", 1)),
        Ended("a", "delivered", key="k"),
        event("e", "paid", payload={"sum": 12}),
        event("e", "paid", "conflict", payload={"sum": 13}),
        state("b", "waiting", key="k"),
        state("c", "waiting", key="other"),
        cancel("b", key="k"),
        event("f", "lost"),
        put("d", "refused", due=FAR, until_event=["paid"]),
        put("d", "refused", due=FAR, key="k", until_event=[]),
        put("d", "refused", key="k", every=60_000, until_event=["paid"]),
        event("g", "two words", "refused"),
    ),
    "remembered event": (
        event("e", "paid", remember_ms=3_600_000),
        put("a", due=FAR, key="k", until_event=["paid"]),
        arrived(("a", 1)),
        put("b", due=FAR, key="k", until_event=["lost"]),
        state("b", "waiting", key="k"),
        forget("e"),
        forget("e", "unknown"),
        put("c", due=FAR, key="k", until_event=["paid"]),
        state("c", "waiting", key="k"),
        event("f", "paid", "refused", remember_ms=0),
    ),
    "order": (
        pause(),
        put("third", due=PAST + 2, key="k"),
        put("first", due=PAST, key="k"),
        put("second", due=PAST, key="k"),
        put("fourth", due=PAST + 2, key="k"),
        resume(),
        arrived(("first", 1), ("second", 1), ("third", 1), ("fourth", 1)),
    ),
}
