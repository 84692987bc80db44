"""The window against a plain model: what is in memory, what is not, and the order of sending (D4, D8)."""

import random
from dataclasses import dataclass, field

import pytest

from tickwheel.delivery.lanes import State
from tickwheel.delivery.settings import Bounds, Entry, Lane, Window
from tickwheel.delivery.store import Waiting

LAST = (1 << 63) - 1
Position = tuple[int, int]


def row(due_ms: int, seq: int, lane: int | None = 1, size: int = 10) -> Waiting:
    return Waiting(due_ms, seq, lane, size, redelivered=False)


def opened(cursor_ms: int = 1_000, *, is_global: bool = False, **bounds: int) -> Window:
    window = Window(Bounds(**bounds), is_global=is_global)
    window.cursor = (cursor_ms, LAST)
    return window


def add(window: Window, *rows: Waiting) -> list[Entry | None]:
    return [window.admit(one, []) for one in rows]


def lane_of(window: Window, number: int = 1) -> Lane:
    return next(lane for lane in window.lanes() if lane.number == number)


def take(window: Window, lane: Lane) -> Entry:
    """Take the lane's first message, as if the timer had released it."""
    first = lane.first()
    assert first
    first.state = State.WAITING
    assert window.take(lane) is first
    return first


def test_the_example_of_the_window_holds__D4_D8() -> None:
    window = opened(lane_messages=2)
    window.cursor = (50, 9)
    add(window, row(10, 1), row(20, 2), row(30, 3))
    lane = lane_of(window)
    assert (lane.more_from, len(window)) == ((30, 3), 2)
    [entry] = add(window, row(15, 10))
    assert entry
    assert window.get(2) is None, "it went back to the store"
    assert lane.more_from == (20, 2)


def test_a_lane_that_was_left_empty_does_not_take_a_new_one_with_it__D4() -> None:
    window = opened()
    first, second = add(window, row(10, 1), row(20, 2))
    assert first
    assert second
    take(window, lane_of(window))
    window.land(first)  # delivered, but not committed
    window.land(second)  # cancelled
    window.forget([2])
    [third] = add(window, row(30, 3))
    window.forget([1])  # now the first one is committed too
    [fourth] = add(window, row(40, 4))
    assert third
    assert fourth
    assert third.lane is fourth.lane, "one key has two lanes: both messages could be sent at once"


def test_after_the_cursor_went_back_nothing_overtakes_in_a_key__D4() -> None:
    window = opened(messages=4)
    add(window, row(10, 1, 1), row(30, 2, 1), row(31, 3, None), row(32, 4, None))
    add(window, row(5, 5, 2))  # no room: the cursor goes back, and the latest with it
    assert window.cursor
    assert window.cursor < (50, 9)
    [entry] = add(window, row(20, 6, 1))
    lane = lane_of(window)
    left_out = [] if entry else [(20, 6)]
    in_memory = [one.position for one in window if one.lane is lane and one.state is not State.OVER]
    assert all(position < left for left in left_out for position in in_memory), "(30, 2) would go out before (20, 6)"


def test_what_comes_between_the_cursor_and_the_rest_of_a_lane_is_not_lost__D4() -> None:
    window = opened(messages=6, lane_messages=2)
    add(window, row(10, 1), row(20, 2), row(30, 3))  # the third is in the store alone
    add(window, *(row(40, seq, None) for seq in (4, 5, 6, 7)))
    add(window, row(5, 8, 2))  # no room: the cursor goes back, and the latest with it
    waiting = {(10, 1): row(10, 1), (20, 2): row(20, 2), (30, 3): row(30, 3)}
    add(window, row(25, 9))
    waiting[25, 9] = row(25, 9)
    for seq in (4, 5, 6, 7, 8):
        if entry := window.get(seq):
            window.land(entry)
            window.forget([seq])
    out = []
    for _ in range(20):
        advance(window, waiting, 1_000)
        for lane in [lane for lane in window.lanes() if lane.number == 1 and lane.first()]:
            entry = take(window, lane)
            out.append(entry.position)
            del waiting[entry.position]
            window.land(entry)
            window.forget([entry.seq])
    assert out == [(10, 1), (20, 2), (25, 9), (30, 3)]


