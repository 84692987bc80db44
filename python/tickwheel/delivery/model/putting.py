"""Messages from Python values, as `put`, `put_many` and `submit` take them (rules D1, D16)."""

import math
import operator
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from tickwheel._native import MAX_DUE_MS, Records, read_message, read_put
from tickwheel.delivery.base.errors import WrongUsage
from tickwheel.delivery.model.message import MAX_PAYLOAD, Message

_OF_A_RECORD: Final = ("id", "due", "delay_ms", "payload", "key", "expires", "traceparent")
_MS: Final = timedelta(milliseconds=1)
_SPANS: Final = ("delay_ms", "every")
RULE: Final = ("every", "cron", "tz", "missed")
# A union is made anew at each look otherwise.
_BYTES: Final = bytes | bytearray | memoryview
_PLAIN: Final = str | int | float
_MESSAGES: Final = Message | Mapping | list | tuple
_NO_OPTIONS: Final = (None, None, None, None, None, None)  # `expires` and `traceparent`, and those of a rule
_FIELDS: Final = (*_OF_A_RECORD, *RULE, "replace", "debounce_ms", "at_latest_ms")


def message_of(given: object) -> Records:
    """A message from a value that `put_many` takes. Errors: `WrongUsage` for any other value; and as of `put_of`."""
    if type(given) is tuple and len(given) in (3, 4):
        # The shortest way for the most common value: all that `put_of` looks at besides is missing.
        id_, due, payload, key = given if len(given) == 4 else (*given, None)
        return read_put(id_, key, plain_of(due), None, *payload_of(payload), *_NO_OPTIONS)
    if isinstance(given, Message):
        return read_message(with_bytes(given), MAX_PAYLOAD)
    return put_of(**arguments_of(given))


def with_bytes(message: Message) -> Message:
    """The message with a payload of bytes, or of JSON as `msgspec.Raw`. Without one it is an object with nothing in it.
    Errors: `WrongUsage` if it is no JSON.
    """
    payload = message.payload
    if isinstance(payload, bytes | msgspec.Raw):
        return message
    data, is_json = payload_of({} if payload is None else payload)
    return msgspec.structs.replace(message, payload=msgspec.Raw(data) if is_json else data)


def arguments_of(given: object) -> dict[str, Any]:
    """The arguments of `put_of` in a dict or a tuple. Errors: `WrongUsage`."""
    match given:
        case Mapping():
            unknown = [name for name in given if name not in _FIELDS]
            if unknown:
                allowed = ", ".join(_FIELDS)
                raise WrongUsage(f"{given!r:.200} is no message: it has {unknown[0]!r:.200}, and may have {allowed}")
            return {"id": None, "payload": None, **given}
        case (id_, due, payload):
            return {"id": id_, "payload": payload, "due": due}
        case (id_, due, payload, key):
            return {"id": id_, "payload": payload, "due": due, "key": key}
    raise WrongUsage(
        f"{given!r:.200} is no message: give a Message, a dict with id, due or delay_ms, payload and key, or a tuple"
        " (id, due, payload) or (id, due, payload, key)"
    )


def put_of(
    id: object,  # noqa: A002
    payload: Any,
    due: object = None,
    *,
    delay_ms: object = None,
    key: object = None,
    expires: object = None,
    traceparent: object = None,
    replace: object = False,
    debounce_ms: object = None,
    at_latest_ms: object = None,
    every: object = None,
    cron: object = None,
    tz: object = None,
    missed: object = None,
) -> Records:
    """A message from Python values. Errors: `WrongUsage`, also if the payload can't be written as JSON; then
    `BadRecord`.
    """
    recurs = every is not None or cron is not None
    if recurs and (debounce_ms is not None or at_latest_ms is not None):
        raise WrongUsage("a message that recurs can't be debounced: leave out debounce_ms and at_latest_ms")
    if debounce_ms is not None:
        if due is not None or delay_ms is not None:
            raise WrongUsage("debounce_ms says when the message is due: leave out due and delay_ms")
        replace, delay_ms = True, debounce_ms
    if type(replace) is not bool:
        raise WrongUsage(f"replace is {replace!r:.100}: give True or False")
    at_latest_ms = span_of(at_latest_ms)
    if at_latest_ms is not None and not (replace and type(at_latest_ms) is int and 0 <= at_latest_ms <= MAX_DUE_MS):
        raise WrongUsage(
            f"at_latest_ms is {at_latest_ms!r:.200}: give a whole number, or a timedelta, with debounce_ms or replace"
        )
    due, delay_ms, expires, every = plain_of(due), span_of(delay_ms), plain_of(expires), span_of(every)
    put = read_put(id, key, due, delay_ms, *payload_of(payload), expires, traceparent, every, cron, tz, missed)
    return put.replacing(at_latest_ms) if replace else put


def item_of(given: Any) -> Any:
    """A message from a value that `put_many` takes, and anything else as it is. Errors: `WrongUsage`."""
    return message_of(given) if isinstance(given, _MESSAGES) else given


def payload_of(payload: Any) -> tuple[bytes, bool]:
    """The bytes of a payload, and whether they are JSON. Errors: `WrongUsage` if it can't be written as JSON."""
    is_json = not isinstance(payload, _BYTES)
    return (_json_of(payload) if is_json else bytes(payload)), is_json


def plain_of(given: Any) -> Any:
    """A `datetime` as text, a number of any type as an `int` or a `float`, and anything else as it is."""
    if given is None or isinstance(given, _PLAIN):
        return given
    if isinstance(given, datetime):
        return given.isoformat()
    with suppress(TypeError, ValueError, OverflowError):
        if hasattr(given, "__index__"):
            return operator.index(given)
        if hasattr(given, "as_integer_ratio"):
            return float(given)
    return given


def span_of(given: Any) -> Any:
    """A `timedelta` in milliseconds, exactly; anything else as `plain_of` has it."""
    if not isinstance(given, timedelta):
        return plain_of(given)
    ms, rest = divmod(given, _MS)
    return ms + rest / _MS if rest else ms


def plain_field(name: str, given: Any) -> Any:
    """The value of a field, as `span_of` has it for a span of time and `plain_of` for another field."""
    return span_of(given) if name in _SPANS else plain_of(given)


def _json_of(payload: Any) -> bytes:
    try:
        data = msgspec.json.encode(payload)
        is_lost = b"null" in data and _has_no_json_number(payload)
    except UnicodeEncodeError as error:
        why = "it has half of a surrogate pair, which is no text"
        raise WrongUsage(f"the payload can't be written as JSON: {why}; give bytes instead") from error
    except RecursionError as error:
        why = "it is nested too deep, or contains itself"
        raise WrongUsage(f"the payload can't be written as JSON: {why}; give bytes instead") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise WrongUsage(f"the payload can't be written as JSON: {error}; give bytes instead") from error
    if is_lost:
        raise WrongUsage("the payload can't be written as JSON, which has no NaN and no infinity: give None or a text")
    return data


def _has_no_json_number(payload: Any) -> bool:
    """Whether there is a NaN or an infinity in it, for which msgspec writes `null`."""
    left = [msgspec.to_builtins(payload, enc_hook=lambda _raw: None)]  # a `msgspec.Raw` is JSON already
    while left:
        value = left.pop()
        if isinstance(value, float) and not math.isfinite(value):
            return True
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list | tuple):
            left += value
    return False
