"""Border rule 4: a thread that waits, or works in Rust for long, has released the GIL."""

import pytest

from borders.harness import run_script


def test_python_goes_on_during_advance_clock__rule4():
    """Another thread's Python code is what ends the wait, after a thousand turns of the interpreter."""
    run_script(
        """
timer = SystemTimer("x", reaper=False)
for pending in (0, 1):
    if pending:
        timer.after(600_000, nop)

    def end():
        for _ in range(1_000):
            time.sleep(0)
        timer.after(0, nop)

    thread = threading.Thread(target=end)
    thread.start()
    assert timer.advance_clock(600_000)
    thread.join()
timer.shutdown()
"""
    )


@pytest.mark.parametrize("executor", ["None", "ThreadPoolExecutor(1)"])
def test_python_goes_on_while_shutdown_waits_for_a_slow_callback__rule4(executor):
    """The callback goes on when another thread's Python code says so."""
    run_script(
        f"""
timer = SystemTimer("x", executor={executor})
running, gate = threading.Event(), threading.Event()
timer.after(0, lambda: (running.set(), gate.wait()))
running.wait()

def end():
    def is_closed():
        try:
            return timer.after(600_000, nop).cancel() is None
        except TimerClosed:
            return True

    wait_until(is_closed)  # this thread's caller is inside its shutdown
    for _ in range(1_000):
        time.sleep(0)
    gate.set()

threading.Thread(target=end).start()
assert timer.shutdown() == []
"""
    )


# Base 4: 1 1 1 1 3, so that a jump to 1364 takes every entry down from level 6 through five cascades.
CASCADE = """
gc.disable()
sys.setswitchinterval(0.0005)
{setup}
batch = timer.add_many(ms(600_000, 1367), nop)
{arrive}
ticker = Ticker()

def runnable_s():
    # How long the ticker ran, or was in the queue for a processor. While it waits for the GIL it is in neither, but for
    # short wake-ups. On a busy machine these add up, so there the test may miss a call that keeps the GIL.
    with open(f"/proc/self/task/{{ticker.native_id}}/schedstat") as stat:
        return sum(map(int, stat.read().split()[:2])) / 1e9

before = sum(timer.stats()["cascaded"])
could_run_s, start = runnable_s(), time.perf_counter()
{call}
seconds, could_run_s = time.perf_counter() - start, runnable_s() - could_run_s
cascaded = sum(timer.stats()["cascaded"]) - before
assert cascaded > 1_000_000 and seconds > 0.02, (seconds, cascaded)
assert could_run_s > 0.3 * seconds, (could_run_s, seconds)
os._exit(0)
"""


def test_python_goes_on_while_advance_clock_cascades_a_million__rule4():
    run_script(
        CASCADE.format(
            setup="""
timer = SystemTimer("x", wheel_size=4, start_ms=0, reaper=False)
gate = threading.Event()
timer.after(0, gate.wait)
timer.advance_clock(0)  # the executor's thread is busy: only the wheel works
""",
            arrive="time.sleep(max(0, 1.5 - timer.now_ms() / 1000))",
            call="timer.advance_clock(0)",
        ),
        timeout=60,
    )


def test_python_goes_on_while_a_manual_timer_cascades_a_million__rule4_T15():
    run_script(CASCADE.format(setup="timer = ManualTimer(wheel_size=4)", arrive="", call="timer.advance(1365)"))


def test_python_goes_on_while_a_shutdown_cascades_a_million__rule4_T11():
    """The last advance of a shutdown is native work too."""
    run_script(
        CASCADE.format(
            setup="timer = SystemTimer('x', wheel_size=4, start_ms=0, reaper=False)\ntimer.after(0, time.sleep, 60)",
            arrive="time.sleep(max(0, 1.36 - timer.now_ms() / 1000))",
            call="timer.advance_clock(0)",
        ),
        timeout=60,
    )


def test_two_threads_may_wait_in_advance_clock_and_neither_holds_the_other_up__rule4():
    run_script(
        """
timer = SystemTimer("x", reaper=False)
ended = []

def drive(limit_ms):
    with contextlib.suppress(TimerClosed):
        assert not timer.advance_clock(limit_ms)
    ended.append(limit_ms)

threads = [threading.Thread(target=drive, args=(limit_ms,)) for limit_ms in (600_000, 600_000, 100, 50)]
for thread in threads:
    thread.start()
for thread in threads[2:]:
    thread.join()
assert sorted(ended) == [50, 100], ended  # two threads are still waiting
timer.shutdown()
for thread in threads:
    thread.join()
"""
    )


def test_the_wheel_goes_on_while_the_main_thread_spins_in_python__rule4_T8():
    """By itself every 10 ms at the latest, when the reaper takes over; so there are 40 steps in 400 ms, or more."""
    run_script(
        """
timer = SystemTimer("x")
ran = []
for i in range(400):
    timer.after(i, ran.append, i)
end = time.monotonic() + 0.8
seen = set()
while time.monotonic() < end:
    seen.add(len(timer))
assert len(seen) > 20 and len(timer) == 0, seen
assert ran == list(range(400))
timer.shutdown()
"""
    )


def test_a_slow_callback_stops_neither_the_wheel_nor_what_comes_later__rule4_T8():
    run_script(
        """
timer = SystemTimer("x")
ran = []
running = threading.Event()
timer.after(0, lambda: (running.set(), time.sleep(1)))
running.wait()
for i in range(500):
    timer.after(i, ran.append, i)
time.sleep(0.7)
stats = timer.stats()
assert ran == [] and stats["pending"] == 0 and stats["executor_depth"] == 500 and stats["running"] == 1, stats
wait_until(lambda: len(ran) == 500, limit=5)
assert ran == list(range(500))
timer.shutdown()
"""
    )
