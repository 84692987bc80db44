"""tornado's `IOLoop`, which uses asyncio's own loop and counts in wall-clock time.

If a callback returns something else than None, the loop waits for it.
"""

import time

from tornado.ioloop import IOLoop

from ..side import Side
from .loops import run


def io_loop() -> Side:
    loop = IOLoop(make_current=False)
    return Side(
        add=loop.call_later,
        cancel=loop.remove_timeout,
        at=loop.call_at,
        clock=time.time,
        drive=lambda work: loop.run_sync(lambda: run(work)),
        call_in_loop=loop.add_callback,
        wants_functions=True,
    )
