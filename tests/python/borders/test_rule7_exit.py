"""Border rule 7, the exit: every timer stops before the interpreter ends; no crash, no message (T11)."""

import pytest

from borders.harness import run_script

# Kept to the end of the interpreter, it is in its finalization for so long that a thread that comes back meets it.
LINGER = "sys.at_the_very_end = SlowEnd()\n"

MAKES = {
    "own": "timer = SystemTimer('x')",
    "pool": "timer = SystemTimer('x', executor=ThreadPoolExecutor(2))",
    "tick": "timer = SystemTimer('x', precision='tick')",
}


@pytest.mark.parametrize("make", MAKES)
def test_an_exit_with_a_million_pending_says_nothing__rule7_T11(make):
    run_script(
        f"""
{MAKES[make]}
timer.add_many(ms(1_000_000, 60_000), nop)
for i in range(20_000):
    timer.after(60_000 + i, nop, timer)
""",
        timeout=60,
    )


WORK = {
    "python": "end = time.monotonic() + 0.15\n    while time.monotonic() < end: pass",
    "sleeping": "time.sleep(0.15)",
    "c": "sum(range(8_000_000))",
    "waiting": "threading.Event().wait(0.15)",
}


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("work", WORK)
def test_the_callback_that_runs_at_exit_is_joined_and_the_rest_dropped__rule7_T11(work, make):
    out = run_script(
        f"""
{LINGER}
{MAKES[make]}
running = threading.Event()

def work():
    running.set()
    {WORK[work]}
    print("its last line", flush=True)

timer.after(0, work)
running.wait()
for i in range(1_000):
    timer.after(600 + i, print, "dropped")
"""
    )
    assert out == "its last line\n"


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("work", ["pass", "time.sleep(0.01)", "sum(range(10_000))", "threading.Event().wait(0.002)"])
def test_an_exit_while_tasks_fire_at_a_high_rate_says_nothing__rule7_T11(work, make):
    run_script(
        f"""
{LINGER}
{MAKES[make]}

def work():
    {work}

class Again(TimerTask):
    def run(self):
        work()
        try:
            timer.add(self)
        except (TimerClosed, TypeError):
            pass

for i in range(200):
    timer.add(Again(i / 50))
    timer.after(i, work)
timer.add_many(array.array("q", range(2_000)), nop)
time.sleep(0.1)
"""
    )


def test_an_exit_while_a_pool_is_behind_says_nothing_of_the_tasks_it_refuses__rule7_T11():
    """The pools of the standard library close first, and wait for what they run; meanwhile more comes due."""
    out = run_script(
        """
pool = ThreadPoolExecutor(1)
timer = SystemTimer("x", executor=pool)
running = threading.Event()
timer.after(0, lambda: (running.set(), time.sleep(0.5), print("its last line", flush=True)))
for i in range(60):
    timer.after(i * 10, nop)
running.wait()
"""
    )
    assert out == "its last line\n"


@pytest.mark.parametrize("state", ["running", "stopped", "closed", "never_run"])
def test_an_exit_with_a_loop_as_executor_says_nothing__rule7_T11(state):
    run_script(
        f"""
{LINGER}
warnings.simplefilter("ignore", ResourceWarning)  # asyncio's, about the loop that is left open
loop = asyncio.new_event_loop()
timer = SystemTimer("x", executor=loop, on_error=nop if "{state}" == "closed" else None)
for i in range(200):
    timer.after(i, nop)
    timer.after(i, time.sleep, 0.001)
timer.after(60_000, nop)
if "{state}" == "running":
    threading.Thread(target=loop.run_forever, daemon=True).start()
    time.sleep(0.05)
elif "{state}" != "never_run":
    loop.call_later(0.05, loop.stop)
    loop.run_forever()
    if "{state}" == "closed":
        loop.close()
"""
    )


def test_an_exit_from_inside_asyncio_run_says_nothing__rule7_T11():
    run_script(
        """
async def main():
    timer = SystemTimer("x", executor=asyncio.get_running_loop(), on_error=nop)
    for i in range(200):
        timer.after(i, nop)
    await asyncio.sleep(0.05)
    sys.keep = timer

asyncio.run(main())
"""
    )


