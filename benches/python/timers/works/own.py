"""Works that only tickwheel can do: tasks that can be added again, and one call for many timers."""

from array import array
from typing import Any

from tickwheel import SystemTimer, TaskBatch, TimerTask

from ..side import Side, Steps, nothing
from .holding import resident_bytes
from .plan import Plan, begin, since_ns


def add_task(side: Side, plan: Plan) -> Steps:
    """Create and add each task, one by one, and keep it."""
    delays_ms, add = plan.delays(side), _timer(side).add
    tasks: list[Any] = [None] * plan.count
    started_ns = begin()
    for index, delay_ms in enumerate(delays_ms):
        task = TimerTask(delay_ms, nothing)
        add(task)
        tasks[index] = task
    yield 0
    return {"add, TimerTask": since_ns(started_ns) / plan.count}


def add_many(side: Side, plan: Plan) -> Steps:
    """Add all in one call."""
    delays_ms = array("q", map(int, plan.delays(side)))
    batches: list[TaskBatch] = []
    started_ns = begin()
    batches.append(_timer(side).add_many(delays_ms, nothing))
    yield 0
    took_ns = since_ns(started_ns)
    assert len(batches[0]) == plan.count
    return {"add_many, per timer": took_ns / plan.count}


def bytes_per_task(side: Side, plan: Plan) -> Steps:
    """The growth of the resident set with the tasks, without the list of them."""
    delays_ms, add = plan.delays(side), _timer(side).add
    tasks: list[Any] = [None] * plan.count
    before = resident_bytes()
    for index, delay_ms in enumerate(delays_ms):
        tasks[index] = task = TimerTask(delay_ms, nothing)
        add(task)
    yield 0
    return {"bytes per TimerTask": (resident_bytes() - before) / plan.count}


def _timer(side: Side) -> SystemTimer:
    assert side.wheel is not None
    return side.wheel
