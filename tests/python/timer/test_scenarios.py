"""Random scenarios on a `ManualTimer` beside the slowest obvious model of one.

A scenario adds, moves, cancels, adds and cancels in batches, advances and steps, and its callbacks do the same.
Whatever the wheel does inside, both must run the same things in the same order at the same times, and say the same
of what is left (T3 to T7, T9, T14 to T18). To see one again: `Scenario(seed).run()`.
"""

import random
from array import array
from typing import Any

import pytest

from tickwheel import TaskBatch, TimerFull, TimerTask
from tickwheel.testing import ManualTimer
from timer.slow_model import Key, Model


class Scenario:
    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.is_exact = rng.random() < 0.6
        tick_ms = rng.choice([1, 1, 1, 2, 7, 50])
        wheel_size = rng.choice([2, 3, 5, 20, (3, 2), (60, 5, 2)])
        start_ms = rng.choice([0, 1, 399, 400, 7_999, rng.randrange(10**6), 2**40 - 3])
        max_pending = rng.choice([None, None, None, 12])
        self.far_ms = rng.choice([30, 500, 20_000])
        self.timer = ManualTimer(
            tick_ms=tick_ms,
            wheel_size=wheel_size,
            start_ms=start_ms,
            precision="exact" if self.is_exact else "tick",
            max_pending=max_pending,
            on_error=self.broken,
        )
        self.model = Model(tick_ms, self.is_exact, max_pending, start_ms * 1000)
        self.log: list[tuple[int, Any]] = []
        self.tasks: dict[int, TimerTask] = {}
        self.batches: dict[int, TaskBatch] = {}
        self.numbers: dict[Any, int] = {}
        self.errors: list[BaseException] = []  # of callbacks
        # What a callback does is drawn beforehand, so that both sides do the same.
        self.plans = {number: self.plan() for number in range(16) if rng.random() < 0.5}

    def broken(self, task: object, error: BaseException) -> None:
        self.errors.append(error)

    def delay_us(self) -> int:
        rng = self.rng
        return rng.choice(
            [
                rng.randrange(-2, 3) * 1000,
                rng.randrange(50) * 1000,
                rng.randrange(self.far_ms) * 1000,
                rng.randrange(200) * 125,  # eighths of a millisecond are exact in a float
                rng.randrange(self.far_ms * 8) * 125,
            ]
        )

    def plan(self) -> tuple[str, int, int]:
        return self.rng.choice(["add", "cancel", "again"]), self.rng.randrange(16), self.delay_us()

    # What both do.

    def add(self, number: int, delay_us: int) -> None:
        task = self.tasks.get(number)
        if task is None or task.delay_ms != delay_us / 1000:
            if task is not None and task.cancel() != self.model.cancel(number):
                raise AssertionError(f"cancel of task {number} before it is made anew")
            task = self.tasks[number] = TimerTask(delay_us / 1000, self.ran, number)
            self.numbers[task] = number
        try:
            self.timer.add(task)
            is_added = True
        except TimerFull:
            is_added = False
        assert is_added == self.model.add(number, self.model.now_us + max(0, delay_us)), f"add of task {number}"

    def cancel(self, number: int) -> None:
        task = self.tasks.get(number)
        assert task is None or task.cancel() == self.model.cancel(number), f"cancel of task {number}"

    def add_batch(self) -> None:
        delays_ms = [self.rng.randrange(-1, self.far_ms) for _ in range(self.rng.choice([1, 2, 5, 40]))]
        number = 100 + len(self.batches)
        limit = self.model.max_pending
        try:
            batch = self.timer.add_many(array("q", delays_ms), lambda indices: self.ran((number, indices.tolist())))
        except TimerFull:
            assert limit is not None
            assert self.model.taken() + len(delays_ms) > limit
            return
        assert limit is None or self.model.taken() + len(delays_ms) <= limit
        self.batches[number] = batch
        self.numbers[batch] = number
        for index, delay_ms in enumerate(delays_ms):
            self.model.add((number, index), self.model.now_us + max(0, delay_ms) * 1000)

    def cancel_in_batch(self) -> None:
        if not self.batches:
            return
        number, batch = self.rng.choice(list(self.batches.items()))
        size = self.rng.randrange(4)
        alive = [key for key in (*self.model.entries, *self.model.released) if isinstance(key, tuple)]
        count = 1 + max((index for of, index in alive if of == number), default=0)
        indices = [self.rng.randrange(count) for _ in range(size)]
        assert batch.cancel_many(indices) == sum(self.model.cancel((number, index)) for index in indices)

    # Time.

    def ran(self, what: Any) -> None:
        """Called by the timer: the model is a step behind, and follows in `follow`."""
        self.log.append((self.timer.now_ms(), what))
        self.model.log.append(self.follow())
        assert self.log[-1] == self.model.log[-1], "ran something else, or at another time"
        plan = self.plans.get(what) if isinstance(what, int) else None
        match plan if len(self.log) < 300 else None:  # or two that add each other would go on for ever
            case ("add", other, delay_us):
                self.add(other, delay_us)
            case ("cancel", other, _):
                self.cancel(other)
            case ("again", _, delay_us):
                self.add(what, delay_us)

    def follow(self) -> tuple[int, Any]:
        """The next call by the model: a task, or a group of one batch."""
        model = self.model
        while True:
            self.line = [(key, number) for key, number in self.line if model.released.get(key) == number]
            if self.line:
                break
            at_us = model.next_release_us()
            assert at_us is not None, "ran something although nothing was pending"
            assert at_us <= self.until_us, "ran something that is not due"
            model.now_us = max(model.now_us, at_us)
            self.line = model.release()
        key, _ = self.line[0]
        if not isinstance(key, tuple):
            del model.released[key]
            return model.now_us // 1000, key
        indices = []
        while self.line and isinstance(self.line[0][0], tuple) and self.line[0][0][0] == key[0]:
            (_, index), _ = self.line.pop(0)
            if (key[0], index) in model.released:
                del model.released[key[0], index]
                indices.append(index)
            self.line = [(key, number) for key, number in self.line if model.released.get(key) == number]
        return model.now_us // 1000, (key[0], indices)

    def advance(self) -> None:
        by_us = max(0, self.delay_us()) * self.rng.choice([0, 1, 1, 4])
        self.until_us, before = self.model.now_us + by_us, len(self.log)
        count = self.timer.advance(by_us / 1000)
        ran = [len(what[1]) if isinstance(what, tuple) else 1 for _, what in self.log[before:]]
        assert count == sum(ran)
        self.model.now_us = self.until_us
        next_us = self.model.next_release_us()
        assert next_us is None or next_us > self.until_us, "left something that was due"

    def run_next(self) -> None:
        self.until_us = 2**63
        before_us, next_us = self.model.now_us, self.model.next_release_us()
        assert self.timer.run_next() == (next_us is not None)
        if next_us is None:
            return
        now_us = round(self.now_us())
        assert before_us <= now_us <= max(before_us, next_us), "ran past what comes next"
        self.model.now_us = now_us

    def now_us(self) -> float:
        if self.model.max_pending is not None and self.model.taken() >= self.model.max_pending:
            return max(self.model.now_us, self.timer.now_ms() * 1000)
        probe = self.timer.after(0, print)
        due_ms = next(due_ms for due_ms, task in self.timer.pending() if task is probe)
        probe.cancel()
        return due_ms * 1000

    # The whole.

    def listed(self, task: Any) -> Key:
        return (self.numbers[task[0]], task[1]) if isinstance(task, tuple) else self.numbers[task]

    def check(self) -> None:
        assert not self.model.released
        assert self.timer.now_ms() == self.model.now_us // 1000
        assert len(self.timer) == len(self.model.entries) == self.timer.snapshot()["size"]
        found = [(round(due_ms * 1000), self.listed(task)) for due_ms, task in self.timer.pending()]
        assert found == self.model.pending()
        for number, batch in self.batches.items():
            left = sum(1 for key in self.model.entries if isinstance(key, tuple) and key[0] == number)
            assert len(batch) == left

    def run(self) -> int:
        self.line: list[tuple[Key, int]] = []
        rng = self.rng
        for _ in range(40):
            match rng.choices(["add", "cancel", "batch", "cancel in batch", "advance", "run_next"], [8, 3, 1, 1, 4, 3])[
                0
            ]:
                case "add":
                    self.add(rng.randrange(16), self.delay_us())
                case "cancel":
                    self.cancel(rng.randrange(16))
                case "batch":
                    self.add_batch()
                case "cancel in batch":
                    self.cancel_in_batch()
                case "advance":
                    self.advance()
                case _:
                    self.run_next()
            if self.errors:
                raise self.errors[0]
            self.check()
        self.until_us = self.model.now_us
        left = self.timer.shutdown()
        assert [self.listed(task) for task in left] == [key for _, key in self.model.pending()]
        return len(self.log)


@pytest.mark.parametrize("block", range(0, 400, 50))
def test_a_random_scenario_runs_as_the_model_says__T6(block: int) -> None:
    calls = 0
    for seed in range(block, block + 50):
        try:
            calls += Scenario(seed).run()
        except AssertionError as error:
            error.add_note(f"the scenario: Scenario({seed}).run()")
            raise
    assert calls > 500, "scenarios in which little runs say little"
