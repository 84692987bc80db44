"""What a callback, a destructor or the case itself does with the objects along a node's references."""

import gc
import random
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fuzz import making
from fuzz.ledger import Ledger, Planned
from fuzz.objects import Node, Operation
from tickwheel import DelayedOperationPurgatory, TaskBatch, TickwheelError, Timer, TimerTask
from tickwheel.testing import ManualTimer

T = TypeVar("T")


def act(node: Node, rng: random.Random, *, is_quick: bool = False) -> None:
    """One action, or a few. Whatever the module refuses by an error of its own is as good as done. `is_quick`: nothing
    that may wait, for where the thread may be inside of anything."""
    ledger = node.look()
    for _ in range(rng.choice([1, 1, 2, 4])):
        if ledger.is_quiet or not ledger.spend():
            return
        action = rng.choice(QUICK if is_quick else ACTIONS)
        ledger.trace(f"{action.__name__} from node {node.number}")
        try:
            action(ledger, node, rng)
        except Planned as error:  # a try inside a watching call reaches its caller
            ledger.note("heard", error.number)
        except (TickwheelError, ValueError):
            pass
        except TypeError as error:
            if "coroutine function" not in str(error):  # one that was on a loop's timer before
                raise
        except RuntimeError as error:
            if "advancing" not in str(error):  # an advance inside an advance
                raise


def one(node: Node, rng: random.Random, kind: type[T]) -> T | None:
    found = [ref for ref in node.refs if isinstance(ref, kind)]
    return rng.choice(found) if found else None


def collect(ledger: Ledger, node: Node, rng: random.Random) -> None:
    gc.collect(rng.choice([0, 1, 2]))


def link(ledger: Ledger, node: Node, rng: random.Random) -> None:
    other = one(node, rng, Node) or node
    other.refs.append(rng.choice(node.refs or [node]))


def unlink(ledger: Ledger, node: Node, rng: random.Random) -> None:
    if node.refs:
        del node.refs[rng.randrange(len(node.refs)) :]


def add(ledger: Ledger, node: Node, rng: random.Random) -> None:
    if timer := one(node, rng, Timer):
        making.entry(ledger, rng, timer, rng.choice([node, making.node(ledger, rng, node)]))


def add_again(ledger: Ledger, node: Node, rng: random.Random) -> None:
    timer, held = one(node, rng, Timer), one(node, rng, making.Held)
    if (
        timer
        and held
        and isinstance(held.scheduled, TimerTask)
        and ledger.entries[held.number].kind in {"plain", "task"}
    ):
        watch_again(ledger, held.scheduled, held.number)
        timer.add(held.scheduled)
        ledger.note("added", held.number)


def watch_again(ledger: Ledger, task: TimerTask, number: int) -> None:
    making.watch_scheduled(ledger, task, number, [] if task.delay_ms == making.HOUR_MS else None)


def cancel(ledger: Ledger, node: Node, rng: random.Random) -> None:
    if not (held := one(node, rng, making.Held)):
        return
    scheduled = held.scheduled
    if isinstance(scheduled, TaskBatch):
        how = rng.choice([scheduled.cancel_all, lambda: scheduled.cancel_many([0, 0]), lambda: scheduled.cancel(0)])
    elif timer := one(node, rng, Timer):
        how = rng.choice([scheduled.cancel, lambda: timer.cancel_many([scheduled, scheduled])])
    else:
        how = scheduled.cancel
    ledger.note("cancelled", held.number, int(how()))


def see(ledger: Ledger, node: Node, rng: random.Random) -> None:
    if timer := one(node, rng, Timer):
        looks: list[Callable[[], Any]] = [timer.snapshot, timer.pending, timer.stats, timer.__len__, timer.__repr__]
        rng.choice(looks)()
    if held := one(node, rng, making.Held):
        repr(held.scheduled)


def advance(ledger: Ledger, node: Node, rng: random.Random) -> None:
    if timer := one(node, rng, Timer):
        move(timer, rng)


