"""Makes the parts of a graph, each with a weak reference to it in `ledger.alive`, by which the case sees it go."""

import array
import asyncio
import contextvars
import random
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from fuzz.acting import act
from fuzz.ledger import Entry, Ledger
from fuzz.objects import (
    CALLBACKS,
    HANDLERS,
    Dying,
    DyingKey,
    DyingNode,
    DyingOperation,
    DyingTask,
    Key,
    Node,
    Operation,
    Task,
    callback,
    handler,
)
from tickwheel import DelayedOperationPurgatory, SystemTimer, TaskBatch, Timer, TimerTask
from tickwheel.testing import ManualTimer

HOUR_MS = 3_600_000
CONTEXT: "contextvars.ContextVar[Any]" = contextvars.ContextVar("holder")
DRIVERS = ("manual", "own", "own", "pool", "loop", "polled")
"""What drives a timer and runs its callbacks; the name of each timer begins with it."""


class OwnTimer(SystemTimer):
    """A subclass, which has attributes."""

    node: Node


class OwnManualTimer(ManualTimer):
    node: Node


class DyingTimer(Dying, OwnTimer):
    pass


class DyingManualTimer(Dying, OwnManualTimer):
    pass


@dataclass(eq=False)
class Held:
    """A task or a batch, and its number in the ledger."""

    scheduled: Any
    number: int


def delay_ms(rng: random.Random) -> float:
    return rng.choice([-1, 0, 0.5, 1, 2, 5, 5, 12, 30, HOUR_MS])


def node(ledger: Ledger, rng: random.Random, *refs: Any) -> Node:
    kind = rng.choice([Node, Node, DyingNode])
    made = kind(ledger, ledger.number(), act)
    made.refs.extend(refs)
    ledger.watch(made)
    return made


def watch_scheduled(ledger: Ledger, scheduled: TimerTask | TaskBatch, number: int, far: list[int] | None) -> None:
    """To be called at each add. An earlier weak reference is dead if a destructor has brought the task back. `far`:
    which of a batch are due in an hour; `None` if nothing is."""
    ledger.watch(scheduled)
    if far is not None:
        ledger.far.append((weakref.ref(scheduled), number, far))


def timer(ledger: Ledger, rng: random.Random, holder: Node, loop: asyncio.AbstractEventLoop) -> Timer:
    """A timer whose handler of errors holds `holder`, and which `holder` holds now and then."""
    driver = rng.choice(DRIVERS)
    name = f"{driver}-{ledger.number()}"
    common: dict[str, Any] = {
        "wheel_size": rng.choice([2, 3, 20]),
        "precision": rng.choice(["exact", "tick"]),
        "max_pending": rng.choice([None, None, None, 6]),
        "on_error": handler(rng.choice(HANDLERS), holder),
    }
    made: Timer
    if driver == "manual":
        made = rng.choice([ManualTimer, OwnManualTimer, DyingManualTimer])(name, **common)
    else:
        executor = {"pool": ThreadPoolExecutor, "loop": lambda _: loop}.get(driver, lambda _: None)(2)
        if driver == "pool":
            ledger.pools.append(executor)
        if driver == "pool" and rng.random() < 0.5:
            holder.refs.append(executor)
        made = rng.choice([SystemTimer, OwnTimer, DyingTimer])(
            name, executor=executor, reaper=driver != "polled", **common
        )
    if isinstance(made, OwnTimer | OwnManualTimer):
        made.node = holder
    if rng.random() < 0.5:
        holder.refs.append(made)
    ledger.watch(made)
    return made


def entry(ledger: Ledger, rng: random.Random, on: Timer, holder: Node) -> None:
    """Adds a task or a batch. Raises what the timer raises."""
    kind = rng.choice(["after", "after", "at", "plain", "task", "batch"])
    number, wait_ms, far = ledger.number(), delay_ms(rng), [0]
    driver = on.name.split("-")[0]
    is_loop = driver == "loop"
    function = callback(rng.choice([*CALLBACKS, *["coroutine"] * 3 * is_loop]), number, holder)
    context: dict[str, Any] = {}
    if is_loop and rng.random() < 0.3:
        context["context"] = contextvars.copy_context()
        context["context"].run(CONTEXT.set, holder)
    made: TimerTask | TaskBatch
    if kind == "batch":
        count = rng.choice([1, 3, 9])
        is_whole = driver != "pool"  # a pool may refuse a part of it, and that is told once
        waits_ms = array.array("q", [int(delay_ms(rng)) for _ in range(count)])
        far = [index for index, wait in enumerate(waits_ms) if wait == HOUR_MS]
        made = on.add_many(waits_ms, function, **context)
        ledger.entries[number] = Entry(kind, driver, is_whole)
        ledger.note("added", number, count)
    else:
        ledger.entries[number] = Entry(kind, driver, kind in {"after", "at"})
        if kind == "after":
            made = on.after(wait_ms, function, *rng.choice([(), (holder,)]), **context)
        elif kind == "at":
            made = on.at(max(0, on.now_ms() + wait_ms), function, **context)
        else:
            made = (
                TimerTask(wait_ms, function)
                if kind == "plain"
                else rng.choice([Task, DyingTask])(wait_ms, number, holder)
            )
            on.add(made, **context)
        ledger.note("added", number)
    is_far = far and (kind == "batch" or wait_ms == HOUR_MS)
    watch_scheduled(ledger, made, number, far if is_far else None)
    if rng.random() < 0.7:
        holder.refs.append(Held(made, number))
    if rng.random() < 0.3:
        holder.refs.append(on)


def purgatory(ledger: Ledger, rng: random.Random, on: Timer | None, holder: Node) -> DelayedOperationPurgatory:
    """Its name tells whether it sets deadlines."""
    kind = rng.choice(["dated", "dated", "dated", "undated"])
    made = DelayedOperationPurgatory(
        f"{kind}-{ledger.number()}",
        on,
        timer_enabled=kind == "dated",
        on_error=handler(rng.choice(HANDLERS), holder),
    )
    if rng.random() < 0.5:
        holder.refs.append(made)
    ledger.watch(made)
    if on is None:
        ledger.watch(made.timer)
    return made


def operation(ledger: Ledger, rng: random.Random, holder: Node) -> Operation:
    made = rng.choice([Operation, Operation, DyingOperation])(
        delay_ms(rng), rng.choice([None, None, threading.RLock()]), holder
    )
    ledger.watch(made)
    if rng.random() < 0.5:
        holder.refs.append(made)
    return made


def keys(rng: random.Random, holder: Node) -> list[Any]:
    """Some keys: a few that all share, and pieces of the graph."""
    return rng.sample(
        [1, 2, 3, "a", (1, "a"), Key(holder), rng.choice([Key, Key, DyingKey])(holder)], rng.randint(1, 3)
    )
