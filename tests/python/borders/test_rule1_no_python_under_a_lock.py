"""Border rule 1: Python never runs under a native lock, so whatever a destructor or a dunder does cannot deadlock."""

import pytest

from borders.harness import run_script

# A destructor that touches the timer in every way. What it raises lands on stderr, which must stay empty.
TRAP = '''
class Trap:
    """As an argument, a callback or an attribute: dropped, it uses the timer that drops it."""

    drops = []  # appended to by any thread

    def __init__(self, timer, task=None):
        self.timer, self.task = timer, task

    def __call__(self, *_):
        pass

    def __del__(self):
        Trap.drops.append(1)
        timer = self.timer
        try:
            len(timer), repr(timer), timer.now_ms(), timer.stats()
            timer.snapshot(), timer.pending(limit=3)
            timer.after(60_000, nop).cancel()
            timer.at(60_000, nop).cancel()
            task = TimerTask(60_000, nop)
            timer.add(task)
            timer.add(task)
            assert timer.cancel_many([task]) == 1
            batch = timer.add_many(ms(3, 60_000), nop)
            assert (batch.cancel(0), batch.cancel_many([1]), batch.cancel_all()) == (True, 1, 1)
        except (TimerClosed, TimerFull):
            pass
        if self.task is not None:
            self.task.cancel(), repr(self.task), self.task.name, self.task.delay_ms
'''

DROPS = {
    "cancel": """
        for _ in range(50):
            assert timer.after(60_000, nop, Trap(timer)).cancel()
        assert len(Trap.drops) == 50
    """,
    "cancel_of_a_callback": """
        for _ in range(50):
            assert timer.after(60_000, Trap(timer)).cancel()
        assert len(Trap.drops) == 50
    """,
    "cancel_many": """
        assert timer.cancel_many(timer.after(60_000, nop, Trap(timer)) for _ in range(2_500)) == 2_500
        assert len(Trap.drops) == 2_500
    """,
    "cancel_many_of_reusable_tasks": """
        def tasks():
            for _ in range(2_500):
                task = TimerTask(60_000, Trap(timer), Trap(timer))
                timer.add(task)
                yield task
        assert timer.cancel_many(tasks()) == 2_500
        del tasks
        gc.collect()
        assert len(Trap.drops) == 5_000
    """,
    "batch_cancel": """
        batch = timer.add_many(ms(1, 60_000), Trap(timer))
        assert batch.cancel(0) and len(Trap.drops) == 1
        batch = timer.add_many(ms(2_500, 60_000), Trap(timer))
        assert batch.cancel_many(range(2_500)) == 2_500 and len(Trap.drops) == 2
        batch = timer.add_many(ms(2_500, 60_000), Trap(timer))
        assert batch.cancel_all() == 2_500 and len(Trap.drops) == 3
    """,
    "init_again": """
        task = TimerTask(60_000, nop)
        for _ in range(50):
            task.__init__(60_000, nop, Trap(timer, task))
        task.__init__(60_000, nop)
        assert len(Trap.drops) == 50
    """,
    "an_add_that_is_refused": """
        full = SystemTimer("full", max_pending=1)
        full.after(60_000, nop)
        for refuse in (full.after, full.at):
            try:
                refuse(70_000_000, nop, Trap(full))
                raise AssertionError
            except TimerFull:
                pass
        try:
            full.add_many(ms(2, 60_000), Trap(full))
            raise AssertionError
        except TimerFull:
            pass
        assert len(Trap.drops) == 3
        full.shutdown()
        try:
            full.after(1, nop, Trap(full))
            raise AssertionError
        except TimerClosed:
            pass
        assert len(Trap.drops) == 4
    """,
    "clear_by_the_collector": """
        for _ in range(50):
            task = TimerTask(60_000, nop)
            task.__init__(60_000, nop, Trap(timer), task)
        del task
        gc.collect()
        assert len(Trap.drops) == 50
    """,
}

ENDS = {
    "a_one_shot": "for _ in range(500): timer.after(0, nop, Trap(timer))",
    "a_callback": "for _ in range(500): timer.after(0, Trap(timer))",
    "a_reusable_task": "for _ in range(500): timer.add(TimerTask(0, Trap(timer)))",
    "a_failing_callback": "for _ in range(500): timer.after(0, lambda trap: 1 / 0, Trap(timer))",
    "a_batch": "for _ in range(500): timer.add_many(ms(2, 0), Trap(timer))",
    "a_subclass": """
class Task(TimerTask):
    def run(self):
        self.trap = Trap(timer, self)
for _ in range(500): timer.add(Task(0))
""",
}


@pytest.mark.parametrize("how", DROPS)
def test_a_destructor_that_uses_the_timer_when_dropped_by_a_call_does_not_deadlock__rule1(how):
    for make in ('SystemTimer("x", start_ms=0)', "ManualTimer()"):
        body = f"timer = {make}\nother = SystemTimer('other')\n" + "\n".join(
            line[8:] for line in DROPS[how].splitlines()
        )
        run_script(TRAP + body + "\nassert not timer.shutdown() and not other.shutdown()\n")


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("executor", ["None", "ThreadPoolExecutor(2)", "ManualTimer"])
def test_a_destructor_that_uses_the_timer_when_its_task_has_run_does_not_deadlock__rule1(executor, how):
    errors = "on_error=lambda task, error: None"
    if executor == "ManualTimer":
        make, finish = f"ManualTimer({errors})", "timer.advance(1)"
    else:
        make, finish = f'SystemTimer("x", start_ms=0, executor={executor}, {errors})', ""
    code = f"""
timer = {make}
{ENDS[how]}
{finish}
wait_until(lambda: (gc.collect(), len(Trap.drops))[1] == 500, what="all to be dropped")
wait_until(lambda: len(timer) == 0, what="the last destructor to be done")
timer.shutdown()
"""
    run_script(TRAP + code, timeout=60)


