"""Border rule 7, the exit: a daemon thread inside a call that runs foreign code does not abort the process (T11).

Python before 3.14 ends such a thread when it wants the interpreter's lock back, by unwinding its stack. Each script
ends while threads are in the middle of Python code that native code of ours has called; it is run several times, as the
moment differs.
"""

import pytest

from purgatory.scripts import run_script

WORK = "sum(range(2_000))"

FOREIGN = f"""
from tickwheel._native import read_records

class Key:
    def __hash__(self):
        return {WORK} and 7

    def __eq__(self, other):
        return bool({WORK})

class Named:
    def __call__(self):
        pass

    def __repr__(self):
        return str({WORK})

class Number:
    def __index__(self):
        return {WORK} and 1

class Ends(Named):
    def __del__(self, sum=sum, range=range):
        {WORK}

class Lock(Ends):
    def acquire(self, blocking):
        return True

    def release(self):
        pass

class Task(TimerTask):
    def run(self):
        pass

    def __del__(self, sum=sum, range=range):
        {WORK}

class Error:
    def __call__(self, task, error):
        {WORK}

class Works(Op):
    def on_complete(self):
        {WORK}

timer, manual = SystemTimer("x"), ManualTimer(on_error=Error())
purgatory = DelayedOperationPurgatory("p", manual)
for key in range(2):
    purgatory.try_complete_else_watch(Op(HOUR), [Key()])
task = TimerTask(1, Named())
pending = manual.after(HOUR, Named())

def keys():
    yield from [Key(), {WORK}]

class Due:
    def __index__(self):
        return {WORK} and 4_000_000_000_000

def messages():
    yield "a", Due(), {WORK}

def found_unfinished():
    own = ManualTimer()
    own.add(Task(HOUR))
    own.shutdown()

def fail():
    raise ValueError

def add_failing():
    manual.after(0, fail)
"""

CALLS = {
    "check": "purgatory.check_and_complete(Key())",
    "cancel_for_key": "purgatory.cancel_for_key(Key())",
    "watch": "purgatory.try_complete_else_watch(Op(HOUR), keys())",
    "complete": "Works(HOUR).force_complete()",
    "repr": "repr(task), repr(pending)",
    "snapshot_and_pending": "manual.snapshot(), manual.pending()",
    "index": "TimerTask(Number(), nop), manual.after(Number(), nop).cancel()",
    "iterator": "manual.cancel_many(task for _ in keys() if False)",
    "destructor": "manual.after(HOUR, Ends()).cancel()",
    "destructor_of_a_task": "TimerTask(1, Ends())",
    "destructor_of_a_batch": "manual.add_many(ms(1, 3_600_000), Ends()).cancel_all()",
    "destructor_of_a_timer": "ManualTimer(on_error=Ends())",
    "destructor_of_an_operations_lock": "Op(HOUR, lock=Lock())",
    "destructor_of_what_a_timer_found_unfinished": "found_unfinished()",
    "messages": "read_records(messages(), format='messages')",
    "callback": "task.run(), threading.local()",
    "make_and_shut_down": "SystemTimer('more').shutdown()",
    "make_a_purgatory": "DelayedOperationPurgatory('more').shutdown()",
}


@pytest.mark.parametrize("call", CALLS)
def test_a_daemon_thread_in_a_call_that_runs_foreign_code_ends_in_silence__rule7_T11(call):
    for turn in range(4):
        run_script(
            f"""
{FOREIGN}
started = threading.Semaphore(0)

def use():
    started.release()
    while True:
        try:
            {CALLS[call]}
        except TimerClosed:
            time.sleep(0)

for _ in range(3):
    threading.Thread(target=use, daemon=True).start()
for _ in range(3):
    started.acquire()
time.sleep({turn} / 50)
"""
        )


