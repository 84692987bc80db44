"""Where callbacks run (T8), what fails there (T10), and a shutdown from everywhere (T11)."""

import pytest

from borders.harness import run_script


def test_a_pool_gets_one_submit_per_task_and_one_per_group_of_a_batch__T8():
    run_script(
        """
class Counting(ThreadPoolExecutor):
    submits = 0

    def submit(self, *arguments, **options):
        self.submits += 1
        return super().submit(*arguments, **options)

with Counting(2) as pool, SystemTimer("x", executor=pool) as timer:
    threads = set()
    for i in range(300):
        timer.after(i % 20, lambda: threads.add(threading.current_thread().name))
    wait_until(lambda: not len(timer) and not timer.stats()["executor_depth"] and not timer.stats()["running"])
    assert pool.submits == 300 and all(name.startswith("ThreadPoolExecutor") for name in threads), threads
    groups = []
    timer.add_many(ms(500, 20), lambda view: groups.append(len(view)))
    wait_until(lambda: sum(groups) == 500)
    assert pool.submits == 300 + len(groups) and len(groups) <= 2
"""
    )


def test_a_pool_that_refuses_is_told_of_once_per_task_which_may_be_added_again__T10():
    run_script(
        """
pool = ThreadPoolExecutor(1)
errors, ran = [], []
timer = SystemTimer("x", executor=pool, on_error=lambda task, error: errors.append((task, error)))
tasks = [TimerTask(5, ran.append, i) for i in range(100)]
pool.shutdown()
for task in tasks:
    timer.add(task)
batch = timer.add_many(ms(50, 5), ran.extend)
wait_until(lambda: len(errors) >= 101)
time.sleep(0.05)
refused = [task for task, _ in errors]
assert sorted(map(id, refused)) == sorted(map(id, [*tasks, batch])) and ran == []
assert {type(error) for _, error in errors} == {TimerRejected} and "refused" in str(errors[0][1])
assert not tasks[0].cancel() and len(batch) == 0 and timer.stats()["executor_depth"] == 0
with SystemTimer("other") as other:
    for task in tasks:
        other.add(task)
    wait_until(lambda: len(ran) == 100)
timer.add(tasks[0])
wait_until(lambda: len(errors) == 102)
assert timer.shutdown() == []
"""
    )


def test_a_pool_that_cancels_its_futures_loses_nothing_in_silence__T10():
    run_script(
        """
pool = ThreadPoolExecutor(1)
ran, rejected = [], []
timer = SystemTimer("x", executor=pool, on_error=lambda task, error: rejected.append((task, type(error))))
running, gate = threading.Event(), threading.Event()
timer.after(0, lambda: (running.set(), gate.wait()))
running.wait()
tasks = [TimerTask(0, ran.append, i) for i in range(100)]
for task in tasks:
    timer.add(task)
wait_until(lambda: timer.stats()["executor_depth"] == 100)
assert tasks[7].cancel()
wait_until(lambda: pool._work_queue.qsize() == 100)
pool.shutdown(wait=False, cancel_futures=True)
wait_until(lambda: len(rejected) == 99)
assert [task for task, _ in rejected] == tasks[:7] + tasks[8:] and {kind for _, kind in rejected} == {TimerRejected}
gate.set()
timer.after(0, nop)
wait_until(lambda: len(rejected) == 100)
assert timer.shutdown() == [] and ran == []
"""
    )


def test_a_loop_is_called_once_per_batch_and_its_turns_are_bounded__T8():
    run_script(
        """
async def main():
    loop = asyncio.get_running_loop()
    calls, run, longest, turns = [], 0, 0, 0
    threadsafe = loop.call_soon_threadsafe
    loop.call_soon_threadsafe = lambda *arguments: (calls.append(1), threadsafe(*arguments))[1]
    timer = SystemTimer("x", executor=loop)
    ran = []

    def work(i):
        nonlocal run, longest
        ran.append((i, threading.get_ident()))
        run += 1
        longest = max(longest, run)

    at = timer.now_ms() + 500
    for i in range(5_000):
        timer.at(at, work, i)
    assert timer.now_ms() < at
    while len(ran) < 5_000:
        await asyncio.sleep(0)  # one turn of the loop
        run = 0
        turns += len(ran) > 0
    assert ran == [(i, threading.get_ident()) for i in range(5_000)]
    assert len(calls) <= 3, len(calls)
    assert longest <= 256 and turns >= 5_000 / 256, (longest, turns)
    slow = []
    at = timer.now_ms() + 500
    for i in range(20):
        timer.at(at, lambda: slow.append(time.sleep(0.005)))
    assert timer.now_ms() < at  # so that they come as one batch
    turns = 0
    while len(slow) < 20:
        await asyncio.sleep(0)
        turns += 0 < len(slow) < 20
    assert turns >= 15, turns  # bounded in time too
    assert timer.shutdown() == []

asyncio.run(main())
"""
    )


