"""The log line of a forked child whose parent has timers (T12).

The child may inherit the lock of a stream, taken by a thread of the parent. A write to such a stream never ends. So a
thread writes the line, and the child goes on after a second.
"""

import logging  # before the hook below, so that its own hook comes first: that one renews its locks
import os
from typing import Final

from tickwheel import _system_threads
from tickwheel._native import _leave_timers_to_parent

_WITHIN_S: Final = 1.0


def _tell_in_child() -> None:
    names = _leave_timers_to_parent()
    if names:
        thread = _system_threads.make_thread(lambda: _tell(names), "fork-warning")
        thread.start()
        thread.join(_WITHIN_S)


def _tell(names: list[str]) -> None:
    logging.getLogger("tickwheel").warning(
        "this process was forked, and timers made before the fork run nothing in it: %s; make a timer in each process, "
        'after the fork (see the page "Servers that fork" of the documentation)',
        ", ".join(map(repr, names)),
    )


os.register_at_fork(after_in_child=_tell_in_child)
