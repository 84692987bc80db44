"""T2 to T4: where an entry is put, how it comes down, and the worked examples of the specification."""

import json
import threading
from pathlib import Path

import pytest

from tickwheel import SystemTimer, TimerTask
from tickwheel.testing import ManualTimer
from timer.watching import armed, places, stops, wait

GOLDEN = json.loads((Path(__file__).parents[2] / "data" / "seven_tasks.json").read_text(encoding="utf-8"))


def add(timer: ManualTimer, *delays_ms: int, ran: list[str] | None = None) -> None:
    """One task per delay, named after it."""
    for delay_ms in delays_ms:
        name = str(delay_ms)
        timer.add(TimerTask(delay_ms, [].append if ran is None else ran.append, name, name=name))


def test_2_ms_350_ms_and_450_ms_go_to_levels_1_2_and_3__T3() -> None:
    timer = ManualTimer(tick_ms=1, wheel_size=20)
    add(timer, 2, 350, 450, 446, 455, 473)
    assert places(timer) == {"2": (1, 2), "350": (2, 17), "450": (3, 1), "446": (3, 1), "455": (3, 1), "473": (3, 1)}
    assert armed(timer) == [(2, 1, 2), (340, 2, 17), (400, 3, 1)]
    assert timer.snapshot()["levels"][2]["buckets"][1] == {"expiration_ms": 400, "tasks": ["450", "446", "455", "473"]}


def test_the_450_ms_task_cascades_at_400_and_440_and_runs_at_450__T4() -> None:
    ran: list[str] = []
    timer = ManualTimer()
    add(timer, 450, ran=ran)
    timer.advance_to(399.75)
    assert places(timer) == {"450": (3, 1)}
    timer.advance_to(400)
    assert (places(timer), armed(timer)) == ({"450": (2, 2)}, [(440, 2, 2)])
    timer.advance_to(439.75)
    assert places(timer) == {"450": (2, 2)}
    timer.advance_to(440)
    assert (places(timer), armed(timer)) == ({"450": (1, 10)}, [(450, 1, 10)])
    timer.advance_to(449.75)
    assert ran == []
    timer.advance_to(450)
    assert ran == ["450"]
    assert timer.stats()["cascaded"] == [1, 1, 1]


def test_after_2_ms_a_task_of_8_ms_goes_to_bucket_10_and_one_of_19_ms_to_1__T3() -> None:
    timer = ManualTimer()
    timer.advance(2)
    add(timer, 8, 19)
    assert places(timer) == {"8": (1, 10), "19": (1, 1)}
    assert timer.snapshot()["levels"][0]["covers_ms"] == [2, 22]


def test_four_levels_of_20_cover_160_seconds__T2() -> None:
    timer = ManualTimer()
    add(timer, 159_999)
    assert [level["interval_ms"] for level in timer.snapshot()["levels"]] == [20, 400, 8_000, 160_000]
    add(timer, 160_000)
    assert len(timer.snapshot()["levels"]) == 5


def test_an_expiration_of_237_on_level_2_is_in_the_bucket_from_220_to_240__T3() -> None:
    timer = ManualTimer()
    add(timer, 237)
    assert (places(timer), armed(timer)) == ({"237": (2, 11)}, [(220, 2, 11)])
    add(timer, 220, 239, 240)
    assert {name for name, place in places(timer).items() if place == (2, 11)} == {"237", "220", "239"}


def test_units_of_1_in_wheels_of_3_cover_3_9_and_27__T2() -> None:
    timer = ManualTimer(tick_ms=1, wheel_size=3)
    add(timer, 26)
    levels = timer.snapshot()["levels"]
    assert [(level["tick_ms"], level["covers_ms"]) for level in levels] == [(1, [0, 3]), (3, [0, 9]), (9, [0, 27])]
    add(timer, 4)
    assert (places(timer)["4"], armed(timer)[0]) == ((2, 1), (3, 2, 1))
    timer.advance(3)
    assert places(timer)["4"] == (1, 1)


def test_200_ms_and_840_ms_are_two_wake_ups__T4() -> None:
    timer = ManualTimer(wheel_size=1000)
    add(timer, 840, 200)
    assert [expiration_ms for expiration_ms, _, _ in armed(timer)] == [200, 840]
    assert stops(timer) == [200, 840]


def test_empty_ticks_do_not_wake_the_reaper__T4() -> None:
    ran = threading.Event()
    with SystemTimer("two", wheel_size=1000) as timer:
        timer.after(20, int)
        timer.after(84, ran.set)
        wait(ran)
        assert timer.stats()["wake_ups"] <= 3  # one more for the first add