IN_LINE = """
def in_line(loop, timer, *batches):
    \"\"\"Batch after batch is due and stands in the loop's own line; the loop does not run meanwhile.\"\"\"
    calls = []
    threadsafe = loop.call_soon_threadsafe
    loop.call_soon_threadsafe = lambda *arguments: (calls.append(1), threadsafe(*arguments))[1]
    for number, batch in enumerate(batches, 1):
        for task in batch:
            timer.add(task)
        due_us = timer.now_us() + 1
        while timer.now_us() < due_us:  # what was added last is due at the end of its microsecond
            pass
        assert timer.advance_clock(5_000)
        wait_until(lambda: len(calls) == number)
"""


def test_a_turn_that_was_cut_short_is_overtaken_by_nothing__T6_T8():
    run_script(
        IN_LINE
        + """
async def main():
    loop = asyncio.get_running_loop()
    timer = SystemTimer("x", reaper=False, executor=loop)
    ran = []
    in_line(loop, timer, *([TimerTask(0, ran.append, (batch, i)) for i in range(200)] for batch in range(3)))
    turns = 0
    while len(ran) < 600:
        await asyncio.sleep(0)
        turns += 1
        if turns == 2:  # while two batches still wait, one more comes
            in_line(loop, timer, [TimerTask(0, ran.append, (3, i)) for i in range(200)])
    while len(ran) < 800:
        await asyncio.sleep(0)
    assert ran == [(batch, i) for batch in range(4) for i in range(200)]
    assert timer.shutdown() == []

asyncio.run(main())
"""
    )


def test_a_loop_that_closes_between_two_turns_rejects_what_is_left_in_order__T10():
    run_script(
        IN_LINE
        + """
errors, ran = [], []
loop = asyncio.new_event_loop()
timer = SystemTimer("x", reaper=False, executor=loop, on_error=lambda task, error: errors.append((task, type(error))))
tasks = [TimerTask(0, ran.append, i) for i in range(500)]
in_line(loop, timer, tasks[:200], tasks[200:])
loop.call_soon(loop.stop)
loop.run_forever()  # one turn
assert 0 < len(ran) < 200, len(ran)
loop.close()
assert [task for task, _ in errors] == tasks[len(ran):] and {kind for _, kind in errors} == {TimerRejected}
assert timer.stats()["executor_depth"] == 0 and timer.shutdown() == []
"""
    )


def test_a_callback_that_ends_the_loop_leaves_the_rest_in_order__T6_T10():
    run_script(
        IN_LINE
        + """
ran = []
loop = asyncio.new_event_loop()
timer = SystemTimer("x", reaper=False, executor=loop)
tasks = [TimerTask(0, ran.append, i) for i in range(100)]
tasks[10] = TimerTask(0, sys.exit, 7)
tasks[19] = TimerTask(0, sys.exit, 8)
in_line(loop, timer, tasks[:20], tasks[20:])
for code in (7, 8):
    try:
        loop.run_forever()
    except SystemExit as exit:
        assert exit.code == code
    else:
        raise AssertionError("it did not reach the loop")
wait_for = lambda: loop.stop() if len(ran) == 98 else loop.call_soon(wait_for)
wait_for()
loop.run_forever()
assert ran == [i for i in range(100) if i not in (10, 19)]
assert timer.shutdown() == []
loop.close()
"""
    )


def test_a_closed_loop_rejects__T10():
    run_script(
        """
errors, ran = [], []
loop = asyncio.new_event_loop()
timer = SystemTimer("x", executor=loop, on_error=lambda task, error: errors.append((task, type(error))))
waiting = [TimerTask(0, ran.append, i) for i in range(30)]
for task in waiting:
    timer.add(task)
wait_until(lambda: timer.stats()["executor_depth"] == 30)
time.sleep(0.1)
loop.close()  # what it was given and never ran
wait_until(lambda: len(errors) == 30)
late = [TimerTask(0, ran.append, i) for i in range(30)]
for task in late:
    timer.add(task)
wait_until(lambda: len(errors) == 60)
assert [task for task, _ in errors] == waiting + late and {kind for _, kind in errors} == {TimerRejected}
with SystemTimer("other") as other:
    for task in waiting + late:
        other.add(task)
    wait_until(lambda: len(ran) == 60)
assert timer.shutdown() == []
"""
    )


