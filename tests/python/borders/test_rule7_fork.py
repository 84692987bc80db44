"""Border rule 7, the fork: a child that touches its parent's timer gets `TimerForked`, never a hang (T12)."""

import pytest

from borders.harness import run_script

CHILD = '''
def touch(timer, task, batch, driven, manual):
    """Every touch of a parent's timer, in the child."""
    forked = {
        "add": lambda: timer.add(TimerTask(1, nop)),
        "move": lambda: timer.add(task),
        "after": lambda: timer.after(1, nop),
        "at": lambda: timer.at(1, nop),
        "add_many": lambda: timer.add_many(ms(5, 1), nop),
        "cancel": lambda: task.cancel(),
        "cancel_many": lambda: timer.cancel_many([task]),
        "batch.cancel": lambda: batch.cancel(0),
        "batch.cancel_many": lambda: batch.cancel_many([1, 2]),
        "batch.cancel_all": lambda: batch.cancel_all(),
        "len": lambda: len(timer),
        "now_ms": lambda: timer.now_ms(),
        "snapshot": lambda: timer.snapshot(),
        "stats": lambda: timer.stats(),
        "pending": lambda: timer.pending(limit=3),
        "shutdown": lambda: timer.shutdown(),
        "shutdown(0)": lambda: timer.shutdown(0),
        "exit": lambda: timer.__exit__(None, None, None),
        "advance_clock": lambda: driven.advance_clock(1),
        "advance": lambda: manual.advance(1),
        "advance_to": lambda: manual.advance_to(100),
        "run_next": lambda: manual.run_next(),
    }
    for name, call in forked.items():
        try:
            call()
        except TimerForked as error:
            assert isinstance(error, (TickwheelError, RuntimeError)) and "parent" in str(error), error
        else:
            raise AssertionError(f"{name} did not say TimerForked")
    assert "parent" in repr(timer) and bool(timer) and timer.name and timer.unfinished == []
    assert len(batch) > 0 and repr(batch) and repr(task) and task.name is None and task.delay_ms > 0


def own_timer(task):
    """The child's own timer works, and takes a task that is pending on the parent's."""
    ran = threading.Event()
    with SystemTimer("child") as timer:
        timer.after(1, ran.set)
        assert ran.wait(10), "the child's own timer did not fire"
        moved = threading.Event()
        task.__class__.run = lambda self: moved.set()
        timer.add(task)
        assert len(timer) == 1 and task.cancel() and not task.cancel() and len(timer) == 0
        task.again = True
        timer.add(task)
        task.cancel()
        quick = Quick(1)
        timer.add(quick)
        assert moved.wait(10), "a task did not run on the child's timer"


class Quick(TimerTask):
    def run(self):
        pass
'''


def test_a_child_forked_while_the_reaper_holds_the_lock_never_hangs__rule7_T12():
    """The reaper sleeps with the lock held while the process forks: in the child no thread ever unlocks it."""
    run_script(
        CHILD
        + """
driven, manual = SystemTimer("driven", reaper=False), ManualTimer()
timer, batch, _ = freeze_reaper_with_lock()
task = Quick(3_600_000)
driven.add(task)
frozen = _[0]
pid = os.fork()
if pid == 0:
    touch(timer, frozen, batch, driven, manual)
    own_timer(task)
    del timer, batch, frozen, _, driven, manual, task
    gc.collect()
    sys.exit(0)
assert (rc := reap(pid)) == 0, rc
os._exit(0)
""",
        timeout=60,
    )


LOAD = (
    CHILD
    + """
timer = SystemTimer("parent")
driven, manual = SystemTimer("driven", reaper=False), ManualTimer()
halt = threading.Event()
count = [0]

class Again(TimerTask):
    def run(self):
        count[0] += 1
        if not halt.is_set():
            timer.add(self)

for i in range(100):
    timer.add(Again(i / 50))
    manual.after(50, nop), driven.after(0, nop)

def add():
    while not halt.is_set():
        timer.after(60_000, nop).cancel()
        timer.add_many(ms(2_000, 60_000), nop).cancel_all()
        timer.pending(limit=1), timer.stats()

threads = [threading.Thread(target=add) for _ in range(2)]
for thread in threads:
    thread.start()
task = Quick(3_600_000)
timer.add(task)
waiting = timer.after(3_600_000, nop)
batch = timer.add_many(ms(100, 3_600_000), nop)

def child():
    global timer, batch, task, waiting, driven, manual
    touch(timer, waiting, batch, driven, manual)
    own_timer(task)
    gc.collect()
    del timer, batch, task, waiting, driven, manual
    gc.collect()
    sys.exit(0)
"""
)

CHECK_PARENT = """
halt.set()
for thread in threads:
    thread.join()
assert count[0] > before + 100
ran = threading.Event()
timer.after(0, ran.set)
assert ran.wait(10)
assert task.cancel() and waiting.cancel() and batch.cancel_all() == 100
timer.shutdown()
"""


def test_fifty_children_forked_under_load_work_and_end_and_the_parent_goes_on__rule7_T12():
    run_script(
        LOAD
        + """
before = count[0]
for turn in range(50):
    pid = os.fork()
    if pid == 0:
        child()
    assert (rc := reap(pid)) == 0, (turn, rc)
    time.sleep(turn / 10_000)
"""
        + CHECK_PARENT,
        timeout=70,
    )


