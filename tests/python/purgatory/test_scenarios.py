"""Random scenarios on a `ManualTimer` beside the slowest obvious model of a purgatory.

A scenario watches, checks, completes, cancels, takes deadlines and advances, and `on_complete` does the same. Both must
end the same operations in the same order at the same times, and say the same of what is left (P1 to P5). To see one
again: `Scenario(seed).run()`.
"""

import random
from typing import Any

import pytest

from purgatory.operations import counts
from purgatory.slow_purgatory import Model
from tickwheel import DelayedOperation, DelayedOperationPurgatory
from tickwheel.testing import ManualTimer

KEYS = 6
NUMBERS = 14


class Planned(DelayedOperation):
    def __init__(self, scenario: "Scenario", number: int, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.scenario, self.number = scenario, number

    def try_complete(self) -> bool:
        return self.number in self.scenario.model.ready and self.force_complete()

    def on_complete(self) -> None:
        self.scenario.log.append((self.scenario.timer.now_ms(), self.number, "complete"))

    def on_expiration(self) -> None:
        self.scenario.log.append((self.scenario.timer.now_ms(), self.number, "expire"))


class Scenario:
    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.model = Model(rng.random() < 0.8)
        self.errors: list[Any] = []
        self.timer = ManualTimer(
            tick_ms=rng.choice([1, 1, 3]),
            wheel_size=rng.choice([2, 5, 20]),
            on_error=lambda *error: self.errors.append(error),
        )
        self.purgatory = DelayedOperationPurgatory("scenario", self.timer, self.model.timer_enabled)
        self.operations: dict[int, Planned] = {}
        self.log: list[tuple[int, int, str]] = []
        self.serial = 0

    def pick(self) -> int | None:
        return self.rng.choice(list(self.operations)) if self.operations else None

    def watch(self) -> None:
        rng = self.rng
        number = self.pick()
        if number is None or rng.random() < 0.7:
            number = self.serial = self.serial + 1
            self.operations[number] = Planned(self, number, rng.choice([-1, 0, 1, 5, 60, 1000]))
            if rng.random() < 0.15:
                self.model.ready.add(number)
        operation = self.operations[number]
        keys = [rng.randrange(KEYS) for _ in range(rng.randrange(1, 4))]
        expected = self.model.watch(number, frozenset(keys), int(operation.delay_ms))
        if expected is None:
            with pytest.raises(ValueError, match="waits in a purgatory already"):
                self.purgatory.try_complete_else_watch(operation, keys)
        else:
            assert self.purgatory.try_complete_else_watch(operation, keys) is expected

    def become_ready(self) -> None:
        number = self.pick()
        if number is not None:
            self.model.ready.add(number)

    def check(self) -> None:
        key = self.rng.randrange(KEYS + 1)
        assert self.purgatory.check_and_complete(key) == self.model.check(key)

    def force(self) -> None:
        number = self.pick()
        if number is not None:
            assert self.operations[number].force_complete() is self.model.force(number)

    def cancel(self) -> None:
        number = self.pick()
        if number is not None:
            assert self.operations[number].cancel() is self.model.cancel(number)

    def cancel_for_key(self) -> None:
        key = self.rng.randrange(KEYS + 1)
        found: list[Planned] = self.purgatory.cancel_for_key(key)
        assert [operation.number for operation in found] == self.model.cancel_for_key(key)

    def lose_deadlines(self) -> None:
        numbers = [number for number in self.operations if self.rng.random() < 0.1]
        lost = self.timer.cancel_many([self.operations[number] for number in numbers])
        assert lost == self.model.lose_deadlines(numbers)

    def advance(self) -> None:
        by_ms = self.rng.choice([0, 1, 1, 3, 20, 300])
        assert self.timer.advance(by_ms) == self.model.advance(by_ms)

    def look(self) -> None:
        assert self.log == self.model.log
        assert counts(self.purgatory) == self.model.counts()
        stats = self.purgatory.stats()
        assert {name: stats[name] for name in self.model.counted} == self.model.counted  # type: ignore[literal-required]
        assert len(self.timer) == self.purgatory.num_delayed
        for number, operation in self.operations.items():
            assert operation.is_completed == (number in self.model.done)
        assert self.errors == []

    def run(self) -> int:
        steps = {
            self.watch: 8,
            self.become_ready: 3,
            self.check: 5,
            self.force: 1,
            self.cancel: 2,
            self.cancel_for_key: 1,
            self.lose_deadlines: 0.3,
            self.advance: 4,
        }
        for _ in range(60):
            self.rng.choices(list(steps), list(steps.values()))[0]()
            self.look()
        left: list[Planned] = self.purgatory.shutdown()
        assert [operation.number for operation in left] == [waiting.number for waiting in self.model.waiting]
        assert (len(self.timer), counts(self.purgatory)) == (0, (0, 0, 0, 0))
        return len(self.log)


@pytest.mark.parametrize("block", range(0, 300, 50))
def test_a_random_scenario_goes_as_the_model_says__P1_P2_P3_P4_P5(block: int) -> None:
    ends = 0
    for seed in range(block, block + 50):
        try:
            ends += Scenario(seed).run()
        except AssertionError as error:
            error.add_note(f"the scenario: Scenario({seed}).run()")
            raise
    assert ends > 300, "scenarios in which little ends say little"