def test_a_daemon_thread_that_advances_a_manual_timer_whose_callbacks_fail_ends_in_silence__rule7_T11():
    for turn in range(4):
        run_script(
            f"""
{FOREIGN}

def use():
    while True:
        with contextlib.suppress(TimerClosed):
            add_failing()
            manual.advance(1)

threading.Thread(target=use, daemon=True).start()
time.sleep(0.02 + {turn} / 50)
"""
        )


def test_a_coroutine_that_fails_in_a_daemon_threads_loop_is_told_of_in_silence__rule7_T11():
    for turn in range(8):
        run_script(
            f"""
warnings.simplefilter("ignore", ResourceWarning)  # asyncio's, about the loop that is left open

async def fail():
    raise ValueError

async def feed():
    while True:
        with contextlib.suppress(TimerClosed):
            timer.after(0, fail)
        await asyncio.sleep(0)

loop = asyncio.new_event_loop()
timer = SystemTimer("x", executor=loop, on_error=lambda task, error: sum(range(100_000)))
sys.at_the_very_end = loop, loop.create_task(feed())
threading.Thread(target=loop.run_forever, daemon=True).start()
time.sleep(0.1 + {turn} / 100)
"""
        )


def test_a_daemon_thread_that_waits_in_a_shutdown_does_not_disturb_the_end__rule7_T11():
    """A wait itself needs no care: pyo3 stops a thread that comes back from one."""
    for turn in range(4):
        run_script(
            f"""
sys.at_the_very_end = SlowEnd()
running = threading.Event()
timer = SystemTimer("x")
timer.after(0, lambda: (running.set(), time.sleep(0.1)))
running.wait()
driven = SystemTimer("driven", reaper=False)

def wait():
    with contextlib.suppress(TimerClosed):
        driven.advance_clock(60_000)

for _ in range(2):
    threading.Thread(target=timer.shutdown, daemon=True).start()
    threading.Thread(target=wait, daemon=True).start()
time.sleep({turn} / 50)
"""
        )


def test_calls_of_other_threads_after_the_exit_hook_have_a_harmless_answer_or_a_clear_error__rule7_T11():
    """A hook that was registered before the import runs after ours, and may join a thread that uses the library."""
    out = run_script(
        """
def use():
    go_on.wait()
    for call in (
        lambda: repr(task),
        lambda: manual.pending(),
        lambda: manual.advance(1),
        lambda: manual.run_next(),
        lambda: manual.shutdown(),
        lambda: manual.cancel_many([task]),
        lambda: pending.cancel(),
        lambda: batch.cancel_all(),
        lambda: purgatory.check_and_complete(1),
        lambda: purgatory.cancel_for_key(1),
        lambda: purgatory.shutdown(),
        lambda: operation.cancel(),
        lambda: timer.shutdown(),
        lambda: timer.__exit__(None, None, None),
        lambda: manual.after(1, nop),
        lambda: TimerTask(1, nop),
        lambda: SystemTimer("more"),
        lambda: operation.force_complete(),
        lambda: purgatory.try_complete_else_watch(operation, [1]),
    ):
        try:
            print(call())
        except TimerClosed as error:
            print(error)

manual, timer = ManualTimer(), SystemTimer("x")
purgatory = DelayedOperationPurgatory("p", manual)
task, pending, batch, operation = TimerTask(1, nop), manual.after(1, nop), manual.add_many(ms(1, 1), nop), Op(HOUR)
purgatory.try_complete_else_watch(operation, [1])
thread = threading.Thread(target=use, daemon=True)
thread.start()
""",
        first="""
import atexit, threading

def stop():
    go_on.set()
    thread.join(10)
    print(thread.is_alive(), flush=True)

go_on = threading.Event()
atexit.register(stop)
""",
    )
    closed = "the interpreter is exiting: timers and purgatories take no more calls"
    harmless = ["<TimerTask>", "[]", "0", "False", "[]", "0", "False", "0", "0", "[]", "[]", "False", "[]", "None"]
    assert out.splitlines() == [*harmless, *[closed] * 5, "False"], out
