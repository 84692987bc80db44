"""Runs where nothing but the wheel is installed: a timer, the manual timer, asyncio. Prints `fired` at the end."""

import asyncio
import importlib.util
import pathlib
import shutil
import sys
import threading

import tickwheel
from tickwheel import DelayedOperation, DelayedOperationPurgatory, SystemTimer, aio
from tickwheel.testing import ManualTimer

assert pathlib.Path(tickwheel.__file__).is_relative_to(sys.prefix), tickwheel.__file__
assert importlib.util.find_spec("click") is None
assert shutil.which("cargo") is None
assert shutil.which("rustc") is None

fired = threading.Event()
with SystemTimer("installed") as timer:
    timer.after(1, fired.set)
    assert fired.wait(30)
    assert timer.after(60_000, print).cancel() is True

told = []
manual = ManualTimer()
manual.after(5, told.append, "five")
assert (manual.advance(4), manual.advance(1), told) == (0, 1, ["five"])


class Reply(DelayedOperation):
    def try_complete(self):
        return self.force_complete()


async def coroutine():
    """Refused where no loop runs it."""


async def main():
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    assert await aio.sleep(0.01, "slept") == "slept"
    assert loop.time() - start_s >= 0.01
    called = asyncio.Event()
    aio.timers().call_later(0.01, called.set)
    async with aio.timeout(30):
        await called.wait()
    with DelayedOperationPurgatory("installed") as purgatory:
        assert await purgatory.wait(Reply(30_000), ["key"])


asyncio.run(main())
with asyncio.Runner(loop_factory=aio.new_event_loop) as runner:
    runner.run(main())

try:
    manual.after(1, coroutine)
except TypeError:
    print("fired")
