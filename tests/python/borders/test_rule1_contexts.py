"""A context that an operation lets go of runs destructors: never with its native lock held (border rule 1)."""

from borders.harness import run_script

PRELUDE = """
import asyncio, contextvars
from tickwheel import DelayedOperation, DelayedOperationPurgatory, TimerFull

var = contextvars.ContextVar("var")
seen = []

class Waits(DelayedOperation):
    def try_complete(self):
        var.set(None)
        return False

class Value:
    def __del__(self):
        seen.append(repr(operation))

loop = asyncio.new_event_loop()
"""


def test_a_watching_call_that_moves_a_deadline_drops_its_old_context_without_a_lock__rule1_T8():
    run_script(
        PRELUDE
        + """
timer = SystemTimer("t", executor=loop)
operation = Waits(60_000)
context = contextvars.copy_context()
context.run(var.set, Value())
timer.add(operation, context=context)
del context
DelayedOperationPurgatory("p", timer).try_complete_else_watch(operation, ["k"])
assert len(seen) == 1, seen
timer.shutdown()
loop.close()
"""
    )


def test_a_watching_call_that_finds_a_timer_just_left_drops_its_context_without_a_lock__rule1_T8():
    """The timer has taken both tasks out, and lets go of the first one's callback before it tells the second."""
    run_script(
        PRELUDE
        + """
purgatory = DelayedOperationPurgatory("p", ManualTimer())

class Watches:
    def run(self):
        pass

    def __del__(self):
        purgatory.try_complete_else_watch(operation, ["k"])

timer = SystemTimer("t", executor=loop)
first, operation = timer.after(60_000, Watches().run), Waits(60_000)
context = contextvars.copy_context()
context.run(var.set, Value())
timer.add(operation, context=context)
tasks = [first, operation]
del context, first
assert timer.cancel_many(tasks) == 2
assert len(seen) == 1 and len(purgatory) == 1, seen
timer.shutdown()
loop.close()
"""
    )


def test_a_watching_call_that_is_refused_drops_its_context_without_a_lock__rule1_T8():
    run_script(
        PRELUDE
        + """
timer = SystemTimer("t", executor=loop, max_pending=1)
timer.after(60_000, nop)
operation = Waits(60_000)
var.set(Value())
try:
    DelayedOperationPurgatory("p", timer).try_complete_else_watch(operation, ["k"])
except TimerFull:
    pass
else:
    raise AssertionError("there was room")
assert len(seen) == 1, seen
timer.shutdown()
loop.close()
"""
    )
