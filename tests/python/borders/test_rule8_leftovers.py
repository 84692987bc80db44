"""Border rule 8: what the collector must be able to find although no `Timer` object shows it."""

import pytest

from borders.harness import run_script

GOES = """
class Node:
    pass

def check(plant):
    gone = plant()
    wait_until(lambda: (gc.collect(), gone())[1] is None, limit=3, what=f"{plant.__name__} to go")
"""


@pytest.mark.parametrize(
    "end", ["task.cancel()", "timer.cancel_many([task])", "wait_until(lambda: ran)", "timer.shutdown()"]
)
def test_a_one_shot_that_is_initialized_again_is_collected__rule8_T19(end):
    """At its end it is off the collector's lists, as it has let go of its callback."""
    run_script(
        GOES
        + f"""
def plant():
    node, ran, timer = Node(), [], SystemTimer("x")
    task = node.task = timer.after(0 if "ran" in {end!r} else 60_000, ran.append, 1)
    {end}
    wait_until(lambda: not len(timer) and not timer.stats()["running"])
    task.__init__(5, lambda: node)
    assert gc.is_tracked(task)
    timer.shutdown()
    return weakref.ref(node)

check(plant)
"""
    )


def test_a_name_of_a_subclass_of_str_is_kept_as_its_exact_text__rule8_T13():
    """The name itself may refer to the task; and its `__str__` says what it likes."""
    run_script(
        GOES
        + r"""
from tickwheel import DelayedOperation, DelayedOperationPurgatory

class Text(str):
    def __str__(self):
        return "other"

class Op(DelayedOperation):
    def try_complete(self):
        return False

for text in ("n", "", "näme", "a\ud800b"):
    for make in (lambda name: TimerTask(1, nop, name=name), lambda name: Op(1, name=name)):
        name = make(Text(text)).name
        assert name == text and type(name) is str, name

def plant_task():
    name = Text("n")
    name.task = TimerTask(1, nop, name=name)
    return weakref.ref(name.task)

def plant_operation():
    name = Text("n")
    name.task = Op(1, name=name)
    return weakref.ref(name.task)

check(plant_task)
check(plant_operation)
text = Text("the text")
text.timer = ManualTimer(text)
assert text.timer.name == "the text" and type(text.timer.name) is str
with SystemTimer(Text("system")) as timer, DelayedOperationPurgatory(Text("p"), timer) as purgatory:
    assert timer.name == "system" and purgatory.name == "p"
    assert any(thread.name == "executor-system" for thread in threading.enumerate())
"""
    )


@pytest.mark.parametrize("timer_first", [True, False])
def test_a_loop_that_is_dropped_with_a_batch_in_its_line_is_collected__rule8_T8(timer_first):
    run_script(
        f"""
import logging
warnings.simplefilter("ignore", ResourceWarning)  # the loop is not closed, on purpose

def plant():
    gc.collect()  # so that the loop and its sockets are in one generation, and it is finalized before them
    loop = asyncio.new_event_loop()
    timer = SystemTimer("x", executor=loop)
    timer.after(0, nop)
    timer.add_many(ms(3, 0), nop)
    wait_until(lambda: len(loop._ready) > 0 and len(timer) == 0)
    timer.shutdown(0)
    gone = weakref.ref(loop)
    if {timer_first}:
        del timer
        gc.collect()
    return gone

gone = plant()
wait_until(lambda: (gc.collect(), gone())[1] is None, limit=5, what="the loop to go")
wait_until(lambda: not _native._running_timers, limit=5, what="its threads to end")
"""
    )


@pytest.mark.parametrize("refers", ["batch", "due"])
def test_on_error_goes_once_its_timer_is_gone_and_empty_whatever_is_left_of_it__rule8_T11(refers):
    """A batch that has run, or a callable that an executor keeps, holds what is left; no `Timer` shows it."""
    run_script(
        GOES
        + f"""
class Keeps:
    kept = None

    def submit(self, due):
        self.kept = due
        due()

def plant():
    node, ran = Node(), []
    node.pool = Keeps()
    node.pool.node = node
    timer = SystemTimer("x", executor=node.pool, on_error=lambda *_: node)
    node.batch = timer.add_many(ms(2, 0), lambda view: ran.extend(view))
    wait_until(lambda: ran == [0, 1])
    if {refers!r} == "batch":
        node.pool.kept = None
    else:
        wait_until(lambda: node.pool.kept is not None)
        node.batch = None
    return weakref.ref(node)

check(plant)
wait_until(lambda: not _native._running_timers, limit=5, what="its threads to end")
"""
    )


OWN = {
    "SystemTimer": 'super().__init__("x", on_error=self.failed)',
    "SystemTimer without a reaper": 'super().__init__("x", reaper=False, on_error=self.failed)',
    "ManualTimer": "super().__init__(on_error=self.failed)",
    "DelayedOperationPurgatory": 'super().__init__("x", ManualTimer(on_error=self.failed))',
}


@pytest.mark.parametrize("kind", OWN)
def test_a_timer_whose_own_method_is_its_on_error_is_collected__rule8_T22(kind):
    """A bound method cannot be cleared, so the timer must be."""
    run_script(
        GOES
        + f"""
from tickwheel import DelayedOperationPurgatory

class Mine({kind.split()[0]}):
    __slots__ = ()

    def __init__(self):
        {OWN[kind]}

    def failed(self, *_):
        pass

def plant():
    return weakref.ref(Mine())

check(plant)
wait_until(lambda: not _native._running_timers, limit=5, what="its threads to end")
"""
    )