def test_children_of_multiprocessing_forked_under_load_work_and_end__rule7_T12():
    run_script(
        LOAD
        + """
import multiprocessing
before = count[0]
context = multiprocessing.get_context("fork")
for turn in range(12):
    process = context.Process(target=child)
    process.start()
    process.join(15)
    assert process.exitcode == 0, (turn, process.exitcode)
"""
        + CHECK_PARENT,
        timeout=70,
    )


@pytest.mark.parametrize("count", [1, 3, 5, 8, 20])
def test_a_child_may_have_many_timers_of_its_own_however_many_sleep_in_its_parent__rule7_T12(count):
    """The prefork server. No lock or queue of the whole process may remember the threads that stayed behind."""
    run_script(
        f"""
timers = [SystemTimer(f"parent-{{i}}") for i in range({count})]
for timer in timers:
    timer.after(3_600_000, nop)
time.sleep(0.05)

def child():
    own = [SystemTimer(f"child-{{i}}") for i in range(20)]
    for turn in range(5):
        ran = [threading.Event() for _ in own]
        for timer, event in zip(own, ran):
            timer.after(1, event.set)
        if not all(event.wait(3) for event in ran):
            os._exit(9)  # a wake-up was lost
    sys.exit(0)

codes = []
for turn in range(6):
    pid = os.fork()
    if pid == 0:
        child()
    codes.append(reap(pid, 5))
assert codes == [0] * 6, codes
""",
        timeout=60,
    )


@pytest.mark.parametrize("executor", ["None", "ThreadPoolExecutor(1)"])
@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)", "return"])
def test_a_child_forked_by_a_callback_does_not_go_on_with_its_parents_tasks__rule7_T12(end, executor):
    """The thread that forks is the child's only one. It must not run what the parent runs, nor wait for its reaper."""
    out = run_script(
        f"""
parent = os.getpid()
codes = []
timer = SystemTimer("x", executor={executor}, on_error=nop)
loaded = threading.Event()

def fork():
    loaded.wait()
    pid = os.fork()
    if pid == 0:
        if {executor} is not None:
            os._exit(0)  # the rest is the pool's affair
        {end}
        return
    codes.append(reap(pid, 4))

def tell():
    if os.getpid() != parent:
        print("ran in the child", flush=True)

timer.after(0, fork)
for i in range(50):
    timer.after(i / 5, tell)
time.sleep(0.05)
loaded.set()
wait_until(lambda: codes)
assert codes != ["hung"], "the child hangs"
""".replace("if None is not None:\n            os._exit(0)  # the rest is the pool's affair\n        ", "")
    )
    assert out == ""


def test_a_grandchild_and_a_timer_of_a_child_are_told_apart__rule7_T12():
    run_script(
        """
grand = SystemTimer("grand")
pid = os.fork()
if pid == 0:
    parent = SystemTimer("parent")
    pid = os.fork()
    if pid == 0:
        for timer in (grand, parent):
            try:
                len(timer)
                os._exit(1)
            except TimerForked:
                pass
        with SystemTimer("child") as child:
            ran = threading.Event()
            child.after(1, ran.set)
            assert ran.wait(5)
        sys.exit(0)
    assert reap(pid) == 0 and len(parent) == 0
    parent.shutdown()
    sys.exit(0)
assert reap(pid) == 0
assert len(grand) == 0
"""
    )


def test_a_child_that_leaves_its_parents_block_by_sys_exit_gets_its_exit__rule7_T12():
    run_script(
        """
    with SystemTimer("x") as timer:
        child = os.fork()
        if child == 0:
            sys.exit(7)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    """
    )


def test_a_fork_hook_that_was_registered_before_the_import_finds_the_timer_forked__rule7_T12():
    """Python runs the hooks in the order of their registration: one of tickwheel's own would come too late for it."""
    run_script(
        """
timer = SystemTimer("parent")
task = timer.after(3_600_000, nop)
pid = os.fork()
if pid == 0:
    assert found == ["TimerForked"] * 3, found
    os._exit(0)
assert (rc := reap(pid)) == 0, rc
assert task.cancel()
timer.shutdown()
""",
        first="""
import os

found = []

def look():
    for call in (lambda: len(timer), lambda: timer.after(1, print), lambda: task.cancel()):
        try:
            call()
        except Exception as error:
            found.append(type(error).__name__)

os.register_at_fork(after_in_child=look)
""",
    )


def test_a_child_that_c_code_forked_finds_the_timer_forked__rule7_T12():
    run_script(
        """
timer = SystemTimer("parent")
task = timer.after(3_600_000, nop)
pid = ctypes.PyDLL(None).fork()  # holds the GIL, as an extension module would; no Python hook is run
if pid == 0:
    for call in (lambda: len(timer), lambda: timer.after(1, nop), task.cancel, timer.shutdown):
        try:
            call()
        except TimerForked:
            continue
        os._exit(1)
    del timer, task
    os._exit(0)
assert (rc := reap(pid)) == 0, rc
assert task.cancel()
timer.shutdown()
"""
    )
