"""T11: a shutdown in the middle of another one, by a signal handler or a destructor, does not wait for itself."""

import pytest

from purgatory.scripts import run_script

MAKES = {
    "timer": "made = timer = SystemTimer('x')",
    "driven": "made = timer = SystemTimer('x', reaper=False)",
    "purgatory": "made = DelayedOperationPurgatory('x'); timer = made.timer",
}

# Waits in a shutdown for the callback that runs; the handler ends the callback when it has called `inner`.
INTERRUPTED = """
started, go_on = threading.Event(), threading.Event()
{make}
found = []

def handler(*_):
    found.append({inner})
    go_on.set()

signal.signal(signal.SIGALRM, handler)
timer.after(0, lambda: (started.set(), go_on.wait(20)))
if "{make}".find("reaper=False") >= 0:
    timer.advance_clock(1_000)
started.wait(20)
later = timer.after(HOUR, nop)
signal.setitimer(signal.ITIMER_REAL, 0.1)
"""


@pytest.mark.parametrize("timeout_ms", ["", "0", "60_000"])
@pytest.mark.parametrize("make", MAKES)
def test_a_signal_handler_may_shut_down_what_this_thread_shuts_down__T11(make: str, timeout_ms: str) -> None:
    out = run_script(
        INTERRUPTED.format(make=MAKES[make], inner=f"made.shutdown({timeout_ms})")
        + """
made.shutdown()
print(len(found), timer.unfinished == [later], timer.shutdown() == [later], len(timer))
""",
        timeout=15,
    )
    assert out == "1 True True 0\n"


@pytest.mark.parametrize("make", ["timer", "driven"])
def test_the_inner_call_gets_what_is_pending_and_so_does_the_outer_one__T11(make: str) -> None:
    out = run_script(
        INTERRUPTED.format(make=MAKES[make], inner="timer.shutdown()")
        + """
outer = timer.shutdown()
print(found == [[later]], outer == [later], timer.unfinished == [later], later.cancel())
""",
        timeout=15,
    )
    assert out == "True True True False\n"


OWNERS = {
    "timer": "timer = SystemTimer('x')",
    "driven": "timer = SystemTimer('x', reaper=False)",
    "manual": "timer = ManualTimer()",
}


@pytest.mark.parametrize("timeout_ms", ["", "0", "60_000"])
@pytest.mark.parametrize("make", OWNERS)
def test_a_destructor_may_shut_down_the_timer_whose_shutdown_drops_its_object__T11(make: str, timeout_ms: str) -> None:
    """A batch lets go of its callback with its last timer, in the middle of the shutdown that takes it out."""
    out = run_script(
        f"""
class Owner:
    def __init__(self):
        self.batch = timer.add_many(ms(1, 3_600_000), self.run)

    def run(self, indices):
        pass

    def __del__(self):
        found.append(timer.shutdown({timeout_ms}))

found = []
{OWNERS[make]}
task = timer.after(60_000, nop)
owner = Owner()
batch = owner.batch
del owner.batch, owner
list_ = timer.shutdown()
print(len(found), list_ == [task, (batch, 0)], timer.unfinished == list_, timer.shutdown() == list_)
""",
        timeout=15,
    )
    assert out == "1 True True True\n"


def test_a_destructor_in_the_shutdown_of_a_purgatory_may_shut_it_down__T11_P8() -> None:
    out = run_script(
        """
class Owner:
    def __init__(self):
        purgatory.timer.add_many(ms(1, 3_600_000), self.run)

    def run(self, indices):
        pass

    def __del__(self):
        found.append(purgatory.shutdown())

found = []
purgatory = DelayedOperationPurgatory("x")
operation = Op(HOUR)
purgatory.try_complete_else_watch(operation, ["key"])
Owner()
print(purgatory.shutdown() == purgatory.unfinished == [operation], len(found), len(purgatory))
""",
        timeout=15,
    )
    assert out == "True 1 0\n"


def test_a_shutdown_waits_for_another_threads_for_as_long_as_it_may__T11() -> None:
    out = run_script(
        """
started, go_on, entered = threading.Event(), threading.Event(), threading.Event()
timer = SystemTimer("x")
timer.after(0, lambda: (started.set(), go_on.wait(20)))
started.wait(20)
later = timer.after(HOUR, nop)
outer = []
thread = threading.Thread(target=lambda: (entered.set(), outer.append(timer.shutdown())))
thread.start()
entered.wait(20)

def is_closed():
    try:
        timer.after(HOUR, nop).cancel()
    except TimerClosed:
        return True

wait_until(is_closed)
print(timer.shutdown(0) == [later], timer.shutdown(50) == [later], thread.is_alive())
go_on.set()
thread.join()
print(outer == [[later]], timer.unfinished == [later])
""",
        timeout=15,
    )
    assert out == "True True True\nTrue True\n"


def test_a_child_that_a_signal_handler_forks_in_a_shutdown_hears_so__T12() -> None:
    out = run_script(
        """
started, go_on = threading.Event(), threading.Event()
timer = SystemTimer("x")
pids = []

def handler(*_):
    pids.append(os.fork())
    go_on.set()

signal.signal(signal.SIGALRM, handler)
timer.after(0, lambda: (started.set(), go_on.wait(20)))
started.wait(20)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    timer.shutdown()
    print("parent", reap(pids[0]))
except TimerForked:
    os._exit(7)
""",
        timeout=30,
    )
    assert out == "parent 7\n"
