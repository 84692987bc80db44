"""Border rule 2: no thread waits for a native lock with the GIL held; meanwhile other Python threads run."""

from borders.harness import run_script


def test_no_method_waits_with_the_gil_for_a_lock_that_a_sleeping_reaper_holds__rule2():
    """The reaper sleeps with the lock in its hand: every method waits for it, and all wait detached."""
    run_script(
        """
entered, left, go = [], [], threading.Event()

def run(number):
    go.wait()
    name, call = list(calls.items())[number]
    entered.append(name)
    with contextlib.suppress(TimerClosed, ValueError):
        call()
    left.append(name)

COUNT = 19
for number in range(COUNT):  # before the reaper sleeps: on a busy machine this takes as long
    threading.Thread(target=run, args=(number,), daemon=True).start()
timer, batch, tasks = freeze_reaper_with_lock(signal.SIGUSR1)
ticker = Ticker()
end = time.monotonic() + 0.5
calls = {
    "add": lambda: timer.add(TimerTask(60_000, nop)),
    "move": lambda: timer.add(spare),
    "after": lambda: timer.after(60_000, nop),
    "at": lambda: timer.at(60_000, nop),
    "add_many": lambda: timer.add_many(ms(10, 60_000), nop),
    "add_many_2": lambda: timer.add_many(ms(10, 60_000), nop),
    "cancel": tasks[0].cancel,
    "cancel_many": lambda: timer.cancel_many(tasks[1:3]),
    "batch_cancel": lambda: batch.cancel(0),
    "batch_cancel_many": lambda: batch.cancel_many([1, 2]),
    "batch_cancel_all": batch.cancel_all,
    "len": lambda: len(timer),
    "repr": lambda: repr(timer),
    "stats": timer.stats,
    "pending": lambda: timer.pending(limit=1),
    "snapshot": timer.snapshot,
    "add_to_another": lambda: other.add(tasks[4]),
    "shutdown": lambda: timer.shutdown(0),
    "shutdown_2": lambda: timer.shutdown(0),
}
other = SystemTimer("other")
spare = tasks[3]
assert len(calls) == COUNT
go.set()
share, seconds = ticker.share(lambda: time.sleep(end - time.monotonic()))
print(f"{share:.2f} in {seconds:.2f} s, entered {entered}, left {left}", flush=True)
assert not left, "the reaper was not asleep"
assert len(entered) == COUNT
assert seconds < 5 and share > 0.01, (seconds, share, entered[-1:])
os._exit(0)
""",
        timeout=60,
    )


def test_the_end_of_a_periodic_call_does_not_wait_with_the_gil__rule2_T20():
    run_script(
        """
go = threading.Event()

def prepare(timer):
    entered = threading.Event()
    timer.every(1, lambda: (entered.set(), go.wait()))
    assert entered.wait(15)

timer, batch, tasks = freeze_reaper_with_lock(signal.SIGUSR1, prepare)
ticker = Ticker()
end = time.monotonic() + 0.5
go.set()
share, seconds = ticker.share(lambda: time.sleep(end - time.monotonic()))
print(f"{share:.2f} in {seconds:.2f} s", flush=True)
assert seconds < 5 and share > 0.01, (seconds, share)
os._exit(0)
""",
        timeout=60,
    )


def test_dropping_a_timer_does_not_wait_with_the_gil__rule2():
    run_script(
        """
timer, batch, tasks = freeze_reaper_with_lock(signal.SIGUSR1)
ticker = Ticker()
end = time.monotonic() + 0.5
held = [timer]
del timer

def drop():
    held.clear()
    raise AssertionError("the reaper was not asleep")

threading.Thread(target=drop, daemon=True).start()
share, seconds = ticker.share(lambda: time.sleep(end - time.monotonic()))
print(f"{share:.2f} in {seconds:.2f} s", flush=True)
assert seconds < 5 and share > 0.01, (seconds, share)
os._exit(0)
""",
        timeout=60,
    )


def test_python_goes_on_while_threads_use_a_timer_that_cascades_a_million__rule2_T8():
    run_script(
        """
timer = SystemTimer("x", wheel_size=4, start_ms=0)
count = 1_000_000
start = time.perf_counter()
timer.add_many(ms(count // 2, 1367), nop)
quick = time.perf_counter() - start < 0.6
if quick:  # an optimized build
    timer.add_many(ms(count // 2, 1367), nop)
for _ in range(1_000):
    timer.after(60_000 + random.random(), nop)
halt = threading.Event()

def use(turn):
    while not halt.is_set():
        tasks = [timer.after(60_000, nop) for _ in range(10)]
        assert tasks[0].cancel() and timer.cancel_many(tasks) == 9
        len(timer), repr(timer), timer.stats()
        batch = timer.add_many(ms(50, 60_000), nop)
        assert batch.cancel_all() == 50
        if turn == 0:
            timer.pending(before_ms=0, limit=10)
        turns[turn] += 1

turns = [0] * 4
users = [threading.Thread(target=use, args=(i,)) for i in range(4)]
ticker = Ticker()
for user in users:
    user.start()
gate = threading.Event()
timer.after(0, gate.wait)  # what is released stays on the executor's queue: only the wheel works

def cascade():
    wait_until(lambda: timer.stats()["executor_depth"] >= count // 2, limit=40)

share, seconds = ticker.share(cascade)
halt.set()
for user in users:
    user.join()
print(share, seconds, turns, timer.stats()["cascaded"])
assert share > 0.03 and min(turns) > 3
assert sum(timer.stats()["cascaded"]) >= 4 * count // 2
gate.set()
timer.shutdown(0)
""",
        timeout=80,
    )


def test_batches_from_many_threads_and_a_shutdown_in_the_middle_do_not_deadlock__rule2_T18():
    """A batch keeps the lock of batches while it waits for that of the timer; others wait for both of them detached."""
    run_script(
        """
for _ in range(5):
    timer = SystemTimer("x", wheel_size=4, start_ms=0)
    whole = []

    def add():
        try:
            for _ in range(40):
                whole.append(timer.add_many(ms(3_000, 20), nop))
                whole.append(timer.add_many(ms(3_000, 60_000), nop))
        except TimerClosed:
            return

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.15)
    unfinished = timer.shutdown()
    for thread in threads:
        thread.join()
    assert len(unfinished) % 3_000 == 0 and sum(map(len, whole)) == 0
"""
    )


def test_two_threads_that_shut_down_at_once_get_the_same_list__rule2_T11():
    run_script(
        """
for executor in (None, ThreadPoolExecutor(1)):
    timer = SystemTimer("x", executor=executor)
    running = threading.Event()
    timer.after(0, lambda: (running.set(), time.sleep(0.3)))
    left = [timer.after(60_000 + i, nop) for i in range(10)]
    running.wait()
    lists = []
    threads = [threading.Thread(target=lambda: lists.append(timer.shutdown())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lists == [left] * 4 and timer.unfinished == left
"""
    )
