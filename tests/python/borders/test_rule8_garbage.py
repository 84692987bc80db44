"""Border rule 8: what is pending is alive, held or not; what has ended is freed, whatever cycle it is part of."""

import pytest

from borders.harness import run_script


def test_the_collector_never_takes_a_pending_task__rule8():
    """All that holds them is the timer; some hang in cycles of their own."""
    run_script(
        """
class Node:
    pass

for timer in (SystemTimer("x"), ManualTimer()):
    ran = []

    def plant(i):
        node = Node()
        node.task = TimerTask(150, lambda: ran.append(i) or node)
        timer.add(node.task)
        other = Node()
        other.task = timer.after(150, lambda: ran.append(i) or other)
        third = Node()
        third.batch = timer.add_many(ms(1, 150), lambda view: ran.append(i) or third)

    for i in range(100):
        plant(i)
        gc.collect()
    if isinstance(timer, ManualTimer):
        timer.advance(150)
    wait_until(lambda: (gc.collect(), len(ran))[1] >= 300, what="all to run")
    assert sorted(ran) == sorted(list(range(100)) * 3) and timer.shutdown() == []
    ran.clear()
"""
    )


CYCLES = {
    "task_callback_task": "task = TimerTask({delay}, canary); canary.task = task; timer.add(task)",
    "task_args_task": "task = TimerTask({delay}, Canary.__call__, canary); canary.task = task; timer.add(task)",
    "one_shot": "canary.task = timer.after({delay}, canary)",
    "task_timer": "canary.timer = timer; timer.after({delay}, canary)",
    "reusable_task_timer": "canary.timer = timer; canary.task = TimerTask({delay}, canary); timer.add(canary.task)",
    "batch_callback_batch": "canary.batch = timer.add_many(ms(3, {delay}), canary)",
    "subclass": "canary.task = Task({delay}); canary.task.canary = canary; timer.add(canary.task)",
}

CANARY = """
class Canary:
    def __call__(self, *_):
        ran.append(self.number)

class Task(TimerTask):
    def run(self):
        ran.append(self.canary.number)

ran = []
alive = weakref.WeakSet()

def plant(make, number):
    timer = make()
    canary = Canary()
    canary.number = number
    alive.add(canary)
    {plant}
    return timer
"""


@pytest.mark.parametrize("cycle", CYCLES)
def test_a_cycle_through_a_task_is_collected_once_it_has_run_and_not_before__rule8(cycle):
    code = (
        CANARY.format(plant=CYCLES[cycle].format(delay=200))
        + """
timers = [plant(lambda: SystemTimer("x"), i) for i in range(5)]
timers = None if "timer" in plant.__code__.co_names else timers
gc.collect()
assert len(alive) == 5 and ran == [], (len(alive), ran)
wait_until(lambda: len(set(ran)) == 5)
wait_until(lambda: (gc.collect(), len(alive))[1] == 0, limit=3, what="the cycle to go")
manual = plant(ManualTimer, 9)
gc.collect()
assert len(alive) == 1 and manual.advance(200) >= 1 and set(ran) == {0, 1, 2, 3, 4, 9}
del manual
gc.collect()
assert len(alive) == 0
"""
    )
    run_script(code)


@pytest.mark.parametrize("cycle", CYCLES)
@pytest.mark.parametrize("make", ['SystemTimer("x")', "ManualTimer()", 'SystemTimer("x", reaper=False)'])
def test_a_cycle_through_a_task_is_collected_once_it_was_cancelled__rule8_T9(make, cycle):
    code = (
        CANARY.format(plant=CYCLES[cycle].format(delay=3_600_000))
        + f"""
timer = plant(lambda: {make}, 1)
gc.collect()
assert len(alive) == 1
for _, task in timer.pending():
    assert task[0].cancel(task[1]) if isinstance(task, tuple) else task.cancel()
del task
gc.collect()
assert len(alive) == 0 and ran == []
"""
    )
    run_script(code)


