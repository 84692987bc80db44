"""Border rule 8: a timer that its callers drive (`ManualTimer`, `reaper=False`) is garbage like any other."""

import pytest

from borders.harness import run_script

MAKES = [
    "ManualTimer()",
    'SystemTimer("x", reaper=False)',
    'SystemTimer("x", reaper=False, executor=ThreadPoolExecutor(1))',
]

NODE = """
class Node:
    def __call__(self, *_):
        ran.append(self)

    def failed(self, *_):
        pass

class Task(TimerTask):
    def run(self):
        ran.append(self)

ran = []

"""

CYCLES = {
    "one_shot": "timer.after(60_000, node)",
    "one_shot_args": "timer.after(60_000, print, node)",
    "at": "timer.at(timer.now_ms() + 60_000, node)",
    "far": "timer.after(10_000_000_000, node)",
    "due": "timer.after(0, node)",
    "task": "timer.add(TimerTask(60_000, node))",
    "task_that_is_held_by_its_callback": "node.task = TimerTask(60_000, node); timer.add(node.task)",
    "moved": "node.task = TimerTask(60_000, node); timer.add(node.task); timer.add(node.task)",
    "subclass": "task = Task(60_000); task.node = node; timer.add(task)",
    "batch": "timer.add_many(ms(5, 60_000), node)",
    "batch_that_is_held": "node.batch = timer.add_many(ms(2_000, 60_000), node); node.batch.cancel(3)",
    "two_thousand": "[timer.after(i, node) for i in range(2_000)]",
    "all_kinds": "timer.after(1, node); timer.add_many(ms(3, 9), node); timer.add(TimerTask(5, node))",
}


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("cycle", CYCLES)
def test_a_timer_that_only_its_own_pending_callback_reaches_is_freed__rule8_T11(make, cycle):
    run_script(
        NODE
        + f"""
def plant():
    timer, node = {make}, Node()
    node.timer = timer
    {CYCLES[cycle]}
    return weakref.ref(timer), weakref.ref(node)

before = native_threads()
gone = plant()
gc.collect()
assert [one() for one in gone] == [None, None]
wait_until(lambda: native_threads() == before and not _native._running_timers, limit=5, what="its threads to end")
assert ran == []
""",
        stderr="",
    )


@pytest.mark.parametrize("make", MAKES[:2])
def test_an_on_error_that_reaches_its_timer_goes_while_tasks_are_pending__rule8(make):
    settings = make[:-1] + (", " if "x" in make else "") + "on_error=self.failed)"
    run_script(
        NODE
        + f"""
class Owner(Node):
    def __init__(self):
        self.timer = {settings}
        self.timer.after(60_000, nop)

gone = weakref.ref(Owner())
gc.collect()
assert gone() is None
"""
    )


@pytest.mark.parametrize("make", MAKES[:2])
@pytest.mark.parametrize("cycle", CYCLES)
def test_a_timer_that_is_held_keeps_what_is_pending_whatever_is_collected__rule8(make, cycle):
    """What is shown at the first look of a collection is shown at the second, or all this would be garbage."""
    run_script(
        NODE
        + f"""
def plant():
    timer, node = {make}, Node()
    node.timer = timer
    {CYCLES[cycle]}
    return timer, weakref.ref(node)

timer, node = plant()
pending = len(timer)
for _ in range(5):
    gc.collect(0), gc.collect(1), gc.collect(2)
assert node() is not None and len(timer) == pending > 0
timer.shutdown()
"""
    )


@pytest.mark.parametrize("make", MAKES[:2])
def test_what_a_timer_shows_is_each_reference_once__rule8(make):
    run_script(
        f"""
def counts(timer):
    return collections.Counter(map(id, gc.get_referents(timer)))

on_error = lambda *_: None
timer = {make[:-1]}{", " if "x" in make else ""}on_error=on_error)
task, once = TimerTask(60_000, nop), timer.after(60_000, nop)
timer.add(task)
batch = timer.add_many(ms(1_500, 60_000), nop)
found = counts(timer)
assert (found[id(task)], found[id(once)], found[id(batch)], found[id(on_error)]) == (1, 1, 1_500, 1), found
assert batch.cancel(7) and once.cancel()
found = counts(timer)
assert (found[id(task)], found[id(once)], found[id(batch)], found[id(on_error)]) == (1, 0, 1_499, 1), found
timer.shutdown()
"""
    )