def advance(window: Window, waiting: dict[Position, Waiting], until_ms: int) -> None:
    """The loader's work, with a dictionary as the store."""
    if (wanted := window.refill_from()) and window.cursor:
        numbers, start = wanted
        rows = [waiting[at] for at in sorted(waiting) if start <= at <= window.cursor]
        window.refill(numbers, [one for one in rows if one.lane in numbers], window.cursor)
    assert window.cursor
    rows = [waiting[at] for at in sorted(waiting) if at > window.cursor and at[0] <= until_ms]
    if window.has_room() and window.cursor[0] <= until_ms:
        window.read_ahead(rows, until_ms, is_all=True)


def test_one_lane_does_not_outgrow_its_bytes_when_large_ones_come_before_small_ones__D8() -> None:
    window = opened(lane_messages=100, lane_size=1_000, size=100_000)
    add(window, *(row(500 + seq, seq, 1, 10) for seq in range(1, 100)))
    add(window, *(row(400 - seq, seq, 1, 500) for seq in range(100, 190)))
    assert lane_of(window).size <= 1_000 + 500
    assert window.size <= 1_000 + 500


def test_memory_does_not_outgrow_its_bytes_when_large_ones_come_before_small_ones__D8() -> None:
    window = opened(messages=100, size=1_000)
    for lane in range(10):
        add(window, *(row(500 + seq, 100 * lane + seq, lane, 10) for seq in range(1, 11)))
    for lane in range(10):
        add(window, *(row(400 - seq, 100 * lane + seq, lane, 500) for seq in range(11, 21)))
    assert window.size <= 1_000 + 500


def test_cancelled_messages_behind_one_that_stays_are_not_kept_in_memory__D8() -> None:
    window = opened(10_000)
    add(window, row(1, 1))
    for seq in range(2, 2_000):
        [entry] = add(window, row(seq, seq))
        assert entry
        window.land(entry)
        window.forget([seq])
    assert len(window) == 1
    assert len(lane_of(window)._heap) < 1_000


def test_a_lane_goes_when_the_rest_of_it_was_cancelled_in_the_store__D8() -> None:
    window = opened(lane_messages=1)
    add(window, row(1, 1), row(2, 2))
    entry = take(window, lane_of(window))
    window.land(entry)
    window.forget([1])
    advance(window, {}, 1_000)  # the second was cancelled meanwhile
    assert list(window.lanes()) == []


