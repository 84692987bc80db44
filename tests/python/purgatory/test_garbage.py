"""Border rule 8: what waits is alive, held or not; what has ended is freed, whatever cycle it is part of."""

import pytest

from purgatory.scripts import run_script


def test_the_collector_never_takes_what_waits__rule8():
    run_script(
        """
for make in (lambda: SystemTimer("x"), ManualTimer):
    timer = make()
    purgatory = DelayedOperationPurgatory("x", timer)
    ended = []

    class Ends(Op):
        def on_complete(self):
            ended.append(self.number)

    def plant(number):
        operation = Ends(150 if number % 2 else HOUR, threading.RLock())
        operation.number, operation.me, operation.purgatory = number, operation, purgatory
        purgatory.try_complete_else_watch(operation, [("key", number), object()])

    for number in range(60):
        plant(number)
        gc.collect()
    if isinstance(timer, ManualTimer):
        timer.advance(150)
    wait_until(lambda: (gc.collect(), len(ended))[1] >= 30)
    assert sorted(ended) == list(range(1, 60, 2))
    assert counts(purgatory) == (30, 30, 60, 60)
    assert [operation.number for operation in purgatory.shutdown()] == list(range(0, 60, 2))
    timer.shutdown()
"""
    )


ENDS = {
    "complete": "operation.force_complete()",
    "check": "operation.is_ready = True; purgatory.check_and_complete('key')",
    "expire": "purgatory.timer.advance(10_000)",
    "cancel": "operation.cancel()",
    "cancel_for_key": "purgatory.cancel_for_key('key')",
    "shutdown": "purgatory.shutdown()",
}


@pytest.mark.parametrize("end", ENDS)
def test_after_the_end_a_cycle_of_operation_purgatory_lock_key_and_on_error_goes__rule8(end):
    run_script(
        f"""
class Key:
    pass

class Lock:
    def acquire(self, blocking=True):
        return True

    def release(self):
        pass

class Owner:
    def failed(self, *_):
        pass

def plant():
    owner, key, lock = Owner(), Key(), Lock()
    purgatory = owner.purgatory = DelayedOperationPurgatory("x", ManualTimer(on_error=owner.failed))
    operation = key.operation = lock.operation = Op(1000, lock)
    operation.owner, operation.key = owner, key
    purgatory._watch(operation, [key, "key"], lambda how: operation)
    gc.collect()
    assert len(purgatory) == 1
    {ENDS[end]}
    assert counts(purgatory) == EMPTY
    return [weakref.ref(thing) for thing in (owner, key, lock, operation, purgatory)]

gone = plant()
gc.collect()
assert [thing() for thing in gone] == [None] * 5
"""
    )


DROPS = {
    "not_enabled": ('DelayedOperationPurgatory("x", ManualTimer(), False)', ""),
    "not_enabled_own": ('DelayedOperationPurgatory("x", timer_enabled=False)', ""),
    "own": ('DelayedOperationPurgatory("x")', ""),
    "own_shut_down": ('DelayedOperationPurgatory("x")', "purgatory.timer.shutdown()"),
    "manual": ('DelayedOperationPurgatory("x", ManualTimer())', ""),
    "manual_shut_down": ('DelayedOperationPurgatory("x", ManualTimer())', "purgatory.timer.shutdown()"),
    "driven": ('DelayedOperationPurgatory("x", SystemTimer("x", reaper=False))', ""),
    "deadline_taken": ('DelayedOperationPurgatory("x", ManualTimer())', "purgatory.timer.cancel_many([operation])"),
    "purgatory_shut_down": ('DelayedOperationPurgatory("x")', "purgatory.shutdown()"),
}


@pytest.mark.parametrize("drop", DROPS)
def test_when_nobody_can_check_and_no_deadline_can_come_what_waits_goes__rule8(drop):
    make, then = DROPS[drop]
    run_script(
        f"""
before = native_threads()

def plant():
    purgatory = {make}
    operation = Op(40)
    key = Op(1)
    purgatory.try_complete_else_watch(operation, [key, "key"])
    {then}
    return [weakref.ref(thing) for thing in (operation, key, purgatory)]

gone = plant()
wait_until(lambda: (gc.collect(), all(thing() is None for thing in gone))[1], limit=2, what="all to go")
wait_until(lambda: native_threads() == before)
"""
    )


def test_a_dropped_purgatorys_operations_still_expire_where_a_deadline_can_come__rule8():
    run_script(
        """
ended = []

class Ends(Op):
    def on_expiration(self):
        ended.append(1)

def plant(timer):
    purgatory = DelayedOperationPurgatory("x", timer)
    purgatory.try_complete_else_watch(Ends(60), ["key", object()])
    return weakref.ref(purgatory)

given = SystemTimer("given")
gone = [plant(None), plant(given)]
gc.collect()
assert [thing() for thing in gone] == [None, None]
wait_until(lambda: len(ended) == 2)
assert len(given) == 0
given.shutdown()
"""
    )


