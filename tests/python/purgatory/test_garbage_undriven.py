"""Border rule 8: a purgatory in which nothing more can happen is garbage like any other, and so is what waits in it."""

import pytest

from purgatory.scripts import run_script

MAKES = {
    "manual": 'DelayedOperationPurgatory("p", ManualTimer({}))',
    "manual_undated": 'DelayedOperationPurgatory("p", ManualTimer({}), timer_enabled=False)',
    "polled": 'DelayedOperationPurgatory("p", SystemTimer("x", reaper=False, {}))',
    "undated": 'DelayedOperationPurgatory("p", timer_enabled=False, {})',
}

NODE = """
class Node:
    def __call__(self, *_):
        pass

class Key(Node):
    pass

class Mine(DelayedOperationPurgatory):
    def failed(self, *_):
        pass

class Slots(DelayedOperation):
    __slots__ = ("purgatory",)

    def try_complete(self):
        return False

def watch(purgatory, *keys, kind=Op, lock=None):
    operation = kind(HOUR, lock)
    assert not purgatory.try_complete_else_watch(operation, keys or ["key"])
    return operation

"""

CYCLES = {
    "operation": "operation.purgatory = purgatory",
    "operation_with_slots": "watch(purgatory, kind=Slots).purgatory = purgatory",
    "owner": "node.purgatory, operation.owner = purgatory, node",
    "timer": "operation.own_timer = purgatory.timer",
    "key": "key = Key(); key.purgatory = purgatory; watch(purgatory, key, 'key')",
    "tuple_as_key": "watch(purgatory, (1, purgatory))",
    "method_as_key": "watch(purgatory, purgatory.check_and_complete)",
    "lock": "lock = threading.RLock(); watch(purgatory, lock=lock).purgatory = purgatory",
    "waiter": "node.purgatory = purgatory; purgatory._watch(Op(), ['key'], node)",
    "two_keys_and_two_operations": (
        "second = watch(purgatory, 'key', 'other'); second.first = operation; operation.own = second.own = purgatory"
    ),
    "thousand": "for i in range(1_000): watch(purgatory, i % 3, 'key').purgatory = purgatory",
    "taken_out": "operation.own = purgatory; operation.cancel(); purgatory.try_complete_else_watch(operation, [1])",
    "deadline_taken": "operation.purgatory = purgatory; purgatory.timer.cancel_many([operation])",
}


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("cycle", CYCLES)
def test_a_purgatory_that_only_what_waits_in_it_reaches_is_freed__rule8(make: str, cycle: str) -> None:
    run_script(
        NODE
        + f"""
def plant():
    purgatory, node = {MAKES[make].format("")}, Node()
    operation = watch(purgatory)
    {CYCLES[cycle]}
    return [weakref.ref(one) for one in (purgatory, purgatory.timer, operation, node)]

before = native_threads()
gone = plant()
gc.collect()
assert [one() for one in gone] == [None] * 4
wait_until(lambda: native_threads() == before and not _native._running_timers, limit=5, what="its threads to end")
"""
    )


HANDLERS = {
    "lambda": "lambda *_, node=node: None",
    "node": "node",
    "method": "node.__call__",
}


@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("driver", ["ManualTimer(on_error={})", 'SystemTimer("x", reaper=False, on_error={})'])
@pytest.mark.parametrize("holder", ["timer", "purgatory"])
def test_an_on_error_that_reaches_its_timer_or_purgatory_goes_while_an_operation_waits__rule8(
    handler: str, driver: str, holder: str
) -> None:
    run_script(
        NODE
        + f"""
def plant():
    node = Node()
    timer = {driver.format(HANDLERS[handler])}
    purgatory = DelayedOperationPurgatory("p", timer)
    node.holds = {holder}
    watch(purgatory)
    return [weakref.ref(one) for one in (timer, node, purgatory)]

gone = plant()
gc.collect()
assert [one() for one in gone] == [None] * 3
"""
    )


def test_a_method_of_a_purgatory_as_its_own_on_error_goes_while_an_operation_waits__rule8() -> None:
    """Of such a cycle nothing but the purgatory can be cleared."""
    run_script(
        NODE
        + """
class Own(Mine):
    def __init__(self):
        super().__init__("p", timer_enabled=False, on_error=self.failed)

def plant():
    purgatory = Own()
    watch(purgatory)
    return weakref.ref(purgatory)

gone = plant()
gc.collect()
assert gone() is None
"""
    )


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("cycle", CYCLES)
def test_a_purgatory_that_is_held_keeps_what_waits_whatever_is_collected__rule8(make: str, cycle: str) -> None:
    """What is shown at the first look of a collection is shown at the second, or all this would be garbage."""
    run_script(
        NODE
        + f"""
def plant():
    purgatory, node = {MAKES[make].format("")}, Node()
    operation = watch(purgatory)
    {CYCLES[cycle]}
    return purgatory, weakref.ref(operation)

purgatory, operation = plant()
count, places = len(purgatory), purgatory.watched
for _ in range(5):
    gc.collect(0), gc.collect(1), gc.collect(2)
assert operation() is not None and (len(purgatory), purgatory.watched) == (count, places)
assert purgatory.check_and_complete("nothing") == 0
assert len(purgatory.shutdown()) == count and counts(purgatory) == EMPTY
purgatory.timer.shutdown()
"""
    )


