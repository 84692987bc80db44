"""Border rules 1 to 3 where the purgatory crosses them: no Python under a native lock, no waiting with the GIL."""

from purgatory.scripts import run_script


def test_no_python_runs_under_a_native_lock__rule1():
    """Everything of the user's that can run uses the purgatory, the timer and every operation in full, from another
    thread too: were a lock held, either that thread or this one would wait for ever."""
    run_script(
        """
timer = SystemTimer("x", on_error=lambda *error: use("on_error"))
purgatory = DelayedOperationPurgatory("x", timer)
used = collections.Counter()
depth = threading.local()
everything = weakref.WeakSet()

def use(where):
    if getattr(depth, "on", False):
        return
    depth.on = True
    used[where] += 1
    workers.submit(touch).result(10)
    touch()
    depth.on = False

def touch():
    depth.on = True
    len(purgatory), purgatory.watched, purgatory.stats(), repr(purgatory), len(timer), timer.stats(), timer.pending()
    fresh = DelayedOperationPurgatory("y", timer)
    fresh.try_complete_else_watch(Op(HOUR), ["key", 1])
    assert len(fresh.shutdown()) == 1
    operation = Op(HOUR)
    # Not the keys of those that are being tried: each such check would be an event, and one more try.
    purgatory.try_complete_else_watch(operation, [Key(threading.get_ident(), True), "others"])
    purgatory.check_and_complete("nobody"), purgatory.check_and_complete(Key(threading.get_ident(), True))
    assert operation.cancel() or operation.is_completed
    for operation in list(everything):
        repr(operation), operation.is_completed
    depth.on = False

class Key:
    def __init__(self, number, is_quiet=False):
        self.number, self.is_quiet = number, is_quiet

    def __hash__(self):
        self.is_quiet or use("hash")
        return 7

    def __eq__(self, other):
        self.is_quiet or use("eq")
        return isinstance(other, Key) and self.number == other.number

    def __del__(self):
        self.is_quiet or use("del of a key")

class Lock:
    def acquire(self, blocking=True):
        use("acquire")
        return True

    def release(self):
        use("release")

class Uses(Op):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        everything.add(self)

    def try_complete(self):
        use("try_complete")
        if self.fails:
            raise ValueError
        return super().try_complete()

    def on_complete(self):
        use("on_complete")
        raise ValueError

    def on_expiration(self):
        use("on_expiration")

    def __del__(self):
        use("del of an operation")

    fails = False

def waiter(how):
    use("waiter")

with ThreadPoolExecutor(1) as workers:
    workers.submit(lambda: setattr(depth, "on", True)).result()
    for turn in range(3):
        made = [Uses(20 if number == 5 else HOUR, Lock()) for number in range(6)]
        for number, operation in enumerate(made):
            purgatory._watch(operation, [Key(number), Key(1), "all"], waiter)
        made[0].fails = True
        purgatory.check_and_complete("all")
        made[1].is_ready = True
        purgatory.check_and_complete(Key(1))
        made[2].force_complete()
        made[3].cancel()
        wait_until(lambda: made[5].is_completed)
        purgatory.cancel_for_key(Key(1))
        del made, operation
        gc.collect()
    wait_until(lambda: timer.stats()["running"] == 0)
    everything.clear()
    purgatory.shutdown()
print(sorted(used.items()))
places = {"hash", "eq", "del of a key", "acquire", "release", "try_complete", "on_complete", "on_expiration"}
places |= {"on_error", "del of an operation", "waiter"}
assert places <= set(used), places - set(used)
timer.shutdown()
""",
        timeout=60,
    )