def test_a_callback_that_runs_in_the_daemon_thread_of_a_loop_is_joined_at_exit__rule7_T11():
    """A common set-up. The exit waits for the callback, or its thread would come back into a dead interpreter."""
    out = run_script(
        f"""
{LINGER}
warnings.simplefilter("ignore", ResourceWarning)
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
timer = SystemTimer("x", executor=loop)
running = threading.Event()
timer.after(0, lambda: (running.set(), time.sleep(0.3), print("its last line", flush=True)))
running.wait()
"""
    )
    assert out == "its last line\n"


ENDS = {
    "the_end": ("", 0, ""),
    "sys_exit": ("sys.exit(7)", 7, ""),
    "os_exit": ("os._exit(5)", 5, ""),
    "an_exception": ("raise ValueError('mine')", 1, "ValueError: mine"),
    "an_exit_in_another_thread": ("threading.Thread(target=sys.exit).start()", 0, ""),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("make", MAKES)
def test_however_a_program_ends_its_timers_do_not_disturb_it__rule7_T11(make, end):
    code, rc, said = ENDS[end]
    run_script(
        f"""
{LINGER if rc != 5 else ""}
{MAKES[make]}
more = [SystemTimer("x" + str(i)) for i in range(5)]
manual = ManualTimer()
driven = SystemTimer("driven", reaper=False)
for each in [timer, driven, manual, *more]:
    each.after(60_000, nop, each)
    each.after(0, nop)
    each.after(1, time.sleep, 0.05)
    sys.excepthook = lambda kind, error, _: print(f"{{kind.__name__}}: {{error}}", file=sys.stderr, end="")
time.sleep(0.02)
{code}
""",
        rc=rc,
        stderr=said,
    )


def test_exits_in_the_middle_of_everything_say_nothing_forty_times__rule7_T11():
    """A process forks children that each end, fully finalized, at another moment."""
    run_script(
        """
def child(turn):
    timer = SystemTimer("x")
    for i in range(300):
        timer.after(i / 10, nop)
        timer.after(i / 10, time.sleep, 0.0005)
    gone = SystemTimer("gone")
    gone.after(turn / 2, nop)
    del gone
    time.sleep(turn / 1500)
    sys.exit(3)

for turn in range(40):
    pid = os.fork()
    if pid == 0:
        child(turn)
    assert (rc := reap(pid)) == 3, (turn, rc)
""",
        timeout=60,
    )


DAEMONS = {
    "in_advance_clock": "driven.advance_clock(60_000)",
    "in_shutdown": "slow.shutdown()",
    "adding_and_cancelling": "timer.after(1, nop).cancel(), len(timer), timer.stats()",
    "adding_batches": "timer.add_many(ms(5_000, 60_000), nop).cancel_all()",
    "making_timers": "SystemTimer('more').after(1, nop)",
    "shutting_down": "SystemTimer('more').shutdown()",
}


@pytest.mark.parametrize("what", DAEMONS)
def test_a_daemon_thread_that_uses_a_timer_at_exit_does_not_disturb_it__rule7_T11(what):
    run_script(
        f"""
{LINGER}
timer = SystemTimer("x")
driven = SystemTimer("driven", reaper=False)
slow = SystemTimer("slow")
slow.after(0, time.sleep, 0.4)
time.sleep(0.02)

def use():
    while True:
        try:
            {DAEMONS[what]}
        except TimerClosed:
            time.sleep(0)

for _ in range(3):
    threading.Thread(target=use, daemon=True).start()
time.sleep(0.15)
"""
    )


def test_a_timer_that_nobody_holds_and_whose_thread_is_ending_at_exit_does_not_abort__rule7():
    """What the executor's thread drops last is the timer's `on_error`, whose destructor is foreign code too."""
    run_script(
        f"""
{LINGER}

class OnError:
    def __call__(self, task, error):
        pass

    def __del__(self, sleep=time.sleep):
        sleep(0.25)

timer = SystemTimer("x", on_error=OnError())
timer.after(20, nop)
del timer
time.sleep(0.1)
"""
    )


def test_after_the_exit_hook_a_timer_takes_no_more_and_none_can_be_made__rule7_T11():
    out = run_script(
        """
import atexit
timer = SystemTimer("x")
left = timer.after(60_000, nop)
atexit._run_exitfuncs()
for call in (lambda: timer.after(1, nop), lambda: SystemTimer("y"), lambda: timer.add(TimerTask(1, nop))):
    try:
        call()
    except TimerClosed:
        print("closed", flush=True)
assert len(timer) == 0 and not left.cancel()
print(timer.shutdown(), flush=True)
"""
    )
    assert out == "closed\n" * 3 + "[]\n"


def test_a_callback_that_exits_at_exit_time_reports_and_the_exit_goes_on__rule7_T10():
    out = run_script(
        """
running = threading.Event()

def on_error(task, error):
    print(type(error).__name__, flush=True)

timer = SystemTimer("x", on_error=on_error)
timer.after(0, lambda: (running.set(), time.sleep(0.2), sys.exit(9)))
running.wait()
""",
    )
    assert out == "SystemExit\n"


def test_an_interrupt_at_exit_ends_one_wait_and_no_timer_goes_on_into_the_end__rule7_T11():
    """All timers are closed and drained before the first is waited for; each interrupt ends one wait, and the last is
    raised when all have been tried."""
    out = run_script(
        f"""
import atexit
{LINGER}
running = [threading.Event() for _ in range(3)]
interrupted = threading.Event()

def work(number):
    running[number].set()
    interrupted.wait(20)
    time.sleep(0.2 * number)
    print("last line of", number, flush=True)

timers = [SystemTimer(str(number)) for number in range(3)]
for number, timer in enumerate(timers):
    timer.after(0, work, number)
    timer.add_many(array.array("q", range(5_000)), lambda indices: print("never", flush=True))  # due all along the end
for each in running:
    assert each.wait(20)

def interrupt(*_):
    interrupted.set()
    raise KeyboardInterrupt

def at_exit():
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)

def tell(what, enumerate=threading.enumerate):
    left = [thread.name for thread in enumerate() if thread.name.startswith("executor-")]
    print(what.exc_type.__name__, [len(timer) for timer in timers], left, flush=True)

atexit.register(at_exit)  # runs before tickwheel's own
sys.unraisablehook = tell
""",
    )
    assert out == "last line of 0\nlast line of 1\nlast line of 2\nKeyboardInterrupt [0, 0, 0] []\n", out


def test_an_interrupt_of_a_callback_that_hangs_leaves_the_other_timers_joined__rule7_T11():
    out = run_script(
        f"""
import atexit
{LINGER}
hanging, running, interrupted = threading.Event(), threading.Event(), threading.Event()
hangs, works = SystemTimer("hangs"), SystemTimer("works")
hangs.after(0, lambda: (hanging.set(), threading.Event().wait()))
works.after(0, lambda: (running.set(), interrupted.wait(20), time.sleep(0.2), print("its last line", flush=True)))
works.add_many(array.array("q", range(10_000)), lambda indices: print("never", flush=True))
assert hanging.wait(20) and running.wait(20)

def interrupt(*_):
    interrupted.set()
    raise KeyboardInterrupt

def at_exit():
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)

def tell(what, enumerate=threading.enumerate):
    left = [thread.name for thread in enumerate() if thread.name.startswith("executor-")]
    print(what.exc_type.__name__, len(works), left, flush=True)

atexit.register(at_exit)
sys.unraisablehook = tell
""",
    )
    assert out == "its last line\nKeyboardInterrupt 0 ['executor-hangs']\n", out


def test_a_log_line_names_the_callback_that_the_exit_waits_for__rule7_T11():
    out = run_script(
        """
import logging

began, told = threading.Event(), threading.Event()

class Handler(logging.Handler):
    def emit(self, record):
        print(record.getMessage())
        told.set()

logging.getLogger("tickwheel").addHandler(Handler())

def save_all():
    began.set()
    assert told.wait(20)

timer = SystemTimer("x")
timer.after(0, save_all)
assert began.wait(15)
"""
    )
    assert out == "the exit of the program waits for timer 'x': save_all has run for more than 5 s\n"
