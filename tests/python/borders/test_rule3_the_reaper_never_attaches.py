"""Border rule 3: only the executor's thread has a Python thread state, and it keeps it."""

from borders.harness import run_script


def test_the_reaper_never_takes_the_gil_whatever_it_does__rule3():
    run_script(
        """
def fails():
    raise ValueError

pool = ThreadPoolExecutor(2)
closed = ThreadPoolExecutor(1)
closed.shutdown()
with loop_in_a_thread() as loop:
    for executor in (None, pool, loop, closed):
        for precision in ("exact", "tick"):
            errors = []
            on_error = lambda *error: errors.append(error)
            timer = SystemTimer("x", executor=executor, precision=precision, on_error=on_error)
            for i in range(300):
                timer.after(i % 50, nop)
                timer.after(i % 50, fails)
                timer.add(TimerTask(i % 50, nop, object()))
                timer.after(i % 50, nop).cancel()
            timer.add_many(array.array("q", range(60)), nop)
            timer.add_many(array.array("q", range(60)), nop).cancel_all()
            wait_until(lambda: len(timer) == 0)
            timer.after(60_000, nop)
            timer.shutdown()
            assert len(errors) >= 300
        timer = SystemTimer("x", executor=executor, on_error=nop)
        task = timer.after(20, nop)
        del timer, task
        gc.collect()
wait_until(lambda: not _native._running_timers)
assert _native._attached_by_reaper() == 0
"""
    )


def test_the_reaper_releases_tasks_while_another_thread_holds_the_gil_in_c__rule3():
    """No bytecode runs between the sleep with the GIL held and the look at the counters, so no other thread gets it.
    The counters are read under the timer's lock: where that is taken, the GIL is let go, and `ran` grows."""
    run_script(
        """
sys.setswitchinterval(100)
sleep_with_the_gil = ctypes.PyDLL(None).usleep
timer = SystemTimer("x", wheel_size=4)
ran = []
for _ in range(100):
    timer.after(60, ran.append, 1)
    timer.after(90, ran.append, 1)
sleep_with_the_gil(300_000)
stats = timer.stats()
assert stats["expired"] == 0 and stats["pending"] == 0 and stats["executor_depth"] == 200, stats
sys.setswitchinterval(0.005)
timer.shutdown()
assert len(ran) == 200 and _native._attached_by_reaper() == 0
"""
    )


def test_the_executor_keeps_its_thread_its_name_and_its_thread_locals_between_callbacks__rule3_T8():
    run_script(
        """
local = threading.local()
seen = []

def look():
    local.count = getattr(local, "count", 0) + 1
    seen.append((threading.get_ident(), threading.get_native_id(), threading.current_thread(), local.count))

with SystemTimer("kitchen") as timer:
    for i in range(50):
        timer.after(0, look)
        wait_until(lambda: len(seen) == i + 1)
        if i % 10 == 0:
            time.sleep(0.01)
assert len({entry[:3] for entry in seen}) == 1
thread = seen[0][2]
assert thread.name == "executor-kitchen" and isinstance(thread, threading.Thread) and thread.daemon
assert [entry[3] for entry in seen] == list(range(1, 51))
assert thread.ident != threading.get_ident()
thread.join(5)
assert not thread.is_alive()
"""
    )


def test_the_system_shows_which_timer_an_executor_thread_belongs_to__rule3_T8():
    run_script(
        """
seen = []

def look():
    with open("/proc/thread-self/comm") as comm:
        seen.append((comm.read().rstrip("\\n"), threading.current_thread().name))

with SystemTimer("kitchen") as kitchen, SystemTimer("orders-of-the-north\\0") as orders:
    for timer in (kitchen, orders):
        timer.after(0, look)
        wait_until(lambda: len(seen) == (1 if timer is kitchen else 2))
assert seen == [
    ("exec-kitchen", "executor-kitchen"), ("exec-orders-of-", "executor-orders-of-the-north\\0")
], seen
"""
    )


def test_a_timer_has_two_threads_and_they_end_with_it__rule3_T11():
    run_script(
        """
before = native_threads()
timer = SystemTimer("x")
assert native_threads() == before + 2 and tid_of("reaper-x")
driven = SystemTimer("y", reaper=False)
assert native_threads() == before + 3
pooled = SystemTimer("z", executor=ThreadPoolExecutor(1))
assert native_threads() == before + 5
for each in (timer, driven, pooled):
    each.shutdown()
wait_until(lambda: native_threads() == before)
"""
    )


def test_a_fire_wakes_the_executor_and_not_the_reaper__rule3_T5():
    """The reaper looks every 10 ms while timers fire. It slept and woke for each of them when it woke the executor."""
    run_script(
        """
def sleeps():
    with open(f"/proc/self/task/{tid_of('reaper-x')}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("voluntary_ctxt_switches"))

timer = SystemTimer("x")
done = threading.Event()
before = sleeps()
start_ms = timer.now_ms() + 20
for i in range(400):
    timer.at(start_ms + i, nop)
timer.at(start_ms + 401, done.set)
assert done.wait(20)
assert sleeps() - before < 150, sleeps() - before
timer.shutdown()
"""
    )


def test_profilers_and_tracers_see_callbacks_and_stay_as_they_were__rule3():
    run_script(
        """
calls = []

def profile(frame, event, _):
    if event == "call":
        calls.append(frame.f_code.co_name)

def seen_callback():
    kept.append((sys.getprofile(), sys.gettrace()))

def trace(frame, event, _):
    return None

kept = []
threading.setprofile(profile)
threading.settrace(trace)
sys.setprofile(profile)
sys.settrace(trace)
with SystemTimer("x") as timer:
    for i in range(20):
        timer.after(i, seen_callback)
    wait_until(lambda: len(kept) == 20)
assert (sys.getprofile(), sys.gettrace()) == (profile, trace)
sys.setprofile(None), sys.settrace(None), threading.setprofile(None), threading.settrace(None)
assert kept == [(profile, trace)] * 20
assert calls.count("seen_callback") == 20
"""
    )


def test_other_threads_get_the_gil_between_the_callbacks_of_a_flood__rule3_T8():
    """A run of callbacks is bounded, in number and in time: here in C, where no switch interval helps."""
    run_script(
        """
sys.setswitchinterval(100)  # only a thread that releases the GIL by itself loses it
timer = SystemTimer("x")
sleep_with_the_gil = ctypes.PyDLL(None).usleep
gate = threading.Event()
timer.after(0, gate.wait)
for _ in range(2_000):
    timer.after(0, sleep_with_the_gil, 500)
wait_until(lambda: timer.stats()["executor_depth"] == 2_000)
gate.set()
turns = 0
start = time.monotonic()
while timer.stats()["executor_depth"] and time.monotonic() < start + 10:
    time.sleep(0)
    turns += 1
assert turns > 20, turns
os._exit(0)
"""
    )
