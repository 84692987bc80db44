"""What the page of a service says at a glance (D14): the state, the load, grouped errors, the wheel as a clock."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from delivery.serve.conftest import Served
from tickwheel.delivery import Delivery, Unavailable
from tickwheel.pages import watch
from tickwheel.testing import ManualTimer

from .conftest import Open, url

pytestmark = pytest.mark.timeout(120)
SCREEN = 844
DOWN = {"up": False, "reason": "503", "changed_ms": 0}
SOME_DOWN = {"count": 5, "down": 1, "paused": 0, "first": []}


def put(served: Served, count: int, delay_ms: float = 3_600_000) -> None:
    for number in range(count):
        body = {"id": f"{delay_ms} {number}", "key": f"key {number}", "delay_ms": delay_ms}
        assert served.ask("POST", "/messages", body).status == 201


@pytest.mark.parametrize(
    ("figures", "per_s", "state", "words"),
    [
        ({}, 0, "", "Ready. Nothing was delivered since 1970-01-01T00:00 UTC."),
        ({"delivered": 3}, 0, "well", "Delivering."),
        ({"delivered": 3, "now": 661}, 9.9, "slow", "Delivering; 661 overdue, done in about a minute at 9.9/s."),
        ({"delivered": 3, "now": 3_000}, 2, "slow", "3,000 overdue, done in about 27 min at 2.0/s."),
        ({"delivered": 3, "now": 9_000}, 0.3, "slow", "9,000 overdue, not done within an hour at 0.3/s."),
        ({"delivered": 3, "now": 12}, 0, "ill", "Nothing moves. 12 overdue. The oldest has waited for 1 min."),
        ({"now": 12, "in_doubt": {}}, 0, "slow", "12 overdue, which wait for a key, a destination or a tenant."),
        ({"now": 12, "destination": DOWN}, 0, "ill", "is down since 1970-01-01T00:00:00 UTC: 503. 12 overdue."),
        ({"delivered": 3, "destinations": SOME_DOWN}, 0, "slow", "Delivering. 1 of 5 destinations is down."),
        ({"destinations": {**SOME_DOWN, "down": 5}}, 0, "ill", "5 of 5 destinations are down."),
        ({"paused": True, "delivered": 3}, 0, "slow", "Paused: messages are accepted, and nothing is sent."),
        ({"paused": True, "now": 5}, 0, "ill", "and nothing is sent. 5 overdue."),
    ],
)
def test_the_state_is_one_sentence_with_the_time_that_is_left__D14(
    shown_states: Any, figures: dict[str, Any], per_s: float, state: str, words: str
) -> None:
    found, told = shown_states(figures, per_s)
    assert found == state
    assert words in told


@pytest.fixture
def shown_states(open_page: Open, tmp_path: Path) -> Any:
    """What the page makes of figures. Ten messages become due in each minute."""
    with closing(Served(tmp_path)) as served:
        page = open_page(url(served))

        def told(figures: dict[str, Any], per_s: float) -> tuple[str, str]:
            now, delivered = figures.pop("now", 0), figures.pop("delivered", 0)
            given = {
                "destination": None,
                "destinations": None,
                "paused": False,
                "paused_until": None,
                "paused_keys": 0,
                "tenants": [],
                "in_doubt": None,
                "due": {"now": now},
                "oldest_overdue_ms": 60_000 if now else 0,
                "counts": {"delivered": delivered},
                "rate_per_s": 0,
                "since_ms": 0,
                "at_ms": 0,
                **figures,
            }
            words, state, more = page.evaluate(
                "([figures, per_s]) => { coming = figures.due.now ? new Array(60).fill(10) : []; "
                "return told_state(figures, { delivered: per_s }, count) }",
                [given, per_s],
            )
            return state, words + more

        yield told


def test_a_backlog_under_a_rate_is_amber_and_has_its_end__D14(tmp_path: Path, open_page: Open) -> None:
    with closing(
        Served(tmp_path, to=lambda _: None, rate="5/s", name="orders.db", address="https://a.example/x")
    ) as it:
        page = open_page(url(it))
        expect(page.locator("h1")).to_have_text("orders.db→ a.example")
        put(it, 200, 0)
        expect(page.locator("#progress")).to_contain_text(" overdue, done in about ")
        expect(page.locator("#state")).to_have_attribute("data-state", "slow")
        expect(page.locator("#tile-overdue")).to_have_attribute("data-state", "slow")


def test_errors_are_grouped_and_open_into_keys__D14(tmp_path: Path, open_page: Open) -> None:
    def send(delivery: Delivery) -> None:
        raise Unavailable("in maintenance" if delivery.message.key != "key 0" else "reset", retry_after_s=3_600)

    with closing(Served(tmp_path, to=send)) as served:
        page = open_page(url(served), width=390)
        put(served, 12, 0)
        groups = page.locator("#doubt-groups details")
        expect(groups).to_have_count(2)
        expect(groups.nth(0).locator("summary")).to_contain_text("11 keys: in maintenance, first ")
        expect(groups.nth(0).locator("tbody")).to_be_hidden()
        groups.nth(0).locator("summary").click()
        expect(groups.nth(0).locator("tbody tr")).to_have_count(10)
        expect(groups.nth(0)).to_contain_text("These 10 have failed for longest.")
        expect(groups.nth(1).locator("tbody th")).to_have_text("key 0")  # few are open at first
        tops = [page.locator(part).bounding_box()["y"] for part in ("#doubt", "#messages", "#load")]  # type: ignore[index]
        assert tops == sorted(tops), "the lists come first where something is wrong"


def test_three_narrow_screens_are_enough_where_nothing_is_wrong__D14(served: Served, open_page: Open) -> None:
    put(served, 30)
    page = open_page(url(served), width=390, height=SCREEN)
    expect(page.locator("#rows tbody tr")).to_have_count(10)
    assert page.evaluate("document.documentElement.scrollHeight") <= 3 * SCREEN
    expect(page.locator("#wheel")).to_be_hidden()
    page.locator("#wheel-title").click()
    expect(page.locator("#wheel")).to_be_visible()


def test_a_bar_says_its_number_at_a_touch__D14(served: Served, open_page: Open) -> None:
    put(served, 1, 1_800_000)
    page = open_page(url(served))
    words = page.locator("#minutes-words")
    expect(words).to_have_text("The next hour: 1, at most 1 in a minute")
    page.locator("#minutes i[title$=' 1']").hover()
    expect(words).to_contain_text("UTC: 1")


def test_what_is_due_next_stands_at_twelve_o_clock_and_a_bucket_says_its_number__D14(open_page: Open) -> None:
    timer = ManualTimer("clock")
    for delay_ms in (900, 901, 902):
        timer.after(delay_ms, int)
    with watch(timer) as watched:
        page = open_page(watched.url)
        expect(page.locator("#front")).to_contain_text("3 pending")
        timer.advance_to(850)  # an eighth of a turn of the ring of 400 ms is left
        bucket = page.locator("#wheel .ring:nth-of-type(2) .full")
        expect(bucket).to_have_count(1)
        middle = "it => { const at = it.getBoundingClientRect(); return [at.x + at.width / 2, at.y + at.height / 2] }"
        (x, y), found = page.locator("#wheel").evaluate(middle), bucket.evaluate(middle)
        assert (found[0] < x, found[1] < y) == (True, True), (
            "what is later stands left of it, and turns as a clock does"
        )
        bucket.hover()
        expect(page.locator("#wheel .count")).to_have_text("3")
        expect(page.locator("#wheel .count + text")).to_have_text("in 50 ms")
        page.mouse.move(0, 0)
        expect(page.locator("#wheel .count + text")).to_have_text("pending")


def test_the_chart_of_lateness_has_the_rows_that_it_needs__D14(open_page: Open) -> None:
    with watch(ManualTimer("late")) as watched:
        page = open_page(watched.url)
        scales = page.evaluate(
            """() => [[], [100], [45e6], [100, 45e6], [null]].map((bounds) => {
                lateness.columns = [new Map(bounds.map((bound_us) => [bound_us ?? Infinity, 1]))];
                const [lowest, end] = lateness.scale();
                return [EDGES_MS[lowest], EDGES_MS[end - 1]].map((edge) => edge === Infinity ? "more" : edge) })"""
        )
    assert scales == [[1, 50], [0.05, 2], [2000, "more"], [0.05, "more"], [2000, "more"]]