def move(timer: Timer, rng: random.Random) -> None:
    """Drives a timer that nothing else drives."""
    if isinstance(timer, ManualTimer):
        rng.choice([lambda: timer.advance(rng.choice([0, 1, 5, 50])), timer.run_next])()
    elif timer.name.startswith("polled"):
        timer.advance_clock(rng.choice([0, 0, 1]))  # type: ignore[attr-defined]


def watch(ledger: Ledger, node: Node, rng: random.Random) -> None:
    purgatory = one(node, rng, DelayedOperationPurgatory)
    operation = one(node, rng, Operation) if rng.random() < 0.3 else making.operation(ledger, rng, node)
    if operation:
        watch_again(ledger, operation, operation.number)
    if purgatory and operation and not purgatory.try_complete_else_watch(operation, making.keys(rng, node)):
        ledger.note("watched", operation.number)
        # A pool that was shut down refuses the expiry, and nothing may drive the other two.
        if purgatory.name.startswith("dated") and not purgatory.timer.name.startswith(("manual", "polled", "pool")):
            ledger.note("must end", operation.number)


def check(ledger: Ledger, node: Node, rng: random.Random) -> None:
    if purgatory := one(node, rng, DelayedOperationPurgatory):
        if (operation := one(node, rng, Operation)) and rng.random() < 0.7:
            operation.is_ready = True
        for key in making.keys(rng, node):
            purgatory.check_and_complete(key)
        len(purgatory), purgatory.watched, purgatory.num_delayed, purgatory.stats()


def complete(ledger: Ledger, node: Node, rng: random.Random) -> None:
    if operation := one(node, rng, Operation):
        operation.force()


def take_out(ledger: Ledger, node: Node, rng: random.Random) -> None:
    purgatory, operation = one(node, rng, DelayedOperationPurgatory), one(node, rng, Operation)
    if purgatory and rng.random() < 0.5:
        took_out(ledger, purgatory.cancel_for_key(making.keys(rng, node)[0]))
    elif operation and operation.cancel():
        took_out(ledger, [operation])


def took_out(ledger: Ledger, tasks: list[Any]) -> None:
    for task in tasks:
        if isinstance(task, Operation):
            ledger.note("taken out", task.number)


def stop(ledger: Ledger, node: Node, rng: random.Random) -> None:
    """A shutdown, now and then; never one that waits for another thread's callback, which may wait for this one."""
    if rng.random() < 0.7:
        return
    if rng.random() < 0.2 and (pool := one(node, rng, ThreadPoolExecutor)):
        pool.shutdown(wait=False)
    elif (purgatory := one(node, rng, DelayedOperationPurgatory)) and rng.random() < 0.3:
        shut_purgatory(ledger, purgatory, rng.choice([0, 3]))
    elif timer := one(node, rng, Timer):
        shut_timer(ledger, timer, rng.choice([0, 3]))


def shut_timer(ledger: Ledger, timer: Timer, timeout_ms: float | None) -> None:
    left = timer.shutdown(timeout_ms)
    ledger.returned[timer.name] = max(ledger.returned.get(timer.name, 0), len(left))
    took_out(ledger, left)


def shut_purgatory(ledger: Ledger, purgatory: DelayedOperationPurgatory, timeout_ms: float | None) -> None:
    took_out(ledger, purgatory.shutdown(timeout_ms))
    took_out(ledger, purgatory.timer.unfinished)


def watch_end(ledger: Ledger, node: Node, rng: random.Random) -> None:
    """A weak reference whose callback acts, also in the middle of a collection."""
    of_node, seed = weakref.ref(node), ledger.number()

    def ended(_: object) -> None:
        if (alive := of_node()) and not ledger.is_quiet:
            act(alive, random.Random(seed))

    things = [ref for ref in node.refs if isinstance(ref, Node | Timer | TimerTask | DelayedOperationPurgatory)]
    if things:
        node.refs.append(weakref.ref(rng.choice(things), ended))


QUICK = [add, add, add_again, cancel, link, unlink, see, check, complete, take_out, watch, watch_end]
ACTIONS = [*QUICK, advance, collect, stop]