def test_what_was_never_added_is_collected_and_so_is_what_was_refused__rule8():
    run_script(
        """
class Node:
    pass

alive = weakref.WeakSet()
full = SystemTimer("full", max_pending=1)
full.after(60_000, nop)
for i in range(100):
    node = Node()
    alive.add(node)
    node.task = TimerTask(1, nop, node)
    if i % 2:
        try:
            full.add(node.task)
        except TimerFull:
            pass
        node.again = TimerTask(1, lambda node=node: node)
        node.again.__init__(5, node.task.run, node)
del node
gc.collect()
assert len(alive) == 0
full.shutdown()
"""
    )


def test_a_timer_that_only_its_own_pending_callback_reaches_still_fires_and_then_ends__rule8():
    out = run_script(
        """
before = native_threads()

class Owner:
    def __init__(self):
        self.timer = SystemTimer("x")
        self.left = 3
        self.timer.after(50, self.fire)

    def fire(self):
        print("fired", threading.current_thread().name, flush=True)
        self.left -= 1
        if self.left:
            self.timer.after(50, self.fire)

gone = weakref.ref(Owner())
gc.collect()
assert gone() is not None and native_threads() == before + 2
wait_until(lambda: (gc.collect(), gone())[1] is None)
wait_until(lambda: native_threads() == before, what="its threads to end")
assert not _native._running_timers
"""
    )
    assert out == "fired executor-x\n" * 3


@pytest.mark.parametrize("executor", ["None", "pool", "loop"])
def test_a_timer_that_nobody_holds_lives_until_it_is_empty__rule8_T11(executor):
    run_script(
        f"""
with loop_in_a_thread() as loop, ThreadPoolExecutor(1) as pool:
    pool.submit(nop).result()
    before = native_threads()
    ran = []
    SystemTimer("empty", executor={executor})
    wait_until(lambda: native_threads() == before, what="the threads of an empty timer to end")
    timer = SystemTimer("x", executor={executor})
    for i in range(5):
        timer.after(50 * i, ran.append, i)
    far = timer.after(3_600_000, nop)
    batch = timer.add_many(ms(3, 3_600_000), nop)
    del timer
    gc.collect()
    wait_until(lambda: len(ran) == 5)
    time.sleep(0.05)
    assert native_threads() == before + 2  # two are still to come
    assert far.cancel()
    assert batch.cancel(0) and native_threads() == before + 2
    assert batch.cancel_all() == 2
    wait_until(lambda: native_threads() == before and not _native._running_timers, what="its threads to end")
    timer = SystemTimer("y", executor={executor})
    tasks = [timer.after(3_600_000, nop) for _ in range(5)]
    del timer
    assert SystemTimer("z").cancel_many([]) == 0 and all(task.cancel() for task in tasks)
    wait_until(lambda: native_threads() == before and not _native._running_timers, what="its threads to end")
"""
    )


HELD = {
    "on_error": 'self.timer = SystemTimer("x", on_error=self.failed)',
    "executor": 'self.timer = SystemTimer("x", executor=Pool(self))',
    "on_error_of_a_manual_timer": "self.timer = ManualTimer(on_error=self.failed)",
    "unfinished": 'self.timer = SystemTimer("x"); self.timer.after(3_600_000, self.failed)',
    "unfinished_of_a_manual_timer": "self.timer = ManualTimer(); self.timer.after(3_600_000, self.failed)",
}


@pytest.mark.parametrize("held", HELD)
def test_a_timer_that_was_shut_down_is_collected_with_its_owner__rule8(held):
    """A method as `on_error`, or one that is left in `unfinished`: the plainest cycle there is."""
    run_script(
        f"""
class Pool(ThreadPoolExecutor):
    def __init__(self, owner):
        super().__init__(1)
        self.owner = owner

class Owner:
    def __init__(self):
        {HELD[held]}

    def failed(self, *_):
        pass

def use():
    owner = Owner()
    owner.timer.shutdown()
    return weakref.ref(owner)

gone = use()
wait_until(lambda: (gc.collect(), gone())[1] is None, limit=2, what="the owner to go")
"""
    )


