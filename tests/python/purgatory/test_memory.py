"""P5: no purge. What was completed through one of its keys leaves nothing on the others (apache/kafka#19928)."""

import os

import pytest

from purgatory.scripts import run_script

LEAN = """
class Lean(DelayedOperation):
    __slots__ = ("is_ready",)

    def try_complete(self):
        return is_ready and self.force_complete()

is_ready = False

class KeyObject:
    __slots__ = ("__weakref__",)

def rss_kb():
    ctypes.CDLL(None).malloc_trim(0)  # what C's allocator keeps for the next round is 8 MB or nothing, by chance
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

def bound():
    return counts(purgatory), len(purgatory.timer)
"""


@pytest.mark.parametrize("count", [int(os.environ.get("TICKWHEEL_MANY", "200_000"))])
def test_many_operations_under_three_keys_completed_through_one_leave_nothing__P5(count):
    """In rounds, as a server has them: 20,000 wait at a time. `TICKWHEEL_MANY=1_000_000` for a million."""
    out = run_script(
        LEAN
        + f"""
count, wave = {count}, 20_000
timer = SystemTimer("memory")
purgatory = DelayedOperationPurgatory("memory", timer)
shared = [KeyObject() for _ in range(100)]
references = None
kbs = []
for turn in range(count // wave):
    is_ready = False
    keys = []
    watches = []
    for number in range(wave):
        operation = Lean(HOUR)
        key = KeyObject()
        purgatory.try_complete_else_watch(operation, [("own", turn, number), key, shared[number % 100]])
        if number % 50 == 0:
            watches.append((weakref.ref(operation), weakref.ref(key)))
    if turn == 1:
        references = [sys.getrefcount(key) for key in shared]
    del operation, key
    assert bound() == ((wave, wave, 3 * wave, 2 * wave + 100), wave)
    is_ready = True
    done = sum(purgatory.check_and_complete(("own", turn, number)) for number in range(wave))
    assert done == wave
    assert bound() == (EMPTY, 0), bound()
    assert all(operation() is None and key() is None for operation, key in watches), "something is held"
    kbs.append(rss_kb())
assert [sys.getrefcount(key) for key in shared] == [reference - 1 for reference in references], "a key is held"
stats = purgatory.stats()
assert (stats["completed"], stats["expired"], stats["cancelled"]) == (count, 0, 0)
print(kbs)
assert kbs[-1] < kbs[1] + 2_000, kbs
timer.shutdown()
""",
        timeout=110,
    )
    assert out


def test_a_hundred_thousand_that_wait_at_once_give_their_memory_back__P5():
    """The purgatory's own part: what is left is at most a small part of what they took."""
    run_script(
        LEAN
        + """
purgatory = DelayedOperationPurgatory("memory", ManualTimer())

def fill(count):
    for number in range(count):
        purgatory.try_complete_else_watch(Lean(HOUR), [number, -1 - number, "all"])

fill(1_000)
is_ready = True
assert purgatory.check_and_complete("all") == 1_000
is_ready = False
gc.collect()
start = rss_kb()
fill(100_000)
full = rss_kb()
assert counts(purgatory) == (100_000, 100_000, 300_000, 200_001)
is_ready = True
assert purgatory.check_and_complete("all") == 100_000
assert bound() == (EMPTY, 0)
gc.collect()
end = rss_kb()
print(start, full, end)
assert full - start > 20_000
assert end - start < (full - start) * 0.3, (start, full, end)
""",
        timeout=60,
    )


def test_failed_and_cancelled_and_expired_and_refused_ones_leave_nothing_either__P5():
    run_script(
        LEAN
        + """
class Fails(Lean):
    def try_complete(self):
        raise ValueError

timer = ManualTimer(max_pending=10)
purgatory = DelayedOperationPurgatory("memory", timer)
marker = KeyObject()
alive = weakref.WeakSet()

def use(turn):
    keys = [(turn, number, marker) for number in range(3)]
    for number in range(20):
        operation = (Fails if number % 5 == 0 else Lean)(number)
        alive.add(operation)
        try:
            purgatory.try_complete_else_watch(operation, keys)
        except (ValueError, TimerFull):
            continue
        if number % 5 == 1:
            assert operation.cancel()
    assert len(purgatory.cancel_for_key(keys[1])) == 10
    purgatory.try_complete_else_watch(Lean(1), keys)
    timer.advance(5)
    assert bound() == (EMPTY, 0), bound()

counted = []
for turn in range(300):
    use(turn)
    if turn in (100, 299):
        gc.collect()
        counted.append((sys.getrefcount(marker), len(alive), rss_kb(), len(gc.get_objects())))
(markers, live, kb, objects), (markers_2, live_2, kb_2, objects_2) = counted
print(counted)
assert (markers, live) == (markers_2, live_2) == (2, 0), counted
assert kb_2 < kb + 3_000 and abs(objects - objects_2) < 30, counted
"""
    )
