"""The conversion of wall time to the timer's time; slow readings err on the late side only."""

from collections.abc import Iterator

from tickwheel.delivery.clock import ReplayClock, WallClock
from tickwheel.testing import ManualTimer

MS = 1_000_000
WALL_NS = 1_700_000_000_000 * MS


class SlowReadings:
    """A timer and a wall clock where each reading of the timer takes some microseconds."""

    def __init__(self, costs_us: Iterator[int]) -> None:
        self.passed_us = 0
        self.costs_us = costs_us

    def now_us(self) -> int:
        self.passed_us += next(self.costs_us)
        return 5_000_000 + self.passed_us

    def wall_ns(self) -> int:
        return WALL_NS + self.passed_us * 1000


def constant(value: int) -> Iterator[int]:
    while True:
        yield value


def test_the_example_of_the_module_holds__D3() -> None:
    clock = WallClock(ManualTimer(start_ms=5_000), lambda: WALL_NS)
    assert clock.instant_ms(1_700_000_000_250) == 5_250
    assert clock.late_ns(1_700_000_000_250, 1_700_000_000_251 * MS) == MS


def test_an_instant_before_the_timers_clock_began_is_its_beginning__D3() -> None:
    assert WallClock(ManualTimer(), lambda: WALL_NS).instant_ms(5) == 0


def test_slow_readings_make_nothing_early__D3() -> None:
    slow = SlowReadings(constant(7))
    assert WallClock(slow, slow.wall_ns).instant_ms(1_700_000_000_250) == 5_250.007


def test_one_reading_that_was_held_up_does_not_count__D3() -> None:
    def costs() -> Iterator[int]:
        yield 50_000  # between the wall clock and the timer's
        yield from constant(0)

    slow = SlowReadings(costs())
    assert WallClock(slow, slow.wall_ns).instant_ms(1_700_000_000_250) == 5_250


def test_steps_add_up_until_the_clock_is_read_again__D3() -> None:
    wall_ns = WALL_NS
    clock = WallClock(ManualTimer(), lambda: wall_ns)
    wall_ns += 600_000
    assert not clock.was_stepped()
    wall_ns += 600_000
    assert clock.was_stepped()
    clock.read_again()
    assert not clock.was_stepped()
    wall_ns -= MS
    assert clock.was_stepped()
    assert clock.instant_ms(1_700_000_000_100) == 98.8


def test_a_replay_maps_recorded_time_to_the_timers__D11() -> None:
    timer = ManualTimer(start_ms=5_000)
    clock = ReplayClock(timer, speed=60, from_ms=1_000_000, head_start_ms=10)
    assert clock.instant_ms(1_060_000) == 5_000 + 10 + 1_000
    assert clock.late_ns(1_000_000, wall_ns=0) == -10 * MS
    timer.advance(15)
    assert clock.late_ns(1_000_000, wall_ns=0) == 5 * MS