@dataclass
class World:
    """Window, store, and the expected messages of each lane; one event at a time."""

    rng: random.Random
    window: Window
    bounds: Bounds
    is_global: bool
    waiting: dict[Position, Waiting] = field(default_factory=dict)
    flying: list[Entry] = field(default_factory=list)
    over: list[Entry] = field(default_factory=list)
    out: list[Position] = field(default_factory=list)
    seq: int = 0
    now_ms: int = 0

    def admit(self) -> None:
        self.seq += 1
        lane = self.rng.choice([None, 1, 1, 2, 3])
        one = row(self.now_ms + self.rng.randrange(-20, 60), self.seq, lane, self.rng.randrange(1, 40))
        self.waiting[one.position] = one
        self.window.admit(one, [])

    def load(self) -> None:
        scan, window = self.rng.randrange(1, 8), self.window
        if (wanted := window.refill_from()) and window.cursor:
            numbers, start = wanted
            between = [at for at in sorted(self.waiting) if start <= at <= window.cursor]
            end = between[scan - 1] if len(between) >= scan else window.cursor
            rows = [self.waiting[at] for at in between if at <= end and self.waiting[at].lane in numbers]
            window.refill(numbers, rows, end)
        assert window.cursor
        until_ms = self.now_ms + 40
        if window.has_room() and window.cursor[0] <= until_ms:
            every = [at for at in sorted(self.waiting) if at > window.cursor and at[0] <= until_ms]
            rows = [self.waiting[at] for at in every[:scan]]
            window.read_ahead(rows, until_ms, is_all=len(rows) < scan)

    def take(self) -> None:
        for lane in self.window.lanes():
            first = lane.first()
            if first and lane.flying is None and self.rng.random() < 0.7:
                self.flying.append(take(self.window, lane))
        for entry in self.window:
            if entry.lane is None and entry.state is State.HELD and self.rng.random() < 0.7:
                entry.state = State.READY
                self.flying.append(entry)

    def settle(self) -> None:
        if self.flying:
            entry = self.flying.pop(self.rng.randrange(len(self.flying)))
            if self.rng.random() < 0.15:
                entry.state = State.HELD
                self.window.put_back(entry)
                return
            self.out.append(entry.position)
            self.window.land(entry)
            self.over.append(entry)

    def cancel(self) -> None:
        if self.waiting:
            at = self.rng.choice(sorted(self.waiting))
            entry = self.window.get(at[1])
            if entry is None:
                del self.waiting[at]
            elif entry.state is State.HELD and entry not in self.flying:
                self.window.land(entry)
                self.over.append(entry)

    def commit(self) -> None:
        self.rng.shuffle(self.over)
        for entry in self.over:
            del self.waiting[entry.position]
            self.window.forget([entry.seq])
        self.over = []

    def check(self) -> None:
        window, memory = self.window, list(self.window)
        assert window.size == sum(entry.size for entry in memory)
        assert len(memory) <= self.bounds.messages, "more messages in memory than the bound"
        assert window.size <= self.bounds.size + 40, "more bytes in memory than the bound and one message"
        assert window.cursor
        in_memory = {entry.position for entry in memory}
        lanes = {lane.number: lane for lane in window.lanes()}
        for at, one in self.waiting.items():
            number = 0 if self.is_global else one.lane
            lane = None if number is None else lanes.get(number)
            is_left = lane is not None and lane.more_from is not None and at >= lane.more_from
            if at <= window.cursor and not is_left:
                assert at in in_memory, f"{at} is neither in memory nor left in the store on purpose"
            if at not in in_memory and lane is not None:
                held = [it.position for it in memory if it.lane is lane and it.state is State.HELD]
                flying = {it.position for it in self.flying}
                later = [position for position in held if position > at and position not in flying]
                assert not later, f"{later} would go out before {at}"
        for entry in memory:
            if entry.lane is not None and entry.state is not State.OVER:
                assert lanes.get(entry.lane.number) is entry.lane, "a message is in a lane that is gone"
        for lane in lanes.values():
            live = [it for it in memory if it.lane is lane and it.state is not State.OVER and it is not lane.flying]
            assert (lane.count, lane.size) == (len(live), sum(it.size for it in live))
            assert lane.first() is min(live, key=lambda it: it.position, default=None)


def play(seed: int, *, is_global: bool, step_back: bool) -> World:
    rng = random.Random(seed)
    bounds = Bounds(rng.randrange(4, 9), rng.randrange(60, 200), rng.randrange(1, 4), rng.randrange(20, 80))
    window = Window(bounds, is_global=is_global)
    window.cursor = (-1, 0)
    world = World(rng, window, bounds, is_global)
    doings = [world.admit, world.admit, world.load, world.take, world.settle, world.settle, world.commit, world.cancel]
    for _ in range(250):
        rng.choice(doings)()
        if step_back and rng.random() < 0.05:
            world.now_ms -= rng.randrange(0, 30)
        world.now_ms += rng.randrange(3)
        world.check()
    world.now_ms += 1_000
    for _ in range(20 * len(world.waiting) + 50):
        for act in (world.load, world.take, world.settle, world.settle, world.settle, world.commit):
            act()
            world.check()
    return world


@pytest.mark.parametrize("is_global", [False, True], ids=["by key", "global"])
@pytest.mark.parametrize("step_back", [False, True], ids=["clock goes on", "clock goes back"])
def test_whatever_happens_nothing_is_lost_or_overtakes_and_the_bounds_hold__D4_D8(
    is_global: bool, step_back: bool
) -> None:
    for seed in range(60):
        try:
            world = play(seed, is_global=is_global, step_back=step_back)
            assert world.waiting == {}, "not everything came out"
            assert list(world.window.lanes()) == [], "empty lanes are left"
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
