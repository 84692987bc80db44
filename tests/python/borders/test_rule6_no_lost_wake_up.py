"""Border rule 6: an add that becomes the earliest wakes the reaper, one that does not, does not."""

import pytest

from borders.harness import run_script

# A far one that is pending: none, one in the wheel, one in the same bucket queue soon enough to be the head.
PENDING = {"nothing": "", "far": "timer.after(3_600_000, nop)", "near": "timer.after(30_000, nop)"}


@pytest.mark.parametrize("pending", PENDING)
def test_no_add_to_an_idle_timer_is_lost_ten_thousand_times__rule6(pending):
    run_script(
        f"""
timer = SystemTimer("x")
{PENDING[pending]}
lock = threading.Lock()
lock.acquire()
for turn in range(10_000):
    delay_ms = (0, 0, 0.05, 1)[turn & 3]
    timer.after(delay_ms, lock.release)
    assert lock.acquire(timeout=5), f"the wake-up of turn {{turn}}, {{delay_ms}} ms, was lost"
timer.shutdown(0)
""",
        timeout=60,
    )


def test_an_add_from_another_thread_ends_the_wait_of_advance_clock__rule6():
    run_script(
        """
timer = SystemTimer("x", reaper=False)
added = threading.Semaphore(0)

def add():
    while True:
        added.acquire()
        timer.after(0, nop)

threading.Thread(target=add, daemon=True).start()
for turn in range(2_000):
    added.release()
    start = time.monotonic()
    assert timer.advance_clock(30_000)
    assert time.monotonic() - start < 2, turn
timer.shutdown()
"""
    )


def test_an_earlier_add_or_move_wakes_the_reaper_and_a_later_one_does_not__rule6():
    run_script(
        """
timer = SystemTimer("x")
timer.after(30_000, nop)
later = TimerTask(40_000, nop)
time.sleep(0.05)
before = timer.stats()["wake_ups"]
for i in range(50):
    timer.after(30_001 + i, nop)
    time.sleep(0.001)  # so that the reaper sleeps again, had it been woken
    timer.add(later)
    time.sleep(0.001)
timer.add_many(ms(5_000, 50_000), nop)
time.sleep(0.1)
assert timer.stats()["wake_ups"] <= before + 2, (before, timer.stats())
ran = threading.Event()
earlier = TimerTask(60_000, ran.set)
timer.add(earlier)
assert earlier.cancel()
earlier.__init__(5, ran.set)
timer.add(earlier)
assert ran.wait(5)
ran.clear()
timer.at(timer.now_ms() + 5, ran.set)
assert ran.wait(5)
ran.clear()
timer.add_many(ms(3, 5), lambda view: ran.set())
assert ran.wait(5)
timer.shutdown(0)
"""
    )


@pytest.mark.parametrize("what", ["tasks", "batches"])
@pytest.mark.parametrize("executor", ["None", "pool", "loop"])
def test_what_is_released_together_reaches_the_executor_whatever_its_number__rule6_T8(executor, what):
    """The reaper hands over in steps of about 1000: none of them may leave the executor waiting for another."""
    run_script(
        f"""
def check(executor, count):
    timer = SystemTimer("x", reaper=False, executor=executor)
    ran = []
    if "{what}" == "tasks":
        for i in range(count):
            timer.after(0, ran.append, i)
    else:
        batch = timer.add_many(ms(count, 0), ran.extend)
    while timer.advance_clock(0):
        pass
    wait_until(lambda: sorted(ran) == list(range(count)), limit=2, what=f"{{count}} {what}, got {{len(ran)}}")
    assert timer.shutdown() == []

with loop_in_a_thread() as loop, ThreadPoolExecutor(1) as pool:
    try:
        for count in (1, 2, 64, 65, 999, 1000, 1001, 2000, 3000):
            check({executor}, count)
    except AssertionError as error:
        print(error, flush=True)
        os._exit(1)
"""
    )
