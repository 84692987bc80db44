"""The table of keys: no event is lost when a key is removed and added again, while other threads look it up."""

import gc
import sys
import weakref
from collections.abc import Callable

import pytest

from purgatory.operations import EMPTY, Op, counts, together
from purgatory.scripts import run_script
from tickwheel import DelayedOperationPurgatory
from tickwheel.testing import ManualTimer

pytestmark = pytest.mark.timeout(40)


class Stop:
    """A key in whose comparison a thread stops, once, until it is told to go on."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.in_eq: Callable[[], object] | None = None

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        call, self.in_eq = self.in_eq, None
        if call:
            call()
        return isinstance(other, Stop) and self.value == other.value


@pytest.fixture
def purgatory() -> DelayedOperationPurgatory:
    return DelayedOperationPurgatory("table", ManualTimer())


def test_a_check_whose_key_went_and_came_again_during_the_look_up_finds_the_new_operation__P3_P7(
    purgatory: DelayedOperationPurgatory,
) -> None:
    """The watch is complete before the check compares: what waits then must be tried."""
    stored, old, new = Stop(1), Op(), Op()
    purgatory.try_complete_else_watch(old, [stored])

    def replace() -> None:
        assert old.cancel()
        purgatory.try_complete_else_watch(new, [Stop(1)])
        new.is_ready = True

    stored.in_eq = replace
    assert purgatory.check_and_complete(Stop(1)) == 1
    assert counts(purgatory) == EMPTY


def test_a_check_whose_key_got_a_second_operation_during_the_look_up_finds_both__P3_P7(
    purgatory: DelayedOperationPurgatory,
) -> None:
    stored, old, new = Stop(1), Op(ready=False), Op()
    purgatory.try_complete_else_watch(old, [stored])

    def join() -> None:
        purgatory.try_complete_else_watch(new, [Stop(1)])
        old.is_ready = new.is_ready = True

    stored.in_eq = join
    assert purgatory.check_and_complete(Stop(1)) == 2


def test_a_watch_whose_key_goes_during_the_look_up_is_found_by_the_next_check__P3_P7(
    purgatory: DelayedOperationPurgatory,
) -> None:
    stored, old, new = Stop(1), Op(), Op()
    purgatory.try_complete_else_watch(old, [stored])
    stored.in_eq = old.cancel
    purgatory.try_complete_else_watch(new, [Stop(1)])
    assert counts(purgatory) == (1, 1, 1, 1)
    new.is_ready = True
    assert purgatory.check_and_complete(Stop(1)) == 1
    assert counts(purgatory) == EMPTY


def test_two_who_put_the_same_new_key_in_at_once_share_it__P7(purgatory: DelayedOperationPurgatory) -> None:
    """A stranger key of the same hash makes both compare before either has put its key in."""
    stored, one, two = Stop(0), Op(), Op()
    purgatory.try_complete_else_watch(Op(), [stored])
    stored.in_eq = lambda: purgatory.try_complete_else_watch(one, [Stop(1)])
    purgatory.try_complete_else_watch(two, [Stop(1)])
    assert counts(purgatory) == (3, 3, 3, 2)
    one.is_ready = two.is_ready = True
    assert purgatory.check_and_complete(Stop(1)) == 2


def test_a_key_is_held_while_its_watching_call_still_tries__P3_P7(purgatory: DelayedOperationPurgatory) -> None:
    """The first try: nothing is on a list yet, and the key is known already."""

    class Looks(Op):
        def try_complete(self) -> bool:
            found.append((purgatory.stats()["keys"], purgatory.check_and_complete("key")))
            return super().try_complete()

    found: list[tuple[int, int]] = []
    purgatory.try_complete_else_watch(Looks(), ["key"])
    assert found == [(0, 0), (1, 0)]


def test_a_list_that_is_emptied_under_a_check_and_filled_again__P3(purgatory: DelayedOperationPurgatory) -> None:
    """The check holds the key's number while its list goes and another comes."""

    class Replaces(Op):
        def on_complete(self) -> None:
            super().on_complete()
            replaced.append(purgatory.try_complete_else_watch(fresh, ["key"]))

    replaced: list[bool] = []
    fresh = Op()
    first = Replaces()
    purgatory.try_complete_else_watch(first, ["key"])
    first.is_ready = True
    assert purgatory.check_and_complete("key") == 1
    assert (replaced, counts(purgatory)) == ([False], (1, 1, 1, 1))
    fresh.is_ready = True
    assert purgatory.check_and_complete("key") == 1
    assert counts(purgatory) == EMPTY


def test_keys_come_and_go_in_many_threads_and_no_event_is_lost__P3_P6() -> None:
    """Each thread's operation is often the key's last, while the others look the same key up."""
    purgatory = DelayedOperationPurgatory("table", ManualTimer())
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    everything: list[Op] = []

    def use(thread: int) -> None:
        for turn in range(400):
            operation = Op()
            everything.append(operation)
            purgatory.try_complete_else_watch(operation, [(turn // 50,), ("own", thread)])
            operation.is_ready = True
            purgatory.check_and_complete((turn // 50,))

    try:
        together(*[lambda thread=thread: use(thread) for thread in range(6)])
    finally:
        sys.setswitchinterval(interval)
    assert all(operation.log == ["complete"] for operation in everything), "an event was lost"
    assert counts(purgatory) == EMPTY
    assert purgatory.stats()["completed"] == 2400


def test_a_destructor_of_a_key_may_use_the_purgatory__P7() -> None:
    """In a process of its own: run under the table's lock, it would wait for that with the GIL in hand."""
    run_script(
        """
purgatory = DelayedOperationPurgatory("table", ManualTimer())
seen = []

class Last:
    def __del__(self):
        seen.append(purgatory.check_and_complete("other"))
        seen.append(purgatory.try_complete_else_watch(fresh, ["fresh"]))
        seen.append(threading.current_thread())

other, fresh, operation = Op(), Op(), Op()
purgatory.try_complete_else_watch(other, ["other"])
other.is_ready = True
purgatory.try_complete_else_watch(operation, [Last()])
assert operation.cancel()
assert seen == [1, False, threading.current_thread()]
assert counts(purgatory) == (1, 1, 1, 1)
"""
    )


@pytest.mark.parametrize("end", ["cancel", "force_complete", "cancel_for_key", "check", "expire", "refused", "failed"])
def test_whatever_ends_it_the_key_objects_are_released__P3(end: str) -> None:
    class Plain:
        pass

    timer = ManualTimer()
    purgatory = DelayedOperationPurgatory("table", timer)
    operation = Op(5)
    keys: list[Plain] = [Plain() for _ in range(4)]
    watches = [weakref.ref(key) for key in keys]
    if end == "refused":
        purgatory.shutdown()
        with pytest.raises(Exception, match="shut down"):
            purgatory.try_complete_else_watch(operation, keys)
    elif end == "failed":
        with pytest.raises(TypeError, match="unhashable"):
            purgatory.try_complete_else_watch(operation, [*keys, []])  # type: ignore[list-item]
    else:
        purgatory.try_complete_else_watch(operation, keys)
    operation.is_ready = end == "check"
    calls: dict[str, Callable[[], object]] = {
        "cancel": operation.cancel,
        "force_complete": operation.force_complete,
        "cancel_for_key": lambda: purgatory.cancel_for_key(keys[1]),
        "check": lambda: purgatory.check_and_complete(keys[2]),
        "expire": lambda: timer.advance(5),
    }
    calls.get(end, lambda: None)()
    del calls
    keys.clear()
    gc.collect()
    assert [watch() for watch in watches] == [None] * 4
    assert counts(purgatory) == EMPTY
