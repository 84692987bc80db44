"""Border rule 5: one step decides: a task runs, or its cancel said so, never both, never neither (T7, T9)."""

import pytest

from borders.harness import run_script


def test_of_a_million_tasks_each_runs_once_or_its_cancel_said_true__rule5_T7_T9():
    """As many as can be added in ten seconds, at most a million; four threads add and cancel while they fire."""
    out = run_script(
        """
gc.disable()
share = 250_000
ran = bytearray(4 * share)
timer = SystemTimer("x")
stop = time.monotonic() + 10

def hit(index):
    ran[index] += 1

class User(threading.Thread):
    def run(self):
        self.said, self.asked, self.added = bytearray(4 * share), 0, 0
        first, random_ = number * share, random.Random(number)
        waiting = []
        for index in range(first, first + share):
            waiting.append((index, timer.after(random_.random() * 2_000, hit, index)))
            if random_.random() < 0.5:  # any of those that this thread added, run or not
                place = random_.randrange(len(waiting))
                waiting[place], waiting[-1] = waiting[-1], waiting[place]
                index, task = waiting.pop()
                self.said[index] += task.cancel()
                self.said[index] += task.cancel()
                self.asked += 1
            self.added += 1
            if time.monotonic() > stop:
                break

users = []
for number in range(4):
    user = User()
    user.start()
    users.append(user)
    while not hasattr(user, "added"):
        time.sleep(0.001)
for user in users:
    user.join()
wait_until(lambda: len(timer) == 0 and timer.stats()["executor_depth"] == 0, limit=30)
assert timer.shutdown() == []
added, asked = sum(user.added for user in users), sum(user.asked for user in users)
cancelled = 0
for number, user in enumerate(users):
    for index in range(number * share, number * share + user.added):
        assert ran[index] + user.said[index] == 1, (index, ran[index], user.said[index])
        cancelled += user.said[index]
stats = timer.stats()
assert stats["cancelled"] == cancelled and stats["expired"] == added - cancelled == sum(ran)
assert 0.1 * asked < cancelled < asked
print(added, cancelled)
""",
        timeout=70,
    )
    added, cancelled = map(int, out.split())
    assert added > 50_000
    assert cancelled > 5_000


@pytest.mark.parametrize("executor", ["None", "ThreadPoolExecutor(2)"])
def test_a_cancel_at_the_very_moment_of_firing_is_exact_ten_thousand_times__rule5_T9(executor):
    run_script(
        f"""
timer = SystemTimer("x", executor={executor})
ran = [0] * 10_000
said = [None] * 10_000

def hit(index):
    ran[index] += 1

sys.setswitchinterval(0.0001)
for index in range(10_000):
    task = timer.after(0.1, hit, index)
    if index % 2:
        time.sleep(random.random() * 0.0002)
    else:
        end = time.perf_counter() + random.random() * 0.0002
        while time.perf_counter() < end:
            pass
    said[index] = task.cancel()
timer.shutdown()
both_or_neither = [index for index in range(10_000) if ran[index] + said[index] != 1]
assert not both_or_neither, both_or_neither[:20]
print(sum(ran), sum(said))
assert sum(ran) > 200 and sum(said) > 200
""",
        timeout=60,
    )


def test_of_a_batch_each_timer_runs_once_or_its_cancel_said_true__rule5_T18():
    run_script(
        """
for executor in (None, ThreadPoolExecutor(2)):
    timer = SystemTimer("x", executor=executor)
    count = 50_000
    ran, said = collections.Counter(), [0] * 4
    indices = list(range(0, count, 2))
    random.shuffle(indices)
    delays = array.array("q", (random.randrange(300) for _ in range(count)))
    batch = timer.add_many(delays, lambda view: ran.update(view))
    def cancel(turn):
        mine = indices[turn::4]
        for start in range(0, len(mine), 50):
            if turn % 2:
                said[turn] += batch.cancel_many(mine[start : start + 50])
            else:
                said[turn] += sum(batch.cancel(index) for index in mine[start : start + 50])
            time.sleep(0.001)
    threads = [threading.Thread(target=cancel, args=(turn,)) for turn in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: len(timer) == 0)
    assert timer.shutdown() == []
    assert set(ran.values()) == {1}, collections.Counter(ran.values())
    assert len(ran) + sum(said) == count, (len(ran), said)
    assert all(ran[index] for index in range(1, count, 2)) and len(batch) == 0
"""
    )


def test_tasks_moved_by_several_threads_while_they_fire_run_as_often_as_they_were_added__rule5_T7():
    """A move of a task that has not started replaces its run; of one that has, it adds another."""
    run_script(
        """
timer = SystemTimer("x")
runs = collections.Counter()
tasks = [TimerTask(random.random() * 3, runs.update, [i]) for i in range(200)]

def move():
    for _ in range(30):
        for task in random.sample(tasks, 100):
            timer.add(task)
        time.sleep(0.001)  # some fire meanwhile, some do not

threads = [threading.Thread(target=move) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
wait_until(lambda: len(timer) == 0)
timer.shutdown()
stats = timer.stats()
assert sum(runs.values()) == stats["expired"] == stats["added"]
assert stats["added"] + stats["moved"] == 4 * 30 * 100 and min(runs.values()) >= 1 and len(runs) == 200
assert stats["moved"] > 100 and stats["added"] > 200, stats
"""
    )


def test_a_task_that_waits_on_the_queue_of_its_executor_can_still_be_cancelled_and_moved__rule5_T9_T7():
    run_script(
        """
def check(executor):
    timer = SystemTimer("x", executor=executor)
    gate, running, ran = threading.Event(), threading.Event(), []
    timer.after(0, lambda: (running.set(), gate.wait()))
    running.wait()
    tasks = [timer.after(1, ran.append, i) for i in range(300)]
    moved = TimerTask(1, ran.append, "moved")
    timer.add(moved)
    wait_until(lambda: timer.stats()["executor_depth"] == 301)
    assert len(timer) == 0
    assert all(task.cancel() for task in tasks[::3]) and timer.cancel_many(tasks[1::3]) == 100
    assert not any(task.cancel() for task in tasks[::3])
    timer.add(moved)
    assert timer.stats()["executor_depth"] in (100, 101)
    gate.set()
    wait_until(lambda: len(ran) == 101)
    time.sleep(0.05)
    assert ran == [*range(2, 300, 3), "moved"]
    assert not any(task.cancel() for task in tasks)
    assert timer.shutdown() == []

with loop_in_a_thread() as loop, ThreadPoolExecutor(1) as pool:
    for executor in (None, pool, loop):
        check(executor)
"""
    )