def test_interrupts_go_to_on_error_on_the_timers_own_thread_and_a_pool_and_to_the_loop_itself__T10():
    run_script(
        """
def interrupt(kind):
    raise kind

with ThreadPoolExecutor(1) as pool:
    for executor in (None, pool):
        errors, ran = [], []
        with SystemTimer("x", executor=executor, on_error=lambda task, error: errors.append(type(error))) as timer:
            for kind in (KeyboardInterrupt, SystemExit, ValueError):
                timer.after(0, interrupt, kind)
                timer.after(0, ran.append, 1)
            wait_until(lambda: len(ran) == 3)
        assert errors == [KeyboardInterrupt, SystemExit, ValueError]

loop = asyncio.new_event_loop()
errors, ran = [], []
timer = SystemTimer("x", executor=loop, on_error=lambda task, error: errors.append(type(error)))
at = timer.now_ms() + 50
for kind in (KeyboardInterrupt, ValueError, SystemExit):
    timer.at(at, interrupt, kind)
    timer.at(at, ran.append, kind)
raised = []
loop.call_later(1, loop.stop)
for _ in range(3):
    try:
        loop.run_forever()
    except (KeyboardInterrupt, SystemExit) as error:
        raised.append(type(error))
assert raised == [KeyboardInterrupt, SystemExit] and errors == [ValueError]
assert ran == [KeyboardInterrupt, ValueError, SystemExit]
assert timer.shutdown() == [] and timer.stats()["running"] == 0
loop.close()
"""
    )


def test_a_failing_callback_or_on_error_stops_nothing__T10():
    run_script(
        """
import logging
said = []

class Say(logging.Handler):
    def emit(self, record):
        said.append(record.exc_info[0] if record.exc_info else record.getMessage())

logging.getLogger("tickwheel").addHandler(Say())
with loop_in_a_thread() as loop, ThreadPoolExecutor(1) as pool:
    loop.set_exception_handler(lambda _, context: said.append(type(context["exception"])))
    for executor in (None, pool, loop):
        for on_error in (None, lambda task, error: 1 / 0):
            said.clear()
            ran, failed = [], []

            def fail():
                failed.append(1)
                ran[10**9]

            has_handler = executor is loop and on_error is None
            with SystemTimer("x", executor=executor, on_error=on_error) as timer:
                for i in range(50):
                    timer.after(i % 5, fail)
                    timer.after(i % 5, ran.append, i)
                wait_until(lambda: len(ran) == len(failed) == 50 and len(said) == (50 if has_handler else 2))
            first, second, *rest = said
            assert first is (IndexError if on_error is None else ZeroDivisionError), first
            assert set(rest) == ({IndexError} if has_handler else set()), rest
            assert second is IndexError or "failed 10 times" in second, second
"""
    )


@pytest.mark.parametrize("executor", ["None", "pool", "loop"])
def test_a_shutdown_inside_a_callback_returns_at_once_with_what_has_not_started__T11(executor):
    run_script(
        f"""
with loop_in_a_thread() as loop, ThreadPoolExecutor(1) as pool:
    before = native_threads()
    timer = SystemTimer("x", executor={executor})
    done, started, ran, result = threading.Event(), threading.Event(), [], []

    def end():
        started.wait()
        result.append(timer.shutdown())
        result.append(timer.shutdown(timeout_ms=60_000))
        done.set()

    timer.after(0, end)
    wait_until(lambda: timer.stats()["running"] == 1)
    due = [timer.after(0, ran.append, i) for i in range(20)]
    wait_until(lambda: timer.stats()["executor_depth"] == 20)
    far = timer.after(60_000, nop)
    started.set()
    assert done.wait(10)
    assert result[0] == result[1] == due + [far], result
    assert timer.unfinished == due + [far] == timer.shutdown() and ran == []
    wait_until(lambda: native_threads() == before or {executor} is pool and native_threads() == before + 1)
    assert not any(task.cancel() for task in due)
    with SystemTimer("next") as other:
        task = TimerTask(0, ran.append, 1)
        other.add(task)
        wait_until(lambda: ran == [1])
"""
    )