def test_a_purgatory_shows_each_reference_once__rule8() -> None:
    run_script(
        NODE
        + """
def found():
    return collections.Counter(map(id, gc.get_referents(purgatory)))

key, other = Key(), Key()
purgatory = DelayedOperationPurgatory("p", ManualTimer())
first, second = watch(purgatory, key, other), watch(purgatory, key)
shown = found()
wanted = {id(purgatory.timer): 1, id(first): 2, id(second): 1, id(key): 1, id(other): 1}
assert {one: shown[one] for one in wanted} == wanted, shown
first.cancel()
shown = found()
assert (shown[id(first)], shown[id(second)], shown[id(key)], shown[id(other)]) == (0, 1, 1, 0)
"""
    )


def test_a_purgatory_on_a_driven_timer_shows_nothing_that_waits_for_a_deadline__rule8() -> None:
    """It is alive in any case: a collection need not go along the lists."""
    run_script(
        NODE
        + """
purgatory = DelayedOperationPurgatory("p")
first = watch(purgatory)
assert first not in gc.get_referents(purgatory)
assert purgatory.timer.cancel_many([first]) == 1  # nothing but an event can end it now
assert first in gc.get_referents(purgatory)
second = watch(purgatory)
assert second in gc.get_referents(purgatory)
purgatory.shutdown()
"""
    )


@pytest.mark.parametrize("make", MAKES)
def test_what_fails_after_its_purgatory_is_gone_is_told_to_its_on_error__rule8_P8(make: str) -> None:
    """The timer has it: it must not be taken for garbage."""
    run_script(
        NODE
        + f"""
class Fails(Op):
    def on_complete(self):
        raise ValueError("planned")

def plant(seen):
    purgatory = {MAKES[make].format("on_error=lambda operation, error: seen.append((operation, str(error)))")}
    timer, operation = purgatory.timer, Fails(5)
    operation.purgatory = purgatory
    purgatory.try_complete_else_watch(operation, ["key"])
    if not purgatory.num_delayed:
        timer.add(operation)
    del operation.purgatory
    gone = weakref.ref(purgatory)
    if is_in_a_cycle:
        held = [purgatory]
        held.append(held)
    return timer, gone

for is_in_a_cycle in (False, True):
    seen = []
    timer, gone = plant(seen)
    gc.collect()
    assert gone() is None
    if isinstance(timer, ManualTimer):
        timer.advance(5)
    elif "polled" in {make!r}:
        wait_until(lambda: (timer.advance_clock(1), seen)[1])
    wait_until(lambda: seen)
    [(operation, text)] = seen
    assert operation.is_expired and text == "planned"
    timer.shutdown()
"""
    )


@pytest.mark.parametrize("driver", ["ManualTimer()", 'SystemTimer("x", reaper=False)'])
def test_a_check_that_was_put_off_on_a_timer_that_nothing_drives_keeps_nothing_alive__rule8(driver: str) -> None:
    run_script(
        NODE
        + f"""
def plant():
    lock = threading.RLock()
    purgatory = DelayedOperationPurgatory("p", {driver})
    operation = Op(HOUR, lock)
    with Stranger(lock):
        purgatory.try_complete_else_watch(operation, ["key"])
        purgatory.check_and_complete("key")
    assert len(purgatory.timer) == 2  # its deadline, and the check
    operation.purgatory = purgatory
    return [weakref.ref(one) for one in (purgatory, operation, purgatory.timer)]

gone = plant()
gc.collect()
assert [one() for one in gone] == [None] * 3
"""
    )


def test_a_check_that_a_try_asked_for_keeps_its_purgatory_whole__rule8_P6() -> None:
    """The thread makes it when its outermost try is over: until then it reads the lists, held or not."""
    run_script(
        NODE
        + """
ended = []

class Ends(Op):
    def on_complete(self):
        ended.append((self.mark, sorted(vars(self))))

class Asks(Op):
    def try_complete(self):
        if not hasattr(self, "asked"):
            self.asked = True
            inner = DelayedOperationPurgatory("inner", ManualTimer(), timer_enabled=False)
            waiting = Ends(HOUR)
            waiting.mark, waiting.purgatory = 7, inner
            inner.try_complete_else_watch(waiting, ["key"])
            waiting.is_ready = True
            assert inner.check_and_complete("key") == 0 and not ended
        return False

class Outer(Op):
    def try_complete(self):
        if not self.tries:
            self.tries = 1
            outer.try_complete_else_watch(Asks(), ["asks"])
            gc.collect()  # nothing but the check that is still to be made refers to the inner purgatory
        return False

outer = DelayedOperationPurgatory("outer", ManualTimer(), timer_enabled=False)
outer.try_complete_else_watch(Outer(), ["outer"])
[(mark, attributes)] = ended
assert mark == 7 and {"log", "mark", "purgatory"} <= set(attributes), attributes
"""
    )


def test_an_await_that_nothing_can_end_is_garbage_with_its_task__rule8() -> None:
    """The collector may clear what the wait is told with before the operation leaves: a function would crash then."""
    run_script(
        NODE
        + """
async def waits(make):
    purgatory = make()
    operation = Op(HOUR)
    operation.purgatory = purgatory
    seen.append([weakref.ref(purgatory), weakref.ref(operation)])
    await purgatory.wait(operation, ["key", (1, purgatory)])

seen = []

async def main():
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)  # "task was destroyed"
    makes = [
        lambda: DelayedOperationPurgatory("p", ManualTimer()),
        lambda: DelayedOperationPurgatory("p", ManualTimer(), timer_enabled=False),
        lambda: DelayedOperationPurgatory("p", ManualTimer(on_error=lambda *_: None)),
    ]
    for _ in range(30):
        for make in makes:
            asyncio.ensure_future(waits(make))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(seen) == 90
    for _ in range(3):
        gc.collect()
        await asyncio.sleep(0)
    assert not any(ref() for refs in seen for ref in refs)

asyncio.run(main())
"""
    )
