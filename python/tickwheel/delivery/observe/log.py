"""The engine's log messages, in the standard library's `logging` under `tickwheel.delivery` (rule D15)."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from tickwheel._native import rfc_3339
from tickwheel._printable import logger_of
from tickwheel.delivery.model.entries import Letter

logger: Final = logger_of("tickwheel.delivery")

_EVENTS: Final = {
    "down": (logging.ERROR, "the destination%s is down: %s"),
    "up": (logging.WARNING, "the destination%s is up again, after %d ms"),
    "up untried": (logging.WARNING, "the destination%s counts as up after %d ms: no message waits for it any more"),
    "disabled": (logging.ERROR, "the destination %s is paused: %s; once it is mended, resume it"),
    "failed": (logging.WARNING, "message %s failed %s: %s"),
    "cut off": (logging.WARNING, "message %s cut off: no answer in time"),
    "paused": (logging.WARNING, "sending is paused: what is due waits until it is resumed"),
    "resumed": (logging.WARNING, "sending goes on"),
    "keys paused": (logging.WARNING, "keys that are paused: %d; what is due of them waits until they are resumed"),
    "left out": (logging.WARNING, "events that were not logged, as there were too many: %d"),
    "clock stepped": (logging.WARNING, "the wall clock was stepped by %+.3f s, to %s"),
    "slow sync": (
        logging.WARNING,
        "a sink's sync() takes more than %d s, and nothing is committed until it returns",
    ),
    "base failed": (
        logging.ERROR,
        "no copy of the store for standbys was made in PostgreSQL, and it is tried again: %s",
    ),
    "checkpoint failed": (logging.ERROR, "a checkpoint failed: %s"),
    "store waits": (logging.ERROR, "%s; nothing is sent or accepted until then"),
    "store goes on": (logging.WARNING, "the store can be written again, after %d ms"),
    "proxy not used": (logging.INFO, "%s is set and not used: to send webhooks through it, give --proxy env"),
    "no thread": (
        logging.WARNING,
        "fewer messages are sent at a time, until the system gives more threads: %s",
    ),
}


_LONGEST_NAME: Final = 200  # characters of an id or a key in a log message


def log_events(events: Sequence[tuple[Any, ...]]) -> None:
    """Log what the destination and the clock did."""
    for name, *values in events:
        level, text = _EVENTS.get(name, (logging.INFO, name))
        if name == "failed":
            destination, key, id_, times, reason = values
            named = _named(key, id_, destination)
            values = [named, "for the first time" if times == 1 else f"{times:,} times in a row", reason]
        elif name in ("down", "up", "up untried"):
            destination, rest = values
            values = ["" if destination is None else f" {destination}", rest]
        elif name == "cut off":
            destination, key, id_, messages, times = values
            if f"{times}".strip("0") != "1":
                continue  # it is told at the first, the tenth, the hundredth time, and so on
            values = [_named(key, id_, destination) + (" was" if messages == 1 else f" and {messages - 1:,} more were")]
        elif name == "clock stepped":
            by_ms, to_ms = values
            values = [by_ms / 1000, rfc_3339(to_ms)]
        elif name == "keys paused" and values == [0]:
            text, values = "no key is paused any more", []
        logger.log(level, text, *values)


def log_text(text: str) -> None:
    """Log a text as information."""
    logger.info("%s", text)


def log_uncommitted(error: BaseException) -> None:
    """Log that a sink's `committed` has failed. It is called again before the next send, so nothing is lost."""
    logger.error("a sink's committed() failed, and is called again before the next send: %r", error, exc_info=error)


def log_no_position(error: BaseException) -> None:
    """Log that a sink's `position` has failed. The position that it returned last holds, so nothing is lost."""
    logger.error("a sink's position() failed, and the last one that it returned holds: %r", error, exc_info=error)


def log_cancelled(number: int, of: int, id_: str, key: str | None) -> None:
    """Log that messages of a `put` or `put_many` are not accepted, as their names were cancelled before."""
    name = _named(key, id_)
    if of == 1:
        logger.warning("message %s not accepted: it was cancelled before", name)
    else:
        logger.warning("%d of %d messages not accepted: cancelled before, the first is %s", number, of, name)


def log_letters(letters: Sequence[Letter]) -> None:
    """Log dead letters of a program that does not ask for them."""
    for letter in letters:
        logger.error("dead letter of %s: %s", subject_of(letter), letter.reason)


class _Name(msgspec.Struct):
    id: str
    key: str | None = None
    destination: str | None = None


def subject_of(letter: Letter) -> str:
    """The subject of a dead letter: the message, or the place of the unreadable record in the input."""
    with suppress(msgspec.MsgspecError, RecursionError):
        if letter.source == "delivery":  # it was given up
            name = msgspec.json.decode(letter.record, type=_Name)
            return f"message {_named(name.key, name.id, name.destination)}"
    return f"{letter.source}, line {letter.line}"


def _named(key: str | None, id_: str, destination: str | None = None) -> str:
    shown, of_key = repr(id_[:_LONGEST_NAME]), "" if key is None else f" of key {key[:_LONGEST_NAME]!r}"
    return shown + of_key + ("" if destination is None else f" to {destination[:_LONGEST_NAME]}")
