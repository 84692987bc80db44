"""Text from outside as it is printed and logged: on its line, and without characters that a terminal obeys.

An id, a key, an answer or the text of an exception may hold any character. A newline would begin a line that looks like
another message, and ESC or U+009B a command to the terminal. With a character that can't be seen one name looks like
another. Each such character is written as an escape of JSON, so a line of JSON stays the same JSON.
"""

import json
import logging
import traceback
from collections.abc import Mapping
from numbers import Number
from typing import Any

_CONTROLS = (*range(32), *range(127, 160))
_OF_LINES = (0x2028, 0x2029)
_OF_DIRECTION = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))  # one name looks like another
_NOT_SEEN = (0xAD, 0x180E, *range(0x200B, 0x200E), *range(0x2060, 0x2066), *range(0x206A, 0x2070), 0xFEFF)
_NOT_SEEN_EITHER = (*range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080))
ESCAPES = {
    code: json.dumps(chr(code))[1:-1] if code > 0xFFFF else f"\\u{code:04x}"
    for code in (*_CONTROLS, *_OF_LINES, *_OF_DIRECTION, *_NOT_SEEN, *_NOT_SEEN_EITHER)
}
"""The escape of each character that is not printed. `pages/live/words.js` has the same ones."""


def printable(text: str) -> str:
    r"""The text on one line, with escapes.

    >>> printable("done\nthe destination is up\x9b")
    'done\\u000athe destination is up\\u009b'
    """
    return text.translate(ESCAPES)


def logger_of(name: str) -> logging.Logger:
    """The logger of this name. All its messages have escapes."""
    logger = logging.getLogger(name)
    if not any(isinstance(each, _Escapes) for each in logger.filters):
        logger.addFilter(_Escapes())
    return logger


class _Escapes(logging.Filter):
    """Changes the arguments of each message, and its traceback. The lines of a traceback are indented, so none of them
    looks like a message.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true."""
        if isinstance(record.args, tuple):
            record.args = tuple(map(_printed, record.args))
        elif isinstance(record.args, Mapping):
            record.args = {name: _printed(each) for name, each in record.args.items()}
        if record.exc_info and record.exc_info[1] is not None:
            lines = "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n").split("\n")
            record.exc_text = "\n".join(f"  {printable(line)}" for line in lines)
        return True


def _printed(value: Any) -> Any:
    return value if isinstance(value, Number) else _Printable(value)


class _Printable:
    """A value whose text has escapes."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __str__(self) -> str:
        return printable(str(self.value))

    def __repr__(self) -> str:
        return printable(repr(self.value))
