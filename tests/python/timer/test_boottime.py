"""`clock="boottime"`: a timer whose clock goes on while the machine is suspended (T1).

No test suspends the machine. A process of one thread can enter a time namespace whose clock since boot is an hour
ahead, and its monotonic clock the same: that is what it finds after a suspend.
"""

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from tickwheel import SystemTimer, aio
from tickwheel.testing import VirtualLoop
from timer.watching import until

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the clock since boot"),
]

SUSPEND = """
import ctypes, os, sys, time

NEWTIME = 0x80

def suspend(offset_s):
    \"\"\"From here on the clock since boot is so far ahead.\"\"\"
    assert len(os.listdir("/proc/self/task")) == 1
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if libc.unshare(NEWTIME):
            raise OSError(ctypes.get_errno(), "unshare")
        with open("/proc/self/timens_offsets", "w") as offsets:
            offsets.write(f"boottime {offset_s} 0")
        if libc.setns(os.open("/proc/self/ns/time_for_children", os.O_RDONLY), NEWTIME):
            raise OSError(ctypes.get_errno(), "setns")
    except OSError as error:
        print("skipped:", error)
        sys.exit()
"""


def said_after_a_suspend(script: str) -> str:
    command = [sys.executable, "-c", SUSPEND + script]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=50).stdout
    if said.startswith("skipped"):
        pytest.skip(f"this system gives no time namespace: {said}")
    return said


def boottime_ms() -> float:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) / 1e6  # type: ignore[attr-defined, unused-ignore]


def test_a_timer_on_the_clock_since_boot_is_exact_as_any__T1_T5() -> None:
    came: list[float] = []
    with SystemTimer("leases", clock="boottime") as timer:
        before_ms = boottime_ms()
        assert before_ms - 1 <= timer.now_ms() <= boottime_ms()
        dues_ms = [timer.now_us() / 1000 + delay_ms for delay_ms in (30, 5, 15)]
        for due_ms in dues_ms:
            timer.at(due_ms, lambda: came.append(boottime_ms()))
        far = timer.after(3_600_000, came.append, 0)
        until(lambda: len(came) == 3)
        assert all(at >= due_ms for at, due_ms in zip(came, sorted(dues_ms), strict=True))
        timer.after(0, came.append, 1)  # it wakes the sleeping thread
        until(lambda: len(came) == 4)
        assert far.cancel()
    with SystemTimer("from zero", start_ms=0, clock="boottime", reaper=False) as timer:
        timer.after(2, came.append, 2)
        while came[-1] != 2:
            timer.advance_clock(1_000)
        assert 2 <= timer.now_ms() < 60_000


def test_threads_that_add_wake_it_each_time__T5() -> None:
    came: list[int] = []
    with SystemTimer("woken", clock="boottime", slack_us=0) as timer:

        def add() -> None:
            for number in range(200):
                ran = threading.Event()
                timer.after(0, ran.set)
                assert ran.wait(20), number
            came.append(1)

        threads = [threading.Thread(target=add) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(came) == 3


@pytest.mark.parametrize("clock", ["wall", 5, ("boottime",)])
def test_another_clock_is_refused__T13(clock: object) -> None:
    with pytest.raises(ValueError, match=r"clock must be 'monotonic' or 'boottime', got .*goes on while the machine"):
        SystemTimer("x", clock=clock)  # type: ignore[arg-type]


def test_the_time_of_a_loop_is_the_one_since_boot__T21() -> None:
    async def main() -> None:
        loop, came = asyncio.get_running_loop(), list[float]()
        assert aio.timers().clock == "boottime"
        assert abs(loop.time() - boottime_ms() / 1000) < 60
        for delay in (0.02, 0.005):
            loop.call_later(delay, came.append, loop.time() + delay)
        await asyncio.sleep(0.03)
        assert (len(came), came) == (2, sorted(came))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.005):
                await asyncio.sleep(60)

    with asyncio.Runner(loop_factory=lambda: aio.new_event_loop(clock="boottime")) as runner:
        runner.run(main())
    with pytest.raises(ValueError, match="WheelVirtualLoop keeps its own timers, so clock='boottime' is not for it"):
        aio.new_event_loop(VirtualLoop, clock="boottime")
    with pytest.raises(ValueError, match="clock must be 'monotonic' or 'boottime'"):
        aio.new_event_loop(clock="wall")  # type: ignore[arg-type]


def test_after_a_suspend_of_an_hour_a_loop_runs_what_came_due__T1_T21() -> None:
    for clock, expected in [("boottime", "['an hour']"), ("monotonic", "[]")]:
        script = f"""
import asyncio
from tickwheel import aio

async def main():
    came = []
    loop = asyncio.get_running_loop()
    loop.call_later(3_000, came.append, "an hour")
    suspend(3_600)
    aio.timers()._run_due()  # as the system makes the loop do after a resume; a namespace moves no timerfd that is set
    print(came)

with asyncio.Runner(loop_factory=lambda: aio.new_event_loop(clock={clock!r})) as runner:
    runner.run(main())
"""
        assert said_after_a_suspend(script).strip() == expected


def test_where_the_clocks_are_an_hour_apart_the_threads_sleep_by_the_one_since_boot__T1() -> None:
    script = """
suspend(3_600)
from tickwheel import SystemTimer
import queue

came = queue.SimpleQueue()
with SystemTimer("leases", clock="boottime") as timer:
    begun_s = time.monotonic()
    for delay_ms in (1, 5, 20):
        timer.after(delay_ms, came.put, delay_ms)
    print([came.get(timeout=30) for _ in range(3)], 0.02 <= time.monotonic() - begun_s < 20)
"""
    assert said_after_a_suspend(script).strip() == "[1, 5, 20] True"
