"""What the engine logs, by the standard library's `logging` under `tickwheel.delivery` (rule D15)."""

import logging
from collections.abc import Sequence
from typing import Any, Final

from tickwheel.delivery.entries import Letter

logger: Final = logging.getLogger("tickwheel.delivery")

_EVENTS: Final = {
    "down": (logging.ERROR, "the destination is down: %s"),
    "up": (logging.WARNING, "the destination is up again, after %d ms"),
    "failed": (logging.WARNING, "message %s failed for the first time: %s"),
    "cut off": (logging.WARNING, "send %d was cut off, with %d messages"),
    "clock stepped": (logging.WARNING, "the wall clock was stepped"),
    "checkpoint failed": (logging.ERROR, "a checkpoint failed: %s"),
}


def log_events(events: Sequence[tuple[Any, ...]]) -> None:
    """Log what the destination and the clock did."""
    for name, *values in events:
        level, text = _EVENTS.get(name, (logging.INFO, name))
        if name == "failed":
            key, id_, reason = values
            values = [repr(id_) if key is None else f"{id_!r} of key {key!r}", reason]
        logger.log(level, text, *values)


def log_text(text: str) -> None:
    """Log what is worth a line."""
    logger.info("%s", text)


def log_uncommitted(error: BaseException) -> None:
    """Log that a sink could not forget what is on disk. It is asked again, so nothing is lost by it."""
    logger.error("a sink's committed() failed, and is called again before the next send: %r", error, exc_info=error)


def log_letters(letters: Sequence[Letter]) -> None:
    """Log dead letters of a program that does not ask for them."""
    for letter in letters:
        logger.error("dead letter of %s, line %d: %s", letter.source, letter.line, letter.reason)
