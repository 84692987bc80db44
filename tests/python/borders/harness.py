"""Runs a script in a process of its own: what breaks a border hangs or aborts, and must not take pytest along.

The script gets the names of `PRELUDE`. It has to end by itself, within its time, with the return code and the stderr
that are expected (by default 0 and nothing). One that hangs prints where every thread stands.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

PRELUDE = '''
import array, asyncio, collections, contextlib, ctypes, faulthandler, gc, os, random, signal, sys, threading, time
import warnings, weakref
from concurrent.futures import ThreadPoolExecutor

from tickwheel import (
    SystemTimer, TickwheelError, TimerClosed, TimerForked, TimerFull, TimerRejected, TimerTask, _native
)
from tickwheel.testing import ManualTimer

faulthandler.enable()  # says where every thread stands at SIGABRT, which the harness sends when the time is up
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts pytest with `&` has it ignored


def nop(*_):
    pass


def wait_until(condition, limit=15, what="the condition"):
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"waited {limit} s in vain for {what}"
        time.sleep(0.001)


def ms(count, value):
    return array.array("q", [value]) * count


class Ticker(threading.Thread):
    """Counts in pure Python: it moves exactly while it gets the GIL."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ticks = 0
        self.start()
        time.sleep(0.05)
        ticks, start = self.ticks, time.perf_counter()
        time.sleep(0.1)
        self.per_second = (self.ticks - ticks) / (time.perf_counter() - start)

    def run(self):
        while True:
            self.ticks += 1

    def share(self, call):
        """What part of its full speed it keeps while `call` runs, and how long that takes."""
        ticks, start = self.ticks, time.perf_counter()
        call()
        ticks, seconds = self.ticks - ticks, time.perf_counter() - start
        return ticks / (self.per_second * seconds), seconds


@contextlib.contextmanager
def loop_in_a_thread():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def native_threads():
    return len(os.listdir("/proc/self/task"))


def tid_of(name):
    """The native thread with this name; a thread gives itself its name, so it may take a moment."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        for tid in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError), open(f"/proc/self/task/{tid}/comm") as comm:
                if comm.read().strip() == name[:15]:
                    return int(tid)
    raise AssertionError(f"no thread {name}")


class CpuAlarm(ctypes.Structure):
    """Linux's `struct sigevent`: after 10 ms of a thread's own CPU time that same thread gets the signal."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("tid", ctypes.c_int),
        ("rest", ctypes.c_char * 44),
    )

    def __init__(self, libc, tid, signal):
        super().__init__(None, signal, 4, tid)  # 4: SIGEV_THREAD_ID
        self.libc, self.timer = libc, ctypes.c_void_p()
        clock = (~tid << 3) | 6  # as clock_getcpuclockid builds it, of one thread
        assert libc.timer_create(clock, ctypes.byref(self), ctypes.byref(self.timer)) == 0
        assert libc.timer_settime(self.timer, 0, (ctypes.c_long * 4)(0, 0, 0, 10_000_000), None) == 0

    def wait(self, limit=20):
        left, end = (ctypes.c_long * 4)(), time.monotonic() + limit
        while self.libc.timer_gettime(self.timer, left) == 0 and any(left):
            assert time.monotonic() < end, "the thread never used 10 ms"
            time.sleep(0.001)
        self.libc.timer_delete(self.timer)


def freeze_reaper_with_lock(seconds=signal.SIGHUP, prepare=nop):
    """Makes a timer, and puts its reaper to sleep in the middle of a cascade, while it holds the native lock.

    The signal's handler is libc's own `sleep`, which gets the number of the signal: 1 second for SIGHUP, 10 for
    SIGUSR1. It comes by the reaper's own CPU time, so it does not matter when this thread gets to run. A test that
    looks during the sleep takes 10 seconds: on a busy machine it may itself stand still for one. It
    calls `prepare` with the timer first.

    The signal may also come inside `malloc`. Then the reaper sleeps with a lock of the C library too, and a thread that
    wants memory waits for that with the GIL: no fault of the timer. So all threads share the lock, and one tries it.
    """
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    assert libc.mallopt(-8, 1) == 1  # M_ARENA_MAX
    libc.signal(seconds, libc.sleep)
    missed = []
    for turn in range(12):  # now and then it is caught between two pieces of work, without the lock
        timer = SystemTimer(f"frozen{turn}", wheel_size=4, start_ms=0)  # the reapers of earlier turns are still there
        prepare(timer)
        alarm = CpuAlarm(libc, tid_of(f"reaper-frozen{turn}"), seconds)
        batch = timer.add_many(ms(600_000, 367), nop)  # base 4: 1 1 2 3 3
        tasks = [timer.after(3_600_000, nop) for _ in range(10)]
        alarm.wait()
        asked = threading.Event()
        threading.Thread(target=lambda last=tasks.pop(), asked=asked: (last.cancel(), asked.set()), daemon=True).start()
        has_memory = threading.Event()
        threading.Thread(target=lambda it=has_memory: (libc.free(libc.malloc(1 << 16)), it.set()), daemon=True).start()
        if not asked.wait(0.1 * seconds) and has_memory.is_set():
            return timer, batch, tasks
        missed.append(timer)  # to end it would wait for its sleep
    raise AssertionError("the reaper was never caught with the lock")


def reap(pid, limit=15):
    """The exit code of a child, or `hung`."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hung"


class SlowEnd:
    """Left to the very end of the interpreter, it keeps it in its finalization for a while."""

    def __init__(self, sleep=time.sleep):
        self.sleep = sleep

    def __del__(self):
        self.sleep(0.3)
'''

# What a child says of its parent's timers; `test_rule7_fork_warning.py` reads it from the logger.
FORKED = re.compile(r"^this process was forked, and timers made before the fork run nothing in it: .*\n", re.MULTILINE)


def run_script(
    code: str,
    *,
    timeout: float = 30,
    rc: int = 0,
    stderr: str | None = "",
    first: str = "",
    prelude: str = PRELUDE,
) -> str:
    """Runs `code`, checks how it ends, and returns what it printed. `stderr=None`: whatever it says there. `first` is
    run before tickwheel is imported."""
    script = textwrap.dedent(first) + prelude + textwrap.dedent(code)
    arguments = [
        sys.executable,
        "-W",
        "error",
        "-W",
        "ignore:This process:DeprecationWarning",  # 3.12 and later, of a fork with threads: just what is tested here
        "-c",
        script,
    ]
    process = subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"hung for {timeout} s\n{out.decode()[-3000:]}\n{err.decode()[-6000:]}") from None
    finally:
        with contextlib.suppress(ProcessLookupError):  # a forked child that hangs outlives its parent
            os.killpg(process.pid, signal.SIGKILL)
    told = f"rc {process.returncode}\n--- stdout\n{out.decode()[-3000:]}\n--- stderr\n{err.decode()[-6000:]}"
    assert process.returncode == rc, told
    assert stderr is None or FORKED.sub("", err.decode()) == stderr, told
    return out.decode()