@pytest.mark.parametrize("make", ["ManualTimer()", 'SystemTimer("x", reaper=False)'])
def test_a_destructor_that_uses_tasks_of_the_timer_that_dies_does_not_deadlock__rule1(make):
    code = f"""
other = SystemTimer("other", start_ms=0)
timer = {make}
tasks = [TimerTask(60_000, nop, name=str(i)) for i in range(2_000)]
batch = timer.add_many(ms(2_000, 60_000), Trap(other))

class Cancel:
    def __del__(self):
        Trap.drops.append(1)
        i = len(Trap.drops)
        for task in tasks[i % 100 :: 100]:
            task.cancel()
        batch.cancel(i % 2_000), repr(batch), len(batch)
        if not repr(tasks[i % 100]).endswith("pending>"):
            other.add(tasks[i % 100])

for task in tasks:
    timer.add(task)
    timer.after(60_000, nop, Cancel(), Trap(other))
del timer, task
gc.collect()
assert len(Trap.drops) == 4_000 + 1, len(Trap.drops)
other.shutdown()
"""
    run_script(TRAP + code)


def test_a_destructor_may_use_the_timer_while_the_exit_hook_drops_what_is_pending__rule1_T11():
    out = run_script(
        TRAP
        + """
timer = SystemTimer("x", start_ms=0)
for _ in range(2_500):
    timer.after(60_000, nop, Trap(timer))
timer.add_many(ms(2_500, 60_000), Trap(timer))
import atexit
def count(trap=Trap):
    print(len(trap.drops), flush=True)
atexit._run_exitfuncs()
count()
"""
    )
    assert out == "2501\n"


def test_a_destructor_that_uses_the_timer_when_its_executor_refuses_the_task_does_not_deadlock__rule1_T10():
    run_script(
        TRAP
        + """
pool = ThreadPoolExecutor(1)
pool.shutdown()
loop = asyncio.new_event_loop()
loop.close()
for executor in (pool, loop):
    errors = []
    before = len(Trap.drops)
    timer = SystemTimer("x", start_ms=0, executor=executor, on_error=lambda task, error: errors.append(type(error)))
    for _ in range(300):
        timer.after(0, nop, Trap(timer))
    wait_until(lambda: len(Trap.drops) == before + 300, what="all to be dropped")
    timer.shutdown()
    assert errors == [TimerRejected] * 300
"""
    )


def test_hostile_comparisons_hashes_and_texts_of_what_a_task_holds_do_not_deadlock__rule1():
    run_script(
        """
class Hostile:
    def use(self, *_):
        len(timer), timer.stats(), timer.after(60_000, nop).cancel(), timer.cancel_many([]), task.cancel()
        return 7

    def __call__(self, *_):
        with contextlib.suppress(TimerClosed):  # it is due in 7 ms: on a busy machine the shutdown is under way by then
            self.use()

    def __eq__(self, other):
        self.use()
        return True

    def __hash__(self):
        return self.use()

    def __repr__(self):
        return str(self.use())

    def __bool__(self):
        self.use()
        return False

    def __index__(self):
        return self.use()

    def __getattr__(self, name):
        if name == "__qualname__":
            return str(self.use())
        raise AttributeError(name)

    def __iter__(self):
        for _ in range(3):
            self.use()
            yield timer.after(60_000, self)

for timer in (SystemTimer("x", start_ms=0), ManualTimer()):
    task = TimerTask(60_000, nop)
    hostile = Hostile()
    timer.add(task)
    pending = TimerTask(hostile, hostile, hostile, hostile)
    timer.add(pending)
    assert repr(pending) == "<TimerTask 7 pending>", repr(pending)
    assert timer.cancel_many(hostile) == 3
    timer.after(hostile, hostile, hostile)
    timer.at(hostile, hostile, hostile)
    names = str(timer.snapshot()), str(timer.pending()), str(timer.unfinished)
    batch = timer.add_many(ms(20, 60_000), hostile)
    assert batch.cancel(hostile) and batch.cancel_many([hostile, 8]) == 1
    assert str(timer.snapshot()["levels"]) and timer.pending(before_ms=hostile, limit=hostile) is not None
    try:
        timer.add_many(hostile, hostile)
        raise AssertionError
    except TypeError:
        pass
    assert pending in {pending: 1} and not timer.shutdown(hostile) is None
"""
    )


def test_tasks_may_be_listed_while_destructors_of_others_use_the_timer__rule1():
    """Lists and dictionaries are made after the lock: making one can start the collector, and so any destructor."""
    run_script(
        TRAP
        + """
timer = SystemTimer("x", start_ms=0)
for _ in range(500):
    timer.after(60_000, nop)
timer.add_many(ms(3_000, 60_000), nop)  # more tuples than the interpreter keeps in stock
gc.set_threshold(1, 10_000, 10_000)

def litter():
    cycle = [Trap(timer)]
    cycle.append(cycle)

add = lambda: timer.add_many(ms(5, 60_000), nop)
for call in (timer.snapshot, timer.pending, timer.stats, timer.__repr__, add) * 4:
    gc.disable()
    litter()
    gc.enable()  # and so it starts at the first list or tuple that the call makes
    call()
gc.set_threshold(700, 10, 10)
gc.collect()
assert len(Trap.drops) == 20
timer.shutdown()
"""
    )
