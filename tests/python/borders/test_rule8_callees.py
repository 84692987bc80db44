"""Border rule 8: what a timer may still call (`on_error`, its executor) is whole as long as the timer owes a call.

The timer is garbage for the collector: only a cycle through its own `on_error` or executor reaches it.
"""

import pytest

from borders.harness import run_script

OWNER = """
heard = []

class Owner:
    kind = "SystemTimer"

    def __init__(self, on_error, **settings):
        self.state = "whole"
        self.timer = SystemTimer("x", on_error=getattr(self, on_error)(), **settings)

    def by_lambda(self):
        return lambda task, error: heard.append((self.state, str(error)))

    def by_method(self):
        return self.failed

    def by_object(self):
        return Callable(self)

    def failed(self, task, error):
        heard.append((vars(self).get("state"), str(error)))

class Callable:
    def __init__(self, owner):
        self.owner = owner

    def __call__(self, task, error):
        vars(self)["owner"].failed(task, error)

def fail(text="failed", gate=None):
    if gate is not None:
        gate.wait(20)
    raise ValueError(text)

def collect(times=3):
    for _ in range(times):
        gc.collect()
"""

HOWS = ["by_lambda", "by_method", "by_object"]

ADDS = {
    "a one-shot": "owner.timer.after({delay}, fail)",
    "a task": "owner.timer.add(TimerTask({delay}, fail))",
    "a batch": "owner.timer.add_many(ms(3, {delay}), lambda view: fail())",
    "one that was moved": "task = TimerTask(1, fail); owner.timer.add(task); owner.timer.add(task)",
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("add", ADDS)
def test_on_error_is_whole_while_something_is_pending__rule8_T11(add, how):
    """With a lambda the collector cleared a function that was still to be called: the interpreter crashed."""
    run_script(
        OWNER
        + f"""
def plant():
    owner = Owner({how!r})
    {ADDS[add].format(delay=100)}
    return weakref.ref(owner)

gone = plant()
collect()
wait_until(lambda: heard)
assert heard[0] == ("whole", "failed"), heard
wait_until(lambda: (gc.collect(), gone())[1] is None, limit=5, what="the owner to go")
wait_until(lambda: not _native._running_timers, limit=5, what="its threads to end")
"""
    )


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("executor", ["None", "ThreadPoolExecutor(1)"])
def test_on_error_is_whole_while_the_last_callback_runs__rule8_T11(how, executor):
    run_script(
        OWNER
        + f"""
running, gate = threading.Event(), threading.Event()

def last():
    running.set()
    fail("late", gate)

def plant():
    owner = Owner({how!r}, executor={executor})
    owner.timer.after(0, last)
    return weakref.ref(owner)

gone = plant()
assert running.wait(20)
collect()
gate.set()
wait_until(lambda: heard)
assert heard == [("whole", "late")], heard
wait_until(lambda: (gc.collect(), gone())[1] is None, limit=5, what="the owner to go")
"""
    )


@pytest.mark.parametrize("how", HOWS)
def test_on_error_is_whole_while_what_was_refused_is_reported__rule8_T10(how):
    """The entry has left the timer when its refusal is reported."""
    run_script(
        OWNER
        + f"""
class Refuses(ThreadPoolExecutor):
    def submit(self, *args):
        collect()
        raise RuntimeError("no room")

def plant():
    owner = Owner({how!r}, executor=Refuses(1))
    owner.timer.after(50, nop)
    owner.timer.add_many(ms(5, 50), nop)
    return weakref.ref(owner)

gone = plant()
collect()
wait_until(lambda: len(heard) == 2)
assert [state for state, _ in heard] == ["whole"] * 2 and "no room" in heard[0][1], heard
wait_until(lambda: (gc.collect(), gone())[1] is None, limit=5, what="the owner to go")
"""
    )


def test_an_executor_is_whole_while_something_is_pending_or_running__rule8_T11():
    """A pool that holds its timer: the collector emptied it, and its task was lost."""
    run_script(
        """
class Pool(ThreadPoolExecutor):
    def __init__(self):
        super().__init__(1)
        self.state = "whole"
        self.timer = SystemTimer("x", executor=self)

    def submit(self, *args):
        states.append(vars(self).get("state"))
        return super().submit(*args)

states, ran = [], []

def plant():
    pool = Pool()
    pool.timer.after(100, ran.append, "after")
    pool.timer.add_many(ms(2, 100), lambda view: ran.append(len(view)))
    return weakref.ref(pool)

gone = plant()
for _ in range(3):
    gc.collect()
wait_until(lambda: len(ran) == 2)
assert ran == ["after", 2] and states == ["whole"] * 2, (ran, states)
wait_until(lambda: (gc.collect(), gone())[1] is None, limit=5, what="the pool to go")
wait_until(lambda: not _native._running_timers, limit=5, what="its threads to end")
"""
    )


@pytest.mark.parametrize("ended", ["cancel()", "timer.cancel_many([task])", "timer.shutdown()", "batch"])
def test_on_error_goes_with_its_owner_once_nothing_is_owed__rule8(ended):
    """Every way out of the timer is counted."""
    call = {
        "cancel()": "assert task.cancel()",
        "timer.cancel_many([task])": "assert owner.timer.cancel_many([task]) == 1",
        "timer.shutdown()": "assert owner.timer.shutdown() == [task]",
        "batch": "assert task.cancel() and batch.cancel(0) and batch.cancel_many([1]) == 1 and batch.cancel_all() == 1",
    }[ended]
    run_script(
        OWNER
        + f"""
def plant():
    owner = Owner("by_lambda")
    task = TimerTask(3_600_000, nop)
    owner.timer.add(task)
    owner.timer.add(task)  # a move owes nothing more
    batch = owner.timer.add_many(ms(3 if {ended!r} == "batch" else 0, 3_600_000), nop)
    {call}
    return weakref.ref(owner)

gone = plant()
wait_until(lambda: (gc.collect(), gone())[1] is None, limit=5, what="the owner to go")
"""
    )


def test_on_error_of_a_purgatory_and_of_its_timer_is_whole_while_a_deadline_can_come__rule8():
    run_script(
        OWNER
        + """
from tickwheel import DelayedOperation, DelayedOperationPurgatory

class Fails(DelayedOperation):
    def try_complete(self):
        return False

    def on_complete(self):
        fail("expired")

def plant(how, given):
    owner = Owner(how)
    own = {} if given else {"on_error": getattr(owner, how)()}
    owner.purgatory = DelayedOperationPurgatory("x", owner.timer if given else None, **own)
    owner.purgatory.try_complete_else_watch(Fails(100), ["key"])
    return weakref.ref(owner)

gone = [plant(how, given) for how in ("by_lambda", "by_method", "by_object") for given in (True, False)]
collect()
wait_until(lambda: len(heard) == 6)
assert heard == [("whole", "expired")] * 6, heard
wait_until(lambda: (gc.collect(), {one() for one in gone})[1] == {None}, limit=5, what="the owners to go")
"""
    )


def test_an_operation_that_is_held_calls_no_on_error_that_was_cleared__rule8_P8():
    """A destructor that runs while the collector clears `on_error` completes the operation."""
    run_script(
        """
import logging
from tickwheel import DelayedOperation, DelayedOperationPurgatory

class Told(logging.Handler):
    def emit(self, record):
        told.append(str(record.exc_info[1]))

logging.getLogger("tickwheel").addHandler(Told())

class Fails(DelayedOperation):
    def try_complete(self):
        return False

    def on_complete(self):
        raise ValueError("in the middle")

class Late(int):  # the collector does not know of it: its destructor runs while others are cleared
    __slots__ = ()

    def __del__(self):
        ended.append(operation.force_complete())

def plant():
    owner = []

    def on_error(task, error, late=Late(1)):
        heard.append((len(owner), str(error)))
        return dict(a=1)

    owner.append(on_error)
    owner.append(DelayedOperationPurgatory("x", ManualTimer(on_error=on_error), timer_enabled=False))
    owner[1].try_complete_else_watch(operation, ["key"])
    owner.append(owner)

for _ in range(20):
    heard, ended, told = [], [], []
    operation = Fails(1)
    plant()
    gc.collect()
    assert (ended, told, heard) == ([True], ["in the middle"], []), (ended, told, heard)
"""
    )


@pytest.mark.parametrize("how", HOWS)
def test_on_error_is_whole_while_an_operation_without_a_deadline_ends__rule8_P8(how):
    """Nothing is owed by the timer then. The operation is held from outside, purgatory and timer are garbage."""
    run_script(
        OWNER
        + f"""
from tickwheel import DelayedOperation, DelayedOperationPurgatory

class Fails(DelayedOperation):
    def try_complete(self):
        return False

    def on_complete(self):
        collect()
        fail("by hand")

def plant(operation):
    owner = Owner({how!r})
    owner.purgatory = DelayedOperationPurgatory("x", owner.timer, timer_enabled=False)
    owner.purgatory.try_complete_else_watch(operation, ["key"])
    return weakref.ref(owner)

operation = Fails(1)
gc.disable()
gone = plant(operation)
assert operation.force_complete()
assert heard == [("whole", "by hand")], heard
wait_until(lambda: (gc.collect(), gone())[1] is None, limit=5, what="the owner to go")
"""
    )


OWN_CYCLES = {
    "SystemTimer": "class Mine(SystemTimer): pass",
    "DelayedOperationPurgatory": "class Mine(DelayedOperationPurgatory): pass",
}


@pytest.mark.parametrize("kind", OWN_CYCLES)
def test_on_error_is_kept_when_the_timer_is_cleared_before_it_is_empty__rule8_T11(kind):
    """The object is garbage by a cycle of its own, and the collector clears it; what is pending still reports."""
    run_script(
        OWNER
        + f"""
from tickwheel import DelayedOperation, DelayedOperationPurgatory

class Fails(DelayedOperation):
    def try_complete(self):
        return False

    def on_complete(self):
        fail("late")

{OWN_CYCLES[kind]}

def on_error(task, error):
    heard.append(str(error))

def plant():
    mine = Mine("x", on_error=on_error)
    mine.me = mine
    if {kind!r} == "SystemTimer":
        mine.after(150, fail, "late")
    else:
        mine.try_complete_else_watch(Fails(150), ["key"])
    return weakref.ref(mine)

gone = plant()
wait_until(lambda: (gc.collect(), gone())[1] is None, limit=3, what="the object to go")
wait_until(lambda: heard)
assert heard == ["late"]
"""
    )


def test_on_error_hears_of_what_a_destructor_of_its_garbage_added__rule8_T10():
    """The destructor brings owner and timer back to life, after the collector has taken the weak references away."""
    run_script(
        OWNER
        + """
class Late(Owner):
    def __del__(self):
        if not again:
            again.append(self)
            self.timer.after(50, fail, "added by the destructor")

again = []

def plant():
    Late("by_lambda")

plant()
gc.collect()
wait_until(lambda: heard)
assert heard == [("whole", "added by the destructor")], heard
again[0].timer.shutdown()
"""
    )


COMES_BACK = """
import logging

kept = []

class Keeps(logging.Handler):
    def emit(self, record):
        logged.append(str(record.exc_info[1]))

class Comes:
    def __init__(self, make):
        def on_error(task, error, self=self):
            heard.append(str(error))

        make(self, on_error)

    def __del__(self):
        kept.append(self)

class Fails(DelayedOperation):
    def try_complete(self):
        raise ValueError("failed")

def undriven(comes, on_error):
    comes.timer = ManualTimer(on_error=on_error)

def reaped(comes, on_error):
    comes.timer = SystemTimer("x", on_error=on_error)

def driven(comes, on_error):
    comes.timer = SystemTimer("x", reaper=False, on_error=on_error)

def watched(comes, on_error):
    comes.timer = ManualTimer(on_error=on_error)
    comes.purgatory = DelayedOperationPurgatory("p", comes.timer)

def fail_once(comes):
    if hasattr(comes, "purgatory"):
        operation = Fails(1)
        operation.try_complete = lambda: False
        comes.purgatory.try_complete_else_watch(operation, ["key"])
        del operation.try_complete
        comes.purgatory.check_and_complete("key")
        operation.cancel()
        return
    comes.timer.after(0, fail)
    if isinstance(comes.timer, ManualTimer):
        comes.timer.advance(0)
    elif comes.timer.name == "x" and type(comes).make is driven:
        comes.timer.advance_clock(1_000)
"""


@pytest.mark.parametrize("make", ["undriven", "reaped", "driven", "watched"])
def test_an_error_of_a_timer_that_a_destructor_has_brought_back_is_told__rule8_T10(make):
    """The collector has taken the weak references away, and has cleared nothing: an error may go to the log."""
    run_script(
        OWNER
        + f"""
from tickwheel import DelayedOperation, DelayedOperationPurgatory
{COMES_BACK}
Comes.make = {make}
logged = []
logging.getLogger("tickwheel").addHandler(Keeps())
Comes({make})
gc.collect()
wait_until(lambda: kept)
fail_once(kept[0])
wait_until(lambda: heard or logged, limit=5)
assert heard + logged == ["failed"], (heard, logged)
assert bool(heard) == ({make} is reaped)
gone = weakref.ref(kept.pop())
kept[0].timer.shutdown() if kept else None
wait_until(lambda: (gc.collect(), gone())[1] is None, limit=5, what="the object to go")
"""
    )


@pytest.mark.parametrize("make", ["undriven", "driven", "watched"])
def test_what_fails_in_the_middle_of_a_collection_calls_no_on_error_that_may_be_cleared__rule8_T10(make):
    """A destructor uses the timer and does not bring it back. In the middle of a collection nothing tells whether
    `on_error` is cleared next. A worker may report later: then either all of it is alive, or it is logged."""
    out = run_script(
        OWNER
        + f"""
import logging
from tickwheel import DelayedOperation, DelayedOperationPurgatory
logging.disable()
{COMES_BACK}
class Ends(Comes):
    def __del__(self):
        fail_once(self)
        ends.append(1)

Comes.make = {make}
ends = []
for _ in range(20):
    Ends({make})
    gc.collect()
print(len(ends), len(heard) if {make} is not driven else 0)
"""
    )
    assert out == "20 0\n"