def test_a_shutdown_inside_the_thread_of_the_loop_does_not_wait_for_itself__T11():
    run_script(
        """
async def main():
    timer = SystemTimer("x", executor=asyncio.get_running_loop())
    ran = []
    due = [timer.after(0, ran.append, i) for i in range(5)]
    wait_until(lambda: timer.stats()["executor_depth"] == 5)
    unfinished = timer.shutdown()
    assert unfinished == due == timer.unfinished and ran == []
    await asyncio.sleep(0.05)
    assert ran == []

asyncio.run(main())
"""
    )


def test_a_shutdown_in_another_thread_meets_one_inside_a_callback__T11():
    run_script(
        """
for executor in (None, ThreadPoolExecutor(1)):
    timer = SystemTimer("x", executor=executor)
    running, inner = threading.Event(), []
    outer = []

    def end():
        running.set()
        time.sleep(0.2)  # the other one waits for this callback by now
        inner.append(timer.shutdown())

    timer.after(0, end)
    left = timer.after(60_000, nop)
    running.wait()
    outer.append(timer.shutdown())
    assert outer == [[left]] and inner == [[]], (outer, inner)
"""
    )


def test_a_shutdown_whose_time_runs_out_returns_what_has_not_started__T11():
    run_script(
        """
with loop_in_a_thread() as loop, ThreadPoolExecutor(1) as pool:
    for executor in (None, pool, loop):
        timer = SystemTimer("x", executor=executor)
        gate, ran = threading.Event(), []
        timer.after(0, gate.wait)
        wait_until(lambda: timer.stats()["running"] == 1)
        due = [timer.after(0, ran.append, i) for i in range(10)]
        start = time.perf_counter()
        assert timer.shutdown(200) == due and time.perf_counter() - start > 0.19
        gate.set()
        time.sleep(0.05)
        assert ran == [] and timer.unfinished == due
        with SystemTimer("next") as other:
            again = TimerTask(0, ran.append, 1)
            other.add(again)
"""
    )


@pytest.mark.parametrize("pending", ["", "timer.after(3_600_000, nop)", "timer.add_many(ms(10, 3_600_000), nop)"])
def test_ctrl_c_ends_advance_clock_promptly_and_loses_nothing__rule4(pending):
    run_script(
        f"""
timer = SystemTimer("x", reaper=False)
{pending}
count = len(timer)
try:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    timer.advance_clock(600_000)
    raise AssertionError
except KeyboardInterrupt:
    pass
assert len(timer) == count
assert len(timer.shutdown()) == count
"""
    )


@pytest.mark.parametrize("executor", ["None", "ThreadPoolExecutor(1)"])
def test_ctrl_c_ends_a_shutdown_promptly_and_unfinished_holds_what_was_pending__rule4_T11(executor):
    run_script(
        f"""
timer = SystemTimer("x", executor={executor})
running, gate, ran = threading.Event(), threading.Event(), []
timer.after(0, lambda: (running.set(), gate.wait()))
running.wait()
due = [timer.after(0, ran.append, i) for i in range(5)]
far = [timer.after(60_000 + i, nop) for i in range(5)]
wait_until(lambda: timer.stats()["executor_depth"] == 5)
try:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    timer.shutdown()
    raise AssertionError
except KeyboardInterrupt:
    pass
assert timer.unfinished == due + far == timer.shutdown(0)
gate.set()
time.sleep(0.05)
assert ran == []
"""
    )


def test_ctrl_c_ends_a_shutdown_that_waits_for_another_threads_shutdown__rule4():
    run_script(
        """
timer = SystemTimer("x")
running, gate = threading.Event(), threading.Event()
timer.after(0, lambda: (running.set(), gate.wait()))
running.wait()
threading.Thread(target=timer.shutdown).start()

def is_closed():
    try:
        return timer.after(600_000, nop).cancel() is None
    except TimerClosed:
        return True

wait_until(is_closed)
try:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    timer.shutdown()
    raise AssertionError
except KeyboardInterrupt:
    pass
gate.set()
"""
    )


def test_a_shutdown_after_one_inside_a_callback_waits_for_that_callback__T11():
    run_script(
        """
    shut, go, done = threading.Event(), threading.Event(), []

    def callback():
        timer.shutdown()
        shut.set()
        assert go.wait(10)
        done.append(True)

    timer = SystemTimer("x")
    timer.after(0, callback)
    assert shut.wait(10)
    assert timer.shutdown(20) == [] and not done
    threading.Timer(0.05, go.set).start()
    assert timer.shutdown() == [] and done
    """
    )