def test_on_error_of_a_dropped_purgatory_is_whole_while_something_waits__rule8():
    """The collector may not take apart what an operation that waits will still call."""
    run_script(
        """
seen = []

class Owner:
    def __init__(self, timer):
        self.state = "whole"
        self.purgatory = DelayedOperationPurgatory("x", timer(self.failed))

    def failed(self, operation, error):
        seen.append(vars(self).get("state"))

class Fails(Op):
    def on_complete(self):
        raise ValueError

def plant(timer):
    owner = Owner(timer)
    owner.purgatory.try_complete_else_watch(Fails(50), ["key"])
    return weakref.ref(owner)

made = []

def manual(on_error):
    made.append(ManualTimer(on_error=on_error))
    return made[-1]

def system(on_error):
    made.append(SystemTimer("x", on_error=on_error))
    return made[-1]

gone = [plant(manual), plant(system)]
gc.collect()
made[0].advance(50)
made.pop(0)
wait_until(lambda: len(seen) == 2)
assert seen == ["whole", "whole"], seen
made.pop().shutdown()  # it has the method of its owner
wait_until(lambda: (gc.collect(), [thing() for thing in gone] == [None, None])[1], limit=2, what="the owners to go")
"""
    )


def test_an_owner_whose_method_is_on_error_goes_with_what_only_an_event_could_end__rule8():
    run_script(
        """
class Owner:
    def __init__(self):
        self.purgatory = DelayedOperationPurgatory("x", ManualTimer(on_error=self.failed), timer_enabled=False)
        self.purgatory.try_complete_else_watch(Op(), ["key"])

    def failed(self, *_):
        pass

gone = weakref.ref(Owner())
gc.collect()
assert gone() is None, "no key can be checked, and no deadline comes"
"""
    )


def test_slots_dict_weakref_and_destructors_that_call_back_or_resurrect__rule8():
    run_script(
        """
purgatory = DelayedOperationPurgatory("x", ManualTimer())

class Slots(DelayedOperation):
    __slots__ = ("mine",)

    def try_complete(self):
        return False

class Last(Op):
    def __del__(self):
        deleted.append((self.is_completed, purgatory.check_and_complete("other"), repr(self), self.cancel()))
        if self.revives:
            self.revives = False
            saved.append(self)

deleted, saved = [], []
slots = Slots(5)
slots.mine = 1
assert not hasattr(slots, "__dict__") and weakref.ref(slots)() is slots
purgatory.try_complete_else_watch(slots, ["key"])
purgatory.timer.advance(5)
assert slots.is_completed

for revives in (False, True):
    operation = Last(5)
    operation.revives = revives
    purgatory.try_complete_else_watch(operation, ["key"])
    del operation
    gc.collect()
    assert len(deleted) == revives
    purgatory.timer.advance(5)
    assert len(deleted) == revives + 1, deleted
assert deleted[0] == (True, 0, "<Last expired>", False)
operation = saved.pop()
assert operation.is_completed and not operation.force_complete()
assert purgatory.try_complete_else_watch(operation, ["key"]) is False

# One that was never watched completes itself in its destructor; one that is cancelled is watched again by its own.
class Again(Op):
    def __del__(self):
        if not self.is_completed:
            purgatory.try_complete_else_watch(self, ["again"])

again = Again(50)
del again
assert counts(purgatory) == (1, 1, 1, 1)
purgatory.timer.advance(50)
assert counts(purgatory) == EMPTY
"""
    )


def test_collections_at_any_moment_while_threads_use_it__rule8():
    """Finalizers run in the middle of whatever allocates, and use the purgatory themselves."""
    run_script(
        """
purgatory = DelayedOperationPurgatory("x")
gc.set_threshold(5, 2, 2)

class Cycle:
    def __init__(self):
        self.me = self

    def __del__(self):
        purgatory.check_and_complete("all")
        operation = Op(HOUR)
        purgatory.try_complete_else_watch(operation, ["all", 1])
        operation.cancel()

def use():
    for turn in range(150):
        Cycle()
        operation = Op(1 if turn % 3 == 0 else HOUR, threading.RLock())
        operation.me = operation
        purgatory.try_complete_else_watch(operation, ["all", turn % 5])
        if turn % 3 == 1:
            operation.is_ready = True
        elif turn % 3 == 2:
            operation.cancel()
        purgatory.check_and_complete(turn % 5)

together(*[use] * 4)
gc.collect()
wait_until(lambda: len(purgatory) == 0)
assert counts(purgatory) == EMPTY
purgatory.shutdown()
"""
    )


def test_an_operation_that_is_its_own_lock_goes__rule8():
    run_script(
        """
class Own(Op):
    __slots__ = ()

    def __init__(self):
        super().__init__(1000, self)

    def acquire(self, blocking=True):
        return True

    def release(self):
        pass

def plant():
    operation = Own()
    operation.is_ready = True
    assert DelayedOperationPurgatory("x", ManualTimer()).try_complete_else_watch(operation, ["key"])

plant()
gc.collect()
# Not by a weak reference: the collector takes that away although the object stays.
assert not any(type(found) is Own for found in gc.get_objects())
"""
    )


def test_a_check_that_was_put_off_keeps_no_garbage__rule8():
    run_script(
        """
class Held:
    def acquire(self, blocking=True):
        return False

    def release(self):
        pass

def plant():
    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("x", timer)
    operation = Op(1000, Held())
    operation.own_timer = timer
    purgatory.try_complete_else_watch(operation, ["key"])
    assert len(timer) == 2
    return [weakref.ref(thing) for thing in (operation, purgatory, timer)]

gone = plant()
gc.collect()
assert [thing() for thing in gone] == [None] * 3
"""
    )
