"""Rows of a chunk as records of NDJSON, which any version reads (D1)."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from tickwheel.delivery.model.entries import Letter
from tickwheel.delivery.observe.dead_letters import line_of
from tickwheel.spark.upgrade.kept import Controls, Messages
from tickwheel.spark.upgrade.written import Kind

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ENDS_OF_LINES: Final = bytes.maketrans(b"\r\n", b"  ")


class Exported(NamedTuple):
    """A row. `due_ms`, `source`, `line`: its place among the rows of this shard and kind. `text`: a record, or a
    message and its reschedule. `is_other`: its record has other content than a deliverer may have.
    """

    kind: int
    due_ms: int
    source: str
    line: int
    is_other: bool
    text: str | None


def exported(rows: Any, places: Sequence[Messages | Controls], now_ms: int) -> Iterator[Exported]:
    """The rows of a chunk that are at these places. Some 10 us a row."""
    for place in places:
        if isinstance(place, Messages):
            kind = Kind.GIVEN if place.is_given else Kind.HELD
            for row in rows.slice(place.start, place.stop - place.start).to_pylist():
                moved_to_ms = row["moved_to_ms"] if place.moved_to_ms is None else place.moved_to_ms
                text, is_other = _message(row, moved_to_ms)
                at = row["due_ms"], row["source"] or "", row["line"] or 0
                yield Exported(kind, *at, is_other and place.is_given, text)
        else:
            for line, row in enumerate(rows.to_pylist()):
                kind, done = _control(row, place, now_ms)
                is_other = place.begins_anew and row["recurrence"] is not None
                yield Exported(kind, place.position, "", line, is_other, done)


def _message(row: Mapping[str, Any], moved_to_ms: int | None) -> tuple[str, bool]:
    """Its record. A second one follows with its due time, if the content has another one or a delay, because a known
    message is only a duplicate if its content is the same. Whether the content is another one all the same: a delay
    counts from now on, and could end after `expires`.
    """
    record = _named(row)
    is_delayed = row["delay_ms"] is not None and row["expires_ms"] is None
    if is_delayed:
        record["delay_ms"] = row["delay_ms"]
        moved_to_ms = row["due_ms"] if moved_to_ms is None else moved_to_ms
    else:
        record["due"] = _time(row["due_ms"])
    if row["expires_ms"] is not None:
        record["expires"] = _time(row["expires_ms"])
    text = _text(record | _content(row))
    if moved_to_ms is not None:
        text += "\n" + _text(_reschedule(row, moved_to_ms))
    return text, row["delay_ms"] is not None and not is_delayed


def _control(row: Mapping[str, Any], place: Controls, now_ms: int) -> tuple[Kind, str | None]:
    if row["reason"] is not None:
        letter = Letter(row["source"] or "", row["line"] or 0, row["reason"], row["allowed"] or "", row["payload"])
        return (Kind.DONE, None) if place.is_taken else (Kind.LETTER, line_of(letter).decode())
    if row["recurrence"] is not None:
        return Kind.CONTROL, _text(_named(row) | _rule(row) | _content(row))
    if row["due_ms"] is None:
        return Kind.CONTROL, _text(_named(row) | {"op": "cancel"})
    if place.is_taken:
        return Kind.DONE, None  # a message that is held has the time itself
    text = _text(_reschedule(row, row["due_ms"]))
    may_be_done = place.is_for_rules and place.is_given and row["due_ms"] <= now_ms
    return Kind.LEFT_OUT if may_be_done else Kind.CONTROL, text


def _rule(row: Mapping[str, Any]) -> dict[str, Any]:
    rule = msgspec.json.decode(row["recurrence"])
    found = {name: rule[name] for name in ("every", "cron", "tz", "missed") if name in rule}
    if rule.get("given"):
        return found | {"due": _time(rule["from"])}
    return found if row["delay_ms"] is None else found | {"delay_ms": row["delay_ms"]}


def _reschedule(row: Mapping[str, Any], due_ms: int) -> dict[str, Any]:
    return _named(row) | {"op": "reschedule", "due": _time(due_ms)}


def _named(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": row["id"]} if row["key"] is None else {"id": row["id"], "key": row["key"]}


def _content(row: Mapping[str, Any]) -> dict[str, Any]:
    traced = {} if row["traceparent"] is None else {"traceparent": row["traceparent"]}
    if row["is_json"]:
        # Between values only: in a text they are escapes.
        return traced | {"payload": msgspec.Raw(row["payload"].translate(_ENDS_OF_LINES))}
    return traced | {"payload_base64": b64encode(row["payload"]).decode()}


def _time(ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(record: Mapping[str, Any]) -> str:
    return msgspec.json.encode(record).decode()
