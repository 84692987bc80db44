"""The page of a timer in a real browser (D14)."""

import http.client
import re
import threading
from array import array

import pytest
from playwright.sync_api import Browser, expect

from tickwheel import SystemTimer
from tickwheel.pages import watch
from tickwheel.testing import ManualTimer

from .conftest import Open, note_what_moves

pytestmark = pytest.mark.timeout(120)
DAY_MS = 86_400_000
LONG = "retries-of-the-mail-gateway"


def levels(page):
    return page.locator("#levels tr").all_inner_texts()


@pytest.mark.parametrize("pending", [0, 10, 10_000_000])
@pytest.mark.parametrize("width", [390, 1200])
def test_a_wheel_is_shown_however_full_it_is_and_however_narrow_the_screen(open_page: Open, pending, width):
    timer = ManualTimer("much")
    delays = array("q", range(DAY_MS, DAY_MS + 100)) * (pending // 100) or array("q", [DAY_MS] * pending)
    timer.add_many(delays, lambda *_: None)
    with watch(timer) as watched:
        page = open_page(watched.url, width=width, dark=width == 390)
        expect(page.locator("#front")).to_contain_text(f"{pending:,} pending")
        expect(page.locator("#due")).to_contain_text(f"next hour\n0\nnext day\n{pending:,}", use_inner_text=True)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.locator("#messages").is_hidden()
        assert page.locator("#wheel path.full").count() == (1 if pending else 0)


@pytest.mark.parametrize(
    ("width", "name", "slower"),
    [(390, "still", 1), *((width, "retries-of-the-mail-gateway", 16) for width in (390, 800, 1200))],
)
def test_nothing_moves_once_it_is_seen(open_page: Open, name, width, slower):
    timer = ManualTimer(name, tick_ms=1, wheel_size=20)
    for delay_ms in (5, 410, DAY_MS):
        timer.after(delay_ms, int)
    with watch(timer) as watched:
        page = open_page("about:blank", width=width)
        moved = note_what_moves(page, slower)
        page.goto(watched.url)
        expect(page.locator("#front")).to_contain_text("3 pending")
        tops = [page.locator(part).bounding_box()["y"] for part in ("#wheel-part", "#due-part")]
        assert tops[0] <= tops[1], "of a timer the wheel comes first"
        assert moved() < 0.1


def test_buckets_fill_and_cascade_as_the_time_moves(open_page: Open):
    timer = ManualTimer("turning", tick_ms=1, wheel_size=20)
    timer.after(410, lambda: None)
    with watch(timer) as watched:
        page = open_page(watched.url)
        expect(page.locator("#levels tr")).to_have_count(3)
        expect(page.locator("#levels tr").nth(2)).to_contain_text("1 of 20")
        timer.advance_to(405)
        expect(page.locator("#levels tr").nth(2)).to_contain_text("0 of 20")
        expect(page.locator("#levels tr").nth(0)).to_contain_text("1 of 20")
        timer.advance_to(410)
        expect(page.locator("#front")).to_contain_text("0 pending")


def test_a_flushed_bucket_flashes_but_not_on_a_ring_that_turns_fast(browser: Browser):
    timer = ManualTimer("flash")
    for delay_ms in (30, 410):
        timer.after(delay_ms, int)
    context = browser.new_context()
    with watch(timer) as watched:
        page = context.new_page()
        page.goto(watched.url)
        expect(page.locator("#levels tr").nth(1)).to_contain_text("1 of 20")
        page.evaluate("""() => { window.ended = []; for (const name of ["animationend", "animationcancel"])
            document.addEventListener(name, (it) => ended.push([name, it.elapsedTime])) }""")
        timer.advance_to(45)
        expect(page.locator("#levels tr").nth(1)).to_contain_text("0 of 20")
        assert page.locator(".flushed").count() == 0
        timer.advance_to(405)
        expect(page.locator("#levels tr").nth(2)).to_contain_text("0 of 20")
        expect(page.locator(".flushed")).to_have_count(0)
        assert page.evaluate("ended") == [["animationend", 0.7]], "it was not cut off by the next frame"
    context.close()


def test_calls_and_their_lateness_are_told_as_they_happen(open_page: Open):
    with SystemTimer("busy") as timer, watch(timer) as watched:
        page = open_page(watched.url)
        expect(page.locator("#status")).to_have_text("Watching the timer busy.")
        expect(page.locator("#flow")).to_contain_text("fired a second")
        called = threading.Event()
        timer.after(1, called.set)
        assert called.wait(20)
        expect(page.locator("#late-words")).to_contain_text("1 calls in the last minute")


def test_a_timer_that_is_shut_down_and_a_page_that_is_closed_are_said(open_page: Open):
    timer = SystemTimer("short")
    with watch(timer) as watched:
        page = open_page(watched.url)
        expect(page.locator("#status")).to_have_text("Watching the timer short.")
        timer.shutdown()
        expect(page.locator("#status")).to_have_text("The timer is shut down.")
    watched.close()
    expect(page.locator("#status")).to_contain_text("No connection")


def test_only_browsers_on_this_machine_and_its_own_page_get_an_answer():
    with SystemTimer("alone") as timer, watch(timer) as watched:
        port = int(re.findall(r":(\d+)/", watched.url)[0])

        def status(path, **headers):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            connection.close()
            return answer.status

        assert status("/") == 200
        assert status("/", host=f"localhost:{port}") == 200
        assert status("/", host="evil.example") == 403
        assert status("/events", origin="http://evil.example") == 403
        assert status("/events", origin=f"http://127.0.0.1:{port}") == 200
        assert status("/secret") == 404


MARKUP = "</script><script>document.title = 'taken'</script>{{style}}<img src=x onerror=alert(1)>"


def test_a_name_that_is_markup_is_text(open_page: Open):
    name = MARKUP
    with SystemTimer(name) as timer, watch(timer) as watched:
        page = open_page(watched.url)
        expect(page.locator("h1")).to_have_text(f"Timer {name}")
        expect(page.locator("#status")).to_contain_text(name)
        assert page.title() == f"Timer {name}"


def test_what_is_no_timer_is_refused():
    with pytest.raises(TypeError, match="got str"):
        watch("timer")  # type: ignore[arg-type]