def test_a_timer_with_a_reaper_shows_neither_tasks_nor_on_error_while_something_is_owed__rule8():
    run_script(
        """
on_error = lambda *_: None
running, gate = threading.Event(), threading.Event()
timer = SystemTimer("x", on_error=on_error)
shown = lambda: [one for one in gc.get_referents(timer) if one is on_error or isinstance(one, TimerTask)]
assert shown() == [on_error]
task = timer.after(60_000, nop)
assert shown() == [] and task.cancel() and shown() == [on_error]
timer.after(0, lambda: (running.set(), gate.wait(20)))
assert running.wait(20) and len(timer) == 0 and shown() == []  # it runs
gate.set()
wait_until(lambda: shown() == [on_error])
timer.shutdown()
"""
    )


def test_what_was_released_without_a_reaper_still_runs_although_only_it_reaches_the_timer__rule8_T11():
    """The worker calls it whatever becomes of the timer: while something is released or running, nothing is shown."""
    run_script(
        NODE
        + """
running, gate = threading.Event(), threading.Event()

def first():  # while it runs, nothing but what was released refers to the owner
    running.set()
    gate.wait(20)

class Owner:
    def __init__(self):
        self.state = "whole"
        self.timer = SystemTimer("x", reaper=False, on_error=lambda task, error: heard.append(self.state))
        self.timer.after(0, first)
        self.timer.after(0, self.second)
        self.timer.after(60_000, self.second)
        self.timer.advance_clock(1000)

    def second(self):
        ran.append(self.state)
        raise ValueError

heard = []
gone = weakref.ref(Owner())
assert running.wait(20)
for _ in range(3):
    gc.collect()
assert gone() is not None
gate.set()
wait_until(lambda: heard)
assert ran == heard == ["whole"]
wait_until(lambda: (gc.collect(), gone())[1] is None, limit=5, what="the owner to go")
wait_until(lambda: not _native._running_timers, limit=5, what="its threads to end")
"""
    )


@pytest.mark.parametrize("make", ["ManualTimer()", 'SystemTimer("x", reaper=False)'])
def test_the_collector_runs_while_threads_use_the_timer_without_the_gil__rule8(make):
    """They hold the timer's lock at any time. A timer that showed its tasks at one look and not at the other lost them:
    the weak references of living callbacks were dead."""
    run_script(
        f"""
sys.setswitchinterval(1e-5)
timer = {make}
halt = threading.Event()

class Callback:
    def __call__(self):
        pass

def plant(alive):
    callback = Callback()
    callback.timer = timer
    timer.after(3_600_000, callback)
    timer.add(TimerTask(3_600_000, callback))
    alive.append(weakref.ref(callback))

def drive():
    while not halt.is_set():
        timer.pending(limit=1)
        timer.after(0, nop)
        timer.advance(1) if isinstance(timer, ManualTimer) else timer.advance_clock(1)

def churn():
    while not halt.is_set():
        timer.add_many(ms(1_500, 600_000), nop).cancel_all()

alive = []
for _ in range(200):
    plant(alive)
gc.collect()
gc.freeze()
gc.unfreeze()
threads = [threading.Thread(target=drive), threading.Thread(target=churn), threading.Thread(target=churn)]
for thread in threads:
    thread.start()
end = time.monotonic() + 3
while time.monotonic() < end:
    gc.collect()
    assert all(one() for one in alive), "a callback that is pending was taken for garbage"
halt.set()
for thread in threads:
    thread.join()
timer.shutdown(0)
""",
        timeout=60,
    )


def test_a_forked_child_that_collects_its_parents_timers_touches_no_lock__rule8_rule7():
    run_script(
        """
class Node:
    def __call__(self, *_):
        pass

def plant(timer):
    node = Node()
    node.timer = timer
    timer.after(60_000, node)
    return weakref.ref(node)

gone = [plant(ManualTimer()), plant(SystemTimer("x", reaper=False)), plant(SystemTimer("x"))]
pid = os.fork()
if pid == 0:
    gc.collect(), gc.collect()
    os._exit(0)
assert (rc := reap(pid)) == 0, rc
gc.collect()
assert [one() is None for one in gone] == [True, True, False]
"""
    )


def test_nothing_is_shown_while_a_thread_uses_the_timer_without_the_gil__rule8():
    """It may take the lock at any moment, between the two looks of a collection too."""
    run_script(
        """
on_error = lambda *_: None
timer = SystemTimer("x", reaper=False, on_error=on_error)
task = timer.after(3_600_000, nop)
shown = lambda: {id(one) for one in gc.get_referents(timer)} & {id(task), id(on_error)}
assert shown() == {id(task), id(on_error)}
driver = threading.Thread(target=timer.advance_clock, args=(3_600_000,))
driver.start()
wait_until(lambda: shown() == set(), limit=5, what="the driver to be outside")
timer.after(0, nop)
driver.join()
wait_until(lambda: shown() == {id(task), id(on_error)}, limit=5, what="all to be shown again")
timer.shutdown()
"""
    )
