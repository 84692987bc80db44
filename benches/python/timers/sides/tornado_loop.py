"""tornado's `IOLoop`, which stands on asyncio's own loop and counts in wall-clock time.

What a callback returns is taken for something to wait for, unless it is None.
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
        hand_over=loop.add_callback,
        wants_functions=True,
    )