def test_nobody_waits_with_the_gil_for_a_lock_that_a_sleeping_reaper_holds__rule2():
    """Whatever sets or takes a deadline waits for the reaper detached, and the rest does not wait."""
    run_script(
        """
timer, _, _ = freeze_reaper_with_lock(signal.SIGUSR1)
purgatory = DelayedOperationPurgatory("x", timer)
free = DelayedOperationPurgatory("free", timer, timer_enabled=False)
for number in range(20):
    free.try_complete_else_watch(Op(HOUR), [number, "all"])
entered, left = [], []
locked = threading.Lock()
busy = Op(HOUR, locked)
free.try_complete_else_watch(busy, ["busy"])
calls = {
    "watch": lambda: purgatory.try_complete_else_watch(Op(HOUR), ["a"]),
    "watch_2": lambda: purgatory.try_complete_else_watch(Op(5), ["a"]),
    "put off": lambda: locked.acquire() and free.check_and_complete("busy"),
}
for name, call in calls.items():
    def run(name=name, call=call):
        entered.append(name)
        call()
        left.append(name)
    threading.Thread(target=run, daemon=True).start()

wait_until(lambda: len(entered) == len(calls))
for _ in range(20):
    time.sleep(0)  # the others get to where they wait
# None of these needs the timer.
for number in range(20):
    free.check_and_complete(number), free.watched, free.num_delayed, len(free), repr(free), free.stats()
assert len(free.cancel_for_key(3)) == 1
assert not left, f"{left}: a thread waited for the reaper with the GIL in hand, or the reaper was not asleep"
wait_until(lambda: len(left) == len(calls))
os._exit(0)
""",
        timeout=60,
    )


def test_what_waits_can_be_ended_from_all_sides_while_the_reaper_holds_the_lock__rule2():
    """Many threads hold an operation's own lock, a key's or the timer's, and wait for the next: no ring closes."""
    run_script(
        """
timer, _, _ = freeze_reaper_with_lock()
for _ in range(3):
    purgatory = DelayedOperationPurgatory("x", timer)
    operations = []

    def watch():
        for number in range(20):
            operation = Op(HOUR)
            operations.append(operation)
            purgatory.try_complete_else_watch(operation, [number % 3, "all"])

    def end():
        for turn in range(200):
            for operation in operations[-3:]:
                operation.cancel() if turn % 2 else operation.force_complete()
            purgatory.check_and_complete(turn % 3)

    together(watch, watch, end, end, lambda: [purgatory.cancel_for_key(turn % 3) for turn in range(200)])
    for operation in operations:
        operation.cancel()
    assert counts(purgatory) == EMPTY
os._exit(0)
""",
        timeout=60,
    )


def test_the_reaper_never_takes_the_gil_for_a_purgatory__rule3():
    run_script(
        """
class Fails(Op):
    def on_complete(self):
        raise ValueError

class Key:
    pass

told = []
with loop_in_a_thread() as loop, ThreadPoolExecutor(2) as pool:
    for executor in (None, pool, loop):
        timer = SystemTimer("x", executor=executor, on_error=lambda *error: told.append(error))
        purgatory = DelayedOperationPurgatory("x", timer)
        lock = threading.Lock()
        lock.acquire()
        for number in range(300):
            operation = (Fails if number % 2 else Op)(number % 40, lock if number % 5 == 0 else None)
            purgatory.try_complete_else_watch(operation, [Key(), number % 9])
            if number % 3 == 0:
                operation.cancel()
            elif number % 7 == 0:
                operation.is_ready = True
        for number in range(9):
            purgatory.check_and_complete(number)
        del operation
        lock.release()
        wait_until(lambda: len(purgatory) == 0 and len(timer) == 0)
        timer.shutdown()
    own = DelayedOperationPurgatory("own", timer_enabled=False)
    own.try_complete_else_watch(Op(1), [Key()])
    del own
    dropped = DelayedOperationPurgatory("dropped")
    dropped.try_complete_else_watch(Fails(20), [Key()])
    del dropped
    gc.collect()
    with contextlib.redirect_stderr(None):
        import logging
        logging.getLogger("tickwheel").disabled = True
        wait_until(lambda: not _native._running_timers)
assert len(told) > 100
assert _native._attached_by_reaper() == 0
"""
    )
