"""The log line about a callback that keeps the interpreter from its end (T11)."""

import logging
import sys
import threading
from typing import Any

from tickwheel import _system_threads


def tell(timer: str, thread: Any) -> None:
    """Name the callback that runs on this thread."""
    text = "the exit of the program waits for timer %r: %s has run for more than 5 s"
    logging.getLogger("tickwheel").warning(text, timer, _callback_on(thread))


def _callback_on(thread: Any) -> str:
    """The outermost function of the thread. An executor of the program has threads of its own, and C has no frames."""
    name, frame = "a callback", sys._current_frames().get(thread.ident)
    while frame is not None:
        if frame.f_code.co_filename not in (threading.__file__, _system_threads.__file__):
            name = frame.f_code.co_qualname
        frame = frame.f_back
    return name