@pytest.mark.parametrize("make", ['SystemTimer("x")', "ManualTimer()"])
def test_a_batch_that_a_shutdown_left_is_collected_with_its_timer__rule8_T18(make):
    run_script(
        f"""
def use():
    timer = {make}
    batch = timer.add_many(ms(3, 3_600_000), nop)
    assert timer.shutdown() == [(batch, 0), (batch, 1), (batch, 2)]
    return weakref.ref(batch), weakref.ref(timer)

batch, timer = use()
wait_until(lambda: (gc.collect(), timer())[1] is None, limit=2, what="the timer to go")
wait_until(lambda: (gc.collect(), batch())[1] is None, limit=2, what="the batch to go")
"""
    )


@pytest.mark.parametrize("held", ["on_error", "executor"])
def test_a_timer_that_nobody_holds_but_its_own_on_error_or_executor_ends_when_empty__rule8_T11(held):
    run_script(
        f"""
class Pool(ThreadPoolExecutor):
    def __init__(self, owner):
        super().__init__(1)
        self.owner = owner

class Owner:
    def __init__(self):
        {HELD[held]}

    def failed(self, *_):
        pass

before = native_threads()
gone = weakref.ref(Owner())
wait_until(lambda: (gc.collect(), gone())[1] is None, limit=2, what="the owner to go")
wait_until(lambda: native_threads() == before, limit=2, what="its threads to end")
"""
    )


def test_two_hundred_timers_leave_no_thread_no_object_and_no_memory__rule8_T11():
    run_script(
        """
def rss_kb():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

marker = object()

def use(turn):
    timer = SystemTimer("x", executor=pool if turn % 5 == 0 else None, reaper=turn % 7 != 0)
    for i in range(50):
        timer.after(0, nop, marker)
        timer.add(TimerTask(60_000, nop, marker))
        timer.after(60_000, nop, marker).cancel()
    timer.add_many(ms(2_000, 60_000), lambda view: marker)
    timer.add_many(ms(2_000, 60_000), lambda view: marker).cancel_all()
    if turn % 2:
        timer.shutdown()
    else:
        for _, task in timer.pending():
            (task[0].cancel_all if isinstance(task, tuple) else task.cancel)()

with ThreadPoolExecutor(1) as pool:
    pool.submit(nop).result()
    threads = native_threads()
    counts = []
    for turn in range(200):
        use(turn)
        if turn in (79, 199):
            wait_until(lambda: native_threads() == threads, what="all threads to end")
            gc.collect()
            wait_until(lambda: not _native._running_timers)
            counts.append((sys.getrefcount(marker), sys.getrefcount(nop), len(gc.get_objects()), rss_kb()))

(markers, nops, objects, kb), (markers_2, nops_2, objects_2, kb_2) = counts
print(counts)
assert markers == markers_2 and nops == nops_2 and abs(objects - objects_2) < 20 and kb_2 < kb + 6_000, counts
""",
        timeout=60,
    )


def test_a_one_shot_task_lets_go_of_its_callback_at_its_end_and_a_reusable_one_keeps_it__rule8_T19():
    run_script(
        """
class Argument:
    pass

with SystemTimer("x") as timer:
    argument, other = Argument(), Argument()
    watch, other_watch = weakref.ref(argument), weakref.ref(other)
    ran = timer.after(0, nop, argument)
    cancelled = timer.after(60_000, nop, other)
    del argument, other
    wait_until(lambda: watch() is None)
    assert cancelled.cancel() and other_watch() is None
    for task in (ran, cancelled):
        try:
            timer.add(task)
            raise AssertionError
        except ValueError:
            pass
    argument = Argument()
    watch = weakref.ref(argument)
    task = TimerTask(0, nop, argument)
    del argument
    for _ in range(3):
        timer.add(task)
        wait_until(lambda: not timer.stats()["running"] and not len(timer))
    assert watch() is not None
    del task
    wait_until(lambda: watch() is None)
"""
    )


