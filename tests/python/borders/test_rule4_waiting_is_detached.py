"""Border rule 4: whoever waits or works in Rust for long has let the GIL go."""

import pytest

from borders.harness import run_script


def test_python_goes_on_during_advance_clock__rule4():
    run_script(
        """
ticker = Ticker()
timer = SystemTimer("x", reaper=False)
share, seconds = ticker.share(lambda: timer.advance_clock(1_000))
assert 0.99 < seconds < 1.5 and share > 0.3, (share, seconds)
timer.after(60_000, nop)
share, seconds = ticker.share(lambda: timer.advance_clock(500))
assert 0.49 < seconds < 1 and share > 0.3, (share, seconds)
timer.shutdown()
"""
    )


@pytest.mark.parametrize("executor", ["None", "ThreadPoolExecutor(1)"])
def test_python_goes_on_while_shutdown_waits_for_a_slow_callback__rule4(executor):
    run_script(
        f"""
ticker = Ticker()
timer = SystemTimer("x", executor={executor})
running = threading.Event()
timer.after(0, lambda: (running.set(), time.sleep(0.8)))
running.wait()
share, seconds = ticker.share(timer.shutdown)
assert 0.5 < seconds < 1.5 and share > 0.3, (share, seconds)
"""
    )


# Base 4: 1 1 1 1 3, so that a jump to 1364 takes every entry down from level 6 through five cascades.
CASCADE = """
ticker = Ticker()
gc.disable()
sys.setswitchinterval(0.0005)
start = time.perf_counter()
{setup}
timer.add_many(ms(300_000, 1367), nop)
if time.perf_counter() - start < 0.4:  # an optimized build
    timer.add_many(ms(700_000, 1367), nop)
{arrive}
share, seconds = ticker.share({call})
cascaded = timer.stats()["cascaded"]
print(share, seconds, cascaded)
assert sum(cascaded) > 1_000_000 and seconds > 0.02, (seconds, cascaded)
assert share > 0.3, (share, seconds)
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
            call="lambda: timer.advance_clock(0)",
        ),
        timeout=60,
    )


def test_python_goes_on_while_a_manual_timer_cascades_a_million__rule4_T15():
    run_script(CASCADE.format(setup="timer = ManualTimer(wheel_size=4)", arrive="", call="lambda: timer.advance(1365)"))


def test_python_goes_on_while_a_shutdown_cascades_a_million__rule4_T11():
    """The last advance of a shutdown is native work too."""
    run_script(
        CASCADE.format(
            setup="timer = SystemTimer('x', wheel_size=4, start_ms=0, reaper=False)\ntimer.after(0, time.sleep, 60)",
            arrive="time.sleep(max(0, 1.36 - timer.now_ms() / 1000))",
            call="lambda: timer.advance_clock(0)",
        ),
        timeout=60,
    )


def test_two_threads_may_wait_in_advance_clock_and_neither_holds_the_other_up__rule4():
    run_script(
        """
timer = SystemTimer("x", reaper=False)
ticker = Ticker()
times = []

def drive(limit_ms):
    start = time.perf_counter()
    timer.advance_clock(limit_ms)
    times.append((limit_ms, time.perf_counter() - start))

threads = [threading.Thread(target=drive, args=(limit_ms,)) for limit_ms in (600, 600, 200, 200)]
for thread in threads:
    thread.start()
share, _ = ticker.share(lambda: [thread.join() for thread in threads])
assert share > 0.2, share
for limit_ms, seconds in times:
    assert limit_ms / 1000 - 0.01 < seconds < limit_ms / 1000 + 0.5, times
timer.shutdown()
"""
    )


def test_the_wheel_goes_on_while_the_main_thread_spins_in_python__rule4_T8():
    run_script(
        """
timer = SystemTimer("x")
ran = []
for i in range(200):
    timer.after(i, ran.append, i)
before = timer.stats()
end = time.monotonic() + 0.6
while time.monotonic() < end:
    pass
after = timer.stats()
assert after["wake_ups"] > before["wake_ups"] + 20 and after["pending"] == 0
assert ran == list(range(200))
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