def test_1_ms_and_100_days_need_8_levels_and_three_wake_ups__T4() -> None:
    timer = ManualTimer()
    add(timer, 1, 8_640_000_000)
    assert len(timer.snapshot()["levels"]) == 8
    assert stops(timer) == [1, 7_680_000_000, 8_640_000_000]
    assert len(timer) == 0


def test_sizes_60_60_12_and_a_tick_of_a_second_are_a_clock_face__T2() -> None:
    ran: list[str] = []
    timer = ManualTimer(tick_ms=1000, wheel_size=(60, 60, 12))
    add(timer, 12_345_000, ran=ran)  # 3 h 25 min 45 s
    levels = timer.snapshot()["levels"]
    assert [(level["tick_ms"], len(level["buckets"])) for level in levels] == [
        (1000, 60),
        (60_000, 60),
        (3_600_000, 12),
    ]
    seen = []
    while timer.run_next():
        seen.append((timer.now_ms() // 1000, *places(timer).values()))
    assert seen == [(3 * 3600, (2, 25)), (3 * 3600 + 25 * 60, (1, 45)), (12_345,)]
    assert ran == ["12345000"]


def test_the_last_size_repeats__T2() -> None:
    timer = ManualTimer(tick_ms=1000, wheel_size=(60, 60, 12))
    add(timer, 12 * 3_600_000, 12 * 12 * 3_600_000)
    assert [len(level["buckets"]) for level in timer.snapshot()["levels"]] == [60, 60, 12, 12, 12]


def test_the_current_time_of_a_level_is_rounded_down_to_its_tick__T2() -> None:
    timer = ManualTimer(tick_ms=20, start_ms=123)
    assert timer.snapshot()["levels"][0]["current_time_ms"] == 120


def test_an_upper_level_starts_at_the_current_time_of_the_level_below_and_stays__T2() -> None:
    timer = ManualTimer(start_ms=1_234)
    assert len(timer.snapshot()["levels"]) == 1
    timer.advance(5)
    add(timer, 50)
    level = timer.snapshot()["levels"][1]
    assert (level["start_ms"], level["current_time_ms"], level["covers_ms"]) == (1_239, 1_220, [1_220, 1_620])
    timer.advance(100_000)
    assert (len(timer), len(timer.snapshot()["levels"])) == (0, 2)


@pytest.mark.parametrize(("delay_ms", "place"), [(19, (1, 19)), (20, (2, 1)), (399, (2, 19)), (400, (3, 1))])
def test_a_level_covers_up_to_but_not_including_its_interval__T2(delay_ms: int, place: tuple[int, int]) -> None:
    timer = ManualTimer()
    add(timer, delay_ms)
    assert places(timer) == {str(delay_ms): place}


def test_what_expires_in_the_current_tick_goes_to_the_front__T3() -> None:
    timer = ManualTimer(tick_ms=10)
    add(timer, 9, 10)
    assert [item["task"] for item in timer.snapshot()["front"]] == ["9"]
    assert places(timer) == {"10": (1, 1)}


def test_a_bucket_that_is_armed_is_not_armed_again__T3() -> None:
    timer = ManualTimer()
    add(timer, 300, 301, 319)
    assert armed(timer) == [(300, 2, 15)]


def test_add_never_runs_a_callback__T3() -> None:
    timer, ran = ManualTimer(), []
    timer.after(0, ran.append, 1)
    timer.after(-1000, ran.append, 2)
    assert (ran, len(timer)) == ([], 2)


def test_a_long_empty_time_is_one_step__T4() -> None:
    timer = ManualTimer()
    add(timer, 3)
    timer.advance(10**15)
    assert (timer.now_ms(), timer.run_next()) == (10**15, False)


def test_the_seven_tasks_are_where_the_golden_data_has_them__T14() -> None:
    expired: list[str] = []
    timer = ManualTimer(
        tick_ms=GOLDEN["tick_ms"], wheel_size=GOLDEN["wheel_size"], start_ms=GOLDEN["start_ms"], precision="tick"
    )
    for step in GOLDEN["steps"]:
        action, _, what = step["step"].partition(" ")
        if action == "add":
            timer.add(TimerTask(step["expiration_ms"] - timer.now_ms(), expired.append, what, name=what))
        elif action == "advance":
            timer.advance_to(step["now_ms"])
        snapshot = timer.snapshot()
        found = {key: snapshot[key] for key in ("levels", "queue", "size")} | {"expired": expired}
        assert found == {key: step[key] for key in found}, step["step"]
    assert len(GOLDEN["steps"]) == 15