def test_what_was_released_still_runs_when_nobody_holds_a_timer_without_a_reaper__rule8_T11():
    run_script(
        """
    before = native_threads()
    running, gate, ran = threading.Event(), threading.Event(), []
    timer = SystemTimer("x", reaper=False)
    timer.after(0, lambda: (running.set(), gate.wait(10)))
    timer.after(0, ran.append, "released")
    far = timer.after(60_000, ran.append, "far")
    timer.advance_clock(1000)
    assert running.wait(10) and timer.stats()["executor_depth"] == 1
    del timer
    assert not far.cancel()
    gate.set()
    wait_until(lambda: native_threads() == before, what="its threads to end")
    assert ran == ["released"]
    """
    )


@pytest.mark.parametrize("make", ['SystemTimer("x")', 'SystemTimer("x", reaper=False)', "ManualTimer()"])
def test_the_collector_is_spared_a_task_only_while_a_reaper_drives_it__rule8(make):
    """A timer that its callers drive shows its pending tasks, and the collector has to follow them."""
    run_script(
        f"""
class Sub(TimerTask):
    def run(self):
        pass

class Slim(TimerTask):
    __slots__ = ("more",)

timer, other = {make}, SystemTimer("other")
is_shown = "reaper" in {make!r} or "Manual" in {make!r}
task, sub, slim = TimerTask(60_000, nop), Sub(60_000), Slim(60_000, nop)
assert all(map(gc.is_tracked, (task, sub, slim)))
for one in (task, sub, slim):
    timer.add(one)
once, at = timer.after(60_000, nop), timer.at(timer.now_ms() + 60_000, nop)
assert [gc.is_tracked(one) for one in (task, once, at)] == [is_shown] * 3
assert gc.is_tracked(sub) and gc.is_tracked(slim)  # there may be more to them than the collector is spared
timer.add(task)  # a move
assert gc.is_tracked(task) == is_shown
assert task.cancel() and gc.is_tracked(task)
other.add(task)
assert not gc.is_tracked(task) and task.cancel() and gc.is_tracked(task)
timer.add(task)
assert timer.cancel_many([task, once]) == 2 and gc.is_tracked(task)
timer.add(task)
left = timer.shutdown()
assert {{id(one) for one in left}} == {{id(task), id(sub), id(slim), id(at)}}
assert all(map(gc.is_tracked, left))
other.shutdown()
"""
    )


# A batch lets go of its callback as the last of its timers is taken out.
@pytest.mark.parametrize("cycle", [cycle for cycle in CYCLES if "batch" not in cycle])
@pytest.mark.parametrize("make", ['SystemTimer("x")', "ManualTimer()"])
def test_a_cycle_through_what_shutdown_found_pending_is_collected__rule8_T11(make, cycle):
    code = (
        CANARY.format(plant=CYCLES[cycle].format(delay=3_600_000))
        + f"""
timer = plant(lambda: {make}, 1)
left = timer.shutdown()
assert left and len(alive) == 1
del left, timer
gc.collect()
assert len(alive) == 0 and ran == []
"""
    )
    run_script(code)


def test_a_cycle_through_what_an_executor_refused_is_collected__rule8_T10():
    run_script(
        """
class Node:
    pass

pool = ThreadPoolExecutor(1)
pool.shutdown()
alive, told = weakref.WeakSet(), []
timer = SystemTimer("x", executor=pool, on_error=lambda task, error: told.append(gc.is_tracked(task)))
for make in (lambda callback: timer.after(0, callback), lambda callback: TimerTask(0, callback)):
    node = Node()
    alive.add(node)
    node.task = make(lambda node=node: node)
    if isinstance(node.task, TimerTask) and len(alive) == 2:
        timer.add(node.task)
del node
wait_until(lambda: len(told) == 2)
assert told == [True, True]
wait_until(lambda: (gc.collect(), len(alive))[1] == 0, what="the cycles to go")
timer.shutdown()
"""
    )
